"""How alike texts are: exact, by character n-grams, by sentence embeddings, or quoted.
Near-duplicates and their clusters, and the benchmark questions that a training set has seen.
"""

import base64
import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

from decksmith.core import stream
from decksmith.core.records import Message
from decksmith.train.corpus import embedding

if TYPE_CHECKING:
    from numpy import ndarray

N = 5  # characters of an n-gram
# At least this alike is a near-duplicate: Jaccard of n-gram sets, cosine of embeddings.
NGRAM, COSINE = 0.5, 0.8
RUN, QUOTED = 8, 0.5  # words of a run; a text that holds this share of another's runs quotes it
BLOCK = 1000  # rows compared at once
Pair = tuple[int, int, float]  # indices of two texts, and how alike they are


class Chat(TypedDict):
    """What is compared of a record."""

    id: str
    messages: Sequence[Message]


# Embeddings of n records' requests: shape (n, WIDTH), unit length.
Encode = Callable[[Sequence[Chat]], "ndarray"]


Similarity = Literal["ngram", "cosine", "quoted"]


class Likeness(TypedDict):
    """Two records that are near, by their indices. A measure is None below its threshold."""

    a: int
    b: int
    exact: bool
    ngram: float | None
    cosine: float | None
    quoted: float | None
    answer: NotRequired[bool]  # the assistant says the same in both


def plain(text: str) -> str:
    """The text as it is compared: compatibility forms folded (NFKC), case folded, every run of
    other than letters and digits one space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in folded).split())


def grams(text: str) -> "ndarray":
    """The distinct n-grams of a plain text as sorted 64-bit hashes; a text shorter than one is one
    gram. Among a billion n-grams the chance of any collision is below 3 %, and one would change a
    similarity by one gram."""
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
    """The pairs with a Jaccard similarity of n-grams of at least `least`: `[(i, j, similarity)]`,
    exact.

    `left`, `right`: texts as `plain` gives them; without `right` the pairs i < j within `left`.
    n-grams are counted into a few thousand buckets; the dot product of two texts' counts is at
    least what they share, and the pairs for which that is enough are compared gram by gram. The
    cost is that of a matrix product, whatever the texts have in common.
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
    """The pairs of unit vectors, arrays of shape (n, WIDTH), with a cosine of at least `least`, as
    `jaccard`."""
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
    """The pairs of plain texts of which the second repeats at least the share `least` of the
    first's runs of RUN words, `[(i, j, share)]`, however long the second is; a shorter text is one
    run. As contamination is counted since GPT-3 (Brown et al. 2020, appendix C)."""
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


class Embeddings:
    """The embeddings of records' requests, shape (len(records), WIDTH), kept in RUN/journal where
    there is a run folder."""

    def __init__(self, run: Path | None):
        self.journal = run and stream.Journal(run / "journal" / "embedding.jsonl", "embedding")
        self.known: dict[str, str] = {}  # {fingerprint of a request: vector, base64}
        self.encoder: embedding.Encoder | None = None

    def __call__(self, records: Sequence[Chat]) -> "ndarray":
        import numpy

        keys = [stream.fingerprint([embedding.PIECES, request(record)]) for record in records]
        if self.journal:
            for record, key in zip(records, keys, strict=True):
                if key not in self.known and (kept := self.journal.get(record["id"], key)):
                    self.known[key] = kept
        missing = {key: at for at, key in enumerate(keys) if key not in self.known}
        for key, at in missing.items():
            self.encoder = self.encoder or embedding.Encoder()
            [vector] = self.encoder([request(records[at])])
            self.known[key] = base64.b64encode(vector.astype("<f4").tobytes()).decode()
            if self.journal:
                self.journal.put(records[at]["id"], key, self.known[key])
        made = [numpy.frombuffer(base64.b64decode(self.known[key]), dtype="<f4") for key in keys]
        return numpy.stack(made) if made else numpy.empty((0, embedding.WIDTH), dtype=numpy.float32)

    def close(self) -> None:
        if self.journal:
            self.journal.close()


