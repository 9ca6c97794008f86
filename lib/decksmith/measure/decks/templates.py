"""What a model is told before a request: the system prompt, and a template of a company (docs/templates.md), which is
one markdown file with its theme, layouts, fonts, colours and logo.

The renderer is given its theme and style, and a deck that departs from it has findings. A run keeps it as template.json.
"""

import base64
import functools
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.measure.decks.frontmatter import parse_block
from decksmith.measure.decks.parser import LAYOUTS, THEMES, Deck, Slide
from decksmith.measure.decks.records import Finding

FILE = "template.json"  # of a run
KINDS = {".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg"}
LARGEST = 200_000  # bytes of a logo, and of the file
CANVAS = (980, 552)  # px
FAINT = 40  # of 255: a logo's place whose colours differ by less shows no logo
RULES = ("template-theme", "template-layout", "template-font", "template-colour", "template-logo")
_ROLES = {  # of fonts: what they are the font of, and what stands in for them
    "title": (".slidev-layout :is(h1, h2, h3)", "sans-serif"),
    "text": (".slidev-layout", "sans-serif"),
    "code": (".slidev-layout :is(code, pre)", "monospace"),
}
# The theme colours of a PowerPoint file by the names that a template gives them.
SLOTS = {"paper": "lt1", "ink": "dk1", "primary": "accent1", "accent": "accent2"}
SLOTS |= {f"accent{number}": f"accent{number}" for number in range(3, 7)}
SLOTS |= {"dark": "dk2", "light": "lt2", "link": "hlink", "visited": "folHlink"}
_LAYOUT = re.compile(r"[-*] `([a-z0-9-]+)`: \S")
_CSS = re.compile(r"^```css\n(.*?)^```[ \t]*$", re.M | re.S)


@functools.cache
def prompt_text(name: str) -> str:
    """The text of assets/prompts/<name>, as a model gets it."""
    return (cli.ROOT / "assets" / "prompts" / name).read_text(encoding="utf-8").strip()


def system_prompt() -> str:
    """The system message of every request for a deck: in data/prompts.jsonl, in chat rows, in the demo."""
    return prompt_text("deck-system.txt")


def folder() -> Path:
    """Where a template is found by its name: DECKSMITH_TEMPLATES, else data/templates."""
    return Path(os.environ.get("DECKSMITH_TEMPLATES") or cli.ROOT / "data" / "templates")


class Style(TypedDict, total=False):
    """What a template gives the renderer: a theme where a deck names none, and what stands behind a theme's style."""

    theme: str
    css: str


