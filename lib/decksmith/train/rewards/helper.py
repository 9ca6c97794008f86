"""What looks at a model's text does so in a process of its own: it parses and illustrates replies,
and scores rendered decks.

`python3 -m decksmith.train.rewards.helper RULES` reads orders on stdin, a line of JSON each, and answers
each by a line on stdout. `Helper` is the other side. An order that takes too much costs the
process, which is killed and starts again when asked.
"""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.measure.render.worker import ResourceUse

# It needs one core, and finds this package wherever it was started from.
ALONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(cli.ROOT / "lib")}
START = 120.0  # seconds that a process may take until it takes orders


class Broken(Exception):
    """No answer; `cls` is deadline, memory, crash or internal, and `model` says whether the order
    itself brought it about."""

    def __init__(self, cls: str, message: str, *, model: bool) -> None:
        super().__init__(message)
        self.cls, self.model = cls, model


class Helper:
    """One such process, started when first asked and again after it was killed. `ask` blocks; a thread at a time.

    deadline: CPU seconds of an order; memory: MB that it may add.
    """

    def __init__(self, rules: str, *, deadline: float, memory: int) -> None:
        self.rules, self.deadline, self.memory = rules, deadline, memory
        self.process: subprocess.Popen[bytes] | None = None
        self.rest = b""

    def ask(self, **order: object) -> Record:
        """The answer to an order of `answer`. Raises Broken."""
        if self.process is None or self.process.poll() is not None:
            self._start()
        assert self.process and self.process.stdin
        spent = ResourceUse(self.process.pid, self.deadline, self.memory)
        try:
            self.process.stdin.write(stream.dumps(order) + b"\n")
            self.process.stdin.flush()
        except OSError:
            self.kill()
            raise Broken("crash", "the scoring process had ended", model=False) from None
        while (line := self._line(0.1)) is None:
            if verdict := spent.verdict():
                self.kill()
                kind, cls, message = verdict
                raise Broken(cls, message, model=kind == "model")
        if not line:
            self.kill()
            raise Broken("crash", "the scoring process ended", model=False)
        said: Record = json.loads(line)
        if "broken" in said:
            raise Broken("internal", said["broken"], model=False)
        return said

    def _start(self) -> None:
        self.kill()
        self.rest = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "decksmith.train.rewards.helper", self.rules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ALONE},
            start_new_session=True,  # Ctrl-C is for us
            bufsize=0,
        )
        if not self._line(START):
            self.kill()
            raise Broken("crash", "the scoring process did not start", model=False)

    def _line(self, seconds: float) -> bytes | None:
        """The next line; None when none came within the time, b"" when there will be none."""
        assert self.process and self.process.stdout
        until = time.monotonic() + seconds
        while b"\n" not in self.rest:
            left = max(0, until - time.monotonic())
            ready, _, _ = select.select([self.process.stdout], [], [], left)
            if not ready:
                return None
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                return b""
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def end(self) -> None:
        """End the process from another thread: whoever waits for an answer gets Broken."""
        if process := self.process:
            process.kill()

    def kill(self) -> None:
        """End the process, if there is one, and let go of what it had."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
        self.process = None


def prepared(run: Path, record: Record) -> Record:
    """The record with `deck` and `images`, whose files are in the run folder; a reply without a
    deck has its fault there."""
    from decksmith.measure.decks import clean, pictures

    key = "deck"
    try:
        record[key] = clean.parse(run, record)
        key = "images"
        record[key] = pictures.illustrate(run, record, pictures.providers("drawn"))
    except stream.Fault as fault:
        record[key] = {"error": fault.error}
    return record


def main(rules_name: str) -> None:
    """Answer orders until stdin ends: {"do": "prepare" or "score", "run", "record"}."""
    from decksmith.train.rewards import components
    from decksmith.train.rewards.rules import read

    # What a library prints is no answer.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    rules = read(rules_name)
    answers.write(b"{}\n")
    for line in sys.stdin.buffer:
        order = json.loads(line)
        run, record = Path(order["run"]), order["record"]
        said: object
        try:
            if order["do"] == "prepare":
                said = prepared(run, record)
            else:
                said = components.reward(record, rules, run)
        except (Exception, RecursionError) as error:
            said = {"broken": f"{type(error).__name__}: {error}"[:500]}
        answers.write(stream.dumps(said) + b"\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except cli.Stop as stop:
        sys.exit(str(stop))
