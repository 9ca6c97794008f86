"""The tally for people: as markdown, and as pictures (equal tallies give equal bytes)."""

import itertools
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from decksmith.measure.results import plots
from decksmith.measure.results.runs import COLORS
from decksmith.measure.results.summary import TITLES
from decksmith.measure.results.text import interval, markdown_table, p_value
from decksmith.people.study.estimates import Preference
from decksmith.people.study.intervals import RATERS
from decksmith.people.study.raters import (
    CROWD_RULE,
    FASTEST,
    GOLD,
    REPEATS,
    Crowds,
    RaterSummary,
)
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


class TallyTable(NamedTuple):
    """A table of the tally, cells as text."""

    title: str
    header: list[str]
    rows: list[list[str]]
    words: int = 1  # how many columns, from the left, are words; the others are numbers
    note: str = ""


def markdown(found: StudyTally) -> str:
    """The tally as markdown."""
    lines = [f"# {found['study']['title']}", "", _summary(found), ""]
    if found["interval"]["over"] == "prompts":
        lines += [
            f"Fewer than {RATERS} raters: the intervals speak for these people, not for others.",
            "",
        ]
    for warning in found["crowds"]["warnings"]:
        lines += [f"**Warning:** {warning}.", ""]
    for table in _tables(found):
        lines += [f"**{table.title}**", ""]
        lines += [*markdown_table(table.header, table.rows, table.words), ""]
        if table.note:
            lines += [table.note, ""]
    said = [f"- {pair['sentence']}" for pair in found["pairs"]]
    return "\n".join([*lines, "**What may be said of the models**", "", *said, ""])


def _summary(found: StudyTally) -> str:
    """How many votes count, and how many do not."""
    of, people = found["votes"], found["raters"]
    raters = f"{people} rater{'s' * (people != 1)}"
    said = f"{of['counted']:,} votes by {raters} on {found['prompts']} prompts count"
    if of["of_raters_left_out"]:
        said += f"; {of['of_raters_left_out']} by raters who are left out do not"
    return (
        f"{said}. Gold items {of['gold']}, swapped repeats {of['repeats']}. "
        f"Intervals are of 95 %, over {found['interval']['over']}."
    )


def _tables(found: StudyTally) -> list[TallyTable]:
    shown = [_preference(found["pairs"]), _strength(found), _raters(found["people"])]
    if found["crowds"]["chose"]:
        shown.append(_crowds(found["crowds"]))
    return [*shown, _agreement(found), _position(found), _otherwise(found)]


def _preference(pairs: list[Preference]) -> TallyTable:
    rows = [
        [
            _both(pair),
            str(pair["votes"]),
            str(pair["for_a"]),
            str(pair["for_b"]),
            str(pair["tied"]),
            str(pair["bad"]),
            interval(pair["share"]),
            interval(pair["difference"]),
            p_value(pair["p_holm"]),
        ]
        for pair in pairs
    ]
    header = "Models|Votes|For the first|For the second|Tied|Both bad|Share of the first|Difference"
    note = (
        "Share: ties and both bad count a half. Difference: share of the votes for the first minus "
        "share for the second; p: sign-flip permutation test over prompts, Holm's correction over "
        "the pairs."
    )
    return TallyTable("Preference", [*header.split("|"), "p corrected"], rows, note=note)


def _both(pair: Preference) -> str:
    return f"{pair['a']} and {pair['b']}"


def _strength(found: StudyTally) -> TallyTable:
    strong = found["strengths"]
    rows = [
        [model, interval(strong["models"][model]), interval(value["share"]), interval(value["bad"])]
        for model, value in found["models"].items()
    ]
    note = (
        "Davidson's model: ties and the bias to a side are part of it; both bad goes in as a tie. "
    )
    if len(strong["groups"]) == 1:
        note += "A difference of 1 is odds of 2.7 to 1."
    else:
        groups = "; ".join(", ".join(group) for group in strong["groups"])
        note += (
            f"The votes do not join all models: {groups}. Between these groups one side lost every "
            "vote, or there was none, so a difference of strengths is not finite."
        )
    header = ["Model", "Log strength", "Share of its votes", "Both bad"]
    return TallyTable("Strength", header, rows, note=note)


def _raters(people: list[RaterSummary]) -> TallyTable:
    rows = [
        [
            rater["rater"],
            str(rater["votes"]),
            f"{rater['gold']['failed']} of {rater['gold']['n']}",
            f"{rater['repeats']['same']} of {rater['repeats']['n']}",
            _percent(rater["left"]),
            str(rater["tied"]),
            str(rater["bad"]),
            "–" if rater["seconds"] is None else f"{rater['seconds']:.1f}",
            rater["excluded"] or "",
        ]
        for rater in people
    ]
    header = "Rater|Votes|Gold failed|Repeats the same|Left|Tied|Both bad|Seconds|Left out"
    note = (
        f"Left out: more than a third of {GOLD} or more gold items failed, the other deck in all "
        "of "
        f"{REPEATS} or more swapped repeats (without a tie), or a median below {FASTEST:g} s."
    )
    return TallyTable("Raters", header.split("|"), rows, note=note)


