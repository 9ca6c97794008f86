"""How the drafts of a run stand, and how long the rest will take."""

import os
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from decksmith.corpus import workfolders

RECENT = 50  # finished drafts that say how fast it goes now


def standing(run: Path | str) -> dict[str, Any]:
    """Counts of drafts by state, refusals by class, drafts a minute and the seconds that are left."""
    states: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    finished, attempts = [], 0  # finished: [(ended, started)]
    folders = sorted(path.parent for path in (Path(run) / "work").glob("*/.lock"))
    for folder in folders:
        status = workfolders.load(folder)
        state = _state(folder, status)
        states[state] += 1
        attempts += status.get("attempt", 0)
        if state in ("failed", "infra"):
            classes[status.get("class", "")] += 1
        started, ended = status.get("started"), status.get("ended")
        if state in ("valid", "failed") and started and ended:
            finished.append((ended, started))
    total = max(len(folders), _seeds(Path(run)), int(os.environ.get("TOTAL") or 0))
    rate = _rate(sorted(finished)[-RECENT:], busy=states["running"] > 0)
    left = total - states["valid"] - states["failed"]
    return {
        "run": str(run),
        "total": total,
        "valid": states["valid"],
        "failed": states["failed"],
        "running": states["running"],
        "interrupted": states["interrupted"],
        "infra": states["infra"],
        "waiting": total - len(folders) + states["waiting"],
        "attempts": attempts,
        "classes": dict(classes.most_common()),
        "per_minute": rate and round(rate * 60, 2),
        "eta_seconds": rate and round(left / rate, 1),
    }


def _state(folder: Path, status: workfolders.Status) -> str:
    """The state of a draft, with what its lock says: a process may have been killed."""
    state = status.get("state", "waiting")
    if state in ("running", "refused") or (state == "waiting" and status):
        return "running" if workfolders.is_held(folder) else "interrupted"
    return state


def _seeds(run: Path) -> int:
    path = run / "seeds.jsonl"
    if not path.is_file():
        return 0
    with open(path, "rb") as lines:
        return sum(1 for line in lines if line.strip())


def _rate(last: list[tuple[str, str]], busy: bool) -> float | None:
    """Drafts a second, of [(ended, started)] sorted by their end; None without any."""
    if not last:
        return None
    until = time.time() if busy else _seconds(last[-1][0])
    since = min(_seconds(started) for _, started in last)
    return len(last) / max(until - since, 1e-3)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def watch(run: Path | str, every: float = 2.0) -> None:
    """Show `standing` on stderr until every draft is finished; one line that is rewritten on a terminal, else a line for
    each change."""
    shown, live = None, sys.stderr.isatty()
    while True:
        now = standing(run)
        line = _line(now)
        eta = ""
        if now["eta_seconds"] is not None:
            eta = f", {now['per_minute']:g} a minute, {now['eta_seconds']:.0f} s left"
        if live:
            print(f"\r\033[K{line}{eta}", end="", file=sys.stderr, flush=True)
        elif line != shown:
            print(line + eta, file=sys.stderr, flush=True)
        shown = line
        if now["valid"] + now["failed"] == now["total"]:
            if live:
                print(file=sys.stderr)
            return
        time.sleep(every)


def _line(now: dict[str, Any]) -> str:
    unfinished = ("running", "interrupted", "infra", "waiting")
    parts = [f"{now[name]} {name}" for name in unfinished if now[name]]
    classes = ", ".join(f"{name} {number}" for name, number in now["classes"].items())
    return (
        f"{now['valid']} valid, {now['failed']} failed of {now['total']}"
        f"{f' ({classes})' if classes else ''}; {', '.join(parts) or 'nothing left'}"
    )
