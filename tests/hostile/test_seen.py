"""What is measured is what is seen: text that the picture does not show is not read, whatever hides it; text that it shows is."""
# ruff: noqa: E501 (slides stand in single lines here)

import json
import subprocess

import pytest
from decksmith.measure.decks import lint
from decksmith.measure.judging import rendered
from decksmith.measure.render import toolchain
from drawing import shared, shared_workers  # noqa: F401

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WORDS = "Eleven grey herons waited by the lower weir"
CLEAR = "-webkit-text-fill-color: transparent"
OVER = "position: absolute; inset: -30px; z-index: 9"
LEANS = [f"transform: rotate({angle}deg)" for angle in (0.4, -3, 12)]

BAR = "█" * 40
SOLID = ", ".join(f"{x}px {y}px 0 black" for x in range(-12, 13, 2) for y in (-9, -5, 0, 5, 9))
WHITE = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='9' height='9'%3E%3Crect width='9' height='9' fill='white'/%3E%3C/svg%3E"


def drawn(attributes, more="", text=WORDS):
    """A drawing with a text, and what stands beside it."""
    return f'<svg width="600" height="60"><text x="5" y="40" {attributes}>{text}</text>{more}</svg>'


def coded(code, inner, tag="div", attributes=""):
    """An element that the deck's own code is given once, as `el`."""
    given = f"el => {{ if (el &amp;&amp; !el.did) {{ el.did = 1; {code} }} }}"
    return f'<{tag} {attributes} :ref="{given}">{inner}</{tag}>'


def lid(count):
    """Letters that make one red area."""
    place = "position: absolute; top: -20px; left: -20px; width: 660px; z-index: 9"
    return f'<div style="{place}; color: #c00; font-size: 30px; line-height: 20px; word-break: break-all">{BAR * count}</div>'


