"""A template learnt of a company's file or site: what is read of files whose look is known, what is refused, what cannot break out."""

import random
import re
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

import company_files as files
import pytest
from decksmith.core import cli
from decksmith.measure.decks import template_office, template_site, templates

WHOLE = {"paper": "#fbf8f2", "ink": "#10333f", "primary": "#0b6e69", "accent": "#f2a33a"}
WHOLE |= {"accent3": "#c0392b", "accent4": "#7d5ba6", "accent5": "#3a86c8", "accent6": "#5d6d3e"}
WHOLE |= {"dark": "#0b3c49", "light": "#e8e1d3", "link": "#1b5faa", "visited": "#6b4e9b"}
DARK = {**WHOLE, "paper": "#101820", "ink": "#f4f6f8"}
OFFICE = {"paper": "#ffffff", "ink": "#000000", "primary": "#00843d", "accent": "#ffb81c"}
SHADED = {key: value for key, value in WHOLE.items() if key != "light"} | {"paper": "#e8e1d3"}
SITE = {
    "paper": "#fbf8f2",
    "ink": "#10333f",
    "primary": "#0b6e69",
    "accent": "#f2a33a",
    "accent3": "#1b5faa",
}
INLINE = {"paper": "#ffffff", "ink": "#222222", "primary": "#336699"}

# By file: colours, the company's fonts and those that stand in, px of title and text, the logo's place, what the head must say.
LABELS = {
    "plain": (
        WHOLE,
        "Georgia/PT Serif",
        "Calibri/Nunito Sans",
        37,
        20,
        [788, 499, 144, 48],
        "lost Blank",
    ),
    "dark": (DARK, "Arial/Inter", "Arial/Inter", 41, 18, [], ""),
    "two_masters": (WHOLE, "Cambria/PT Serif", "Verdana/Nunito Sans", 45, 33, [], "another master"),
    "no_theme_colours": (
        OFFICE,
        "Calibri/Nunito Sans",
        "Calibri/Nunito Sans",
        45,
        33,
        [],
        "set 5 times",
    ),
    "logo_in_layout": (
        WHOLE,
        "Franklin Gothic Book/Inter",
        "Franklin Gothic Book/Inter",
        45,
        33,
        [24, 20, 97, 32],
        "the picture Photo of the layout Title Slide",
    ),
    "east_asian": (WHOLE, "Yu Mincho/Inter", "Times New Roman/PT Serif", 45, 33, [], ".emf"),
    "paper_size": (
        WHOLE,
        "Garamond/PT Serif",
        "Segoe UI/Nunito Sans",
        33,
        25,
        [889, 8, 65, 64],
        "logo",
    ),
    "potx": (WHOLE, "Rockwell Slab/PT Serif", "Courier New/PT Mono", 31, 16, [], "0 slides"),
    "decorated": (
        SHADED,
        "Roboto/Inter",
        "Roboto/Inter",
        45,
        33,
        [],
        "the gradient or picture behind the master",
    ),
    "linked_site": (
        SITE,
        "Georgia/PT Serif",
        "Open Sans/Nunito Sans",
        48,
        18,
        [788, 496, 168, 44],
        "own fonts",
    ),
    "inline_site": (
        INLINE,
        "Lora/PT Serif",
        "Lora/PT Serif",
        48,
        22,
        [788, 496, 168, 44],
        "the icon data",
    ),
}
CASES = [*files.SEEN, *files.UNSEEN, *files.SEEN_SITES, *files.UNSEEN_SITES]


def learnt(path: Path) -> str:
    """The template's text of a source, as bin/template-learn prints it."""
    is_page = template_site.is_page(str(path))
    return (template_site.learn(str(path)) if is_page else template_office.learn(path)).text()


def look(text: str, folder: Path) -> tuple[templates.Template, int, int]:
    """(the template of a text, px of its titles and of its text)."""
    (folder / "learnt.md").write_text(text, encoding="utf-8")
    read = templates.read(folder / "learnt.md")
    title, body = (
        int(re.search(rf"(?m)^\.slidev-layout{inner} {{[^}}]*?font-size: (\d+)px", read.css)[1])
        for inner in (" h1", "")
    )
    return read, title, body


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_look_of_a_companys_file_is_read_with_its_sources(case, tmp_path):
    text = learnt(case(tmp_path))
    read, title, body = look(text, tmp_path)
    colours, head, letters, title_px, text_px, place, says = LABELS[case.__name__]
    assert read.colours == colours
    for role, pair in (("title", head), ("text", letters)):
        assert f"{read.powerpoint[role]}/{read.fonts[role]}" == pair
    assert (title, body) == (title_px, text_px)
    assert read.place == place
    assert says.removeprefix("lost ") in text
    for name in read.colours:
        assert re.search(rf'(?m)^  {name}: "#[0-9a-f]{{6}}"  # \w', text)
    assert {"cover", "section", "default", "two-cols"} <= {*read.layouts}
