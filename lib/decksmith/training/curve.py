"""The curve of a training run: a panel for each benchmark, by step, and one for the validation loss."""

import math
from pathlib import Path
from typing import Any, NamedTuple

from decksmith.core import stream

PANELS = 12
CHOSEN = "#c2912b"
LOSS = "validation loss"
# What a training on rewards is watched by (hacking.py): more of it is not better.
UNRANKED = {"adversarial", "diversity", "kl", "length"}
# Of a mode, and no score.
BESIDE = {
    "num_entries",
    "avg_tokens",
    "gen_seconds",
    "no_answer",
    "std_err",
    "coverage",
    "truncated",
}

Line = dict[str, Any]  # of curve.jsonl
Limits = tuple[float, float]


class Score(NamedTuple):
    """The headline of a benchmark; `error` is its standard error, `n` its questions, each None where not known."""

    name: str
    value: float
    error: float | None
    n: int | None


class Point(NamedTuple):
    """A score at a step."""

    step: int
    name: str
    value: float
    error: float | None
    n: int | None


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def headline(modes: Any) -> Score | None:
    """The headline of a benchmark's metrics, their first score; None when there is none in them."""
    if not isinstance(modes, dict):
        return Score("", float(modes), None, None) if is_number(modes) else None
    for mode, values in modes.items():
        if mode == "delegate":  # how the evaluation went
            continue
        if not isinstance(values, dict):
            if is_number(values) and mode not in BESIDE:
                return Score(mode, float(values), None, None)
            continue
        for name, value in values.items():
            if is_number(value) and not {mode, name} & BESIDE:
                error, n = (
                    values[key] if is_number(values.get(key)) else None
                    for key in ("std_err", "num_entries")
                )
                return Score(f"{mode} {name}".strip(), float(value), error, n)
    return None


def selected(points: list[Point]) -> dict[str, Any] | None:
    """The highest of several values, with an interval that holds although it was chosen for being high.

    Returns `{"step", "value", "of", "lo", "hi"}`, None for fewer than two points. All values at once lie in intervals of this
    kind with a chance of 95 % (Bonferroni), so the highest one does. For a share it is Wilson's score interval (1927, JASA
    22:209) over as many questions as the error speaks for, else the value with its error; without either `lo` and `hi` are
    None.
    """
    from scipy.special import ndtri

    if len(points) < 2:
        return None
    step, _, value, error, n = max(points, key=lambda point: (point[2], -point[0]))
    found = {"step": step, "value": value, "of": len(points), "lo": None, "hi": None}
    reach = float(ndtri(1 - 0.025 / len(points)))
    questions: float | None = n
    if error and 0 < value < 1:
        questions = value * (1 - value) / error**2
    if questions and 0 <= value <= 1:
        lo, hi = _wilson(value, questions, reach)
        return found | {"lo": lo, "hi": hi}
    if error:
        return found | {"lo": value - reach * error, "hi": value + reach * error}
    return found


def _wilson(share: float, n: float, reach: float) -> Limits:
    """Wilson's score interval of a share of n questions; `reach`: in standard errors."""
    scale = 1 + reach**2 / n
    centre = share + reach**2 / (2 * n)
    half = reach * math.sqrt(share * (1 - share) / n + (reach / (2 * n)) ** 2)
    lo, hi = (centre - half) / scale, (centre + half) / scale
    return min(share, max(0.0, lo)), max(share, min(1.0, hi))


def benchmarks(metrics: dict[str, Any]) -> dict[str, Any]:
    """The entries of metrics without those of subsets, which are `NAME-SUBSET` and say nothing of how the evaluation went."""

    def is_subset(name: str) -> bool:
        return any(name.startswith(f"{other}-") for other in metrics)

    return {
        name: modes
        for name, modes in metrics.items()
        if (isinstance(modes, dict) and "delegate" in modes) or not is_subset(name)
    }


def draw(out: Path | str, lines: list[Line], formats: tuple[str, ...] = ("png", "svg")) -> None:
    """Draw the lines of a curve into the folder `out` as curve.png and curve.svg."""
    from decksmith.results import plots

    with plots.style() as (pyplot, tone):
        drawn = figure(pyplot, tone, lines)
        for form in formats:
            data = plots.drawn(drawn, form, bbox_inches="tight", pad_inches=0.15)
            stream.write(Path(out) / f"curve.{form}", data)
        pyplot.close(drawn)


def figure(pyplot: Any, tone: dict[str, str], lines: list[Line]) -> Any:
    """The lines of a curve as a figure of matplotlib, in the tones of results.plots."""
    from decksmith.results import plots

    panels, more = _panels(lines)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    top = 1.5 if columns > 1 else 1.85  # the note needs a line more where the page is narrow
    width, height = max(6.0, 3.6 * columns), top - 0.4 + 2.9 * rows
    made, grid = pyplot.subplots(rows, columns, figsize=(width, height), squeeze=False)
    steps = [line["step"] for line in lines] or [0]
    for axes, (name, points) in zip(grid.flat, panels.items(), strict=False):
        _panel(axes, tone, name, points, steps)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("step", size=9)
    made.subplots_adjust(
        left=0.6 / width, right=1 - 0.15 / width, bottom=0.45 / height, hspace=0.62, wspace=0.26
    )
    note = _note(lines, more, columns)
    plots.titled(made, tone, "Benchmarks over the training", note, top)
    return made


