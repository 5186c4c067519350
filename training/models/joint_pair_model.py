"""JointPairModel: a cross-encoder that starts as the bi-encoder it is made from.

Both sentences pass through the transformer together, so each token of one can attend to every token
of the other. Three choices preserve what the bi-encoder has learned, which matters when there are
only 5,749 pairs to train on:

- Each sentence counts its positions from 0 and keeps its own special tokens, as if it were alone.
- Attention from one sentence to the other gets a learned bias, one per layer and head ("cross"). At
  minus infinity the sentences cannot attend to each other, and the hidden states are exactly the
  bi-encoder's.
- The score is computed from the two sentence vectors u and v (means over each sentence's tokens,
  length 1): a * cos(u, v) + b + w . (|u - v|, u * v), the features of the paper's section 3 and
  Table 6.

The model treats both sentences alike, so the score is symmetric: predict(x, y) = predict(y, x).
In the adapters of the package, which have a few MB each, only LoRA factors of the transformer, the
cross biases and the head were trained. A run trains all weights, unless it sets a rank of LoRA.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.device import to_device
from training.errors import InputError
from training.inference.batching import Row
from training.inference.fused_bert import FusedBert, position_offset, supports_fused
from training.inference.runner import Hidden, InferenceRunner, PackedRunner
from training.models.files import shapes_of
from training.models.pairs import PairBatch, PairRow, pad_pairs

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ARCHITECTURES = ("bert", "mpnet")
_PADDED = -1e4  # added to the attention logits of padding; finite, so that bfloat16 stays finite


class JointPairHead(nn.Module):
    """Computes logits (B, 1) from sentence vectors u and v, (B, 2 D), at first as a linear function of their cosine."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        # At first the score is the sigmoid of 6 · cos - 3: 0.05 for a cosine of 0, 0.95 for 1.
        self.scale = nn.Parameter(torch.tensor(6.0))
        self.shift = nn.Parameter(torch.tensor(-3.0))
        self.linear = nn.Linear(2 * dimension, 1)
        self.dropout = nn.Dropout(0.1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        u, v = (F.normalize(side, dim=1) for side in vectors.chunk(2, dim=1))
        # u and v have length 1, so the numbers of |u - v| are about 1 / sqrt(D), and about 1 after the
        # scaling. The products u * v stay smaller.
        features = torch.cat([(u - v).abs(), u * v], dim=1) * math.sqrt(u.shape[1])
        cosine = (u * v).sum(1, keepdim=True)
        return self.scale * cosine + self.shift + self.linear(self.dropout(features))


class JointPairModel(nn.Module):
    """A transformer of one of ``ARCHITECTURES``, cross biases and a head: PairBatch -> logits (B,) float32.

    ``transformer`` may be in bfloat16. The rest stays float32, as it is small and the score is
    sensitive to it.
    """

    def __init__(self, transformer: PreTrainedModel) -> None:
        super().__init__()
        config = transformer.config
        if config.model_type not in ARCHITECTURES:
            raise InputError(
                f"a joint pair model needs a base of the architecture {' or '.join(ARCHITECTURES)}"
            )
        self.transformer = transformer
        shape = (config.num_hidden_layers, config.num_attention_heads)
        # At first a token of the other sentence counts exp(-2) = 0.14 times as much in attention.
        self.cross = nn.Parameter(torch.full(shape, -2.0))
        self.head = JointPairHead(config.hidden_size)

    def forward(self, batch: PairBatch) -> Tensor:
        return self.score(self.hidden(batch), batch)

    def score(self, hidden: Tensor, batch: PairBatch) -> Tensor:
        """Computes logits (B,) float32 from the hidden states (B, T, D) of both sentences."""
        return self.head(sentence_means(hidden.float(), batch))[:, 0]

    def get_input_embeddings(self) -> nn.Module:
        """Returns the word embeddings, as for a transformer."""
        return self.transformer.get_input_embeddings()

    def head_tensors(self) -> dict[str, Tensor]:
        """Returns the parameters outside of the transformer, float32: the cross biases and the head."""
        state = self.state_dict()
        return {key: state[key] for key in state if not key.startswith("transformer.")}

    def load_head_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Loads the tensors of ``head_tensors``. InputError if one is missing or has another shape."""
        if shapes_of(tensors) != shapes_of(self.head_tensors()):
            raise InputError(
                "head.safetensors does not fit the base of its adapter; fetch or train it again"
            )
        # The weights of the transformer are not among the tensors.
        self.load_state_dict(tensors, strict=False)

    def hidden(self, batch: PairBatch, inputs: Tensor | None = None) -> Tensor:
        """Computes the hidden states (B, T, D) of both sentences. ``inputs`` (B, T, D) replace the word embeddings."""
        transformer: Any = self.transformer
        # MPNet numbers the positions from the one after its padding token's id.
        states = transformer.embeddings(
            input_ids=batch.ids if inputs is None else None,
            inputs_embeds=inputs,
            position_ids=batch.positions + position_offset(transformer),
        )
        common = self._common_bias(batch).to(states.dtype)  # (B, 1 or H, T or 1, T)
        second = batch.second
        # 1 from a token of one sentence to a token of the other, else 0: (B, 1, T, T)
        between = (second[:, None, :, None] != second[:, None, None, :]).to(states.dtype)
        for layer, cross in zip(transformer.encoder.layer, self.cross, strict=True):
            # common + between · cross, (B, H, T, T)
            bias = torch.addcmul(common, between, cross.to(states.dtype)[:, None, None])
            states = layer(states, bias)
            # MPNet's layers return a tuple.
            if isinstance(states, tuple):
                states = states[0]
        return states

    def _common_bias(self, batch: PairBatch) -> Tensor:
        """Computes the bias on the attention logits that all layers share: padding, and MPNet's relative positions."""
        bias = self.cross.new_zeros(1, 1, 1, 1)
        if batch.mask is not None:
            bias = torch.where(batch.mask, 0.0, _PADDED)[:, None, None, :]  # (B, 1, 1, T)
        if self.transformer.config.model_type == "mpnet":
            encoder = self.transformer.encoder
            distances = batch.positions[:, None, :] - batch.positions[:, :, None]  # (B, T, T)
            relative_bias = encoder.relative_attention_bias(
                encoder.relative_position_bucket(distances)
            )
            bias = bias + relative_bias.permute(0, 3, 1, 2)  # (B, H, T, T)
        return bias


def sentence_means(hidden: Tensor, batch: PairBatch) -> Tensor:
    """Averages hidden states (B, T, D) over the tokens of the first and of the second sentence: (B, 2 D)."""
    second = batch.second
    real = torch.ones_like(second) if batch.mask is None else batch.mask
    weights = torch.stack([real & ~second, real & second], dim=1).to(hidden.dtype)  # (B, 2, T)
    means = (weights @ hidden) / weights.sum(2, keepdim=True)  # (B, 2, D)
    return means.flatten(1)


# The classification head by architecture: hidden states (B, T, D) -> logits (B, 1).
HEADS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "bert": lambda model, hidden: model.classifier(model.bert.pooler(hidden)),
    "distilbert": lambda model, hidden: model.classifier(
        torch.relu(model.pre_classifier(hidden[:, 0]))
    ),
    **dict.fromkeys(
        ("roberta", "xlm-roberta", "camembert", "mpnet"),
        lambda model, hidden: model.classifier(hidden),
    ),
}


