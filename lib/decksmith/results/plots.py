"""Plots of runs as PNG and SVG; equal runs give equal bytes."""

import io
import json
import math
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.results import claims, cost_table, text
from decksmith.results.runs import caption, measures, titles
from decksmith.results.summary import SHARES

Tone = dict[str, str]  # colors by what they are for
Point = tuple[float, float]
Forms = Mapping[str, Sequence[str]]  # of each ink (INKS): "png", "svg"
PRINT: Forms = {"light": ("png", "svg")}
# Inches. A plot is as wide as a phone's screen or a column of a page, so that its type is of one
# size in all of them and nobody has to enlarge it.
WIDTH, LEFT, BARS, LINE = 4.2, 0.12, 2.62, 0.19
TITLE, TEXT, NOTE = 12.5, 9.5, 9  # points

INKS = {
    "light": {
        "ink": "#1f2328",
        "soft": "#5f656d",
        "line": "#e3e1db",
        "paper": "#ffffff",
        "halo": "#ffffff",
    },
    "dark": {
        "ink": "#e8e6e1",
        "soft": "#9aa0a8",
        "line": "#34383e",
        "paper": "none",
        "halo": "#1a1d21",
    },
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
            "font.family": REGULAR["family"],
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
    forms: Forms = PRINT,
) -> list[str]:
    """Draw the plots of `runs`, `compared` by claims.compare, into the folder `out`; returns the file names."""
    kinds = {
        "overall": _plot_overall,
        "dimensions": _plot_dimensions,
        "radar": _plot_radar,
        "deltas": _plot_deltas,
    }
    if compared.get("costs"):
        kinds["costs"] = _plot_costs
    files = []
    for name, plot in kinds.items():
        draw = partial(plot, runs=runs, compared=compared)
        files += each_form(out, name, draw, forms, tight=False)
    return files


def loss(
    out: Path,
    metrics: Path,
    forms: Forms = PRINT,
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
    draw = partial(_plot_loss, steps=steps, held=held)
    return each_form(out, "loss", draw, forms, tight=False)


def each_form(
    out: Path,
    name: str,
    draw: Callable[[Any, Tone], Any],
    forms: Forms = PRINT,
    tight: bool = True,
) -> list[str]:
    """Draw one figure in the forms of each ink; returns the file names, none when there is nothing to draw.

    tight: cut off empty margins; otherwise the file is as wide as the figure.
    """
    edges: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.15} if tight else {}
    names = []
    for ink, files in forms.items():
        with style(ink) as (pyplot, tone):
            figure = draw(pyplot, tone)
            for form in files if figure else ():
                file = f"{name}{'' if ink == 'light' else '-' + ink}.{form}"
                stream.write(Path(out) / file, drawn(figure, form, dpi=240, **edges))
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
        font.flavor = None
        path = str(Path(folder.name) / f"{weight}.ttf")
        font.save(path)
        # An entry of our own, since reading and changing the font's tables takes longer than drawing with it.
        entry = font_manager.FontEntry(
            fname=path, name=family, weight=400, stretch="normal", size="scalable"
        )
        font_manager.fontManager.ttflist.append(entry)
    return folder  # kept until the process ends: matplotlib reads the files late


REGULAR = {"family": ["Deck", "DejaVu Sans"]}
BOLD = {"family": ["Deck Bold", "DejaVu Sans"]}


# The frame of a plot: lines of text, below them the axes, below these notes


@dataclass
class Said:
    """A line of text above the axes; `dot` is the color of a mark before it."""

    text: str
    size: float = TEXT
    color: str = "ink"
    bold: bool = False
    dot: str | None = None


def wrapped(label: str, width: int = 26) -> str:
    return "\n".join(textwrap.wrap(label, width)) or label


def fitted(text: str, inches: float, size: float, bold: bool = False) -> list[str]:
    """The lines of a text that is to be no wider than so many inches at so many points; a word longer than that is broken."""
    lines = [""]
    for word in text.split():
        while word:
            joined = f"{lines[-1]} {word}".strip()
            if _inches(joined, size, bold) <= inches:
                lines[-1], word = joined, ""
            elif lines[-1]:
                lines.append("")
            else:
                most = [k for k in range(1, len(word)) if _inches(word[:k], size, bold) <= inches]
                cut = max(most, default=1)
                lines[-1], word = word[:cut], word[cut:]
                lines += [""] * bool(word)
    return lines


