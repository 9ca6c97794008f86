"""Checkpoints of a training run, each evaluated once while the training goes on, and the lines of the curve.

RUN/curve/step_N.json is what is known of checkpoint N: without `metrics` or `gap` it waits. curve.jsonl and the plot are made
of those files, and of nothing else.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from decksmith.core import cli, stream
from decksmith.training import curve, hacking, processes, recipes

PRINTED = 64 << 20  # bytes of a command's output
# Of no other checkpoint would these come out differently: usage, a command that is not there or cannot be run, configuration.
WRONG = {
    2: "was called wrongly",
    78: "is configured wrongly",
    126: "cannot be run",
    127: "is not there",
}
HOPELESS = 65  # of this checkpoint alone: an adapter that changes nothing, say
NEVER_LINKS = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}
# What of a state goes on the curve.
LINE = (
    "step",
    "metrics",
    "partial",
    "gap",
    "message",
    "loss",
    "val_loss",
    "attempts",
    "seconds",
    "at",
    "checkpoint",
)

State = dict[str, Any]  # of RUN/curve/step_N.json


class Checkpoint(NamedTuple):
    """A checkpoint that the trainer has finished; `info` is its training_info.json."""

    step: int
    path: Path
    info: dict[str, Any]


def finished(folder: Path | str) -> list[Checkpoint]:
    """The finished checkpoints in a folder, by step."""
    found = []
    for path in Path(folder).glob("step_*"):
        with contextlib.suppress(OSError, ValueError):
            step = int(path.name.removeprefix("step_"))
            info = json.loads((path / "training_info.json").read_text())
            found.append(Checkpoint(step, path, info))
    return sorted(found, key=lambda one: one.step)


def watch(
    run: Path | str,
    command: list[str],
    *,
    once: bool = False,
    tries: int = 3,
    every: float = 15.0,
    told: Callable[[str], Any] = print,
    rule: hacking.Rule | None = None,
) -> int:
    """Run `command` for each finished checkpoint of the training run in `run`; returns the exit status.

    The newest first, since it says whether the training is worth going on; what lies behind it is filled in when there is
    time. The command gets CKPT_STEP, CKPT_ID (a name that no other weights have), CKPT_PATH (the checkpoint's folder) and
    CKPT_RUN: a run folder that holds this checkpoint alone, by hard links, so that the trainer's own pruning (keep_top_k)
    takes nothing away under it; optimizer states are not in it. It goes afterwards. What the command prints as its last JSON
    object are the metrics. It is tried `tries` times, later each time, and then it is a gap with a name.

    Ends when nothing waits and the training is complete, or `once`: 0, or 75 with a gap. every: seconds between two looks.
    told: gets each line of the curve when it is new. rule: what it finds on the curve is said. Raises cli.BadConfig for a
    command that fails whatever the checkpoint, cli.BadData where the rule stops the training, cli.Missing, cli.TryAgain.
    """
    run = Path(run).resolve()
    folder = run if run.name == "checkpoints" else run / "checkpoints"
    run = folder.parent
    if not run.is_dir():
        raise cli.Missing(f"there is no {run}; sft-config makes the folder of a run")
    home = run / "curve"
    home.mkdir(exist_ok=True)
    with open(home / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise cli.TryAgain(
                f"another ckpt-watch works in {home}; wait for it, or stop it"
            ) from None
        return _Watch(run, folder, home, command, tries, every, told, rule).go(once)


class _Watch:
    def __init__(
        self,
        run: Path,
        folder: Path,
        home: Path,
        command: list[str],
        tries: int,
        every: float,
        told: Callable[[str], Any],
        rule: hacking.Rule | None,
    ):
        self.run, self.folder, self.home, self.command = run, folder, home, command
        self.tries, self.every, self.told, self.rule = tries, every, told, rule
        self.found: set[hacking.Finding] = set()  # what was said of the curve
        self.later: dict[int, float] = {}  # {step: time.monotonic() from which it is tried again}
        self.said = ""  # what is waited for
        self.known: dict[int, State] = {}
        self.seen: dict[int, tuple[int, ...]] = {}  # {step: its folder}: weights are read once
        for path in home.glob("step_*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                state = json.loads(path.read_text())
                self.known[state["step"]] = state

    def go(self, once: bool) -> int:
        found = self._discover()
        if once and not found:
            raise cli.Missing(f"there is no finished checkpoint in {self.folder}")
        self._curve()
        self._hacked()
        while True:
            for state in self._waiting():
                if self._marks(state["step"]).exists():  # of a watcher that was killed
                    self._attempt(state)
            now = time.monotonic()
            waiting = self._waiting()
            ready = [state for state in waiting if self.later.get(state["step"], 0) <= now]
            if ready:
                self._attempt(min(ready, key=lambda one: (len(one["failures"]), -one["step"])))
            elif not waiting and (once or self._is_complete(found)):
                return self._tally()
            else:
                if not waiting:
                    self._say_wait(found)
                time.sleep(self.every)
            found = self._discover()

    def _say_wait(self, found: list[Checkpoint]) -> None:
        """What is waited for, once."""
        what = f"the checkpoint after step {found[-1].step}" if found else "the first checkpoint"
        line = f"waiting for {what} in {self.folder}: a look every {self.every:g} s, Ctrl-C ends it"
        if line != self.said:
            self.said = line
            cli.say(line)

    def _waiting(self) -> list[State]:
        return [state for state in self.known.values() if not _is_over(state)]

    # What there is

    def _discover(self) -> list[Checkpoint]:
        """Note new checkpoints, and those that went before their turn; returns the finished ones."""
        found = finished(self.folder)
        for one in found:
            self._note(one)
        there = {one.step for one in found}
        for state in self._waiting():
            if state["step"] not in there and not self._marks(state["step"]).exists():
                self._pruned(state)
        return found

    def _note(self, one: Checkpoint) -> None:
        """Note a checkpoint that is new, or another one than that of before."""
        try:
            about = one.path.stat()
            seen = about.st_ino, about.st_mtime_ns, about.st_ctime_ns
            if one.step in self.known and self.seen.get(one.step) == seen:
                return
            identity = _identity(one.path)
        except OSError:  # being removed
            return
        self.seen[one.step] = seen
        old = self.known.get(one.step)
        if old and old["checkpoint"] == identity:
            return
        if old:
            kept = self.home / f"old-step_{one.step}-{old['checkpoint'][:8]}.json"
            os.replace(self._file(one.step), kept)
            cli.say(
                f"step {one.step} is another checkpoint than the one of before; that one's line is kept in {kept}. "
                f"Has the training begun anew? Then move {self.home} away"
            )
        state: State = {"step": one.step, "checkpoint": identity, "failures": []}
        known = [("loss", "train:loss"), *(("val_loss", key) for key in recipes.VAL_LOSS.values())]
        for name, key in known:
            if curve.is_number(one.info.get(key)):
                state[name] = one.info[key]
        self._keep(state)

    def _is_complete(self, found: list[Checkpoint]) -> bool:
        """Whether the newest checkpoint has all the steps that the recipe asks for."""
        if not found:
            return False
        newest = found[-1]
        for source in (self.run / "recipe.yaml", newest.path / "config.yaml"):
            with contextlib.suppress(cli.Stop, OSError):
                config = recipes.load(source)
                for section in recipes.ALGORITHMS:
                    wanted = recipes.get(config, f"{section}.max_num_steps")
                    if isinstance(wanted, int):
                        return newest.info.get("total_steps", newest.step) >= wanted
        return False

    def _file(self, step: int) -> Path:
        return self.home / f"step_{step}.json"

    def _place(self, step: int) -> Path:
        """The run folder of one checkpoint, while its command runs."""
        return self.home / f"step_{step}"

    def _log(self, step: int) -> Path:
        return self.home / f"step_{step}.log"

    def _marks(self, step: int) -> Path:
        """The folder of a command's marks (processes.py)."""
        return self._place(step) / ".watch"

    def _keep(self, state: State) -> None:
        self.known[state["step"]] = state
        stream.write(self._file(state["step"]), json.dumps(state) + "\n")

    # One evaluation

    def _attempt(self, state: State) -> None:
        """Run the command for a checkpoint, or wait for the one that a killed watcher began, and note what came out."""
        step = state["step"]
        place, marks, child = self._place(step), self._marks(step), None
        try:
            runs = processes.find(marks) is not None
            if runs or (marks / "status").exists():
                cli.say(
                    f"step {step}: the command of before {'still runs' if runs else 'has ended'}"
                )
            elif self._prepare(state):
                child = self._start(step)
            else:
                self._pruned(state)
                return
            while processes.find(marks) is not None if child is None else child.poll() is None:
                time.sleep(min(0.2, self.every))
        except KeyboardInterrupt:
            processes.end(marks, child)
            shutil.rmtree(place, ignore_errors=True)
            raise
        self._judge(state)
        shutil.rmtree(place, ignore_errors=True)

    def _prepare(self, state: State) -> bool:
        """Make the run folder that holds this checkpoint alone; False when the trainer removes it meanwhile."""
        step, place = state["step"], self._place(state["step"])
        held = place / "checkpoints" / f"step_{step}"
        shutil.rmtree(place, ignore_errors=True)
        try:
            _hold(self.folder / f"step_{step}", held)
            is_whole = _identity(held) == state["checkpoint"]
        except FileNotFoundError:
            is_whole = False
        if not is_whole:
            shutil.rmtree(place, ignore_errors=True)
            return False
        for name in ("recipe.yaml", "job.json", "data"):
            if (self.run / name).exists():
                (place / name).symlink_to(self.run / name)
        self._marks(step).mkdir()
        return True

    def _start(self, step: int) -> subprocess.Popen[bytes]:
        place, log = self._place(step), self._log(step)
        told = " ".join(" ".join(self.command).split())[:100]
        cli.say(f"step {step}: {told}; it says more in {log}")
        environment = os.environ | {
            "CKPT_STEP": str(step),
            "CKPT_RUN": str(place),
            "CKPT_PATH": str(place / "checkpoints" / f"step_{step}"),
            "CKPT_ID": self.known[step]["checkpoint"],
        }
        return processes.start(self.command, self._marks(step), environment, log)

    def _judge(self, state: State) -> None:
        """Make what a command left behind a line of the curve, a failure or a gap."""
        marks = self._marks(state["step"])
        status = processes.status(marks)
        metrics = read_metrics(marks / "printed") if status in (0, 1) else None
        tried = len(state["failures"]) + 1
        if metrics and (status == 0 or tried >= self.tries):
            news = {
                "metrics": metrics,
                "partial": status == 1,
                "attempts": tried,
                "seconds": processes.seconds(marks),
            }
            self._settle(state | news)
            return
        last = _last(self._log(state["step"]))
        if status in WRONG:
            self._give_up(state["step"], status, last)
        words = _words(status, metrics) + (f": {last}" if last else "")
        failure = {"status": status, "message": words, "at": _now()}
        state["failures"] = [*state["failures"], failure]
        if status == HOPELESS:
            self._gap(state, "refused", words)
        elif tried >= self.tries:
            self._gap(state, "failed", words)
        else:
            pause = self.every * 2**tried
            self.later[state["step"]] = time.monotonic() + pause
            self._keep(state)
            cli.say(
                f"step {state['step']}: the command {words}; again in {pause:.0f} s ({tried} of {self.tries})"
            )

    def _give_up(self, step: int, status: int, last: str) -> NoReturn:
        shutil.rmtree(self._place(step), ignore_errors=True)
        raise cli.BadConfig(
            f"the command {WRONG[status]} (status {status}): {last or self.command[0]}; nothing is noted, mend it and run this again"
        )

    def _pruned(self, state: State) -> None:
        self._gap(state, "pruned", "the trainer removed it (keep_top_k) before its turn")

    def _gap(self, state: State, kind: str, message: str) -> None:
        again = ""
        if kind != "pruned":
            again = f"; to have it tried again: rm {self._file(state['step'])}"
        cli.say(f"step {state['step']}: a gap ({kind}): {message}{again}")
        self._settle(state | {"gap": kind, "message": message, "attempts": len(state["failures"])})

    # The curve

    def _settle(self, state: State) -> None:
        state = state | {"at": _now()}
        self._keep(state)
        self._curve()
        self.told(json.dumps(_line(state)))
        self._hacked()

    def _hacked(self) -> None:
        """Say once what the rule finds on the curve. Raises cli.BadData where it stops the training."""
        if self.rule is None:
            return
        new = set(hacking.found(map(_line, self.known.values()), self.rule)) - self.found
        for one in sorted(new, key=lambda one: one.step):
            cli.say(f"step {one.step}: watch: {one.says}")
        self.found |= new
        if new and self.rule.action == "stop":
            raise cli.BadData(f"the watch says stop; end the training of {self.run}")

    def _curve(self) -> None:
        """Write curve.jsonl and the plot, where they are not what they would be."""
        lines = [_line(state) for _, state in sorted(self.known.items()) if _is_over(state)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        path = self.home / "curve.jsonl"
        is_drawn = (self.home / "curve.png").exists()
        is_same = path.exists() and path.read_text() == text
        if not lines or (is_same and is_drawn):
            return
        curve.draw(self.home, lines)
        stream.write(path, text)  # last: a watcher that was killed before it draws again

    def _tally(self) -> int:
        gaps = [state for _, state in sorted(self.known.items()) if "gap" in state]
        named = ", ".join(f"{state['step']} ({state['gap']})" for state in gaps)
        cli.say(
            f"{len(self.known) - len(gaps)} of {len(self.known)} checkpoints are on the curve, {self.home}/curve.png"
            + (f"; gaps: {named}" if gaps else "")
        )
        return 75 if any(state["gap"] != "pruned" for state in gaps) else 0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _is_over(state: State) -> bool:
    return "metrics" in state or "gap" in state


def _line(state: State) -> dict[str, Any]:
    return {key: state[key] for key in LINE if key in state}


def _words(status: int | None, metrics: dict[str, Any] | None) -> str:
    """What a command did that brought no line of the curve."""
    if status is None:
        return "was killed"
    if status == 0:
        return "printed no metrics (a JSON object)"
    if metrics:
        return "could measure a part only"
    return f"ended with status {status}"


def _identity(path: Path) -> str:
    """A name for the weights of a checkpoint: their files' names, sizes and times, which links and copies with times
    keep."""
    weights = path / "policy/weights"
    top = weights if weights.is_dir() else path
    parts: list[Any] = [path.name]
    for one in sorted(one for one in top.rglob("*") if one.is_file()):
        about = one.stat()
        parts.append([str(one.relative_to(path)), about.st_size, about.st_mtime_ns])
    return stream.fingerprint(parts)


def _hold(source: Path, target: Path) -> None:
    """Make `target` a copy of a checkpoint by hard links, without optimizer states; a symbolic link where the file system
    has none.

    Raises FileNotFoundError when the source goes away meanwhile."""

    def gone(error: OSError) -> NoReturn:
        raise error

    target.parent.mkdir(parents=True)
    try:
        for folder, names, files in os.walk(source, onerror=gone):
            names[:] = [name for name in names if name != "optimizer"]
            there = target / os.path.relpath(folder, source)
            there.mkdir()
            for name in files:
                os.link(os.path.join(folder, name), there / name)
    except OSError as error:
        if error.errno not in NEVER_LINKS:
            raise
        shutil.rmtree(target, ignore_errors=True)
        target.symlink_to(source)


def read_metrics(path: Path) -> dict[str, Any] | None:
    """The last JSON object that a command printed, or its `raw_metrics`; None without one that holds a score."""
    try:
        with open(path, "rb") as file:
            text = file.read(PRINTED).decode(errors="replace")
    except OSError:
        return None
    starts = [match.start() for match in re.finditer(r"^\{", text, re.M)]
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    for start in reversed(starts[-20:]):
        try:
            found, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if text[end:].strip():
            return None
        found = found.get("raw_metrics", found)
        has_score = isinstance(found, dict) and any(map(curve.headline, found.values()))
        return found if has_score else None
    return None


def _last(log: Path) -> str:
    """The last line that a command said, shortened."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((" ".join(line.split())[:300] for line in reversed(lines) if line.strip()), "")