# A style for the text, and what stands beside it.
HIDDEN = {
    **{f"{lean}, clear": (f"{lean}; {CLEAR}", "") for lean in LEANS},
    **{f"{lean}, pale": (f"{lean}; color: #fefefe", "") for lean in LEANS},
    **{f"{lean}, flat": (f"{lean} scaleY(.2)", "") for lean in LEANS},
    **{f"{lean}, blurred": (f"{lean}; filter: blur(6px)", "") for lean in LEANS},
    **{
        f"{lean}, covered": (lean, f'<div style="{OVER}; background: white"></div>')
        for lean in LEANS
    },
    **{
        f"{lean}, behind glass": (lean, f'<div style="{OVER}; backdrop-filter: blur(9px)"></div>')
        for lean in LEANS
    },
    "rotate and clear": (f"rotate: 2deg; {CLEAR}", ""),
    "skewed and clear": (f"transform: skewX(2deg); {CLEAR}", ""),
    "columns and clear": (f"writing-mode: vertical-rl; height: 300px; {CLEAR}", ""),
    "columns and clipped": (
        "writing-mode: vertical-rl; height: 300px; clip-path: inset(0 0 100% 0)",
        "",
    ),
    "columns behind a pane": (
        "writing-mode: vertical-rl; height: 300px",
        f'<div style="{OVER}; background: white"></div>',
    ),
    "clipped": ("clip-path: inset(0 100% 0 0)", ""),
    "clipped to a corner": ("clip-path: circle(4px at 0 0)", ""),
    "clipped, leaning": ("transform: rotate(1deg); clip-path: polygon(0 0, 1px 0, 0 1px)", ""),
    "masked": ("mask-image: linear-gradient(transparent, transparent)", ""),
    "masked, leaning": (
        "transform: rotate(1deg); mask-image: linear-gradient(transparent, transparent)",
        "",
    ),
    "mostly masked": (
        "transform: rotate(1deg); mask-image: linear-gradient(90deg, black 10%, transparent 12%)",
        "",
    ),
    "colour alone": ("color: transparent; transform: rotate(1deg)", ""),
    "opacity by a filter": ("transform: rotate(1deg); filter: opacity(.01)", ""),
    "brightened": ("transform: rotate(1deg); filter: brightness(0) invert(1)", ""),
    "underlined and clear": (f"text-decoration: underline black 3px; {CLEAR}", ""),
    "struck and clear": (
        f"transform: rotate(1deg); text-decoration: line-through black 2px; {CLEAR}",
        "",
    ),
    "shadow far away": (f"transform: rotate(1deg); text-shadow: 0 900px 0 black; {CLEAR}", ""),
    "stroked with nothing": (
        f"transform: rotate(1deg); -webkit-text-stroke: 2px transparent; {CLEAR}",
        "",
    ),
    "clipped background": (
        f"background: linear-gradient(white, white); background-clip: text; {CLEAR}; transform: rotate(1deg)",
        "",
    ),
    "blended away": ("transform: rotate(1deg); color: white; mix-blend-mode: darken", ""),
    "important": (
        "transform: rotate(1deg); color: transparent !important; -webkit-text-fill-color: transparent !important",
        "",
    ),
    "in a flat box": ("transform: perspective(50px) rotateX(89deg)", ""),
    "moved off": ("transform: rotate(1deg) translateX(4000px)", ""),
    "its back to us": ("transform: rotateY(180deg); backface-visibility: hidden", ""),
    "shrunk": ("transform: scale(.02)", ""),
    "shrunk to nothing, beside code": ("transform: scale(.005)", "\n\n```py\nx = 1\n```\n\n"),
    "zoomed away": ("zoom: .02", ""),
    "on each other": ("letter-spacing: -1em; transform: rotate(1deg)", ""),
    "indented away": ("text-indent: -9999px", ""),
    "clip": ("position: absolute; clip: rect(0, 0, 0, 0)", ""),
    "content not drawn": ("content-visibility: hidden", ""),
    "collapsed": ("visibility: collapse", ""),
    "masked by a picture": (
        f"transform: rotate(1deg); mask: url(&quot;{WHITE}&quot;) -20px -20px / 5px no-repeat",
        "",
    ),
    "masked to nothing": (
        "mask: linear-gradient(black, black) 0 0 / 0 0 no-repeat; transform: rotate(1deg)",
        "",
    ),
    "moved along a path": ("offset-path: path('M 0 -900 L 1 -900'); transform: rotate(1deg)", ""),
    "fixed far away": ("position: fixed; left: -5000px", ""),
    "far behind": ("transform: perspective(100px) translateZ(-99999px)", ""),
    "without width": ("scale: 0 1", ""),
    "translated": ("translate: 200vw; rotate: 1deg", ""),
    "no height": ("max-height: 0; overflow: clip", ""),
    "no height, leaning": ("transform: rotate(1deg); max-height: 0; overflow: hidden", ""),
    "the paper's colour": ("color: Canvas; transform: rotate(1deg)", ""),
    "mixed": ("color: color-mix(in srgb, white 98%, black); transform: rotate(1deg)", ""),
    "black on black": ("background: black; color: black; transform: rotate(2deg)", ""),
    "columns, blurred": ("writing-mode: vertical-rl; height: 400px; filter: blur(8px)", ""),
    "columns, less blurred": ("writing-mode: vertical-rl; height: 400px; filter: blur(4px)", ""),
    "two lines, leaning, blurred": ("width: 220px; transform: rotate(2deg); filter: blur(8px)", ""),
    "columns, solid": (f"writing-mode: vertical-rl; height: 400px; text-shadow: {SOLID}", ""),
    "two lines, leaning, solid": (
        f"width: 220px; transform: rotate(2deg); text-shadow: {SOLID}",
        "",
    ),
    "columns under bars": ("writing-mode: vertical-rl; height: 400px", lid(12)),
    "two lines, leaning, under bars": ("width: 220px; transform: rotate(2deg)", lid(4)),
    "columns, clear, under other words": (
        f"writing-mode: vertical-rl; height: 400px; {CLEAR}",
        '<div style="position: absolute; inset: 0; writing-mode: vertical-rl; height: 400px; right: auto">Somebody else stands here and says other things</div>',
    ),
    "two lines, leaning, clear, under other words": (
        f"width: 220px; transform: rotate(2deg); {CLEAR}",
        '<div style="position: absolute; left: 0; top: 0; width: 220px; transform: rotate(2deg)">Somebody else stands here and says other things</div>',
    ),
    "under a shadow": (
        "transform: rotate(1deg)",
        '<div style="position: absolute; left: 300px; top: 0; width: 1px; height: 1px; box-shadow: 0 0 0 400px white; z-index: 9"></div>',
    ),
    "under a border": (
        "transform: rotate(1deg)",
        '<div style="position: absolute; inset: -20px; border: solid white; border-width: 80px 330px; z-index: 9"></div>',
    ),
    "under a picture": (
        "transform: rotate(1deg)",
        f'<img style="position: absolute; left: -9px; top: -9px; width: 640px; height: 90px; max-width: none; z-index: 9" src="{WHITE}">',
    ),
    "under a drawing": (
        "transform: rotate(1deg)",
        '<svg style="position: absolute; left: -9px; top: -9px; z-index: 9" width="640" height="90"><rect width="640" height="90" fill="white"/></svg>',
    ),
    "under what lets clicks through": (
        "transform: rotate(1deg)",
        f'<div style="{OVER}; background: white; pointer-events: none"></div>',
    ),
    "under glass that inverts nothing": (
        "transform: rotate(1deg)",
        f'<div style="{OVER}; backdrop-filter: brightness(0) invert(1)"></div>',
    ),
    "its parent's opacity": ("transform: rotate(1deg); filter: opacity(.5) opacity(.04)", ""),
}
SHOWN = {
    "plain": "",
    "leaning": "transform: rotate(4deg)",
    "leaning back": "rotate: -6deg",
    "in columns": "writing-mode: vertical-rl; height: 300px",
    "a gradient of letters": f"background: linear-gradient(90deg, #a00, #00a); background-clip: text; {CLEAR}; font-size: 30px",
    "white on dark": "color: white; background: #222",
    "spaced": "letter-spacing: 4px",
    "underlined": "text-decoration: underline",
    "shadow alone": f"text-shadow: 0 0 0 black; {CLEAR}",
    "grey": "color: #666",
    "a transition": "transition: all 3s",
    "small capitals": "font-variant: small-caps",
    "half through": "opacity: .6",
    "large": "font-size: 40px",
    "a glow": "text-shadow: 0 0 8px #68f; font-size: 28px",
    "outlined": f"-webkit-text-stroke: 1px black; {CLEAR}; font-size: 30px",
    "blended": "mix-blend-mode: multiply; color: #336",
    "pale": "color: #777; transform: rotate(1deg)",
    "dashes": "transform: rotate(1deg); font-family: monospace",
    "bold": "font-weight: 800; font-size: 30px",
    "tight": "letter-spacing: -.5px; line-height: 1",
    "upright in columns": "writing-mode: vertical-rl; text-orientation: upright; height: 380px; font-size: 14px",
    "in columns, sideways": "writing-mode: sideways-lr; height: 400px",
    "two lines, leaning": "width: 220px; transform: rotate(3deg)",
    "a shadow beneath": "text-shadow: 2px 2px 3px #888; font-size: 30px",
    "on a picture": "background: linear-gradient(45deg, #124, #478); color: white",
    "behind glass of its own": "backdrop-filter: blur(4px); background: #fff8",
    "masked at its end": "mask-image: linear-gradient(90deg, black 90%, transparent)",
    "rounded and clipped": "clip-path: inset(0 round 6px); padding: 4px",
    "coming in": "animation: none; transition: opacity 3s; opacity: 1",
    "set small": "font-size: 13px",
    "very large": "font-size: 60px; line-height: 1; width: 900px; font-weight: 800",
}
# Where the text is no block of its own.
HIDDEN_MARKUP = {
    "raised and raised, beside a formula": "$x^2$\n\n" + "<sup>" * 14 + WORDS + "</sup>" * 14,
    "in a drawing": f'<svg width="600" height="60"><text x="5" y="40" fill="transparent">{WORDS}</text></svg>',
    "in a drawing, behind": f'<svg width="600" height="60"><text x="5" y="40">{WORDS}</text><rect width="600" height="60" fill="white"/></svg>',
    "below the first line": f'<style>.one::first-line {{ color: transparent; -webkit-text-fill-color: transparent }}</style>\n\n<p class="one" style="transform: rotate(1deg)">{WORDS}</p>',
    "under its own cover": f'<style>.two {{ position: relative; transform: rotate(1deg) }}\n.two::after {{ content: ""; position: absolute; inset: -9px; background: white }}</style>\n\n<p class="two">{WORDS}</p>',
    "behind thousands of others": f'<div style="width: 600px; height: 9px; overflow: hidden; line-height: 2px; font-size: 2px">{"<p>m</p>" * 5001}</div><p style="{CLEAR}; writing-mode: vertical-rl; height: 300px">{WORDS}</p>',
    "in a formula": "<div style='color: transparent'>\n\n$$\\text{" + WORDS + "}$$\n\n</div>",
    "tiny glyphs": f'<style>@font-face {{ font-family: dwarf; src: local("Noto Sans"), local("DejaVu Sans"), local("Fira Code"); size-adjust: 1% }}\n.dwarf {{ font-family: dwarf; font-size: 30px }}</style>\n\n<p class="dwarf">{WORDS}</p>',
    "drawn with no opacity": drawn('opacity="0"'),
    "drawn, opacity of the fill": drawn('fill-opacity="0"'),
    "drawn, missing gradient": drawn('fill="url(#nothing)"'),
    "drawn outside": drawn('transform="translate(0 -500)"'),
    "drawn tiny": drawn('font-size=".2"'),
    "drawn, clipped": drawn(
        'clip-path="url(#c1)"', '<clipPath id="c1"><rect width="1" height="1"/></clipPath>'
    ),
    "drawn, masked": drawn(
        'mask="url(#m1)"', '<mask id="m1"><rect width="600" height="60" fill="black"/></mask>'
    ),
    "drawn, filtered": drawn(
        'filter="url(#f1)"', '<filter id="f1"><feFlood flood-color="white"/></filter>'
    ),
    "drawn, blurred": drawn(
        'filter="url(#f2)"', '<filter id="f2"><feGaussianBlur stdDeviation="9"/></filter>'
    ),
    "drawn, a fat stroke": drawn('stroke="black" stroke-width="50"'),
    "drawn, clear, under other words": drawn(
        'fill="transparent"', '<text x="5" y="40">Somebody else stands here and says</text>'
    ),
    "drawn, under letters as a lid": drawn(
        "", '<text x="0" y="52" font-size="40" textLength="600" fill="#c00">' + "█" * 24 + "</text>"
    ),
    "drawn, hidden": drawn('visibility="hidden"'),
    "drawn in a foreign object of no size": f'<svg width="600" height="60"><foreignObject width="1" height="1" style="overflow: hidden"><p>{WORDS}</p></foreignObject></svg>',
    "drawn along a path elsewhere": f'<svg width="600" height="60"><path id="p1" d="M 0 900 H 900" fill="none"/><text><textPath href="#p1">{WORDS}</textPath></text></svg>',
    "drawn, defined only": f'<svg width="600" height="60"><defs><text>{WORDS}</text></defs><rect width="9" height="9"/></svg>',
    "details, closed": f"<details><summary>More</summary><p>{WORDS}</p></details>",
    "a choice": f"<select><option>One</option><option>{WORDS}</option></select>",
    "what a canvas has instead": f'<canvas width="90" height="20">{WORDS}</canvas>',
    "what a film has instead": f'<video width="90" height="60">{WORDS}</video>',
    "a template": f"<p>x</p><div hidden>{WORDS}</div>",
    "a dialog, closed": f"<dialog>{WORDS}</dialog>",
    "what an image says": f'<img src="{WHITE}" alt="{WORDS}" width="60" height="60">',
    "ruby in brackets": f"<ruby>a<rp>{WORDS}</rp><rt>b</rt></ruby>",
    "slotted and see-through": coded(
        "el.attachShadow({ mode: 'open' }).innerHTML = '<div style=opacity:0><slot></slot></div>'",
        WORDS,
    ),
    "slotted in a closed root": coded(
        "el.attachShadow({ mode: 'closed' }).innerHTML = '<div style=opacity:0><slot></slot></div>'",
        WORDS,
    ),
    "slotted nowhere": coded(
        "el.attachShadow({ mode: 'closed' }).innerHTML = '<p>other</p>'", WORDS
    ),
    "under the top layer": coded(
        "el.ownerDocument.defaultView.setTimeout(() => el.showModal())",
        "",
        "dialog",
        'style="width: 900px; height: 500px; max-width: none; max-height: none; background: white; border: 0"',
    )
    + f"\n\n<p style='transform: rotate(1deg)'>{WORDS}</p>",
    "a highlight of no colour": coded(
        "const w = el.ownerDocument.defaultView, r = el.ownerDocument.createRange(); r.selectNodeContents(el); w.CSS.highlights.set('none', new w.Highlight(r))",
        WORDS,
        "p",
        'class="lit"',
    )
    + "\n\n<style>\n.lit::highlight(none) { color: transparent; -webkit-text-fill-color: transparent }\n</style>",
    "clamped": f'<div style="width: 90px; display: -webkit-box; -webkit-line-clamp: 1; -webkit-box-orient: vertical; overflow: hidden; height: 20px">more and more and more {WORDS}</div>',
    "a cell of no width": f'<table style="table-layout: fixed; width: 300px; transform: rotate(1deg)"><tr><td style="width: 0; overflow: hidden; white-space: nowrap; padding: 0">{WORDS}</td><td>x</td></tr></table>',
    "far down a box that scrolls": f'<div style="height: 40px; overflow: auto; transform: rotate(1deg)"><p>x</p><p style="margin-top: 300px">{WORDS}</p></div>',
    "scrolled away": coded(
        "el.ownerDocument.defaultView.setTimeout(() => { el.scrollTop = 400 })",
        f"<p>{WORDS}</p><div style='height: 900px'>x</div>",
        "div",
        'style="height: 60px; overflow: hidden; transform: rotate(1deg)"',
    ),
    "printed only": f'<style>\n@media screen {{ .print {{ {CLEAR}; transform: rotate(1deg) }} }}\n</style>\n\n<p class="print">{WORDS}</p>',
    "at the start of an endless animation": f'<style>\n@keyframes in {{ from {{ opacity: 0 }} }}\n#app .in.in {{ animation: in 9s infinite !important; transform: rotate(1deg) }}\n</style>\n\n<p class="in">{WORDS}</p>',
}
SHOWN_MARKUP = {
    "in a drawing": f'<svg width="600" height="60"><text x="5" y="40">{WORDS}</text></svg>',
    "of a first line": f'<style>.three::first-line {{ color: red !important; -webkit-text-fill-color: red !important }}</style>\n\n<p class="three">{WORDS}</p>',
    "short pieces": "<p>" + " ".join(f"<b>{word}</b>" for word in WORDS.split()) + "</p>",
    "slotted": coded(
        "el.attachShadow({ mode: 'open' }).innerHTML = '<div style=color:navy><slot></slot></div>'",
        WORDS,
    ),
    "in a closed root's slot": coded(
        "el.attachShadow({ mode: 'closed' }).innerHTML = '<div><slot></slot></div>'", WORDS
    ),
    "details, open": f"<details open><summary>More</summary><p>{WORDS}</p></details>",
    "drawn with a gradient": drawn(
        'fill="url(#g1)"',
        '<linearGradient id="g1"><stop stop-color="#a00"/><stop offset="1" stop-color="#00a"/></linearGradient>',
    ),
    "drawn along a path": f'<svg width="600" height="60"><path id="p2" d="M 0 40 H 900" fill="none"/><text><textPath href="#p2">{WORDS}</textPath></text></svg>',
    "in a foreign object": f'<svg width="600" height="60"><foreignObject width="600" height="60"><p>{WORDS}</p></foreignObject></svg>',
    "coming in at once": f'<style>\n@keyframes in {{ from {{ opacity: 0 }} }}\n.in2 {{ animation: in 1s }}\n</style>\n\n<p class="in2">{WORDS}</p>',
    "a form": f'<form><input name="style" hidden><input name="parentNode" hidden><p>{WORDS}</p></form>',
}


