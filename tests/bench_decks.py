"""What many decks cost, from the first request to the report: prints a page (docs/maintain/scale.md).

  tests/bench_decks.py [PROMPTS ..] [--copies N] [--pages N ..]     1,000 3,000 10,000 without numbers

Four models answer at tests/endpoint.py, from a seed: each reply is one of our decks (data/gold and
data/reference) behind a sentence of its own, or a refusal, half a deck, or one that does not compile. The
stages are the Makefile's, joined by pipes, and run for one model after the other. The first model's are
killed with SIGKILL when half of the prompts are asked, and run again. What stands in for time and disk: a
deck is drawn and read once, and comes from deck-render's cache and the journal of readings then; equal
pictures of a run become hard links once the run is done. What a deck costs the first time is measured apart.
--copies N: only N prompts go through the stages; for more, their records stand under other ids.
--pages N ..: of so many prompts the report's page alone is made, of the first size's records, and opened.
"""

import argparse
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
sys.path[:0] = [str(ROOT / "lib")]

from decksmith.core import stream  # noqa: E402
from decksmith.measure.judging import scoring  # noqa: E402
from decksmith.measure.results import (  # noqa: E402
    claims,
    report,
    report_data,
    report_pictures,
    runs,
)

MODELS = ("model-1", "model-2", "model-3", "model-4")
ASK = "chat-generate --base-url {url} --slug {model} --jobs 64 --protocol offline --run {run}"
# The journal of each stage that keeps one.
JOURNALS = {
    "chat-generate": "gen",
    "deck-parse": "deck",
    "deck-illustrate": "images",
    "deck-render": "render",
    "deck-judge": "judge",
    "deck-scan": "features",
}
PROMPT = ("id", "sets", "messages", "asks", "checklist", "sources", "turn")
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
            row["messages"][-1]["content"] += named(number)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def named(number: int) -> str:
    """What tells a request from all others, and asks for nothing: a figure would be looked for."""
    return (
        "\n\nOur word for it is " + "".join(chr(97 + int(digit)) * 2 for digit in str(number)) + "."
    )


class Pipe:
    """The stages of a run, joined by pipes, with the CPU seconds and the peak memory (MiB) of each."""

    def __init__(self, place: Path, model: str, url: str, asked: Path) -> None:
        self.place, self.asked = place, asked
        self.run = place / "runs" / model / "offline"
        (self.run / "journal").mkdir(parents=True, exist_ok=True)
        if (read := place / "first/runs/reference/offline/journal/reads.jsonl").exists():
            shutil.copy(read, self.run / "journal")
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
    """Draw each deck once into the cache of renders: `{decks, cpu, judge_cpu, report_cpu, bytes}`, CPU seconds of
    drawing a deck, of reading and judging it, and of its pictures in a report, and the bytes of its pictures."""
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
        "judge_cpu": pipe.cpu["deck-judge"] / n,
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


def copied(place: Path, source: Path, count: int) -> None:
    """The runs of `source` in `place`, with `count` records each: theirs, again and again, under other ids."""
    for model in MODELS:
        old = source / "runs" / model / "offline"
        run = place / "runs" / model / "offline"
        shutil.copytree(old, run, copy_function=os.link, ignore=lambda *_: ["journal"])
        for name in ("scores.jsonl", "summary.json", "prompts.jsonl"):
            (run / name).unlink()
        records = [json.loads(line) for line in (old / "scores.jsonl").open()]
        with (
            (run / "scores.jsonl").open("wb") as scores,
            (run / "prompts.jsonl").open("wb") as asked,
        ):
            for number in range(count):
                record = json.loads(json.dumps(records[number % len(records)]))
                record["id"] = f"{record['id'].partition('.')[0]}.{number}"
                gen = record["gen"]
                record["messages"][-1]["content"] += named(number)
                gen.get("sample", {})["of"] = record["id"]
                if "request" in gen:
                    sent = {"messages": record["messages"], **gen["sampling"]}
                    gen["request"] = stream.fingerprint(sent)
                inputs = ["score", scoring.weighed(record)]
                record["score"]["by"]["inputs"] = stream.fingerprint(inputs)
                scores.write(stream.dumps(record) + b"\n")
                row = {key: record[key] for key in PROMPT if key in record}
                asked.write(stream.dumps(row) + b"\n")


