"""Templates: a company's theme, layouts, fonts, colours and logo in one markdown file (docs/templates.md).

The model is told its body, the renderer is given its theme and style, and a deck that departs from it has findings. Once read, a
template is a plain record, which lies in a run as template.json; a deck under it names that file and its sha256 (`deck.template`).
"""

import base64
import functools
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeGuard

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.measure.decks.frontmatter import Block, parse_block
from decksmith.measure.decks.parser import LAYOUTS, THEMES, Deck, Slide
from decksmith.measure.decks.records import Finding

FILE = "template.json"  # of a run
# The families that the renderer has (assets/renderer/fonts.mjs): nothing is loaded from elsewhere.
FONTS = ("Nunito Sans", "Inter", "Fira Code", "PT Serif", "PT Mono")
KINDS = {".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg"}
LARGEST = 200_000  # bytes of a logo, and of the file
CANVAS = (980, 552)  # px
FAINT = 40  # of 255: a logo's place whose colours differ by less shows no logo
RULES = ("template-theme", "template-layout", "template-font", "template-colour", "template-logo")
_KEYS = ("theme", "fonts", "colours", "logo")
_ROLES = {"text": "sans-serif", "code": "monospace"}
_LAYOUT = re.compile(r"[-*] `([a-z0-9-]+)`: \S")
_CSS = re.compile(r"^```css\n(.*?)^```[ \t]*$", re.M | re.S)
_HEX = re.compile(r"#[0-9a-fA-F]{6}")


def folder() -> Path:
    """Where a template is found by its name: DECKSMITH_TEMPLATES, else data/templates."""
    return Path(os.environ.get("DECKSMITH_TEMPLATES") or cli.ROOT / "data" / "templates")


class Style(TypedDict, total=False):
    """What a template gives the renderer: a theme where a deck names none, and what stands behind a theme's style."""

    theme: str
    css: str


@dataclass(frozen=True)
class Template:
    """A template as it was read. fonts: {"text", "code"}: families. colours: {name: "#rrggbb"}. logo: a data URI, "" without;
    place: its x, y, width, height in px of the slide. told: the body, for the model. css: behind the theme's style."""

    name: str
    theme: str
    fonts: dict[str, str]
    colours: dict[str, str]
    logo: str
    place: list[int]
    layouts: list[str]
    told: str
    css: str

    @property
    def sha256(self) -> str:
        return stream.fingerprint(vars(self))

    def system(self) -> str:
        """What stands behind the system prompt."""
        said = [
            f"Follow the template {self.name}.",
            self.told,
            f"Write `theme: {self.theme}` in the first frontmatter. Of the layouts use these alone: {', '.join(self.layouts)}.",
        ]
        if self.colours:
            named = ", ".join(f"{name} {colour}" for name, colour in self.colours.items())
            said.append(f"Where you set a colour, it is one of these: {named}.")
        if self.fonts:
            said.append("Set no font; the template does.")
        if self.logo:
            x, y, wide, high = self.place
            said.append(
                "The logo is put on each slide by itself; leave its place free: "
                f"{wide} x {high} px at {x}, {y} of {CANVAS[0]} x {CANVAS[1]}."
            )
        return "\n\n".join(said)

    def style(self) -> Style:
        """What a renderer's worker is given: the theme of a deck that names none, and a style behind the theme's."""
        rules = []
        if primary := self.colours.get("primary"):
            rules.append(f":root {{ --slidev-theme-primary: {primary}; }}")
        for role, selector in (
            ("text", ".slidev-layout"),
            ("code", ".slidev-layout :is(code, pre)"),
        ):
            if family := self.fonts.get(role):
                rules.append(f"{selector} {{ font-family: '{family}', {_ROLES[role]}; }}")
        if self.logo:
            rules.append(_logo_rule(self.logo, self.place))
        return {"theme": self.theme, "css": "\n".join([*rules, self.css])}


def _logo_rule(logo: str, place: list[int]) -> str:
    """The logo over each slide, in its place whatever the slide's zoom is."""
    sides = zip(("left", "top", "width", "height"), place, strict=True)
    zoom = "var(--slidev-slide-zoom-scale, 1)"
    box = " ".join(f"{side}: calc({px}px / {zoom});" for side, px in sides)
    return (
        ".slidev-page::after { content: ''; position: absolute; z-index: 50; pointer-events: none; "
        f'{box} background: url("{logo}") center / contain no-repeat; }}'
    )


