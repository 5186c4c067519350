"""An encoder as one ONNX graph, for runtimes of browsers, phones and servers, which have no PyTorch and no pooling.

input_ids, attention_mask (B, T) int64  ->  last_hidden_state (B, T, H), sentence_embedding (B, D) of length 1
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.catalogue import plain_sentences
from training.errors import InputError, first_line
from training.inference.batching import pad
from training.models.encoder import Encoder
from training.models.modules.words import WordBackbone

INPUTS, OUTPUTS = ("input_ids", "attention_mask"), ("last_hidden_state", "sentence_embedding")
FLOAT32, INT8 = "onnx/model.onnx", "onnx/model_int8.onnx"
LOWEST_COSINE = 1 - 1e-4  # the lowest cosine of a vector by the float32 graph with that by PyTorch
MOST_BYTES = 1_900_000_000  # the most bytes of weights that the format has in one file, as most runtimes expect them


class _SentenceModel(nn.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.backbone, self.head, self._encoder = encoder.backbone, encoder.head, encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        vectors = self._encoder.pool(hidden, attention_mask.bool())[:, : self._encoder.dimension]
        return hidden, F.normalize(vectors, dim=1)


def export_onnx(encoder: Encoder, folder: Path) -> dict[str, float]:
    """Write an encoder, opened in float32, into a folder as `Encoder.save` does, and two graphs beside it.

    Returns the path of each graph with the lowest cosine of its vectors with those of the encoder: in float32, and with
    weights of 8 bits. InputError if the model has no transformer or cannot be traced, or the former differs.
    """
    import onnxscript  # noqa: F401 - the exporter's
    from onnxruntime.quantization import quantize_dynamic

    if isinstance(encoder.backbone, WordBackbone):
        raise InputError(f"{encoder.name} is a table of vectors without a transformer; its folder is all that it needs")
    encoder.save(folder)
    exact, rounded = folder / FLOAT32, folder / INT8
    exact.parent.mkdir()
    ids, shapes = torch.ones(2, 8, dtype=torch.int64), {key: {0: "batch", 1: "tokens"} for key in INPUTS}
    options: dict[str, Any] = {"input_names": INPUTS, "output_names": OUTPUTS, "dynamic_shapes": shapes}
    is_large = sum(weights.nbytes for weights in encoder.backbone.parameters()) > MOST_BYTES
    model, inputs = _SentenceModel(encoder).eval(), (ids, torch.ones_like(ids))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(model, inputs, exact, dynamo=True, verbose=False, external_data=is_large, **options)
            # Seven bits: processors without VNNI, such as those with AVX2, add products of eight with saturation.
            quantize_dynamic(exact, rounded, per_channel=True, reduce_range=True, use_external_data_format=is_large)
    except Exception as error:
        # The exporter raises errors of many kinds about operators.
        raise InputError(f"{encoder.name} cannot be written as ONNX: {first_line(error)}") from error
    cosines = {str(path): _lowest_cosine(encoder, path) for path in (exact, rounded)}
    if cosines[str(exact)] < LOWEST_COSINE:
        raise InputError(f"{exact} has other vectors than {encoder.name}: a cosine is {cosines[str(exact)]}")
    return cosines


def _lowest_cosine(encoder: Encoder, path: Path) -> float:
    import onnxruntime

    sentences = plain_sentences()[:32]
    ids, mask = pad(encoder.tokenize(sentences), encoder.pad_id)
    arrays = (ids, torch.ones_like(ids) if mask is None else mask.long())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = {name: array.numpy() for name, array in zip(INPUTS, arrays, strict=True)}
    [vectors] = session.run(OUTPUTS[1:], inputs)
    return round(float(np.einsum("nd,nd->n", np.asarray(vectors), encoder.encode(sentences)).min()), 6)