class SequenceClassifier(nn.Module):
    """A sequence classifier of transformers with one label: PairBatch -> logits (B,) float32."""

    def __init__(self, model: PreTrainedModel, has_token_types: bool) -> None:
        super().__init__()
        self.transformer = model
        self.has_token_types = has_token_types

    def forward(self, batch: PairBatch) -> Tensor:
        mask = None if batch.mask is None else batch.mask.long()
        token_types = {"token_type_ids": batch.token_types} if self.has_token_types else {}
        output = self.transformer(input_ids=batch.ids, attention_mask=mask, **token_types)
        return output.logits[:, 0].float()

    def score(self, hidden: Tensor) -> Tensor:
        """Computes logits (B,) float32 from the hidden states (B, T, D), for architectures in ``HEADS``."""
        head = HEADS[self.transformer.config.model_type]
        return head(self.transformer, hidden)[:, 0].float()


# A model of pairs that a `CrossEncoder` runs.
Scorer: TypeAlias = SequenceClassifier | JointPairModel


# As in encoding (`training.inference.runner`), architectures of BERT's family run as ``FusedBert``
# on packed rows of several pairs, and any other as its own module on padded batches. A bias on the
# attention's logits keeps pairs apart. In a ``JointPairModel`` it includes the learned bias of each
# layer between the two sentences.


