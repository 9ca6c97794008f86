"""The tally as text: markdown with its tables for people, and the votes as JSONL and CSV."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from decksmith.core import stream
from decksmith.results.summary import TITLES
from decksmith.results.text import interval, markdown_table, p_value
from decksmith.study import crowds
from decksmith.study.intervals import RATERS, Vote
from decksmith.study.people import RULE

OTHERWISE = {
    "with_raters_left_out": "all raters",
    "without_both_bad": "without both bad",
    "with_crowds": "with crowds",
    "without_crowds": "without crowds",
    "ties_half": "ties a half for each",
    "ties_dropped": "without ties",
}
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the beginning of one


class Table(NamedTuple):
    """A table of the tally, cells as text."""

    title: str
    header: list[str]
    rows: list[list[str]]
    words: int = 1  # how many columns, from the left, are words; the others are numbers
    note: str = ""


def markdown(found: dict[str, Any], title: str = "Votes") -> str:
    """The tally as markdown."""
    lines = [f"# {title}", "", _summary(found), ""]
    if found["interval"]["over"] == "prompts":
        lines += [
            f"Fewer than {RATERS} raters: the intervals speak for these people, not for others.",
            "",
        ]
    left_out = ". They are left out." if found["crowds"]["left_out"] else "."
    for warning in found["crowds"]["warnings"]:
        lines += [f"**Warning:** {warning}{left_out}", ""]
    for table in tables(found):
        lines += [f"**{table.title}**", ""]
        lines += [*markdown_table(table.header, table.rows, table.words), ""]
        if table.note:
            lines += [table.note, ""]
    said = [f"- {pair['sentence']}" for pair in found["pairs"]]
    return "\n".join([*lines, "**What may be said of the models**", "", *said, ""])


def _summary(found: dict[str, Any]) -> str:
    """How many votes count, and how many do not."""
    of, people = found["votes"], found["raters"]
    said = f"{of['counted']:,} votes by {people} rater{'s' * (people != 1)} on {found['prompts']} prompts count"
    if of["of_raters_left_out"]:
        said += f"; {of['of_raters_left_out']} by raters who are left out do not"
    if of["ties_dropped"]:
        said += f"; {of['ties_dropped']} that prefer neither deck are dropped"
    return (
        f"{said}. Gold items {of['gold']}, swapped repeats {of['repeats']}. "
        f"Intervals are of 95 %, over {found['interval']['over']}."
    )


def tables(found: dict[str, Any]) -> list[Table]:
    """Every table of the tally."""
    shown = [_preference(found), _strength(found), _raters(found)]
    if found["crowds"]["chose"]:
        shown.append(_crowds(found["crowds"]))
    if found["crowds"]["by_time"]:
        shown.append(_time(found["crowds"]))
    shown.append(_agreement(found))
    if found["weights"]:
        shown.append(_weights(found["weights"]))
    return [*shown, _position(found), _otherwise(found)]


def _preference(found: dict[str, Any]) -> Table:
    header = [
        "Models",
        "Votes",
        "For the first",
        "For the second",
        "Tied",
        "Both bad",
        "Share of the first",
        "Difference",
        "p corrected",
    ]
    rows = [
        [
            _both(pair),
            *(str(pair[key]) for key in ("votes", "for_a", "for_b", "tied", "bad")),
            interval(pair["share"]),
            interval(pair["difference"]),
            p_value(pair["p_holm"]),
        ]
        for pair in found["pairs"]
    ]
    note = (
        "Share: ties and both bad count a half. Difference: share of the votes for the first minus share for the second; p: sign-flip "
        "permutation test over prompts, Holm's correction over the pairs."
    )
    return Table("Preference", header, rows, note=note)


def _both(pair: dict[str, Any]) -> str:
    return f"{pair['a']} and {pair['b']}"


def _strength(found: dict[str, Any]) -> Table:
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
            f"The votes do not join all models: {groups}. Between these groups one side lost every vote, or there was none, so a "
            "difference of strengths is not finite."
        )
    return Table(
        "Strength", ["Model", "Log strength", "Share of its votes", "Both bad"], rows, note=note
    )


def _raters(found: dict[str, Any]) -> Table:
    header = [
        "Rater",
        "Votes",
        "Gold failed",
        "Repeats the same",
        "Left",
        "Tied",
        "Both bad",
        "Seconds",
        "Left out",
    ]
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
        for rater in found["people"]
    ]
    note = (
        f"Left out: more than a third of {RULE['gold']['least']} or more gold items failed, the other deck in all of "
        f"{RULE['repeats']['least']} or more swapped repeats (without a tie), or a median below {RULE['seconds']:g} s."
    )
    return Table("Raters", header, rows, note=note)


def _crowds(found: dict[str, Any]) -> Table:
    """Who chose a name whence and when."""
    rows = [
        [
            crowds.origin(one),
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
        f"{found['people']} of them are in a crowd: {crowds.rule()}"
    )
    header = ["From", "People", "Votes", "Share of votes", "First name", "Last name"]
    return Table("Crowds", header, rows, note=note)


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")


def _time(found: dict[str, Any]) -> Table:
    rows = [[time, str(names), str(votes)] for time, names, votes in found["by_time"]]
    return Table("Time", ["From", "Names chosen", "Votes"], rows, note="In UTC.")


def _agreement(found: dict[str, Any]) -> Table:
    people = found["agreement"]
    rows = [
        ["Another person", interval(people["another"]), "", "", str(people["another"]["n"])],
        [
            "Majority of the others",
            interval(people["majority"]),
            "",
            "",
            str(people["majority"]["n"]),
        ],
        ["Any judge, at most", interval(people["at_most"]), "", "", ""],
    ]
    for name, value in (found["judge"] or {}).items():
        figures = (interval(value[key]) for key in ("choice", "shared", "own"))
        rows.append([TITLES.get(name, name), *figures, str(value["choice"]["n"])])
    note = (
        "Of untied votes; a tie or equal numbers count a half, so 0.50 is chance. The first three lines are from "
        f'{people["pairs"]} pairs that several people saw, to be held against "Of shared pairs". Another person is no ceiling: who knows '
        "what most people prefer follows more votes than a person does; the third line is as high as that can be. "
        f"Krippendorff's alpha {interval(people['alpha_ordinal'])} (ordinal), "
        f"{interval(people['alpha_nominal'])} (four choices)."
    )
    header = ["By", "The choice", "Of shared pairs", "The same dimension", "Votes"]
    return Table("Who prefers the deck that a person prefers", header, rows, note=note)


def _weights(fitted: dict[str, Any]) -> Table:
    rows = []
    for name, value in fitted["dimensions"].items():
        cells = ["–", "no two decks differ"]
        if value["suggested"] is not None:
            cells = [f"{value['suggested']:.2f}", f"[{value['lo']:.2f}, {value['hi']:.2f}]"]
        rows.append([TITLES.get(name, name), f"{value['current']:.2f}", *cells])
    accuracy = fitted["accuracy"]
    advice = (
        "The gain holds on prompts that were held out."
        if fitted["advice"] == "adopt"
        else "No gain on held-out prompts is shown: keep the weights."
    )
    note = (
        f"Votes followed: {interval(accuracy['current'])} with the weights of now, {interval(accuracy['held_out'])} with weights fitted "
        f"to other prompts (difference {interval(fitted['gain'])}), {interval(accuracy['fitted'])} of the votes they were fitted to. "
        f"{advice}"
    )
    header = ["Dimension", "Now", "Fitted to people", "Interval"]
    return Table("Weights of the judge", header, rows, note=note)


def _position(found: dict[str, Any]) -> Table:
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
    return Table("Position and time", ["", "", ""], rows)


def _otherwise(found: dict[str, Any]) -> Table:
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
    return Table("Counted in other ways", header, rows, words=2)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def export(votes: Iterable[Vote]) -> tuple[bytes, bytes]:
    """The votes as `(JSONL, CSV)`; in the CSV dimensions have columns of their own and tags
    stand with blanks between. Cells that a spreadsheet would take for a formula get a quote
    before them."""
    votes = list(votes)
    lines = b"".join(stream.dumps(vote) + b"\n" for vote in votes)
    dimensions = sorted({name for vote in votes for name in vote.get("dimensions") or {}})
    keys = dict.fromkeys(key for vote in votes for key in vote)
    plain = [key for key in keys if key not in ("dimensions", "tags")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*plain, *dimensions, "tags"])
    for vote in votes:
        writer.writerow(map(_no_formula, _cells(vote, plain, dimensions)))
    return lines, text.getvalue().encode("utf-8", "replace")


def _cells(vote: Vote, plain: list[str], dimensions: list[str]) -> Iterator[Any]:
    yield from (vote.get(key) for key in plain)
    yield from ((vote.get("dimensions") or {}).get(name) for name in dimensions)
    yield " ".join(vote.get("tags") or [])


def _no_formula(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell
