"""The two feature scans."""

from pathlib import Path

import pytest
from decksmith.measure.decks.features import craft, craft_v5, features, scan
from decksmith.measure.decks.parser import Deck
from hypothesis import given, settings
from hypothesis import strategies as st

DECKS = Path(__file__).parents[1] / "fixtures/decks"
HONEST = {p.stem: p.read_text() for p in (DECKS / "honest").glob("*.md")}
HOLLOW = {p.stem: p.read_text() for p in (DECKS / "hollow").glob("*.md")}


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("---\nlayout: cover\n---\n---\nlayout: Default\n---\n", {"layouts": 1}),
        ("---\nlayout:\n  'two-cols'\n---\n", {"layouts": 1}),
        ("---\nlayout: a\n---\n# x\n---\n# no frontmatter\n---\nlayout: b\n---\n", {"layouts": 1}),
        ("layout: cover\n", {}),
        ("---\nlayout: a\n---\n---\nlayout: b\n---\n---\nlayout: c\n---\n", {"layouts": 3}),
        ("```js\n```", {"code": True}),
        ("```md\n```text\n```plain\n```\n``` js", {}),
        ("```mdc", {"code": True}),
        ("```mermaid", {"code": True, "mermaid": True}),
        ("$a_b$", {"katex": True}),
        ("$5M and $6M", {}),
        ("$5M + $6M", {}),
        ("$5M+3 or$", {"katex": True}),
        ("$$\n$$", {"katex": True}),
        ("$$ $", {}),
        ("<v-click>", {"clicks": True}),
        ("<div v-click>", {}),
        ("<p v-click=2>", {"clicks": True}),
        (" click: 1", {"clicks": True}),
        ("---\nnotes: x\n---\n", {"notes": True}),
        ("# x\n<!-- a note -->", {}),
        ("---\ntransition: fade\n---\n", {"transitions": True}),
        ("---\ntheme: default\n---\n---\ntheme: seriph\n---\n", {}),
        ("---\n theme: Seriph\n---\n", {"theme": True}),
    ],
)
def test_craft_v5_sees_what_the_published_scan_sees(text, seen):
    empty = {
        "layouts": 0,
        "code": False,
        "mermaid": False,
        "katex": False,
        "clicks": False,
        "notes": False,
        "transitions": False,
        "theme": False,
    }
    score, found = craft_v5(text)
    assert found == empty | seen
    assert score == min(5, 1 + min(2, found["layouts"]) + sum(v is True for v in found.values()))


@pytest.mark.parametrize("hollow", HOLLOW)
def test_a_hollow_deck_that_the_published_scan_gives_five_stays_low_and_below_every_honest_deck(
    hollow,
):
    assert craft_v5(HOLLOW[hollow])[0] == 5
    score, _ = craft(Deck.parse(HOLLOW[hollow]))
    assert score < 1.25
    assert all(score < craft(Deck.parse(text))[0] for text in HONEST.values())


def test_counts_say_what_an_honest_deck_holds():
    value = features(HONEST["tides"])
    assert value == {
        "scanner": "craft-v5 craft-3",
        "craft_v5": 5.0,
        "craft": 3.071,
        "counts": {
            "slides": 7,
            "substantial": 6,
            "words": 176,
            "layouts": 4,
            "notes": 3,
            "code": 1,
            "mermaid": 1,
            "katex": 1,
            "clicks": 1,
            "transitions": 1,
            "tables": 1,
            "images": 2,
            "v5": {
                "layouts": 2,
                "code": True,
                "mermaid": True,
                "katex": True,
                "clicks": True,
                "notes": False,
                "transitions": True,
                "theme": True,
            },
        },
    }
    # The documented formula, by hand.
    parts = sorted([4 / 7, 3 / 6, 1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 2, 1 / 2, 2 / 4])
    assert value["craft"] == round(1 + 4 * sum(parts[-4:]) / 4, 3)


@pytest.mark.parametrize(
    ("note", "counted"),
    [
        ("Here we stop and ask questions.", 1),
        ("Ask for questions.", 0),
        ("ここで一度止まって質問を受け付けます。", 1),
        ("在这里停下来，请大家提问。", 1),
        ("质问时间。", 0),
        ("はい、はい、はい、はい、はい、はい。", 0),
        ("ตรงนี้หยุดแล้วถามคำถามจากผู้ฟังทุกคน", 1),
    ],
)
def test_a_note_counts_from_five_words_in_any_script(note, counted):
    deck = Deck.parse(
        f"---\ntheme: default\n---\n\n# x\n\n---\n\n# A slide of nine words that says quite enough\n\n<!-- {note} -->\n"
    )
    assert craft(deck)[1]["notes"] == counted


def test_slides_that_show_one_thing_are_substantial():
    slides = [
        "layout: fact\n---\n\n# 40 packets",
        "layout: quote\n---\n\n# A third suffices",
        "layout: image\nimage-query: bean flowers\n---\n",
    ]
    deck = Deck.parse(
        "---\ntheme: default\n---\n\n# x\n\n" + "".join(f"---\n{slide}\n\n" for slide in slides)
    )
    assert craft(deck)[1]["substantial"] == 3


