"""README's picture shows the report as the code writes it now: docs/report.json has the words of the picture (`make screenshots`)."""

import json
import re
from html.parser import HTMLParser

from decksmith.core import cli
from decksmith.models import registry

TAGS = {"h2", "h3", "dt", "th", "caption", "label"}  # as tests/web/drive.mjs reads them
REMEDY = "make screenshots makes docs/report.png and docs/report.json anew"


class Headings(HTMLParser):
    """`found`: the texts of the links of nav, and of TAGS in the first section."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []
        self.sections = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.sections += tag == "section"
        in_nav, in_first = "nav" in self.open, "section" in self.open and self.sections == 1
        if tag in ("nav", "section"):
            self.open.append(tag)
        elif tag == "a" and in_nav or tag in TAGS and in_first:
            self.open.append(tag)
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("nav", "section"):
            self.found[-1] += data


def picture() -> dict:
    return json.loads((cli.ROOT / "docs/report.json").read_text())


def labels() -> list[str]:
    """What the models of `make baseline` are called, in the order of make/measure.mk."""
    makefile = (cli.ROOT / "make/measure.mk").read_text()
    names = re.search(r"^MODEL \?= (.*)$", makefile, re.M)[1].replace("$(REFERENCE)", "reference")
    return [registry.model(name).label for name in names.split()]


def test_the_picture_has_the_headings_of_the_page():
    page = Headings()
    page.feed((cli.ROOT / "assets/web/report.html.j2").read_text())
    fixed = {" ".join(text.split()) for text in page.found if "{" not in text}
    assert "Summary" in fixed
    assert set(picture()["headings"]) == fixed | set(labels()), REMEDY


def test_the_picture_names_the_models_of_today_and_says_that_nobody_read_them():
    wanted = [*labels(), "No model or person has read these decks"]
    assert [words for words in wanted if words not in picture()["summary"]] == [], REMEDY


def test_headings_are_read_of_nav_and_the_first_section_alone():
    page = Headings()
    page.feed("<nav><a>One</a> two</nav><section><h2><b>T</b>hree</h2><p>four</p></section>")
    page.feed("<section><h2>Five</h2></section>")
    assert page.found == ["One", "Three"]
