"""How a reply that is code is graded: which block counts, what the harnesses of the benchmarks let pass, and what is nobody's fault but its own.
What tries to pass without solving anything is in test_forgery.py."""

import json
import os
import subprocess
import sys

import pytest
from decksmith.bench.benchmarks import grading, tasks
from decksmith.bench.benchmarks.graders import code
from decksmith.bench.sandbox import pool
from decksmith.bench.sandbox.cell import LOST
from decksmith.core.stream import Fault

FENCED = "```python\n{}\n```"


def graded(name, expected, reply):
    return grading.grade(
        tasks.load(name), {"bench": name, "expected": expected, "fields": {}}, reply
    )


# --- which code ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, found",
    [
        ("Use:\n```python\na = 1\n```\nand so:\n```python\nprint(a)\n```", "a = 1\n"),
        ("```\nx\n```", "x\n"),
        ("def f():\n  pass", "def f():\n  pass"),
        ("I cannot.", None),
        ("```python\nx = 1", "x = 1\n"),
        ("```python\nx = (\n\n```python\ny = 1\n```", "y = 1\n"),
        ("```bash\npip install x\n```\n```py\ny = 1\n```", "y = 1\n"),
        ("```text\n1 2\n```\n```\ny = 1\n```", "y = 1\n"),
        ("1. So:\n\n   ```python\n   if x:\n       y\n   ```", "if x:\n    y\n"),
        ("- ```python\n  x\n  ```", "x\n"),
        ("```Python3 title=a\nx\n```", "x\n"),
        ("``` python\r\nx = 1\r\ny\r\n```", "x = 1\ny\n"),
        ("````python\n'''\n```\n'''\n````", "'''\n```\n'''\n"),
        ("~~~python\nx\n~~~", "x\n"),
        ("```python\nx = 1```\nDone.", "x = 1\n"),
        ("```python\n    def f():\n        pass\n```", "def f():\n    pass\n"),
        ("```python\n\n```\n```python\nx\n```", "x\n"),
        ("<think>```python\na\n```</think>```python\nb\n```", "b\n"),
        ("```python\nx\n``` That is it.\n", "x\n"),
        ("```python\n```", None),
        (
            "```python\nprint(input())\n```\nBetter:\n```python\nprint(input() + '!')\n```",
            "print(input() + '!')\n",
        ),
        (
            "The final solution:\n```python\nprint(input())\n```\nAnother way:\n```python\nprint(open(0))\n```",
            "print(input())\n",
        ),
        (
            "```python\nprint(input())\n```\nA naive version, for tests:\n```python\nprint(input()*1)\n```",
            "print(input())\n",
        ),
        (
            "```python\nprint(input())\n```\nAnd so:\n```python\nprint(input(\n```",
            "print(input())\n",
        ),
        (
            "```python\nprint(input())\n```\nIts tests:\n```python\nassert True\n```",
            "print(input())\n",
        ),
        ("\ufeff```python\n\ufeffx = 1\n```", "x = 1\n"),
        (
            '```python\n"""Use:\n```\nf(1)\n```\n"""\nx = 1\n```',
            '"""Use:\n```\nf(1)\n```\n"""\nx = 1\n',
        ),
        ('```python\nx = \'"""\'\n```\nSo.', 'x = \'"""\'\n'),
    ],
)
def test_the_code_of_a_reply_is_the_last_complete_program_of_its_answer(text, found):
    assert code.program(text) == found


@pytest.mark.parametrize(
    "text, found",
    [
        (
            "```python\nimport math\n```\n```python\ndef f(): pass\n```\n```python\nf()\n```",
            "def f(): pass\n",
        ),
        ("```python\nclass A:\n    def f(self): pass\n```", "class A:\n    def f(self): pass\n"),
        ("```python\nx\n```\n```\nf = len\n```", "f = len\n"),
        ("```python\ndef ff(): pass\n```", "def ff(): pass\n"),
        ("```python\n    return 1\n```", "    return 1\n"),
    ],
)
def test_where_a_function_was_asked_for_it_is_the_first_that_defines_it(text, found):
    assert code.program(text, "f") == found


# --- HumanEval ----------------------------------------------------------------------------------------------------------

PROMPT = 'from typing import List\n\n\ndef twice(x):\n    return 2 * x\n\n\ndef add(a: int, b: int) -> int:\n    """ Add. """\n'
ADD = {
    "tests": [
        "def check(candidate):\n    assert candidate(1, 2) == 6\n    assert candidate(twice(1), b=0) == 4\n    assert add(0, 0) == 0\ncheck(add)\n"
    ],
    "prelude": PROMPT,
    "entry": "add",
    "names": ["add"],
}


