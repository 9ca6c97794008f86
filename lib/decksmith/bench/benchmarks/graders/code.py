"""Grading a reply that is code, by its benchmark's tests, so that a program cannot say of itself that it passed.

Code and tests run in two cells of the sandbox (wire.py): the code is called from afar and sends
back plain data, so that it never sees what is expected, never compares, and never counts. Programs
that read standard input are compared here, by what they printed.
"""

import ast
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple, NotRequired, TypedDict

from decksmith.bench.benchmarks.graders.wire import strange
from decksmith.bench.benchmarks.records import Grade, Task
from decksmith.bench.sandbox import pool
from decksmith.bench.sandbox.cell import GUARD, LOST, Limits, Result
from decksmith.core.stream import Fault

BUSY = 8  # times as long by the clock as on a machine with nothing else to do
CALL = 10.0  # seconds of one call by unit tests
CASE = 6.0  # seconds of one case of a contest, as LiveCodeBench has it
MEMORY = 1 << 30  # bytes, of the code and of the tests
OUTPUT = 16 << 20  # bytes that a program may print for one case
LONGEST = 2000  # lines of a block in which a fence may stand within a text
PYTHON = ("python", "py", "python3")
# What LiveCodeBench's harness puts in front of a reply. Names of Python's own stay what they are, and modules win over what they hold.
STARRED = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools "
    "operator io sys json builtins typing"
).split()


BUSY_MACHINE = "the code had no processor: the machine is too busy; run bench-grade again"


class ContestCase(TypedDict):
    input: str
    output: str


class CodeExpected(TypedDict, total=False):
    """What a row of code expects: unit tests, or the cases of a contest, of programs or of a function."""

    tests: list[str]
    prelude: str  # the prompt
    entry: str  # the function that is asked for
    names: list[str]  # what the tests call
    cases: list[ContestCase]
    function: str


class TestOutcome(TypedDict):
    """How tests ended, and the values of a record (wire.record)."""

    ended: str
    said: str
    values: NotRequired[list[object]]


Reply = Mapping[str, str | bool | None]  # the arguments of wire.answer
CONTEST = "\n".join(
    [
        *(f"from {name} import *" for name in STARRED),
        *(f"import {name}" for name in STARRED if name not in ("builtins", "typing")),
        "sys.setrecursionlimit(50000)",
    ]
)


def seconds(task: Task) -> float:
    """How long the grade of a task can take at most."""
    expected = task["expected"]
    if "calls" in expected:
        return BUSY * 300.0
    cases, tests = len(expected.get("cases", ())), len(expected.get("tests", ()))
    return BUSY * (60.0 + cases * (3 * CASE + 10) + tests * 3 * CALL)


def grade(expected: CodeExpected, text: str) -> Grade:
    """The grade of one reply. Raises Fault where the sandbox fails or tests do not fit, cli.Missing
    where nothing confines code."""
    code = program(text, *_asked(expected))
    if code is None:
        return {"verdict": "no_answer", "answer": None}
    if "function" in expected:
        return _functions(expected["function"], expected["cases"], code)
    if "cases" in expected:
        return _programs(expected["cases"], code)
    prelude = expected.get("prelude", "")
    reply = {"code": code, "prelude": prelude, "entry": expected.get("entry")}
    for tests in expected["tests"]:
        exam = {"tests": tests, "prelude": prelude, "names": expected.get("names", [])}
        found = examined("examine", exam | {"seconds": CALL}, reply, wall=2 * CALL)
        if found["ended"] != "passed":
            return _wrong(found)
    return _right()


def _asked(expected: CodeExpected) -> list[str]:
    """The names of which a program defines one: of the function asked for, else what the tests call of the row's names."""
    if name := expected.get("entry") or expected.get("function"):
        return [name]
    called = set(re.findall(r"\w+", "\n".join(expected.get("tests", ()))))
    return [name for name in expected.get("names", ()) if name in called]


