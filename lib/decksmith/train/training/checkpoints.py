"""Checkpoints of a training run, each evaluated once while the training goes on, and the lines of the curve.

RUN/curve/step_N.json is what is known of checkpoint N: without `metrics` or `gap` it waits.
curve.jsonl and the plot are made of those files, and of nothing else.
"""

import contextlib
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
from typing import Any, Literal, NamedTuple, cast

from decksmith.core import cli, incoming, stream
from decksmith.train.training import curve, recipes
from decksmith.train.training.records import CurvePoint, Metrics

PRINTED = 64 << 20  # bytes of a command's output
PRUNED = "the trainer removed it (keep_top_k) before its turn"
TRIES = 3  # attempts for a checkpoint
# Of no other checkpoint would these come out differently: usage, configuration, a command that
# cannot be run or is not there.
WRONG = {2: "was called wrongly", 78: "is configured wrongly"}
WRONG |= {126: "cannot be run", 127: "is not there"}
HOPELESS = 65  # of this checkpoint alone: an adapter that changes nothing, say


Gap = Literal["pruned", "refused", "failed"]
Told = Callable[[str], object]


class State(CurvePoint):
    """RUN/curve/step_N.json: what is known of a checkpoint."""

    failures: list[str]  # evaluations that brought no line of the curve


# training_info.json of a checkpoint, by NeMo-RL's names.
TrainingInfo = dict[str, Any]


class Checkpoint(NamedTuple):
    """A checkpoint that the trainer has finished."""

    step: int
    path: Path
    info: TrainingInfo

    def measured(self, metric: str) -> float | None:
        """A number of its training_info.json, by NeMo-RL's name."""
        value = self.info.get(metric)
        return float(value) if curve.is_number(value) else None


def finished(folder: Path | str) -> list[Checkpoint]:
    """The finished checkpoints in a folder, by step."""
    found = []
    for path in Path(folder).glob("step_*"):
        with contextlib.suppress(OSError, ValueError):
            step = int(path.name.removeprefix("step_"))
            info = json.loads((path / "training_info.json").read_text())
            found.append(Checkpoint(step, path, info))
    return sorted(found, key=lambda one: one.step)


def ranked(found: list[Checkpoint], metric: str, higher: bool) -> list[Checkpoint]:
    """Those that have a metric, the best first, the newer of equals."""
    sign = -1 if higher else 1
    values = {one.step: one.measured(metric) for one in found}
    known = [(sign * value, -step) for step, value in values.items() if value is not None]
    by_step = {one.step: one for one in found}
    return [by_step[-step] for _, step in sorted(known)]


