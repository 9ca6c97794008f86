"""No test knows a clock: what it waits for is an event (tests/tools/waits.py), and what hangs ends there."""

import ast
from pathlib import Path

import pytest
import waits

TESTS = Path(__file__).resolve().parents[1]
# These measure, or wait for a cluster, an engine or a card that is not of this machine.
OTHERS = {"fixtures", "gpu", "node_modules", "slurm", "tools"}
FILES = [
    path for path in sorted(TESTS.glob("*/*.py")) if path.relative_to(TESTS).parts[0] not in OTHERS
]
CLOCKS = {f"time.{name}" for name in ("monotonic", "perf_counter", "time", "monotonic_ns")}
WAITS = {"communicate", "create_connection", "get", "post", "request", "run", "urlopen", "wait"}
# Each says beside itself why a busy machine cannot fail it.
KNOWN = {
    "hostile/conftest.py": 1,  # a look every 20 ms
    "hostile/test_kills.py": 4,  # it draws the moments of its kills
    "models/test_client.py": 1,  # a date
    "rewards/gym_client.py": 1,  # a knock that is repeated
    "serving/test_vllm.py": 4,  # make test-vllm
}


def of_a_clock(tree):
    """The lines that read a clock, or bound a wait below what a busy machine needs."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        bounds = [word.value for word in node.keywords if word.arg == "timeout"]
        bounds += node.args[:1] if name.endswith((".wait", ".join")) else []
        seconds = [each.value for each in bounds if isinstance(each, ast.Constant)]
        is_short = [each for each in seconds if isinstance(each, int | float) and each < 120]
        if name in CLOCKS or (is_short and name.rpartition(".")[2] in {*WAITS, "join"}):
            yield node.lineno


def test_no_test_knows_a_clock():
    found = {
        str(path.relative_to(TESTS)): lines
        for path in FILES
        if (lines := [*of_a_clock(ast.parse(path.read_text()))])
    }
    more = {name: lines for name, lines in found.items() if len(lines) > KNOWN.get(name, 0)}
    assert not more, f"wait for an event, by tests/tools/waits.py: {more}"


def test_a_wait_ends_with_its_process_and_gives_what_happened():
    class Ended:
        def poll(self):
            return 1

    assert waits.until(iter([0, "", "it"]).__next__) == "it"
    with pytest.raises(AssertionError, match="the process ended before"):
        waits.until(lambda: False, Ended())
