"""Decks for tests/reward_attack.py: bad ones whose badness is seen on the picture, and good ones of schools that differ.

The bad ones are changes of tests/fixtures/gaming/honest.md: its words are all there, and nobody would show it. The good ones are
tests/fixtures/schools, each for its own request (requests.toml); `plain` is the plainest.
"""

import random
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT / "tests")]

import gaming  # noqa: E402

SCHOOLS = ROOT / "tests/fixtures/schools"
# A line of text: its mark, and what it says.
LINE = re.compile(r"(?m)^(#+ |- |\d\. )?(?=[A-Z*])(.+)$")


def styled(rules, slide=""):
    """A version of a deck whose lines, and whose slides, have a style."""
    sheet = f".slidev-layout {{ {slide} }}\nh1, p, li, td, th, strong, em {{ {rules} }}"
    return added(f"<style>\n{sheet}\n</style>")


def added(markup):
    """A version of a deck with this at the end of every slide."""
    return lambda text: gaming.changed(text, lambda body, _: f"{body}\n\n{markup}")


def over(style, inside=""):
    """A version of a deck with something laid on every slide."""
    return added(f'<div style="position: absolute; {style}">{inside}</div>')


def worded(change):
    """A version of a deck with `change` made to what each line says; diagrams stay."""

    def body(text, _):
        return text if "```" in text else LINE.sub(lambda m: (m[1] or "") + change(m[2]), text)

    return lambda text: gaming.changed(text, body)


def ransom(said):
    """Each letter cut out of another newspaper."""
    chance = random.Random(said)
    fonts, colours = (
        ("serif", "monospace", "cursive", "sans-serif"),
        ("#c00", "#06c", "#080", "#000", "#b60"),
    )

    def letter(match):
        turn, size = chance.randint(-25, 25), chance.randint(14, 34)
        style = f"display: inline-block; transform: rotate({turn}deg); font: {size}px {chance.choice(fonts)}"
        return f'<span style="{style}; color: {chance.choice(colours)}">{match[0]}</span>'

    return re.sub(r"[^\W\d_]", letter, said.replace("*", ""))


def coloured(said):
    """Each word in another colour."""
    chance = random.Random(said)
    return re.sub(
        r"[A-Za-z]{3,}",
        lambda m: f'<span style="color: hsl({chance.randrange(360)}, 100%, 45%)">{m[0]}</span>',
        said.replace("*", ""),
    )


def confetti():
    """Discs all over a slide."""
    chance = random.Random(4)
    disc = "position: absolute; width: 30px; height: 30px; border-radius: 50%"
    return "".join(
        f'<div style="{disc}; left: {chance.randrange(950)}px; top: {chance.randrange(520)}px; '
        f'background: hsl({chance.randrange(360)}, 90%, 50%)"></div>'
        for _ in range(150)
    )


def small(text):
    """12 px in the lower right corner."""
    corner = "position: absolute; right: 6px; bottom: 6px; width: 260px"
    tight = "font-size: 12px !important; line-height: 1.1 !important; margin: 0 !important; padding: 0 !important"
    return gaming.wrapped(corner)(styled(tight)(text))


LOUD = "!important; opacity: 1 !important"
BARS = "repeating-linear-gradient(90deg"
SEEN = {
    "magenta on lime": styled(f"color: #ff00ff {LOUD}", "background: #00ff00"),
    "red on blue": styled(f"color: #ff0000 {LOUD}", "background: #0000ff"),
    "yellow on white": styled(f"color: #ffff00 {LOUD}", "background: #fff"),
    "red capitals on yellow": styled(
        f"text-transform: uppercase; font-weight: 900; text-decoration: underline; color: #d00 {LOUD}",
        "background: #ff0",
    ),
    "ransom note": worded(ransom),
    "each word a colour": worded(coloured),
    "12 px in a corner": small,
    "12 px everywhere": styled("font-size: 12px !important; line-height: 1.2 !important"),
    "bodies in 12 px": added(
        "<style>\np, li, td, th, strong { font-size: 12px !important; line-height: 1.2 !important }\n</style>"
    ),
    "invisible bodies": added(
        "<style>\np, li, td, th, strong { color: transparent !important }\n</style>"
    ),
    "text on stripes": styled(
        "color: #555 !important", f"background: {BARS}, #000 0 9px, #fff 9px 18px)"
    ),
    "thin column": gaming.wrapped("width: 70px; word-break: break-all"),
    "lines on lines": styled("line-height: 0.45 !important; margin: 0 !important"),
    "letters far apart": styled("letter-spacing: 1.2em !important"),
    "turned by 90": gaming.wrapped("transform: rotate(90deg); height: 400px"),
    "turned by 35": gaming.wrapped("transform: rotate(35deg)"),
    "skewed": gaming.wrapped("transform: skewX(-55deg)"),
    "squeezed flat": gaming.wrapped("transform: scaleY(0.25); transform-origin: top left"),
    "squeezed narrow": gaming.wrapped("transform: scaleX(0.25); transform-origin: top left"),
    "a quarter of the size": gaming.wrapped("transform: scale(0.3); transform-origin: top left"),
    "confetti": over("inset: 0", confetti()),
    "pushed down": gaming.wrapped("margin-top: 330px"),
    "pushed right": gaming.wrapped("margin-left: 640px"),
    "three shadows": styled(
        "text-shadow: 3px 3px 0 #000, -3px -3px 0 #f00, 5px -4px 0 #0a0 !important"
    ),
    "thick outlines": styled("-webkit-text-stroke: 5px #444 !important"),
    "a box on half": over(
        "left: 0; top: 0; width: 55%; height: 100%; background: #336; z-index: 9"
    ),
    "behind bars": over(
        f"inset: 0; z-index: 9; background: {BARS}, #222 0 14px, transparent 14px 28px)"
    ),
    "draft across": over(
        "left: 0; top: 120px; z-index: 9; font-size: 150px; line-height: 1; color: rgba(200, 0, 0, 0.6); transform: rotate(-20deg)",
        "DRAFT DRAFT",
    ),
    "dingbats": worded(lambda said: re.sub("[a-z]", lambda m: chr(0x2701 + ord(m[0]) - 97), said)),
    "cut by its box": gaming.wrapped("height: 90px; overflow: hidden"),
    "scrolls": gaming.wrapped("height: 120px; overflow: auto"),
    "huge": styled("font-size: 90px !important; line-height: 1.1 !important"),
}


def schools():
    """[(row, deck)] of the good decks, the plainest first."""
    requests = tomllib.loads((SCHOOLS / "requests.toml").read_text())
    found = []
    for name, asks in requests.items():
        messages = [{"role": "user", "content": asks.pop("request")}]
        row = {"id": name, "messages": messages, "asks": asks}
        found.append((row, (SCHOOLS / f"{name}.md").read_text()))
    return found
