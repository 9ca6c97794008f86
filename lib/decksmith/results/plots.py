"""Plots of runs as PNG and SVG; equal runs give equal bytes."""

import io
import json
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.results import claims, text
from decksmith.results.runs import caption, measures, titles

Tone = dict[str, str]  # colors by what they are for
Point = tuple[float, float]

INKS = {
    "light": {"ink": "#1f2328", "soft": "#6a7078", "line": "#e3e1db", "paper": "#ffffff"},
    "dark": {"ink": "#e8e6e1", "soft": "#9aa0a8", "line": "#34383e", "paper": "none"},
}


@contextmanager
def style(ink: str = "light") -> Iterator[tuple[Any, Tone]]:
    """`(pyplot, tone)` in the style of the reports, until the block ends; `ink` is a name of INKS."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    _fonts()
    tone = INKS[ink]
    with pyplot.rc_context(
        {
            "font.family": ["Deck", "DejaVu Sans"],
            "font.size": 10,
            "svg.hashsalt": "decksmith",
            "svg.fonttype": "path",
            "text.parse_math": False,
            "text.color": tone["ink"],
            "axes.labelcolor": tone["soft"],
            "xtick.color": tone["soft"],
            "ytick.color": tone["ink"],
            "axes.edgecolor": tone["line"],
            "axes.facecolor": "none",
            "figure.facecolor": tone["paper"],
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.spines.left": False,
            "xtick.major.size": 0,
            "ytick.major.size": 0,
            "axes.axisbelow": True,
        }
    ):
        yield pyplot, tone


def drawn(figure: Any, form: str, **more: Any) -> bytes:
    """The bytes of a figure as "png" or "svg"; equal figures give equal bytes. `more` goes to savefig."""
    buffer = io.BytesIO()
    figure.savefig(
        buffer,
        format=form,
        metadata={"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[form],
        **{"dpi": 160} | more,
    )
    return buffer.getvalue()


def plots(
    out: Path,
    runs: list[Record],
    compared: Record,
    formats: Sequence[str] = ("png", "svg"),
    inks: Sequence[str] = ("light",),
) -> list[str]:
    """Draw the plots of `runs`, `compared` by claims.compare, into the folder `out`; returns the file names."""
    kinds = {
        "overall": _plot_overall,
        "dimensions": _plot_dimensions,
        "radar": _plot_radar,
        "deltas": _plot_deltas,
    }
    files = []
    for name, plot in kinds.items():
        draw = partial(plot, runs=runs, compared=compared)
        files += each_form(out, name, draw, formats, inks)
    return files


def loss(
    out: Path,
    metrics: Path,
    formats: Sequence[str] = ("png", "svg"),
    inks: Sequence[str] = ("light",),
) -> list[str]:
    """Draw a training run's metrics.jsonl into the folder `out` as loss.png and so on; returns the file names.

    A line holds {"step", "loss"} or {"step", "val_loss"}, in nats a token. Without a step nothing is drawn.
    """
    try:
        lines = [json.loads(line) for line in Path(metrics).read_text().splitlines()]
    except OSError:
        return []
    steps = [(line["step"], line["loss"]) for line in lines if line.get("loss") is not None]
    held = [(line["step"], line["val_loss"]) for line in lines if "val_loss" in line]
    if not steps:
        return []
    return each_form(out, "loss", partial(_plot_loss, steps=steps, held=held), formats, inks)


def each_form(
    out: Path,
    name: str,
    draw: Callable[[Any, Tone], Any],
    formats: Sequence[str],
    inks: Sequence[str],
) -> list[str]:
    """Draw one figure in each ink and form; returns the file names, none when there is nothing to draw."""
    names = []
    for ink in inks:
        with style(ink) as (pyplot, tone):
            figure = draw(pyplot, tone)
            for form in formats if figure else ():
                file = f"{name}{'' if ink == 'light' else '-' + ink}.{form}"
                stream.write(
                    Path(out) / file,
                    drawn(figure, form, dpi=200, bbox_inches="tight", pad_inches=0.15),
                )
                names.append(file)
            pyplot.close(figure)
    return names


@lru_cache
def _fonts() -> Any:
    """Give matplotlib the committed WOFF fonts, as TrueType, under the family names Deck and Deck Bold."""
    from fontTools.ttLib import TTFont
    from matplotlib import font_manager

    folder = tempfile.TemporaryDirectory()
    for weight, family in ((400, "Deck"), (600, "Deck Bold")):
        font = TTFont(
            cli.ROOT / "assets" / "web" / "fonts" / f"inter-{weight}.woff", recalcTimestamp=False
        )
        font.flavor, font["name"].names = None, []
        for ident, value in (
            (1, family),
            (2, "Regular"),
            (4, family),
            (6, family.replace(" ", "")),
        ):
            font["name"].setName(value, ident, 3, 1, 0x409)
        font["OS/2"].usWeightClass = 400
        path = Path(folder.name) / f"{weight}.ttf"
        font.save(path)
        font_manager.fontManager.addfont(path)
    return folder  # kept until the process ends: matplotlib reads the files late


BOLD = {"family": ["Deck Bold", "DejaVu Sans"]}


def _plot_loss(pyplot: Any, tone: Tone, *, steps: list[Point], held: list[Point]) -> Any:
    running, smooth = steps[0][1], []
    for _, value in steps:
        running = 0.9 * running + 0.1 * value
        smooth.append(running)
    figure, axes = pyplot.subplots(figsize=(8.4, 4.2))
    axes.plot(
        *zip(*steps, strict=True),
        color="#8a8f98",
        linewidth=0.8,
        alpha=0.6,
        label="train, each step",
    )
    axes.plot(
        [step for step, _ in steps],
        smooth,
        color="#3d7ea6",
        linewidth=2.2,
        label="train, running mean",
    )
    if held:
        axes.plot(
            *zip(*held, strict=True),
            color="#b5543c",
            linewidth=1.6,
            marker="o",
            markersize=6,
            label="validation",
        )
    axes.set_xlabel("step")
    axes.grid(axis="y", color=tone["line"], linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="lower left", fontsize=9)  # a loss begins high
    figure.subplots_adjust(left=0.07, right=0.97, bottom=0.13)
    last = (
        f" Validation: {held[0][1]:.3f} at step {held[0][0]}, {held[-1][1]:.3f} at step {held[-1][0]}."
        if held
        else ""
    )
    titled(
        figure,
        tone,
        "Training loss",
        f"Cross-entropy of the assistant's tokens, in nats.{last}",
        0.75,
    )
    return figure


def wrapped(label: str, width: int = 26) -> str:
    return "\n".join(textwrap.wrap(label, width)) or label


def titled(figure: Any, tone: Tone, title: str, note: str, top: float) -> None:
    """A title and a note at the upper left, `top` inches of room above the axes."""
    height = figure.get_figheight()
    figure.subplots_adjust(top=1 - top / height)
    left = min(axes.get_position().x0 for axes in figure.axes)
    figure.text(left, 1 - 0.12 / height, title, size=14, **BOLD, va="top")
    figure.text(
        left, 1 - 0.42 / height, note, size=9, color=tone["soft"], va="top", linespacing=1.45
    )


def _scale(axes: Any, tone: Tone, axis: str = "x") -> None:
    getattr(axes, f"set_{axis}lim")(1, 5)
    getattr(axes, f"set_{axis}ticks")([1, 2, 3, 4, 5])
    axes.grid(axis=axis, color=tone["line"], linewidth=0.8)


def _bar_with_interval(
    axes: Any, y: float, value: Record, color: str, tone: Tone, height: float, hollow: bool = False
) -> None:
    axes.barh(
        y,
        (value["mean"] or 1) - 1,
        left=1,
        height=height,
        color=color,
        alpha=0.14 if hollow else 0.30,
        linewidth=0,
    )
    if value["lo"] is not None:
        axes.plot(
            [value["lo"], value["hi"]],
            [y, y],
            color=color,
            linewidth=2.2,
            solid_capstyle="round",
            clip_on=False,
        )
    if value["mean"] is not None:
        axes.plot(
            [value["mean"]],
            [y],
            "o",
            markersize=7,
            markerfacecolor=tone["paper"] if hollow and tone["paper"] != "none" else color,
            markeredgecolor=color,
            markeredgewidth=1.6,
            fillstyle="none" if hollow else "full",
            clip_on=False,
            zorder=3,
        )


def _plot_overall(pyplot: Any, tone: Tone, *, runs: list[Record], compared: Record) -> Any:
    empty = {"mean": None, "lo": None, "hi": None, "n": 0}
    means = [
        (run, *(run["summary"]["means"][a].get("overall", empty) for a in ("floor", "renderable")))
        for run in runs
    ]
    means.reverse()  # by name from the top: the order of the means would read as a ranking
    said = _said(compared)
    top = 1.0 + 0.2 * len(said)
    figure, axes = pyplot.subplots(figsize=(8.8, 0.5 + top + 0.95 * len(runs)))
    for y, (run, floor, renderable) in enumerate(means):
        _bar_with_interval(axes, y + 0.19, floor, run["color"], tone, 0.30)
        _bar_with_interval(axes, y - 0.19, renderable, run["color"], tone, 0.30, hollow=True)
        for offset, value, word in ((0.19, floor, "floor"), (-0.19, renderable, "rendered")):
            axes.text(5.12, y + offset, word, va="center", size=9, color=tone["soft"])
            axes.text(
                5.78,
                y + offset,
                f"{text.interval(value)}  n = {value['n']}",
                va="center",
                size=9,
                color=tone["ink"],
            )
    axes.set_yticks(range(len(means)), [wrapped(run["label"]) for run, *_ in means])
    axes.set_ylim(-0.6, len(means) - 0.4)
    _scale(axes, tone)
    figure.subplots_adjust(left=0.23, right=0.71, bottom=0.35 / figure.get_figheight())
    titled(
        figure,
        tone,
        titles(runs)["overall"],
        f"{caption(runs)}. Filled: floor. Hollow: rendered decks.\nLines are 95 % intervals.",
        top,
    )
    height = figure.get_figheight()
    for place, line in enumerate(said):
        figure.text(
            axes.get_position().x0, 1 - (0.86 + 0.2 * place) / height, line, size=9.5, va="top"
        )
    return figure


def _said(compared: Record) -> list[str]:
    """The headline in at most three lines of a plot."""
    if len(compared["runs"]) < 2:
        return []
    lines = compared["headlines"] if len(compared["headlines"]) < 4 else [claims.ranked(compared)]
    return [textwrap.shorten(line, 125, placeholder=" ..") for line in lines]


def dimensions(runs: list[Record]) -> list[str]:
    """The dimensions of which any of these runs has a mean."""
    others = ("overall", "judge_only", "checklist", "craft", "craft_v5")
    return [name for name in measures(runs) if name not in others]


def _plot_dimensions(pyplot: Any, tone: Tone, *, runs: list[Record], compared: Record) -> Any:
    names = dimensions(runs)
    if not names:
        return None
    step = 0.34
    group = step * len(runs) + 0.42
    figure, axes = pyplot.subplots(figsize=(8.4, 1.6 + 0.62 * group * len(names)))
    for index, name in enumerate(names):
        for place, run in enumerate(runs):
            value = run["summary"]["means"]["floor"].get(name)
            if value and value["mean"] is not None:
                y = -index * group - place * step
                _bar_with_interval(axes, y, value, run["color"], tone, 0.24)
                axes.text(5.12, y, text.interval(value), va="center", size=9)
    middle = step * (len(runs) - 1) / 2
    axes.set_yticks(
        [-index * group - middle for index in range(len(names))],
        [titles(runs).get(name, name) for name in names],
    )
    axes.set_ylim(-len(names) * group + group - 2 * middle - 0.35, 0.35)
    _scale(axes, tone)
    figure.subplots_adjust(left=0.14, right=0.82, bottom=0.35 / figure.get_figheight())
    lines = (len(runs) + 2) // 3
    titled(
        figure,
        tone,
        "Each dimension, floor",
        "A model fault counts 1. Lines are 95 % intervals.",
        0.85 + 0.22 * lines,
    )
    _legend(figure, axes, runs, 0.66)
    return figure


def _legend(figure: Any, axes: Any, runs: list[Record], below: float) -> None:
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], marker="o", linestyle="", markersize=7, color=run["color"]) for run in runs
    ]
    figure.legend(
        marks,
        [run["label"] for run in runs],
        loc="upper left",
        ncols=min(3, len(runs)),
        frameon=False,
        fontsize=9,
        bbox_to_anchor=(axes.get_position().x0 - 0.015, 1 - below / figure.get_figheight()),
        handletextpad=0.1,
        columnspacing=1.4,
        borderaxespad=0,
    )


def _plot_radar(pyplot: Any, tone: Tone, *, runs: list[Record], compared: Record) -> Any:
    import numpy

    names = dimensions(runs)
    if len(names) < 3:
        return None
    angles = numpy.linspace(0, 2 * numpy.pi, len(names), endpoint=False)
    lines = (len(runs) + 2) // 3
    figure = pyplot.figure(figsize=(6.4, 6.15 + 0.24 * lines))
    height = figure.get_figheight()
    axes = figure.add_axes([0.14, 0.3 / height, 0.72, 4.6 / height], projection="polar")
    axes.set_theta_offset(numpy.pi / 2)
    axes.set_theta_direction(-1)
    for run in runs:
        means = [run["summary"]["means"]["floor"].get(name, {}).get("mean") for name in names]
        if None in means:
            continue
        closed = [*means, means[0]], [*angles, angles[0]]
        axes.plot(closed[1], closed[0], color=run["color"], linewidth=2, marker="o", markersize=5)
        axes.fill(closed[1], closed[0], color=run["color"], alpha=0.08)
    axes.set_ylim(1, 5)
    axes.set_yticks([2, 3, 4, 5], ["2", "3", "4", "5"], size=8, color=tone["soft"])
    axes.set_rlabel_position(180 / len(names))
    axes.set_xticks(angles, [titles(runs).get(name, name) for name in names])
    axes.tick_params(axis="x", pad=10)
    axes.grid(color=tone["line"], linewidth=0.8)
    axes.spines["polar"].set_visible(False)
    figure.text(0.04, 1 - 0.12 / height, "Profile, floor means", size=14, **BOLD, va="top")
    figure.text(
        0.04,
        1 - 0.42 / height,
        "Shape only: a radar shows no intervals.",
        size=9,
        color=tone["soft"],
        va="top",
    )
    _legend(figure, axes, runs, 0.7)
    figure.legends[0].set_bbox_to_anchor((0.025, 1 - 0.7 / height))
    return figure


def _plot_delta(
    axes: Any, tone: Tone, y: float, color: str, value: Record, verdict: str | None
) -> None:
    """One difference: its interval, its mean (filled where the test separates), and both in words."""
    beats = verdict == "beats"
    if value["lo"] is not None:
        ends = [value["lo"], value["hi"]]
        axes.plot(ends, [y, y], color=color, linewidth=2.2, solid_capstyle="round")
    axes.plot(
        [value["mean"]],
        [y],
        "o",
        markersize=7,
        color=color,
        markeredgewidth=1.6,
        fillstyle="full" if beats else "none",
    )
    axes.text(
        1.03,
        y,
        text.interval(value) + ("" if beats else f"  {verdict}"),
        va="center",
        size=9,
        transform=axes.get_yaxis_transform(),
        color=tone["ink"] if beats else tone["soft"],
    )


def _plot_deltas(pyplot: Any, tone: Tone, *, runs: list[Record], compared: Record) -> Any:
    """Each later run minus the base, paired by prompt; the base is the run that was named first."""
    if len(runs) < 2:
        return None
    base = min(runs, key=lambda run: run["order"])
    others = [run for run in runs if run is not base]
    shown = ["overall", "judge_only", *dimensions(runs)]
    step = 0.34
    group = step * len(others) + 0.42
    figure, axes = pyplot.subplots(figsize=(8.4, 1.75 + 0.62 * group * len(shown)))
    reach = 0.5
    for index, name in enumerate(shown):
        for place, run in enumerate(others):
            value, verdict = claims.difference(compared, run["label"], base["label"], "floor", name)
            if value is None or value["mean"] is None:
                continue
            y = -index * group - place * step
            ends = [value[key] for key in ("lo", "hi", "mean") if value[key] is not None]
            reach = max(reach, *map(abs, ends))
            _plot_delta(axes, tone, y, run["color"], value, verdict)
    axes.axvline(0, color=tone["soft"], linewidth=1)
    axes.set_xlim(-1.1 * reach, 1.1 * reach)
    axes.grid(axis="x", color=tone["line"], linewidth=0.8)
    middle = step * (len(others) - 1) / 2
    axes.set_yticks(
        [-index * group - middle for index in range(len(shown))],
        [titles(runs).get(name, name) for name in shown],
    )
    axes.set_ylim(-len(shown) * group + group - 2 * middle - 0.35, 0.35)
    figure.subplots_adjust(left=0.14, right=0.70, bottom=0.35 / figure.get_figheight())
    lines = (len(others) + 2) // 3
    titled(
        figure,
        tone,
        f"Difference to {base['label']}, floor",
        "Paired by prompt, 95 % intervals. Filled: separated by the corrected test.",
        0.85 + 0.22 * lines,
    )
    _legend(figure, axes, others, 0.66)
    return figure
