"""Checkpoints of a training run, each evaluated once while the training goes on, and the curve of what came out.

RUN/curve/step_N.json is what is known of checkpoint N: without `metrics` or `gap` it waits. A command that runs is a process group whose
end is a file, so that a watcher that was killed finds it again. curve.jsonl and the plot are made of those files, and of nothing else.
"""

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

from decksmith.core import cli, stream
from decksmith.training import adapter

PRINTED = 64 << 20  # bytes of a command's output
# Of no other checkpoint would these come out differently: usage, a command that is not there or cannot be run, configuration.
WRONG = {
    2: "was called wrongly",
    78: "is configured wrongly",
    126: "cannot be run",
    127: "is not there",
}
HOPELESS = 65  # of this checkpoint alone: an adapter that changes nothing, say
PANELS = 12
CHOSEN = "#c2912b"
BESIDE = {
    "num_entries",
    "avg_tokens",
    "gen_seconds",
    "no_answer",
    "std_err",
    "coverage",
    "truncated",
}  # of a mode, and no score
NEVER_LINKS = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


def watch(run, command, *, once=False, tries=3, every=15.0, told=print):
    """Run `command` (a list of words) for each finished checkpoint of the training run in `run`, the newest first; returns the exit status.

    The newest first, since it says whether the training is worth going on; what lies behind it is filled in when there is time.
    The command gets CKPT_STEP, CKPT_ID (a name that no other weights have), CKPT_PATH (the checkpoint's folder) and CKPT_RUN: a run folder that holds this checkpoint alone, by hard
    links, so that the trainer's own pruning (keep_top_k) takes nothing away under it; optimizer states are not in it. It goes afterwards.
    What it prints as its last JSON object are the metrics. It is tried `tries` times, later each time, and then a gap with a name.
    Ends when nothing waits and the training is complete, or `once`: 0, or 75 with a gap. told: gets each line of the curve when it is new.
    Raises cli.BadConfig for a command that fails whatever the checkpoint, cli.Missing, cli.TryAgain.
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
        return _Watch(run, folder, home, command, tries, every, told).go(once)


class _Watch:
    def __init__(self, run, folder, home, command, tries, every, told):
        self.run, self.folder, self.home, self.command = run, folder, home, command
        self.tries, self.every, self.told = tries, every, told
        self.later = {}  # step -> time.monotonic() before which it is not tried again
        self.known, self.seen = (
            {},
            {},
        )  # by step: what its file says; its folder, so that weights are looked at once
        for path in home.glob("step_*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                state = json.loads(path.read_text())
                self.known[state["step"]] = state

    def go(self, once):
        found = self._discover()
        if once and not found:
            raise cli.Missing(f"there is no finished checkpoint in {self.folder}")
        self._curve()
        while True:
            for state in self._waiting():
                if (
                    self.home / f"step_{state['step']}/.watch"
                ).exists():  # of a watcher that was killed
                    self._attempt(state)
            ready = [
                state
                for state in self._waiting()
                if self.later.get(state["step"], 0) <= time.monotonic()
            ]
            if ready:
                self._attempt(
                    min(ready, key=lambda state: (len(state["failures"]), -state["step"]))
                )
            elif not self._waiting() and (once or self._complete(found)):
                return self._tally()
            else:
                time.sleep(self.every)
            found = self._discover()

    def _waiting(self):
        return [state for state in self.known.values() if not _over(state)]

    # What there is

    def _discover(self):
        """Note new checkpoints, and those that went before their turn; returns the finished ones, [(step, path, info)]."""
        found = adapter.checkpoints(self.folder)
        for step, path, info in found:
            try:
                about = path.stat()
                seen = about.st_ino, about.st_mtime_ns, about.st_ctime_ns
                if step in self.known and self.seen.get(step) == seen:
                    continue
                identity = _identity(path)
            except OSError:  # being removed
                continue
            self.seen[step] = seen
            state = self.known.get(step)
            if state and state["checkpoint"] == identity:
                continue
            if state:
                os.replace(
                    self._file(step), self.home / f"old-step_{step}-{state['checkpoint'][:8]}.json"
                )
                cli.say(
                    f"step {step} is another checkpoint than the one of before; that one's line is kept in {self.home}/old-step_{step}-{state['checkpoint'][:8]}.json. "
                    f"Has the training begun anew? Then move {self.home} away"
                )
            self._keep(
                {
                    "step": step,
                    "checkpoint": identity,
                    "failures": [],
                    **{
                        name: value
                        for name, value in (
                            ("loss", info.get("train:loss")),
                            ("val_loss", info.get("val:val_loss")),
                        )
                        if _number(value)
                    },
                }
            )
        there = {step for step, *_ in found}
        for state in self._waiting():
            if (
                state["step"] not in there
                and not (self.home / f"step_{state['step']}/.watch").exists()
            ):
                self._pruned(state)
        return found

    def _complete(self, found):
        """Whether the newest checkpoint has all the steps that the recipe asks for."""
        from decksmith.training import recipes

        if not found:
            return False
        _, path, info = found[-1]
        for source in (self.run / "recipe.yaml", path / "config.yaml"):
            with contextlib.suppress(cli.Stop, OSError):
                config = recipes.load(source)
                for section in ("sft", "grpo", "dpo"):
                    if isinstance(wanted := recipes.get(config, f"{section}.max_num_steps"), int):
                        return info.get("total_steps", found[-1][0]) >= wanted
        return False

    def _file(self, step):
        return self.home / f"step_{step}.json"

    def _keep(self, state):
        self.known[state["step"]] = state
        stream.write(self._file(state["step"]), json.dumps(state) + "\n")

    # One evaluation

    def _attempt(self, state):
        """Run the command for a checkpoint, or wait for the one that a killed watcher began, and note what came out."""
        step = state["step"]
        place, log, child = self.home / f"step_{step}", self.home / f"step_{step}.log", None
        kept = place / ".watch"
        try:
            if _alive(kept) or (kept / "status").exists():
                cli.say(
                    f"step {step}: the command of before {'still runs' if _alive(kept) else 'has ended'}"
                )
            else:
                shutil.rmtree(place, ignore_errors=True)
                try:
                    _hold(
                        self.folder / f"step_{step}", held := place / "checkpoints" / f"step_{step}"
                    )
                    if _identity(held) != state["checkpoint"]:
                        raise FileNotFoundError
                except FileNotFoundError:
                    shutil.rmtree(place, ignore_errors=True)
                    return self._pruned(state)
                for name in ("recipe.yaml", "job.json", "data"):
                    if (self.run / name).exists():
                        (place / name).symlink_to(self.run / name)
                kept.mkdir()
                cli.say(
                    f"step {step}: {' '.join(' '.join(self.command).split())[:100]}; it says more in {log}"
                )
                child = self._start(place, kept, log, step)
            while child.poll() is None if child else _alive(kept):
                time.sleep(min(0.2, self.every))
        except KeyboardInterrupt:
            _end(kept, child)
            shutil.rmtree(place, ignore_errors=True)
            raise
        self._judge(state, place, log)
        shutil.rmtree(place, ignore_errors=True)

    def _start(self, place, kept, log, step):
        """The command as a process group. Its shell notes first who it is and last how the command ended, whoever still watches then."""
        environment = os.environ | {
            "CKPT_STEP": str(step),
            "CKPT_RUN": str(place),
            "CKPT_PATH": str(place / "checkpoints" / f"step_{step}"),
            "CKPT_ID": self.known[step]["checkpoint"],
        }
        (kept / "host").write_text(socket.gethostname())
        script = (
            'kept=$1 && shift && cat /proc/$$/stat > "$kept/stat" && { "$@" > "$kept/printed"; echo $? > "$kept/status.tmp"; } '
            '&& mv "$kept/status.tmp" "$kept/status"'
        )
        with open(log, "ab") as errors:
            return subprocess.Popen(
                ["/bin/sh", "-c", script, "sh", str(kept), *self.command],
                stdout=errors,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    def _judge(self, state, place, log):
        """Make what a command left behind a line of the curve, a failure or a gap."""
        kept = place / ".watch"
        try:
            status = int((kept / "status").read_text())
        except (OSError, ValueError):
            status = None
        metrics = _metrics(kept / "printed") if status in (0, 1) else None
        if metrics and (status == 0 or len(state["failures"]) + 1 >= self.tries):
            seconds = max(
                0.0, round((kept / "status").stat().st_mtime - (kept / "stat").stat().st_mtime, 1)
            )
            return self._settle(
                state
                | {
                    "metrics": metrics,
                    "partial": status == 1,
                    "attempts": len(state["failures"]) + 1,
                    "seconds": seconds,
                }
            )
        last = _last(log)
        words = (
            "was killed"
            if status is None
            else "printed no metrics (a JSON object)"
            if status == 0
            else "could measure a part only"
            if metrics
            else f"ended with status {status}"
        )
        if status in WRONG:
            shutil.rmtree(place, ignore_errors=True)
            raise cli.BadConfig(
                f"the command {WRONG[status]} (status {status}): {last or self.command[0]}; nothing is noted, mend it and run this again"
            )
        words += f": {last}" if last else ""
        state["failures"] = [*state["failures"], {"status": status, "message": words, "at": _now()}]
        tried = len(state["failures"])
        if status == HOPELESS or tried >= self.tries:
            return self._gap(state, "refused" if status == HOPELESS else "failed", words)
        self.later[state["step"]] = time.monotonic() + self.every * 2**tried
        self._keep(state)
        cli.say(
            f"step {state['step']}: the command {words}; again in {self.every * 2**tried:.0f} s ({tried} of {self.tries})"
        )

    def _pruned(self, state):
        self._gap(state, "pruned", "the trainer removed it (keep_top_k) before its turn")

    def _gap(self, state, kind, message):
        again = (
            "" if kind == "pruned" else f"; to have it tried again: rm {self._file(state['step'])}"
        )
        cli.say(f"step {state['step']}: a gap ({kind}): {message}{again}")
        self._settle(state | {"gap": kind, "message": message, "attempts": len(state["failures"])})

    # The curve

    def _settle(self, state):
        state = state | {"at": _now()}
        self._keep(state)
        self._curve()
        self.told(json.dumps(_line(state)))

    def _curve(self):
        lines = [_line(state) for _, state in sorted(self.known.items()) if _over(state)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        path = self.home / "curve.jsonl"
        if (
            not lines
            or path.exists()
            and path.read_text() == text
            and (self.home / "curve.png").exists()
        ):
            return
        draw(self.home, lines)
        stream.write(path, text)  # last: a watcher that was killed before it draws again

    def _tally(self):
        gaps = [state for _, state in sorted(self.known.items()) if "gap" in state]
        named = ", ".join(f"{state['step']} ({state['gap']})" for state in gaps)
        cli.say(
            f"{len(self.known) - len(gaps)} of {len(self.known)} checkpoints are on the curve, {self.home}/curve.png"
            + (f"; gaps: {named}" if gaps else "")
        )
        return 75 if any(state["gap"] != "pruned" for state in gaps) else 0


def _now():
    return datetime.now(UTC).isoformat(timespec="seconds")


def _over(state):
    return "metrics" in state or "gap" in state


def _line(state):
    return {
        key: state[key]
        for key in (
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
        if key in state
    }


def _identity(path):
    """A name for the weights of a checkpoint: their files' names, sizes and times, which links and copies with times keep."""
    weights = path / "policy/weights"
    files = sorted(
        one for one in (weights if weights.is_dir() else path).rglob("*") if one.is_file()
    )
    return stream.fingerprint(
        [
            path.name,
            *(
                [str(one.relative_to(path)), one.stat().st_size, one.stat().st_mtime_ns]
                for one in files
            ),
        ]
    )


