"""The report of runs that are not finished, written again and again while decks come in. It counts and shows, and compares
nothing: a difference that is looked at while it grows is another test."""

import os
import sys
import time
import webbrowser
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import cast

from decksmith.core import cli, stream
from decksmith.core.progress import Progress
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.measure.decks.records import Rendered
from decksmith.measure.judging import identity
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.results import report, runs
from decksmith.measure.results.comparison import Run
from decksmith.measure.results.records import Identity
from decksmith.measure.results.report_data import Live
from decksmith.measure.results.summary import summarize

EVERY = 8.0  # seconds between two pages at least
SHARE = 20  # and so many times as long as the last one took
MOST = 1000  # decks, behind which the page waits for the end


class Follower:
    """Writes the page of `folders` into `out` while the run in `during`, one of them, goes on."""

    def __init__(self, out: Path, folders: list[Path], during: Path, protocol: Protocol) -> None:
        self.out, self.folders, self.during, self.protocol = out, folders, during, protocol
        self.records: list[DeckRecord] = []
        self.asked = _prompts(during)
        self.total = self.asked.count(b"\n")
        self.others: list[Run] | None = None
        self.next = 0.0
        self.pages = 0
        self.writer = ThreadPoolExecutor(1)
        self.writing: Future[None] | None = None

    def add(self, record: DeckRecord) -> None:
        """One more deck; the page is written beside the work, so that nothing waits for it."""
        if len(self.records) >= MOST:
            return
        self.records.append(record)
        busy = self.writing and not self.writing.done()
        if not busy and time.monotonic() >= self.next:
            self.writing = self.writer.submit(self._write, [*self.records])

    def close(self) -> None:
        """The page of all decks of this run, unless it is the last one: then the report follows."""
        self.writer.shutdown()
        if self.records and len(self._finished()) + 1 < len(self.folders):
            self._write(self.records)

    def _write(self, records: list[DeckRecord]) -> None:
        begun = time.monotonic()
        try:
            self._page(records)
        except Exception as error:  # the page of a moment: the work that it is of goes on
            stream.warn(str(self.out), f"the report so far was not written ({error})")
        self.next = time.monotonic() + max(EVERY, SHARE * (time.monotonic() - begun))

    def _page(self, records: list[DeckRecord]) -> None:
        summary = summarize(enumerate(records, 1), self.during)
        held = cast(Identity, identity.identity(self.protocol, cast(list[Record], records)))
        run = runs.of(self.during, summary, held, records)
        shown = runs.in_order([run, *self._finished()])
        live: Live = {"model": run["label"], "done": len(records), "of": self.total}
        looked_at = report.is_live(self.out)
        page, _ = report.page(self.out, shown, live=live)
        self.pages += 1
        if self.pages == 1:
            tell = Progress.current.warn if Progress.current else cli.tell
            tell(f"The report so far: file://{page.resolve()}")
            if not looked_at:
                show(page)

    def _finished(self) -> list[Run]:
        """The other runs that are finished, and that the same was asked of."""
        if self.others is None:
            others = [folder for folder in self.folders if folder != self.during]
            self.others = [run for folder in others if (run := self._other(folder))]
        return [cast(Run, {**run}) for run in self.others]  # each page names its runs anew

    def _other(self, folder: Path) -> Run | None:
        scores, prompts = folder / "scores.jsonl", folder / "prompts.jsonl"
        if not scores.is_file() or _prompts(folder) != self.asked:
            return None
        if scores.stat().st_mtime < prompts.stat().st_mtime:
            return None
        try:
            run = runs.in_folder(folder)
        except cli.Stop:
            return None
        same = run["protocol"].get("protocol") == self.protocol.name
        return run if same else None


def follow(out: Path, folders: list[Path], during: Path, protocol: str) -> None:
    """Pass the scored records on stdin through to stdout, and write the page as they come. Raises cli.BadData."""
    follower, progress = Follower(out, folders, during, Protocol.load(protocol)), Progress("report")
    try:
        for _, record in stream.records("/dev/stdin", Rendered):
            sys.stdout.buffer.write(stream.dumps(record) + b"\n")
            sys.stdout.buffer.flush()
            progress.step()
            follower.add(cast(DeckRecord, record))
    finally:
        progress.close()
    follower.close()


def show(page: Path) -> None:
    """Open a page where somebody sits before this terminal's desktop, unless OPEN=0."""
    desktop = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    here = sys.stderr.isatty() and desktop and not os.environ.get("SSH_CONNECTION")
    if here and os.environ.get("OPEN") != "0":
        webbrowser.open(page.resolve().as_uri())


def _prompts(folder: Path) -> bytes:
    """What the model of a run is asked, as it stands in its folder."""
    file = folder / "prompts.jsonl"
    return file.read_bytes() if file.is_file() else b""
