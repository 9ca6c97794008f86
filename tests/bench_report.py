"""What reports of many decks cost who opens them: prints a markdown page (docs/maintain/speed.md). `tests/bench_report.py [DECKS ..]`, 600
and 6,000 without numbers.

The decks of data/reference are rendered once, their records stand under other ids until there are enough, by two models. The pinned
Chromium opens each report from disk (tests/web/speed.mjs).
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT / "tests/web")]

import synthetic  # noqa: E402
from bench_pipeline import pipeline  # noqa: E402
from decksmith.core import stream  # noqa: E402
from decksmith.measure.results import report  # noqa: E402
from decksmith.measure.results.runs import load  # noqa: E402

MODELS = ("first", "second")


def rendered(folder: Path) -> list[dict[str, Any]]:
    """The scored records of a run of data/reference in `folder`."""
    there = {path.name.partition(".")[0] for path in (ROOT / "data/reference").iterdir()}
    prompts = [row for _, row in stream.records(ROOT / "data/prompts.jsonl") if row["id"] in there]
    asked = folder.with_name("prompts.jsonl")  # not in the folder: copies answer other prompts
    stream.write_records(asked, prompts)
    shutil.copytree(ROOT / "data/reference", folder.with_name("decks"))
    pipeline(folder, asked)
    return [record for _, record in stream.records(folder / "scores.jsonl")]


def copies(records: list[dict[str, Any]], model: str, count: int) -> list[dict[str, Any]]:
    """`count` records of a model: those of `records`, again and again, each the only one of its prompt."""
    found = []
    for number in range(count):
        record = json.loads(stream.dumps(records[number % len(records)]))
        record["id"] = f"{record['id']}.{number // len(records)}"
        record["messages"][-1]["content"] += f"\n\nThis is talk {number} of the day."
        record["gen"]["model"] = {"name": model, "slug": model, "params": {}}
        found.append(record)
    return found


def made(place: Path, source: Path, records: list[dict[str, Any]], decks: int) -> dict[str, Any]:
    """A report of so many decks, opened."""
    folders = []
    for model in MODELS:
        run = place / model
        subprocess.run(["cp", "--archive", "--link", source, run], check=True)
        folders.append(synthetic.write(run, copies(records, model, decks // len(MODELS))))
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    page, _ = report.page(place / "report", load(folders))
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    speed = [ROOT / ".venv/bin/node", ROOT / "tests/web/speed.mjs", page]
    done = subprocess.run(speed, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    pictures = sum(file.stat().st_size for file in page.parent.glob("img/*/*"))
    whole = sum(file.stat().st_size for file in page.parent.rglob("*") if file.is_file())
    return {
        "decks": decks,
        "cpu": cpu,
        "wall": time.monotonic() - began,
        "page": page.stat().st_size,
        "pictures": pictures / len(records),
        "rest": (whole - pictures) / decks,
        **json.loads(done.stdout),
    }


def main(sizes: list[int]) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-report-") as folder:
        source = Path(folder, "source")
        source.mkdir()
        records = rendered(source)
        rows = []
        for decks in sizes:
            place = Path(folder, str(decks))
            place.mkdir()
            rows.append(made(place, source, records, decks))
    slides = sum(len(record["render"]["slides"]) for record in records) / len(records)
    print("# Reports of many decks\n")
    print(
        f"Written by `make bench-report` on {os.cpu_count()} cores: the {len(records)} decks of data/reference ({slides:.1f} slides each) "
        "under many ids, by two models. The pinned Chromium opens the page from disk; the middle of three visits. "
        f"Load at the end: {os.getloadavg()[1]:.1f}.\n"
    )
    print(
        "| decks | parsed, ms | answers, ms | JS heap, MiB | scrolled through | nodes | page, MB | pictures a deck, kB | else a deck, kB "
        "| made in CPU s |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for row in rows:
        print(
            f"| {row['decks']:,} | {row['parsed_ms']:.0f} | {row['ready_ms']:.0f} | {row['heap_mib']:.0f} | {row['scrolled_mib']:.0f} "
            f"| {row['nodes']:,.0f} | {row['page'] / 1e6:.1f} | {row['pictures'] / 1e3:.0f} | {row['rest'] / 1e3:.1f} | {row['cpu']:.1f} |"
        )


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [600, 6000])
