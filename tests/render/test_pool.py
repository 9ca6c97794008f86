"""The renderer on real decks: every feature in every theme, every defect with its class and line, the same bytes again, nothing left behind."""
# ruff: noqa: E501 (decks stand in single lines here)

import asyncio
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
from pathlib import Path

import pytest
import waits
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.measure.render import cell, toolchain, worker
from decksmith.measure.render import pool as render_pool
from drawing import shared, shared_workers  # noqa: F401
from PIL import Image

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HEAD = "---\ntheme: default\n---\n\n# Cover\n\n---\n\n# Two\n\ntext\n\n---\n\n"  # what follows begins on line 15
TAIL = "\n---\n\n# Cover\n\n---\n\n# Two\n"
THEMES = ("default", "seriph", "apple-basic")
FIRST_THEME = ["default", *(pytest.param(theme, marks=pytest.mark.long) for theme in THEMES[1:])]

FEATURES = """---
theme: THEME
title: Features
---

# Coral reefs 珊瑚礁

A short tour

---

## Code

```python {2|3}
def reef(n):
    total = 0
    return total
```

---

## Diagram

```mermaid
graph LR
  A[Warm water] --> B[Bleaching]
```

---

## Formula

Inline $a^2$ and

$$
\\int_0^1 x\\,dx
$$

---

## Table

| Reef | Area |
|------|-----:|
| North | 120 |

---

## Clicks

<v-clicks>

- one
- two

</v-clicks>

<div v-click>hidden until a click</div>

<mdi-fish /> <div class="i-ph-waves inline-block" />

> Said somebody

<!-- a note for the speaker -->

---
layout: two-cols
---

# Left

::right::

# Right

---
layout: image-right
image: images/a.png
---

# Picture

![again](images/a.png)
"""

COMMUNITY = {  # theme: (slides in its own layouts, what is to be seen on each)
    "academic": (
        """# Cover

Somebody

---
layout: figure
figureUrl: images/a.png
figureCaption: A caption
---

# A figure

---
layout: table-of-contents
---

# Contents

---

## Code

```ts
const tide: number = 12
```

<Footnotes separator><Footnote :number=1>A footnote</Footnote></Footnotes>
""",
        [
            "Cover|Somebody",
            "A figure|A caption",
            "Contents|Cover|A figure|Code",
            "Code|const tide: number = 12|1A footnote",
        ],
    ),
    "bricks": (
        """# Cover

Somebody

---
layout: items
cols: 2
---

# Items

::items::

<div>One</div><div>Two</div>

---
layout: fact
---

# 25 %

of the sea

---
layout: image-right
image: images/a.png
---

# Picture
""",
        ["Cover|Somebody", "Items|One|Two", "25 %|of the sea", "Picture"],
    ),
    "dracula": (
        """# Cover

Somebody

---
layout: author
---

# The author

---
layout: image-left
image: images/a.png
---

# Picture

```ts
const tide: number = 12
```

---
layout: quote
---

# "The sea"

Somebody
""",
        ["Cover|Somebody", "The author", "Picture|const tide: number = 12", '"The sea"|Somebody'],
    ),
    "purplin": (
        """# Cover

Somebody

<BarBottom title="A bar"><Item text="below" /></BarBottom>

---
layout: image-x
image: images/a.png
imageOrder: 1
---

# Picture

beside

---
layout: quote
---

# "The sea"

Somebody
""",
        ["Cover|Somebody|A bar|below", "Picture|beside", '"The sea"|Somebody'],
    ),
}
# `make themes` renders all of them; a theme that nobody has named on this machine is bundled first, in 8 CPU seconds.
if os.environ.get("DECKSMITH_THEMES") != "all":
    COMMUNITY = {theme: COMMUNITY[theme] for theme in ("dracula",)}