def _crowds(found: Crowds) -> TallyTable:
    """Who chose a name whence and when."""
    rows = [
        [
            one["origin"],
            str(one["people"]),
            str(one["votes"]),
            _percent(one["share"]),
            _minute(one["first"]),
            _minute(one["last"]),
        ]
        for one in found["found"]
    ]
    addresses = f"{found['addresses']} address{'es' * (found['addresses'] != 1)}"
    note = (
        f"{found['chose']} people chose their names, from {addresses}; "
        f"{found['people']} of them are in a crowd: {CROWD_RULE}"
    )
    header = ["From", "People", "Votes", "Share of votes", "First name", "Last name"]
    return TallyTable("Crowds", header, rows, note=note)


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")


def _agreement(found: StudyTally) -> TallyTable:
    people = found["agreement"]
    another, at_most = interval(people["another"]), interval(people["at_most"])
    rows = [
        ["Another person", another, "", "", str(people["another"]["n"])],
        ["Any judge, at most", at_most, "", "", ""],
    ]
    for name, value in (found["judge"] or {}).items():
        choice, shared, own = map(interval, (value["choice"], value["shared"], value["own"]))
        rows.append([TITLES.get(name, name), choice, shared, own, str(value["choice"]["n"])])
    note = (
        "Of untied votes; a tie or equal numbers count a half, so 0.50 is chance. The first two "
        f'lines are from {people["pairs"]} pairs that several people saw, to be held against "Of '
        'shared pairs". Another person is no ceiling: who knows what most people prefer follows '
        "more votes than a person does; the second line is as high as that can be. "
        f"Krippendorff's alpha {interval(people['alpha'])} (ordinal)."
    )
    header = ["By", "The choice", "Of shared pairs", "The same dimension", "Votes"]
    return TallyTable("Who prefers the deck that a person prefers", header, rows, note=note)


def _position(found: StudyTally) -> TallyTable:
    place, pace = found["position"], found["seconds"]
    turned = place["repeats"]
    rows = [
        ["Left, of untied votes", interval(place["left"]), ""],
        ["Advantage of the left side, log odds", interval(place["log_odds"]), ""],
        [
            "Swapped repeats",
            f"{turned['same']} of {turned['n']} the same",
            f"{turned['against']} the other deck",
        ],
    ]
    if pace:
        half = f"[{pace['lower']:.1f}, {pace['upper']:.1f}] middle half"
        rows.append(["Seconds a vote", f"{pace['median']:.1f}", half])
    return TallyTable("Position and time", ["", "", ""], rows)


def _otherwise(found: StudyTally) -> TallyTable:
    ways = {"as above": found["pairs"]}
    for key, word in OTHERWISE.items():
        if key in found["otherwise"]:
            ways[word] = found["otherwise"][key]["pairs"]
    rows = []
    for models in map(_both, found["pairs"]):
        for word, pairs in ways.items():
            for pair in pairs:
                if _both(pair) == models:
                    figures = [interval(pair["share"]), interval(pair["difference"])]
                    rows.append([models, word, str(pair["votes"]), *figures])
    header = ["Models", "Votes", "Number", "Share of the first", "Difference"]
    return TallyTable("Counted in other ways", header, rows, words=2)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


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


def _room(figure: "Drawing", below: float) -> None:
    """Room for names at the left, text at the right, and so many inches below."""
    figure.subplots_adjust(left=0.23, right=0.74, bottom=below / figure.get_figheight())


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
    figure, axes = pyplot.subplots(figsize=(8.4, 1.45 + 0.5 * len(rows)))
    for y, (model, value) in enumerate(rows):
        color = colors[model]
        if value["lo"] is not None:
            ends = [value["lo"], value["hi"]]
            axes.plot(ends, [y, y], color=color, linewidth=2.2, solid_capstyle="round")
        axes.plot([value["mean"]], [y], "o", markersize=7, color=color, markeredgewidth=1.6)
        _at_right(axes, y, interval(value), tone["ink"])
    axes.axvline(0, color=tone["soft"], linewidth=1)
    axes.grid(axis="x", color=tone["line"], linewidth=0.8)
    axes.set_yticks(range(len(rows)), [plots.wrapped(model) for model, _ in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    _room(figure, 0.35)
    note = f"Log odds, mean 0. {_size(found)} Lines are 95 % intervals."
    plots.titled(figure, tone, "Strength by people's votes", note, 0.85)
    return figure


def _plot_preference(
    pyplot: ModuleType, tone: Tone, *, found: Tally, colors: Mapping[str, str]
) -> "Drawing":
    pairs = list(reversed(found["pairs"]))
    figure, axes = pyplot.subplots(figsize=(8.8, 1.75 + 0.62 * len(pairs)))
    for y, pair in enumerate(pairs):
        _bar(axes, y, pair, colors, tone)
        verdict = "separated" if pair["verdict"] == "beats" else pair["verdict"]
        _at_right(axes, y, f"{interval(pair['share'])}\n{verdict}", tone["ink"])
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "half", "all"])
    names = [f"{plots.wrapped(pair['a'])}\nand {plots.wrapped(pair['b'])}" for pair in pairs]
    axes.set_yticks(range(len(pairs)), names)
    axes.set_ylim(-0.6, len(pairs) - 0.4)
    _room(figure, 0.4)
    note = (
        "From the left: for the first, tied, both bad (darker), for the second.\n"
        "At the right: share of the first (ties and both bad a half) in its 95 % interval. "
        f"{_size(found)}"
    )
    plots.titled(figure, tone, "Votes for each of two models", note, 1.0)
    return figure


def _bar(axes: "Axes", y: float, pair: Preference, colors: Mapping[str, str], tone: Tone) -> None:
    """The votes on two models, side by side, with their numbers where there is room."""
    left = 0.0
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
