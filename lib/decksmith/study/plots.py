"""The tally as pictures; equal tallies give equal bytes."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from decksmith.results import plots as reports
from decksmith.results.runs import COLORS
from decksmith.results.summary import TITLES
from decksmith.results.text import interval

JUDGE, PEOPLE = "#3d7ea6", "#c2912b"

Tone = dict[str, str]  # colours by what they are for (reports.INKS)


def draw(
    out: Path,
    found: dict[str, Any],
    colors: dict[str, str] | None = None,
    forms: reports.Forms = reports.PRINT,
) -> list[str]:
    """Draw the tally into the folder `out`; returns the file names. colors: {model: colour}."""
    drawn = dict(zip(sorted(found["models"]), itertools.cycle(COLORS))) | (colors or {})
    kinds = {"strengths": _strengths, "preference": _preference, "agreement": _agreement}
    names: list[str] = []
    for name, kind in kinds.items():

        def figure(pyplot: Any, tone: Tone, kind: Any = kind) -> Any:
            return kind(pyplot, found, drawn, tone)

        names += reports.each_form(out, name, figure, forms)
    return names


def _line(axes: Any, y: float, value: dict[str, Any], color: str, tone: Tone) -> None:
    """A point with its interval, and both as text at the right."""
    if value["lo"] is not None:
        axes.plot(
            [value["lo"], value["hi"]], [y, y], color=color, linewidth=2.2, solid_capstyle="round"
        )
    axes.plot([value["mean"]], [y], "o", markersize=7, color=color, markeredgewidth=1.6)
    _beside(axes, y, interval(value), color=tone["ink"])


def _beside(axes: Any, y: float, text: str, **how: Any) -> None:
    axes.text(1.03, y, text, va="center", size=9, transform=axes.get_yaxis_transform(), **how)


def _rows(axes: Any, tone: Tone, names: Sequence[str], at: float = 0.0) -> None:
    """A row for each name, and a line where nothing is preferred."""
    axes.axvline(at, color=tone["soft"], linewidth=1)
    axes.grid(axis="x", color=tone["line"], linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)


def _room(figure: Any, below: float) -> None:
    """Room for names at the left, text at the right, and so many inches below."""
    figure.subplots_adjust(left=0.23, right=0.74, bottom=below / figure.get_figheight())


def _size(found: dict[str, Any]) -> str:
    return f"{found['votes']['counted']:,} votes, {found['raters']} raters, {found['prompts']} prompts."


def _strengths(pyplot: Any, found: dict[str, Any], colors: dict[str, str], tone: Tone) -> Any:
    models = sorted(found["strengths"]["models"].items(), reverse=True)
    rows = [(model, value) for model, value in models if value["mean"] is not None]
    if len(found["strengths"]["groups"]) > 1 or not rows:
        return None  # strengths of different groups have no common scale
    figure, axes = pyplot.subplots(figsize=(8.4, 1.45 + 0.5 * len(rows)))
    for y, (model, value) in enumerate(rows):
        _line(axes, y, value, colors[model], tone)
    _rows(axes, tone, [reports.wrapped(model) for model, _ in rows])
    _room(figure, 0.35)
    note = f"Log odds, mean 0. {_size(found)} Lines are 95 % intervals."
    reports.titled(figure, tone, "Strength by people's votes", note, 0.85)
    return figure


def _preference(pyplot: Any, found: dict[str, Any], colors: dict[str, str], tone: Tone) -> Any:
    pairs = list(reversed(found["pairs"]))
    figure, axes = pyplot.subplots(figsize=(8.8, 1.75 + 0.62 * len(pairs)))
    for y, pair in enumerate(pairs):
        _bar(axes, y, pair, colors, tone)
        verdict = "separated" if pair["verdict"] == "beats" else pair["verdict"]
        _beside(axes, y, f"{interval(pair['share'])}\n{verdict}")
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "half", "all"])
    names = [f"{reports.wrapped(pair['a'])}\nand {reports.wrapped(pair['b'])}" for pair in pairs]
    axes.set_yticks(range(len(pairs)), names)
    axes.set_ylim(-0.6, len(pairs) - 0.4)
    _room(figure, 0.4)
    note = (
        "From the left: for the first, tied, both bad (darker), for the second.\n"
        f"At the right: share of the first (ties and both bad a half) in its 95 % interval. {_size(found)}"
    )
    reports.titled(figure, tone, "Votes for each of two models", note, 1.0)
    return figure


def _bar(axes: Any, y: float, pair: dict[str, Any], colors: dict[str, str], tone: Tone) -> None:
    """The votes on two models, side by side, with their numbers where there is room."""
    left = 0.0
    for key, color, alpha in (
        ("for_a", colors[pair["a"]], 0.75),
        ("tied", tone["soft"], 0.3),
        ("bad", tone["soft"], 0.6),
        ("for_b", colors[pair["b"]], 0.75),
    ):
        width = pair[key] / pair["votes"]
        axes.barh(y, width, left=left, height=0.42, color=color, alpha=alpha, linewidth=0)
        if width > 0.05:
            axes.text(left + width / 2, y, str(pair[key]), ha="center", va="center", size=9)
        left += width


def _agreement(pyplot: Any, found: dict[str, Any], colors: dict[str, str], tone: Tone) -> Any:
    people, judge = found["agreement"], found["judge"] or {}
    rows = [
        ("Another person", people["another"], PEOPLE),
        ("Majority of the others", people["majority"], PEOPLE),
        ("Any judge, at most", people["at_most"], PEOPLE),
        *((TITLES.get(name, name), value["choice"], JUDGE) for name, value in judge.items()),
    ]
    rows = [row for row in reversed(rows) if row[1]["n"]]  # drawn from below
    if not rows:
        return None
    figure, axes = pyplot.subplots(figsize=(8.4, 1.65 + 0.42 * len(rows)))
    for y, (_, value, color) in enumerate(rows):
        _line(axes, y, value, color, tone)
    _rows(axes, tone, [name for name, *_ in rows], 0.5)
    axes.set_xlim(0, 1)
    _room(figure, 0.35)
    note = (
        "Of untied votes; 0.5 is chance. Another person is no ceiling: a judge can be above.\n"
        "Lines are 95 % intervals."
    )
    reports.titled(figure, tone, "Who prefers the deck that a person prefers", note, 1.05)
    return figure