BROKEN = {  # name: (deck, class, line)
    "unclosed-tag": (HEAD + '# Three\n\n<div class="x">\n\ntext\n', "vue-compile", 17),
    "stray-tag": (HEAD + "# Three\n\ntext </div> more\n", "vue-compile", 17),
    "bad-expression": (HEAD + "# Three\n\nvalue {{ a + }} here\n", "vue-compile", 17),
    "bad-binding": (HEAD + '# Three\n\n<div :class="{a b}">x</div>\n', "vue-compile", 17),
    "else-alone": (HEAD + "# Three\n\n<div v-else>x</div>\n", "vue-compile", 17),
    "placeholder-tag": (HEAD + "# Three\n\nuse <your-name> here\n", "vue-compile", 17),
    "unknown-language": (HEAD + "# Three\n\n```nosuchlang\nx\n```\n", "vue-compile", 17),
    "broken-style": (HEAD + "# Three\n\n<style>\nh1 { color: red\n</style>\n", "vue-compile", 18),
    "undefined-member": (HEAD + "# Three\n\nvalue {{ foo.bar }} here\n", "vue-runtime", 17),
    "undefined-name": (HEAD + "# Three\n\nHello {{ name }}!\n", "vue-runtime", 17),
    "undefined-loop": (
        HEAD + '# Three\n\n<div v-for="x of nothing.list">{{ x }}</div>\n',
        "vue-runtime",
        17,
    ),
    "bad-element": (HEAD + '# Three\n\n<component is="a/b" />\n', "vue-runtime", 15),
    "unknown-component": (HEAD + '# Three\n\ntext\n\n<Nope a="1" />\n', "unknown-component", 19),
    "unknown-icon": (
        HEAD + "# Three\n\ntext <mdi-no-such-icon-xyz /> x\n",
        "unknown-component",
        17,
    ),
    "unknown-layout": (
        "---\ntheme: default\n---\n\n# Cover\n\n---\n\n# Two\n\n---\nclass: a\nlayout: nosuch\n---\n\n# T\n",
        "unknown-layout",
        13,
    ),
    "slot-missing": (HEAD + "# Three\n\n::left::\n\nnobody sees this\n", "unknown-slot", 17),
    "slot-of-no-name": (
        "---\ntheme: default\n---\n\n# Cover\n\n---\n\n# Two\n\n---\nlayout: two-cols\n---\n\na\n\n::rigth::\n\nb\n",
        "unknown-slot",
        17,
    ),
    "slot-by-hand": (
        HEAD + "# Three\n\n<template v-slot:foot>\n\nx\n\n</template>\n",
        "unknown-slot",
        17,
    ),
    "text-without-a-place": (
        "---\ntheme: default\n---\n\n# Cover\n\n---\n\n# Two\n\n---\nlayout: iframe\n---\n\n# T\n",
        "unknown-slot",
        15,
    ),
    "braces": (
        "---\ntheme: default\nmdc: true\n---\n\n# Cover\n\n---\n\n# Two\n\n---\n\n# T\n\n- one\n- {x} two\n",
        "vue-compile",
        17,
    ),
    "canvas": ("---\ntheme: default\ncanvasWidth: huge\n---\n\n# Cover\n" + TAIL, "yaml", 3),
    "ratio": ("---\ntheme: default\naspectRatio: 40/1\n---\n\n# Cover\n" + TAIL, "yaml", 3),
    "unknown-theme": ("---\ntitle: x\ntheme: nosuch\n---\n\n# Cover\n" + TAIL, "unknown-theme", 3),
    "theme-as-path": ("---\ntheme: ./here\n---\n\n# Cover\n" + TAIL, "unknown-theme", 2),
    "yaml-first": ("---\ntheme: default\ntitle: a: b\n---\n\n# Cover\n" + TAIL, "yaml", 3),
    "yaml-later": (
        "---\ntheme: default\n---\n\n# Cover\n\n---\n\n# Two\n\n---\nlayout: center\nimage: *foo\n---\n\n# T\n",
        "yaml",
        13,
    ),
    "yaml-emphasis": (
        "---\ntheme: default\n---\n\n# Cover\n\n---\n\n# Two\n\n---\nlayout: center\ntitle: **Bold** x\n---\n\n# T\n",
        "yaml",
        13,
    ),
    "mermaid-syntax": (
        HEAD + "# Three\n\n```mermaid\ngraph LR\n  A --> --> B\n```\n",
        "mermaid",
        19,
    ),
    "mermaid-kind": (
        HEAD + "# Three\n\n```mermaid\nnosuchdiagram\n  A --> B\n```\n",
        "mermaid",
        17,
    ),
    "katex-inline": (HEAD + "# Three\n\ntext $\\frac{1}{$ more\n", "katex", 17),
    "katex-block": (HEAD + "# Three\n\n$$\n\\badmacro{x}\n$$\n", "katex", 17),
    "image-relative": (HEAD + "# Three\n\n![x](images/none.png)\n", "missing-image", 17),
    "image-absolute": (HEAD + '# Three\n\n<img src="/none.png" />\n', "missing-image", 17),
    "image-remote": (HEAD + "# Three\n\n![x](https://example.com/x.png)\n", "missing-image", 17),
    "image-computed": (
        HEAD + "# Three\n\n<img :src=\"'/no' + 'ne.png'\" />\n",
        "missing-image",
        17,
    ),
    "image-layout": (
        "---\ntheme: default\n---\n\n# Cover\n\n---\n\n# Two\n\n---\nlayout: image-right\nimage: images/none.png\n---\n\n# T\n",
        "missing-image",
        13,
    ),
    "too-few": ("---\ntheme: default\n---\n\n# Cover\n\n---\n\n# Two\n", "too-few-slides", 1),
    "empty": ("\n", "too-few-slides", 1),
    "fenced": (
        "```markdown\n---\ntheme: default\n---\n\n# Cover\n" + TAIL + "```\n",
        "fenced-deck",
        1,
    ),
    "blank": (HEAD + "<!-- only a note -->\n", "blank", 14),
    "script": (HEAD + "# Three\n\n<script setup>\nconst a = 1\n</script>\n", "forbidden", 17),
    "handler": (HEAD + '# Three\n\n<button @click="go()">go</button>\n', "forbidden", 17),
    "frame": (HEAD + '# Three\n\n<iframe src="https://example.com"></iframe>\n', "forbidden", 17),
    "snippet": (HEAD + "# Three\n\n<<< @/snippets/a.ts\n", "forbidden", 17),
    "other-file": (
        "---\ntheme: default\n---\n\n# Cover\n\n---\n\n# Two\n\n---\nsrc: ./other.md\n---\n\n# T\n\n---\n\n# Four\n",
        "forbidden",
        12,
    ),
    "addon": ("---\ntheme: default\naddons:\n  - x\n---\n\n# Cover\n" + TAIL, "forbidden", 3),
}


def png(width=8, height=8):
    """A small grey picture without any library."""
    import zlib

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + b"\x90" * width for _ in range(height))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def put(run, name, text, pictures=()):
    (run / name / "images").mkdir(parents=True)
    (run / name / "deck.md").write_text(text)
    for picture in pictures:
        (run / name / picture).write_bytes(png())
    return {"id": name, "deck": {"path": f"{name}/deck.md"}}


def under(pool, protocol):
    """A worker is told all settings with each deck."""
    pool.protocol, pool.settings = protocol, protocol.render
    pool.engine = toolchain.engine(protocol.render["scale"])