def page_alone(place: Path, source: Path, count: int) -> Any:
    """How the page of `count` prompts opens, made of the records of `source` under other ids; what it says of them is said of those."""
    loaded = runs.load([source / "runs" / model / "offline" for model in MODELS])
    shutil.copytree(source / "report/img", place / "img", copy_function=os.link)
    pictures = report_pictures.in_folder(place, loaded)
    shown, found = report._shown(loaded, said := claims.compare(loaded), None), []
    for run in loaded:
        own = [*runs.whole(run)]
        more = (
            {
                **own[n % len(own)],
                "id": f"p{n}",
                "gen": own[n % len(own)]["gen"] | {"sample": {"of": f"p{n}", "k": 0}},
            }
            for n in range(count)
        )
        found.append(
            {key: value for key, value in run.items() if key != "made_from"} | {"records": more}
        )
    later = report_data.Later(place / "later")
    data = report_data.data(found, pictures, said, later) | {"live": None, "key": "k"}
    shown |= {"plots": [], "docs": None, "send": False}
    stream.write(place / "index.html", report._html(shown, data, later))
    files = sum(path.stat().st_size for path in (place / "later").iterdir())
    page = _size(place / "index.html")
    return {"page": page, "rest": page + files, **opened(place / "index.html")}


def compared(place: Path) -> dict[str, Any]:
    """What summarizing, comparing and reporting the runs of `place` costs."""
    folders = [place / "runs" / model / "offline" for model in MODELS]
    each = [summarized(run, place) for run in folders]
    done = {"run-summarize": {key: max(one[key] for one in each) for key in ("wall", "peak")}}
    done["run-summarize"]["cpu"] = sum(one["cpu"] for one in each)
    named = " ".join(map(str, folders))
    done["run-compare"] = command(f"run-compare {named}", place)
    report = place / "report"
    done["run-report"] = command(f"run-report --out {report} {named}", place)
    done["again"] = command(f"run-report --out {report} {named}", place)
    files = [path for path in report.rglob("*") if path.is_file() and "img" not in path.parts]
    page = {"page": _size(report / "index.html"), "rest": sum(map(_size, files))}
    opens = {**page, **opened(report / "index.html")}
    return {"after": done, "report": opens, "load": os.getloadavg()[1]}


def table(rows: list[list[str]]) -> str:
    head, *rest = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, f"|---|{'---:|' * (len(rows[0]) - 1)}", *rest])


def paged(first: Any, found: list[dict[str, Any]], pages: list[dict[str, Any]]) -> str:
    """The page of what was measured, the smallest size first."""
    asked = [one for one in found if "stages" in one]
    largest, last = asked[-1], found[-1]
    decks, all_decks = len(MODELS) * largest["prompts"], len(MODELS) * last["prompts"]
    rows = [["step", "CPU s a deck", *[f"MiB, {one['prompts']:,}" for one in found], "kB a deck"]]
    hours = {}
    for name, one in largest["stages"].items():
        cpu, size = one["cpu"] / decks, one["bytes"] / decks / 1e3
        peaks = [f"{o['stages'][name]['peak']:.0f}" if "stages" in o else "" for o in found]
        if name == "deck-render":
            size += first["bytes"] / 1e3
            rows.append([f"{name}, drawn before", f"{cpu:.3f}", *peaks, ""])
            name, cpu, peaks = f"{name}, drawn now", first["cpu"], [""] * len(found)
        if name == "deck-judge":
            rows.append([f"{name}, read before", f"{cpu:.3f}", *peaks, ""])
            name, cpu, peaks = f"{name}, read now", first["judge_cpu"], [""] * len(found)
        hours[name] = cpu
        rows.append([name, f"{cpu:.3f}", *peaks, f"{size:.1f}" if size else ""])
    for name, one in last["after"].items():
        cpu = one["cpu"] / all_decks
        peaks = [f"{o['after'][name]['peak']:.0f}" for o in found]
        size = f"{(last['report']['rest']) / all_decks / 1e3:.1f}" if name == "run-report" else ""
        title = {"run-report": "run-report, pictures there", "again": "run-report again"}.get(
            name, name
        )
        rows.append([title, f"{cpu:.4f}", *peaks, size])
        hours[title] = cpu if name != "again" else 0.0
    pictures = first["report_cpu"]
    rows.append(["run-report, its pictures", f"{pictures:.3f}", *[""] * len(found), ""])
    hours["run-report, its pictures"] = pictures
    costly = sorted(hours.items(), key=lambda item: -item[1])[:3]
    total = sum(hours.values()) * AT / 3600
    kept = float(first["bytes"]) + sum(one["bytes"] for one in largest["stages"].values()) / decks
    restart = largest["restart"]
    news = ", ".join(f"{name} {seconds:.0f}" for name, seconds in restart["seconds"].items())
    opens = [
        [
            "decks",
            "page, MB",
            "answers, ms",
            "CPU ms until then",
            "JS heap, MiB",
            "nodes",
            "in files beside it, MB",
        ]
    ]
    for one in [*found, *pages]:
        said = one["report"]
        opens.append(
            [
                f"{len(MODELS) * one['prompts']:,}",
                f"{said['page'] / 1e6:.1f}",
                f"{said['ready_ms']:.0f}",
                f"{said['cpu_ms']:.0f}",
            ]
            + [
                f"{said['heap_mib']:.0f}",
                f"{said['nodes']:,}",
                f"{(said['rest'] - said['page']) / 1e6:.0f}",
            ]
        )
    alone = " Of the largest the page alone was made, of a smaller one's records." if pages else ""
    copies = [one["prompts"] for one in found if "stages" not in one]
    said = (
        f" For {' and '.join(f'{n:,}' for n in copies)} prompts the records of {largest['prompts']:,} stand under other ids."
        if copies
        else ""
    )
    return f"""# At 100,000 decks

Written by `make bench-decks` on {os.cpu_count()} cores: prompts by four models of a scripted endpoint, through all stages. A deck is
drawn and read once and then taken from where that is kept; equal pictures become hard links.{said}
Load at the end: {last["load"]:.0f}.

{table(rows)}

MiB: the most that a step's processes held, by the number of prompts; of run-summarize one model, of the last four all models.

100,000 decks take **{total:.0f} core hours** and {kept * AT / 1e9:.0f} GB. Most of it: {", ".join(f"{name} {cpu * AT / 3600:.0f} h" for name, cpu in costly)}; the first of
these is the next bottleneck. In memory run-compare takes {_scaled(found, "run-compare")}, run-report {_scaled(found, "run-report")}.

Minutes by the clock: {largest["wall"] / 60:.1f} for {decks:,} decks through the stages; for {all_decks:,}, {last["after"]["run-compare"]["wall"] / 60:.1f} to compare
and {last["after"]["run-report"]["wall"] / 60:.1f} to report.

## Killed in the middle

All stages of a run were killed (SIGKILL) with {restart["kept"]:,} of {largest["prompts"]:,} replies kept. Typed again, each had its first new work after
so many seconds: {news}. That is {1000 * max(restart["seconds"].values()) / restart["kept"]:.0f} ms for each deck that was kept, which
goes through all stages again: its record is read and checked, its pictures are looked at, and nothing is made.

## Opening the report

The pinned Chromium opens it from disk; the CPU time is its main thread's.{alone}

{table(opens)}
"""


