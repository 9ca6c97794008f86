"""The curve of a training run: a panel for each benchmark, by step, and one for the validation loss."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from decksmith.core import stream
from decksmith.train.training.records import CurvePoint, Metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = 12
LOSS = "validation loss"
# Of a mode, and no score.
NO_SCORE = {*"num_entries avg_tokens gen_seconds no_answer std_err coverage truncated".split()}


class CurveScore(NamedTuple):
    """The headline of a benchmark; `error` is its standard error, None where it is not known."""

    name: str
    value: float
    error: float | None


Point = tuple[int, CurveScore]  # a score at a step


def is_number(value: object) -> TypeGuard[float]:
    """Whether a JSON value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def headline(modes: object) -> CurveScore | None:
    """The headline of a benchmark's metrics, their first score; None when there is none in them."""
    if is_number(modes):
        return CurveScore("", float(modes), None)
    if not isinstance(modes, dict):
        return None
    for mode, values in modes.items():
        if mode == "delegate" or mode in NO_SCORE:  # how the evaluation went
            continue
        if is_number(values):
            return CurveScore(mode, float(values), None)
        for name, value in values.items() if isinstance(values, dict) else ():
            if is_number(value) and name not in NO_SCORE:
                error = values.get("std_err")
                known = error if is_number(error) else None
                return CurveScore(f"{mode} {name}".strip(), float(value), known)
    return None


def benchmarks(metrics: Metrics) -> Metrics:
    """The entries of metrics without those of subsets, which are `NAME-SUBSET` and say nothing of how the evaluation went."""
    found: Metrics = {}
    for name, modes in metrics.items():
        is_whole = isinstance(modes, dict) and "delegate" in modes
        if is_whole or not any(name.startswith(f"{other}-") for other in metrics):
            found[name] = modes
    return found


def draw(out: Path, lines: list[CurvePoint]) -> None:
    """Draw the lines of a curve into the folder `out` as curve.png and curve.svg."""
    from decksmith.measure.results import plots

    with plots.style() as tone:
        drawn = figure(tone, lines)
        for form in ("png", "svg"):
            data = plots.drawn(drawn, form, bbox_inches="tight", pad_inches=0.15)
            stream.write(Path(out) / f"curve.{form}", data)


def figure(tone: dict[str, str], lines: list[CurvePoint]) -> "Figure":
    """The lines of a curve as a figure, in the tones of results.plots, inside of plots.style."""
    from matplotlib.figure import Figure

    from decksmith.measure.results import plots

    panels, more = _panels(lines)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    width, top = max(6.0, 3.6 * columns), 1.3
    made = Figure(figsize=(width, top + 2.5 * rows))
    grid = made.subplots(rows, columns, squeeze=False, gridspec_kw={"hspace": 0.7})
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    for axes, (name, points) in zip(grid.flat, panels.items(), strict=False):
        _panel(axes, tone, name, points)
        for line in lines:
            if "gap" in line:
                axes.axvline(line["step"], color=tone["soft"], linewidth=0.9, linestyle=":")
    plots.titled(made, tone, "Benchmarks over the training", _note(lines, more), top)
    return made


def _panels(lines: list[CurvePoint]) -> tuple[dict[str, list[Point]], int]:
    """({name: points}, how many benchmarks have no room)."""
    found: dict[str, list[Point]] = {}
    held: list[Point] = []
    for line in lines:
        for bench, modes in benchmarks(line.get("metrics") or {}).items():
            if score := headline(modes):
                found.setdefault(bench, []).append((line["step"], score))
        if (loss := line.get("val_loss")) is not None:
            held.append((line["step"], CurveScore("nats a token", loss, None)))
    panels = {name: found[name] for name in sorted(found)[: PANELS - 1]}
    if held:
        panels[LOSS] = held
    return panels or {"nothing is on the curve yet": []}, max(0, len(found) - (PANELS - 1))


def _note(lines: list[CurvePoint], more: int) -> str:
    done = sum("metrics" in line for line in lines)
    note = f"{done} checkpoint{'s' * (done != 1)}. Bars are 95 % intervals by question."
    note += " Dotted: no result." if done < len(lines) else ""
    return note + (f" {more} more benchmarks are in curve.jsonl." if more else "")


def _panel(axes: "Axes", tone: dict[str, str], name: str, points: list[Point]) -> None:
    from matplotlib.ticker import MaxNLocator

    from decksmith.measure.results import plots

    color = "#b5543c" if name == LOSS else "#3d7ea6"
    ys = [score.value for _, score in points]
    bars = [1.96 * (score.error or 0.0) for _, score in points]
    axes.errorbar(
        [step for step, _ in points], ys, bars, color=color, linewidth=1.8, marker="o", markersize=5
    )
    axes.margins(y=0.25)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("step", size=9)
    axes.grid(axis="y", color=tone["line"], linewidth=0.8)
    axes.tick_params(labelsize=8)
    title = axes.set_title(_short(name), loc="left", fontsize=10.5, pad=18, parse_math=False)
    title.set(**plots.BOLD)
    said = _short(points[-1][1].name if points else "")
    words = axes.text(0, 1.02, said, size=8, color=tone["soft"], parse_math=False)
    words.set(transform=axes.transAxes, va="bottom")


def _short(name: str) -> str:
    name = "".join(letter if letter.isprintable() else " " for letter in str(name))
    return name if len(name) <= 44 else f"{name[:43]}…"
