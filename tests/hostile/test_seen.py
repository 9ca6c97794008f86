"""What is measured is what is seen: text that the picture does not show is not read, whatever hides it; text that it shows is."""
# ruff: noqa: E501 (slides stand in single lines here)

import pytest
from decksmith.measure.decks import lint
from decksmith.measure.judging import rendered
from drawing import shared, shared_workers  # noqa: F401

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WORDS = "Eleven grey herons waited by the lower weir"
CLEAR = "-webkit-text-fill-color: transparent"
OVER = "position: absolute; inset: -30px; z-index: 9"
LEANS = [f"transform: rotate({angle}deg)" for angle in (0.4, -3, 12)]

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
}
# Where the text is no block of its own.
HIDDEN_MARKUP = {
    "in a drawing": f'<svg width="600" height="60"><text x="5" y="40" fill="transparent">{WORDS}</text></svg>',
    "in a drawing, behind": f'<svg width="600" height="60"><text x="5" y="40">{WORDS}</text><rect width="600" height="60" fill="white"/></svg>',
    "below the first line": f'<style>.one::first-line {{ color: transparent; -webkit-text-fill-color: transparent }}</style>\n\n<p class="one" style="transform: rotate(1deg)">{WORDS}</p>',
    "under its own cover": f'<style>.two {{ position: relative; transform: rotate(1deg) }}\n.two::after {{ content: ""; position: absolute; inset: -9px; background: white }}</style>\n\n<p class="two">{WORDS}</p>',
    "behind thousands of others": f'<div style="width: 600px; height: 9px; overflow: hidden; line-height: 2px; font-size: 2px">{"<p>m</p>" * 5001}</div><p style="{CLEAR}; writing-mode: vertical-rl; height: 300px">{WORDS}</p>',
    "in a formula": "<div style='color: transparent'>\n\n$$\\text{" + WORDS + "}$$\n\n</div>",
}
SHOWN_MARKUP = {
    "in a drawing": f'<svg width="600" height="60"><text x="5" y="40">{WORDS}</text></svg>',
    "of a first line": f'<style>.three::first-line {{ color: red !important; -webkit-text-fill-color: red !important }}</style>\n\n<p class="three">{WORDS}</p>',
    "short pieces": "<p>" + " ".join(f"<b>{word}</b>" for word in WORDS.split()) + "</p>",
}


def block(style, beside=""):
    return f'<div style="position: relative; width: 600px"><div style="{style}">{WORDS}</div>{beside}</div>'


def read(tmp_path, slides):
    """What is read of each slide, its findings, by name."""
    text = "---\ntheme: default\n---\n\n" + "\n\n---\n\n".join(
        f"# Slide\n\n{body}" for body in slides.values()
    )
    record = {"id": "seen", "deck": {"path": "seen/deck.md"}}
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "deck.md").write_text(text)
    value = shared(lambda pool: pool.render(tmp_path, record))
    assert value["status"] == "ok", value
    pages = rendered.Pages(record | {"render": value}, tmp_path, lint.limits())
    found = [finding["slide"] for finding in lint.findings(record | {"render": value}, text)]
    return {name: (pages.readable.get(n, ""), n in found) for n, name in enumerate(slides, 1)}


def test_what_the_picture_does_not_show_is_not_read(tmp_path):
    slides = {name: block(*form) for name, form in HIDDEN.items()}
    slides |= {f"{name} (markup)": markup for name, markup in HIDDEN_MARKUP.items()}
    assert [name for name, (text, _) in read(tmp_path, slides).items() if "heron" in text] == []


def test_what_the_picture_shows_is_read_and_nothing_is_said_against_it(tmp_path):
    slides = {name: block(style) for name, style in SHOWN.items()}
    slides |= {f"{name} (markup)": markup for name, markup in SHOWN_MARKUP.items()}
    seen = read(tmp_path, slides)
    assert [name for name, (text, _) in seen.items() if "herons" not in text] == []
    assert [name for name, (_, found) in seen.items() if found] == []
