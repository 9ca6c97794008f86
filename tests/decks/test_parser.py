"""The parser against the official one, and the cleaning of replies."""

import json
import math
import subprocess
import time
from pathlib import Path

import fuzz
import pytest
from decksmith.core import stream
from decksmith.measure.decks.clean import clean, parse
from decksmith.measure.decks.parser import Deck
from decksmith.measure.render import toolchain
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DECKS = sorted((ROOT / "tests/fixtures/decks").glob("*/*.md"))

LINES = [
    "---",
    "--- ",
    "----",
    "---\t",
    "--- x",
    "---\u00a0",
    "",
    "",
    "",
    "text",
    "# Head",
    "## H2 `a`",
    "```",
    "```js",
    "````md",
    "  ```",
    "\t```",
    "~~~",
    "`",
    "<!--",
    "-->",
    "<!-- n -->",
    "a <!-- b",
    "c --> d",
    "<!-- --- -->",
    "layout: cover",
    "theme: 'seriph' # c",
    'title: "Q: x"',
    "title: a --- b",
    "key: [a, b",
    "x: *y",
    "`t`: 1",
    "k: `x`",
    "| a | b |",
    "| --- | --- |",
    "```yaml",
    "```yml x: 1",
    "$x$",
    "layout:",
    "class: 12",
    "hide: true",
    "disabled: yes",
    "src: ./a.md",
    "hide: []",
    "hide: .nan",
    "~~~",
    "~~~~md",
    " ---",
    "\t---",
    "===",
    "<script>",
    "</script>",
    "<style>",
    "</style>",
    "<div>",
    "<!---->",
    "<!-- ``` -->",
    "::left::",
    "...",
    "\u00a0",
    "\u2028# u",
    "a\rb",
    "* x",
    "{{ a }}",
    "b: {{ c }}",
    "name: N",
    "level: 2",
]
YAML = [
    "a: 1",
    "b: {x: 1}",
    "c: [1, 2]",
    "d: 'it''s'",
    'e: "x\\n"',
    "f: #c",
    "g: x #c",
    "h: x#c",
    "i: @x",
    "j: !!str 12",
    "l: !foo x",
    "m: &x y",
    "n: *x",
    "<<: {a: 1}",
    "o: - x",
    "p: 12:30",
    "q: [a,b",
    "  nested: 1",
    "    deep: 2",
    "r: {{ x }}",
    "s: ${x}",
    "t: 100%",
    "u: *emph*",
    "v: **bold**",
    "w: http://a.b/c#d",
    "title: A: B",
    "title: What? Why!",
    'x: "a" b',
    "z: 0x1F",
    "aa: -.inf",
    "bb: .NaN",
    "cc: 0o17",
    "dd: 017",
    "ee: +12",
    "ff: 1e3",
    "hh: |-",
    "ii: >",
    "- x",
    "- a: 1",
    "jj: ,x",
    "kk: x, y",
    "ll: [x: 1]",
    "mm: {a, b}",
    'nn: "open',
    "oo:x",
    "pp : x",
    "qq: \t x",
    "rr: x\t",
    "  tt: 1",
    "uu: `x`",
    "@a: x",
    "a b: c",
    '"a": 2',
    "null: x",
    "1: y",
    "true: z",
    "~: w",
    "2024-01-01: 2024-01-01",
    "xx: 0b101",
    "yy: 1__0",
    "yes: no",
    "# c",
    "...",
]