def watch(
    run: Path, command: list[str], *, once: bool = False, every: float = 15.0, told: Told = print
) -> int:
    """Run `command` for each finished checkpoint of the training run in `run`; returns the status. The newest comes first, since it
    says whether the training is worth going on. The command gets CKPT_STEP, CKPT_ID (a name that no other weights have), CKPT_PATH
    (the checkpoint's folder) and CKPT_RUN: a run folder that holds this checkpoint alone, by hard links, so that the trainer's pruning
    (keep_top_k) takes nothing away under it. The last JSON object that it prints are the metrics. It is tried TRIES times, later each
    time; then it is a gap with a name. Ends when nothing waits and the training is complete, or `once`: 0, or 75 with a gap. every:
    seconds between two looks. told: gets each new line of the curve. Raises cli.BadConfig for a command that fails whatever the
    checkpoint, cli.Missing, cli.TryAgain."""
    run = Path(run).resolve()
    if not run.is_dir():
        raise cli.Missing(f"there is no {run}; sft-config makes the folder of a run")
    (run / "curve").mkdir(exist_ok=True)
    with open(incoming.own(run / "curve/.lock", closed=0), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            who = f"another ckpt-watch works in {run}/curve, or a command that it began"
            raise cli.TryAgain(f"{who}; wait for it, or stop it") from None
        return _Watch(run, command, lock.fileno(), every, told).go(once)


class _Watch:
    def __init__(self, run: Path, command: list[str], lock: int, every: float, told: Told):
        self.run, self.folder, self.home = run, run / "checkpoints", run / "curve"
        self.command, self.lock, self.every, self.told = command, lock, every, told
        self.later: dict[int, float] = {}  # {step: time.monotonic() from which it is tried again}
        self.waited_for = ""
        self.known: dict[int, State] = {}
        for path in self.home.glob("step_*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                state = json.loads(path.read_text())
                self.known[state["step"]] = state

    def go(self, once: bool) -> int:
        found = self._discover()
        if once and not found:
            raise cli.Missing(f"there is no finished checkpoint in {self.folder}")
        self._draw()
        while True:
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
        what = f"the checkpoint after step {found[-1].step}" if found else "the first checkpoint"
        if what != self.waited_for:
            self.waited_for = what
            look = f"a look every {self.every:g} s, Ctrl-C ends it"
            cli.say(f"waiting for {what} in {self.folder}: {look}")

    def _waiting(self) -> list[State]:
        return [state for state in self.known.values() if not _is_over(state)]

    def _discover(self) -> list[Checkpoint]:
        """Note new checkpoints, and those that went before their turn; returns the finished ones."""
        found = finished(self.folder)
        for one in found:
            with contextlib.suppress(OSError):  # being removed
                self._note(one, _identity(one.path))
        there = {one.step for one in found}
        for state in self._waiting():
            if state["step"] not in there:
                self._settle_gap(state, "pruned")
        return found

    def _note(self, one: Checkpoint, identity: str) -> None:
        """Note a checkpoint that is new, or has other weights than before."""
        old = self.known.get(one.step)
        if old and old["checkpoint"] == identity:
            return
        if old:
            cli.say(
                f"step {one.step} is another checkpoint than before and is evaluated anew. "
                f"Has the training begun anew? Then move {self.home} away"
            )
        self._keep({"step": one.step, "checkpoint": identity, "failures": [], **_losses(one)})

    def _is_complete(self, found: list[Checkpoint]) -> bool:
        recipe = self.run / "recipe.yaml"
        if not found or not recipe.is_file():
            return False
        config = recipes.load(recipe)
        wanted = config[recipes.algorithm(config)]["max_num_steps"]
        return found[-1].info.get("total_steps", found[-1].step) >= wanted

    def _file(self, state: State, ending: str = "") -> Path:
        """step_N.json and step_N.log; without an ending the run folder of the checkpoint, while its command runs."""
        return self.home / f"step_{state['step']}{ending}"

    def _keep(self, state: State) -> None:
        self.known[state["step"]] = state
        stream.write(self._file(state, ".json"), json.dumps(state) + "\n")

    def _attempt(self, state: State) -> None:
        place = self._file(state)
        shutil.rmtree(place, ignore_errors=True)
        try:
            if not self._prepare(state, place):
                self._settle_gap(state, "pruned")
                return
            began = time.monotonic()
            child = self._start(state, place)
            try:
                status = child.wait()
            except KeyboardInterrupt:
                cli.end_group(child)
                raise
            self._judge(state, status, round(time.monotonic() - began, 1))
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _prepare(self, state: State, place: Path) -> bool:
        """Make the run folder of this checkpoint; False when the trainer removes it meanwhile."""
        name = f"step_{state['step']}"
        held = place / "checkpoints" / name
        try:
            _hold(self.folder / name, held)
            if _identity(held) != state["checkpoint"]:
                return False
        except FileNotFoundError:
            return False
        for name in ("recipe.yaml", "job.json", "data"):
            if (self.run / name).exists():
                (place / name).symlink_to(self.run / name)
        return True

    def _start(self, state: State, place: Path) -> subprocess.Popen[bytes]:
        step, log = state["step"], self._file(state, ".log")
        told = " ".join(" ".join(self.command).split())[:100]
        cli.say(f"step {step}: {told}; it says more in {log}")
        environment = os.environ | {
            "CKPT_STEP": str(step),
            "CKPT_RUN": str(place),
            "CKPT_PATH": str(place / "checkpoints" / f"step_{step}"),
            "CKPT_ID": state["checkpoint"],
        }
        with open(place / "printed", "wb") as printed, open(log, "ab") as errors:
            try:
                return subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=errors,
                    env=environment,
                    # It holds the lock too: a new watcher does not begin beside what a killed one left.
                    pass_fds=[self.lock],
                    start_new_session=True,
                )
            except OSError as error:
                status = 127 if isinstance(error, FileNotFoundError) else 126
                raise _wrong(status, str(error)) from None

    def _judge(self, state: State, status: int, seconds: float) -> None:
        """Make what a command left behind a line of the curve, a failure or a gap."""
        metrics = None
        if status in (0, 1):
            metrics = read_metrics(self._file(state) / "printed")
        tried = len(state["failures"]) + 1
        if metrics and (status == 0 or tried >= TRIES):
            state |= {"metrics": metrics, "partial": status == 1}
            state |= {"attempts": tried, "seconds": seconds}
            self._settle(state)
            return
        last = _last_line(self._file(state, ".log"))
        if status in WRONG:
            raise _wrong(status, last or self.command[0])
        words = "was killed" if status < 0 else f"ended with status {status}"
        if status == 0:
            words = "printed no metrics (a JSON object)"
        elif metrics:
            words = "could measure a part only"
        words += f": {last}" if last else ""
        state["failures"] = [*state["failures"], words]
        if status == HOPELESS or tried >= TRIES:
            kind: Gap = "refused" if status == HOPELESS else "failed"
            again = f"; to have it tried again: rm {self._file(state, '.json')}"
            state["attempts"] = tried
            self._settle_gap(state, kind, words, again)
            return
        pause = self.every * 2**tried
        self.later[state["step"]] = time.monotonic() + pause
        self._keep(state)
        again = f"again in {pause:.0f} s ({tried} of {TRIES})"
        cli.say(f"step {state['step']}: the command {words}; {again}")

    def _settle_gap(self, state: State, kind: Gap, message: str = PRUNED, mend: str = "") -> None:
        cli.say(f"step {state['step']}: a gap ({kind}): {message}{mend}")
        state |= {"gap": kind, "message": message}
        self._settle(state)

    def _settle(self, state: State) -> None:
        for one in finished(self.folder):  # which was validated meanwhile
            state |= _losses(one) if one.step == state["step"] else {}
        state["at"] = datetime.now(UTC).isoformat(timespec="seconds")
        self._keep(state)
        self._draw()
        self.told(json.dumps(_line(state)))

    def _draw(self) -> None:
        """Write curve.jsonl and the plot, where they are not what they would be."""
        lines = [_line(state) for _, state in sorted(self.known.items()) if _is_over(state)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        path = self.home / "curve.jsonl"
        if lines and not (path.exists() and path.read_text() == text):
            curve.draw(self.home, lines)
            stream.write(path, text)  # last: a watcher that was killed before it draws again

    def _tally(self) -> int:
        gaps = [state for _, state in sorted(self.known.items()) if "gap" in state]
        named = ", ".join(f"{state['step']} ({state['gap']})" for state in gaps)
        on_it = f"{len(self.known) - len(gaps)} of {len(self.known)} checkpoints are on the curve"
        cli.say(f"{on_it}, {self.home}/curve.png" + (f"; gaps: {named}" if gaps else ""))
        return 75 if any(state["gap"] != "pruned" for state in gaps) else 0


def _wrong(status: int, why: str) -> cli.BadConfig:
    mend = "nothing is noted, mend it and run this again"
    return cli.BadConfig(f"the command {WRONG[status]} (status {status}): {why}; {mend}")


def _losses(one: Checkpoint) -> State:
    """The losses that a checkpoint holds."""
    keys = [("loss", "train:loss"), *(("val_loss", key) for key in recipes.VAL_LOSS.values())]
    return cast(
        State, {name: loss for name, key in keys if (loss := one.measured(key)) is not None}
    )


def _is_over(state: State) -> bool:
    return "metrics" in state or "gap" in state


def _line(state: State) -> CurvePoint:
    line = {key: value for key, value in state.items() if key != "failures"}
    return cast(CurvePoint, line)


def _identity(path: Path) -> str:
    """A name for the weights of a checkpoint: their files' names, sizes and times, which links keep."""
    weights = path / "policy/weights"
    top = weights if weights.is_dir() else path
    parts: list[str | list[str | int]] = [path.name]
    for one in sorted(one for one in top.rglob("*") if one.is_file()):
        about = one.stat()
        parts.append([str(one.relative_to(path)), about.st_size, about.st_mtime_ns])
    return stream.fingerprint(parts)


def _hold(source: Path, target: Path) -> None:
    """Make `target` a copy of a checkpoint by links, without optimizer states. Raises
    FileNotFoundError when the source goes away meanwhile."""
    ignored = shutil.ignore_patterns("optimizer")
    try:
        shutil.copytree(source, target, ignore=ignored, copy_function=_link)
    except shutil.Error as error:
        raise FileNotFoundError(str(error)) from None


def _link(source: str, target: str) -> None:
    """A hard link, which the trainer's pruning leaves; a symbolic one where there are none."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        os.symlink(source, target)


def read_metrics(path: Path) -> Metrics | None:
    """The last JSON object that a command printed, or its `raw_metrics`; None without a score."""
    with open(path, "rb") as file:
        text = file.read(PRINTED).decode(errors="replace")
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


def _last_line(log: Path) -> str:
    """The last line that a command said, shortened."""
    lines = log.read_bytes()[-4096:].decode(errors="replace").split("\n")
    return next((" ".join(line.split())[:300] for line in reversed(lines) if line.strip()), "")
