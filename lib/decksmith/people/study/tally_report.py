"""The tally for people: as markdown, and as pictures (equal tallies give equal bytes)."""

import itertools
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from decksmith.core import cli, pages
from decksmith.measure.results import plots
from decksmith.measure.results.runs import COLORS
from decksmith.measure.results.summary import TITLES
from decksmith.measure.results.text import interval, p_value, price
from decksmith.people.study import intervals, raters
from decksmith.people.study.tally import StudyTally, Tally

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

Tone = dict[str, str]  # colours by what they are for (plots.INKS)

OTHERWISE = {
    "with_raters_left_out": "all raters",
    "without_both_bad": "without both bad",
    "without_crowds": "without crowds",
    "ties_dropped": "without ties",
}


def card(name: str, **known: object) -> str:
    """The text of assets/cards/NAME.md.j2, filled with what is known."""
    import jinja2

    templates = pages.environment(
        cli.ROOT / "assets" / "cards", keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    templates.filters |= {
        "cell": lambda text: text.replace("|", "\\|"),
        "figure": interval,
        "p_value": p_value,
        "percent": lambda share: "–" if share is None else f"{100 * share:.0f} %",
        "price": price,
    }
    return templates.get_template(f"{name}.md.j2").render(known)


def markdown(found: StudyTally) -> str:
    """The tally as markdown."""
    rules = {
        "RATERS": intervals.RATERS,
        "GOLD": raters.GOLD,
        "REPEATS": raters.REPEATS,
        "FASTEST": raters.FASTEST,
        "CROWD_RULE": raters.CROWD_RULE,
    }
    ways = {"as above": found["pairs"]}
    for key, word in OTHERWISE.items():
        if key in found["otherwise"]:
            ways[word] = found["otherwise"][key]["pairs"]
    return card("tally", **found, rules=rules, ways=ways, titles=TITLES)


# Pictures


def draw(out: Path, found: Tally) -> list[str]:
    """Draw the tally into the folder `out`; returns the file names."""
    colors = dict(zip(sorted(found["models"]), itertools.cycle(COLORS)))
    names: list[str] = []
    for name, kind in (("strengths", _plot_strengths), ("preference", _plot_preference)):
        names += plots.each_form(out, name, partial(kind, found=found, colors=colors))
    return names


def _at_right(axes: "Axes", y: float, text: str, color: str) -> None:
    transform = axes.get_yaxis_transform()
    axes.text(1.03, y, text, va="center", size=9, transform=transform, color=color)


def _label(
    figure: "Drawing", axes: "Axes", tone: Tone, names: list[str], title: str, note: str
) -> None:
    """Names at the left, room for text at the right, a title and a note above."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    figure.subplots_adjust(left=0.23, right=0.74, bottom=0.4 / figure.get_figheight())
    plots.titled(figure, tone, title, note, 1.0)


def _size(found: Tally) -> str:
    votes = found["votes"]["counted"]
    return f"{votes:,} votes, {found['raters']} raters, {found['prompts']} prompts."


def _plot_strengths(
    pyplot: ModuleType, tone: Tone, *, found: Tally, colors: Mapping[str, str]
) -> "Drawing | None":
    models = sorted(found["strengths"]["models"].items(), reverse=True)
    rows = [(model, value) for model, value in models if value["mean"] is not None]
    if len(found["strengths"]["groups"]) > 1 or not rows:
        return None  # strengths of different groups have no common scale
    figure, axes = pyplot.subplots(figsize=(8.4, 1.65 + 0.5 * len(rows)))
    for y, (model, value) in enumerate(rows):
        color = colors[model]
        if value["lo"] is not None:
            ends = [value["lo"], value["hi"]]
            axes.plot(ends, [y, y], color=color, linewidth=2.2, solid_capstyle="round")
        axes.plot([value["mean"]], [y], "o", markersize=7, color=color, markeredgewidth=1.6)
        _at_right(axes, y, interval(value), tone["ink"])
    axes.axvline(0, color=tone["soft"], linewidth=1)
    axes.grid(axis="x", color=tone["line"], linewidth=0.8)
    names = [plots.wrapped(model) for model, _ in rows]
    note = f"Log odds, mean 0. {_size(found)} Lines are 95 % intervals."
    _label(figure, axes, tone, names, "Strength by people's votes", note)
    return figure


def _plot_preference(
    pyplot: ModuleType, tone: Tone, *, found: Tally, colors: Mapping[str, str]
) -> "Drawing":
    pairs = list(reversed(found["pairs"]))
    figure, axes = pyplot.subplots(figsize=(8.8, 1.75 + 0.62 * len(pairs)))
    for y, pair in enumerate(pairs):
        left = 0.0  # the votes side by side, with their numbers where there is room
        for count, color, alpha in (
            (pair["for_a"], colors[pair["a"]], 0.75),
            (pair["tied"], tone["soft"], 0.3),
            (pair["bad"], tone["soft"], 0.6),
            (pair["for_b"], colors[pair["b"]], 0.75),
        ):
            width = count / pair["votes"]
            axes.barh(y, width, left=left, height=0.42, color=color, alpha=alpha, linewidth=0)
            if width > 0.05:
                axes.text(left + width / 2, y, str(count), ha="center", va="center", size=9)
            left += width
        verdict = "separated" if pair["verdict"] == "beats" else pair["verdict"]
        _at_right(axes, y, f"{interval(pair['share'])}\n{verdict}", tone["ink"])
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "half", "all"])
    names = [f"{plots.wrapped(pair['a'])}\nand {plots.wrapped(pair['b'])}" for pair in pairs]
    note = (
        "From the left: for the first, tied, both bad (darker), for the second.\n"
        "At the right: share of the first (ties and both bad a half) in its 95 % interval. "
        f"{_size(found)}"
    )
    _label(figure, axes, tone, names, "Votes for each of two models", note)
    return figure