def test_the_same_slide_again_adds_nothing():
    text = HONEST["tides"]
    again = (
        text
        + "\n---\n\n# Two bulges, one moon\n\n"
        + text.split("# Two bulges, one moon\n\n")[1].split("\n---\n")[0]
    )
    before, after = features(text), features(again)
    assert after["counts"]["slides"] == 8
    assert {k: after["counts"][k] for k in ("substantial", "words", "mermaid")} == {
        k: before["counts"][k] for k in ("substantial", "words", "mermaid")
    }


@pytest.mark.parametrize(
    ("again", "solid", "tables"),
    [
        (
            "# A title\n\nThere is a lot to say about point 2 of it\n\n| a | b |\n|---|---|\n| x 2 | 1 |\n| y | 2 |",
            1,
            1,
        ),
        (
            "# Another one\n\nThere is a lot to say about point 1 of it\n\n| a | b |\n|---|---|\n| x 1 | 1 |\n| y | 2 |",
            1,
            1,
        ),
        (
            "# A title\n\nThere is a word to say about point 1 of it\n\n| a | b |\n|---|---|\n| z | 1 |\n| y | 2 |",
            2,
            2,
        ),
    ],
)
def test_a_slide_that_differs_in_digits_or_title_only_is_the_same_slide(again, solid, tables):
    first = "# A title\n\nThere is a lot to say about point 1 of it\n\n| a | b |\n|---|---|\n| x 1 | 1 |\n| y | 2 |"
    counts = craft(
        Deck.parse(f"---\ntheme: default\n---\n\n# x\n\n---\n\n{first}\n\n---\n\n{again}\n")
    )[1]
    assert (counts["substantial"], counts["tables"]) == (solid, tables)


def test_a_legal_slide_without_frontmatter_does_not_lower_craft_although_it_lowers_the_published_score():
    deck = (
        "---\ntheme: default\nlayout: cover\n---\n# One two\n\n{}"
        "---\nlayout: center\n---\n# Three four\n\n---\nlayout: end\n---\n# Five six\n"
    )
    plain, more = (
        deck.format(""),
        deck.format("---\n\n# A legal slide of eight words in all now\n\n"),
    )
    assert craft_v5(more)[0] < craft_v5(plain)[0]
    assert craft(Deck.parse(more))[0] >= craft(Deck.parse(plain))[0]


def test_each_further_use_of_a_feature_gains_less_and_the_scale_never_ends():
    def scored(n):
        blocks = "".join(
            f"---\n\n# Slide {i} has a title of eight words here\n\n"
            f"Some line number {i} with {i} different words to read aloud\n\n"
            f"```python\na{i} = 0\nb{i} = a{i} + 1\nprint(a{i}, b{i})\n```\n\n"
            for i in "klmnop"[:n]
        )
        rest = "".join(
            f"---\n\n# Plain {i} slide\n\n"
            + " ".join(f"word{i}{k}" for k in "abcdefghijklmnopqrstuvwxyz" * 2)
            + "\n\n"
            for i in "vwxyz"
        )
        return craft(Deck.parse(rest + blocks))[0]

    scores = [scored(n) for n in range(6)]
    gains = [b - a for a, b in zip(scores, scores[1:], strict=False)]
    assert all(g > 0 for g in gains) and gains == sorted(gains, reverse=True)


@pytest.mark.parametrize(
    ("layout", "body", "counted"),
    [
        ("two-cols", "left has three words\n\n::right::\n\nright has three words", 1),
        ("two-cols", "only the left side has words here", 0),
        ("image-right", "five words beside no picture", 0),
        ("nowhere", "an unknown layout with words", 0),
        ("quote", "Two words", 1),
        ("quote", "", 0),
        ("default", "default is no choice", 0),
    ],
)
def test_a_layout_counts_when_its_slide_fills_it(layout, body, counted):
    deck = Deck.parse(f"---\ntheme: default\n---\n# x\n\n---\nlayout: {layout}\n---\n\n{body}\n")
    assert craft(deck)[1]["layouts"] == counted


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            "--- |```js|```mermaid|```|a-->b|layout: cover|theme: x|"
            "$x^2$|| a | b |||---|---||v-click|# T|words on a line|![](x)|<!-- n -->||".split("|")
        ),
        max_size=40,
    )
)
def test_both_scans_stay_on_their_scales_for_any_text(lines):
    value = features("\n".join(lines))
    assert value["craft_v5"] in (1, 2, 3, 4, 5) and 1 <= value["craft"] < 5


def test_a_record_without_a_deck_gets_nulls(tmp_path):
    value = scan(tmp_path, {"id": "a", "gen": {"error": {"kind": "infra"}}})
    assert (value["craft_v5"], value["craft"], value["counts"]) == (None, None, {})
