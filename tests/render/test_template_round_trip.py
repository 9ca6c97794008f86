"""A template learnt of a PowerPoint file, built out as one again, and learnt once more: the same look."""

import asyncio
import shutil

import company_files as files
import pytest
from decksmith.core import cli
from decksmith.core.protocol import Protocol
from decksmith.measure.decks import template_office, templates
from decksmith.measure.render import site
from pptx import Presentation

pytestmark = [pytest.mark.browser]

DECK = """# Tidal power

A short course

---

# Three sites with a list

- One of the northern sites
- Two of them [with a link](https://example.org)
- Three

---

# Three more

- One
- Two

---
layout: two-cols
---

# Two sides

- left

::right::

- right
"""


@pytest.mark.long(
    "tests/bin/template-learn.bats::a template is learnt of a file, reads back, and says where each colour is from"
)
def test_palette_fonts_and_sizes_come_back_from_the_file_that_is_built_under_them(tmp_path):
    """dark: bg1 is the theme's dk1. same: one family of the renderer's stands in for both of the company's."""
    made = files.show()
    files.theme(made, files.PALETTE, "Franklin Gothic Heavy", "Franklin Gothic Book")
    files.sizes(made, 34, 22)
    same = files.saved(made, tmp_path / "same.pptx")
    sources = [files.plain(tmp_path), files.dark(tmp_path), files.no_theme_colours(tmp_path), same]

    async def built():
        builder = site.Builder(Protocol.load("offline"), ["pptx"])
        try:
            return [await one(builder, path) for path in sources]
        finally:
            await builder.close()

    async def one(builder, path):
        first = template_office.learn(path)
        file = tmp_path / f"{path.stem}.md"
        file.write_text(first.text())
        run = tmp_path / path.stem
        (run / "deck").mkdir(parents=True)
        (run / "deck/deck.md").write_text(DECK)
        deck = {"path": "deck/deck.md", "template": templates.put(run, templates.read(file))}
        value = await builder.build(run, {"id": "deck", "deck": deck})
        return first, run / value["pptx"]["path"]

    for first, path in asyncio.run(built()):
        again = template_office.learn(path)
        assert {name: colour for name, (colour, _) in again.colours.items()} == {
            name: colour for name, (colour, _) in first.colours.items()
        }
        for role in ("title", "text"):
            assert again.fonts[role]["own"] == first.fonts[role]["own"]
            sizes = [draft.pages["default"][role]["size"] for draft in (again, first)]
            assert sizes[0] == sizes[1]
        title = next(one for one in Presentation(path).slides if one.shapes.title).shapes.title
        assert "+mn-lt" not in title._element.xml  # the theme's font for titles


@pytest.mark.long(
    "tests/bin/template-learn.bats::a template is learnt of a file, reads back, and says where each colour is from"
)
def test_the_shipped_template_gives_its_colours_to_the_theme(tmp_path):
    for name in ("company.md", "logo.svg"):
        shutil.copy(cli.ROOT / "data/templates" / name, tmp_path)
    run = tmp_path / "run"
    (run / "deck").mkdir(parents=True)
    (run / "deck/deck.md").write_text(DECK)
    deck = {"path": "deck/deck.md"}
    deck["template"] = templates.put(run, templates.read(tmp_path / "company.md"))

    async def built():
        builder = site.Builder(Protocol.load("offline"), ["pptx"])
        try:
            return await builder.build(run, {"id": "deck", "deck": deck})
        finally:
            await builder.close()

    found = template_office.learn(run / asyncio.run(built())["pptx"]["path"])
    colours = {name: colour for name, (colour, _) in found.colours.items()}
    wanted = {"paper": "#fbf8f2", "ink": "#10333f", "primary": "#0b6e69", "accent": "#f2a33a"}
    assert colours == wanted
