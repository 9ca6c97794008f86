"""How alike texts are: exact, by character n-grams, and by sentence embeddings. Near-duplicates and their clusters."""

import asyncio
import base64
import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decksmith.benchmarks import grading, tasks
from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.corpus import embedding

if TYPE_CHECKING:
    from numpy import ndarray

N = 5  # characters of an n-gram
# At least this alike is a near-duplicate: Jaccard of n-gram sets, cosine of embeddings.
NGRAM, COSINE = 0.5, 0.8
RUN, QUOTED = 8, 0.5  # words of a run; a text that holds this share of another's runs quotes it
LOOSE = (0.2, 0.5, 0.15)  # n-grams, cosine, quoted: from here on a judge is asked
SHOWN = 6000  # characters of a text that a judge is shown
BLOCK = 1000  # rows compared at once
Pair = tuple[int, int, float]  # indices of two texts, and how alike they are
Encode = Callable[[Any], "ndarray"]  # of n texts, or of n records: shape (n, WIDTH), unit length


def plain(text: str) -> str:
    """The text as it is compared: compatibility forms folded (NFKC), case folded, every run of other than letters and
    digits one space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in folded).split())


def grams(text: str) -> "ndarray":
    """The distinct n-grams of a plain text as sorted 64-bit hashes; a text shorter than one is one gram.

    Among a billion n-grams the chance of any collision is below 3 %, and one would change a similarity by one gram.
    """
    import numpy

    codes = numpy.frombuffer(
        text.ljust(N).encode("utf-32-le", "replace"), dtype=numpy.uint32
    ).astype(numpy.uint64)
    mixed = (codes + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> numpy.uint64(29)
    powers = numpy.array([pow(1_099_511_628_211, k, 2**64) for k in range(N)], dtype=numpy.uint64)
    hashes = numpy.lib.stride_tricks.sliding_window_view(mixed, N) @ powers
    return numpy.unique(hashes ^ hashes >> numpy.uint64(32))


def jaccard(left: list[str], right: list[str] | None = None, least: float = NGRAM) -> list[Pair]:
    """The pairs with a Jaccard similarity of n-grams of at least `least`: `[(i, j, similarity)]`, exact.

    `left`, `right`: texts as `plain` gives them; without `right` the pairs i < j within `left`. n-grams are counted into a few
    thousand buckets; the dot product of two texts' counts is at least what they share, and the pairs for which that is enough are
    compared gram by gram. The cost is that of a matrix product, whatever the texts have in common.
    """
    import numpy

    within, sets = right is None, [grams(text) for text in left]
    others = sets if right is None else [grams(text) for text in right]
    if not sets or not others:
        return []
    sizes, their = (
        numpy.array([len(found) for found in many], dtype=numpy.float32) for many in (sets, others)
    )
    usual = numpy.quantile(numpy.concatenate([sizes, their]), 0.95)
    width = max(1024, 1 << int(4 * usual).bit_length())
    counts = _buckets(sets, width)
    theirs = counts if within else _buckets(others, width)
    share = least / (1 + least)  # of both sizes: what two sets have in common that are so alike
    pairs = []
    for start in range(0, len(sets), BLOCK):
        first = start if within else 0  # of a symmetric table the upper half is enough
        alike = counts[start : start + BLOCK] @ theirs[first:].T
        enough = share * (sizes[start : start + BLOCK, None] + their[None, first:])
        rows, columns = numpy.nonzero(alike >= enough - 0.01)
        for i, j in zip((rows + start).tolist(), (columns + first).tolist(), strict=True):
            if not within or i < j:
                shared = len(numpy.intersect1d(sets[i], others[j], assume_unique=True))
                similarity = shared / (len(sets[i]) + len(others[j]) - shared)
                if similarity >= least:
                    pairs.append((i, j, similarity))
    return pairs


def _buckets(sets: "list[ndarray]", width: int) -> "ndarray":
    import numpy

    counts = numpy.empty((len(sets), width), dtype=numpy.float32)
    for row, found in enumerate(sets):
        counts[row] = numpy.bincount((found & numpy.uint64(width - 1)).astype(int), minlength=width)
    return counts


def cosines(left: "ndarray", right: "ndarray | None" = None, least: float = COSINE) -> list[Pair]:
    """The pairs of unit vectors, arrays of shape (n, WIDTH), with a cosine of at least `least`, as `jaccard`."""
    import numpy

    pairs = []
    for start in range(0, len(left), BLOCK):
        alike = left[start : start + BLOCK] @ (left if right is None else right).T
        rows, columns = numpy.nonzero(alike >= least)
        pairs += [
            (int(i + start), int(j), float(alike[i, j]))
            for i, j in zip(rows, columns, strict=True)
            if right is not None or i + start < j
        ]
    return pairs


def quotes(left: list[str], right: list[str], least: float = QUOTED) -> list[Pair]:
    """The pairs of plain texts of which the second repeats at least the share `least` of the first's runs of RUN words,
    `[(i, j, share)]`, however long the second is; a shorter text is one run.

    As contamination is counted since GPT-3 (Brown et al. 2020, appendix C).
    """
    runs = [_runs(text.split(), {RUN}) or _runs(text.split(), {len(text.split())}) for text in left]
    lengths = {min(RUN, len(text.split())) for text in left} - {0}
    holders: dict[int, list[int]] = {}  # {run: the texts of `left` that have it}
    for i, known in enumerate(runs):
        for run in known:
            holders.setdefault(run, []).append(i)
    pairs = []
    for j, text in enumerate(right):
        hits = Counter(i for run in _runs(text.split(), lengths) for i in holders.get(run, ()))
        pairs += [(i, j, n / len(runs[i])) for i, n in hits.items() if n >= least * len(runs[i])]
    return sorted(pairs)


def _runs(words: list[str], lengths: set[int]) -> set[int]:
    """The runs of words of these lengths, as hashes."""
    return {
        hash(tuple(words[start : start + length]))
        for length in lengths
        if length
        for start in range(len(words) - length + 1)
    }


def seen(
    questions: list[str],
    train: list[Record],
    encode: Encode | None = None,
    least: tuple[float, float, float] = (NGRAM, COSINE, QUOTED),
) -> dict[int, list[dict[str, Any]]]:
    """Which training rows are near which questions, `{index of a question: [{"row", "exact", "ngram", "cosine",
    "quoted"}]}`, the nearest first.

    questions: texts. train: chat records, of which requests are compared, and quotations sought in all that is said.
    encode: embeddings of texts, as Encoder gives them. least: from which Jaccard of n-grams, cosine and quoted share two
    are near; what is below its own is None.
    """
    plains, asks = [plain(text) for text in questions], [plain(request(row)) for row in train]
    whole = [plain("\n".join(_said(row))) for row in train]
    found: dict[int, dict[int, dict[str, float]]] = {}
    measured = [
        ("ngram", jaccard(plains, asks, least[0])),
        ("quoted", quotes(plains, whole, least[2])),
    ]
    if encode:
        measured.append(
            (
                "cosine",
                cosines(encode(questions), encode([request(row) for row in train]), least[1]),
            )
        )
    for name, pairs in measured:
        for i, j, value in pairs:
            found.setdefault(i, {}).setdefault(j, {})[name] = round(value, 4)
    measures = ("ngram", "cosine", "quoted")

    def nearness(pair: dict[str, Any]) -> tuple[float, int]:
        return -max(pair[name] or 0 for name in measures), pair["row"]

    ranked = {}
    for i, rows in sorted(found.items()):
        told = [
            {"row": j, "exact": plains[i] == asks[j], **dict.fromkeys(measures), **alike}
            for j, alike in rows.items()
        ]
        ranked[i] = sorted(told, key=nearness)
    return ranked


def certain(pair: dict[str, Any]) -> bool:
    """Whether a pair of `seen` is near by the thresholds that no judge is needed for."""
    return any(
        (pair[name] or 0) >= least
        for name, least in (("ngram", NGRAM), ("cosine", COSINE), ("quoted", QUOTED))
    )


async def judge(asker: grading.Judge, ident: str, question: str, row: Record) -> dict[str, Any]:
    """Whether a training row gives a question away, in a judge's eyes: `{"same", "judge"}`; `same` is None with an `error`
    where the judge came to no verdict. Raises stream.Fault of kind infra when it cannot be reached."""
    try:
        text = "\n".join(_said(row))
        said, _ = await asker.verdict(
            ident,
            "judge-overlap",
            {"question": question[:SHOWN], "text": text[:SHOWN]},
            grading.judgement,
        )
        return {"same": said, "judge": asker.client.model.slug}
    except stream.Fault as fault:
        if fault.error["kind"] == "infra" and fault.error.get("retriable") is not False:
            raise
        return {"same": None, "judge": asker.client.model.slug, "error": fault.error}


class Embeddings:
    """The embeddings of records' requests, shape (len(records), WIDTH), kept in RUN/journal where there is a run folder."""

    def __init__(self, run: Path | None):
        self.journal = run and stream.Journal(run / "journal" / "embedding.jsonl", "embedding")
        self.known: dict[str, str] = {}  # {fingerprint of a request: vector, base64}
        self.encoder: embedding.Encoder | None = None

    def __call__(self, records: list[Record]) -> "ndarray":
        import numpy

        keys = [stream.fingerprint([embedding.PIECES, request(record)]) for record in records]
        if self.journal:
            for record, key in zip(records, keys, strict=True):
                if key not in self.known and (kept := self.journal.get(record["id"], key)):
                    self.known[key] = kept
        missing = {key: at for at, key in enumerate(keys) if key not in self.known}
        order = sorted(missing.items(), key=lambda item: item[1])
        for start in range(0, len(order), 64):
            self._make(records, order[start : start + 64])
        made = [numpy.frombuffer(base64.b64decode(self.known[key]), dtype="<f4") for key in keys]
        return numpy.stack(made) if made else numpy.empty((0, embedding.WIDTH), dtype=numpy.float32)

    def _make(self, records: list[Record], block: list[tuple[str, int]]) -> None:
        self.encoder = self.encoder or embedding.Encoder()
        vectors = self.encoder([request(records[at]) for _, at in block])
        for (key, at), vector in zip(block, vectors, strict=True):
            self.known[key] = base64.b64encode(vector.astype("<f4").tobytes()).decode()
            if self.journal:
                self.journal.put(records[at]["id"], key, self.known[key])

    def close(self) -> None:
        if self.journal:
            self.journal.close()