def _right(**more: int) -> Grade:
    return {"verdict": "right", "answer": None, "detail": {"status": "passed", **more}}


def _wrong(found: TestOutcome, **more: int) -> Grade:
    detail = {"status": found["ended"], "said": found["said"][:300], **more}
    return {"verdict": "wrong", "answer": None, "detail": detail}


# What a program of a contest reads its input by; how a sentence in front of a block sets it above or below others.
READS = re.compile(r"\binput\s*\(|\bstdin\b|\bopen\(0|\bos\.read\b|\bfileinput\b")
CALLED_FINAL = re.compile(r"\bfinal\b", re.I)
REJECTED = re.compile(r"\b(?:wrong|incorrect|buggy|naive|brute|do\s+not\s+use|don't\s+use)\b", re.I)


def program(text: str, *names: str) -> str | None:
    """The code of a reply: of the complete Python blocks of its final answer the last that defines one of `names` (without names: that
    reads input), or the last that a sentence calls final, behind earlier blocks that define what it uses. Without one, a block in another
    dress, a block that was not closed, or a text without blocks that reads as code; else None."""
    text = text.rpartition("</think>")[2].replace("\r\n", "\n").replace("\ufeff", "")
    named = rf"(?:{'|'.join(map(re.escape, names))})"
    defines = re.compile(
        rf"^[ \t]*(?:(?:async[ \t]+)?(?:def|class)[ \t]+{named}\b|{named}[ \t]*=)", re.M
    )
    found = [block for block in blocks(text) if block.code.strip()]

    def rank(block: Block) -> tuple[bool, int, bool]:
        """The best is the smallest: that has what is asked for, closed Python, and what no sentence rejects."""
        asked = defines if names else READS
        dress = 0 if block.language in PYTHON else 2 if block.language else 1
        return (
            not asked.search(block.code),
            dress if block.closed else 3,
            bool(REJECTED.search(re.split(r"(?<=[.!?])\s+", block.before)[-1])),
        )

    if found:
        best = min(map(rank, found))
        equal = [block for block in found if rank(block) == best]
        if best[0]:  # parts of a function, or no program at all: what follows shows how it is used
            return equal[0].code
        whole = [block for block in equal if _parses(block.code)] or equal[:1]
        chosen = next(
            (block for block in reversed(whole) if CALLED_FINAL.search(block.before)), whole[-1]
        )
        return _with_parts(chosen.code, found[: found.index(chosen)])
    if "```" in text:
        return None
    if re.search(r"^(def|class|import|from|print\(|for|while)\b", text, re.M):
        return text
    part = max(INDENTED.findall(text), key=len, default="")
    if not STATEMENT.search(part) or not _parses(textwrap.dedent(part)):
        return None
    return _level(part) if names else textwrap.dedent(part)


INDENTED = re.compile(r"^(?: {4}|\t)[^\n]*\n?(?:(?:(?: {4}|\t)[^\n]*|[ \t]*)(?:\n|\Z))*", re.M)
STATEMENT = re.compile(
    r"^\s*(?:(?:def|class|import|from|return|for|while|if)\b|print\(|\w+\s*=)", re.M
)


def _with_parts(code: str, earlier: Sequence["Block"]) -> str:
    """Code behind those earlier blocks that define what it uses and does not define: imports and helpers that a reply shows apart."""
    for block in reversed(earlier):
        if _parses(code) and _parses(block.code) and strange(code) & _defined(block.code):
            code = f"{block.code}\n{code}"
    return code


def _defined(code: str) -> set[str]:
    """The names that a text defines at its margin; none where it also calls something there."""
    found: set[str] = set()
    for node in ast.parse(code).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {name.id for name in node.targets if isinstance(name, ast.Name)}
        else:
            return set()
    return found


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


class Block(NamedTuple):
    """A fenced block of a text: its language and code, whether it was closed, and the line of text in front of it."""

    language: str
    code: str
    closed: bool
    before: str


_FENCE = re.compile(
    r"[ \t]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?(?P<mark>`{3,}|~{3,})[ \t]*(?P<language>[\w+.#-]*)(?P<rest>[^`]*)\Z"
)


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a text; one that is indented loses that much. A fence within a triple-quoted text is part of it."""
    opened: re.Match[str] | None = None
    lines: list[str] = []
    before, quoted = "", 0
    for line in text.split("\n"):
        fence, bare = _FENCE.match(line), line.strip()
        if opened is None:
            opened, lines, quoted = fence, [], 0
            before = line if bare and not fence else before
        elif quoted and fence and len(lines) < LONGEST and not _parses("\n".join(lines)):
            lines.append(line)
        elif fence and fence["language"].lower() in PYTHON:  # the next; this one was forgotten
            yield _block(opened, lines, False, before)
            opened, lines, before, quoted = fence, [], "", 0
        elif fence and bare.startswith(opened["mark"]):
            yield _block(opened, lines, True, before)
            opened, before = None, ""
        elif bare.endswith(opened["mark"]) and bare.count(opened["mark"]) == 1:  # "return x```"
            last = line.rstrip().removesuffix(opened["mark"])
            yield _block(opened, [*lines, last], True, before)
            opened, before = None, ""
        else:
            lines.append(line)
            quoted ^= (line.count('"""') + line.count("'''")) % 2
    if opened is not None:
        yield _block(opened, lines, False, before)


def _block(opened: re.Match[str], lines: list[str], closed: bool, before: str) -> Block:
    margin = opened.start("mark")
    code = "".join(line[min(margin, len(line) - len(line.lstrip())) :] + "\n" for line in lines)
    return Block(opened["language"].lower(), _level(code), closed, before)


def _level(code: str) -> str:
    """Code that is indented as a whole, at the margin; the body of a function stays as it is."""
    whole = re.match(r"\s*^[ \t]+(?:def|class|import|from|async|@)", code, re.M)
    return textwrap.dedent(code) if whole else code


def examined(
    work: str,
    exam: Mapping[str, object],
    reply: Reply,
    *,
    wall: float,
    output: int = 1 << 20,
    longer: float = 1.0,
) -> TestOutcome:
    """How tests of a reply ended, `{"ended": .., "said": ..}`: what the program `work` of wire.py says in a cell that never held the reply.

    A reply that ends the tests by what it returns (too much, too deep, without end) has failed them. Raises Fault where the tests cannot
    be put to a reply, and where cells are lost also without one. A reply that had no processor for its time is asked again, `longer`, and
    at last is a Fault too.
    """
    limits = Limits(wall=wall * longer, memory=MEMORY, output=output)
    seconds = float(str(exam["seconds"]))
    asked = {**exam, "seconds": seconds * longer}
    asks, answers = sound(
        lambda: pool.common().pair(_program(work, asked), _program("answer", reply), limits=limits)
    )
    try:
        found = json.loads(asks.stdout)
    except ValueError:
        found = {"ended": asks.status, "said": asks.message}
        if asks.status in ("ok", "error") and reply["code"]:
            # Of a reply's making, or of ours? Then they break without a reply too.
            empty = examined(work, exam, {**reply, "code": ""}, wall=wall, output=output)
            if empty["ended"] == asks.status:
                said = f"the tests ended without a verdict: {asks.stderr[-300:]}"
                raise Fault("judge", "broken-tests", said) from None
    slow = asks.status == "timeout"
    bound = wall if slow else seconds
    late = slow or "no answer within" in found["said"]
    waited, had = answers.waited, bound * longer - answers.waited
    if late and waited > 0.1 * bound and had < 2 * bound:  # both are known to some tenths only
        if longer >= GUARD:
            raise Fault("judge", "starved", BUSY_MACHINE)
        ran = max(answers.seconds - waited, answers.seconds / GUARD)
        longer = min(max(3 * longer, 2 * answers.seconds / ran), GUARD)
        return examined(work, exam, reply, wall=wall, output=output, longer=longer)
    if found["ended"] == "unfit":
        raise Fault("judge", "unfit-tests", found["said"])
    if found["said"].endswith("the code ended") and answers.status not in ("ok", "killed"):
        found = {"ended": answers.status, "said": answers.message}
    return found


