"""What a large benchmark run costs: prints a markdown page (docs/maintain/speed.md). `tests/bench_scale.py [ROWS]`, 100,000 without a number.

ROWS rows of a file go through bench-prepare, bench-prompt, chat-generate (tests/endpoint.py answers), bench-grade and bench-summarize, one
stage after the other, from file to file. The two that keep a journal are killed with SIGKILL when half of their rows are out, and run
again. CPU seconds and memory (PSS) are of a stage's process tree.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench_pipeline import tree, used

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib")]

from decksmith.core import stream  # noqa: E402

EVERY = 0.2  # seconds between two looks at a stage
JOURNAL = 1 << 30  # bytes of the journal that is opened
BENCH = """
title = "Sums of a shop"
source = { file = "rows.jsonl" }
row = "{fields: {problem: .question}, expected: .answer, subset: .shop}"
template = "problem"
grader = "math"
licence = "ours"
"""
REPLY = (
    "Let me go through it step by step. A box is what the shop sells, and each box costs the same, so I multiply first and add "
    "what is paid for the bag afterwards. " * 6 + "The answer is \\boxed{77}.\n"
)


def question(number: int) -> dict[str, Any]:
    boxes, price = 2 + number % 37, 3 + number % 11
    asked = (
        f"Receipt {number} of a shop lists {boxes} boxes of pencils at {price} coins each, and a bag for one coin. The customer "
        "pays with coins alone and gets nothing back. How many coins are paid for everything on this receipt?"
    )
    return {"question": asked, "answer": str(boxes * price + 1), "shop": f"shop {number % 5}"}


def memory(pid: int) -> float:
    """The proportional set size (MiB) of a process and its descendants."""
    total = 0
    for member in tree(pid):
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def passed(pid: int) -> int:
    """The bytes of standard input, a file, that a process has read."""
    try:
        return int(Path(f"/proc/{pid}/fdinfo/0").read_text().split()[1])
    except OSError:
        return 0


class Stage:
    """A script from one file to another, in the folder `place`."""

    def __init__(self, place: Path, line: str, given: str | None, made: str) -> None:
        self.place, self.line, self.given, self.made = place, line, given, made
        self.cpu = self.wall = 0.0
        self.looks: list[tuple[int, float]] = []  # bytes read, or written without any input; MiB

    def start(self) -> subprocess.Popen[bytes]:
        name, *rest = self.line.split()
        environment = {
            **os.environ,
            "IMAGES": "off",
            "DECKSMITH_BENCHMARKS": str(self.place),
            "DECKSMITH_BENCH": str(self.place / "kept"),
        }
        given = self.place / self.given if self.given else Path(os.devnull)
        with given.open("rb") as source, (self.place / self.made).open("wb") as target:
            return subprocess.Popen(
                [str(ROOT / "bin" / name), *rest],
                stdin=source,
                stdout=target,
                stderr=(self.place / "said.txt").open("ab"),
                cwd=self.place,
                env=environment,
            )

    def watch(self, process: subprocess.Popen[bytes], stop_at: float | None = None) -> None:
        """Look on until it ends, or until it has read `stop_at` bytes: then it is killed."""
        began, cpu, out = time.monotonic(), 0.0, self.place / self.made
        while True:
            cpu = max(cpu, used(process.pid))
            done = passed(process.pid) if self.given else out.stat().st_size
            self.looks.append((done, memory(process.pid)))
            if stop_at and done >= stop_at:
                process.kill()
            # Not waited for before its account is read: a process that has ended keeps it until then.
            if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                cpu = max(cpu, used(process.pid))
                break
            time.sleep(EVERY)
        if process.wait() not in (0, -9):
            sys.exit(f"{self.line} ended with {process.returncode}: {self.place / 'said.txt'}")
        self.cpu, self.wall = self.cpu + cpu, self.wall + time.monotonic() - began

    def run(self) -> None:
        self.watch(self.start())

    def memory_at(self, share: float) -> float:
        """MiB when this share of the bytes had passed, the mean of the looks nearest to it."""
        end = max(done for done, _ in self.looks)
        near = sorted(self.looks, key=lambda look: abs(look[0] - share * end))[:3]
        return sum(size for _, size in near) / len(near)

    def peak(self) -> float:
        return max(size for _, size in self.looks)


def grown(path: Path, size: int, process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Seconds by the clock, and CPU seconds of a process, until a file has more than `size` bytes."""
    began = time.monotonic()
    while path.stat().st_size <= size:
        if process.poll() is not None:
            sys.exit(f"{process.args} ended, and {path} has not grown")
        time.sleep(0.005)
    return time.monotonic() - began, used(process.pid)