def report(
    asked: list[Record],
    train: list[Record],
    encode: Encode | None = None,
    judge_by: dict[str, Any] | None = None,
    nearest: int = 3,
    run: Path | str | None = None,
) -> int:
    """Print the questions (records with a task) that a training set has seen, count them on stderr, and return the exit
    status: 75 when the judge could not be reached for some. `judge_by`: what grading.Judge takes."""
    texts = [tasks.asked(record) for record in asked]
    found = seen(texts, train, encode, LOOSE if judge_by else (NGRAM, COSINE, QUOTED))
    chosen = {
        i: [pair for n, pair in enumerate(near) if n < nearest or certain(pair)]
        for i, near in found.items()
    }
    trouble = (
        asyncio.run(_judge_all(asked, texts, train, chosen, judge_by, nearest, run))
        if judge_by
        else 0
    )
    counts: dict[str, Counter[str]] = {record["task"]["bench"]: Counter() for record in asked}
    for i, near in chosen.items():
        kept = [pair for pair in near if certain(pair) or pair.get("same") is not False]
        tally = counts[asked[i]["task"]["bench"]]
        tally["near"] += any(map(certain, kept))
        said = [pair["same"] for pair in kept if "same" in pair]
        tally["same"] += True in said
        tally["open"] += True not in said and None in said
        if kept:
            named = [{"id": train[pair["row"]]["id"], **pair} for pair in kept]
            for pair in named:
                del pair["row"]
            stream.emit({**asked[i], "overlap": {"near": named}})
    whole = Counter(record["task"]["bench"] for record in asked)
    for name, tally in counts.items():
        judged = (
            f"; the judge finds {tally['same']} given away, and {tally['open']} are undecided"
            if judge_by
            else ""
        )
        cli.say(
            f"{name}: {tally['near']} of {whole[name]} questions are near one of {len(train)} training rows{judged}"
        )
    if trouble:
        cli.say(f"the judge could not be asked about {trouble} pairs; run the same command again")
    return 75 if trouble else 0


