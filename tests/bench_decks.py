"""What many decks cost, from the first request to the report: prints a page (docs/maintain/scale.md).

  tests/bench_decks.py [PROMPTS ..]     1,000 3,000 10,000 without numbers

Four models answer at tests/endpoint.py, from a seed: each reply is one of our decks (data/gold and
data/reference) behind a sentence of its own, or a refusal, half a deck, or one that does not compile. The
stages are the Makefile's, joined by pipes, and run for one model after the other. The first model's are
killed with SIGKILL when half of the prompts are asked, and run again. Two things stand in for time and disk
alone: a deck is drawn once, and its renders then come from deck-render's cache; and equal pictures of a run
become hard links once the run is done. What drawing costs is measured on the decks' first renders.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench_pipeline import STAGES, used
from bench_scale import memory

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("model-1", "model-2", "model-3", "model-4")
ASK = "chat-generate --base-url {url} --slug {model} --jobs 64 --protocol offline --run {run}"
# The journal of each stage that keeps one.
JOURNALS = {
    "chat-generate": "gen",
    "deck-parse": "deck",
    "deck-illustrate": "images",
    "deck-render": "render",
    "deck-judge": "judge",
}
EVERY = 0.25  # seconds between two looks
AT = 100_000  # decks, of which the page says what they cost
DECKS = sorted([*ROOT.glob("data/gold/*/deck.md"), *ROOT.glob("data/reference/*.md")])


def prompts(path: Path, count: int) -> None:
    """A file of so many prompts: ours, again and again, each asking for one thing more."""
    known = [json.loads(line) for line in (ROOT / "data/prompts.jsonl").read_text().splitlines()]
    known = [row for row in known if "core" in row["sets"] and "turns" not in row]
    with path.open("w") as file:
        for number in range(count):
            row = json.loads(json.dumps(known[number % len(known)]))
            row["id"] = f"{row['id']}.{number}"
            row["messages"][-1]["content"] += f"\n\nThis is talk {number} of the day."
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


class Pipe:
    """The stages of a run, joined by pipes, with the CPU seconds and the peak memory (MiB) of each."""

    def __init__(self, place: Path, model: str, url: str, asked: Path) -> None:
        self.place, self.asked = place, asked
        self.run = place / "runs" / model / "offline"
        self.run.mkdir(parents=True, exist_ok=True)
        shutil.copy(asked, self.run / "prompts.jsonl")
        first = ASK.format(url=url, model=model, run="{run}")
        self.lines = [line.format(run=self.run, jobs=1) for line in (first, *STAGES[1:])]
        self.names = [line.split()[0] for line in self.lines]
        self.cpu = dict.fromkeys(self.names, 0.0)
        self.peak = dict.fromkeys(self.names, 0.0)
        self.wall = 0.0

    def journal(self, name: str) -> Path:
        return self.run / "journal" / f"{JOURNALS[name]}.jsonl"

    def go(self, kill_at: float | None = None, grown: dict[str, float] | None = None) -> None:
        """All stages to their end, or until the replies have `kill_at` bytes: then all are killed. `grown` gets
        the seconds until the journal of each stage has more than it had."""
        began, looked = time.monotonic(), 0
        sizes = {name: _size(self.journal(name)) for name in JOURNALS}
        processes, spent = self._start(), dict.fromkeys(self.names, 0.0)
        over: set[str] = set()
        while len(over) < len(self.names):
            for name, process in zip(self.names, processes, strict=True):
                if name in over:
                    continue
                spent[name] = max(spent[name], used(process.pid))
                if looked % 8 == 0:
                    self.peak[name] = max(self.peak[name], memory(process.pid))
                state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
                if state == "Z":
                    over.add(name)
            for name in sizes if grown is not None else ():
                if name not in grown and _size(self.journal(name)) > sizes[name]:
                    grown[name] = time.monotonic() - began
            if kill_at and _size(self.journal("chat-generate")) >= kill_at:
                for process in processes:
                    process.kill()
            looked += 1
            time.sleep(EVERY)
        for name, process in zip(self.names, processes, strict=True):
            if process.wait() not in (0, *([-signal.SIGKILL] if kill_at else [])):
                sys.exit(f"{name} ended with {process.returncode}: {self.place}/said.txt")
            self.cpu[name] += spent[name]
        self.wall += time.monotonic() - began

    def _start(self) -> list[subprocess.Popen[bytes]]:
        environment = {
            **os.environ,
            "IMAGES": "off",
            "DECKSMITH_RENDERS": str(self.place / "renders"),
            "DECKSMITH_LOG": "",
        }
        processes: list[subprocess.Popen[bytes]] = []
        with (
            self.asked.open("rb") as source,
            (self.run / "scores.jsonl").open("wb") as scores,
            (self.place / "said.txt").open("ab") as said,
        ):
            for line in self.lines:
                name, *rest = line.split()
                process = subprocess.Popen(
                    [str(ROOT / "bin" / name), *rest],
                    stdin=processes[-1].stdout if processes else source,
                    stdout=scores if line is self.lines[-1] else subprocess.PIPE,
                    stderr=said,
                    env=environment,
                )
                if processes:
                    processes[-1].stdout.close()
                processes.append(process)
        return processes


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def link_equal(run: Path, kept: Path) -> int:
    """Make equal pictures of a run one file on the disk; returns their bytes, each counted."""
    kept.mkdir(exist_ok=True)
    total = 0
    for path in run.glob("*/slides/*.png"):
        data = path.read_bytes()
        total += len(data)
        one = kept / hashlib.sha256(data).hexdigest()
        if not one.exists():
            os.link(path, one)
            continue
        path.unlink()
        os.link(one, path)
    return total


def command(line: str, place: Path, out: str = "/dev/null", given: Path | None = None) -> Any:
    """`{cpu, wall, peak}` of a script to its end: CPU seconds, seconds, MiB of its largest process."""
    began, name, *rest = time.monotonic(), *line.split()
    with (
        (given or Path(os.devnull)).open("rb") as source,
        Path(out).open("wb") as target,
        (place / "said.txt").open("ab") as said,
    ):
        process = subprocess.Popen(
            [str(ROOT / "bin" / name), *rest],
            stdin=source,
            stdout=target,
            stderr=said,
            env={**os.environ, "IMAGES": "off"},
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{line} ended with {status}: {place}/said.txt")
    cpu = usage.ru_utime + usage.ru_stime
    return {"cpu": cpu, "wall": time.monotonic() - began, "peak": usage.ru_maxrss / 1024}


def drawn(place: Path, url: str) -> dict[str, float]:
    """Draw each deck once into the cache of renders: `{decks, cpu, report_cpu, bytes}`, CPU seconds of drawing a
    deck and of its pictures in a report, and the bytes of its pictures."""
    asked, decks = place / "first.jsonl", place / "decks"
    decks.mkdir()
    with asked.open("w") as file:
        for number, path in enumerate(DECKS):
            (decks / f"d{number}.md").write_text(path.read_text())
            row = {"id": f"d{number}", "messages": [{"role": "user", "content": f"Deck {number}"}]}
            file.write(json.dumps(row) + "\n")
    pipe = Pipe(place / "first", "reference", url, asked)
    pipe.lines[0] = (
        f"chat-generate --model reference --base-url files:{decks}/ --protocol offline --run {pipe.run}"
    )
    (place / "renders").mkdir()
    (place / "first/renders").symlink_to(place / "renders")
    pipe.go()
    size = link_equal(pipe.run, place / "pictures")
    summarized(pipe.run, place)
    done = command(f"run-report --out {place}/first/report {pipe.run}", place)
    n = len(DECKS)
    return {
        "decks": n,
        "cpu": pipe.cpu["deck-render"] / n,
        "report_cpu": done["cpu"] / n,
        "bytes": size / n,
    }


def summarized(run: Path, place: Path) -> Any:
    line = f"run-summarize --protocol offline --run {run}"
    return command(line, place, str(run / "summary.json"), run / "scores.jsonl")


def opened(page: Path) -> Any:
    """How the pinned Chromium opens a report (tests/web/speed.mjs)."""
    speed = [ROOT / ".venv/bin/node", ROOT / "tests/web/speed.mjs", page]
    return json.loads(subprocess.run(speed, capture_output=True, text=True, check=True).stdout)


def measured(place: Path, url: str, count: int) -> dict[str, Any]:
    """All figures of `count` prompts by four models."""
    asked = place / "prompts.jsonl"
    prompts(asked, count)
    stages: dict[str, Any] = {}
    size = wall = 0.0
    for model in MODELS:
        pipe = Pipe(place, model, url, asked)
        if model == MODELS[0]:
            grown: dict[str, float] = {}
            # A reply has 9,000 bytes in its journal; the half of them is near enough.
            pipe.go(kill_at=count * 4500)
            kept = pipe.journal("chat-generate").read_bytes().count(b"\n")
            pipe.go(grown=grown)
        else:
            pipe.go()
        size += link_equal(pipe.run, place / "pictures")
        wall += pipe.wall
        for name in pipe.names:
            one = stages.setdefault(name, {"cpu": 0.0, "peak": 0.0, "bytes": 0})
            one["cpu"] += pipe.cpu[name]
            one["peak"] = max(one["peak"], pipe.peak[name])
            if name in JOURNALS:
                one["bytes"] += _size(pipe.journal(name))
        stages["deck-score"]["bytes"] += _size(pipe.run / "scores.jsonl")
    stages["deck-render"]["pictures"] = size
    return {
        "prompts": count,
        "wall": wall,
        "stages": stages,
        "restart": {"kept": kept, "seconds": grown},
        **compared(place),
    }


def compared(place: Path) -> dict[str, Any]:
    """What summarizing, comparing and reporting the runs of `place` costs."""
    runs = [place / "runs" / model / "offline" for model in MODELS]
    each = [summarized(run, place) for run in runs]
    done = {"run-summarize": {key: max(one[key] for one in each) for key in ("wall", "peak")}}
    done["run-summarize"]["cpu"] = sum(one["cpu"] for one in each)
    named = " ".join(map(str, runs))
    done["run-compare"] = command(f"run-compare {named}", place)
    report = place / "report"
    done["run-report"] = command(f"run-report --out {report} {named}", place)
    done["again"] = command(f"run-report --out {report} {named}", place)
    files = [path for path in report.rglob("*") if path.is_file() and "img" not in path.parts]
    page = {"page": _size(report / "index.html"), "rest": sum(map(_size, files))}
    return {"after": done, "report": {**page, **opened(report / "index.html")}}
