"""A template learnt of a site: a page that a browser saved, with its style sheets beside it.

Nothing of the page runs, nothing is fetched, and files are read beside the page alone. Of the style sheets what stands
for every reader counts.
"""

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from decksmith.core import cli
from decksmith.measure.decks.template_draft import Draft, Page, Text, is_loud, picture, plain
from decksmith.measure.decks.templates import LARGEST, SLOTS, rgb

if TYPE_CHECKING:
    from lxml.html import HtmlElement

BYTES, SHEETS = 3 << 20, 12  # of a file; style sheets
PLACE = [788, 496, 168, 44]  # of the logo, px
_GENERIC = {
    "serif",
    "sans-serif",
    "monospace",
    "system-ui",
    "ui-sans-serif",
    "inherit",
    "-apple-system",
    "blinkmacsystemfont",
}


def learn(source: Path) -> Draft:
    """What a page says of its look. Raises cli.BadData."""
    from lxml import html

    data = _beside(source.parent, source.name)
    try:
        page = html.document_fromstring(data.decode("utf-8", "replace").replace("\0", ""))
    except Exception as error:  # lxml raises of several kinds
        raise cli.BadData(f"{source}: is no HTML page: {plain(error)}") from None
    return _Site(source, page).draft()


def is_page(source: Path) -> bool:
    """Whether a source is a page, not a file of PowerPoint. Raises cli.BadData for an address."""
    if re.match(r"\w+:/", str(source)):
        raise cli.BadData(
            f"{source}: nothing is fetched; save the page whole in a browser, and give its .html"
        )
    return source.suffix.lower() in (".html", ".htm", ".xhtml")


def _beside(folder: Path, name: str) -> bytes:
    """A file beside a saved page. Raises cli.BadData."""
    path = folder / unquote(urlsplit(name).path)
    try:
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            raise cli.BadData(f"{plain(path)}: is no file beside the page")
        with path.open("rb") as file:
            data = file.read(BYTES + 1)
    except (OSError, ValueError) as error:
        raise cli.BadData(f"{plain(path)}: {error}") from None
    if len(data) > BYTES:
        raise cli.BadData(f"{plain(path)}: has more than {BYTES >> 20} MB")
    return data