async def _judge_all(
    asked: list[Record],
    texts: list[str],
    train: list[Record],
    chosen: dict[int, list[dict[str, Any]]],
    judge_by: dict[str, Any],
    nearest: int,
    run: Path | str | None,
) -> int:
    """Put the judge's verdict into every pair that needs one; returns how many it could not be asked about."""
    journal = grading.verdicts(Path(run)) if run is not None else None
    asker = grading.Judge(
        journal=journal, sampling={"temperature": 0.0, "max_tokens": 1024}, **judge_by
    )

    async def one(i: int, pair: dict[str, Any]) -> int:
        try:
            pair |= await judge(asker, asked[i]["id"], texts[i], train[pair["row"]])
        except stream.Fault as fault:
            stream.warn(asked[i]["id"], fault.error["message"])
            pair |= {"same": None, "error": fault.error}
            return 1
        return 0

    try:
        pairs = [
            one(i, pair)
            for i, near in chosen.items()
            for pair in near[:nearest]
            if not pair["exact"]
        ]
        return sum(await asyncio.gather(*pairs))
    finally:
        await asker.close()
        if journal:
            journal.close()


def _said(row: Record) -> Iterator[str]:
    """All that is said in a row, reasoning included, as texts."""
    for message in row.get("messages") or []:
        for part in (message.get("content"), message.get("reasoning_content")):
            if part:
                yield part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)