def _program(name: str, given: Mapping[str, object]) -> str:
    return (
        f"import decksmith_wire, json\ndecksmith_wire.{name}(**json.loads({json.dumps(given)!r}))"
    )


def _functions(name: str, cases: list[ContestCase], code: str) -> Grade:
    """Calls of a contest: the values returned are equal to the values expected; a tuple is as good as a list."""
    pairs = []
    for case in cases:
        given = [json.loads(line) for line in case["input"].split("\n") if line.strip()]
        pairs.append([given, json.loads(case["output"])])
    tests = f"""\
import json
for number, (given, wanted) in enumerate(json.loads({json.dumps(pairs)!r}), 1):
    found = globals()[{name!r}](*given)
    found = list(found) if type(found) is tuple else found
    assert found == wanted, f'case {{number}} of {len(pairs)}'
"""
    exam = {"tests": tests, "names": [name], "seconds": CASE}
    reply: Reply = {"code": code, "prelude": CONTEST, "method": True}
    found = examined("examine", exam, reply, wall=(CASE + 1) * len(pairs) + 5)
    if found["ended"] != "passed":
        return _wrong(found, cases=len(pairs))
    return _right(cases=len(pairs))


def _programs(cases: list[ContestCase], code: str) -> Grade:
    """Cases of a contest, each a run of its own; the first that fails ends them, as in LiveCodeBench's harness."""
    # By the processor's clock: others may work here too.
    limits = Limits(wall=3 * CASE, cpu=CASE, memory=MEMORY, output=OUTPUT)
    whole = f"exec({CONTEST!r})\nexec(compile({code!r}, 'reply.py', 'exec', dont_inherit=True), globals())"
    for number, case in enumerate(cases):

        def run(stdin: str = case["input"]) -> list[Result]:
            return [pool.common().run(whole, stdin=stdin, limits=limits)]

        (ran,) = sound(run)
        found: TestOutcome = {"ended": "failed", "said": f"case {number + 1}"}
        if ran.status != "ok":
            said = ran.stderr.strip().splitlines() or [ran.message]
            found = {"ended": ran.status, "said": said[-1]}
        if ran.status != "ok" or not printed(case["output"], ran.stdout):
            return _wrong(found, passed=number, cases=len(cases))
    return _right(passed=len(cases), cases=len(cases))


def printed(expected: str, output: str) -> bool:
    """Whether an output is the expected one, line by line: as text without blanks at both ends, else as decimals."""
    wanted, found = (text.strip().split("\n") for text in (expected, output))
    return len(wanted) == len(found) and all(map(_alike, wanted, found))


def _alike(one: str, other: str) -> bool:
    if one.strip() == other.strip():
        return True
    try:
        ours, theirs = ([Decimal(word) for word in line.split()] for line in (one, other))
    except InvalidOperation:
        return False
    return bool(ours) and not any(n.is_nan() for n in ours + theirs) and ours == theirs


def sound(work: Callable[[], Sequence[Result]]) -> Sequence[Result]:
    """The Results of `work()`. Whose cell is lost is asked once more; a reply that loses its cell twice, where others keep theirs, did it."""
    for _ in (1, 2):
        results = work()
        if any(result.status == "starved" for result in results):
            raise Fault("judge", "starved", BUSY_MACHINE)
        if not any(result.message == LOST for result in results):
            return results
    if pool.common().run("").status != "ok":
        raise Fault("judge", "sandbox", LOST)
    return results
