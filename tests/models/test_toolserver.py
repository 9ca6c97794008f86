"""Tools of a real MCP server, in a loop in front of a scripted endpoint."""

import asyncio
import sys

import pytest
from decksmith.core import cli
from decksmith.models import loops, toolserver
from scripted import calling, generate, saying

SERVER = '''
import os
import anyio
from mcp.server.fastmcp import FastMCP

server = FastMCP("test")

@server.tool()
async def lookup(word: str) -> str:
    """Looks a word up."""
    with open(LOG, "a") as file:
        file.write(word + "\\n")
    if word == "end":
        os._exit(1)
    if word == "wait":
        await anyio.sleep(60)
    return f"{word} is a bee"

server.run()
'''


@pytest.fixture
def command(tmp_path):
    pytest.importorskip("mcp", reason="the package mcp is not installed: make .venv/.mcp")
    program = tmp_path / "server.py"
    program.write_text(SERVER.replace("LOG", repr(str(tmp_path / "log"))))
    return f"{sys.executable} {program}"


@pytest.mark.slow
def test_tools_are_listed_used_and_say_how_they_failed_and_a_server_that_ended_is_started_again(
    command,
):
    async def go():
        server = toolserver.ToolServer(command)
        await server.open()
        (tool,) = server.tools
        said = [await server.use("lookup", {"word": "maja"}, 30)]
        said += [
            await server.use("lookup", {}, 30),
            await server.use("lookup", {"word": "wait"}, 1),
        ]
        with pytest.raises(toolserver.Fault) as failed:
            await server.use("lookup", {"word": "end"}, 30)
        said.append(await server.use("lookup", {"word": "willi"}, 30))
        await server.close()
        return tool["function"], said, failed.value.error

    function, said, error = asyncio.run(go())
    assert (function["name"], function["description"]) == ("lookup", "Looks a word up.")
    assert function["parameters"]["required"] == ["word"]
    assert said[0] == "maja is a bee" and said[3] == "willi is a bee"
    assert said[1].startswith("error: ") and "word" in said[1]
    assert said[2] == "error: timed out after 1 s"
    assert (error["kind"], error["class"]) == ("infra", "mcp")
    own = {"type": "function", "function": function}
    taken = loops.offered({"tools": [own]}, [own, {"type": "function", "function": {"name": "b"}}])
    assert [tool["function"]["name"] for tool in taken] == ["lookup", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["false", "/no/such/program", "a 'b", " "])
def test_a_program_that_is_no_mcp_server_is_named(command):
    pytest.importorskip("mcp", reason="the package mcp is not installed: make .venv/.mcp")
    with pytest.raises(cli.BadConfig, match="--mcp: .* does not answer as an MCP server does"):
        asyncio.run(toolserver.ToolServer(command).open())


@pytest.mark.slow
def test_a_row_calls_a_tool_of_the_server_once_over_two_runs(endpoint, command, tmp_path):
    row = {"id": "m1", "messages": [{"role": "user", "content": "Maja?"}]}

    def script(n, body):
        told = [m["content"] for m in body["messages"] if m["role"] == "tool"]
        if not told:
            return 200, calling(("lookup", '{"word": "maja"}'))
        return (503, {"error": "busy"}) if n == 2 else (200, saying(f"heard: {told[0]}"))

    endpoint.script = script
    flags = ("--mcp", command, "--retries", "0")
    _, (record,), _ = generate(endpoint, [row], tmp_path, more=flags)
    assert record["gen"]["error"]["kind"] == "infra"
    status, (record,), err = generate(endpoint, [row], tmp_path, more=flags)
    assert status == 0 and record["gen"]["text"] == "heard: maja is a bee", err
    assert (tmp_path / "log").read_text() == "maja\n" and len(endpoint.asked) == 3