# --- reading --------------------------------------------------------------------------------------


def read(path: Path) -> Template:
    """The template in a file. Raises cli.BadConfig naming file, line and what to write."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    if not (found := re.match(r"---\n(.*?)^---\n", text, re.M | re.S)):
        raise _bad(path, 1, f"a template begins with a frontmatter that has {', '.join(_KEYS)}")
    block = parse_block(found[1], 2)
    if block.error:
        raise _bad(path, block.error[1], block.error[0])
    if unknown := [key for key in block.data if key not in _KEYS]:
        said = f"unknown key {unknown[0]!r}; there are {', '.join(_KEYS)}"
        raise _bad(path, block.marks[unknown[0]].line, said)
    theme = block.data.get("theme")
    if not isinstance(theme, str) or theme not in THEMES:
        raise _wrong(path, block, "theme", f"name one of {', '.join(THEMES)}")
    body = text[found.end() :]
    logo, place = _logo(path, block)
    return Template(
        name=path.stem,
        theme=theme,
        fonts=_fonts(path, block),
        colours=_colours(path, block),
        logo=logo,
        place=place,
        layouts=_layouts(path, body, theme, text.count("\n", 0, found.end())),
        told=_CSS.sub("", body).strip(),
        css=_css(path, body, text.count("\n", 0, found.end())),
    )


def _bad(path: Path, line: int, why: str) -> cli.BadConfig:
    return cli.BadConfig(f"{path}:{line}: {why}")


def _wrong(path: Path, block: Block, key: str, why: str) -> cli.BadConfig:
    line = block.marks[key].line if key in block.marks else 1
    return _bad(path, line, f"{key}: {why}")


def _texts(path: Path, block: Block, key: str) -> dict[str, str]:
    """A key whose value is a table of texts."""
    value = block.data.get(key) or {}
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise _wrong(path, block, key, "write it as `name: text` lines below the key")
    return value


def _fonts(path: Path, block: Block) -> dict[str, str]:
    fonts = _texts(path, block, "fonts")
    for role, family in fonts.items():
        if role not in _ROLES:
            raise _wrong(path, block, "fonts", f"{role} is neither {' nor '.join(_ROLES)}")
        if family not in FONTS:
            raise _wrong(path, block, "fonts", f"{family} is not one of {', '.join(FONTS)}")
    return fonts


def _colours(path: Path, block: Block) -> dict[str, str]:
    colours = _texts(path, block, "colours")
    for name, colour in colours.items():
        if not _HEX.fullmatch(colour):
            raise _wrong(path, block, "colours", f'{name}: write it as "#rrggbb", in quotes')
    return {name: colour.lower() for name, colour in colours.items()}


def _logo(path: Path, block: Block) -> tuple[str, list[int]]:
    """(the logo's file as a data URI, its place), ("", []) without one."""
    value = block.data.get("logo")
    if value is None:
        return "", []
    table = value if isinstance(value, dict) else {}
    name, place = table.get("file"), table.get("place")
    if not isinstance(name, str) or not _is_place(place):
        how = "write `file: logo.svg` and `place: [x, y, width, height]` in px of 980 x 552"
        raise _wrong(path, block, "logo", how)
    file = path.parent / name
    kind = KINDS.get(file.suffix)
    if kind is None:
        raise _wrong(path, block, "logo", f"{name} is none of {', '.join(KINDS)}")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise _wrong(path, block, "logo", f"{file}: {error.strerror}") from None
    if len(data) > LARGEST:
        raise _wrong(path, block, "logo", f"{file} has more than {LARGEST // 1000} kB")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}", place


def _is_place(place: Any) -> TypeGuard[list[int]]:
    """Whether this is a box that lies on the slide."""
    if not isinstance(place, list) or len(place) != 4:
        return False
    if not all(isinstance(number, int) and number >= 0 for number in place):
        return False
    x, y, wide, high = place
    return wide > 0 and high > 0 and x + wide <= CANVAS[0] and y + high <= CANVAS[1]


def _layouts(path: Path, body: str, theme: str, above: int) -> list[str]:
    """The layouts that the body describes, a list item each; they are Slidev's or the theme's."""
    found = []
    for number, line in enumerate(body.split("\n"), above + 1):
        if not (match := _LAYOUT.match(line)):
            continue
        if match[1] not in LAYOUTS and match[1] not in THEMES[theme]["layouts"]:
            said = f"the layout {match[1]} exists neither in Slidev nor in {theme}"
            raise _bad(path, number, said)
        found.append(match[1])
    if not found:
        said = "describe at least one layout, as a line: - `cover`: what it is for"
        raise _bad(path, above + 1, said)
    return found


