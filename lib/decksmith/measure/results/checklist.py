"""What of the prompts' checklists decks satisfy: binary items, each with the slide that shows it. Where renderer, judge or network
failed nothing is known, and the deck is left out.
"""

from collections.abc import Iterable, Sequence

from decksmith.core.records import ChecklistItem, Record, prompt_of
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.results import stats, text
from decksmith.measure.results.records import Run
from decksmith.measure.results.summary import fault_of

# What an item's @.. can name.
ELEMENTS = {"code", "mermaid", "katex", "table", "image", "two-cols", "quote", "cover", "end"}


def families(records: Iterable[DeckRecord]) -> dict[str, Record]:
    """`{family: {"yes", "n", "prompts", "share"}}` of scored records: items satisfied, items in all, prompts that have
    any, and the mean over these prompts of their share, with its interval (`stats.mean`).

    An item belongs to the element it asks for (`table`, `mermaid` ..), else to `facts`. Samples of one prompt are averaged first,
    because intervals take values as independent.
    """
    answers: dict[str, list[bool]] = {}
    shares: dict[str, dict[str, list[float]]] = {}
    for record in records:
        fault = fault_of(record)
        if not record.get("checklist") or (fault and fault["kind"] != "model"):
            continue
        yes = set() if fault else satisfied(record)
        here: dict[str, list[bool]] = {}
        for item in record["checklist"]:
            for family in _elements(item):
                here.setdefault(family, []).append(item["id"] in yes)
        for family, said in here.items():
            answers.setdefault(family, []).extend(said)
            of_prompt = shares.setdefault(family, {}).setdefault(prompt_of(record), [])
            of_prompt.append(sum(said) / len(said))
    order = sorted(answers, key=lambda family: (-len(answers[family]), family))
    return {
        family: {
            "yes": sum(answers[family]),
            "n": len(answers[family]),
            "prompts": len(shares[family]),
            "share": stats.mean((sum(v) / len(v) for v in shares[family].values()), (0, 1)),
        }
        for family in order
    }


def _elements(item: ChecklistItem) -> list[str]:
    options = [option for entry in item.get("match") or [] for option in entry.split("|")]
    named = [each[1:] for each in options if each[:1] == "@" and each[1:] in ELEMENTS]
    return list(dict.fromkeys(named)) or ["facts"]


def satisfied(record: DeckRecord) -> set[str]:
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


def table(runs: Sequence[Run]) -> tuple[str, list[str], list[list[str]]]:
    """`(title, header, rows)` a row for each family, a column for each run, cells as text."""
    found = [families(run["records"]) for run in runs]
    prompts = {family: value["prompts"] for each in found for family, value in each.items()}
    rows = []
    for family, n in prompts.items():
        rows.append([family, str(n), *(_answered(each.get(family)) for each in found)])
    header = ["Kind of item", "Prompts", *(run["label"] for run in runs)]
    return "Checklist by kind of item", header, rows


def _answered(family: Record | None) -> str:
    if family is None:
        return text.DASH
    return f"{family['yes']} of {family['n']}: {text.interval(family['share'])}"