def lines(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return [json.loads(line) for line in file if line.endswith(b"\n")]


def killed(stage: Stage, journal: Path) -> tuple[list[str], tuple[float, float]]:
    """Kill a stage when it has read half of its input, and run it again to its end: the ids that its journal had, and `grown` from its
    second start until the journal grew."""
    stage.watch(stage.start(), stop_at=(stage.place / stage.given).stat().st_size / 2)
    kept = [line["id"] for line in lines(journal)]
    size = journal.stat().st_size
    process = stage.start()
    seconds = grown(journal, size, process)
    stage.watch(process)
    return kept, seconds


def requests(place: Path, kept: list[str], log: Path) -> tuple[int, int]:
    """Of the requests that the endpoint had: how many came twice, and how many of those were for rows whose replies were kept."""
    stood, twice = set(kept), Counter(entry["key"] for entry in lines(log))
    again = {
        hashlib.sha256(row["messages"][-1]["content"].encode()).hexdigest()
        for row in lines(place / "prompts.jsonl")
        if row["id"] in stood
    }
    more = [key for key, count in twice.items() if count > 1]
    return len(more), sum(key in again for key in more)


def opened(place: Path, url: str, log: Path) -> tuple[int, list[tuple[float, float, float]]]:
    """`(lines, [(seconds, CPU seconds, MiB) without, with])`: from chat-generate's start to its first request and its peak memory, with no journal
    and with one of JOURNAL bytes, whose lines are those of this run under other ids."""
    source = [entry for _, entry in stream.journal(place / "run/journal/gen.jsonl")]
    path, count, size = place / "large/journal/gen.jsonl", 0, 0
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        while size < JOURNAL:
            entry = source[count % len(source)]
            size += file.write(stream.summed({**entry, "id": f"x{count}-{entry['id']}"}) + b"\n")
            count += 1
    row = {"id": "new", "messages": [{"role": "user", "content": "of the large journal"}]}
    (place / "new.jsonl").write_text(json.dumps(row) + "\n")
    found = []
    for run in ("empty", "large"):
        command = f"chat-generate --base-url {url} --slug m --run {run}"
        stage = Stage(place, command, "new.jsonl", "new.out")
        size = log.stat().st_size
        process = stage.start()
        seconds = grown(log, size, process)
        stage.watch(process)
        found.append((*seconds, stage.peak()))
    return count, found


def stages(place: Path, url: str) -> list[Stage]:
    ask = f"chat-generate --base-url {url} --slug m --jobs 256 --run run"
    return [
        Stage(place, "bench-prepare shop", None, "rows.out"),
        Stage(place, "bench-prompt", "rows.out", "prompts.jsonl"),
        Stage(place, ask, "prompts.jsonl", "replies.jsonl"),
        Stage(place, "bench-grade --run run", "replies.jsonl", "grades.jsonl"),
        Stage(place, "bench-summarize", "grades.jsonl", "metrics.json"),
    ]


def table(every: list[Stage], rows: int) -> None:
    print("| stage | CPU s | rows per CPU s | s | MiB at 10% | 50% | 100% | peak MiB |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for stage in every:
        near = " | ".join(f"{stage.memory_at(share):.0f}" for share in (0.1, 0.5, 1.0))
        print(
            f"| {stage.line.split()[0]} | {stage.cpu:.1f} | {rows / stage.cpu:.0f} | {stage.wall:.0f} "
            f"| {near} | {stage.peak():.0f} |"
        )


def spent(seconds: tuple[float, ...]) -> str:
    return f"{seconds[0]:.1f} s ({seconds[1]:.1f} of the CPU)"


def main(rows: int, place: Path) -> None:
    (place / "shop.toml").write_text(BENCH)
    (place / "reply.md").write_text(REPLY)
    with (place / "rows.jsonl").open("w") as file:
        file.writelines(json.dumps(question(number)) + "\n" for number in range(rows))
    log = place / "asked.jsonl"
    endpoint = [ROOT / "tests/endpoint.py", "--log", log, "--reply", place / "reply.md"]
    server = subprocess.Popen([sys.executable, *endpoint], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip()
        prepare, prompt, ask, grade, summarize = every = stages(place, url)
        prepare.run()
        prompt.run()
        kept, ask_again = killed(ask, place / "run/journal/gen.jsonl")
        graded, grade_again = killed(grade, place / "run/journal/grade.jsonl")
        summarize.run()
        twice, again = requests(place, kept, log)
        count, (bare, large) = opened(place, url, log)
    finally:
        server.kill()
        server.wait()
    grades = [line["id"] for line in lines(place / "run/journal/grade.jsonl")]
    print("# A large benchmark run\n")
    print(
        f"Written by `make bench-scale` on {os.cpu_count()} cores: {rows:,} rows of a file through the stages of a benchmark, an "
        f"endpoint on this machine answers at once. CPU seconds and memory (PSS) are of a stage's process tree. "
        f"Load at the end: {os.getloadavg()[1]:.1f}.\n"
    )
    table(every, rows)
    print(
        f"\nchat-generate and bench-grade were killed (SIGKILL) in the middle and run again; their figures are of both runs. "
        f"With {len(kept):,} replies in its journal, chat-generate had its first new reply {spent(ask_again)} after its second start, "
        f"and asked {again} of the kept ones again; {twice} that were in flight at the kill were asked twice. "
        f"With {len(graded):,} grades in its journal, bench-grade had its first new one after {spent(grade_again)}, and made "
        f"{len(grades) - len(set(grades))} of them twice."
    )
    print(
        f"\nA journal of {JOURNAL / 1e9:.2f} GB ({count:,} lines): chat-generate's first request leaves {spent(large)} after its "
        f"start, and it takes {large[2]:.0f} MiB; without a journal {spent(bare)} and {bare[2]:.0f} MiB."
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as folder:
        main(int(sys.argv[1]) if sys.argv[1:] else 100_000, Path(folder))
