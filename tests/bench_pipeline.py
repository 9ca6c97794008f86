"""Where the time of `make baseline` goes when the model answers at once: prints a markdown page (docs/maintain/speed.md), draws a picture.

  tests/bench_pipeline.py PICTURE.png [--times N]

The model is a folder with the decks of data/reference, each several times under as many ids. The
stages are the Makefile's, joined by pipes. They run three times from nothing; then with twelve decks
over a run folder where every stage finds its work in its journal: what is left is start-up. CPU
seconds are of a stage's process tree.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TICK = os.sysconf("SC_CLK_TCK")
STAGES = [
    "chat-generate --model reference --base-url files:{run}/../decks/ --protocol offline --run {run}",
    "deck-parse --run {run}",
    "deck-illustrate --protocol offline --run {run}",
    "deck-render --protocol offline --run {run} --jobs {jobs}",
    "deck-judge --protocol offline --run {run}",
    "deck-scan --run {run}",
    "deck-score --protocol offline",
]
AFTER = [
    "run-summarize --protocol offline --run {run}",
    "run-report --out {run}/report {run}",
]
EVERY = 0.1  # seconds between two looks at the stages


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found, waiting = [], [pid]
    while waiting:
        member = waiting.pop()
        try:
            for task in os.listdir(f"/proc/{member}/task"):
                children = Path(f"/proc/{member}/task/{task}/children").read_text()
                waiting += map(int, children.split())
        except OSError:
            continue
        found.append(member)
    return found


def used(pid: int) -> float:
    """CPU seconds of a process, its descendants and those that they have waited for."""
    ticks = 0
    for member in tree(pid):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / TICK


def watched(processes: list[subprocess.Popen[bytes]]) -> dict[str, Any]:
    """{wall: s, cpu: [s by process], trace: [(s, [CPU s so far by process])]} of processes until the last has ended."""
    began, most, trace = time.monotonic(), [0.0] * len(processes), []
    over = [False] * len(processes)
    while not all(over):
        for number, process in enumerate(processes):
            # Not waited for before its account is read: a process that has ended keeps it until then.
            if not over[number]:
                most[number] = max(most[number], used(process.pid))
                state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
                over[number] = state == "Z"
        trace.append((time.monotonic() - began, list(most)))
        time.sleep(EVERY)
    for process in processes:
        if process.wait():
            sys.exit(f"{process.args} ended with {process.returncode}")
    return {"wall": time.monotonic() - began, "cpu": most, "trace": trace}


def command(line: str, run: Path, jobs: int) -> list[str]:
    name, *rest = line.format(run=run, jobs=jobs).split()
    return [str(ROOT / "bin" / name), *rest]


def pipeline(run: Path, prompts: Path, jobs: int = 1) -> dict[str, Any]:
    """All stages over `prompts`, joined by pipes, into `run`."""
    environment = {**os.environ, "IMAGES": "off", "DECKSMITH_RENDERS": "off"}
    processes: list[subprocess.Popen[bytes]] = []
    with prompts.open("rb") as source, (run / "scores.jsonl").open("wb") as scores:
        for line in STAGES:
            out = scores if line == STAGES[-1] else subprocess.PIPE
            process = subprocess.Popen(
                command(line, run, jobs),
                stdin=processes[-1].stdout if processes else source,
                stdout=out,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            if processes:
                processes[-1].stdout.close()  # the next stage's alone, so that its end is seen
            processes.append(process)
        return watched(processes)


def afterwards(run: Path) -> list[dict[str, Any]]:
    """What makes the summary, the plots and the page, one after the other."""
    rows = []
    for line in AFTER:
        out = run / "summary.json" if line.startswith("run-summarize") else Path(os.devnull)
        with (run / "scores.jsonl").open("rb") as scores, out.open("wb") as target:
            process = subprocess.Popen(
                command(line, run, 1),
                stdin=scores,
                stdout=target,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "IMAGES": "off"},
            )
            rows.append(watched([process]))
    return rows


def draw(trace: list[tuple[float, list[float]]], path: Path) -> None:
    """The processors each stage kept busy over time, stacked, as a picture."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    step = max(1, len(trace) // 80)
    looks = trace[::step]
    middle = [(before[0] + after[0]) / 2 for before, after in zip(looks, looks[1:], strict=False)]
    busy = [
        [
            (after[1][stage] - before[1][stage]) / (after[0] - before[0])
            for before, after in zip(looks, looks[1:], strict=False)
        ]
        for stage in range(len(STAGES))
    ]
    figure, axes = pyplot.subplots(figsize=(8, 3))
    axes.stackplot(middle, busy, labels=[line.split()[0] for line in STAGES])
    axes.set(xlabel="seconds", ylabel="processors busy", xlim=(0, trace[-1][0]))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.savefig(path, bbox_inches="tight", dpi=120)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("picture", type=Path)
    options.add_argument("--times", type=int, default=5, help="Each of the twelve decks.")
    args = options.parse_args()
    source = (ROOT / "data/prompts.jsonl").read_text().splitlines(keepends=True)
    there = {path.name.partition(".")[0] for path in (ROOT / "data/reference").iterdir()}
    named = {json.loads(line)["id"]: json.loads(line) for line in source}
    with tempfile.TemporaryDirectory(prefix="bench-pipeline-") as folder:
        prompts, decks, rows = Path(folder, "prompts.jsonl"), Path(folder, "decks"), []
        decks.mkdir()
        for turn in range(args.times):
            for ident in sorted(there & named.keys()):
                *before, last = named[ident]["messages"]
                messages = [*before, last | {"content": f"{last['content']}\nDeck {turn + 1}."}]
                rows.append({"id": f"{ident}-{turn}", "messages": messages})
                shutil.copy(ROOT / f"data/reference/{ident}.md", decks / f"{ident}-{turn}.md")
        prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
        few = Path(folder, "few.jsonl")
        few.write_text("".join(json.dumps(row) + "\n" for row in rows[:12]))
        runs = {jobs: [] for jobs in (1, 2)}
        for turn in range(3):
            for jobs, done in runs.items():
                run = Path(folder, f"run{turn}-{jobs}")
                run.mkdir()
                done.append(pipeline(run, prompts, jobs))
        one, two = (sorted(done, key=lambda row: row["wall"])[1] for done in (runs[1], runs[2]))
        run = Path(folder, "few")
        run.mkdir()
        again = [pipeline(run, few) for _ in range(4)][1:]
        rest = [afterwards(run) for _ in range(3)]
    draw(one["trace"], args.picture)

    print("# Where the time of a baseline goes\n")
    print(
        f"Written by `make bench-pipeline` on {os.cpu_count()} cores: {len(rows)} decks, those of data/reference "
        f"{args.times} times, whose model answers at once. "
        "CPU seconds; of three runs, the one in the middle. Start-up is what a stage takes when all of "
        "its work, twelve decks, is in its journal. Equal texts are read once: of sixty different decks "
        "deck-judge takes more ([scale](scale.md)).\n"
    )
    print(f"![processors that each stage keeps busy]({args.picture.name})\n")
    print("| stage | CPU s | share | start-up, CPU s |\n|---|---:|---:|---:|")
    total, starts = sum(one["cpu"]), 0.0
    for number, line in enumerate(STAGES):
        start = statistics.median(row["cpu"][number] for row in again)
        starts += start
        own = one["cpu"][number]
        print(f"| {line.split()[0]} | {own:.2f} | {own / total:.0%} | {start:.2f} |")
    for number, line in enumerate(AFTER):
        start = statistics.median(row[number]["cpu"][0] for row in rest)
        starts += start
        print(f"| {line.split()[0]} | | | {start:.2f} |")
    print(f"| all | {total:.2f} | | {starts:.2f} |\n")
    print(
        f"{one['wall']:.1f} s by the clock with one render worker, {two['wall']:.1f} s with two: {one['wall'] / two['wall']:.2f} times. "
        f"{total / one['wall']:.2f} and {sum(two['cpu']) / two['wall']:.2f} processors are busy on the mean."
    )


if __name__ == "__main__":
    main()