def _scaled(found: list[dict[str, Any]], name: str) -> str:
    """The memory at AT decks by a line through the smallest and the largest size."""
    if len(found) < 2:
        return "nobody knows how much (one size was measured)"
    (a, low), (b, high) = [
        (one["prompts"] * len(MODELS), one["after"][name]["peak"]) for one in (found[0], found[-1])
    ]
    slope = (high - low) / (b - a)
    return f"{(high + slope * (AT - b)) / 1024:.1f} GB ({1024 * slope:.0f} kB a deck)"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("prompts", nargs="*", type=int)
    options.add_argument("--copies", type=int, help="Prompts that go through the stages.")
    options.add_argument("--pages", nargs="*", type=int, default=[], help="Pages made alone.")
    options.add_argument("--place", type=Path, default=ROOT / "results/bench-decks")
    args = options.parse_args()
    place = args.place
    endpoint = [ROOT / "tests/endpoint.py", "--decks", place / "decks"]
    if not (place / "first.json").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "first.json").write_text(json.dumps(drawn(place, "")))
    server = subprocess.Popen([sys.executable, *endpoint], stdout=subprocess.PIPE, text=True)
    found = []
    try:
        url = server.stdout.readline().strip()
        sizes = args.prompts or [1_000, 3_000, 10_000]
        for count in sorted({*sizes, *([args.copies] if args.copies else [])}):
            folder, kept = place / str(count), place / f"{count}.json"
            if not kept.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                (folder / "first").symlink_to(place / "first")
                (folder / "renders").symlink_to(place / "renders")
                if args.copies and count > args.copies:
                    copied(folder, place / str(args.copies), count)
                    made = {"prompts": count, **compared(folder)}
                else:
                    made = measured(folder, url, count)
                kept.write_text(json.dumps(made))
            found.append(json.loads(kept.read_text()))
    finally:
        server.kill()
        server.wait()
    pages = []
    for count in args.pages:
        if not (kept := place / f"page-{count}.json").exists():
            folder = place / f"page-{count}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            opens = page_alone(folder, place / str(found[0]["prompts"]), count)
            kept.write_text(json.dumps({"prompts": count, "report": opens}))
        pages.append(json.loads(kept.read_text()))
    print(paged(json.loads((place / "first.json").read_text()), found, pages))


if __name__ == "__main__":
    main()
