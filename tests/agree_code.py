"""Replies to contest problems, for tests/agree.py: harmless programs, each a way of solving, nearly solving or not solving a small problem.

A form is `(name, the reply, intended)`. <A> is the expression that solves the problem, of the list of integers `a`.
"""

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple


class Solution(NamedTuple):
    """One reply: its form, the row's tests as LiveCodeBench has them, the text, what is intended."""

    form: str
    expected: dict[str, Any]
    text: str
    intended: bool | None


READ = "import sys\na = list(map(int, sys.stdin.read().split()))\n"
FENCED = "```python\n{}\n```"
# Problems of integers: what solves them, and what their answer is printed as.
WHOLE = ["sum(a)", "max(a) - min(a)", "sum(x % 2 == 0 for x in a)", "len(set(a))"]


def _stdin(body: str) -> str:
    return FENCED.format(READ + body)


PROGRAMS: list[tuple[str, str, bool | None]] = [
    ("prints the answer", _stdin("print(<A>)"), True),
    ("one too many", _stdin("print(<A> + 1)"), False),
    ("right for the first case only", _stdin("print(<A> if len(a) == 3 else -1)"), False),
    ("prints nothing", _stdin("<A>"), False),
    ("blanks behind the answer", _stdin("print(<A>, '   ')"), True),
    ("an empty line behind the answer", _stdin("print(<A>)\nprint()"), True),
    ("an empty line before the answer", _stdin("print()\nprint(<A>)"), True),
    ("a line more", _stdin("print(<A>)\nprint('done')"), False),
    ("words before the answer", _stdin("print('Answer:', <A>)"), False),
    ("the answer as a float", _stdin("print(float(<A>))"), None),
    ("the answer a millionth off", _stdin("print(<A> + 1e-7)"), None),
    ("the answer with zeros in front", _stdin("print('00' + str(<A>))"), None),
    ("noise on stderr", _stdin("print('reading', file=sys.stderr)\nprint(<A>)"), True),
    ("sys.exit behind the answer", _stdin("print(<A>)\nsys.exit(0)"), True),
    ("exit status 1 behind the answer", _stdin("print(<A>)\nsys.exit(1)"), None),
    ("an exception behind the answer", _stdin("print(<A>)\nraise ValueError('oh')"), False),
    ("exit() behind the answer", _stdin("print(<A>)\nexit()"), True),
    ("input()", FENCED.format("a = list(map(int, input().split()))\nprint(<A>)"), True),
    ("sys.stdin by lines", FENCED.format("import sys\nfor line in sys.stdin:\n    a = list(map(int, line.split()))\n    print(<A>)"), True),
    ("sys.stdin.readline", FENCED.format("import sys\na = list(map(int, sys.stdin.readline().split()))\nprint(<A>)"), True),
    ("input = sys.stdin.readline", FENCED.format("import sys\ninput = sys.stdin.readline\na = list(map(int, input().split()))\nprint(<A>)"), True),
    ("sys.stdin.buffer", FENCED.format("import sys\na = list(map(int, sys.stdin.buffer.read().split()))\nprint(<A>)"), True),
    ("open(0)", FENCED.format("a = list(map(int, open(0).read().split()))\nprint(<A>)"), True),
    ("os.read", FENCED.format("import os\na = list(map(int, os.read(0, 10**6).split()))\nprint(<A>)"), True),
    ("sys.stdout.write", _stdin("sys.stdout.write(str(<A>))"), True),
    ("sys.stdout.buffer", _stdin("sys.stdout.buffer.write(str(<A>).encode())"), True),
    ("os.write", _stdin("import os\nos.write(1, str(<A>).encode())"), True),
    ("under __main__", FENCED.format("import sys\ndef main():\n    a = list(map(int, sys.stdin.read().split()))\n    print(<A>)\n\nif __name__ == '__main__':\n    main()"), True),
    ("a global that a function changes", FENCED.format("import sys\nfound = 0\ndef work(a):\n    global found\n    found = <A>\nwork(list(map(int, sys.stdin.read().split())))\nprint(found)"), True),
    ("names of the harness without import", FENCED.format("a = list(map(int, input().split()))\nq = deque(a)\nn = gcd(4, 6)\nprint(<A>)"), None),
    ("five thousand calls deep", _stdin("def down(n):\n    return 0 if n == 0 else down(n - 1)\nprint(<A> + down(5000))"), True),
    ("a thread", _stdin("import threading\nt = threading.Thread(target=lambda: print(<A>))\nt.start()\nt.join()"), True),
    ("a class and a decorator", _stdin("from functools import lru_cache\nclass Box:\n    @lru_cache\n    def value(self):\n        return <A>\nprint(Box().value())"), True),
    ("a syntax error", _stdin("print(<A>"), False),
    ("an undefined name", _stdin("print(answer)"), False),
    ("no block, only code", READ + "print(<A>)", True),
    ("a block without language", "So:\n\n```\n" + READ + "print(<A>)\n```", True),
    ("a block of py", "```py\n" + READ + "print(<A>)\n```", True),
    ("a block of tildes", "~~~python\n" + READ + "print(<A>)\n~~~", True),
    ("a block that is not closed", "```python\n" + READ + "print(<A>)", None),
    ("a block in a list", "1. So:\n\n   ```python\n   import sys\n   a = list(map(int, sys.stdin.read().split()))\n   print(<A>)\n   ```", True),
    ("the solution, then an example of its input", _stdin("print(<A>)") + "\n\nTry it:\n\n```\n1 2 3\n```", True),
    ("the solution, then a call of it", _stdin("print(<A>)") + "\n\nRun it:\n\n```bash\npython3 solution.py < in\n```", True),
    ("a first try, then a better one", _stdin("print(<A> + 1)") + "\n\nThat is one too many. Better:\n\n" + _stdin("print(<A>)"), True),
    ("a block and an idle fence", _stdin("print(<A>)") + "\n\n```", True),
    ("words only", "I would add the numbers up and print them.", False),
    ("a refusal in a block", FENCED.format("I cannot solve this."), False),
]  # fmt: skip
VERDICTS: list[tuple[str, str, bool | None]] = [
    ("Yes for YES", _stdin("print('Yes' if sum(a) % 2 == 0 else 'No')"), None),
    ("YES", _stdin("print('YES' if sum(a) % 2 == 0 else 'NO')"), True),
    ("YES for NO", _stdin("print('NO' if sum(a) % 2 == 0 else 'YES')"), False),
]
DECIMALS: list[tuple[str, str, bool | None]] = [
    ("a decimal", _stdin("print(sum(a) / 4)"), True),
    ("a decimal with more zeros", _stdin("print(f'{sum(a) / 4:.6f}')"), True),
    ("a decimal a millionth off", _stdin("print(sum(a) / 4 + 1e-7)"), None),
    ("a decimal a hundredth off", _stdin("print(sum(a) / 4 + 0.01)"), False),
]


def _method(body: str) -> str:
    return FENCED.format(f"class Solution:\n    def solve(self, a):\n        {body}")


METHODS: list[tuple[str, str, bool | None]] = [
    ("a method of Solution", _method("return <A>"), True),
    ("a method, one too many", _method("return <A> + 1"), False),
    ("a function without Solution", FENCED.format("def solve(a):\n    return <A>"), None),
    ("List without import", FENCED.format("class Solution:\n    def solve(self, a: List[int]) -> int:\n        return <A>"), True),
    ("an int as a float", _method("return float(<A>)"), None),
    ("an int as text", _method("return str(<A>)"), False),
    ("printed, not returned", _method("print(<A>)"), False),
    ("printed and returned", _method("print('found it')\n        return <A>"), True),
    ("None", _method("pass"), False),
    ("an exception", _method("raise ValueError('oh')"), False),
    ("another name", FENCED.format("class Solution:\n    def answer(self, a):\n        return <A>"), False),
    ("a list of one", _method("return [<A>]"), False),
    ("state between the cases", FENCED.format("calls = []\nclass Solution:\n    def solve(self, a):\n        calls.append(1)\n        return <A> + len(calls) - 1"), False),
    ("a float a millionth off", _method("return <A> + 1e-7"), None),
    ("a helper beside it", FENCED.format("def help(a):\n    return <A>\n\nclass Solution:\n    def solve(self, a):\n        return help(a)"), True),
    ("a method, then a call of it", _method("return <A>") + "\n\nFor example:\n\n```python\nprint(Solution().solve([1, 2, 3]))\n```", True),
    ("an input that it empties", _method("found = <A>\n        a.clear()\n        return found"), True),
]  # fmt: skip
LISTS: list[tuple[str, str, bool | None]] = [
    ("a list", _method("return sorted(a)"), True),
    ("a tuple for a list", _method("return tuple(sorted(a))"), True),
    ("a generator for a list", _method("return (x for x in sorted(a))"), False),
    ("a set for a list", _method("return set(a)"), False),
    ("a list, reversed", _method("return sorted(a)[::-1]"), False),
    ("a list of floats", _method("return [float(x) for x in sorted(a)]"), None),
    ("a list, sorted in place", _method("a.sort()\n        return a"), True),
]
# Once: each takes a grader its whole time limit.
SLOW = [("a loop without end", _stdin("while True: pass")), ("a sleep of an hour", _stdin("import time\ntime.sleep(3600)"))]  # fmt: skip


def replies(count: int) -> list[Solution]:
    """`count` replies, the forms in turn."""
    return list(itertools.islice(_made(), count))


def _made() -> Iterator[Solution]:
    for turn in itertools.count():
        draw = random.Random(f"code {turn}")
        for form, text, intended in PROGRAMS:
            solves = draw.choice(WHOLE)
            yield _program(form, text.replace("<A>", f"({solves})"), intended, draw, solves)
        for form, text, intended in VERDICTS:
            yield _program(form, text, intended, draw, "'YES' if sum(a) % 2 == 0 else 'NO'")
        for form, text, intended in DECIMALS:
            yield _program(form, text, intended, draw, "sum(a) / 4")
        for form, text, intended in METHODS:
            solves = draw.choice(WHOLE)
            yield _function(form, text.replace("<A>", f"({solves})"), intended, draw, solves)
        for form, text, intended in LISTS:
            yield _function(form, text, intended, draw, "sorted(a)")
        for form, text in SLOW if turn == 0 else ():
            yield _program(form, text, False, draw, WHOLE[0])


def _lists(draw: random.Random) -> list[list[int]]:
    """The inputs of the two cases of a problem."""
    return [draw.sample(range(2, 99), 3), draw.sample(range(2, 99), 5)]


def _program(
    form: str, text: str, intended: bool | None, draw: random.Random, solves: str
) -> Solution:
    cases = [
        {"input": " ".join(map(str, a)) + "\n", "output": f"{_solved(solves, a)}\n"}
        for a in _lists(draw)
    ]
    return Solution(form, {"cases": cases}, text, intended)


def _function(
    form: str, text: str, intended: bool | None, draw: random.Random, solves: str
) -> Solution:
    cases = [
        {"input": json.dumps(a), "output": json.dumps(_solved(solves, a))} for a in _lists(draw)
    ]
    return Solution(form, {"cases": cases, "function": "solve"}, text, intended)


def _solved(solves: str, a: list[int]) -> Any:
    return eval(solves, {"a": a})  # noqa: S307  # of the tables above