class _Site:
    """A page with what its style sheets say: custom properties, and declarations by selector."""

    def __init__(self, source: Path, page: "HtmlElement") -> None:
        self.folder, self.page = source.parent, page
        self.made = Draft(origin=plain(source.name), kind="a site")
        self.custom: dict[str, str] = {}
        self.rules: dict[str, dict[str, str]] = {}
        for sheet in self._sheets():
            if "@font-face" in sheet:
                self.made.lost.append("the site's own fonts, which are fetched from it")
            for selector, declarations in rules_of(sheet):
                self.rules.setdefault(selector, {}).update(declarations)
                if selector in (":root", "html", "body"):
                    self.custom |= {k: v for k, v in declarations.items() if k.startswith("--")}

    def _sheets(self) -> Iterator[str]:
        found = self.page.xpath("//style | //link[@href and contains(@rel, 'stylesheet')]")
        for one in found[:SHEETS]:
            try:
                is_link = one.tag == "link"
                yield (
                    _beside(self.folder, one.get("href")).decode("utf-8", "replace")
                    if is_link
                    else one.text_content()
                )
            except cli.Stop as error:
                self.made.lost.append(f"a style sheet: {error}")

    def said(self, selectors: str, *keys: str) -> tuple[str, str]:
        """(the value of the first of these properties that is set, without variables; where), ("", "")."""
        for selector in selectors.split():
            for key in keys:
                if value := self.rules.get(selector, {}).get(key):
                    return self._plain(value), f"{key} of {selector}"
        return "", ""

    def _plain(self, value: str) -> str:
        for _ in range(8):
            found = re.search(r"var\(\s*(--[\w-]{1,80})\s*(?:,([^()]{0,200}))?\)", value[:500])
            if not found:
                break
            instead = self.custom.get(found[1], found[2] or "")[:200]
            value = value[: found.start()] + instead + value[found.end() :]
        return value.strip()

    def text(self, selectors: str, usual: int, bold: bool, ink: str) -> Text:
        """How a text looks on the page; usual: px that browsers give it."""
        base = px(self.said("html", "font-size")[0], 16) or 16
        value, where = self.said(selectors, "font-size")
        size = px(value, base)
        weight = self.said(selectors, "font-weight")[0] or ("bold" if bold else "")
        colour = as_colour(self.said(selectors, "color")[0]) or ink
        families, _ = self.said(f"{selectors} body html", "font-family")
        names = [one.strip().strip("'\"") for one in families.split(",")]
        own = next((one for one in names if one and one.lower() not in _GENERIC), "Arial")
        source = f"{value}, {where}" if size else "what browsers do"
        bold = weight.startswith("bold") or weight[:1] in "6789" and weight[1:2] == "0"
        return Text(
            size=round(size or usual),
            ink=colour,
            family=own,
            bold=bold,
            align="left",
            source=source,
        )

    def draft(self) -> Draft:
        made = self.made
        paper, ground = self.said("body html", "background-color", "background")
        ink, letters = self.said("body html", "color")
        made.colour("paper", as_colour(paper) or "#ffffff", ground or "what browsers do")
        made.colour("ink", as_colour(ink) or "#000000", letters or "what browsers do")
        for value, source in self._colours():
            if free := next((name for name in list(SLOTS)[2:8] if name not in made.colours), None):
                made.colour(free, as_colour(self._plain(value)), source)
        dark = made.colours.get("ink", ("#000000", ""))[0]
        text = self.text("body html", 16, False, dark)
        title = self.text("h1 h2 h1,h2", 32, True, text["ink"])
        paper, ground = made.colours["paper"]
        made.pages["default"] = Page(paper=paper, ground=ground, bars=[], title=title, text=text)
        made.font(
            "title",
            title["family"],
            self.said("h1 h2 body html", "font-family")[1] or "what browsers do",
        )
        made.font(
            "text", text["family"], self.said("body html", "font-family")[1] or "what browsers do"
        )
        self._logo()
        made.lost.append("what the page's scripts draw, and its pictures")
        return made

    def _colours(self) -> Iterator[tuple[str, str]]:
        """Candidates for primary, accent and so on: (value, source), the likeliest first."""
        for words in ("primary", "brand", "accent", "theme"):
            for name, value in self.custom.items():
                if words in name:
                    yield value, f"custom property {name}"
        for value in self.page.xpath("//meta[@name='theme-color']/@content"):
            yield value, "theme-color of the page"
        yield self.said("a", "color")
        yield self.said("button .button .btn .btn-primary", "background-color", "background")
        for name, value in self.custom.items():
            if is_loud(as_colour(value) or ""):
                yield value, f"custom property {name}"

    def _logo(self) -> None:
        """The first picture that calls itself a logo, else the site's icon."""
        about = "translate(concat(@src, ' ', @alt, ' ', @class, ' ', @id), 'LOGO', 'logo')"
        found = [
            (one, "picture")
            for one in self.page.xpath(f"//img[@src][contains({about}, 'logo')]/@src")
        ]
        icons = self.page.xpath("//link[@href][contains(@rel, 'icon')]/@href")
        for address, kind in [*found[:4], *((one, "icon") for one in icons[::-1][:4])]:
            try:
                data = (
                    _data(address) if address.startswith("data:") else _beside(self.folder, address)
                )
                if b"<svg" in data[:2000] and len(data) <= LARGEST and b"<!ENTITY" not in data:
                    file = f"data:image/svg+xml;base64,{base64.b64encode(data).decode()}"
                else:
                    file = picture(data, (2 * PLACE[2], 2 * PLACE[3]))
            except (cli.Stop, ValueError) as error:
                self.made.lost.append(f"the {kind} {address[:60]}: {error}")
                continue
            said = f"the {kind} {address[:60]}; its place is ours"
            self.made.logo = {"file": file, "place": PLACE, "source": said}
            return


def _data(address: str) -> bytes:
    head, _, body = address.partition(",")
    return base64.b64decode(unquote(body)) if head.endswith(";base64") else unquote_to_bytes(body)


def rules_of(sheet: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(selector, declarations) of a style sheet, as readers at a desk see it by day."""
    sheet = re.sub(r"/\*.*?(?:\*/|\Z)", " ", sheet, flags=re.S)
    around: list[str] = []
    for piece in re.finditer(r"([^{}]*)([{}])", sheet):
        words, sign = piece[1].rpartition(";")[2] if piece[2] == "{" else piece[1], piece[2]
        if sign == "{":
            around.append(" ".join(words.split()).lower())
        elif around:
            selectors = around.pop()
            if not any(
                re.match(r"@(?!layer|supports|media\b[^{]*min-width)|.*dark", one) for one in around
            ):
                pairs = (one.partition(":")[::2] for one in words.split(";") if ":" in one)
                held = {k.strip().lower(): v.replace("!important", "").strip() for k, v in pairs}
                for selector in selectors.split(","):
                    yield selector.strip(), held


def px(value: str, base: float) -> float:
    """A length of CSS in px, of clamp() the largest; 0 for one that cannot be told."""
    found = re.fullmatch(
        r"(?:clamp\(.{1,200},)?\s*(\d{1,4}(?:\.\d{1,4})?|\.\d{1,4})(px|rem|em|pt|%)\)?", value
    )
    factor = {"px": 1, "rem": base, "em": base, "pt": 4 / 3, "%": base / 100}
    return float(found[1]) * factor[found[2]] if found else 0


def as_colour(value: str) -> str | None:
    """The colour of a CSS value as #rrggbb, None for none."""
    found = re.search(
        r"#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl)a?\([^()]{1,60}\)|^[a-z]{3,20}$", value.strip()
    )
    colour = rgb(found[0]) if found else ""
    return colour if re.fullmatch("#[0-9a-f]{6}", colour) else None