def _hold(source, target):
    """Make `target` a copy of a checkpoint by hard links, without optimizer states; a symbolic link where the file system has none.

    Raises FileNotFoundError when the source goes away meanwhile."""

    def gone(error):
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


def _began(pid):
    """When a process began, as the kernel counts it; None when it is gone or a zombie."""
    try:
        return _counted(Path(f"/proc/{pid}/stat").read_text())[1]
    except (OSError, IndexError):
        return None


def _counted(stat):
    """(pid, when it began or None for a zombie) of a line of /proc/PID/stat (proc(5): field 22)."""
    fields = stat.rpartition(")")[2].split()
    return int(stat.split()[0]), None if fields[0] == "Z" else fields[19]


def _process(kept):
    """The pid of the command whose marks are in `kept` if it runs on this machine, else None."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid, began = _counted((kept / "stat").read_text())
        return (
            pid
            if (kept / "host").read_text() == socket.gethostname() and _began(pid) == began
            else None
        )
    return None


def _alive(kept):
    return _process(kept) is not None


def _end(kept, child):
    """TERM to the command's process group, KILL to what is left of it half a minute later."""
    pid = child.pid if child else _process(kept)
    for number, patience in ((signal.SIGTERM, 30), (signal.SIGKILL, 5)) if pid else ():
        deadline = time.monotonic() + patience
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
            while time.monotonic() < deadline:
                if child:
                    child.poll()
                os.killpg(pid, 0)
                time.sleep(0.1)
            continue
        return


