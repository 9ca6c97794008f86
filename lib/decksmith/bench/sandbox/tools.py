"""The tools of a conversation: functions that a record brings, and programs that the model writes, each call in a cell of its own."""

import json
import signal
from collections.abc import Sequence
from typing import Any

from decksmith.bench.sandbox import pool
from decksmith.bench.sandbox.cell import Limits, Result
from decksmith.core import cli
from decksmith.core.stream import Fault

PROGRAMS = cli.ROOT / "assets/programs"
MOST = 1 << 16  # characters that a call gives
FORGOTTEN = (
    "; what this call did is forgotten"  # the end of what a call gives that did not end well
)
# Runs the programs before this one unheard, then this one, in one namespace; MARK stands around what this one prints.
MARK = "\0"


def use(
    source: str,
    name: str,
    arguments: dict[str, Any],
    seconds: float = 10.0,
    cells: Sequence[tuple[str, str]] = (),
) -> str:
    """What a model is told of a call: what the function `name` of `source` returns (JSON, or a text
    as it is), what the built-in `python` prints, or how it failed; at most MOST characters. `cells`:
    the programs of `python` before this one, each with what was told of it. Raises cli.Missing where
    nothing confines code."""
    if name == "python":
        code = arguments.get("code")
        if not isinstance(code, str):
            return 'error: python takes {"code": "a program"}'
        return _python(code, cells, seconds)
    asked = {"name": name, "arguments": arguments}
    result = pool.common().run(
        (PROGRAMS / "call_tool.py").read_text(),
        files={"tool_code.py": source, "arguments.json": json.dumps(asked)},
        take=("result.txt",),
        limits=Limits(wall=seconds, output=MOST, disk=4 << 20),
    )
    if result.status != "ok" or "result.txt" not in result.files:
        return _failed(result, seconds)
    return result.files["result.txt"][: 4 * MOST].decode("utf-8", "replace")[:MOST]


def _python(code: str, cells: Sequence[tuple[str, str]], seconds: float) -> str:
    """What `code` prints behind the programs before it. No interpreter lasts from call to call: a
    fresh one runs the earlier programs again, less those that were forgotten, so that a conversation
    goes on after a kill as it would have without one."""
    kept = [earlier for earlier, told in cells if not told.endswith(FORGOTTEN)]
    # Each earlier program ended within `seconds`; this one has a clock of its own.
    limits = Limits(wall=seconds * (len(kept) + 1) + 1, output=MOST, disk=4 << 20)
    given = json.dumps([kept, code, seconds])
    program = (PROGRAMS / "python_tool.py").read_text()
    ran = pool.common().run(f"{program}begin(*__import__('json').loads({given!r}))", limits=limits)
    if not ran.stdout.startswith(MARK):
        said = ran.message or "they ended"
        return f"error: the calls before this one could not be run again ({said}){FORGOTTEN}"
    printed, ended, _ = ran.stdout[1:].rpartition(MARK)
    if ended:
        ran.stdout = printed
    elif ran.code == -signal.SIGALRM:
        ran.status = "timeout"
    elif ran.status in ("ok", "error"):
        ran.status, ran.message = "killed", f"its process ended, exit status {ran.code}"
    if ran.status == "ok":
        return ran.stdout + ran.stderr or "(it printed nothing)"
    said = _failed(ran, seconds)
    return said if ran.status == "error" else said + FORGOTTEN


def _failed(result: Result, seconds: float) -> str:
    if result.status == "starved":
        raise Fault("infra", "starved", result.message)
    if result.status == "timeout":
        return f"error: timed out after {seconds:g} s"
    if result.status in ("ok", "error"):
        said = result.stderr.strip().splitlines() or ["it ended without a result"]
        return f"{result.stdout[-2000:]}error: {said[-1]}"
    return f"error: {result.status}: {result.message}"