def rendered(run, records, protocol="offline", jobs=0, **settings):
    """The render values of records, by the worker of this file, whatever the protocol; with `jobs` by so many fresh ones."""
    chosen = Protocol.load(protocol)
    chosen.render.update(settings)

    async def draw(pool):
        under(pool, chosen)
        return await asyncio.gather(*(pool.render(run, record) for record in records))

    async def go():
        pool = render_pool.Pool(chosen, jobs=jobs)
        try:
            return await draw(pool)
        finally:
            await pool.close()

    return asyncio.run(go()) if jobs else shared(draw)


def hashes(run, value):
    return [hashlib.sha256((run / name).read_bytes()).hexdigest() for name in value["slides"]]


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """What renders the deck of features in a theme, once: `features(theme)` is (run, value)."""
    run = tmp_path_factory.mktemp("features")

    @functools.cache
    def drawn(theme):
        record = put(run, theme, FEATURES.replace("THEME", theme), ["images/a.png"])
        return run, rendered(run, [record])[0]

    return drawn


FRONT = HEAD.removesuffix("text\n\n---\n\n")  # what most of the broken decks begin with
ALONE = ("stray-tag", "image-absolute")  # of which each picture is looked at
# Those of a kind of which another stays in `make test`.
SECOND = "bad-binding else-alone placeholder-tag undefined-name undefined-loop slot-of-no-name slot-by-hand ratio yaml-emphasis mermaid-kind katex-block image-computed handler".split()


@pytest.fixture(scope="module")
def broken(request, tmp_path_factory):
    """(run, {name: value}); those that begin alike are one deck, of which each has the errors of its own lines."""
    run, whole, places = tmp_path_factory.mktemp("broken"), FRONT, {}
    here = [one for one in request.session.items if one.path == request.path]
    cases = [one.callspec.params for one in here if hasattr(one, "callspec")]
    asked = {*ALONE, "unknown-theme", *(each.get("defect") for each in cases)}
    for name, (text, _, _) in BROKEN.items():
        if name in asked and text.startswith(FRONT) and name not in ALONE:
            part = text.removeprefix(FRONT).removeprefix("text\n\n")
            begin = whole.count("\n")
            whole += part + "\n"
            shift = begin - text[: -len(part)].count("\n")
            places[name] = range(begin + 1, whole.count("\n") + 1), shift
    apart = [name for name in BROKEN if name in asked and name not in places]
    records = [put(run, name, BROKEN[name][0]) for name in apart]
    value, *values = rendered(run, [put(run, "whole", whole), *records])
    found = dict(zip(apart, values, strict=True))
    for name, (lines, shift) in places.items():
        own = [error for error in value["errors"] if error["line"] in lines]
        found[name] = value | {"errors": [one | {"line": one["line"] - shift} for one in own]}
    return run, found


@pytest.mark.parametrize("theme", FIRST_THEME)
def test_every_feature_renders_clean(features, theme):
    run, value = features(theme)
    assert (value["status"], value["errors"], value["expected"]) == ("ok", [], 8)
    assert value["slides"] == [f"{theme}/slides/{n:02}.png" for n in range(1, 9)]
    for name in value["slides"]:
        assert struct.unpack(">II", (run / name).read_bytes()[16:24]) == (980, 552)
    assert len(set(hashes(run, value))) == 8


@pytest.mark.parametrize("theme", FIRST_THEME)
def test_the_x_ray_counts_what_stands_on_each_slide(features, theme):
    cover, code, diagram, formula, table, clicks, columns, picture = features(theme)[1]["xray"]
    assert (cover["title"], cover["layout"], cover["line"], cover["words"]) == (
        "Coral reefs 珊瑚礁",
        "cover",
        1,
        6,
    )
    assert (code["code_lines"], code["title"]) == (3, "Code")
    assert (diagram["diagrams"], "Warm water" in diagram["text"]) == (1, True)
    assert formula["formulas"] == 2
    assert table["table_cells"] == 4
    assert (clicks["bullets"], clicks["quotes"], "hidden until a click" in clicks["text"]) == (
        2,
        1,
        True,
    )
    assert (columns["columns"], columns["line"]) == (
        2,
        FEATURES.split("\n").index("layout: two-cols"),
    )
    assert (picture["images"], picture["images_broken"]) == (2, 0)
    for slide in (cover, code, diagram, formula, table, clicks, columns, picture):
        assert slide["overflow"] == {"x": 0, "y": 0} and not slide["blank"]
        assert (
            8 <= slide["font"]["min"] <= slide["font"]["title"] and (slide["contrast"] or 21) > 1.2
        )  # over a picture it is not judged
        assert 0 < slide["text_area"] < 1 - slide["whitespace"] + 0.001


@pytest.mark.long("test_every_feature_renders_clean")
def test_community_themes_render_their_own_layouts_the_same_each_time(tmp_path):
    decks = [(theme, n) for theme in COMMUNITY for n in (1, 2)]
    records = [
        put(
            tmp_path,
            f"{theme}{n}",
            f"---\ntheme: {theme}\n---\n\n{COMMUNITY[theme][0]}",
            ["images/a.png"],
        )
        for theme, n in decks
    ]
    values = dict(zip(decks, rendered(tmp_path, records, jobs=2), strict=True))
    for theme, (_, words) in COMMUNITY.items():
        value, again = values[theme, 1], values[theme, 2]
        assert (value["status"], value["errors"]) == ("ok", []), theme
        for slide, seen in zip(value["xray"], words, strict=True):
            assert all(word in slide["text"] for word in seen.split("|")), (theme, slide["text"])
            assert (
                slide["overflow"] == {"x": 0, "y": 0}
                and not slide["blank"]
                and not slide["images_broken"]
            )
            assert (slide["contrast"] or 21) > 2.5, theme  # a comment in code has 2.6
        assert hashes(tmp_path, value) == hashes(tmp_path, again), theme
        assert len(set(hashes(tmp_path, value))) == len(words), theme


