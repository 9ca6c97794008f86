"""What looks at a model's text does so in a process of its own: it parses and illustrates replies,
and scores rendered decks.

`python3 -m decksmith.train.rewards.helper RULES FD` answers the orders, JSON, that come on a
connection. `Helper` is the other side. An order that takes too much costs the process, which is
killed and starts again when asked.
"""

import json
import os
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.measure.render.worker import ResourceUse

# It needs one core.
ALONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
START = 120.0  # seconds that a process may take until it takes orders


class HelperBroken(Exception):
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
        self.orders: Connection | None = None

    def ask(self, **order: object) -> Record:
        """The answer to an order of `answer`. Raises HelperBroken."""
        if self.process is None or self.process.poll() is not None:
            self._start()
        assert self.process and self.orders
        spent = ResourceUse(self.process.pid, self.deadline, self.memory)
        try:
            self.orders.send_bytes(stream.dumps(order))
            while not self.orders.poll(0.1):
                if verdict := spent.verdict():
                    self.kill()
                    kind, cls, message = verdict
                    raise HelperBroken(cls, message, model=kind == "model")
            said: Record = json.loads(self.orders.recv_bytes())
        except (OSError, EOFError):
            self.kill()
            raise HelperBroken("crash", "the scoring process ended", model=False) from None
        if "broken" in said:
            raise HelperBroken("internal", said["broken"], model=False)
        return said

    def _start(self) -> None:
        self.kill()
        self.orders, theirs = Pipe()
        # It finds this package wherever it was started from, and the others where we do.
        paths = [str(cli.ROOT / "lib"), *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, self.rules, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a library prints is no answer
                env={**os.environ, **ALONE, "PYTHONPATH": os.pathsep.join(paths)},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for us
            )
        try:
            if not self.orders.poll(START):
                raise EOFError
            self.orders.recv_bytes()
        except (OSError, EOFError):
            self.kill()
            raise HelperBroken("crash", "the scoring process did not start", model=False) from None

    def end(self) -> None:
        """End the process from another thread: whoever waits for an answer gets HelperBroken."""
        if process := self.process:
            process.kill()

    def kill(self) -> None:
        """End the process, if there is one, and let go of what it had."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        if self.orders:
            self.orders.close()
        self.process = self.orders = None


def prepared(run: Path, record: Record) -> Record:
    """The record with `deck` and `images`, whose files are in the run folder; a reply without a
    deck has its fault there."""
    from decksmith.measure.decks import clean, pictures

    key = "deck"
    try:
        record[key] = clean.parse(run, record)
        key = "images"
        record[key] = pictures.illustrate(run, record)
    except stream.Fault as fault:
        record[key] = {"error": fault.error}
    return record


def main(rules_name: str, descriptor: str) -> None:
    """RewardAnswer orders until there will be none: {"do": "prepare" or "score", "run", "record"}."""
    from decksmith.train.rewards.rules import read, reward

    rules = read(rules_name)
    orders = Connection(int(descriptor))
    orders.send_bytes(b"ready")
    while True:
        try:
            order = json.loads(orders.recv_bytes())
        except EOFError:
            return
        run, record = Path(order["run"]), order["record"]
        said: object
        try:
            if order["do"] == "prepare":
                said = prepared(run, record)
            else:
                said = reward(record, rules, run)
        except (Exception, RecursionError) as error:
            said = {"broken": f"{type(error).__name__}: {error}"[:500]}
        orders.send_bytes(stream.dumps(said))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except cli.Stop as stop:
        sys.exit(str(stop))