def block(style, beside=""):
    return f'<div style="position: relative; width: 600px"><div style="{style}">{WORDS}</div>{beside}</div>'


def read(tmp_path, slides):
    """What is read of each slide, its findings, by name. One deck of all would take as long as a deck may."""
    found, names, parts = {}, list(slides), 1 + len(slides) // 32
    for part in range(parts):
        found |= read_deck(tmp_path, str(part), {name: slides[name] for name in names[part::parts]})
    return found


def read_deck(tmp_path, ident, slides):
    text = "---\ntheme: default\n---\n\n" + "\n\n---\n\n".join(
        f"# Slide\n\n{body}" for body in slides.values()
    )
    record = {"id": ident, "deck": {"path": f"{ident}/deck.md"}}
    (tmp_path / ident).mkdir()
    (tmp_path / ident / "deck.md").write_text(text)
    value = shared(lambda pool: pool.render(tmp_path, record))
    assert {error["class"] for error in value["errors"]} <= {"blank"}, value["errors"]
    pages = rendered.Pages(record | {"render": value}, tmp_path, lint.limits())
    found = [finding["slide"] for finding in lint.findings(record | {"render": value}, text)]
    return {name: (pages.readable.get(n, ""), n in found) for n, name in enumerate(slides, 1)}


# One of each way; `make test-long` has them all.
FEW_HIDDEN = [
    *("transform: rotate(-3deg), clear", "transform: rotate(12deg), blurred", "rotate and clear"),
    *("transform: rotate(0.4deg), behind glass", "columns behind a pane", "clipped", "masked"),
    *("opacity by a filter", "shrunk", "on each other", "indented away", "black on black"),
    *("two lines, leaning, under bars", "in a drawing (markup)", "drawn, a fat stroke (markup)"),
    *("below the first line (markup)", "tiny glyphs (markup)", "details, closed (markup)"),
    *("slotted in a closed root (markup)", "under the top layer (markup)"),
    *("a highlight of no colour (markup)", "scrolled away (markup)"),
]
FEW_SHOWN = [
    *("plain", "leaning", "in columns", "a gradient of letters", "white on dark", "shadow alone"),
    *("half through", "outlined", "upright in columns", "set small", "in a drawing (markup)"),
    *("in a closed root's slot (markup)", "coming in at once (markup)"),
]
PARTS = ["few", pytest.param("all", marks=pytest.mark.long)]


