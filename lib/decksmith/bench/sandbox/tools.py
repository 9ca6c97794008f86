"""The tools of a conversation: functions that a record brings, and programs that the model writes, each call in a cell of its own."""

import json
from collections.abc import Sequence
from typing import Any

from decksmith.bench.sandbox import pool
from decksmith.bench.sandbox.cell import Limits, Result
from decksmith.bench.sandbox.session import Dead

MOST = 1 << 16  # characters that a call gives
FORGOTTEN = (
    "; what this call did is forgotten"  # the end of what a call gives that did not end well
)
_SEED = "import random\nrandom.seed(0)\ndel random"
_CALL = """import json
from tool_code import {name} as tool
with open("arguments.json") as file:
    arguments = json.load(file)
value = tool(**arguments)
with open("result.txt", "w") as file:
    file.write(value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False))
"""


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
    limits = Limits(wall=seconds, output=MOST, disk=4 << 20)
    if name == "python":
        code = arguments.get("code")
        if not isinstance(code, str):
            return 'error: python takes {"code": "a program"}'
        return _python(code, cells, limits)
    result = pool.common().run(
        _CALL.format(name=name),
        files={"tool_code.py": source, "arguments.json": json.dumps(arguments)},
        take=("result.txt",),
        limits=limits,
    )
    if result.status != "ok" or "result.txt" not in result.files:
        return _failed(result, seconds)
    return result.files["result.txt"][: 4 * MOST].decode("utf-8", "replace")[:MOST]


def _python(code: str, cells: Sequence[tuple[str, str]], limits: Limits) -> str:
    """What `code` prints behind the programs before it. No interpreter lasts from call to call: a
    fresh one runs the earlier programs again, less those that were forgotten, so that a conversation
    goes on after a kill as it would have without one."""
    session = pool.common().session(limits)
    try:
        session.run(_SEED)
        for earlier, told in cells:
            if not told.endswith(FORGOTTEN):
                session.run(earlier)
        result = session.run(code)
    except Dead as died:
        return f"error: the calls before this one could not be run again ({died}){FORGOTTEN}"
    finally:
        session.close()
    if result.status == "ok":
        return result.stdout + result.stderr or "(it printed nothing)"
    said = _failed(result, limits.wall)
    return said if result.status == "error" else said + FORGOTTEN


def _failed(result: Result, seconds: float) -> str:
    if result.status == "timeout":
        return f"error: timed out after {seconds:g} s"
    if result.status in ("ok", "error"):
        said = result.stderr.strip().splitlines() or ["it ended without a result"]
        return f"{result.stdout[-2000:]}error: {said[-1]}"
    return f"error: {result.status}: {result.message}"
