"""Plots of runs as PNG and SVG; equal runs give equal bytes."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decksmith.core import cli, stream
from decksmith.measure.results import claims, tables
from decksmith.measure.results.comparison import Comparison, Run
from decksmith.measure.results.pairs import COUNTED
from decksmith.measure.results.records import Mean
from decksmith.measure.results.runs import caption, measures, of_edits, offline, titles
from decksmith.measure.results.summary import SHARES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Draw = Callable[["Tone"], Figure]

Tone = dict[str, str]  # colors by what they are for
Point = tuple[float, float]
Forms = Mapping[str, Sequence[str]]  # of each ink (INKS): "png", "svg"
PRINT: Forms = {"light": ("png", "svg")}
# Inches. A plot is as wide as a phone's screen or a column of a page, so that its type is of one
# size in all of them and nobody has to enlarge it.
WIDTH, LEFT, BARS, LINE, BAR, GAP = 4.2, 0.12, 2.62, 0.19, 0.24, 0.14
TITLE, TEXT, NOTE = 12.5, 9.5, 9  # points

INKS = {
    "light": dict(ink="#1f2328", soft="#5f656d", line="#e3e1db", paper="#ffffff", halo="#ffffff"),
    "dark": dict(ink="#e8e6e1", soft="#9aa0a8", line="#34383e", paper="none", halo="#1a1d21"),
}


@contextmanager
def style(ink: str = "light") -> Iterator[Tone]:
    """The colors of the style of the reports, which holds until the block ends; `ink` is a name of INKS."""
    import matplotlib.style

    _fonts()
    tone = INKS[ink]
    colors = {
        "text.color": tone["ink"],
        "axes.labelcolor": tone["soft"],
        "xtick.color": tone["soft"],
        "ytick.color": tone["ink"],
        "axes.edgecolor": tone["line"],
        "figure.facecolor": tone["paper"],
    }
    with matplotlib.style.context([cli.ROOT / "assets" / "plots.mplstyle", colors]):
        yield tone


def drawn(figure: Figure, form: str, **more: Any) -> bytes:
    """The bytes of a figure as "png" or "svg"; equal figures give equal bytes. `more` goes to savefig."""
    nameless = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[form]
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, metadata=nameless, **{"dpi": 160, **more})
    return buffer.getvalue()


def plots(out: Path, runs: list[Run], compared: Comparison, forms: Forms = PRINT) -> list[str]:
    """Draw the scores of `runs`, `compared` by claims.compare, into the folder `out`; returns the file names."""
    draw = partial(_plot_scores, runs=runs, compared=compared)
    return each_form(out, "scores", draw, forms)


def loss(out: Path, metrics: Path, forms: Forms = PRINT) -> list[str]:
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
    return each_form(out, "loss", draw, forms)


def each_form(out: Path, name: str, draw: Draw, forms: Forms = PRINT) -> list[str]:
    """Draw one figure in the forms of each ink; returns the file names."""
    names = []
    for ink, files in forms.items():
        with style(ink) as tone:
            figure = draw(tone)
            for form in files:
                file = f"{name}{'' if ink == 'light' else '-' + ink}.{form}"
                stream.write(Path(out) / file, drawn(figure, form, dpi=240))
                names.append(file)
    return names


@lru_cache
def _fonts() -> tempfile.TemporaryDirectory[str]:
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


# What is given to matplotlib by keyword.
REGULAR: dict[str, Any] = {"family": ["Deck", "DejaVu Sans"]}
BOLD: dict[str, Any] = {"family": ["Deck Bold", "DejaVu Sans"]}


# The frame of a plot: lines of text, below them the axes, below these notes


@dataclass
class Said:
    """A line of text above the axes; `dot` is the color of a mark before it."""

    text: str
    size: float = TEXT
    color: str = "ink"
    bold: bool = False
    dot: str | None = None


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


def titled(figure: Figure, tone: Tone, title: str, note: str, top: float) -> None:
    """A title and a note at the upper left, `top` inches of room above the axes."""
    height = figure.get_figheight()
    figure.subplots_adjust(top=1 - top / height)
    left = min(axes.get_position().x0 for axes in figure.axes)
    figure.text(left, 1 - 0.12 / height, title, size=14, **BOLD, va="top")
    figure.text(
        left, 1 - 0.42 / height, note, size=9, color=tone["soft"], va="top", linespacing=1.45
    )


def _sheet(tone: Tone, said: Sequence[Said], body: float) -> tuple[Figure, Axes]:
    """`(figure, axes)`: `said` above, below it axes of `body` inches in which y counts inches downwards."""
    from matplotlib.figure import Figure

    parts: list[tuple[float, float, str, dict[str, Any]]] = []
    top = 0.12
    for line in said:
        left = LEFT + 0.17 * bool(line.dot)
        lines = fitted(line.text, WIDTH - LEFT - left, line.size, line.bold)
        if line.dot:
            parts.append((LEFT, top, "●", {"size": TEXT, "color": line.dot}))
        for part in lines:
            look = {"size": line.size, "color": tone[line.color], **(BOLD if line.bold else {})}
            parts.append((left, top, part, look))
            top += LINE
        top += 0.08 if line.size == TITLE else 0.05
    top, below = top + 0.14, 0.3
    height = top + body + below
    figure = Figure(figsize=(WIDTH, height))
    for left, at, part, look in parts:
        figure.text(left / WIDTH, 1 - at / height, part, va="top", **look)
    axes = figure.add_axes((LEFT / WIDTH, below / height, BARS / WIDTH, body / height))
    axes.set_ylim(body or 1, 0)
    axes.set_yticks([])
    axes.tick_params(labelsize=NOTE)
    return figure, axes


def _heading(axes: Axes, tone: Tone, y: float, words: str) -> float:
    """Bold lines of text within the axes, from the left, before whatever lies there; returns where they end."""
    from matplotlib.patheffects import withStroke

    place, halo = axes.get_yaxis_transform(), withStroke(linewidth=3, foreground=tone["halo"])
    for part in fitted(words, WIDTH - 2 * LEFT, TEXT, bold=True):
        written = axes.text(0, y + LINE / 2, part, va="center", size=TEXT, transform=place, **BOLD)
        written.set_path_effects([halo])
        y += LINE
    return y


# Means: groups of bars under a heading


@dataclass
class Bar:
    """A mean with its interval; `words` stand at its right."""

    value: Mean
    mean: float
    color: str
    words: str
    hollow: bool = False


Group = tuple[str, list[Bar]]  # a heading, and what stands below it


def grouped(
    tone: Tone, said: Sequence[Said], groups: Sequence[Group], begin: float
) -> tuple[Figure, Axes]:
    """`(figure, axes)` of groups of bars. begin: where bars begin."""
    body = 0.0
    for title, bars in groups:
        lines = fitted(title, WIDTH - 2 * LEFT, TEXT, bold=True)
        body += LINE * len(lines) + BAR * len(bars) + GAP
    figure, axes = _sheet(tone, said, body)
    y = 0.0
    for title, bars in groups:
        y = _heading(axes, tone, y, title)
        for bar in bars:
            _draw(axes, tone, y + 0.12, bar, begin)
            y += BAR
        y += GAP
    return figure, axes


def _draw(axes: Axes, tone: Tone, y: float, bar: Bar, begin: float) -> None:
    color, lo, hi = bar.color, bar.value["lo"], bar.value["hi"]
    alpha, width = 0.14 if bar.hollow else 0.30, bar.mean - begin
    axes.barh(y, width, left=begin, height=0.16, color=color, alpha=alpha, linewidth=0)
    if lo is not None and hi is not None:
        round_: dict[str, Any] = {"solid_capstyle": "round", "clip_on": False}
        axes.plot([lo, hi], [y, y], color=color, linewidth=2.2, **round_)
    look: dict[str, Any] = {"markersize": 6.5, "markeredgewidth": 1.6, "zorder": 3}
    fill: dict[str, Any] = {"fillstyle": "none" if bar.hollow else "full", "clip_on": False}
    axes.plot([bar.mean], [y], "o", color=color, **look, **fill)
    place: dict[str, Any] = {"va": "center", "transform": axes.get_yaxis_transform()}
    axes.text(1 + 0.12 / BARS, y, bar.words, color=tone["ink"], size=TEXT, **place)


def _plot_scores(tone: Tone, *, runs: list[Run], compared: Comparison) -> Figure:
    """How many decks render and how good these are, models by name: the order of the means would read as a ranking. Under a
    judge that reads also with failures counted as 1, and each dimension."""
    named = titles(runs)
    if offline(runs):
        groups = [
            ("Requests with a deck that renders", _means(runs, "floor", "renders")),
            ("Checks passed by these decks", _means(runs, "renderable", "checks")),
        ]
        note, ends = "Lines are 95 % intervals.", (0, 1)
    elif of_edits(runs):
        groups = [(named[name], _means(runs, "floor", name)) for name in ("met", "stayed", "edit")]
        note, ends = "Lines are 95 % intervals.", (0, 1)
    else:
        groups = [
            (f"{named['overall']}, of decks that render", _means(runs, "renderable", "overall")),
            (f"{named['overall']}, failures as 1", _means(runs, "floor", "overall")),
        ]
        for name in dimensions(runs):
            groups.append((named.get(name, name), _means(runs, "renderable", name)))
        note, ends = "1 is the least, 5 the most. Lines are 95 % intervals.", (1, 5)
    said = [
        Said("What the models' decks are worth", TITLE, bold=True),
        Said(f"{caption(runs).partition(' (')[0]}. {note}", NOTE, "soft"),
        *(Said(line) for line in _said(compared)),
        *(Said(run["label"], dot=run["color"]) for run in runs),
    ]
    figure, axes = grouped(tone, said, groups, begin=ends[0])
    scaled(axes, tone, ends)
    return figure


def _means(runs: list[Run], accounting: str, measure: str) -> list[Bar]:
    """A bar for each run that has the mean, beside it the count or the value."""
    bars, hollow = [], (accounting, measure) == COUNTED
    for run in runs:
        mean = run["summary"]["means"][accounting].get(measure)
        if mean and mean["mean"] is not None:
            said = tables.renders(run) if measure == "renders" else tables.valued(measure, mean)
            bars.append(Bar(mean, mean["mean"], run["color"], said, hollow))
    return bars


def scaled(axes: Axes, tone: Tone, ends: tuple[int, int]) -> None:
    """The axis of a plot, of marks from 1 to 5 or of shares."""
    axes.set_xlim(*ends)
    if ends == (0, 1):
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
    else:
        axes.set_xticks([1, 2, 3, 4, 5])
    axes.grid(axis="x", color=tone["line"], linewidth=0.8)


def _said(compared: Comparison) -> list[str]:
    """What may be said: each pair where there are few, otherwise the ranks."""
    if len(compared["runs"]) < 2:
        return []
    ranked = claims.ranked(compared)
    return [ranked] if len(compared["headlines"]) > 3 and ranked else compared["headlines"][:3]


def dimensions(runs: list[Run]) -> list[str]:
    """The dimensions of which any of these runs has a mean."""
    others = ("overall", "judge_only", "craft", "craft_v5", *SHARES)
    return [name for name in measures(runs) if name not in others]


# The loss of a training


def _plot_loss(tone: Tone, *, steps: list[Point], held: list[Point]) -> Figure:
    from matplotlib.ticker import MaxNLocator

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
    said = [Said("Training loss over steps", TITLE, bold=True), Said(note, NOTE, "soft")]
    said += [Said(name, dot=color) for _, color, _, name in lines]
    figure, axes = _sheet(tone, said, 2.3)
    place = axes.get_position()
    axes.set_position((0.42 / WIDTH, place.y0, (WIDTH - 0.62) / WIDTH, place.height))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.tick_params(axis="y", labelcolor=tone["soft"])
    for points, color, how, _ in lines:
        axes.plot(*zip(*points, strict=True), color=color, **how)
    axes.locator_params(axis="x", nbins=6, integer=True)
    axes.grid(axis="y", color=tone["line"], linewidth=0.8)
    axes.set_ylim(0, 1.05 * max(value for points, *_ in lines for _, value in points))
    return figure