class PackedPairs(PackedRunner[PairRow]):
    """Computes pairs in packed rows. ``hidden`` returns logits (n,) instead of hidden states, and no mask.

    The scorer is a `JointPairModel`, or a `SequenceClassifier` whose architecture is in `HEADS`.
    """

    transformer: FusedBert

    def __init__(self, scorer: Scorer, dtype: torch.dtype) -> None:
        super().__init__(scorer.transformer.base_model, dtype)
        self.scorer = scorer
        # Unpadded attention takes no bias, which a joint model has between the sentences of a pair.
        self.unpadded = self.unpadded and isinstance(scorer, SequenceClassifier)

    def hidden(self, texts: Sequence[PairRow], rows: list[Row]) -> Hidden:
        # ``rows`` are lists of positions in ``texts``. The n pairs are numbered in this order,
        # through all rows.
        packed, bias = self.pack(texts, rows)
        splits = [texts[i].split for i in chain.from_iterable(rows)]
        split = to_device(torch.tensor(splits), self.device)  # (n,)
        # For each token, where the second sentence of its pair starts, (R, W). The sequence id of a
        # token is the number of its pair, from 1. The 0 before the splits is for padding, which has
        # the sequence id 0.
        starts = torch.cat([split.new_zeros(1), split])[packed.sequence_ids]
        second = (packed.positions >= starts) & (packed.sequence_ids > 0)
        if isinstance(self.scorer, SequenceClassifier):
            types = second.long() if self.scorer.has_token_types else None
            states = self.transformer(packed.ids, packed.positions, bias, types)
            return self.scorer.score(packed.unpack(states)), None
        # 1 from a token of one sentence to a token of the other, else 0: (R, 1, W, W)
        between = (second[:, None, :, None] != second[:, None, None, :]).to(self.transformer.dtype)
        # Each layer has its own bias, (R, H, W, W).
        biases = [between * cross[:, None, None] for cross in self.scorer.cross.to(between.dtype)]
        if bias is not None:
            # ``bias`` keeps the pairs of a row apart, and is None if each row has one pair. It is never
            # `Boundaries` here, as ``unpadded`` is False for a joint model.
            biases = [cast("Tensor", bias) + cross_bias for cross_bias in biases]
        # Positions restart in the second sentence.
        states = self.transformer(packed.ids, packed.positions - second * starts, biases)
        ids = packed.ids.flatten()[packed.token_index]  # (n, T)
        batch = PairBatch(ids, packed.mask, split[:, None])
        return self.scorer.score(packed.unpack(states), batch), None


class PaddedPairs(InferenceRunner[PairRow]):
    """Computes one pair in a row, with the module itself.

    ``samples`` are a short pair and a longer one, which show whether the scorer reads padding.
    """

    def __init__(self, scorer: Scorer, pad_id: int, samples: Sequence[PairRow]) -> None:
        self.scorer = scorer
        self.pad_id = pad_id
        self.device = scorer.transformer.device
        # Some networks read the padding, such as XLNet, which scores the last token. They get
        # deterministic batches, which have pairs of one length. Without two samples to compare, the
        # network is assumed not to read padding.
        dtype = scorer.transformer.dtype
        self.deterministic = len(samples) > 1 and self.reads_padding(samples, dtype)

    def hidden(self, texts: Sequence[PairRow], rows: list[Row]) -> Hidden:
        batch = pad_pairs([texts[row[0]] for row in rows], self.pad_id, self.device)
        return self.scorer(batch), None


def build_pair_runner(
    scorer: Scorer, dtype: torch.dtype, pad_id: int, samples: Sequence[PairRow] = ()
) -> InferenceRunner[PairRow]:
    """Makes a runner for ``scorer`` that computes in ``dtype``. The scorer must not change afterwards.

    For int8, ``samples`` are pairs to measure the ranges of the inputs with. Otherwise they are a
    short pair and a longer one, such as `PROBES`, which show whether the scorer reads padding;
    without them it is assumed not to.
    """
    architecture = scorer.transformer.config.model_type
    can_pack = supports_fused(scorer.transformer.base_model)
    if can_pack and (isinstance(scorer, JointPairModel) or architecture in HEADS):
        packed = PackedPairs(scorer, dtype)
        if dtype == torch.int8:
            packed.calibrate(samples)
        return packed
    if dtype == torch.int8:
        raise InputError(f"a cross-encoder of {architecture} has no int8; choose auto")
    return PaddedPairs(scorer, pad_id, samples)