@dataclass(frozen=True)
class Template:
    """A template as it was read. fonts: {"title", "text", "code"}. colours: {name: "#rrggbb"}. logo: a data URI or "";
    place: its x, y, width, height in px. told: the body, for the model. css: behind the theme's style. powerpoint:
    {"title", "text"}: the families that a PowerPoint file names in place of those."""

    name: str
    theme: str
    fonts: dict[str, str]
    colours: dict[str, str]
    logo: str
    place: list[int]
    layouts: list[str]
    told: str
    css: str
    powerpoint: dict[str, str] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        told = {key: value for key, value in vars(self).items() if value or key != "powerpoint"}
        return stream.fingerprint(told)

    def system(self) -> str:
        """What stands behind the system prompt."""
        said = [
            f"Follow the template {self.name}.",
            self.told,
            f"Write `theme: {self.theme}` in the first frontmatter. "
            f"Of the layouts use these alone: {', '.join(self.layouts)}.",
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
        for role, (selector, generic) in _ROLES.items():
            if family := self.fonts.get(role):
                rules.append(f"{selector} {{ font-family: '{family}', {generic}; }}")
        if self.logo:
            # In its place whatever the slide's zoom is.
            sides = zip(("left", "top", "width", "height"), self.place, strict=True)
            zoom = "var(--slidev-slide-zoom-scale, 1)"
            box = " ".join(f"{side}: calc({px}px / {zoom});" for side, px in sides)
            above = "content: ''; position: absolute; z-index: 50; pointer-events: none;"
            picture = f'background: url("{self.logo}") center / contain no-repeat;'
            rules.append(f".slidev-page::after {{ {above} {box} {picture} }}")
        return {"theme": self.theme, "css": "\n".join([*rules, self.css])}


def read(path: Path) -> Template:
    """The template in a file. Raises cli.BadConfig naming file, line and what to write."""
    from decksmith.core import validation
    from decksmith.measure.decks.template_head import TemplateHead

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    if not (found := re.match(r"---\n(.*?)^---\n", text, re.M | re.S)):
        known = ", ".join(TemplateHead.model_fields)
        raise _bad(path, 1, f"a template begins with a frontmatter that has {known}")
    block = parse_block(found[1], 2)
    if block.error:
        raise _bad(path, block.error[1], block.error[0])
    given = {key: value for key, value in block.data.items() if value is not None}
    lines = {key: mark.line for key, mark in block.marks.items()}
    # What stands there comes first: an unknown key is often the one that is missing.
    wrong = [
        (lines.get(str(place[0])), said) for place, said in validation.problems(TemplateHead, given)
    ]
    for line, said in sorted(wrong, key=lambda one: one[0] is None):
        raise _bad(path, line or 1, said)
    head = TemplateHead.model_validate(given)
    body, above = text[found.end() :], text.count("\n", 0, found.end())
    return Template(
        name=path.stem,
        theme=head.theme,
        fonts={str(role): family for role, family in head.fonts.items()},
        colours=head.colours,
        logo=_data_uri(path, lines["logo"], head.logo.file) if head.logo else "",
        place=head.logo.place if head.logo else [],
        layouts=_layouts(path, body, head.theme, above),
        told=_CSS.sub("", body).strip(),
        css=_css(path, body, above),
        powerpoint={str(role): family for role, family in head.powerpoint.items()},
    )


def _bad(path: Path, line: int, why: str) -> cli.BadConfig:
    return cli.BadConfig(f"{path}:{line}: {why}")


def _data_uri(path: Path, line: int, name: str) -> str:
    """The logo's file, beside the template, as a data URI; one that is itself such an address stays."""
    if re.fullmatch(r"data:image/(?:png|jpeg|svg\+xml);base64,[A-Za-z0-9+/=]+", name):
        if len(name) > 4 * LARGEST / 3 + 99:
            raise _bad(path, line, f"logo: it has more than {LARGEST // 1000} kB")
        return name
    file = path.parent / name
    kind = KINDS.get(file.suffix)
    if kind is None:
        raise _bad(path, line, f"logo: {name} is none of {', '.join(KINDS)}")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise _bad(path, line, f"logo: {file}: {error.strerror}") from None
    if len(data) > LARGEST:
        raise _bad(path, line, f"logo: {file} has more than {LARGEST // 1000} kB")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


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
    fences = [*_CSS.finditer(body)]
    for fence in fences:
        if match := re.search(r"@import|url\(\s*['\"]?(?!data:)", fence[1]):
            at = above + 1 + body.count("\n", 0, fence.start(1) + match.start())
            raise _bad(path, at, "the style loads a file; a picture stands in it as url(data:..)")
    return "\n".join(fence[1] for fence in fences)


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
    """The template in a folder's template.json. Raises cli.BadData where `wanted` (`tag`) is another."""
    path = Path(run) / FILE
    try:
        found = _read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError) as error:
        raise cli.BadData(f"{ident}: {path}: {error}; run again what made its deck") from None
    if found.sha256 != wanted["sha256"]:
        why = "is another template than the deck's; run again what made it"
        raise cli.BadData(f"{ident}: {path} {why}")
    return found


@functools.lru_cache(8)
def _read(text: str) -> Template:
    return Template(**json.loads(text))


def findings(template: Template, text: str) -> list[Finding]:
    """Where a deck departs from its template, by its text, a rule once for each line."""
    deck = Deck.parse(text)
    found: dict[tuple[int, str], Finding] = {}
    for number, slide in enumerate(deck.shown, 1):
        for line, rule, said in _departures(template, deck, slide):
            one = Finding(line=line, slide=number, check=rule, message=said, box=None)
            found.setdefault((line, rule), one)
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
            yield from _other_fonts({*template.fonts.values()}, line, style)
        if template.colours:
            yield from _other_colours({*template.colours.values()}, line, style)