@pytest.mark.long("test_every_feature_renders_clean")
def test_a_theme_is_bundled_when_a_deck_first_names_it(tmp_path, monkeypatch):
    """academic has files of its own, which Slidev copies."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for place in (toolchain.RENDERER / "node_modules/.cache/decksmith").iterdir():
        if place.name == "jiti":  # a worker takes it along, and may make no link
            shutil.copytree(place, cache / "jiti")
        elif not place.name.endswith("-academic"):
            (cache / place.name).symlink_to(place)
    for path in (tmp_path, cache):
        path.chmod(0o755)
    monkeypatch.setenv("DECKSMITH_RENDER_CACHE", str(cache))
    text = "---\ntheme: academic\n---\n\n# A\n\n---\n\n# B\n\n---\n\n# C\n"
    values = rendered(tmp_path, [put(tmp_path, name, text) for name in "ab"], jobs=2)
    assert [value["status"] for value in values] == ["ok", "ok"]
    assert sorted(place.name.split("-")[0] for place in cache.glob("*-academic")) == [
        "runtime",
        "site",
    ]


@pytest.mark.parametrize(
    "themes", [["default"], pytest.param([*THEMES[1:], *COMMUNITY], marks=pytest.mark.long)]
)
def test_code_stands_in_columns_in_every_theme(tmp_path, themes):
    text = "---\ntheme: {}\n---\n\n# Code\n\nfirst\n\n`iiiiiiii`\n\n`MMMMMMMM`\n"
    for value in rendered(tmp_path, [put(tmp_path, theme, text.format(theme)) for theme in themes]):
        thin, wide = (box["box"][2] for box in value["xray"][0]["boxes"][-2:])
        assert thin == pytest.approx(wide, rel=0.1), value[
            "slides"
        ]  # in letters of different width: 3 to 1


def test_what_runs_off_the_slide_overlaps_or_is_hard_to_read_is_measured(tmp_path):
    bad = (
        HEAD
        + "# Three\n\n"
        + "\n".join(f"- point {n}" for n in range(40))
        + (
            "\n\n---\n\n<div style='position:absolute;left:100px;top:100px'>first text here</div><div style='position:absolute;left:100px;top:100px'>second text there</div>\n"
            "\n---\n\n<p style='color:#ddd;background:#fff;font-size:7px;opacity:1'>faint and small</p>\n"
        )
    )
    (value,) = rendered(tmp_path, [put(tmp_path, "bad", bad)])
    tall, over, faint = value["xray"][2:]
    assert tall["overflow"]["y"] > 300 and tall["bullets"] == 40
    assert over["overlap"] > 0
    assert faint["contrast"] == pytest.approx(1.36, abs=0.02) and faint["font"]["min"] == 7


def test_text_that_is_see_through_is_not_text(tmp_path):
    ghost = "<div style='opacity:0.02'>\n\nseen by nobody\n\n</div>\n\n<p style='opacity:0.5'>seen by all</p>\n"
    (value,) = rendered(tmp_path, [put(tmp_path, "ghost", HEAD + "# Three\n\n" + ghost)])
    assert value["xray"][2]["text"].split("\n") == ["Three", "seen by all"]


@pytest.mark.long("test_a_worker_that_is_killed_is_replaced_and_the_deck_rendered_once_more")
def test_the_same_deck_gives_the_same_bytes_in_other_order_and_on_other_workers(features, tmp_path):
    records = [
        put(tmp_path, theme, FEATURES.replace("THEME", theme), ["images/a.png"])
        for theme in reversed(THEMES)
    ]
    for again in rendered(tmp_path, records, jobs=2):
        run, value = features(again["slides"][0].split("/")[0])
        assert hashes(tmp_path, again) == hashes(run, value)
        assert again["xray"] == value["xray"]


@pytest.mark.long("test_only_a_slide_that_runs_no_code_may_follow_another_in_one_page")
def test_a_slide_looks_the_same_after_others_in_its_page_and_in_a_page_of_its_own(tmp_path):
    """A slide that runs code has a page of its own, and so has the one behind it."""
    # Pieces stand here without their layouts, and so without places in them.
    slides = [
        re.sub(r"^::.*::$", "", piece, flags=re.M).strip("\n")
        for piece in FEATURES.split("\n---\n")[2:]
    ]
    for theme in THEMES:
        head = f"---\ntheme: {theme}\n---\n\n"
        apart = [piece for slide in slides for piece in (slide, "# {{ String(1) }}")]
        together, alone = rendered(
            tmp_path,
            [
                put(tmp_path, name, head + "\n\n---\n\n".join(pieces), ["images/a.png"])
                for name, pieces in ((f"{theme}-together", slides), (f"{theme}-alone", apart))
            ],
        )
        assert (together["errors"], alone["errors"]) == ([], [])
        assert hashes(tmp_path, together) == hashes(tmp_path, alone)[::2]
        texts = [[slide["text"] for slide in value["xray"]] for value in (together, alone)]
        assert texts[0] == texts[1][::2]


@pytest.mark.long("test_the_x_ray_counts_what_stands_on_each_slide")
def test_a_picture_that_a_style_paints_is_waited_for(tmp_path):
    slides = ["layout: image-right\nimage: /images/a.png\n---\n\n# B\n\nc"]
    slides += [
        "layout: default\n---\n\n# D\n\n<div class='e'>f</div>\n\n<style>\n.e::before { content: ''; display: block; height: 300px; background: url(/images/b.png) }\n</style>"
    ]
    deck = "---\ntheme: default\n---\n\n# A\n\n---\n" + "\n\n---\n".join(slides)
    noise = Image.effect_noise((700, 500), 90)  # some packets long
    noise.save(tmp_path / "a.png")
    noise.rotate(90).save(tmp_path / "b.png")
    # A server that stops in the middle of each picture, and goes on half a second later.
    script = """
      const { readFileSync } = await import('node:fs')
      const { ServerResponse } = await import('node:http')
      const [{ launch }, { compile, warm }, { shoot }, { Server }] = await Promise.all(['browser', 'compile', 'page', 'server'].map(name => import(`${process.argv[1]}/${name}.mjs`)))
      const images = new Map(['a', 'b'].map(name => [`images/${name}.png`, readFileSync(`${process.argv[3]}/${name}.png`)]))
      const [server, { end }] = [new Server(), ServerResponse.prototype]
      const browser = await launch({ port: await server.listen(), home: process.argv[3] })
      const drawn = async () => {
        const deck = await compile(process.argv[2])
        return (await shoot({ browser, server, deck, runtime: (await warm(deck.theme)).runtime.dir, images, scale: 1, onSlide() {} })).pictures
      }
      const [quick, paused] = [await drawn(), []]
      ServerResponse.prototype.end = function (body) {
        if (![...images.values()].includes(body))
          return end.call(this, body)
        paused.push(body)
        this.write(body.subarray(0, body.length >> 1))
        setTimeout(() => end.call(this, body.subarray(body.length >> 1)), 500)
      }
      const slow = await drawn()
      process.stdout.write(JSON.stringify([paused.length, quick.map((picture, i) => picture === slow[i])]))
      browser.kill()
      process.exit(0)
    """
    command = [toolchain.node(), "--no-warnings", "--input-type=module", "-e", script, "--"]
    command += [toolchain.RENDERER, deck, tmp_path]
    done = subprocess.run(command, env=toolchain.environment(), stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout) == [2, [True, True, True]]


def test_only_a_slide_that_runs_no_code_may_follow_another_in_one_page():
    harmless = ["# A", "$a^2$", "{{ $nav.currentPage }}", "<v-clicks>\n\n- b\n\n</v-clicks>"]
    harmless += ["```python {2|3}\na = f(1)\nb\nc\n```", "<div v-click>c</div>\n\n<mdi-fish />"]
    running = ["{{ String(1) }}", "<p :title='a = 1'>d</p>", "<p v-for='i in [1].concat(2)'>e</p>"]
    running += ["```mermaid\ngraph LR\n  A --> B\n```", "<p v-mark.red>f</p>", "<NoSuchThing />"]
    script = """
      const { compile } = await import(`${process.argv[1]}/compile.mjs`)
      const { slides } = await compile(process.argv[2])
      process.stdout.write(JSON.stringify(slides.map(slide => !!slide.plain)))
      process.exit(0)
    """
    deck = "---\ntheme: default\n---\n\n" + "\n\n---\n\n".join(harmless + running)
    command = [toolchain.node(), "--no-warnings", "--input-type=module", "-e", script, "--"]
    done = subprocess.run([*command, toolchain.RENDERER, deck], stdout=subprocess.PIPE, check=True)
    plain = json.loads(done.stdout)
    assert plain == [True] * len(harmless) + [False] * len(running)


@pytest.mark.long("test_every_feature_renders_clean")
def test_a_worker_begins_with_what_was_made_at_set_up(tmp_path):
    script = """
      const { default: fs } = await import('node:fs')
      const { registerHooks } = await import('node:module')
      const opened = []
      const read = fs.promises.readFile
      fs.promises.readFile = (file, ...rest) => opened.push(`${file}`) && read(file, ...rest)
      registerHooks({ load: (url, context, next) => opened.push(url) && next(url, context) })
      const { compile, warm } = await import(`${process.argv[1]}/compile.mjs`)
      const sheet = async () => (await compile('# A')).files.get('/@deck/style.css')
      const icons = () => opened.some(file => file.endsWith('icons.json'))
      const made = await sheet()
      const seen = [icons(), ...['jiti/dist/jiti', 'jiti/dist/babel', '@babel/core', 'devframe', 'node_modules/vite/', 'rolldown/dist', 'zod/', '@oxc-parser'].map(part => opened.some(url => url.includes(`/${part}`)))]
      const { uno, runtime } = await warm('default')
      runtime.icons.forEach(([token]) => uno.invalidateToken(token))
      process.stdout.write(JSON.stringify([seen, made.includes('i-carbon'), made === await sheet(), icons()]))
      process.exit(0)
    """
    command = [toolchain.node(), "--no-warnings", "--permission", "--allow-addons"]
    command += [f"--allow-fs-read={place}" for place in (*cell.readable(), tmp_path)]
    command += [f"--allow-fs-write={tmp_path}", "--import", toolchain.RENDERER / "wall.mjs"]
    command += ["--input-type=module", "-e", script, "--", toolchain.RENDERER]
    environment = {**toolchain.environment(), "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout) == [[False, True, *[False] * 7], True, True, True]


def test_code_does_not_depend_on_what_was_compiled_before():
    """Languages inside others, names that every object has, and what V8 makes of patterns that it has used."""
    script = """
      const { compile } = await import(`${process.argv[1]}/compile.mjs`)
      const inside = '\\n```js\\nconst a = 1\\n```\\n<style lang="scss">$a: 1</style>\\nSELECT 1 FROM x\\n````\\n'
      const made = async language => {
        const { errors, files } = await compile('# A\\n\\n````' + language + inside, 1)
        return errors.length ? errors.map(({ line, message }) => `${line}: ${message}`) : files.get('/@deck/slide/1.js')
      }
      const all = []
      for (const language of process.argv.slice(2))
        all.push([language, await made(language)])
      process.stdout.write(JSON.stringify(all))
      process.exit(0)
    """
    command = [toolchain.node(), *worker.FLAGS, "--input-type=module", "-e", script, "--"]
    command.append(toolchain.RENDERER)
    last = ["powershell", "vue"]
    others = ["toString", "__proto__", "scss", "ruby", "go", "cpp"]
    runs = [
        subprocess.Popen([*command, *named], stdout=subprocess.PIPE)
        for named in (last, others + last)
    ]
    fresh, later = (dict(json.loads(run.communicate()[0])) for run in runs)
    assert all("--shiki" in code for code in fresh.values())
    assert {name: code for name, code in later.items() if name in last} == fresh
    for name in others[:2]:
        assert later[name] == [f"3: the code language {name} is unknown"]


@pytest.mark.long("test_a_worker_that_is_killed_is_replaced_and_the_deck_rendered_once_more")
def test_colours_of_code_do_not_depend_on_how_long_they_took():
    script = """
      const { compile } = await import(`${process.argv[1]}/compile.mjs`)
      const modules = async language => [...(await compile(`---\\ntheme: dracula\\n---\\n\\n\\`\\`\\`${language}\\nconst tide: number = 12\\n\\`\\`\\`\\n\\n---\\n\\n\\`\\`\\`\\`md magic-move\\n\\`\\`\\`ts\\nlet a: number = 1\\n\\`\\`\\`\\n\\`\\`\\`\\`\\n`, 1)).files.values()].join('')
      const first = await modules('ts')
      let now = 0
      Date.now = performance.now = () => now += 1000
      const again = await modules('ts')
      process.stdout.write(JSON.stringify([first === again, first.includes('--shiki'), first === await modules('js')]))
      process.exit(0)
    """
    done = subprocess.run(
        [
            toolchain.node(),
            "--no-warnings",
            "--input-type=module",
            "-e",
            script,
            "--",
            toolchain.RENDERER,
        ],
        stdout=subprocess.PIPE,
        check=True,
    )
    assert json.loads(done.stdout) == [True, True, False]


@pytest.mark.long("test_the_x_ray_counts_what_stands_on_each_slide")
def test_double_scale_doubles_the_pixels_and_leaves_the_measures(features, tmp_path):
    (value,) = rendered(
        tmp_path,
        [put(tmp_path, "x", FEATURES.replace("THEME", "default"), ["images/a.png"])],
        scale=2,
    )
    assert struct.unpack(">II", (tmp_path / value["slides"][0]).read_bytes()[16:24]) == (1960, 1104)
    assert [slide["words"] for slide in value["xray"]] == [
        slide["words"] for slide in features("default")[1]["xray"]
    ]
    assert value["engine"] == features("default")[1]["engine"] | {"scale": 2}


@pytest.mark.parametrize(
    "defect",
    [pytest.param(name, marks=[pytest.mark.long] * (name in SECOND)) for name in BROKEN],
)
def test_a_defect_has_its_class_and_line(broken, defect):
    value, (_, cls, line) = broken[1][defect], BROKEN[defect]
    assert [(error["kind"], error["class"], error["line"]) for error in value["errors"]] == [
        ("model", cls, line)
    ]
    assert value["status"] == ("failed" if cls in ("too-few-slides", "fenced-deck") else "partial")
    assert ("error" in value) == (value["status"] == "failed")


def test_styles_may_apply_classes_and_code_for_an_editor_is_code(tmp_path):
    code = "\n\n---\n\n# Code\n\n```ts {}\nlet a = 1\n```\n"
    text = "# T\n\n<p class='x'>gone</p>\n\n<style>\n.x { @apply hidden; }\n</style>\n"
    text += code.replace(" {}", " {monaco}") + code.replace(" {}", "")
    [value] = rendered(tmp_path, [put(tmp_path, "applied", text)])
    assert (value["errors"], value["xray"][0]["text"]) == ([], "T")
    assert len(set(hashes(tmp_path, value)[1:])) == 1


def test_an_unknown_theme_is_told_which_there_are(broken):
    (error,) = broken[1]["unknown-theme"]["errors"]
    assert (
        error["message"]
        == f"the theme nosuch is not one of {', '.join(sorted(render_pool.THEMES))}; the deck is shown in the theme default"
    )


def test_of_very_many_errors_the_first_and_one_of_each_class_are_listed_and_the_rest_counted(
    tmp_path,
):
    many = (
        HEAD
        + "# Three\n\n"
        + "".join(f"<mdi-none-{n} />\n" for n in range(230))
        + "\n---\n\nvalue {{ a + }} here\n"
    )
    (value,) = rendered(tmp_path, [put(tmp_path, "x", many)], "published")
    assert [error["class"] for error in value["errors"]] == ["unknown-component"] * 198 + [
        "vue-compile",
        "unknown-component",
    ]
    assert (
        value["errors"][-1]["message"]
        == "the icon mdi:none-198 does not exist (and 31 more errors, not listed)"
    )
    assert value["error"] == value["errors"][198]


def test_one_bad_slide_does_not_cost_the_others(broken):
    run, values = broken
    bad, good = hashes(run, values["stray-tag"]), hashes(run, values["image-absolute"])
    assert len(bad) == 3 and bad[:2] == good[:2] and bad[2] != good[2]
    assert values["stray-tag"]["xray"][2]["blank"] and not values["stray-tag"]["xray"][1]["blank"]


def test_the_published_protocol_refuses_what_does_not_compile(tmp_path):
    value, other = rendered(
        tmp_path,
        [put(tmp_path, "a", BROKEN["stray-tag"][0]), put(tmp_path, "b", BROKEN["katex-inline"][0])],
        "published",
    )
    assert (
        value["status"],
        value["error"]["class"],
        value["error"]["line"],
        len(value["slides"]),
    ) == (
        "partial",
        "vue-compile",
        17,
        3,
    )
    assert (other["status"], "error" in other) == ("partial", False)


def test_code_that_shows_forbidden_things_is_left_alone(tmp_path):
    text = (
        HEAD
        + '# Three\n\n```html\n<script src="x"></script>\n<iframe></iframe> {{ name }}\n```\n\nUse `<script>` and `{{ x }}` and `@click="a"` with care, or import (maybe) a file.\n'
    )
    (value,) = rendered(tmp_path, [put(tmp_path, "x", text)])
    assert (value["status"], value["errors"]) == ("ok", [])
    assert (
        '<script src="x"></script>' in value["xray"][2]["text"]
        and "Use <script> and {{ x }}" in value["xray"][2]["text"]
    )


def test_pictures_come_from_the_deck_s_own_folder_only(tmp_path):
    (tmp_path / "secret.png").write_bytes(png())
    record = put(
        tmp_path, "x", HEAD + "# Three\n\n![a](images/link.png) ![b](images/../../secret.png)\n"
    )
    os.symlink(tmp_path / "secret.png", tmp_path / "x" / "images" / "link.png")
    assert render_pool.source(tmp_path, record)[1] == {}


def test_stale_pictures_go_and_the_journal_s_inputs_follow_text_and_pictures(tmp_path):
    record, protocol = (
        put(tmp_path, "x", HEAD + "# Three\n\n![a](images/a.png)\n", ["images/a.png"]),
        Protocol.load("offline"),
    )
    (tmp_path / "x" / "slides").mkdir()
    (tmp_path / "x" / "slides" / "99.png").write_bytes(b"")
    before = render_pool.inputs(tmp_path, record, protocol)
    (value,) = rendered(tmp_path, [record])
    assert sorted(os.listdir(tmp_path / "x" / "slides")) == ["01.png", "02.png", "03.png"]
    assert sorted(os.listdir(tmp_path / "x")) == ["deck.md", "images", "slides"]
    assert render_pool.inputs(tmp_path, record, protocol) == before and render_pool.intact(
        tmp_path, value
    )
    (tmp_path / "x" / "images" / "a.png").write_bytes(png(9))
    assert render_pool.inputs(tmp_path, record, protocol) != before
    (tmp_path / "x" / "slides" / "01.png").unlink()
    assert not render_pool.intact(tmp_path, value)


def test_a_deck_that_was_rendered_before_needs_no_worker_and_gives_the_same_record_and_bytes(
    tmp_path,
):
    kept, again = tmp_path / "renders", tmp_path / "again"
    deck = HEAD + "# Three\n\n![a](images/a.png)\n"
    first = tmp_path, put(tmp_path, "first", deck, ["images/a.png"])
    bad = BROKEN["stray-tag"][0]
    again.mkdir()
    second = again, put(again, "second", deck, ["images/a.png"])

    async def ask(pool, *asked):
        return await asyncio.gather(*(pool.render(run, record) for run, record in asked))

    async def from_what_is_kept(*asked):
        pool = render_pool.Pool(Protocol.load("offline"), kept=kept)
        try:
            return await ask(pool, *asked), pool.ready or any(each.process for each in pool.workers)
        finally:
            await pool.close()

    async def go(pool):
        under(pool, Protocol.load("offline"))
        pool.kept = kept
        try:
            await with_worker(pool)
        finally:
            pool.kept = None

    async def with_worker(pool):
        value, poor = await ask(pool, first, (tmp_path, put(tmp_path, "bad", bad)))
        assert (value["status"], poor["status"]) == ("ok", "partial")
        assert len(os.listdir(kept)) == 2
        assert value["by"].keys() == {"walls"} and value.pop("by") == poor.pop("by")
        assert value.keys() == poor.keys()
        (same, other), worked = await from_what_is_kept(second, (again, put(again, "bad", bad)))
        assert not worked and same.pop("by") == other.pop("by") == {"cached": True}
        assert same == value | {"slides": [f"second/slides/{n:02}.png" for n in (1, 2, 3)]}
        assert other == poor
        assert hashes(again, same) == hashes(tmp_path, value)
        assert os.listdir(again / "second") == os.listdir(tmp_path / "first")

        before = {name: (kept / name).read_bytes() for name in os.listdir(kept)}
        for name, data in before.items():
            (kept / name).write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
        (again / "second/images/a.png").write_bytes(png(9))
        value_again, other = await ask(pool, first, second)
        assert value_again.pop("by").keys() == other.pop("by").keys() == {"walls"}
        assert value_again == value
        assert hashes(again, other)[:2] == hashes(tmp_path, value)[:2]
        assert hashes(again, other) != hashes(tmp_path, value)
        assert len(os.listdir(kept)) == 3
        whole = [(kept / name).read_bytes() == data for name, data in before.items()]
        assert whole.count(True) == 1
        pool.settings["scale"] = 2
        (double,) = await ask(pool, first)
        assert double["by"].keys() == {"walls"}
        size = (tmp_path / double["slides"][0]).read_bytes()[16:24]
        assert struct.unpack(">II", size) == (1960, 1104)

    shared(go)


def test_a_worker_that_is_killed_is_replaced_and_the_deck_rendered_once_more(features, tmp_path):
    """Under a deck; what its successor draws is what it drew itself."""
    deck = FEATURES.replace("THEME", "default")
    records = [put(tmp_path, f"d{n}", deck, ["images/a.png"]) for n in range(2)]
    run, earlier = features("default")
    gone = []

    async def go(pool):
        def browser():
            process = pool.workers[0].process
            family = worker.tree(process.pid) if process else []
            return next(
                (
                    pid
                    for pid in family
                    if any("--remote-debugging-pipe" in text for text in commands([pid]))
                ),
                None,
            )

        async def murder():
            await asyncio.sleep(1)
            while not (pid := browser()):
                await asyncio.sleep(0.05)
            os.kill(pid, signal.SIGKILL)  # under a deck
            gone.append(pid)

        under(pool, Protocol.load("offline"))
        drawing = [pool.render(tmp_path, record) for record in records]
        _, *values = await asyncio.gather(murder(), *drawing)
        assert browser() not in [None, *gone]
        return values

    for value in shared(go):
        assert value["status"] == "ok"
        assert hashes(tmp_path, value) == hashes(run, earlier)
        assert value["xray"] == earlier["xray"]


@pytest.mark.long("test_a_worker_that_is_killed_is_replaced_and_the_deck_rendered_once_more")
def test_a_worker_keeps_nothing_of_a_deck_that_is_done(tmp_path):
    noise = Image.frombytes("RGB", (900, 500), os.urandom(900 * 500 * 3))
    noise.save(tmp_path / "a.png")
    script = """
      const [root, home, picture] = process.argv.slice(1)
      console.log = console.warn = console.error
      const load = name => import(`${root}/${name}.mjs`)
      const { launch } = await load('browser'), { Server } = await load('server'), { compile, warm } = await load('compile'), { shoot } = await load('page')
      const server = new Server(), browser = await launch({ port: await server.listen(), home })
      const image = (await import('node:fs')).readFileSync(picture)
      const { runtime } = await warm('default')
      const sizes = []
      for (let turn = 0; turn < 6; turn++) {
        const deck = await compile('# A\\n\\n![a](images/a.png)\\n\\n---\\n\\n![a](images/a.png)\\n', 2)
        const { pictures } = await shoot({ browser, server, deck, runtime: runtime.dir, images: new Map([['images/a.png', image]]), scale: 1, onSlide() {} })
        const taken = pictures.join('').length
        pictures.length = 0
        await browser.send('Target.getTargets') // what the end of the deck sends has come
        await new Promise(resolve => setTimeout(resolve, 100))
        gc()
        sizes.push([process.memoryUsage().heapUsed, taken])
      }
      browser.kill()
      process.stdout.write(JSON.stringify(sizes))
      process.exit(0)
    """
    command = [
        toolchain.node(),
        "--expose-gc",
        "--no-warnings",
        "--input-type=module",
        "-e",
        script,
        "--",
        toolchain.RENDERER,
    ]
    done = subprocess.run(
        [*command, tmp_path, tmp_path / "a.png"], stdout=subprocess.PIPE, check=True
    )
    (first, taken), *_, (last, _) = json.loads(done.stdout)
    assert taken > 2 << 20
    assert last - first < taken  # five decks later, less than one deck's pictures


def commands(pids):
    """The command lines of those processes that are still there, zombies left out."""
    found = []
    for pid in pids:
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return list(filter(None, found))


@pytest.mark.parametrize(
    "end", [pytest.param("stdin closes", marks=pytest.mark.long), "the parent is killed"]
)
def test_nothing_is_left_running(tmp_path, end):
    record = put(tmp_path, "x", HEAD + '# Three\n\n<div :ref="() => { while (true) {} }" />\n')
    stage = subprocess.Popen(
        [
            cli.ROOT / "bin/deck-render",
            "--run",
            tmp_path,
            "--deadline",
            "4" if end == "stdin closes" else "60",
        ],
        env=dict(os.environ, IMAGES="off"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    stage.stdin.write(stream.dumps(record) + b"\n")
    stage.stdin.flush()
    family = []

    def at_work():
        family[:] = worker.tree(stage.pid)
        said = "".join(commands(family))
        return "worker.mjs" in said and "--type=renderer" in said

    waits.until(at_work, stage)
    if end == "stdin closes":
        stage.stdin.close()
        assert json.loads(stage.stdout.read())["render"]["error"]["class"] == "deadline"
    else:
        stage.kill()
    stage.wait()
    waits.until(lambda: not commands(family))
    assert not list(tmp_path.glob("x/*.tmp"))


@pytest.mark.long("test_a_missing_browser_names_the_variable_that_names_it")
def test_another_browser_is_named_in_the_record(tmp_path, monkeypatch):
    """The browser of the lock again, in a wrapper that gives itself out for another."""
    place = toolchain.MODULES / "@sparticuz/chromium/unpacked/chromium"
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin" / "other"
    other.write_text(
        f'#!/bin/sh\n[ "$1" != --version ] || {{ echo "Chromium 1.2 of somebody"; exit; }}\n'
        f'export LD_LIBRARY_PATH="{place.parent}/lib"\nexec "{place}" "$@"\n'
    )
    for path in (other, other.parent, tmp_path):
        path.chmod(0o755)
    monkeypatch.setenv("DECKSMITH_CHROMIUM", str(other))
    toolchain.engine.cache_clear()
    try:
        (value,) = rendered(tmp_path, [put(tmp_path, "x", HEAD + "# Three\n")], jobs=1)
        assert (value["status"], value["engine"]["browser"]) == ("ok", "Chromium 1.2 of somebody")
    finally:
        toolchain.engine.cache_clear()


def test_a_missing_browser_names_the_variable_that_names_it(tmp_path, monkeypatch):
    monkeypatch.setenv("DECKSMITH_CHROMIUM", str(tmp_path / "none"))
    toolchain.engine.cache_clear()
    try:
        with pytest.raises(cli.Missing, match="DECKSMITH_CHROMIUM=.*mend or unset it"):
            toolchain.engine(1)
    finally:
        toolchain.engine.cache_clear()


def test_a_missing_installation_names_the_command_that_mends_it(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain, "MODULES", tmp_path)
    toolchain.engine.cache_clear()
    try:
        with pytest.raises(cli.Missing, match="run: make setup"):
            toolchain.engine(1)
    finally:
        toolchain.engine.cache_clear()
