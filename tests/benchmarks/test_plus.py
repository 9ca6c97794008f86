"""HumanEval+ and MBPP+: rows in evalplus' format with words and functions of ours, judged by the package itself."""

import asyncio

import pytest
from decksmith.bench.benchmarks import graders, grading, sources, tasks
from decksmith.bench.benchmarks.graders import plus
from decksmith.core import cli

pytest.importorskip("evalplus.eval")

HEAD = (
    "import numpy as np\nfrom math import inf\n\ndef is_floats(x) -> bool:\n    return isinstance(x, float)\n\n\n"
    "def assertion(out, exp, atol):\n    assert out == exp\n\n\n"
)


def humaneval(entry, inputs, results, *, atol="0", prompt=None):
    test = (
        f"{HEAD}def check(candidate):\n    inputs = {inputs}\n    results = {results}\n"
        f"    for i, (inp, exp) in enumerate(zip(inputs, results)):\n        assertion(candidate(*inp), exp, {atol})\n"
    )
    return {
        "task_id": "HumanEval/900",
        "prompt": prompt or f'def {entry}(x):\n    """ Words. """\n',
        "canonical_solution": "",
        "entry_point": entry,
        "test": test,
    }


def mbpp(entry, inputs, results, **more):
    loop = f"for i, (inp, exp) in enumerate(zip(inputs, results)):\n    assertion({entry}(*inp), exp, 0)\n"
    return {
        "task_id": 900,
        "prompt": "Words.",
        "code": "",
        "source_file": "",
        "test_imports": [],
        "test_list": [f"assert {entry}(1) == 1"],
        "test": f"{HEAD}inputs = {inputs}\nresults = {results}\n{loop}",
        **more,
    }


def verdict(row, reply, monkeypatch):
    name = "humaneval-plus" if "entry_point" in row else "mbpp-plus"
    monkeypatch.setitem(sources.READERS, "hub", lambda spec: ("c" * 40, [row]))
    (record,) = tasks._rows(tasks.load(name), {})
    assert tasks.messages(record)[-1]["content"]
    return grading.grade(tasks.load(name), record["task"], f"```python\n{reply}\n```")


HALF = humaneval("half", "[[1], [3], [-2]]", "[0.5, 1.5, -1.0]")
CASES = [
    ("right", HALF, "def half(x):\n    return x / 2"),
    ("right", HALF, "def half(x):\n    return x / 2 + 1e-7"),  # floats get a tolerance of 1e-6
    ("wrong", HALF, "def half(x):\n    return x / 2 + 1e-4"),
    ("wrong", humaneval("half", "[[2], [3]]", "[1.0, 1.5]"), "def half(x):\n    return str(x / 2)"),
    ("right", humaneval("near", "[[1]]", "[3]", atol="0.5"), "def near(x):\n    return 3"),
    (
        "wrong",
        humaneval("near", "[[1]]", "[[1.0, 2.0]]"),
        "def near(x):\n    return (1.0, 2.0 + 1e-9)",
    ),  # of another type, and not exact
    (
        "right",
        humaneval("near", "[[1]]", "[[1.0, 2.0]]"),
        "def near(x):\n    return [1.0, 2.0 + 1e-9]",
    ),
    (
        "right",
        humaneval(
            "edge", "[[inf], [set()], [(1, 2)], [{'a': {1, 2}}], [-1j]]", "[1, 2, 3, 4, None]"
        ),
        "def edge(x):\n    return {float: 1, set: 2, tuple: 3, dict: 4}.get(type(x))",
    ),
    (
        "right",
        humaneval("large", "[[4]]", f"[1{'0' * 5000}]"),
        "def large(x):\n    return 10 ** 5000",
    ),
    # Rules for single tasks: a root is any root; a set of letters has no order; a match is as good as True.
    (
        "right",
        humaneval("find_zero", "[[[-6, 5, -1]]]", "[2.0]"),
        "def find_zero(xs):\n    return 3.0",
    ),
    (
        "wrong",
        humaneval("find_zero", "[[[-6, 5, -1]]]", "[2.0]"),
        "def find_zero(xs):\n    return 2.5",
    ),
    (
        "right",
        mbpp("similar_elements", "[[(3, 4), (4, 3)]]", "[(3, 4)]"),
        "def similar_elements(a, b):\n    return [4, 3]",
    ),
    (
        "right",
        mbpp("check_str", "[['annie']]", "[True]"),
        "import re\ndef check_str(s):\n    return re.match('[aeiou]', s)",
    ),
    ("wrong", mbpp("check_str", "[['annie']]", "[True]"), "def check_str(s):\n    return None"),
    ("wrong", mbpp("plain", "[[1], [2]]", "[1, 2]"), "def plain(x):\n    return 1"),
    ("wrong", mbpp("plain", "[[1], [2]]", "[1, 2]"), "def plain(x):\n    raise SystemExit"),
    # What is compared is outside: objects that are equal to everything, and changes to what evalplus uses, reach nobody.
    (
        "wrong",
        mbpp("plain", "[[1], [2]]", "[1, 2]"),
        "class Yes:\n    def __eq__(self, other): return True\ndef plain(x):\n    return Yes()",
    ),
    (
        "wrong",
        mbpp("plain", "[[1], [2]]", "[1.5, 2.5]"),
        "import sys, types\nnp = types.ModuleType('numpy')\nnp.allclose = lambda *a, **k: True\n"
        "sys.modules['numpy'] = np\ndef plain(x):\n    return float(x)",
    ),
]