@pytest.fixture(scope="session")
def official():
    """A function text -> what @slidev/parser and the renderer make of it, through one long-lived node."""
    renderer = ROOT / "assets/renderer"
    assert (renderer / "node_modules").exists(), "the official parser is not installed: make setup"
    with subprocess.Popen(
        [toolchain.node(), HERE / "official_parser.mjs", renderer],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:

        def ask(text):
            process.stdin.write(json.dumps(text) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


def seen(slide):
    return {
        "start": slide.start,
        "end": slide.end,
        "content": slide.content,
        "note": slide.note,
        "data": None if slide.frontmatter_error else finite(slide.frontmatter),
        "faulty": bool(slide.frontmatter_error),
    }


def finite(value):
    """Infinity and NaN are null in JSON; a key that is no text or number is some key."""
    if isinstance(value, dict):
        return {"?" if k[:1] in ("{", "[") else k: finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def expected(s):
    # A block that is YAML but no mapping is a fault for us: its text vanishes from the slide.
    faulty = bool(s["error"]) or not isinstance(s["data"], dict | None)
    return {
        "start": s["start"] + 1,
        "end": s["end"],
        "content": s["content"],
        "note": s["note"],
        "data": None if faulty else finite(s["data"] or {}),
        "faulty": faulty,
    }


def agree(official, text):
    told, ours = official(text), Deck.parse(text)
    if text.startswith(
        "\ufeff"
    ):  # stock Slidev takes a byte order mark for a letter of the first line
        told["slides"] = official(text[1:])["slides"]
    theirs = told["slides"]
    assert [seen(s) for s in ours.slides] == [expected(s) for s in theirs]
    drawn = [(s["start"] + 1, s["end"], s["note"]) for s in told["shown"]]
    assert [(s.start, s.end, s.note) for s in ours.shown] == drawn
    for a, b in zip(theirs, ours.slides, strict=True):
        if not {"title", "name"} & set(a["data"] if isinstance(a["data"], dict) else {}):
            assert b.title == a["title"]


@pytest.mark.slow
@pytest.mark.parametrize("path", DECKS, ids=lambda p: p.stem)
def test_our_slices_of_a_fixture_are_those_of_the_official_parser(official, path):
    agree(official, path.read_bytes().decode().removeprefix("\ufeff"))


@pytest.mark.slow
@pytest.mark.fuzz
@settings(max_examples=fuzz.times(1500), suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(LINES), max_size=30), st.sampled_from(["\n", "\r\n"]))
@example(["```yaml", "layout:", "\t```"], "\n")
def test_our_slices_of_any_mixture_of_lines_are_those_of_the_official_parser(
    official, lines, newline
):
    agree(official, newline.join(lines))


SHOWING = [
    *("hide: true", "hide: false", "hide:", "hide: !!str", "hide: 'no'", "hide: 0x0", "hide: -0"),
    *("disabled: true", "src: ./a.md", "hide: {}", "hide: [", "? hide\n: true", "k: |\n\t"),
    *("k:\n\t", "\t", "\t---", " ---", "layout: end", "# c", "text", ""),
]


@pytest.mark.slow
@pytest.mark.fuzz
@settings(max_examples=fuzz.times(3000), suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(SHOWING), max_size=4),
            st.sampled_from(["---", "--- ", "---\t", "----"]),
            st.lists(st.sampled_from(LINES), max_size=3),
        ),
        max_size=5,
    )
)
def test_what_hides_a_slide_hides_it_in_the_renderer_too(official, slides):
    blocks = [["---", *keys, end, *below] for keys, end, below in slides]
    agree(official, "\n".join(line for block in blocks for line in block))


def test_the_first_slide_that_is_shown_is_the_cover_and_defaults_name_the_layout_of_the_others():
    deck = Deck.parse("---\nhide: true\n---\n\n# A\n\n---\n\n# B\n\n---\n\n# C\n")
    assert [slide.layout for slide in deck.shown] == ["cover", "default"]
    deck = Deck.parse("---\ndefaults:\n  layout: end\n---\n\n# A\n\n---\nlayout: fact\n---\n")
    assert [slide.layout for slide in deck.shown] == ["end", "fact"]


@pytest.mark.slow
@pytest.mark.fuzz
@settings(max_examples=fuzz.times(1500), suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(YAML), min_size=1, max_size=5))
def test_our_frontmatter_is_that_of_the_official_parser(official, lines):
    agree(
        official,
        "\n".join(
            ["---", "layout: cover", "---", "# One", "", "---", *lines, "---", "", "# Two", ""]
        ),
    )


@settings(max_examples=300)
@given(st.text(max_size=300) | st.lists(st.sampled_from(LINES + YAML), max_size=40).map("\n".join))
def test_the_parser_never_raises_and_slides_and_separators_cover_every_line(text):
    deck = Deck.parse(text)
    lines, at = deck.text.split("\n"), 1
    for slide in deck.slides:
        assert all(line.startswith("---") for line in lines[at - 1 : slide.start - 1])
        assert slide.raw == "\n".join(lines[slide.start - 1 : slide.end])
        assert slide.content.split("\n")[0] in lines[slide.content_line - 1]
        for fence in slide.fences:
            assert lines[fence.line - 1].lstrip(" \t>")[:3] in ("```", "~~~")
        assert len(slide.prose) == len(slide.content) and slide.prose.count(
            "\n"
        ) == slide.content.count("\n")
        _ = slide.text, slide.images, slide.comments
        at = slide.end + 1
    assert all(line.startswith("---") for line in lines[at - 1 :])
    starts = [q.start for q in deck.queries]
    assert starts == sorted(starts)


