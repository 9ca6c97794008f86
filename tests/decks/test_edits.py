"""One slide changed by a reply: the others stay, whatever the reply is."""

import pytest
from decksmith.measure.decks import edits
from decksmith.measure.decks.parser import Deck
from decksmith.people.demo import studio
from hypothesis import given
from hypothesis import strategies as st

DECK = """---
theme: seriph
title: Tides
---

# Tides

---

## Why twice

text

---
layout: center
---

# Middle

<!-- a note -->

---
hide: true
---

# Hidden

---

# Last
"""


def slides(text):
    return [(s.frontmatter, s.content, s.note, s.layout) for s in Deck.parse(text).slides]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "reply",
    [
        "# New\n\nwords",
        "---\nlayout: two-cols\n---\n\n# New\n\n::right::\n\nwords\n\n<!-- said -->\n",
        "```markdown\n---\nlayout: quote\n---\n\n# New\n```",
        "<think>hm</think>\n# New",
    ],
)
def test_a_slide_is_taken_from_the_reply_and_the_others_stay(number, reply):
    made = edits.changed(DECK, number, reply)
    at = [0, 1, 2, 4][number - 1]  # the fourth of the file is hidden
    was, now = slides(DECK), slides(made)
    assert [
        pair for n, pair in enumerate(zip(was, now, strict=True)) if n != at and pair[0] != pair[1]
    ] == []
    assert now[at][1].startswith("# New")
    assert Deck.parse(made).theme == "seriph" and Deck.parse(made).headmatter["title"] == "Tides"
    if "two-cols" in reply:
        assert now[at][3] == "two-cols" and now[at][2] == "said"


def test_of_a_whole_deck_of_as_many_slides_one_is_taken():
    reply = (
        DECK.replace("# Middle", "# Centre")
        .replace("# Last", "# End")
        .replace("seriph", "apple-basic")
    )
    made = edits.changed(DECK, 3, reply)
    assert "# Centre" in made and "# Last" in made and "# End" not in made
    assert Deck.parse(made).theme == "seriph"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "empty"),
        ("<think>for ever", "empty"),
        ("Sure, I would change the title.", "neither a heading nor a frontmatter"),
        ("# One\n\n---\n\n# Two", "has 2 slides and not slide 2 alone"),
        ("---\nlayout: [\n---\n\n# One", "no YAML"),
        ("---\nlayout: center\n---\n", "neither a heading nor a frontmatter|empty|no slide"),
    ],
)
def test_a_reply_that_is_no_slide_changes_nothing_and_says_why(reply, why):
    with pytest.raises(edits.NoEdit, match=why):
        edits.changed(DECK, 2, reply)


PIECES = st.lists(
    st.sampled_from(
        [
            *"-\n`#:a {}<!>",
            "---\n",
            "```\n",
            "hide: true\n",
            "\n---\n",
            "# A\n",
            "<!-- ",
            " -->",
            "src: x\n",
        ]
    ),
    max_size=25,
).map("".join)


@given(PIECES, st.integers(1, 4))
def test_no_reply_touches_another_slide(reply, number):
    try:
        made = edits.changed(DECK, number, reply)
    except edits.NoEdit:
        return
    at = [0, 1, 2, 4][number - 1]
    was, now = slides(DECK), slides(made)
    assert len(was) == len(now)
    assert [n for n in range(5) if n != at and was[n] != now[n]] == []


def test_every_slide_of_every_reference_deck_can_be_changed():
    for deck in studio.references().values():
        for number in range(1, deck.slides + 1):
            made = Deck.parse(edits.changed(deck.text, number, "# New\n\nwords"))
            assert made.shown[number - 1].content == "# New\n\nwords"
            assert len(made.shown) == deck.slides


def test_the_model_gets_the_deck_and_the_wish():
    asked = edits.messages("Tides for sailors", DECK, 2, "shorter")
    assert [message["role"] for message in asked] == ["system", "user", "assistant", "user"]
    assert asked[1]["content"] == "Tides for sailors" and asked[2]["content"] == DECK
    assert asked[3]["content"].startswith("Change slide 2 of your deck, and no other: shorter\n")


DIFF = """```diff
--- deck.md
+++ deck.md
@@ -8,5 +8,5 @@
 ---
 
 ## Why twice
 
-text
+the moon, and the turning of the earth
```"""


def test_a_diff_is_applied_where_its_lines_stand():
    made = edits.edited(DECK, DIFF)
    assert made == DECK.replace("\ntext\n", "\nthe moon, and the turning of the earth\n")
    elsewhere = DIFF.replace("-8,5 +8,5", "-2,5 +2,5")  # models count badly
    assert edits.edited(DECK, elsewhere) == made


def test_slides_under_their_marks_replace_those_slides_alone():
    made = edits.edited(DECK, "=== slide 2 ===\n## Why\n\nmoon\n\n=== slide 4 ===\n# The end\n")
    titles = [slide.title for slide in Deck.parse(made).slides]
    assert titles == ["Tides", "Why", "Middle", "Hidden", "The end"]


def test_a_whole_deck_replaces_the_deck():
    made = edits.edited(DECK, "---\ntheme: seriph\n---\n\n# One\n\n---\n\n# Two\n")
    assert [slide.title for slide in Deck.parse(made).slides] == ["One", "Two"]


@pytest.mark.parametrize(
    "reply, why",
    [
        ("", "empty"),
        ("I am sorry, I cannot see the deck.", "no deck"),
        (DIFF.replace("-text", "-texts"), "hunk 1 of the model's diff are not in the deck"),
        ("@@ -2,1 +2,1 @@\n----\n+***", "places of the deck"),
        ("@@ -1,1 +1,1 @@\n+more", "names no line"),
        ("@@ -1,1 +1,1 @@\nwhatever", "none of a diff"),
        ("=== slide 9 ===\n# Nine", "the deck has 4"),
        (DECK, "changes nothing"),
    ],
)
def test_a_reply_that_is_no_edit_changes_nothing_and_says_why(reply, why):
    with pytest.raises(edits.NoEdit, match=why):
        edits.edited(DECK, reply)


@given(st.text())
def test_no_reply_breaks_the_editor(reply):
    try:
        edits.edited(DECK, reply)
    except edits.NoEdit:
        pass