@pytest.mark.parametrize("expected, row, reply", CASES)
def test_the_verdict_is_that_of_the_package(expected, row, reply, monkeypatch):
    found = verdict(row, reply, monkeypatch)
    assert found["verdict"] == expected, found


def test_results_that_are_computed_by_a_reference_are_computed_without_the_reply(monkeypatch):
    row = mbpp("many", "[[3], [5]]", "[]")
    row["test"] = (
        f"{HEAD}def ref_func(n):\n    return list(range(min(n, inf)))\n\ninputs = [[3], [5]]\nfor i, inp in enumerate(inputs):\n"
        "    assertion(many(*inp), ref_func(*inp), 0)\n"
    )
    assert verdict(row, "def many(n):\n    return [*range(n)]", monkeypatch)["verdict"] == "right"
    assert verdict(row, "def many(n):\n    return [0] * n", monkeypatch)["verdict"] == "wrong"


def test_the_tolerance_of_the_one_test_without_assertion_is_read(monkeypatch):
    row = humaneval("find_zero", "[[[-6, 5, -1]]]", "[2.0]")
    row["test"] = (
        "import math\n\ndef _poly(xs, x):\n    return sum(xs)\n\n\ndef check(candidate):\n    inputs = [[[-6, 5, -1]]]\n    results = [2.0]\n"
        "    for i, (inp, exp) in enumerate(zip(inputs, results)):\n        assert _poly(*candidate(*inp), inp) <= 0.0001\n"
    )
    assert plus.row(row)["plus"]["atol"] == 0.0001
    assert verdict(row, "def find_zero(xs):\n    return 3.00001", monkeypatch)["verdict"] == "right"
    assert verdict(row, "def find_zero(xs):\n    return 3.001", monkeypatch)["verdict"] == "wrong"


def test_a_reply_that_gives_only_the_rest_of_the_prompt_is_taken_with_it(monkeypatch):
    row = humaneval(
        "half",
        "[[4]]",
        "[3]",
        prompt='def more(x):\n    return x + 1\n\n\ndef half(x):\n    """ Half and one. """\n',
    )
    assert verdict(row, "    return more(x // 2)", monkeypatch)["verdict"] == "right"
    assert verdict(row, "def half(x):\n    return more(x // 2)", monkeypatch)["verdict"] == "right"


@pytest.mark.parametrize(
    "test",
    [
        "inputs = [[1]]\nresults = [open('x')]\nassertion(f(*inp), exp, 0)",
        "def check(candidate): pass",
        "inputs = [",
    ],
)
def test_a_row_that_is_not_as_evalplus_writes_them_is_named(test):
    with pytest.raises(cli.BadData, match="the test of 900 is not as evalplus writes them"):
        plus.row(mbpp("f", "[]", "[]", test=test))


def test_it_works_in_the_processes_of_the_graders_too(monkeypatch):
    monkeypatch.setitem(sources.READERS, "hub", lambda spec: ("c" * 40, [HALF]))
    (record,) = tasks._rows(tasks.load("humaneval-plus"), {})
    replies = [f"```python\ndef half(x):\n    return x / {n}\n```" for n in (2, 3, 2)]

    async def go():
        graders = grading.Graders(1)
        try:
            return [
                await graders.work({**record, "gen": {"text": text, "finish_reason": "stop"}})
                for text in replies
            ]
        finally:
            await graders.close()

    found = asyncio.run(go())
    assert [each["verdict"] for each in found] == ["right", "wrong", "right"]
    assert {each["rules"] for each in found} == {
        f"{grading.VERSION}: {graders.version('evalplus')}"
    } and "evalplus 0.3.1 (numpy " in graders.version("evalplus")


@pytest.mark.slow
def test_values_that_no_comparison_survives_are_wrong(monkeypatch):
    monkeypatch.setattr(plus, "CHECK", 2.0)
    row = mbpp("plain", "[[1]]", "[{0}]")
    bomb = "def plain(x):\n    return [(2 ** 61 - 1) * n for n in range(40_000)]"  # all of one hash: a set of them is made in hours
    assert (
        verdict(
            mbpp("similar_elements", "[[1]]", "[(1,)]"),
            bomb.replace("plain", "similar_elements"),
            monkeypatch,
        )["verdict"]
        == "wrong"
    )
    assert (
        verdict(
            row,
            "def plain(x):\n    found = []\n    for _ in range(400): found = [found]\n    return found",
            monkeypatch,
        )["verdict"]
        == "wrong"
    )