def _inches(text: str, size: float, bold: bool) -> float:
    """How wide a line of text is drawn."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    family = (BOLD if bold else REGULAR)["family"]
    font = FontProperties(family=family, size=size)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, False)
    return float(width) / 72


def titled(figure: Any, tone: Tone, title: str, note: str, top: float) -> None:
    """A title and a note at the upper left, `top` inches of room above the axes."""
    height = figure.get_figheight()
    figure.subplots_adjust(top=1 - top / height)
    left = min(axes.get_position().x0 for axes in figure.axes)
    figure.text(left, 1 - 0.12 / height, title, size=14, **BOLD, va="top")
    figure.text(
        left, 1 - 0.42 / height, note, size=9, color=tone["soft"], va="top", linespacing=1.45
    )


def _sheet(
    pyplot: Any, tone: Tone, said: Sequence[Said], body: float, notes: Sequence[str] = ()
) -> tuple[Any, Any]:
    """`(figure, axes)`: `said` above, axes of `body` inches in which y counts inches downwards, `notes` below."""
    lines, top = [], 0.12
    for line in said:
        parts = _parts(line)
        lines += [(top + LINE * row, line, part, row) for row, part in enumerate(parts)]
        top += LINE * len(parts) + (0.08 if line.size == TITLE else 0.05)
    ends = [part for note in notes for part in fitted(note, WIDTH - 2 * LEFT, NOTE)]
    top, below = top + 0.14, 0.3 + LINE * len(ends) + 0.08 * bool(ends)
    height = top + body + below
    figure = pyplot.figure(figsize=(WIDTH, height))
    for at, line, part, row in lines:
        _write(figure, tone, 1 - at / height, line, part, row == 0)
    for row, note in enumerate(reversed(ends)):
        y = (0.08 + LINE * row) / height
        figure.text(LEFT / WIDTH, y, note, size=NOTE, color=tone["soft"])
    axes = figure.add_axes((LEFT / WIDTH, below / height, BARS / WIDTH, body / height))
    axes.set_ylim(body, 0)
    axes.set_yticks([])
    axes.tick_params(labelsize=NOTE)
    return figure, axes


def _parts(line: Said) -> list[str]:
    room = WIDTH - 2 * LEFT - 0.17 * bool(line.dot)
    return fitted(line.text, room, line.size, line.bold)


def _write(figure: Any, tone: Tone, y: float, line: Said, part: str, first: bool) -> None:
    """Write a part of a line at a height of the figure, after its mark where it has one."""
    from matplotlib.lines import Line2D

    left, font = LEFT + 0.17 * bool(line.dot), BOLD if line.bold else {}
    color = tone[line.color]
    figure.text(left / WIDTH, y, part, size=line.size, color=color, va="top", **font)
    if line.dot and first:
        place = {"transform": figure.transFigure, "linestyle": "", "color": line.dot}
        middle = y - 0.075 / figure.get_figheight()
        figure.add_artist(Line2D([(LEFT + 0.05) / WIDTH], [middle], marker="o", ms=6.5, **place))


def _legend(runs: list[Record]) -> list[Said]:
    return [Said(run["label"], dot=run["color"]) for run in runs]


def _beside(axes: Any, y: float, words: str, color: str, size: float = TEXT) -> None:
    """Text at the right of the axes."""
    place = axes.get_yaxis_transform()
    axes.text(1 + 0.12 / BARS, y, words, va="center", size=size, color=color, transform=place)


def _heading(axes: Any, tone: Tone, y: float, words: str) -> float:
    """Bold lines of text within the axes, from the left, before whatever lies there; returns where they end."""
    from matplotlib.patheffects import withStroke

    place, room = axes.get_yaxis_transform(), WIDTH - 2 * LEFT
    how = {"transform": place, "path_effects": [withStroke(linewidth=3, foreground=tone["halo"])]}
    for part in fitted(words, room, TEXT, bold=True):
        axes.text(0, y + LINE / 2, part, va="center", size=TEXT, **BOLD, **how)
        y += LINE
    return y


# What a plot shows


def _plot_loss(pyplot: Any, tone: Tone, *, steps: list[Point], held: list[Point]) -> Any:
    running, smooth = steps[0][1], []
    for step, value in steps:
        running = 0.9 * running + 0.1 * value
        smooth.append((step, running))
    note = "Cross-entropy of the assistant's tokens, in nats."
    if held:
        (first, begun), (last, ended) = held[0], held[-1]
        note += f" Validation: {begun:.3f} at step {first}, {ended:.3f} at step {last}."
    lines: list[tuple[list[Point], str, dict[str, Any], str]] = [
        (steps, "#8a8f98", {"linewidth": 0.8, "alpha": 0.6}, "train, each step"),
        (smooth, "#3d7ea6", {"linewidth": 2.2}, "train, running mean"),
    ]
    if held:
        dots = {"linewidth": 1.6, "marker": "o", "markersize": 5}
        lines.append((held, "#b5543c", dots, "validation"))
    said = [Said("Training loss", TITLE, bold=True), Said(note, NOTE, "soft")]
    said += [Said(name, dot=color) for _, color, _, name in lines]
    figure, axes = _sheet(pyplot, tone, said, 2.3, ["step"])
    height = figure.get_figheight()
    place = axes.get_position()
    axes.set_position((0.42 / WIDTH, place.y0, 1 - 0.56 / WIDTH, 2.3 / height))
    for points, color, how, _ in lines:
        axes.plot(*zip(*points, strict=True), color=color, **how)
    axes.yaxis.set_major_locator(_locator())
    axes.xaxis.get_major_locator().set_params(integer=True, nbins=6)
    axes.grid(axis="y", color=tone["line"], linewidth=0.8)
    axes.set_ylim(0, 1.05 * max(value for points, *_ in lines for _, value in points))
    return figure


def _locator() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(6)


def _scale(axes: Any, tone: Tone) -> None:
    axes.set_xlim(1, 5)
    axes.set_xticks([1, 2, 3, 4, 5])
    axes.grid(axis="x", color=tone["line"], linewidth=0.8)


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
            markersize=6.5,
            markerfacecolor=tone["paper"] if hollow and tone["paper"] != "none" else color,
            markeredgecolor=color,
            markeredgewidth=1.6,
            fillstyle="none" if hollow else "full",
            clip_on=False,
            zorder=3,
        )


def _plot_overall(pyplot: Any, tone: Tone, *, runs: list[Record], compared: Record) -> Any:
    """Both means of each run, models by name: the order of the means would read as a ranking."""
    empty = {"mean": None, "lo": None, "hi": None, "n": 0}
    shown = (("floor", "floor", False), ("renderable", "rendered", True))
    names = {run["label"]: fitted(run["label"], WIDTH - 2 * LEFT, TEXT, bold=True) for run in runs}
    body = sum(0.92 + LINE * len(lines) for lines in names.values()) - 0.06
    said = [
        Said(titles(runs)["overall"], TITLE, bold=True),
        Said(f"{caption(runs)}. 1 is the least, 5 the most.", NOTE, "soft"),
        Said("Filled: floor. Hollow: rendered decks. Lines are 95 % intervals.", NOTE, "soft"),
        *(Said(line) for line in _said(compared)),
    ]
    figure, axes = _sheet(pyplot, tone, said, body)
    y = 0.0
    for run in runs:
        y = _heading(axes, tone, y, run["label"])
        for accounting, word, hollow in shown:
            value = run["summary"]["means"][accounting].get("overall", empty)
            _bar_with_interval(axes, y + 0.18, value, run["color"], tone, 0.22, hollow)
            _beside(axes, y + 0.1, text.interval(value), tone["ink"])
            _beside(axes, y + 0.27, f"{word}, n = {value['n']}", tone["soft"], NOTE)
            y += 0.4
        y += 0.12
    _scale(axes, tone)
    return figure


def _said(compared: Record) -> list[str]:
    """What may be said, whole: each pair where there are few, otherwise the ranks."""
    if len(compared["runs"]) < 2:
        return []
    lines: list[str] = compared["headlines"]
    return lines if len(lines) < 4 else [claims.ranked(compared)]


def dimensions(runs: list[Record]) -> list[str]:
    """The dimensions of which any of these runs has a mean."""
    others = ("overall", "judge_only", "craft", "craft_v5", *SHARES)
    return [name for name in measures(runs) if name not in others]


def _plot_dimensions(pyplot: Any, tone: Tone, *, runs: list[Record], compared: Record) -> Any:
    names = dimensions(runs)
    if not names:
        return None
    said = [
        Said("Each dimension, floor", TITLE, bold=True),
        Said("1 to 5; a model fault counts 1. Lines are 95 % intervals.", NOTE, "soft"),
        *_legend(runs),
    ]
    figure, axes = _sheet(pyplot, tone, said, len(names) * (0.33 + 0.22 * len(runs)))
    y = 0.0
    for name in names:
        y = _heading(axes, tone, y, titles(runs).get(name, name))
        for run in runs:
            value = run["summary"]["means"]["floor"].get(name)
            if value and value["mean"] is not None:
                _bar_with_interval(axes, y + 0.12, value, run["color"], tone, 0.16)
                _beside(axes, y + 0.12, text.interval(value), tone["ink"])
            y += 0.22
        y += 0.14
    _scale(axes, tone)
    return figure


def _plot_radar(pyplot: Any, tone: Tone, *, runs: list[Record], compared: Record) -> Any:
    import numpy

    names = dimensions(runs)
    if len(names) < 3:
        return None
    said = [
        Said("Profile, floor means", TITLE, bold=True),
        Said("1 in the middle, 5 at the rim. Shape only: no intervals.", NOTE, "soft"),
        *_legend(runs),
    ]
    figure, flat = _sheet(pyplot, tone, said, 3.2)
    place, height = flat.get_position(), figure.get_figheight()
    flat.remove()
    box = ((WIDTH - 2.3) / 2 / WIDTH, place.y0 + 0.45 / height, 2.3 / WIDTH, 2.3 / height)
    axes = figure.add_axes(box, projection="polar")
    angles = numpy.linspace(0, 2 * numpy.pi, len(names), endpoint=False)
    axes.set_theta_offset(numpy.pi / 2)
    axes.set_theta_direction(-1)
    for run in runs:
        means = [run["summary"]["means"]["floor"].get(name, {}).get("mean") for name in names]
        if None in means:
            continue
        around, out = [*angles, angles[0]], [*means, means[0]]
        axes.plot(around, out, color=run["color"], linewidth=2, marker="o", markersize=4.5)
        axes.fill(around, out, color=run["color"], alpha=0.08)
    axes.set_ylim(1, 5)
    axes.set_yticks([2, 3, 4, 5], ["2", "3", "4", "5"], size=NOTE, color=tone["soft"])
    axes.set_rlabel_position(180 / len(names))
    labels = [wrapped(titles(runs).get(name, name), 12) for name in names]
    axes.set_xticks(angles, labels, size=TEXT)
    axes.tick_params(axis="x", pad=14, labelcolor=tone["ink"])
    axes.grid(color=tone["line"], linewidth=0.8)
    axes.spines["polar"].set_visible(False)
    return figure


def _steps(least: float, most: float) -> list[float]:
    """The round numbers around a range, for a logarithmic axis: 1, 2 and 5 where they are few, else powers of ten."""
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    digits = (1, 2, 5) if high - low <= 2 else (1,)
    steps = [digit * 10.0**power for power in range(low, high + 1) for digit in digits]
    first = max((step for step in steps if step <= least), default=steps[0])
    last = min((step for step in steps if step >= most and step > first), default=steps[-1])
    return [step for step in steps if first <= step <= last]


def _plot_costs(pyplot: Any, tone: Tone, *, runs: list[Record], compared: Record) -> Any:
    """Score against cost a deck, with the intervals of both; a line joins what no other run dominates. Hollow: dominated."""
    cost = compared["costs"]
    kind, beaten = cost["unit"], cost["dominated"]
    points = []
    for run in runs:
        score, took = (
            run["summary"]["means"]["floor"].get("overall"),
            cost["runs"][run["label"]][kind],
        )
        if score and took and took["mean"] > 0:
            points.append((run, took, score))
    said = [
        Said(f"{titles(runs)['overall']} against cost", TITLE, bold=True),
        Said(f"{cost_table.TITLES[kind]} a deck, on a logarithmic scale.", NOTE, "soft"),
        Said("Filled: no other run is as good for less. Hollow: dominated.", NOTE, "soft"),
        *_legend([run for run, _, _ in points]),
    ]
    figure, axes = _sheet(pyplot, tone, said, 2.6)
    place = axes.get_position()
    axes.set_position((0.42 / WIDTH, place.y0, (WIDTH - 0.62) / WIDTH, place.height))
    axes.set_xscale("log")
    ends = [end for _, x, _ in points for end in (x["lo"], x["hi"], x["mean"]) if end]
    ticks = _steps(min(ends), max(ends))
    axes.set_xlim(ticks[0], ticks[-1])
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_ylim(1, 5)
    axes.set_yticks([1, 2, 3, 4, 5], ["1", "2", "3", "4", "5"], size=NOTE, color=tone["soft"])
    axes.grid(color=tone["line"], linewidth=0.8)
    best = sorted((x["mean"], y["mean"]) for run, x, y in points if run["label"] not in beaten)
    axes.plot(*zip(*best, strict=True), color=tone["soft"], linewidth=1, linestyle=":")
    for run, x, y in points:
        line = {"color": run["color"], "linewidth": 1.6, "solid_capstyle": "round"}
        if y["lo"] is not None:
            axes.plot([x["mean"]] * 2, [y["lo"], y["hi"]], **line)
        if x["lo"] is not None and x["lo"] > 0:
            axes.plot([x["lo"], x["hi"]], [y["mean"]] * 2, **line)
        style = "none" if run["label"] in beaten else "full"
        axes.plot(
            [x["mean"]],
            [y["mean"]],
            "o",
            color=run["color"],
            markersize=6.5,
            fillstyle=style,
            clip_on=False,
        )
    return figure


def _plot_deltas(pyplot: Any, tone: Tone, *, runs: list[Record], compared: Record) -> Any:
    """Each later run minus the base, paired by prompt; the base is the run that was named first."""
    if len(runs) < 2:
        return None
    base = min(runs, key=lambda run: run["order"])
    others = [run for run in runs if run is not base]
    shown = ["overall", "judge_only", *dimensions(runs)]
    rows = _differences(compared, base, others, shown)
    reasons: dict[str, int] = {}  # why pairs are inconclusive, by the number of the note below
    for row in rows:
        if row["why"]:
            reasons.setdefault(row["why"], len(reasons) + 1)
    said = [
        Said(f"Difference to {base['label']}, floor", TITLE, bold=True),
        Said(
            "In points of the scale from 1 to 5, paired by prompt; right of 0 is better.",
            NOTE,
            "soft",
        ),
        Said("Lines are 95 % intervals. Filled: separated by the corrected test.", NOTE, "soft"),
        *_legend(others),
    ]
    notes = [f"{number}: {why}" for why, number in reasons.items()]
    body = sum(0.24 if row["verdict"] == "beats" else 0.4 for row in rows) + 0.33 * len(shown)
    figure, axes = _sheet(pyplot, tone, said, body, notes)
    y = 0.0
    for name in shown:
        y = _heading(axes, tone, y, titles(runs).get(name, name))
        for row in rows:
            if row["measure"] == name:
                y = _plot_delta(axes, tone, y, row, reasons)
        y += 0.14
    axes.axvline(0, color=tone["soft"], linewidth=1)
    ends = [abs(row["difference"][key] or 0) for row in rows for key in ("lo", "hi", "mean")]
    reach = 1.1 * max([0.5, *ends])
    axes.set_xlim(-reach, reach)
    axes.xaxis.get_major_locator().set_params(nbins=6)
    axes.grid(axis="x", color=tone["line"], linewidth=0.8)
    return figure


def _differences(
    compared: Record, base: Record, others: list[Record], shown: list[str]
) -> list[Record]:
    """The rows of the differences, `{"measure", "color", "difference", "verdict", "why"}`."""
    rows = []
    for name in shown:
        for run in others:
            value, pair = claims.difference(compared, run["label"], base["label"], "floor", name)
            if value is None or pair is None or value["mean"] is None:
                continue
            inconclusive = pair["verdict"] == "inconclusive"
            why = "; ".join(claims.undecided(pair)) if inconclusive else ""
            row = {"measure": name, "color": run["color"], "difference": value}
            rows.append({**row, "verdict": pair["verdict"], "why": why})
    return rows


def _plot_delta(axes: Any, tone: Tone, y: float, row: Record, reasons: dict[str, int]) -> float:
    """One difference: its interval, its mean (filled where the test separates), and both in words; returns where it ends."""
    beats, value = row["verdict"] == "beats", row["difference"]
    if value["lo"] is not None:
        ends = [value["lo"], value["hi"]]
        axes.plot(ends, [y + 0.12] * 2, color=row["color"], linewidth=2.2, solid_capstyle="round")
    axes.plot(
        [value["mean"]],
        [y + 0.12],
        "o",
        markersize=6.5,
        color=row["color"],
        markeredgewidth=1.6,
        fillstyle="full" if beats else "none",
    )
    _beside(axes, y + 0.12, text.interval(value), tone["ink"])
    if beats:
        return y + 0.24
    number = f" ({reasons[row['why']]})" if row["why"] else ""
    _beside(axes, y + 0.28, f"{row['verdict']}{number}", tone["soft"], NOTE)
    return y + 0.4