_STYLED = re.compile(r"<style\b[^>]{0,200}>.*?</style>|<[A-Za-z][^<>]{0,4000}>", re.S)
_FAMILY = re.compile(r"font-family\s*:\s*([^;}\"<>]{1,200})")
_FONT_CLASS = re.compile(r"(?<![\w-])font-(?:serif|mono|sans)(?![\w-])")
_COLOUR = re.compile(r"(?<![\w&])#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl)a?\([^()]{1,60}\)")
_COLOUR_CLASS = re.compile(
    r"(?<![\w-])(?:text|bg|border|from|via|to|fill|stroke)-(?:slate|gray|zinc|neutral|stone|red|orange|amber"
    r"|yellow|lime|green|emerald|teal|cyan|sky|blue|indigo|violet|purple|fuchsia|pink|rose)(?:-\d{2,3})?(?![\w-])"
)
_GENERIC = {"", "serif", "sans-serif", "monospace", "inherit", "initial", "unset", "system-ui"}


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


def _other_fonts(own: set[str], line: int, style: str) -> Iterator[tuple[int, str, str]]:
    for at, families in _matches(_FAMILY, line, style):
        for name in (family.strip().strip("'\"") for family in families.split(",")):
            if name not in own | _GENERIC and not name.startswith("var("):
                yield at, "template-font", f"the font {name[:60]} is not the template's"
    for at, name in _matches(_FONT_CLASS, line, style):
        yield at, "template-font", f"the class {name} sets another font than the template's"


def _other_colours(own: set[str], line: int, style: str) -> Iterator[tuple[int, str, str]]:
    for at, colour in _matches(_COLOUR, line, style):
        if rgb(colour) not in own:
            yield at, "template-colour", f"the colour {colour} is not the template's"
    for at, name in _matches(_COLOUR_CLASS, line, style):
        yield at, "template-colour", f"the class {name} is no colour of the template's"


def rgb(colour: str) -> str:
    """A colour of CSS as #rrggbb; how far it is seen through does not matter. As it is where it is none."""
    from PIL import ImageColor

    plain = re.sub(r"^(rgb|hsl)a\(([^,]+,[^,]+,[^,)]+).*", r"\1(\2)", colour)
    try:
        return "#" + "".join(f"{part:02x}" for part in ImageColor.getrgb(plain)[:3])
    except ValueError:
        return colour


def unseen_logo(template: Template, run: Path | str, record: Record) -> list[Finding]:
    """A finding for each slide of a rendered deck on whose picture the logo cannot be seen, or has company."""
    if not template.logo:
        return []
    out: list[Finding] = []
    pages = {page["slide"]: page for page in record["render"].get("xray") or []}
    for name in record["render"].get("slides") or []:
        slide = int(Path(name).stem)
        page = pages.get(slide) or {}
        shown = [box for box in page.get("boxes") or [] if box["kind"] != "background"]
        boxes = [box["box"] for box in shown if min(box["box"][2:]) > 0]
        if not _shows(Path(run) / name, template.place, (page.get("canvas") or CANVAS)[0]):
            said = "the logo cannot be seen"
        elif any(meet(box, template.place) for box in boxes):
            said = "the logo lies on something of the slide"
        else:
            continue
        line, box = page.get("line"), template.place
        out.append(Finding(line=line, slide=slide, check=RULES[-1], message=said, box=box))
    return out


def _shows(picture: Path, place: list[int], across: int) -> bool:
    """Whether anything stands out in a place of a picture, of a slide so many px wide."""
    from PIL import Image

    try:
        with Image.open(picture) as image:
            scale = image.width / across
            x, y, wide, high = (round(number * scale) for number in place)
            bands = image.convert("RGB").crop((x, y, x + wide, y + high)).getextrema()
    except OSError:
        return True  # whoever renders it again says so
    return max(high - low for low, high in bands) >= FAINT  # type: ignore[misc]


def meet(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two rectangles [x, y, width, height] overlap."""
    across = one[0] < other[0] + other[2] and other[0] < one[0] + one[2]
    return across and one[1] < other[1] + other[3] and other[1] < one[1] + one[3]