def _css(path: Path, body: str, above: int) -> str:
    """The style of the body's css fences. It loads nothing: no import, no address but data."""
    parts = []
    for fence in _CSS.finditer(body):
        line = above + body.count("\n", 0, fence.start(1)) + 1
        for match in re.finditer(r"@import|url\(\s*['\"]?(?!data:)", fence[1]):
            at = line + fence[1].count("\n", 0, match.start())
            raise _bad(path, at, "the style loads a file; a picture stands in it as url(data:..)")
        parts.append(fence[1])
    return "\n".join(parts)


# --- of a run -------------------------------------------------------------------------------------


def put(run: Path | str, template: Template) -> Record:
    """Write the run's template.json where it is not there yet; returns what its decks say of it (`deck.template`)."""
    path, text = Path(run) / FILE, json.dumps(vars(template), indent=1, ensure_ascii=False) + "\n"
    if not path.is_file() or path.read_bytes() != text.encode():
        stream.write(path, text)
    return tag(template)


def tag(template: Template) -> Record:
    """`deck.template`: {"name", "sha256"}."""
    return {"name": template.name, "sha256": template.sha256}


def of(run: Path | str, record: Record) -> Template | None:
    """The template that a record's deck is under, None without. Raises cli.BadData where the run's is another."""
    wanted = (record.get("deck") or {}).get("template")
    return held(run, wanted, record["id"]) if wanted else None


def held(run: Path | str, wanted: Record, ident: str) -> Template:
    """The template of a folder's template.json. Raises cli.BadData where it is not the one `wanted`, as `tag` has it, by the deck `ident`."""
    path = Path(run) / FILE
    try:
        found = _read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError) as error:
        raise cli.BadData(f"{ident}: {path}: {error}; run again what made its deck") from None
    if found.sha256 != wanted["sha256"]:
        raise cli.BadData(
            f"{ident}: {path} is another template than the deck's; run again what made it"
        )
    return found


@functools.lru_cache(8)
def _read(text: str) -> Template:
    return Template(**json.loads(text))


# --- findings -------------------------------------------------------------------------------------


def findings(template: Template, text: str) -> list[Finding]:
    """Where a deck departs from its template, by its text: [{line, slide, rule, message, box}], a rule once for each line."""
    deck = Deck.parse(text)
    found: dict[tuple[int, str], Finding] = {}
    for number, slide in enumerate(deck.shown, 1):
        for line, rule, message in _departures(template, deck, slide):
            found.setdefault((line, rule), _finding(line, number, rule, message))
    return sorted(found.values(), key=lambda one: (one["slide"] or 0, one["line"] or 0))


def _departures(template: Template, deck: Deck, slide: Slide) -> Iterator[tuple[int, str, str]]:
    """(line, rule, message) of a slide."""
    is_first = slide is deck.slides[0]
    if is_first and "theme" in slide.frontmatter and deck.theme != template.theme:
        said = f"the theme is {deck.theme}, the template's {template.theme}"
        yield slide.key_line("theme"), "template-theme", said
    if "layout" in slide.frontmatter and slide.layout not in template.layouts:
        said = f"the layout {slide.layout} is none of the template's: {', '.join(template.layouts)}"
        yield slide.key_line("layout"), "template-layout", said
    if is_first and template.fonts and "fonts" in slide.frontmatter:
        yield slide.key_line("fonts"), "template-font", "the deck sets fonts; the template does"
    for line, style in _styles(slide):
        if template.fonts:
            yield from _other_fonts(template, line, style)
        if template.colours:
            yield from _other_colours(template, line, style)


def _finding(
    line: int | None, slide: int, rule: str, message: str, box: list[int] | None = None
) -> Finding:
    return {"line": line, "slide": slide, "rule": rule, "message": message, "box": box}


