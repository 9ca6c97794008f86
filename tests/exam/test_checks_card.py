"""The exam of the checks: planted defects, counting, and which slides of a public talk were changed. No browser."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import checks_card  # noqa: E402
import planted_defects  # noqa: E402
import real_decks  # noqa: E402

DECK = """---
theme: default
---

# Moths at the lamp

---

# Where we counted them

- The bridge by the mill has **two lamps** and no wind at night
- In 2019 there were 312 moths of 41 kinds

---

# How an evening goes

![](images/moths.jpg)

We meet at seven at the bridge and share the lamps among us

---

# Come along
"""
RECORD = {
    "id": "g",
    "messages": [{"role": "user", "content": "For us. A deck. Say 312 moths. " + "word " * 30}],
    "asks": {"slides": 4, "language": "en", "theme": "default"},
    "checklist": [],
    "render": {"xray": []},
}


def test_every_check_has_a_defect_that_changes_the_deck_or_the_request():
    for name, make in planted_defects.CHECKS.items():
        made = make(planted_defects.Case(RECORD, DECK, name))
        if name not in ("element", "checklist"):  # nothing of these is asked for
            text, asks = made if isinstance(made, tuple) else (made, {})
            assert text != DECK or asks, name


def test_slides_that_were_changed_or_shown_before_do_not_count():
    def talk(ident, *texts, **more):
        xray = [{"slide": n, "text": text} for n, text in enumerate(texts, 1)]
        findings = [{"check": "dense", "slide": n, "message": ""} for n in (1, 2)]
        judge = {"findings": findings, "asked": []}
        return {"id": ident, "from": "x", "render": {"xray": xray}, "judge": judge, **more}

    same = "the same slide in two talks of one author"
    found, slides, _ = checks_card.alarms(
        [talk("a-1", "one", same), talk("a-2", "two", same), talk("b-1", "three", "x", changed=[1])]
    )
    assert slides == 4
    assert [(ident, n) for ident, n, _ in found["dense"]] == [
        ("a-1", 1),
        ("a-1", 2),
        ("a-2", 1),
        ("b-1", 2),
    ]


def test_a_talk_loses_what_is_not_to_be_had_and_says_on_which_slides():
    theirs = (
        "# A\n\n<Their>x</Their>\n\n---\n\n```html\n<Their>kept</Their>\n```\n\n---\n\n![](a.svg)\n"
    )
    plain = real_decks.ours(theirs)
    assert plain == theirs.replace("<Their>x</Their>", "x")
    assert real_decks.changed(theirs, plain, set()) == [1]
    assert real_decks.changed(theirs, plain, {plain.split("\n").index("![](a.svg)") + 1}) == [1, 3]