def chosen(styles, markup, names):
    """{name: slide} of these names, or of all where there are none."""
    slides = styles | {f"{name} (markup)": text for name, text in markup.items()}
    return {name: slides[name] for name in names or slides}


@pytest.mark.parametrize("part", PARTS)
def test_what_the_picture_does_not_show_is_not_read(tmp_path, part):
    styles = {name: block(*form) for name, form in HIDDEN.items()}
    slides = chosen(styles, HIDDEN_MARKUP, FEW_HIDDEN * (part == "few"))
    assert [name for name, (text, _) in read(tmp_path, slides).items() if "heron" in text] == []


@pytest.mark.parametrize("part", PARTS)
def test_what_the_picture_shows_is_read_and_nothing_is_said_against_it(tmp_path, part):
    styles = {name: block(style) for name, style in SHOWN.items()}
    seen = read(tmp_path, chosen(styles, SHOWN_MARKUP, FEW_SHOWN * (part == "few")))
    assert [name for name, (text, _) in seen.items() if "herons" not in text] == []
    fine = {"upright in columns", "set small"}  # small, on a slide with room
    assert {name for name, (_, found) in seen.items() if found} == fine


# Slides, each with a heading of its deck's first block: what only sets letters, and what may paint over them.
SETS = [
    "",
    "zoom: 1.2",
    "class: text-center\nbackground: navy",
    "layout: two-cols\nlayoutClass: gap-8",
]
SET_MARKUP = [
    "one<br>two",
    '<div class="grid grid-cols-2 gap-4">\n\na\n\n</div>',
    "<v-clicks>\n\n- b\n\n</v-clicks>",
]
PAINTED = [
    "zoom: .02",
    "zoom: 20",
    "zoom: [1]",
    "class: opacity-0",
    "class: text-white",
    "layoutClass: -mt-96",
    "background: white",
]
PAINTED_MARKUP = [
    "<b style='opacity: 0'>a</b>",
    '<p class="opacity-0">b</p>',
    '<p class="mt-96">c</p>',
    "<sp<b>an style='opacity: 0'>d",
    "a<DIV class=hidden>e</DIV>",
    "<p hidden>f</p>",
    "g{style='opacity:0'}",
    "$\\textcolor{white}{i}$",
    "$\\vphantom{j}$",
    "<p\nclass='hidden'>h</p>",
]