_STYLED = re.compile(r"<style\b[^>]{0,200}>.*?</style>|<[A-Za-z][^<>]{0,4000}>", re.S)
_FAMILY = re.compile(r"font-family\s*:\s*([^;}\"<>]{1,200})")
_FONT_CLASS = re.compile(r"(?<![\w-])font-(?:serif|mono|sans)(?![\w-])")
_COLOUR = re.compile(r"(?<![\w&])#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl)a?\([^()]{1,60}\)")
_PALETTE = (
    "slate gray zinc neutral stone red orange amber yellow lime green emerald teal cyan sky blue indigo "
    "violet purple fuchsia pink rose"
)
_COLOUR_CLASS = re.compile(
    rf"(?<![\w-])(?:text|bg|border|from|via|to|fill|stroke)-(?:{_PALETTE.replace(' ', '|')})(?:-\d{{2,3}})?(?![\w-])"
)
_GENERIC = {"serif", "sans-serif", "monospace", "inherit", "initial", "unset", "system-ui"}


def _styles(slide: Slide) -> Iterator[tuple[int, str]]:
    """(first line, text) of all that sets a style in a slide: frontmatter, tags, style blocks, diagrams."""
    if slide.frontmatter_line:
        yield slide.frontmatter_line, slide.yaml
    for match in _STYLED.finditer(slide.prose):
        yield slide.content_line + slide.prose.count("\n", 0, match.start()), match[0]
    for fence in slide.fences:
        if fence.lang == "mermaid":
            yield fence.line + 1, fence.text


def _matches(pattern: re.Pattern[str], line: int, style: str) -> Iterator[tuple[int, str]]:
    """(line, what was found) of a style that begins on a line."""
    for match in pattern.finditer(style):
        yield line + style.count("\n", 0, match.start()), match[match.lastindex or 0]


def _other_fonts(template: Template, line: int, style: str) -> Iterator[tuple[int, str, str]]:
    own = {*template.fonts.values(), *_GENERIC, ""}
    for at, families in _matches(_FAMILY, line, style):
        for name in (family.strip().strip("'\"") for family in families.split(",")):
            if name not in own and not name.startswith("var("):
                yield at, "template-font", f"the font {name[:60]} is not the template's"
    for at, name in _matches(_FONT_CLASS, line, style):
        message = f"the class {name} sets another font than the template's"
        yield at, "template-font", message


def _other_colours(template: Template, line: int, style: str) -> Iterator[tuple[int, str, str]]:
    own = set(template.colours.values())
    for at, colour in _matches(_COLOUR, line, style):
        if _rgb(colour) not in own:
            yield at, "template-colour", f"the colour {colour} is not the template's"
    for at, name in _matches(_COLOUR_CLASS, line, style):
        yield at, "template-colour", f"the class {name} is no colour of the template's"


def _rgb(colour: str) -> str:
    """A colour of CSS as #rrggbb; how far it is seen through does not matter. As it is where it is none."""
    from PIL import ImageColor

    plain = re.sub(r"^(rgb|hsl)a\(([^,]+,[^,]+,[^,)]+).*", r"\1(\2)", colour)
    try:
        return "#" + "".join(f"{part:02x}" for part in ImageColor.getrgb(plain)[:3])
    except ValueError:
        return colour


def unseen_logo(template: Template, run: Path | str, record: Record) -> list[Finding]:
    """A finding for each slide of a rendered deck on whose picture the logo cannot be seen, or with something in its place."""
    if not template.logo:
        return []
    out: list[Finding] = []
    pages = {page["slide"]: page for page in record["render"].get("xray") or []}
    for name in record["render"].get("slides") or []:
        slide = int(Path(name).stem)
        page = pages.get(slide) or {}
        if not _shows(Path(run) / name, template.place):
            message = "the logo cannot be seen"
        elif any(_meet(box, template.place) for box in page.get("boxes") or []):
            message = "the logo lies on something of the slide"
        else:
            continue
        out.append(_finding(page.get("line"), slide, "template-logo", message, template.place))
    return out


def _shows(picture: Path, place: list[int]) -> bool:
    """Whether anything stands out in a place of a picture."""
    from PIL import Image

    try:
        with Image.open(picture) as image:
            scale = image.width / CANVAS[0]
            x, y, wide, high = (round(number * scale) for number in place)
            bands = image.convert("RGB").crop((x, y, x + wide, y + high)).getextrema()
    except OSError:
        return True  # whoever renders it again says so
    return max(high - low for low, high in bands) >= FAINT  # type: ignore[misc]


def _meet(box: Record, place: list[int]) -> bool:
    """Whether something of a slide, other than its background, reaches into a place."""
    x, y, wide, high = box["box"]
    if box["kind"] == "background" or wide <= 0 or high <= 0:
        return False
    left, top, width, height = place
    return x < left + width and left < x + wide and y < top + height and top < y + high
