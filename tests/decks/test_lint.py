"""The X-ray on real renders: each defect is one finding of its rule on its line, and honest decks have none."""
# ruff: noqa: E501 (decks stand in single lines here)

import functools
import json
import re
from pathlib import Path

import pytest
from decksmith.measure.decks import lint
from drawing import shared_workers  # noqa: F401
from test_pool import FEATURES, HEAD, THEMES, put, rendered

HONEST = Path(__file__).resolve().parents[1] / "fixtures" / "decks" / "honest"
AT = "position:absolute;left:100px;top:{}px"

# name: (third slide, from line 15 on; its findings as (rule, line, message))
DEFECTS = {
    "long list": (
        "# Three\n\n" + "\n".join(f"- point {n}" for n in range(18)),
        [("overflow", 31, "text overflows by 110 px")],
    ),
    "long paragraph": (
        "# Three\n\n" + "many words\n" * 320,
        [
            ("dense", 15, "the slide has 641 words, more than 150"),
            ("overflow", 17, "text overflows by 448 px"),
        ],
    ),
    "tall table": (
        "# Three\n\n| a | b |\n|---|---|\n" + "\n".join(f"| row {n} | {n} |" for n in range(12)),
        [("overflow", 27, "text overflows by 212 px")],
    ),
    "wide table": (
        "# Three\n\n| "
        + " | ".join(f"verylongcolumn{n}" for n in range(9))
        + " |\n|"
        + "---|" * 9
        + "\n|"
        + "x|" * 9,
        [("overflow", 17, "text overflows by 460 px at the right")],
    ),
    "tall diagram": (
        "# Three\n\n```mermaid\ngraph TD\n"
        + "\n".join(f"  N{n} --> N{n + 1}" for n in range(6))
        + "\n```",
        [("overflow", 17, "a diagram overflows by 238 px")],
    ),
    "long line of code": (
        "# Three\n\n```python\nx = 1\ny = " + "abc + " * 22 + "1\n```",
        [("overflow", 19, "code overflows its box by 127 px")],
    ),
    "tall code": (
        "# Three\n\n```python\n" + "\n".join(f"x{n} = {n}" for n in range(30)) + "\n```",
        [("overflow", 43, "code overflows by 100 px")],
    ),
    "clipped": (
        "# Three\n\n<div style='height:60px;overflow:hidden'>\n\none line\n\nanother line\n\na third line\n\n</div>",
        [("overflow", 21, "text overflows its box by 60 px")],
    ),
    "left": (
        f"# Three\n\n<p style='{AT.format(200)};margin-left:-130px'>half outside</p>",
        [("overflow", 17, "text overflows by 30 px at the left")],
    ),
    "large picture": (
        "# Three\n\n<img src='/images/a.png' style='width:300px;height:1000px'>",
        [("overflow", 17, "a picture overflows by 544 px")],
    ),
    "off canvas": (
        "# Three\n\nseen\n\n<p style='position:absolute;left:1200px;top:100px;width:200px'>out of sight</p>",
        [("off-canvas", 19, "text stands outside the slide, 220 px past the right edge")],
    ),
    "overlap": (
        f"# Three\n\nseen\n\n<p style='{AT.format(200)}'>first text</p>\n\n<p style='{AT.format(205)}'>second text</p>",
        [("overlap", 21, "text lies on that of line 19, 70% of it")],
    ),
    "covered": (
        f"# Three\n\nsome words\n\n<div style='{AT.format(88)};left:0;width:400px;height:60px;background:#9cf'></div>",
        [("overlap", 17, "text lies under something that covers it")],
    ),
    "small": (
        "# Three\n\npoint\n\n- point\n- point\n\n<p style='font-size:8px'>point</p>",
        [("small-text", 22, "text is set in 8 px, below 12")],
    ),
    "scaled down": (
        "# Three\n\n<div style='transform:scale(.5)'>\n\nhalf the size\n\n</div>",
        [("small-text", 19, "text is set in 8.8 px, below 12")],
    ),
    "small diagram": (
        "# Three\n\n```mermaid {scale: 0.4}\ngraph LR\n  A --> B\n```",
        [("small-text", 17, "a diagram is set in 6.6 px, below 12")],
    ),
    "faint": (
        "# Three\n\nseen\n\n<p style='color:#ddd;opacity:1'>faint</p>\n\n<p style='color:#ccc;opacity:1'>faint too</p>",
        [("low-contrast", 19, "text has a contrast of 1.36, below 2.5, and 1 more")],
    ),
    "faint on what lies behind": (
        f"# Three\n\n<div style='{AT.format(200)};width:600px;height:200px;background:#222'></div>\n\n<p style='{AT.format(250)};opacity:1;color:#333'>dark on dark</p>",
        [("low-contrast", 19, "text has a contrast of 1.26, below 2.5")],
    ),
    "faint on layers": (
        "# Three\n\n<div style='background:#000'><div style='background:rgba(255,255,255,.5)'>\n\n<span style='color:#999'>grey on grey</span>\n\n</div></div>",
        [("low-contrast", 19, "text has a contrast of 1.40, below 2.5")],
    ),
    "dense": (
        "# Three\n\n" + "word " * 160,
        [("dense", 15, "the slide has 161 words, more than 150")],
    ),
    "no title": ("Only a paragraph.", [("no-title", 15, "the slide has no title")]),
    "blank": ("<!-- only a note -->", [("blank", 14, "nothing can be seen on the slide")]),
    "broken picture": (
        "# Three\n\n![x](images/none.png)",
        [("broken-picture", 17, "the picture images/none.png is not there")],
    ),
    "render error": (
        "# Three\n\nan <open> tag",
        [("vue-compile", 17, "Element is missing end tag.")],
    ),
}