@pytest.mark.parametrize(
    "reply",
    [
        PROMPT + "    return twice(a + b)",
        "def add(a, b):\n    return twice(a + b)",
        "    return twice(a + b)",
        "return twice(a + b)",
        "from __future__ import annotations\ndef add(a: Missing, b) -> List[int]:\n    return twice(a + b)",
        "add = lambda a, b: twice(a + b)",
        "def add(a, b):\n    print('x' * 10 ** 7)\n    return 2 * (a + b)",
        "def add(a, b):\n    return twice(a + b)\n\nif __name__ == '__main__':\n    raise SystemExit(add(1, 1))",
        "def add(a, b):\n    return twice(a + b)\n\nassert __name__ != '__main__'",
    ],
)
def test_prompt_and_reply_run_in_one_namespace_that_is_not_main(reply):
    assert graded("humaneval", ADD, FENCED.format(reply)) == {
        "verdict": "right",
        "answer": None,
        "detail": {"status": "passed"},
    }


@pytest.mark.parametrize(
    "reply, status, said",
    [
        (
            "def add(a, b):\n    return a - b",
            "failed",
            "AssertionError (assert candidate(1, 2) == 6)",
        ),
        (
            "def add(a, b):\n    return 1 / 0",
            "failed",
            "ZeroDivisionError: division by zero (assert candidate(1, 2) == 6)",
        ),
        (
            "def add(a, b):\n    return [",
            "failed",
            "SyntaxError: '[' was never closed (reply.py, line 11)",
        ),
        ("import os\nos._exit(0)", "failed", "Broken: the code ended"),
        ("raise SystemExit", "failed", "Raised: SystemExit"),
        (
            "def add(a, b):\n    return 'x' * (1 << 31)",
            "failed",
            "MemoryError (assert candidate(1, 2) == 6)",
        ),
        ("x = 1", "failed", "AssertionError ("),
    ],
)
def test_what_a_reply_fails_by_is_said(reply, status, said):
    found = graded("humaneval", ADD, FENCED.format(reply))
    assert (found["verdict"], found["detail"]["status"]) == ("wrong", status) and found["detail"][
        "said"
    ].startswith(said), found


@pytest.mark.slow
def test_a_call_has_a_time_of_its_own_and_what_takes_longer_is_wrong(monkeypatch):
    monkeypatch.setattr(code, "CALL", 1.0)
    for reply in ("while True: pass", "def add(a, b):\n    import time\n    time.sleep(60)"):
        assert graded("humaneval", ADD, FENCED.format(reply))["detail"]["said"].startswith(
            "Broken: no answer within "
        )


# --- MBPP ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tests, names, reply, verdict",
    [
        (
            "assert sum(10, 15) == 6",
            ["sum"],
            "def sum(a, b):\n    return 6",
            "right",
        ),  # a function that is called as one of Python's own
        (
            "assert set(f((3, 4))) == set((4, 3))",
            [],
            "def f(x):\n    return (y for y in x)",
            "right",
        ),
        (
            "import math\nassert math.isclose(f(10), 0.1, rel_tol=0.01)",
            [],
            "def f(x):\n    return 1 / x",
            "right",
        ),
        (
            "assert g([Pair(1, 2), Pair(3, 4)]) == 4",
            [],
            "class Pair:\n    def __init__(self, a, b): self.b = b\ndef g(x):\n    return x[-1].b",
            "right",
        ),
        ("assert f(2)(3) == 5", [], "def f(a):\n    return lambda b: a + b", "right"),
        (
            "assert f({1: (2,)}) == {'a': [(1.5, None, True, 2j, b'x', {1}, frozenset())]}",
            [],
            "def f(x):\n    assert x == {1: (2,)}\n    return {'a': [(1.5, None, True, 2j, b'x', {1}, frozenset())]}",
            "right",
        ),
        ("assert f() == [1, 2]", [], "def f():\n    return (1, 2)", "wrong"),
        ("assert f() == (1, 2)", [], "def f():\n    return [1, 2]", "wrong"),
        (
            "assert f() == {'a': 1}",
            [],
            "from collections import *\ndef f():\n    return Counter('a')",
            "right",
        ),
        (
            "assert f() == (1, 2)",
            [],
            "from collections import *\ndef f():\n    return namedtuple('P', 'a b')(1, 2)",
            "right",
        ),
        (
            "assert f() == 0.5",
            [],
            "from fractions import *\ndef f():\n    return Fraction(1, 2)",
            "right",
        ),
        (
            "assert f() == range(3)\nassert f() != [0, 1, 2]",
            [],
            "def f():\n    return range(3)",
            "right",
        ),
        ("assert f() == 10 ** 6000", [], "def f():\n    return 10 ** 6000", "right"),
        ("assert f(float('inf')) == float('-inf')", [], "def f(x):\n    return -x", "right"),
        (
            "try:\n    f()\n    assert False\nexcept ValueError as error:\n    assert str(error) == 'no'",
            [],
            "def f():\n    raise ValueError('no')",
            "right",
        ),
        (
            "assert list(map(f, [1, 2])) != [1]",
            [],
            "def f(x):\n    if x == 2: raise StopIteration\n    return x",
            "wrong",
        ),
        (
            "try:\n    f('x' * 10 ** 7)\nexcept TypeError:\n    pass",
            [],
            "def f(x):\n    return 1 + x",
            "right",
        ),
        (
            "try:\n    f()\n    assert False\nexcept ValueError:\n    pass",
            [],
            "class ValueError(Exception): pass\ndef f():\n    raise KeyError",
            "wrong",
        ),
    ],
)
def test_values_keep_their_types_on_the_way(tests, names, reply, verdict):
    assert (
        graded("mbpp", {"tests": [tests], "names": names}, FENCED.format(reply))["verdict"]
        == verdict
    )


