"""What an agent is shown of its deck, in process and over MCP; a hostile deck costs its caller alone."""

import asyncio
import base64
import io
import os

import pytest
from decksmith.core import cli
from decksmith.measure.decks import templates
from decksmith.measure.render import agents
from PIL import Image

HEAD = "---\ntheme: default\n---\n\n# One\n\n- a point\n\n---\n\n# Two\n\n- a point\n\n---\n\n"
GOOD = HEAD + "# Three\n\n- a point\n"
FULL = HEAD + "# Three\n\n" + "- a long point that says much\n" * 30
ENDLESS = HEAD + '# Three\n\n<div :ref="() => { while (true) {} }" />\n'


@pytest.mark.parametrize(
    "deck, why",
    [
        (" \n", "the deck is empty"),
        ("x" * (agents.LONGEST + 1), "at most 200000 are taken"),
        ("# A\n\n---\n\n" * 101, "the deck has 10. slides; at most 100"),
    ],
)
def test_a_text_that_is_no_deck_is_refused_before_anything_is_drawn(deck, why):
    with pytest.raises(agents.Refused, match=why):
        agents._check(deck)


@pytest.mark.browser
@pytest.mark.slow
def test_a_deck_is_drawn_and_found_faults_in_and_a_hostile_one_ends_nothing():
    async def ask():
        tools = agents.Tools(template=templates.read(cli.ROOT / "data/templates/company.md"))
        try:
            said, shots = await tools.render(GOOD, [3, 1], 200)
            refused = []
            for slides, width in (([4], 200), ([], 5000)):
                with pytest.raises(agents.Refused) as why:
                    await tools.render(GOOD, slides, width)
                refused.append(str(why.value))
            usual, tools.pool.settings["deadline"] = tools.pool.settings["deadline"], 2
            hostile = await tools.render(ENDLESS)
            tools.pool.settings["deadline"] = usual
            found = await tools.xray(FULL.replace("theme: default", "theme: seriph"))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(agents, "WAITING", 1)
                tools.at_work = 1
                with pytest.raises(agents.Refused, match="ask again later"):
                    await tools.xray(GOOD)
            return said, shots, refused, hostile, found
        finally:
            await tools.pool.close()

    said, shots, refused, hostile, found = asyncio.run(ask())
    assert said == "3 of 3 slides drawn. Pictures of slides 3, 1."
    assert [Image.open(io.BytesIO(shot)).size for shot in shots] == [(200, 113)] * 2
    assert refused[0].startswith("there is no picture of slide 4; 3 of 3 slides drawn.")
    assert refused[1] == "width is 5000; it is 100 to 980"
    assert hostile[1] == [] and "more than 2 CPU seconds" in hostile[0]
    lines = found.split("\n")
    assert lines[0] == "3 of 3 slides drawn."
    assert any("overflows by" in line and line.startswith("deck.md:") for line in lines)
    assert any(line.startswith("deck.md:2: the theme is seriph") for line in lines)


@pytest.mark.long("test_a_deck_is_drawn_and_found_faults_in_and_a_hostile_one_ends_nothing")
@pytest.mark.browser
@pytest.mark.slow
def test_an_mcp_client_lists_the_tools_looks_at_slides_and_is_told_its_own_mistakes():
    mcp = pytest.importorskip("mcp", reason="the package mcp is not installed: make .venv/.mcp")
    from mcp.client.stdio import stdio_client

    async def talk():
        command = str(cli.ROOT / "bin/deck-serve")
        place = mcp.StdioServerParameters(command=command, args=["--mcp"], env={**os.environ})
        async with stdio_client(place) as pipes, mcp.ClientSession(*pipes) as session:
            await session.initialize()
            names = [tool.name for tool in (await session.list_tools()).tools]
            shown = await session.call_tool("render", {"deck": GOOD, "slides": [2]})
            wrong = await session.call_tool("render", {"deck": ""})
            missing = await session.call_tool("xray", {})
            return names, shown, wrong, missing

    names, shown, wrong, missing = asyncio.run(talk())
    assert names == ["render", "xray", "edit"]
    text, picture = shown.content
    assert text.text == "3 of 3 slides drawn. Pictures of slides 2."
    assert Image.open(io.BytesIO(base64.b64decode(picture.data))).size == (490, 276)
    assert wrong.isError and "the deck is empty" in wrong.content[0].text
    assert missing.isError


def test_a_deck_is_edited_to_the_letter_or_refused():
    deck = "# A\n\n---\n\n# B\n"
    block = "<<<<<<< SEARCH\n{}\n=======\n# C\n>>>>>>> REPLACE\n"

    async def ask():
        tools = agents.Tools()
        try:
            made = await tools.edit(deck, block.format("# B"))
            with pytest.raises(agents.Refused, match="not in the deck"):
                await tools.edit(deck, block.format("# Z"))
            return made
        finally:
            await tools.pool.close()

    assert asyncio.run(ask()) == "# A\n\n---\n\n# C\n"
