"""Fresh prompts from hand-written parts: a seed names them, so that a set can be made after a model was trained
(bin/prompt-sample; assets/prompts/fresh.toml)."""

import functools
import hashlib
import itertools
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

from decksmith.core import cli
from decksmith.core.records import Record
from decksmith.measure.decks import prompts

SETS = ["core", "fresh"]  # `core`: the offline protocol takes it, as it takes prompts of one's own
SIGNS = ("", ",", ".", " ")  # between thousands, as a deck may write them


@functools.cache
def parts() -> Record:
    """assets/prompts/fresh.toml."""
    return tomllib.loads((cli.ROOT / "assets/prompts/fresh.toml").read_text(encoding="utf-8"))


def rows(seed: int) -> Iterator[Record]:
    """Prompts without end, no request twice. The same seed gives the same rows in the same order, on any machine."""
    seen = set()
    for number in itertools.count(1):
        record = _row(seed, number)
        request = record["messages"][1]["content"]
        if request not in seen:
            seen.add(request)
            yield record


def _row(seed: int, number: int) -> Record:
    """The prompt of this number, decided by the hashes of seed, number and the name of each choice."""

    def draw(name: str, options: Sequence[Any]) -> Any:
        digest = hashlib.sha256(f"{seed}/{number}/{name}".encode()).digest()
        return options[int.from_bytes(digest[:8]) % len(options)]

    made = parts()
    story = draw("story", made["story"])
    words = made["language"][story["language"]]
    figures = {name: draw(name, span(bounds)) for name, bounds in story["figures"].items()}
    for name, steps in story["derived"].items():
        figures[name] = derived(steps, figures)
    said = {
        name: f"{figure:,}".replace(",", words["thousands"])
        if figure >= 10_000  # a year has no sign in it
        else str(figure)
        for name, figure in figures.items()
    }
    chosen = {
        "theme": draw("theme", made["themes"]),
        "slides": draw("slides", span(made["slides"])),
        "audience": draw("audience", words["audiences"]),
        "place": draw("place", words["places"]),
        "person": draw("person", words["people"]),
        "saying": draw("saying", words["sayings"]),
        "day": draw("day", span(made["days"])),
        "month": draw("month", words["months"]),
    }
    wishes = draw("wishes", list(itertools.combinations(words["wishes"], 2)))
    close = draw("close", words["closes"])
    fill = {**said, **chosen}
    fill["text"] = story["text"].format_map(fill)
    fill["wishes"] = " ".join(wish["say"].format_map(fill) for wish in wishes)
    fill["close"] = close["say"].format_map(fill)
    items = [*story["items"], *wishes, close]
    looked = {**chosen, **{name: _written(figure) for name, figure in figures.items()}}
    return {
        "id": f"fresh-{seed}-{number:04}",
        "sets": SETS,
        "messages": [
            {"role": "system", "content": prompts.system()},
            {"role": "user", "content": draw("frame", words["frames"]).format_map(fill)},
        ],
        "asks": {
            "domain": story["domain"],
            "audience": chosen["audience"],
            "theme": chosen["theme"],
            "slides": chosen["slides"],
            "language": story["language"],
            "features": [wish["feature"] for wish in wishes],
        },
        "checklist": [
            {
                "id": f"c{place}",
                "ask": item["ask"].format_map(fill),
                "match": [entry.format_map(looked) for entry in item["match"]],
            }
            for place, item in enumerate(items, 1)
        ],
        "references": [item["reference"].format_map(fill) for item in items],
    }


def span(bounds: Sequence[int]) -> range:
    """The numbers from the first to the last of [first, last, step]."""
    first, last, step = bounds
    return range(first, last + 1, step)


def derived(steps: Sequence[str | int], figures: dict[str, int]) -> int:
    """What [figure, sign, figure or number, sign ..] comes to, from left to right. Raises ValueError for a division that
    leaves a rest."""
    value, *rest = (figures.get(step, step) if isinstance(step, str) else step for step in steps)
    total = int(value)
    for sign, operand in zip(rest[::2], rest[1::2], strict=True):
        number = int(operand)
        match sign:
            case "+":
                total += number
            case "-":
                total -= number
            case "*":
                total *= number
            case "/":
                if total % number:
                    raise ValueError(f"{steps}: {total} is no multiple of {number}")
                total //= number
            case _:
                raise ValueError(f"{steps}: {sign!r} is no sign of + - * /")
    return total


def _written(figure: int) -> str:
    """The ways to write a figure, as alternatives of a match."""
    return "|".join(dict.fromkeys(f"{figure:,}".replace(",", sign) for sign in SIGNS))