def _metrics(path):
    """The last JSON object that a command printed, or its `raw_metrics`; None without one that holds a score."""
    try:
        with open(path, "rb") as file:
            text = file.read(PRINTED).decode(errors="replace")
    except OSError:
        return None
    starts = [match.start() for match in re.finditer(r"^\{", text, re.M)]
    for start in reversed(starts[-20:]):
        with contextlib.suppress(ValueError, RecursionError):
            found, end = json.JSONDecoder(parse_constant=lambda _: None).raw_decode(text, start)
            if text[end:].strip():
                return None
            found = found.get("raw_metrics", found)
            return found if isinstance(found, dict) and any(map(headline, found.values())) else None
    return None


def _number(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _last(log):
    """The last line that a command said, shortened."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((" ".join(line.split())[:300] for line in reversed(lines) if line.strip()), "")


# The plot


def headline(modes):
    """(what it is called, value, standard error or None, questions or None) of a benchmark's metrics; None when there is no score in them."""
    if not isinstance(modes, dict):
        return ("", float(modes), None, None) if _number(modes) else None
    for mode, values in modes.items():
        if mode == "delegate":  # how the evaluation went
            continue
        for name, value in values.items() if isinstance(values, dict) else [("", values)]:
            if _number(value) and not {mode, name} & BESIDE:
                error, n = (values.get(key) if name else None for key in ("std_err", "num_entries"))
                return (
                    f"{mode} {name}".strip(),
                    float(value),
                    error if _number(error) else None,
                    n if _number(n) else None,
                )
    return None


def selected(points):
    """The highest of several values, `{"step", "value", "of", "lo", "hi"}`, with an interval that holds although it was chosen for being high:
    all values at once lie in intervals of this kind with a chance of 95 % (Bonferroni), so the highest one does. None for fewer than two.

    points: [(step, name, value, standard error or None, questions or None)]. For a share it is Wilson's score interval (1927, JASA 22:209)
    over as many questions as the error speaks for, else the value with its error; without either `lo` and `hi` are None."""
    from scipy.special import ndtri

    if len(points) < 2:
        return None
    step, _, value, error, n = max(points, key=lambda point: (point[2], -point[0]))
    reach = float(ndtri(1 - 0.025 / len(points)))
    if error and 0 < value < 1:
        n = value * (1 - value) / error**2
    found = {"step": step, "value": value, "of": len(points), "lo": None, "hi": None}
    if n and 0 <= value <= 1:
        centre, share = value + reach**2 / (2 * n), 1 + reach**2 / n
        half = reach * math.sqrt(value * (1 - value) / n + (reach / (2 * n)) ** 2)
        return found | {
            "lo": min(value, max(0.0, (centre - half) / share)),
            "hi": max(value, min(1.0, (centre + half) / share)),
        }
    return found | {"lo": value - reach * error, "hi": value + reach * error} if error else found


def _benchmarks(metrics):
    """The entries of metrics without those of subsets, which are `NAME-SUBSET` and say nothing of how the evaluation went."""
    return {
        name: modes
        for name, modes in metrics.items()
        if isinstance(modes, dict)
        and "delegate" in modes
        or not any(name.startswith(f"{other}-") for other in metrics)
    }


def draw(out, lines, formats=("png", "svg")):
    """Draw the lines of a curve into the folder `out` as curve.png and curve.svg: a panel for each benchmark, one for the validation loss."""
    from decksmith.results import plots

    with plots.style() as (pyplot, tone):
        figure = _figure(pyplot, tone, lines)
        for form in formats:
            stream.write(
                Path(out) / f"curve.{form}",
                plots.drawn(figure, form, bbox_inches="tight", pad_inches=0.15),
            )
        pyplot.close(figure)


def _short(name):
    name = "".join(letter if letter.isprintable() else " " for letter in str(name))
    return name if len(name) <= 44 else f"{name[:43]}…"


def _room(drawn, ys, loss):
    """The limits of an axis: not so narrow that noise looks like a trend, and no share below 0 or above 1."""
    low, high = drawn
    share = not loss and all(0 <= y <= 1 for y in ys)
    short = (
        max(
            0.0,
            (0.1 * max(map(abs, ys), default=1) if loss else 0.25 if share else 1.0) - (high - low),
        )
        / 2
    )
    low, high = low - short, high + short
    if share and low < 0:
        low, high = 0, min(1, high - low)
    if share and high > 1:
        low, high = max(0, low + 1 - high), 1
    return low, high


def _chosen(best):
    """A selected value in words, nothing for none."""
    if best is None:
        return ""
    between = "" if best["lo"] is None else f" [{best['lo']:.2f}, {best['hi']:.2f}]"
    return f"best of {best['of']}: step {best['step']}, {best['value']:.2f}{between}"


def _figure(pyplot, tone, lines):
    from decksmith.results import plots

    panels = {}
    for line in lines:
        for bench, modes in _benchmarks(line.get("metrics") or {}).items():
            if found := headline(modes):
                panels.setdefault(bench, []).append((line["step"], *found))
    held = [
        (line["step"], "nats a token", line["val_loss"], None, None)
        for line in lines
        if line.get("val_loss") is not None
    ]
    shown = sorted(panels)[: PANELS - bool(held)]
    more = len(panels) - len(shown)
    panels = {name: panels[name] for name in shown} | (
        {"validation loss": held} if held else {}
    ) or {"nothing is on the curve yet": []}
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    top = 1.5 if columns > 1 else 1.85  # the note needs a line more where the page is narrow
    width, height = max(6.0, 3.6 * columns), top - 0.4 + 2.9 * rows
    figure, grid = pyplot.subplots(rows, columns, figsize=(width, height), squeeze=False)
    steps = [line["step"] for line in lines] or [0]
    room = 0.04 * (max(steps) - min(steps)) or 1
    for axes, (name, points) in zip(grid.flat, panels.items(), strict=False):
        color = "#b5543c" if name == "validation loss" else "#3d7ea6"
        xs, ys = [point[0] for point in points], [point[2] for point in points]
        for x, _, y, error, _ in points:
            if error is not None:
                low, high = y - 1.96 * error, y + 1.96 * error
                axes.plot(
                    [x, x],
                    [max(0, low), min(1, high)] if 0 <= y <= 1 else [low, high],
                    color=color,
                    linewidth=1.6,
                    alpha=0.55,
                    solid_capstyle="round",
                    clip_on=False,
                )
        axes.plot(
            xs, ys, color=color, linewidth=1.8, marker="o", markersize=5, clip_on=False, zorder=3
        )
        best = selected(points) if name != "validation loss" else None
        if best:
            axes.plot(
                [best["step"]],
                [best["value"]],
                marker="o",
                markersize=11,
                fillstyle="none",
                color=CHOSEN,
                markeredgewidth=1.4,
                clip_on=False,
                zorder=4,
            )
        if best and best["lo"] is not None:
            axes.errorbar(
                [best["step"]],
                [best["value"]],
                [[best["value"] - best["lo"]], [best["hi"] - best["value"]]],
                color=CHOSEN,
                linewidth=1,
                capsize=4,
                clip_on=False,
                zorder=2,
            )
        for x in sorted(set(steps) - set(xs)) if name != "validation loss" else ():
            axes.axvline(x, color=tone["soft"], alpha=0.7, linewidth=0.9, linestyle=(0, (2, 3)))
        axes.set_xlim(min(steps) - room, max(steps) + room)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylim(_room(axes.get_ylim(), ys, name == "validation loss"))
        axes.grid(axis="y", color=tone["line"], linewidth=0.8)
        axes.tick_params(labelsize=8)
        axes.set_title(
            _short(name), loc="left", fontsize=10.5, pad=30, parse_math=False, **plots.BOLD
        )
        axes.text(
            0,
            1.02,
            f"{_short(points[-1][1] if points else '')}\n{_chosen(best)}",
            transform=axes.transAxes,
            size=8,
            color=tone["soft"],
            va="bottom",
            parse_math=False,
        )
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("step", size=9)
    figure.subplots_adjust(
        left=0.6 / width, right=1 - 0.15 / width, bottom=0.45 / height, hspace=0.62, wspace=0.26
    )
    done = sum("metrics" in line for line in lines)
    note = f"{done} checkpoint{'s' * (done != 1)}. Bars are 95 % intervals by question." + (
        " Dotted: no result." if done < len(lines) else ""
    )
    note += f" {more} more benchmarks are in curve.jsonl." if more else ""
    if done > 1:
        note += (
            "\nRinged: the best, selected by these very numbers;"
            + ("\n" if columns == 1 else " ")
            + "its thin interval holds for all of them at once (Bonferroni)."
        )
    plots._titled(figure, tone, "Benchmarks over the training", note, top)
    return figure
