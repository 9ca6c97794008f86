"""What of the prompts' checklists decks satisfy, by kind: binary items with the slide that shows each, beside the scores from 1 to 5.

An item counts as satisfied when the judge says yes and names a slide that the deck has. A deck that the model failed at satisfies
nothing; where renderer, judge or network failed, nothing is known, and the deck is left out.
"""

from decksmith.core.records import prompt_of
from decksmith.results import stats

ELEMENTS = (
    "code",
    "mermaid",
    "katex",
    "table",
    "image",
    "two-cols",
    "quote",
    "cover",
    "end",
)  # what an item's @.. can name
KINDS = {
    "item": "Kind of item",
    "feature": "Feature asked for",
    "language": "Language",
    "theme": "Theme",
    "audience": "Audience",
    "domain": "Domain",
}


def families(records, kind="item"):
    """`{family: {"yes", "n", "prompts", "share"}}` of scored records: items satisfied, items in all, prompts that have any, and the
    mean over these prompts of their share, with its interval (`stats.mean`).

    kind: `item`: an item belongs to the element it asks for (`table`, `mermaid` ..), else to `facts`. The others group the items
    by what their prompt asks for: `feature` (a prompt may ask for several, or for none: "none"), `language`, `theme`, `audience`,
    `domain`. Samples of one prompt are averaged first, because intervals take values as independent.
    """
    from decksmith.results import runs as finished

    counts, shares = {}, {}
    for record in records:
        fault = finished.fault_of(record)
        if not record.get("checklist") or (fault and fault["kind"] != "model"):
            continue
        yes = set() if fault else satisfied(record)
        here = {}
        for item in record["checklist"]:
            for family in _families(record, item, kind):
                here.setdefault(family, []).append(item["id"] in yes)
        for family, answers in here.items():
            total = counts.setdefault(family, [0, 0])
            total[0], total[1] = total[0] + sum(answers), total[1] + len(answers)
            shares.setdefault(family, {}).setdefault(prompt_of(record), []).append(
                sum(answers) / len(answers)
            )
    order = sorted(counts, key=lambda family: (-counts[family][1], family))
    return {
        family: {
            "yes": counts[family][0],
            "n": counts[family][1],
            "prompts": len(shares[family]),
            "share": stats.mean((sum(v) / len(v) for v in shares[family].values()), (0, 1)),
        }
        for family in order
    }


def _families(record, item, kind):
    asks = record.get("asks") or {}
    if kind == "item":
        named = [
            option[1:]
            for entry in item.get("match") or []
            for option in entry.split("|")
            if option.startswith("@")
        ]
        return list(dict.fromkeys(name for name in named if name in ELEMENTS)) or ["facts"]
    if kind == "feature":
        return asks.get("features") or ["none"]
    return [asks[kind]] if asks.get(kind) else []


def satisfied(record):
    """The ids of the items that the judge answered with yes and a slide that the deck has."""
    render = record.get("render") or {}
    shown = {int(path.rpartition("/")[2].partition(".")[0]) for path in render.get("slides") or []}
    known = {item["id"] for item in record.get("checklist") or []}
    return {
        answer["id"]
        for answer in (record.get("judge") or {}).get("checklist") or []
        if answer.get("yes") is True
        and answer["id"] in known
        and type(answer.get("slide")) is int
        and answer["slide"] in shown
    }


def table(runs, kind="item"):
    """`(title, header, rows)` in the form of runs.table: a row for each family, a column for each run, cells as text."""
    from decksmith.results.runs import interval

    found = [families(run["records"], kind) for run in runs]
    sizes = {family: value for each in found for family, value in each.items()}
    rows = [
        [
            family,
            str(sizes[family]["prompts"]),
            *(
                f"{each[family]['yes']} of {each[family]['n']}: {interval(each[family]['share'])}"
                if family in each
                else "–"
                for each in found
            ),
        ]
        for family in sizes
    ]
    return (
        f"Checklist by {KINDS[kind].lower()}",
        [KINDS[kind], "Prompts", *(run["label"] for run in runs)],
        rows,
    )