FINE = {
    "over a picture": "# Three\n\n<div style=\"background:url(/images/a.png);padding:20px\">\n\n<span style='color:#888'>not judged</span>\n\n</div>",
    "white on a dark card": "# Three\n\n<div class='bg-gray-800 text-white p-4'>\n\nwords\n\n</div>",
    "white on a dark sibling": f"# Three\n\n<div style='{AT.format(200)};width:600px;height:200px;background:#222'></div>\n\n<p style='{AT.format(250)};opacity:1;color:#fff'>light on dark</p>",
    "a larger background": '# Three\n\n<div style="background:url(/images/a.png);position:absolute;inset:-20px;z-index:-1"></div>\n\nwords',
    "a picture beside another": "# Three\n\n<div class='flex gap-4'><img src='/images/a.png' width='200'><img src='/images/a.png' width='200'></div>",
}


# What honest decks do and no rule may mistake for a defect, in two themes.
HABITS = (
    HEAD.replace("default", "THEME")
    + """# Cards

<div class="grid grid-cols-2 gap-4">
<div class="bg-blue-600 text-white rounded p-4">

Text in it

</div>
<div class="bg-green-100 text-green-900 rounded p-4">

Text with `code`<sup>1</sup>, H<sub>2</sub>O and <kbd>Ctrl</kbd>

</div>
</div>

### A third heading

<div class="text-xs text-gray-500 mt-4">Source: somewhere</div>
<div v-click class="absolute inset-0 pointer-events-none border"></div>
<arrow x1="400" y1="420" x2="230" y2="330" color="#564" width="3" arrowSize="1" />

---
layout: two-cols-header
---

# Header

::left::

```python {all|2}{lines:true}
def f(x: int) -> str:
    \"\"\"Doc string\"\"\"  # a comment
    return f"{x}"
```

::right::

1. one
   - nested
2. two

---
layout: quote
---

"Said"

---
layout: fact
---

# 100%

of it

---

# Formula $E=mc^2$

$$
\\begin{aligned}
a &= \\sum_{i=1}^{n} \\frac{x_i^2}{\\sqrt{y}}
\\end{aligned}
$$

<div class="text-3xl bg-gradient-to-r from-blue-500 to-purple-500 bg-clip-text text-transparent">Gradient</div>

---
class: bg-black text-white
---

# Dark slide

Text on it
"""
)


SLIDES = {name: text for name, (text, _) in DEFECTS.items()} | FINE
DECKS = {  # those of `make test`, and the others
    False: {"default": FEATURES.replace("THEME", "default")}
    | {"tides": (HONEST / "tides.md").read_text()},
    True: {
        f"habits {theme}": HABITS.replace("THEME", theme) for theme in ("default", "apple-basic")
    }
    | {theme: FEATURES.replace("THEME", theme) for theme in THEMES if theme != "default"}
    | {path.stem: path.read_text() for path in sorted(HONEST.glob("*.md")) if path.stem != "tides"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What renders decks, each once: `run(name)` is (run folder, record); the decks of one slide are one deck."""
    run = tmp_path_factory.mktemp("xray")
    decks = {"slides": HEAD + "\n\n---\n\n".join(SLIDES.values()) + "\n"}
    decks |= DECKS[False] | DECKS[True]

    @functools.cache
    def drawn(name):
        record = put(run, name.replace(" ", "-"), decks[name], ["images/a.png"])
        (record["render"],) = rendered(run, [record])
        return run, record

    return drawn


def found(run, name):
    """The findings in a deck; in a slide of those in one deck, with the lines as if it were the third."""
    if name not in SLIDES:
        return lint.examine(*run(name))["findings"]
    number = [*SLIDES].index(name)
    before = sum(text.count("\n") + 4 for text in [*SLIDES.values()][:number])
    earlier = lambda line: str(int(line[0]) - before)  # noqa: E731
    return [
        {
            **one,
            "line": one["line"] - before,
            "message": re.sub(r"(?<= line )\d+", earlier, one["message"]),
        }
        for one in lint.examine(*run("slides"))["findings"]
        if one["slide"] == 3 + number
    ]


@pytest.mark.browser
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found_on_its_line(run, name):
    assert [(f["check"], f["line"], f["message"]) for f in found(run, name)] == DEFECTS[name][1]


@pytest.mark.browser
def test_no_slide_that_stands_before_them_has_findings(run):
    assert {f["slide"] for f in lint.examine(*run("slides"))["findings"]} == {
        3 + number for number, name in enumerate(SLIDES) if name in DEFECTS
    }


@pytest.mark.browser
@pytest.mark.parametrize(
    "name",
    [
        *FINE,
        *DECKS[False],
        *(pytest.param(name, marks=pytest.mark.long) for name in DECKS[True]),
    ],
)
def test_what_is_fine_has_no_findings(run, name):
    errors = run("slides" if name in FINE else name)[1]["render"]["errors"]
    assert not [e for e in errors if name not in FINE or e["slide"] == 3 + [*SLIDES].index(name)]
    assert found(run, name) == []


@pytest.mark.browser
def test_every_element_of_a_slide_is_found_again_in_the_markdown(run):
    text = FEATURES.replace("THEME", "default")
    rows, source = text.split("\n"), lint.Source(text)
    pages = run("default")[1]["render"]["xray"]
    assert [
        [
            (box["kind"], rows[line - 1])
            for box, line in zip(page["boxes"], source.lines(page), strict=True)
        ]
        for page in pages
    ] == [
        [("title", "# Coral reefs 珊瑚礁"), ("text", "A short tour")],
        [("title", "## Code"), ("code", "def reef(n):")],
        [("title", "## Diagram"), ("diagram", "```mermaid")],
        [("title", "## Formula"), ("text", "Inline $a^2$ and"), ("formula", "\\int_0^1 x\\,dx")],
        [
            ("title", "## Table"),
            ("table", "| Reef | Area |"),
            ("cell", "| Reef | Area |"),
            ("cell", "| Reef | Area |"),
            ("cell", "| North | 120 |"),
            ("cell", "| North | 120 |"),
        ],
        [
            ("title", "## Clicks"),
            ("item", "- one"),
            ("item", "- two"),
            ("text", "<div v-click>hidden until a click</div>"),
            ("quote", "> Said somebody"),
        ],
        [("title", "# Left"), ("title", "# Right")],
        [
            ("title", "# Picture"),
            ("image", "![again](images/a.png)"),
            ("background", "image: images/a.png"),
        ],
    ]


@pytest.mark.browser
def test_a_slide_of_hundreds_of_elements_keeps_sixty_boxes_and_the_last_one_out(tmp_path):
    deck = HEAD + "# Three\n\n" + "\n".join(f"- point {n}" for n in range(200)) + "\n"
    (value,) = rendered(tmp_path, [put(tmp_path, "x", deck)])
    boxes = value["xray"][2]["boxes"]
    assert len(boxes) == 60 and boxes[-1]["text"] == "point 199"
    dense, overflow = lint.findings({"render": value}, deck)
    assert (dense["check"], overflow["line"]) == ("dense", 31)
    assert overflow["message"] == f"text overflows by {value['xray'][2]['overflow']['y']} px"


@pytest.mark.parametrize(
    ("markdown", "shown", "line"),
    [
        (
            "intro\n\n- see **the _bold_ part** of [it](https://example.com)",
            "see the bold part of it",
            3,
        ),
        ("a\n\nfoo**bar**baz `snake_case` 2&nbsp;&lt;&nbsp;3", "foobarbaz snake_case 2 < 3", 3),
        ("a\n\n<div\n  class='x'>words in\n  a tag</div>", "words in a tag", 4),
        ("a\n\n<Card title='Hello there' />", "Hello there", 3),
        ("a\n\npage {{ $page }} of this deck", "page 7 of this deck", 3),
        ("yes\n\n::right::\n\nright", "right", 5),
        ("a\n\n<!-- said here -->\n\nsaid here", "said here", 5),
        ("a\n\n珊**瑚**礁在哪里", "珊瑚礁在哪里", 3),
        ("a\n\n```js\nconst a_b = `x`\n```", "const a_b = `x`", 4),
        ("a\n\nb", "nowhere to be seen", 1),
    ],
)
def test_words_are_found_through_marks_tags_and_links(markdown, shown, line):
    page = {"slide": 1, "line": 1, "boxes": [{"kind": "text", "text": shown}]}
    assert lint.Source(markdown).lines(page) == [line]


def test_equal_words_are_found_one_after_the_other_and_hidden_slides_are_passed_over():
    text = "# A\n\n---\nhide: true\n---\n\nsame\n\n---\n\nsame\n\n- same\n- same\n"
    page = {"slide": 2, "line": 9, "boxes": [{"kind": "text", "text": "same"}] * 3}
    assert lint.Source(text).lines(page) == [11, 13, 14]


def test_a_record_that_failed_before_it_was_rendered_has_no_findings():
    record = {"id": "x", "gen": {"error": {"kind": "infra", "class": "http", "message": "503"}}}
    assert lint.examine(".", record) == {"findings": []}


@pytest.mark.browser
@pytest.mark.parametrize("others", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_measures_are_small(run, others):
    sizes = [
        len(json.dumps(page["boxes"]))
        for name in ("slides", *DECKS[others])
        for page in run(name)[1]["render"]["xray"]
    ]
    assert max(sizes) < 12_000