def clusters(n: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """The connected components of `n` items under `pairs`, as the smallest index of each item's
    component."""
    import numpy
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    i, j = numpy.array(list(pairs), dtype=int).reshape(-1, 2).T
    _, labels = connected_components(
        coo_array((numpy.ones(len(i)), (i, j)), shape=(n, n)), directed=False
    )
    first: dict[int, int] = {}
    return [first.setdefault(label, index) for index, label in enumerate(labels.tolist())]


def request(record: Chat) -> str:
    """What the user asks in a record's messages, as one text."""
    return "\n".join(_said(record, "user"))


def _said(record: Chat, role: str | None = None) -> list[str]:
    """What the messages of a role say; of None all that is said, reasoning included."""
    said: list[object] = []
    for message in record.get("messages") or []:
        if role in (None, message.get("role")):
            said.append(message.get("content") or "")
        if role is None:
            said.append(message.get("reasoning_content") or "")
    return [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in said]


def near(
    rows: Sequence[Chat], held: Sequence[Chat], encode: Encode | None = None
) -> tuple[list[Likeness], list[Likeness]]:
    """Which requests are near-duplicates: `(leaks, pairs)`. `leaks` are of a row `a` and a held-out
    row `b`, `pairs` of two rows. encode: the embeddings of requests; without it only letters are
    compared. Equal answers (assistant messages) are a pair too."""
    texts, theirs = [plain(request(row)) for row in rows], [plain(request(row)) for row in held]
    leaks: dict[Similarity, list[Pair]] = {"ngram": jaccard(texts, theirs)}
    pairs: dict[Similarity, list[Pair]] = {"ngram": jaccard(texts)}
    if encode:
        vectors, others = encode(rows), encode(held)
        leaks["cosine"], pairs["cosine"] = cosines(vectors, others), cosines(vectors)
    first: dict[str, int] = {}  # {answer: the row that has it first}
    same = []
    for index, row in enumerate(rows):
        answer = plain("\n".join(_said(row, "assistant")))
        if answer and first.setdefault(answer, index) != index:
            same.append((first[answer], index))
    return _joined(leaks, texts, theirs), _joined(pairs, texts, texts, same)


def _joined(
    pairs: Mapping[Similarity, list[Pair]],
    left: list[str],
    right: list[str],
    same: Iterable[tuple[int, int]] = (),
) -> list[Likeness]:
    """What several measures say of pairs of texts, a likeness for each pair; `same`: pairs of equal
    answers."""
    found: dict[tuple[int, int], Likeness] = {}

    def likeness(i: int, j: int) -> Likeness:
        exact = left[i] == right[j]
        new: Likeness = {
            "a": i,
            "b": j,
            "exact": exact,
            "ngram": None,
            "cosine": None,
            "quoted": None,
        }
        return found.setdefault((i, j), new)

    for measure, several in pairs.items():
        for i, j, value in several:
            likeness(i, j)[measure] = round(value, 4)
    for i, j in same:
        likeness(i, j)["answer"] = True
    return [found[at] for at in sorted(found)]


def seen(
    questions: Sequence[Chat], train: Sequence[Chat], encode: Encode | None = None
) -> list[Likeness]:
    """The questions `a` that are near training rows `b`, the nearest of a question first. Of
    training rows the requests are compared, and quotations sought in all that is said."""
    texts, asks = [plain(request(one)) for one in questions], [plain(request(one)) for one in train]
    told = [plain("\n".join(_said(row))) for row in train]
    pairs: dict[Similarity, list[Pair]] = {
        "ngram": jaccard(texts, asks),
        "quoted": quotes(texts, told),
    }
    if encode:
        pairs["cosine"] = cosines(encode(questions), encode(train))

    def distance(one: Likeness) -> tuple[int, float, int]:
        most = max(one["ngram"] or 0, one["cosine"] or 0, one["quoted"] or 0)
        return one["a"], -most, one["b"]

    return sorted(_joined(pairs, texts, asks), key=distance)
