"""How far a stage or a whole pipeline is: one live line on a terminal, a line per tenth elsewhere.

Only the last stage of a pipe speaks. Where LIVE names a file, the stages before it append what they have done there, and the
last one speaks for all: "smol/offline: 3 of 12, answered 5, rendered 3, judged 3, 1 model fault, 2 min left". TOTAL is the number
of records.
"""

import os
import re
import shutil
import stat
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from decksmith.core import cli

DONE = {"gen": "answered", "render": "rendered", "judge": "judged"}  # stages worth a word
LINE = re.compile(r"(\w+) (\d+) (\d+)((?: \w+=\d+)*) ?")  # what a stage appends
EVERY = 0.3  # seconds between two looks, and between two lines of a stage in the file


class Progress:
    """One stage's part of the line; `key` is what the stage writes, e.g. "render"."""

    current: "Progress | None" = None  # that of the stage at work in this process

    def __init__(self, key: str) -> None:
        self.key = key
        self.total = int(os.environ.get("TOTAL") or 0) or None
        self.live = Path(os.environ["LIVE"]) if os.environ.get("LIVE") else None
        self.last = not stat.S_ISFIFO(os.fstat(1).st_mode)
        self.seen: dict[str, int] = {}  # records that came through a stage
        self.done: dict[str, int] = {}  # those that it did, and that did not fail there
        self.faults: Counter[str] = Counter()  # of this stage, by kind
        self.all_faults: dict[str, Counter[str]] = {}  # by stage
        self.started, self.told, self.tenth, self.read = time.monotonic(), 0.0, 0, 0
        self.name = cli.NAME
        self.count = self.good = 0
        self.ended = threading.Event()
        self.drawer: threading.Thread | None = None
        Progress.current = self
        if self.last and sys.stderr.isatty():
            self.drawer = threading.Thread(target=self._draw, daemon=True)
            self.drawer.start()

    def step(self, fault: str | None = None, passed: bool = False) -> None:
        """One more record came through; `fault` is the kind of its failure here, `passed`: it had failed before."""
        self.count += 1
        self.good += not (fault or passed)
        if fault:
            self.faults[fault] += 1
        if self.live and not self.last and time.monotonic() - self.told > EVERY:
            self._tell()
        if not self.last or self.drawer or not self.total:
            return
        tenth = self.count * 10 // self.total
        ends = self.live and self.count == self.total  # the stage says that line itself
        if tenth > self.tenth and not ends:
            self.tenth = tenth
            self._look()
            cli.tell(self.line())

    def warn(self, line: str) -> None:
        """Say a line about one record without tearing the live line."""
        if self.live and not self.last:
            self._append(f"! {' '.join(line.split())}\n")
        else:
            self._clear()
            cli.tell(line)

    def close(self) -> None:
        self.ended.set()
        if self.live and not self.last:
            self._tell()
        if self.drawer:
            self.drawer.join()
            self._clear()
            self.drawer = None
        if self.last:
            self._look()
        Progress.current = None

    def line(self) -> str:
        """What is done, how many faults, and how long it will take."""
        said = [f"{self.count} of {self.total}" if self.total else f"{self.count}"]
        # What has come to the end came through the other stages too: one that says less was not heard of for a while.
        known = [key for key, count in self.seen.items() if count >= self.count]
        said += [f"{word} {self.done[key]}" for key, word in DONE.items() if key in known]
        faults = sum((self.all_faults[key] for key in known), self.faults.copy())
        said += [f"{n} {kind} fault{'s' if n > 1 else ''}" for kind, n in sorted(faults.items())]
        if left := self._left():
            said.append(left)
        return f"{self.name}: {', '.join(said)}"

    def _left(self) -> str:
        """The time to go, by the pace of the slowest stage; '' while nobody knows."""
        slowest = self.count or min((count for count in self.seen.values() if count), default=0)
        if not self.total or not slowest or slowest >= self.total:
            return ""
        elapsed = time.monotonic() - self.started
        seconds = max(1.0, elapsed / slowest * (self.total - slowest))
        return f"{seconds:.0f} s left" if seconds < 90 else f"{seconds / 60:.0f} min left"

    def _tell(self) -> None:
        self.told = time.monotonic()
        kinds = " ".join(f"{kind}={n}" for kind, n in self.faults.items())
        self._append(f"{self.key} {self.count} {self.good} {kinds}\n")

    def _append(self, line: str) -> None:
        with open(self.live or os.devnull, "a") as file:
            file.write(line)

    def _look(self) -> None:
        """Read what the other stages have appended since the last look; say their warnings."""
        if not self.live or not self.live.exists():
            return
        with open(self.live, "rb") as file:
            file.seek(self.read)
            whole = file.read().rpartition(b"\n")[0]
        self.read += len(whole) + bool(whole)
        for line in whole.decode(errors="replace").split("\n"):
            if line.startswith("# "):
                self.name = line[2:]
            elif line.startswith("! "):
                self._clear()
                cli.tell(line[2:])
            elif match := LINE.fullmatch(line):
                self.seen[match[1]], self.done[match[1]] = int(match[2]), int(match[3])
                pairs = (pair.split("=") for pair in match[4].split())
                self.all_faults[match[1]] = Counter({kind: int(n) for kind, n in pairs})

    def _draw(self) -> None:
        while not self.ended.wait(EVERY):
            self._look()
            width = shutil.get_terminal_size((100, 24)).columns
            if self.count or self.total:
                sys.stderr.write(f"\r\033[K{self.line()[: width - 1]}")
                sys.stderr.flush()

    def _clear(self) -> None:
        if self.drawer:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
