"""The judge card as the markdown page of docs."""

from collections.abc import Callable
from typing import Any

from decksmith.core.records import Record
from planted_defects import DEFECTS, ORDER, PAD, PADDINGS, PLACES


def page(card: Record) -> str:
    """The card as the markdown page of docs."""
    parts = (_head, _looks, _defects, _length, _injected, _consistency)
    return "\n".join(line for part in parts for line in part(card))


def _head(card: Record) -> list[str]:
    scores = ", ".join(f"{name} {_said(value)}" for name, value in card["original"].items())
    return [
        f"# Judge card: {card['judge']}",
        "",
        f"Known defects were put, one at a time, into {card['decks']} good decks; the judge of the protocol "
        f"`{card['protocol']}` scored every version {card['repeats']} times. No person was asked, so this says what the judge "
        "notices, obeys and wavers at, not whether its taste is right. `make judge-card` writes this page.",
        "",
        f"{card['judgings']} judgings counted; excluded: {_faults(card)}. The good decks themselves have the mean scores "
        f"{scores}. Brackets hold 95 % intervals over decks; where all decks agree, exact ones.",
        "",
    ]


def _looks(card: Record) -> list[str]:
    other, none = (_said(found) for found in card["looks"].values())
    return [
        "## Whether it looks",
        "",
        f"With another deck's pictures the overall score changes by {other}, with white pictures by {none}. Where it hardly changes, "
        "the judge does not look.",
        "",
    ]


def _defects(card: Record) -> list[str]:
    lines = [
        "## Defects",
        "",
        "The AUC is the probability that the judge puts the deck above its defected version, ties counting half: 1 is always, "
        "0.5 is chance. *Same deck* compares a deck with its own version, *any deck* any good deck with any defected one, where "
        "the decks' own differences come in. *Change* is the overall score (content, design and coherence by the protocol's "
        "weights) of the version less that of the deck.",
        "",
        "| defect | what was done | decks | dimension | same deck | any deck | overall, same deck | change |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (_, make) in DEFECTS.items():
        d = card["defects"][name]
        lines.append(
            f"| {name} | {_doc(make)} | {d['decks']} | {d['dimension']} | {_said(d['auc']['same'])} | "
            f"{_said(d['auc']['any'])} | {_said(d['auc_overall']['same'])} | {_said(d['shift'])} |"
        )
    return lines


def _length(card: Record) -> list[str]:
    rho = card["length"]["correlation"]
    more = [f"{PAD} {name} more change it by {_said(card['length'][name])}" for name in PADDINGS]
    said = (
        f"With the slides shuffled the overall score changes by {_said(card['order'])}. "
        f"Length should not pay: {'; '.join(more)}. "
    )
    if rho:
        said += (
            "Among the good decks, which have different lengths, the rank correlation of score and number of slides is "
            f"{_said(rho)}."
        )
    return ["", "## Order and length", "", said, ""]


def _injected(card: Record) -> list[str]:
    lines = [
        "## Injected instructions",
        "",
        f'One slide gets the line "{ORDER.format(5, 1)}" or, as the control, "{ORDER.format(1, 5)}": the same words in another '
        "order. *Obeyed* is the difference between the two, the effect of what the line says. *Gained* is the difference to the "
        "untouched deck, the effect of a line being there at all.",
        "",
        "| place | decks | obeyed | gained |",
        "|---|---|---|---|",
    ]
    for place in PLACES:
        obeyed, gained = (card["injection"][place][key] for key in ("obeyed", "gained"))
        lines.append(f"| {place} | {obeyed['n']} | {_said(obeyed)} | {_said(gained)} |")
    return lines


def _consistency(card: Record) -> list[str]:
    noise = card["noise_variance"]
    if noise is None:
        said = "Every version was judged once: nothing is known of the judge's noise."
        return ["", "## Consistency", "", said]
    known = {name: value for name, value in card["consistency"].items() if value is not None}
    each = ", ".join(f"{name} {value:.2f}" for name, value in known.items())
    said = (
        f"Krippendorff's alpha (ordinal) between the repeats: {each or 'not defined, all scores are equal'}. The "
        f"variance of a single judging of the overall score is {noise:g}."
    )
    if known.get("overall") == 1 and noise == 0:
        said += " The judge is deterministic."
    return ["", "## Consistency", "", said]


def _said(found: Record | None) -> str:
    if not found or found["mean"] is None:
        return "-"
    if found["lo"] is None:
        return f"{_number(found['mean'])}"
    return f"{_number(found['mean'])} [{_number(found['lo'])}, {_number(found['hi'])}]"


def _number(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"


def _doc(function: Callable[..., Any]) -> str:
    return " ".join((function.__doc__ or "").split())


def _faults(card: Record) -> str:
    words = {
        "judge": "unusable replies of the judge",
        "refused": "versions that the renderer refused for their defect",
        "refused by the endpoint": "requests that the endpoint refused",
    }
    said = [f"{count} {words.get(kind, kind)}" for kind, count in card["faults"].items() if count]
    if card["left_out"]:
        said.append(f"{card['left_out']} decks that were not good")
    return ", ".join(said) or "nothing"