def test_tests_that_cannot_be_put_to_a_reply_are_an_error_of_their_row():
    with pytest.raises(Fault, match="a value of type function cannot be sent"):
        graded(
            "mbpp",
            {"tests": ["assert f(lambda x: x) == 1"], "names": ["f"]},
            FENCED.format("def f(x):\n    return 1"),
        )


# --- LiveCodeBench ------------------------------------------------------------------------------------------------------

SUM = {"cases": [{"input": "2 3\n", "output": "5"}, {"input": "1 1\n", "output": "2\n"}]}


@pytest.mark.parametrize(
    "reply",
    [
        "a, b = map(int, input().split())\nprint(a + b)",
        "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))",
        "print(sum(map(int, open(0).read().split())))",
        "import os\nprint(sum(map(int, os.read(0, 100).split())))",
        "import sys\nsys.stdout.buffer.write(b'%d' % sum(map(int, sys.stdin.readline().split())))",
        "import os\nos.write(1, str(sum(map(int, input().split()))).encode())",
        "from __future__ import annotations\nprint(float(sum(map(int, input().split()))))",
        "def main():\n    print(reduce(lambda a, b: a + b, map(int, input().split())))\nif __name__ == '__main__':\n    main()",
        "print(sum(map(int, input().split())), '\\n\\n')\nexit()",
        "print(pow(2, 0, 5) * sum(map(int, stdin.read().split())))",
        "def deep(n):\n    return 0 if n == 0 else deep(n - 1)\nprint(deep(40_000) + sum(map(int, input().split())))",
    ],
)
def test_a_program_reads_and_prints_as_it_likes(reply):
    found = graded("livecodebench", SUM, FENCED.format(reply))
    assert found == {
        "verdict": "right",
        "answer": None,
        "detail": {"status": "passed", "passed": 2, "cases": 2},
    }


@pytest.mark.parametrize(
    "reply, status, passed",
    [
        ("print(5)", "failed", 1),
        ("print(1 / 0)", "error", 0),
        ("print(5)\nraise SystemExit(3)", "error", 0),
        ("while True: print('5' * 10 ** 5)", "output", 0),
        ("x = bytearray(2 << 30)", "memory", 0),
        ("print('5 5')", "failed", 0),
        ("print('five')", "failed", 0),
        ("", None, None),
    ],
)
def test_the_first_case_that_fails_ends_the_program_s_grade(reply, status, passed):
    found = graded("livecodebench", SUM, FENCED.format(reply))
    assert found["verdict"] == ("wrong" if status else "no_answer") and [
        found.get("detail", {}).get(key) for key in ("status", "passed")
    ] == [status, passed]


@pytest.mark.slow
def test_a_case_has_a_time_of_its_own(monkeypatch):
    monkeypatch.setattr(code, "CASE", 1.0)
    slow = "import time\nn = int(input())\nbegan = time.process_time()\nwhile time.process_time() < began + n / 10: pass\nprint(n)"
    cases = {"cases": [{"input": str(n), "output": str(n)} for n in (2, 2, 2, 2, 2, 2, 30)]}
    found = graded("livecodebench", cases, FENCED.format(slow))
    assert (found["detail"]["status"], found["detail"]["passed"]) == ("timeout", 6)


@pytest.mark.parametrize(
    "wanted, found, same",
    [
        ("0.5", "0.50", True),
        ("7.0 1", "7.00  1.000", True),
        ("1e3", "1000", True),
        ("a b\n", " a b ", True),
        ("1\n2", "1\n2\n\n", True),
        ("5", "5.0000001", False),
        ("a b", "a  b", False),
        ("1 2", "1\n2", False),
        ("YES", "Yes", False),
        ("nan", "NaN", False),
        ("sNaN", "snan", False),
        ("", "", True),
        ("0", "", False),
        ("50000000000000000", "50000000000000001", False),
        ("1\n\n2", "1\n2", False),
        ("1", "1e999999999999999999999", False),
    ],
)
def test_lines_are_equal_as_text_or_as_decimals(wanted, found, same):
    assert code.printed(wanted, found) is same


@pytest.mark.parametrize(
    "reply, verdict",
    [
        (
            "class Solution:\n    def put(self, a: List[int], b: Optional[int]) -> List[int]:\n        return a + [b]",
            "right",
        ),
        ("class Solution:\n    def put(self, a, b):\n        return (*a, b)", "right"),
        ("def put(a, b):\n    return list(chain(a, [b]))", "right"),
        ("class Solution:\n    def put(self, a, b):\n        return str(a + [b])", "wrong"),
        ("class Solution:\n    pass", "wrong"),
        (
            "from __future__ import annotations\nclass Solution:\n    def put(self, a: list[int], b):\n        heapify(a)\n        return a + [b]",
            "right",
        ),
        (
            "class Solution:\n    def __init__(self): self.n = 0\n    def put(self, a, b):\n        self.n += 1\n        return a + [b] if self.n == 1 else a",
            "wrong",
        ),
    ],
)
def test_functions_find_the_imports_of_the_harness_and_a_tuple_is_as_good_as_a_list(reply, verdict):
    cases = [{"input": "[1, 2]\n3", "output": "[1, 2, 3]"}, {"input": "[]\n3", "output": "[3]"}]
    assert (
        graded("livecodebench", {"cases": cases, "function": "put"}, FENCED.format(reply))[
            "verdict"
        ]
        == verdict
    )


# --- whose fault it is --------------------------------------------------------------------------------------------------


def test_a_cell_that_is_lost_is_asked_for_again_and_a_reply_that_loses_it_each_time_is_wrong(
    monkeypatch,
):
    run, lost = pool.CellPool.run, []

    def loses(self, source, **options):
        found = run(self, source, **options)
        if source and len(lost) < loses.times:
            lost.append(source)
            found.status, found.message = "killed", LOST
        return found

    monkeypatch.setattr(pool.CellPool, "run", loses)
    for loses.times, verdict in ((1, "right"), (9, "wrong")):
        lost.clear()
        assert (
            graded("livecodebench", SUM, FENCED.format("print(sum(map(int, input().split())))"))[
                "verdict"
            ]
            == verdict
        )
    monkeypatch.setattr(
        pool.CellPool,
        "run",
        lambda self, source, **options: pool.Result("killed", "", "", 0, "", message=LOST),
    )
    with pytest.raises(Fault, match=LOST):
        graded("livecodebench", SUM, FENCED.format("print(5)"))


def test_the_largest_grade_stays_within_what_the_grader_s_process_is_given():
    many = {"cases": [{"input": "[]", "output": "[]"}] * 40, "function": "f"}
    assert code.seconds({"expected": many}) > (code.CASE + 1) * 40 + 5
    assert code.seconds({"expected": {"cases": many["cases"]}}) > 40 * 3 * code.CASE
    assert json.loads(json.dumps(many)) == many


@pytest.mark.long("test_a_call_has_a_time_of_its_own_and_what_takes_longer_is_wrong")
@pytest.mark.slow
def test_a_call_that_waits_for_a_processor_has_its_seconds_all_the_same(monkeypatch):
    monkeypatch.setattr(code, "CALL", 2.0)
    burns = "import time\ndef f(seconds):\n    end = time.process_time() + seconds\n    while time.process_time() < end: pass\n    return 1"
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(4 * len(os.sched_getaffinity(0)))]
    try:
        row = {"tests": ["assert f(0.7) == 1"], "names": ["f"]}
        assert graded("mbpp", row, FENCED.format(burns))["verdict"] == "right"
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_tests_that_fail_by_themselves_are_an_error_of_their_row_and_a_reply_that_imports_is_not():
    row = {"tests": ["import no_such_module\nassert f() == 1"], "names": ["f"]}
    for broken in (row, {"tests": ["assert f( == 1"], "names": ["f"]}):
        with pytest.raises(Fault, match="ModuleNotFoundError|SyntaxError"):
            graded("mbpp", broken, FENCED.format("def f():\n    return 1"))
    row = {"tests": ["assert f() == 1"], "names": ["f"]}
    reply = "def f():\n    import no_such_module\n    return 1"
    assert graded("mbpp", row, FENCED.format(reply))["verdict"] == "wrong"
