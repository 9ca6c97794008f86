"""Which benchmark questions a training set has seen: by letters, by embeddings, or quoted
(bench-overlap).
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from decksmith.bench.benchmarks import tasks
from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.train.corpus.overlap import (
    COSINE,
    NGRAM,
    QUOTED,
    Chat,
    cosines,
    jaccard,
    plain,
    quotes,
    request,
)

if TYPE_CHECKING:
    from numpy import ndarray

MEASURES: tuple[Literal["ngram", "cosine", "quoted"], ...] = ("ngram", "cosine", "quoted")
NEAR = {"ngram": NGRAM, "cosine": COSINE, "quoted": QUOTED}

Encode = Callable[[Sequence[str]], "ndarray"]  # of n texts: shape (n, WIDTH), unit length


class Sighting(TypedDict):
    """A training row near a question: how alike they are, None below a measure's threshold."""

    row: int
    exact: bool
    ngram: float | None
    cosine: float | None
    quoted: float | None


def seen(
    questions: list[str],
    train: Sequence[Chat],
    encode: Encode | None = None,
    least: Mapping[str, float] = NEAR,
) -> dict[int, list[Sighting]]:
    """{index of a question: training rows near it, the nearest first}.

    Of training rows the requests are compared, and quotations sought in all that is said. least:
    from which Jaccard of n-grams, cosine and quoted share two are near.
    """
    plains, asks = [plain(text) for text in questions], [request(row) for row in train]
    told = [plain("\n".join(_said(row))) for row in train]
    plain_asks = [plain(ask) for ask in asks]
    pairs = {
        "ngram": jaccard(plains, plain_asks, least["ngram"]),
        "quoted": quotes(plains, told, least["quoted"]),
        "cosine": cosines(encode(questions), encode(asks), least["cosine"]) if encode else [],
    }
    found: dict[int, dict[int, Sighting]] = {}
    for measure in MEASURES:
        for i, j, value in pairs[measure]:
            exact = plains[i] == plain_asks[j]
            new: Sighting = {
                "row": j,
                "exact": exact,
                "ngram": None,
                "cosine": None,
                "quoted": None,
            }
            found.setdefault(i, {}).setdefault(j, new)[measure] = round(value, 4)
    return {i: sorted(rows.values(), key=_distance) for i, rows in sorted(found.items())}


def _distance(one: Sighting) -> tuple[float, int]:
    return -max(one[measure] or 0 for measure in MEASURES), one["row"]


def report(asked: Sequence[Record], train: Sequence[Chat], encode: Encode | None = None) -> None:
    """Print the questions (records with a task) that a training set has seen, and count them on
    stderr."""
    found = seen([tasks.asked(record) for record in asked], train, encode)
    for i, near in found.items():
        named = [{"id": train[one["row"]]["id"], **one} for one in near]
        for pair in named:
            del pair["row"]
        stream.emit({**asked[i], "overlap": {"near": named}})
    near_by = Counter(asked[i]["task"]["bench"] for i in found)
    for bench, count in Counter(record["task"]["bench"] for record in asked).items():
        cli.say(
            f"{bench}: {near_by[bench]} of {count} questions are near one of {len(train)} training rows"
        )


def _said(row: Chat) -> list[str]:
    """All that is said in a row, reasoning included, as texts."""
    parts = []
    for message in row.get("messages") or []:
        parts += [message.get("content"), message.get("reasoning_content")]
    return [
        part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)
        for part in parts
        if part
    ]