def test_faults_in_frontmatter_name_slide_and_line():
    deck = Deck.parse((ROOT / "tests/fixtures/decks/parse/broken.md").read_text())
    assert [(no, line) for no, line, _ in deck.faults] == [
        (2, 9),
        (3, 16),
        (4, 22),
        (5, 29),
        (6, 35),
    ]
    assert deck.slides[1].frontmatter == {} and deck.slides[1].title == "Alias that is none"


def test_byte_order_mark_and_windows_line_ends_change_nothing():
    data = (ROOT / "tests/fixtures/decks/parse/windows.md").read_bytes().decode()
    deck = Deck.parse(data)
    assert (deck.theme, [s.layout for s in deck.slides]) == (
        "seriph",
        ["cover", "default", "end", "default"],
    )
    assert deck.slides[1].note == "A note\nof two lines"
    assert deck.slides[3].content == "", "a trailing rule is an empty slide, as in Slidev"


def test_fences_images_comments_and_hidden_slides_are_found_with_their_lines():
    deck = Deck.parse(
        '---\nimage: /a.png\nhide: true\n---\n\n# T\n\n![x](b.png "t")\n\n```js {1|2}\n'
        "![no](c.png)\n```\n<!-- c -->\n<img src='d.png'>\n\n<!-- n -->\n"
    )
    slide = deck.slides[0]
    assert [(f.lang, f.info, f.line, f.end, f.closed) for f in slide.fences] == [
        ("js", "{1|2}", 10, 12, True)
    ]
    assert [(i.url, i.line, i.kind) for i in slide.images] == [
        ("/a.png", 2, "image"),
        ("b.png", 8, "markdown"),
        ("d.png", 14, "src"),
    ]
    assert slide.comments == [(13, "c")] and slide.note == "n" and deck.shown == []


HOSTILE = {
    "an alias bomb": "---\na: &a [x,x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{b}: &{b} [{','.join(['*' + a] * 10)}]\n"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "---\n",
    "brackets": "---\na: " + "[" * 200_000 + "\n---\n",
    "many bracketed blocks": ("---\na: " + "[{" * 400 + "\n---\n") * 300,
    "a huge block": "---\n" + "k: v\n" * 100_000 + "---\n",
    "many blocks": "".join(f"---\na{i}: [b, {{c: {i}}}]\n---\n" for i in range(20_000)),
    "open comments": "<!--" * 200_000,
    "open fences": "\n".join(" " * (i % 60) + "`" * (3 + i // 60) for i in range(6_000, 0, -1)),
    "open images": "![" * 150_000,
    "open tags": "<a " * 150_000,
    "backticks": "`x" * 150_000,
    "blank lines": "\n" * 400_000,
    "rules": "---\n" * 100_000,
    "self reference": "---\na: &a [*a]\n---\n",
    "dollars": "$" * 300_000,
    "queries": "image-query://" * 30_000,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.long] * (x in ("many blocks", "rules"))) for x in HOSTILE],
)
def test_hostile_texts_cost_seconds_at_most(name):
    text = HOSTILE[name]
    started = time.process_time()
    deck = Deck.parse(text)
    for slide in deck.slides:
        _ = slide.text, slide.images, slide.comments
    deck.queries, clean(text)
    assert time.process_time() - started < 12


DECK = "---\ntheme: seriph\n---\n\n# Hi\n\n```js\nlet a\n```\n\n---\nlayout: end\n---\n\nBye\n"
BARE = "---\ntheme: seriph\n---\n\n# Hi\n\n```\ncode\n```\n\n---\nlayout: end\n---\n\nBye\n"


@pytest.mark.parametrize(
    ("reply", "deck", "thought"),
    [
        (DECK, DECK, None),
        ("\ufeff" + DECK.replace("\n", "\r\n") + "  \n\n", DECK, None),
        ("<think>let me\nsee</think>\n\n" + DECK, DECK, "let me\nsee"),
        ("<think>a</think><think>b</think>" + DECK, DECK, "a\nb"),
        ("I should ...\n</think>\n" + DECK, DECK, "I should ..."),
        ("<think>never closed\n" + DECK, "", "never closed\n" + DECK.strip()),
        (f"```markdown\n{DECK}```", DECK, None),
        (
            f"Sure! Here is it:\n\n```md\n{DECK}```\n\nRun it with:\n\n```bash\nnpx slidev\n```\n",
            DECK,
            None,
        ),
        (f"```markdown\n{BARE}```\n\nEnjoy the deck.\n", BARE, None),
        (f"````markdown\n{BARE}````\n", BARE, None),
        (f"~~~\n{BARE}~~~\n", BARE, None),
        (f"```yaml\n{DECK}```\n", DECK, None),
        (
            "```yaml\n---\ntheme: seriph\n---\n```\n\n# Hi\n\n---\nlayout: end\n---\n\nBye\n",
            "---\ntheme: seriph\n---\n\n# Hi\n\n---\nlayout: end\n---\n\nBye\n",
            None,
        ),
        (f"## Your deck\n\n```markdown\n{DECK}```\n", DECK, None),
        (f"```markdown\n{DECK}", DECK, None),
        (f"<think>x</think>\n```markdown\n<think>y</think>\n{DECK}```", DECK, "x"),
        (f"Here is your deck:\n\n{DECK}", DECK, None),
        (f"\n\n{DECK}", DECK, None),
        (f"Of course!\n\n---\n\n{DECK}", DECK, None),
        (
            "# Title\n\nFirst slide\n\n---\nlayout: end\n---\n\nBye\n",
            "# Title\n\nFirst slide\n\n---\nlayout: end\n---\n\nBye\n",
            None,
        ),
        (
            "# About YAML\n\n```yaml\nkind: Pod\n```\n\n---\n\n# Two\n",
            "# About YAML\n\n```yaml\nkind: Pod\n```\n\n---\n\n# Two\n",
            None,
        ),
        ("Only prose, nothing else.", "Only prose, nothing else.\n", None),
        (
            DECK.replace("Bye", "Models write `</think>`\nhere </think>"),
            DECK.replace("Bye", "Models write `</think>`\nhere </think>"),
            None,
        ),
        ("```markdown\n```\n", "```markdown\n```\n", None),
        ("  \n ", "", None),
    ],
)
def test_clean_removes_what_is_not_deck_and_nothing_else(reply, deck, thought):
    assert clean(reply) == (deck, thought)


@pytest.mark.parametrize("reply", [
    "# A\n\n---\n\n# B\n\n---\n", "# A\n\n---\n\n# B\n\n---", "```md\n# A\n\n---\n\n# B\n---\n```",
    "# A\n\n---\nlayout: end\n---\n",
])  # fmt: skip
def test_a_closing_mark_is_no_slide_of_its_own(official, reply):
    deck = clean(reply)[0]
    agree(official, deck)
    assert len(official(deck)["shown"]) == 2


@settings(max_examples=300)
@given(
    st.text(max_size=200)
    | st.lists(
        st.sampled_from([*LINES, "<think>", "</think>", "```markdown", "```", "---", "theme: x"]),
        max_size=25,
    ).map("\n".join)
)
def test_clean_never_raises_and_cleaning_twice_changes_nothing_for_a_deck(text):
    once, _ = clean(text)
    is_closed = once.rpartition("\n")[2].startswith("---")
    assert once == "" or (is_closed or once.endswith("\n")) and once.strip()
    if once.startswith("---\ntheme: x\n"):
        assert clean(once)[0] == once


def test_parse_reply_writes_the_files_and_the_value(tmp_path):
    value = parse(
        tmp_path,
        {
            "id": "p1",
            "gen": {"text": f"<think>plan</think>```markdown\n{DECK}```", "reasoning": ""},
        },
    )
    assert value.pop("sha256") and value == {"path": "p1/deck.md", "slides": 2, "theme": "seriph"}
    assert {p.name: p.read_text() for p in (tmp_path / "p1").iterdir()} == {
        "gen.md": f"<think>plan</think>```markdown\n{DECK}```",
        "reasoning.md": "plan\n",
        "deck.md": DECK,
    }


@pytest.mark.parametrize(
    ("gen", "cls"),
    [
        ({"text": ""}, "empty-reply"),
        ({"text": None}, "empty-reply"),
        ({"text": "", "reasoning": "hm"}, "no-deck"),
        ({"text": " <think>hm"}, "no-deck"),
        ({"text": "<think>hm</think>\n"}, "no-deck"),
    ],
)
def test_a_reply_without_a_deck_is_a_fault_of_the_model_and_leaves_no_old_deck(tmp_path, gen, cls):
    parse(tmp_path, {"id": "p1", "gen": {"text": DECK, "reasoning": "r"}})
    with pytest.raises(stream.Fault) as fault:
        parse(tmp_path, {"id": "p1", "gen": gen})
    assert (fault.value.error["kind"], fault.value.error["class"]) == ("model", cls)
    assert not (tmp_path / "p1/deck.md").exists()


def test_lone_surrogates_do_not_stop_a_reply(tmp_path):
    assert (
        parse(tmp_path, {"id": "p1", "gen": {"text": "---\ntheme: a\n---\n# \ud800 x"}})["slides"]
        == 1
    )
