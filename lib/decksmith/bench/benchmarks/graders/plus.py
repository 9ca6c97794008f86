"""HumanEval+ and MBPP+ (Liu et al. 2023, arXiv:2305.01210), judged by the package evalplus itself.

The reply is called in a cell of the sandbox and what it returns is recorded as plain data (wire.py).
evalplus' own check then runs in a process without the reply, on a function that replays the record:
its tolerance, its comparison of types and its rules for single tasks are those of the package. What
it would have done to the reply itself (limits, a time for each input) is the sandbox's.
"""

import ast
import json
import os
import resource
import select
import signal
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

from decksmith.bench.benchmarks import graders
from decksmith.bench.benchmarks.graders import code, wire
from decksmith.bench.benchmarks.records import Grade
from decksmith.core import cli
from decksmith.core.stream import Fault

CALL = 5.0  # seconds of one input; evalplus gives four times what its solution took there, at least one second
TASK = 60.0  # seconds of all inputs, as evalplus has it
CHECK = 30.0  # seconds of the comparison
OUTPUT = 128 << 20  # bytes of a record
Values = list[Any]
BUILDERS = {each.__name__: each for each in (set, frozenset, float, list, tuple, dict)}


def row(source: dict[str, Any]) -> dict[str, Any]:
    """A row of evalplus/humanevalplus or evalplus/mbppplus with what its test says as data, under `plus`: the dataset and function as
    evalplus names them, calls, results (or the reference that computes them) and tolerance. Calls and results are text, since jq, like
    much else that JSON passes through, makes 1 of 1.0. Raises cli.BadData naming the task."""
    most = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # some results are longer
    try:
        return {**source, "plus": _parts(source)}
    except (SyntaxError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        said = f"the test of {source.get('task_id')} is not as evalplus writes them"
        raise cli.BadData(f"{said}: {error}") from None
    finally:
        sys.set_int_max_str_digits(most)


def _parts(source):
    tree = ast.parse(source["test"])
    nodes = list(ast.walk(tree))
    values = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = node.value
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    asked = next((one for one in calls if getattr(one.func, "id", None) == "assertion"), None)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    reference = next((one for one in functions if one.name == "ref_func"), None)
    results = values.get("results")
    if results is None and not reference:
        raise ValueError("it has neither results nor ref_func")
    if asked:
        bound = asked.args[2]
    else:  # find_zero's, whose tolerance stands at the end of its comparison
        bound = next(node for node in nodes if isinstance(node, ast.Compare)).comparators[-1]
    return {
        "dataset": "humaneval" if "entry_point" in source else "mbpp",
        "entry": source.get("entry_point") or asked.args[0].func.id,
        "atol": _literal(bound),
        "calls": json.dumps([_plain(list(each)) for each in _literal(values["inputs"])]),
        "results": None if results is None else json.dumps(_plain(_literal(results))),
        "reference": _program(tree, reference) if results is None else None,
    }


def _program(tree, function):
    """A function with the imports of the test around it, less numpy, which no reference uses."""
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    imports = [node for node in imports if "numpy" not in ast.unparse(node)]
    return ast.unparse(ast.Module([*imports, function], []))


def _plain(value):
    def refuse(odd):
        raise ValueError(f"a value of type {type(odd).__name__} is no plain data")

    return wire.plain(value, refuse)


def _literal(node):
    """The value of an expression that is a literal, or has inf, nan or a container made by name. Raises ValueError."""
    if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        return float(node.id)
    if isinstance(node, ast.Call) and getattr(node.func, "id", None) in BUILDERS:
        if not node.keywords:
            return BUILDERS[node.func.id](*map(_literal, node.args))
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        builder = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
        return builder(map(_literal, node.elts))
    if isinstance(node, ast.Dict):
        return dict(zip(map(_literal, node.keys), map(_literal, node.values), strict=True))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_literal(node.operand)
    return ast.literal_eval(node)


class PlusExpected(TypedDict, total=False):
    """What a row expects; `calls` and `results` are JSON of what wire.plain makes."""

    dataset: str
    entry: str
    atol: float
    calls: str
    results: str | None
    reference: str | None  # the program that computes the results
    prelude: str  # the prompt


def grade(expected: PlusExpected, text: str) -> Grade:
    """The grade of a reply. Raises cli.Missing without evalplus, Fault where the sandbox fails or the
    reference does."""
    name, calls = expected["entry"], json.loads(expected["calls"])
    reply = code.program(text, name)
    if reply is None:
        return {"verdict": "no_answer", "answer": None}
    graders.version("evalplus")
    import evalplus.eval  # noqa: F401  # here, so that each check finds it imported

    if not name.isidentifier():
        raise cli.BadData(f"{name[:80]!r} is no name of a function")
    if known := expected["results"]:
        results = json.loads(known)
    else:
        found = _recorded({"code": expected["reference"]}, "ref_func", calls)
        if found["ended"] != "recorded":
            said = f"the reference of {name} ended so: {found['said']}"
            raise Fault("judge", "reference", said)
        results = found["values"]
    program = {"code": reply, "prelude": expected.get("prelude") or "", "entry": name}
    found = _recorded(program, name, calls)
    status = found["ended"]
    if status == "recorded":
        dataset, values = expected["dataset"], found["values"]
        same = _checked(dataset, name, calls, results, values, expected["atol"])
        status = "passed" if same else "failed"
    return {
        "verdict": "right" if status == "passed" else "wrong",
        "answer": None,
        "detail": {"status": status, "said": found["said"][:300], "inputs": len(calls)},
    }


def _recorded(reply: code.Reply, name: str, calls: Values) -> code.TestOutcome:
    exam = {"calls": calls, "name": name, "seconds": CALL}
    return code.examined("record", exam, reply, wall=TASK, output=OUTPUT)


def _checked(
    dataset: str, name: str, calls: Values, results: Values, values: Values, atol: float
) -> bool:
    """Whether evalplus' check accepts the values. It runs in a fork, since it takes the process it runs in apart, and since values can
    be such that no comparison of them ends."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        try:
            same = _accepts(dataset, name, calls, results, values, atol)
            os.write(writes, b"passed" if same else b"failed")
        finally:
            os._exit(0)
    os.close(writes)
    ready = select.select([reads], [], [], CHECK)[0]
    said = os.read(reads, 16) if ready else b""
    os.close(reads)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    known: tuple[str, Values, Values, Values, float] = "known", [[1]], [1], [1], 0
    again = (name, calls, results, values, atol) == known
    if not said and not again and not _checked(dataset, *known):  # it is not the values that end it
        said_of = "the check of evalplus ends without a verdict, also on a known answer"
        raise Fault("judge", "evalplus", said_of)
    return said == b"passed"


replayed: Iterator[object] = iter(())


def replay(*_):
    """The next value of the record: what evalplus calls in place of the reply."""
    return next(replayed)


def _accepts(
    dataset: str, name: str, calls: Values, results: Values, values: Values, atol: float
) -> bool:
    global replayed
    from evalplus.eval import _SUCCESS, unsafe_execute

    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    if most != resource.RLIM_INFINITY:
        # It would ask for 4 GiB, which none may have whose limit is lower.
        os.environ["EVALPLUS_MAX_MEMORY_BYTES"] = str(min(most, 4 << 30))

    def value(tagged: Mapping[str, Any]) -> object:
        return wire.restored(tagged, lambda *held: wire.Remote(None, *held))

    calls, results, values = (
        json.loads(json.dumps(part), object_hook=value) for part in (calls, results, values)
    )
    replayed = iter(values)
    stat, progress = types.SimpleNamespace(value=None), types.SimpleNamespace(value=0)
    details, limits = [False] * len(calls), [CHECK] * len(calls)
    program = f"from {__name__} import replay as {name}"
    # Its arguments from here on: whether it ends with the first failure, and where it keeps what it found.
    found = (True, stat, details, progress)
    unsafe_execute(dataset, name, program, calls, results, limits, atol, *found)
    # Not by the details, of which 0.3.1 keeps none of find_zero.
    return stat.value == _SUCCESS and len(values) == len(calls)
