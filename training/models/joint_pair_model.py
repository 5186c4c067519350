"""TwinScorer: a cross-encoder that starts as the bi-encoder it is made from.

Both sentences pass through the transformer together, so each token of one can attend to every token of the
other: a cross-encoder. Three choices keep what the bi-encoder already knows, which matters with 5,749 pairs:

- each sentence counts its positions from 0 and keeps its own special tokens, as if it were alone;
- attention from one sentence to the other gets a learned bias, one per layer and head ("cross"); at minus
  infinity the two would not see each other, and the pass would be the bi-encoder's, exactly;
- the score is read from the two sentence vectors u and v (means over each sentence's tokens, length 1):
  a * cos(u, v) + b + w . (|u - v|, u * v), the features of the paper's section 3 and Table 6.

Nothing tells first from second, so the score is symmetric: predict(x, y) = predict(y, x).
Only LoRA factors of the transformer, the cross biases and the head are trained: an adapter of a few MB.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.errors import InputError
from training.models.pair_tokenization import PairBatch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FAMILIES = ("bert", "mpnet")
_PADDED = -1e4  # added to the attention logit of a padding token; finite, so that bfloat16 stays finite


class JointPairHead(nn.Module):
    """Sentence vectors u, v (B, D) of length 1 -> logits (B,). Untrained, it is a calibrated cosine."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(6.0))
        self.shift = nn.Parameter(torch.tensor(-3.0))
        self.linear = nn.Linear(2 * dimension, 1)
        self.dropout = nn.Dropout(0.1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        features = torch.cat([(u - v).abs(), u * v], dim=1) * math.sqrt(u.shape[1])
        return self.scale * (u * v).sum(1) + self.shift + self.linear(self.dropout(features))[:, 0]


class JointPairModel(nn.Module):
    """A transformer of one of ``FAMILIES`` + cross biases + head: PairBatch -> logits (B,) float32.

    ``transformer`` may be in bfloat16; the rest stays float32: it is small, and the score hangs on its last bits.
    """

    def __init__(self, transformer: PreTrainedModel) -> None:
        super().__init__()
        config = transformer.config
        if config.model_type not in FAMILIES:
            raise InputError(f"a twin scorer needs a base of the family {' or '.join(FAMILIES)}")
        self.transformer = transformer
        self.cross = nn.Parameter(torch.full((config.num_hidden_layers, config.num_attention_heads), -2.0))
        self.head = JointPairHead(config.hidden_size)

    def forward(self, batch: PairBatch) -> Tensor:
        return self.score(self.hidden(batch), batch)

    def score(self, hidden: Tensor, batch: PairBatch) -> Tensor:
        """Hidden states (B, T, D) of the joint pass -> logits (B,) float32."""
        u, v = sentence_means(hidden.float(), batch)
        return self.head(F.normalize(u, dim=1), F.normalize(v, dim=1))

    def own_tensors(self) -> dict[str, Tensor]:
        """What this scorer has beside the transformer: the cross biases and the head, float32."""
        return {key: value for key, value in self.state_dict().items() if not key.startswith("transformer.")}

    def load_own(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what ``own_tensors`` gave. InputError if something is missing or of another shape."""
        own = self.own_tensors()
        if {k: v.shape for k, v in own.items()} != {k: v.shape for k, v in tensors.items()}:
            raise InputError("head.safetensors does not fit the base of its adapter; fetch or train it again")
        with torch.no_grad():
            for key, value in own.items():
                value.copy_(tensors[key])

    def hidden(self, batch: PairBatch) -> Tensor:
        """(B, T, D): the joint pass, layer by layer, each with its own biases."""
        states = self._embed(batch)
        everywhere = self._bias_everywhere(batch).to(states.dtype)  # (B, 1 or H, T or 1, T)
        second = batch.second
        between = (second[:, None, :, None] != second[:, None, None, :]).to(states.dtype)  # (B, 1, T, T)
        for layer, cross in zip(self.transformer.encoder.layer, self.cross, strict=True):
            bias = torch.addcmul(everywhere, between, cross.to(states.dtype)[:, None, None])
            states = layer(states, bias)
            states = states[0] if isinstance(states, tuple) else states
        return states

    def _embed(self, batch: PairBatch) -> Tensor:
        offset = self._is_mpnet * (self.transformer.config.pad_token_id + 1)
        return self.transformer.embeddings(input_ids=batch.ids, position_ids=batch.places + offset)

    def _bias_everywhere(self, batch: PairBatch) -> Tensor:
        """What is added to every layer's attention logits: padding, and MPNet's relative positions."""
        bias = self.cross.new_zeros(1, 1, 1, 1)
        if batch.mask is not None:
            bias = torch.where(batch.mask, 0.0, _PADDED)[:, None, None, :]
        if self._is_mpnet:
            encoder, places = self.transformer.encoder, batch.places
            bucket = encoder.relative_position_bucket(places[:, None, :] - places[:, :, None])
            bias = bias + encoder.relative_attention_bias(bucket).permute(0, 3, 1, 2)
        return bias

    @property
    def _is_mpnet(self) -> bool:
        return self.transformer.config.model_type == "mpnet"


def sentence_means(hidden: Tensor, batch: PairBatch) -> tuple[Tensor, Tensor]:
    """Hidden states (B, T, D) -> the mean over each sentence's tokens, two tensors (B, D)."""
    second = batch.second
    real = torch.ones_like(second) if batch.mask is None else batch.mask
    weights = torch.stack([real & ~second, real & second], dim=1).to(hidden.dtype)  # (B, 2, T)
    means = (weights @ hidden) / weights.sum(2, keepdim=True)
    return means[:, 0], means[:, 1]


def merge_lora(transformer: PreTrainedModel, tensors: Mapping[str, Tensor], scale: float) -> None:
    """Add LoRA's product to the weights it belongs to: W += scale * B A. Prediction then pays nothing for it.

    ``tensors`` are named as peft names them: base_model.model.<module>.lora_A.weight (r, in) and lora_B (out, r).
    """
    for key, down in tensors.items():
        if not key.endswith(".lora_A.weight"):
            continue
        up = tensors[key.replace(".lora_A.", ".lora_B.")]
        module = transformer.get_submodule(key.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
        with torch.no_grad():
            module.weight += scale * (up.float() @ down.float())