def clusters(n: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """The connected components of `n` items under `pairs` of indices, as the smallest index of each item's component."""
    import numpy
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    i, j = numpy.array(list(pairs), dtype=int).reshape(-1, 2).T
    _, labels = connected_components(
        coo_array((numpy.ones(len(i)), (i, j)), shape=(n, n)), directed=False
    )
    first: dict[int, int] = {}
    return [first.setdefault(label, index) for index, label in enumerate(labels.tolist())]


def request(record: Record) -> str:
    """What the user asks in a record's messages, as one text."""
    said = [
        message.get("content") or ""
        for message in record.get("messages") or []
        if message.get("role") == "user"
    ]
    return "\n".join(
        part if isinstance(part, str) else json.dumps(part, ensure_ascii=False) for part in said
    )


def near(
    rows: list[Record], held: list[Record], encode: Encode | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Which requests are near-duplicates: `(leaks, pairs)`, lists of `{"a", "b", "exact", "ngram", "cosine"}`.

    rows, held: records with messages. `leaks` are pairs of a row `a` and a held-out row `b`, `pairs` those of two rows, as
    indices; `ngram` and `cosine` are None below their thresholds (NGRAM, COSINE). encode: the embeddings of the requests of
    records; without it only letters are compared. Equal answers (assistant messages) are a pair too.
    """
    texts, theirs = [plain(request(row)) for row in rows], [plain(request(row)) for row in held]
    vectors, others = (encode(rows), encode(held)) if encode else (None, None)
    leaks = _alike(texts, theirs, vectors, others)
    pairs = _alike(texts, None, vectors, None)
    first: dict[str, int] = {}  # {answer: the row that has it first}
    for index, row in enumerate(rows):
        answer = _answer(row)
        if answer and first.setdefault(answer, index) != index:
            pairs.setdefault((first[answer], index), {})["answer"] = True
    return _told(leaks, texts, theirs), _told(pairs, texts, texts)


def _alike(
    left: list[str], right: list[str] | None, vectors: Any, others: Any
) -> dict[tuple[int, int], dict[str, Any]]:
    """{(i, j): {"ngram", "cosine"}} of texts that are alike, by what they are alike in."""
    pairs: dict[tuple[int, int], dict[str, Any]] = {}
    for i, j, similarity in jaccard(left, right):
        pairs.setdefault((i, j), {})["ngram"] = round(similarity, 4)
    if vectors is not None:
        for i, j, similarity in cosines(vectors, others):
            pairs.setdefault((i, j), {})["cosine"] = round(similarity, 4)
    return pairs


def _answer(row: Record) -> str:
    """What the assistant says in a row, as it is compared."""
    messages = row.get("messages") or []
    said = [str(one.get("content")) for one in messages if one.get("role") == "assistant"]
    return plain("\n".join(said))


def _told(
    pairs: dict[tuple[int, int], dict[str, Any]], left: list[str], right: list[str]
) -> list[dict[str, Any]]:
    return [
        {"a": i, "b": j, "exact": left[i] == right[j], "ngram": None, "cosine": None, **alike}
        for (i, j), alike in sorted(pairs.items())
    ]
