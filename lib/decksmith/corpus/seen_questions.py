"""Which benchmark questions a training set has seen: by letters, by embeddings, quoted, or in a judge's eyes (bench-overlap)."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict, cast

from decksmith.benchmarks import grading, tasks
from decksmith.core import cli, stream
from decksmith.core.records import Error, Record
from decksmith.corpus.overlap import (
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

SHOWN = 6000  # characters of a text that a judge is shown
MEASURES: tuple[Literal["ngram", "cosine", "quoted"], ...] = ("ngram", "cosine", "quoted")
NEAR = {"ngram": NGRAM, "cosine": COSINE, "quoted": QUOTED}
LOOSE = {"ngram": 0.2, "cosine": 0.5, "quoted": 0.15}  # from here on a judge is asked

Encode = Callable[[Sequence[str]], "ndarray"]  # of n texts: shape (n, WIDTH), unit length


class Sighting(TypedDict):
    """A training row near a question: how alike they are, None below a measure's threshold; a judge's word."""

    row: int
    exact: bool
    ngram: float | None
    cosine: float | None
    quoted: float | None
    same: NotRequired[bool | None]
    judge: NotRequired[str]
    error: NotRequired[Error]


def seen(
    questions: list[str],
    train: Sequence[Chat],
    encode: Encode | None = None,
    least: Mapping[str, float] = NEAR,
) -> dict[int, list[Sighting]]:
    """{index of a question: training rows near it, the nearest first}.

    Of training rows the requests are compared, and quotations sought in all that is said. least: from which Jaccard of
    n-grams, cosine and quoted share two are near.
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


def is_certain(one: Sighting) -> bool:
    """Whether a row is near by the thresholds that no judge is needed for."""
    return any((one[measure] or 0) >= NEAR[measure] for measure in MEASURES)


def report(
    asked: Sequence[Record],
    train: Sequence[Chat],
    encode: Encode | None = None,
    asker: grading.Judge | None = None,
    nearest: int = 3,
) -> int:
    """Print the questions that a training set has seen, count them on stderr, and return the exit status: 75 when the
    judge could not be reached for some. asker: asked about the `nearest` rows of each question."""
    texts = [tasks.asked(record) for record in asked]
    found = seen(texts, train, encode, LOOSE if asker else NEAR)
    for i, near in found.items():
        found[i] = [one for n, one in enumerate(near) if n < nearest or is_certain(one)]
    unasked = 0
    if asker:
        pairs = [
            (asked[i]["id"], texts[i], train[one["row"]], one)
            for i, near in found.items()
            for one in near[:nearest]
            if not one["exact"]
        ]
        unasked = asyncio.run(_judge_all(asker, pairs))
    near_by: Counter[str] = Counter()  # questions of each benchmark
    same_by: Counter[str] = Counter()
    open_by: Counter[str] = Counter()
    for i, near in found.items():
        bench = asked[i]["task"]["bench"]
        kept = [one for one in near if is_certain(one) or one.get("same") is not False]
        near_by[bench] += any(map(is_certain, kept))
        said = [one["same"] for one in kept if "same" in one]
        same_by[bench] += True in said
        open_by[bench] += True not in said and None in said
        if kept:
            named = [{"id": train[one["row"]]["id"], **one} for one in kept]
            for pair in named:
                del pair["row"]
            stream.emit({**asked[i], "overlap": {"near": named}})
    for bench, count in Counter(record["task"]["bench"] for record in asked).items():
        line = f"{bench}: {near_by[bench]} of {count} questions are near one of {len(train)} training rows"
        if asker:
            line += (
                f"; the judge finds {same_by[bench]} given away, and {open_by[bench]} are undecided"
            )
        cli.say(line)
    if unasked:
        cli.say(f"the judge could not be asked about {unasked} pairs; run the same command again")
    return 75 if unasked else 0


async def _judge_all(asker: grading.Judge, pairs: Sequence[tuple[str, str, Chat, Sighting]]) -> int:
    """Put the judge's verdict into every pair; returns how many it could not be asked about."""
    try:
        return sum(await asyncio.gather(*(_judge(asker, *pair) for pair in pairs)))
    finally:
        await asker.close()
        if asker.journal:
            asker.journal.close()


async def _judge(asker: grading.Judge, ident: str, question: str, row: Chat, one: Sighting) -> int:
    """Ask whether a row gives a question away; 1 where the judge could not be asked."""
    fields = {"question": question[:SHOWN], "text": "\n".join(_said(row))[:SHOWN]}
    one["judge"] = asker.client.model.slug
    try:
        one["same"], _ = await asker.verdict(ident, "judge-overlap", fields, grading.judgement)
    except stream.Fault as fault:
        one["same"], one["error"] = None, cast(Error, fault.error)
        if fault.error["kind"] == "infra" and fault.error.get("retriable") is not False:
            stream.warn(ident, fault.error["message"])
            del one["judge"]
            return 1
    return 0


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
