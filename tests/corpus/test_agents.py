"""Agents behind `base_url = "command:.."`: real commands in real cells, that behave and that do not."""

import asyncio
import json
import os
import shlex
import subprocess
import sys

import pytest
import waits
from decksmith.core import cli
from decksmith.core.stream import Fault
from decksmith.measure.decks import conditions
from decksmith.measure.render import toolchain
from decksmith.models import client, registry
from decksmith.train.corpus import agents

pytestmark = pytest.mark.slow

PYTHON = os.path.realpath(sys.executable)
DECK = "---\ntheme: default\n---\n\n# Huts\n"
MESSAGES = [{"role": "system", "content": "Decks."}, {"role": "user", "content": "Huts, please"}]
SCRIPTS = {
    "writes": "asked = open('REQUEST.md').read(); open('deck.md', 'w').write('# ' + asked); print(open('INSTRUCTIONS.md').read())",
    "hangs": "import time; time.sleep(600)",
    "late": "import time; open('deck.md', 'w').write('# Late'); time.sleep(600)",
    "reads": "import os; seen = [os.path.exists(p) for p in (SECRET, ROOT)]; open('deck.md', 'w').write(f'# {seen}')",
    "links": "import os; os.symlink(SECRET, 'deck.md')",
    "nothing": "print('I would rather not')",
    "bytes": "open('deck.md', 'wb').write(b'# \\xff\\xfe')",
}


def entry(name, secret="", timeout=60.0):
    script = f"SECRET = {str(secret)!r}; ROOT = {str(cli.ROOT / 'data')!r}; {SCRIPTS[name]}"
    return registry.Model(name, f"command:{PYTHON} -c {shlex.quote(script)}", name, timeout=timeout)


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """What each of the agents left, by its name, and the run's folder."""
    run = tmp_path_factory.mktemp("run")
    (run / "secret").write_text("a secret")

    async def all_of_them():
        found = {}
        for name in SCRIPTS:
            seconds = 2.0 if name in ("hangs", "late") else 60.0
            agent = agents.Agent(entry(name, run / "secret", seconds), run)
            try:
                found[name] = await agent.answer({"id": name}, MESSAGES)
            except Fault as fault:
                found[name] = {"error": fault.error}
        return found

    return asyncio.run(all_of_them()), run


@pytest.mark.long("test_chat_generate_runs_an_agent_once_for_each_record")
def test_an_agent_finds_the_request_in_its_folder_and_its_deck_is_the_reply(left):
    found, run = left
    gen = found["writes"]
    assert gen["text"] == "# Huts, please\n" and gen["finish_reason"] == "stop"
    assert gen["usage"]["cost"] is None and gen["by"]["latency"] > 0
    assert gen["model"]["command"].startswith(PYTHON)
    assert "Decks." in (run / "agents/writes/run.log").read_text()


@pytest.mark.parametrize(
    "name, kind, why",
    [
        ("hangs", "timeout", "no end within 2 seconds"),
        ("links", "escaped", "outside of its folder"),
        ("nothing", "no-deck", "exit status 0, it said: I would rather not"),
    ],
)
def test_an_agent_that_leaves_no_deck_is_a_fault_of_the_model(left, name, kind, why):
    error = left[0][name]["error"]
    assert (error["kind"], error["class"]) == ("model", kind) and why in error["message"]


def test_an_agent_sees_nothing_outside_of_its_folder(left):
    assert left[0]["reads"]["text"] == "# [False, False]"


def test_a_deck_that_is_there_when_the_time_ends_counts_as_cut_off(left):
    assert left[0]["late"]["text"] == "# Late"
    assert left[0]["late"]["finish_reason"] == "length"


def test_bytes_that_are_no_text_are_replaced(left):
    assert left[0]["bytes"]["text"] == "# \ufffd\ufffd"


def test_earlier_turns_and_a_condition_are_told_and_part_of_what_a_reply_depends_on(tmp_path):
    record = {"id": "p1"}
    plain = agents.Agent(entry("nothing"), tmp_path)
    shots = agents.Agent(entry("nothing"), tmp_path, conditions.load("few-shot"))
    assert sorted(plain.files(record, MESSAGES)) == ["INSTRUCTIONS.md", "REQUEST.md"]
    assert "## assistant\n\n---" in shots.files(record, MESSAGES)["EARLIER.md"]
    one, other = (asyncio.run(agent.inputs(record, MESSAGES)) for agent in (plain, shots))
    assert one != other


def test_a_command_answers_no_other_request():
    with pytest.raises(cli.BadConfig, match="is no endpoint"):
        asyncio.run(client.Client(entry("nothing")).ask(MESSAGES))


def test_chat_generate_runs_an_agent_once_for_each_record(tmp_path):
    rows = "".join(json.dumps({"id": ident, "messages": MESSAGES}) + "\n" for ident in ("a", "b"))
    script = "import os; n = os.environ['HOME'][-1]; n == 'a' and open('deck.md', 'w').write('# A')"
    command = f"command:{PYTHON} -c {shlex.quote(script)}"
    words = [cli.ROOT / "bin/chat-generate", "--base-url", command, "--slug", "mine"]

    def again():
        return subprocess.run(
            [*words, "--run", tmp_path, "--samples", "1"],
            input=rows,
            capture_output=True,
            text=True,
        )

    for _ in range(2):
        done = again()
        assert done.returncode == 0, done.stderr
        one, two = (json.loads(line)["gen"] for line in done.stdout.splitlines())
        assert one["text"] == "# A" and two["error"]["class"] == "no-deck"
    for ident in ("a", "b"):
        assert (tmp_path / "agents" / ident / "run.log").read_text().count(f"--- {ident}, ") == 1


LOOKS = """
import asyncio, mcp, os, sys
from mcp.client.stdio import stdio_client
DECK = '# A\\n\\n---\\n\\n# B\\n\\n' + '- a point\\n' * 60
async def talk():
    place = mcp.StdioServerParameters(command=sys.argv[1], args=['--mcp'], env={**os.environ, 'DECKSMITH_RENDERS': 'off'})
    async with stdio_client(place) as pipes, mcp.ClientSession(*pipes) as session:
        await session.initialize()
        return (await session.call_tool('xray', {'deck': DECK})).content[0].text
open('deck.md', 'w').write(asyncio.run(talk()))
"""


@pytest.mark.long("test_chat_generate_runs_an_agent_once_for_each_record")
@pytest.mark.browser
def test_an_agent_in_its_cell_sees_its_deck_through_the_server(tmp_path):
    pytest.importorskip("mcp", reason="the package mcp is not installed: make .venv/.mcp")
    python = cli.ROOT / ".venv/bin/python3"
    line = f"command:{python} -c {shlex.quote(LOOKS)} {cli.ROOT / 'bin/deck-serve'}"
    show = ["bin", "lib", "assets", ".venv", "pyproject.toml", "assets/renderer/node_modules"]
    show.append(str(toolchain.node().resolve().parent))  # a linked toolchain has it elsewhere
    model = registry.Model("looks", line, "looks", timeout=waits.HANG, show=show)
    gen = asyncio.run(agents.Agent(model, tmp_path).answer({"id": "p1"}, MESSAGES))
    assert "2 of 2 slides drawn." in gen.get("text", ""), gen
    assert "overflows by" in gen["text"]