def test_a_slide_is_drawn_without_its_letters_unless_all_that_it_says_only_sets_them():
    fronts = [
        (f"---\ntheme: default\n---\n\n# A\n\n---\n{front}\n---\n\n# B", 1)
        for front in SETS[:2] + SETS[3:] + PAINTED
    ]
    first = [
        (f"---\ntheme: default\n{front}\n---\n\n# A\n\n---\n\n# B", 1)
        for front in (SETS[2], "class: opacity-0", "fonts:\n  sans: A", "defaults:\n  zoom: 20")
    ]
    bodies = [(f"# A\n\n---\n\n# B\n\n{body}", 1) for body in SET_MARKUP + PAINTED_MARKUP]
    script = """
      const { compile } = await import(`${process.argv[1]}/compile.mjs`)
      const said = []
      for (const [text, n] of JSON.parse(process.argv[2]))
        said.push((await compile(text, 1)).slides[n].styled)
      process.stdout.write(JSON.stringify(said))
      process.exit(0)
    """
    command = [toolchain.node(), "--no-warnings", "--input-type=module", "-e", script, "--"]
    given = json.dumps(fronts + first + bodies)
    done = subprocess.run([*command, toolchain.RENDERER, given], stdout=subprocess.PIPE, check=True)
    wanted = [False] * 3 + [True] * len(PAINTED) + [False, False, True, True]
    assert json.loads(done.stdout) == [
        *wanted,
        *[False] * len(SET_MARKUP),
        *[True] * len(PAINTED_MARKUP),
    ]