def _panels(lines: list[Line]) -> tuple[dict[str, list[Point]], int]:
    """({name: points}, how many benchmarks have no room)."""
    found: dict[str, list[Point]] = {}
    for line in lines:
        for bench, modes in benchmarks(line.get("metrics") or {}).items():
            if score := headline(modes):
                found.setdefault(bench, []).append(Point(line["step"], *score))
    held = [
        Point(line["step"], "nats a token", line["val_loss"], None, None)
        for line in lines
        if line.get("val_loss") is not None
    ]
    shown = sorted(found)[: PANELS - bool(held)]
    panels = {name: found[name] for name in shown}
    if held:
        panels[LOSS] = held
    return panels or {"nothing is on the curve yet": []}, len(found) - len(shown)


def _note(lines: list[Line], more: int, columns: int) -> str:
    done = sum("metrics" in line for line in lines)
    note = f"{done} checkpoint{'s' * (done != 1)}. Bars are 95 % intervals by question."
    if done < len(lines):
        note += " Dotted: no result."
    if more:
        note += f" {more} more benchmarks are in curve.jsonl."
    if done > 1:
        gap = "\n" if columns == 1 else " "
        note += (
            f"\nRinged: the best, selected by these very numbers;{gap}its thin interval holds for all of them at once "
            "(Bonferroni)."
        )
    return note


def _panel(
    axes: Any, tone: dict[str, str], name: str, points: list[Point], steps: list[int]
) -> None:
    from decksmith.results import plots

    is_loss = name == LOSS
    color = "#b5543c" if is_loss else "#3d7ea6"
    xs, ys = [point.step for point in points], [point.value for point in points]
    for point in points:
        _bar(axes, point, color)
    axes.plot(xs, ys, color=color, linewidth=1.8, marker="o", markersize=5, clip_on=False, zorder=3)
    best = None if is_loss or name in UNRANKED else selected(points)
    if best:
        _ring(axes, best)
    if not is_loss:
        for x in sorted(set(steps) - set(xs)):
            axes.axvline(x, color=tone["soft"], alpha=0.7, linewidth=0.9, linestyle=(0, (2, 3)))
    room = 0.04 * (max(steps) - min(steps)) or 1
    axes.set_xlim(min(steps) - room, max(steps) + room)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(_room(axes.get_ylim(), ys, is_loss))
    axes.grid(axis="y", color=tone["line"], linewidth=0.8)
    axes.tick_params(labelsize=8)
    axes.set_title(_short(name), loc="left", fontsize=10.5, pad=30, parse_math=False, **plots.BOLD)
    axes.text(
        0,
        1.02,
        f"{_short(points[-1].name if points else '')}\n{_chosen(best)}",
        transform=axes.transAxes,
        size=8,
        color=tone["soft"],
        va="bottom",
        parse_math=False,
    )


def _bar(axes: Any, point: Point, color: str) -> None:
    """The interval of a point, where its error is known."""
    if point.error is None:
        return
    low, high = point.value - 1.96 * point.error, point.value + 1.96 * point.error
    if 0 <= point.value <= 1:
        low, high = max(0, low), min(1, high)
    axes.plot(
        [point.step, point.step],
        [low, high],
        color=color,
        linewidth=1.6,
        alpha=0.55,
        solid_capstyle="round",
        clip_on=False,
    )


def _ring(axes: Any, best: dict[str, Any]) -> None:
    """A ring around the selected value, and its interval."""
    at = [best["step"]], [best["value"]]
    axes.plot(
        *at,
        marker="o",
        markersize=11,
        fillstyle="none",
        color=CHOSEN,
        markeredgewidth=1.4,
        clip_on=False,
        zorder=4,
    )
    if best["lo"] is not None:
        axes.errorbar(
            *at,
            [[best["value"] - best["lo"]], [best["hi"] - best["value"]]],
            color=CHOSEN,
            linewidth=1,
            capsize=4,
            clip_on=False,
            zorder=2,
        )


def _short(name: str) -> str:
    name = "".join(letter if letter.isprintable() else " " for letter in str(name))
    return name if len(name) <= 44 else f"{name[:43]}…"


def _room(drawn: Limits, ys: list[float], is_loss: bool) -> Limits:
    """The limits of an axis: not so narrow that noise looks like a trend, and no share below 0 or above 1."""
    low, high = drawn
    is_share = not is_loss and all(0 <= y <= 1 for y in ys)
    if is_loss:
        least = 0.1 * max(map(abs, ys), default=1)
    else:
        least = 0.25 if is_share else 1.0
    short = max(0.0, least - (high - low)) / 2
    low, high = low - short, high + short
    if is_share and low < 0:
        low, high = 0, min(1, high - low)
    if is_share and high > 1:
        low, high = max(0, low + 1 - high), 1
    return low, high


def _chosen(best: dict[str, Any] | None) -> str:
    """A selected value in words, nothing for none."""
    if best is None:
        return ""
    between = "" if best["lo"] is None else f" [{best['lo']:.2f}, {best['hi']:.2f}]"
    return f"best of {best['of']}: step {best['step']}, {best['value']:.2f}{between}"
