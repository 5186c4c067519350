"""Cross-encoders in inference: pairs of sentences to logits, in the chosen precision, on all cores.

As in encoding (`training.inference.runner`), architectures of BERT's family run as ``FusedBert`` on packed rows of
several pairs, any other as its own module on padded batches. A bias on the attention's logits keeps pairs apart and,
in a ``JointPairModel``, holds what each layer has learned about attention between the two sentences.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from training.inference.batching import plan
from training.inference.fused_bert import FusedBert, supports_fused
from training.inference.packing import PackedBatch, Row, collate, plan_rows
from training.inference.runner import Hidden, InferenceRunner
from training.models.joint_pair_model import JointPairModel
from training.models.pair_tokenization import PairBatch, PairRow, pad_pairs
from training.models.sequence_classifier import HEADS, SequenceClassifier


class _PackedPairs(InferenceRunner[PairRow]):
    """Pairs in packed rows. In place of hidden states, ``hidden`` returns logits (n,), and no mask."""

    def __init__(self, transformer: FusedBert, device: torch.device) -> None:
        self.transformer, self.device = transformer, device

    def batches(self, lengths: list[int], token_budget: int) -> Iterator[list[Row]]:
        return plan_rows(lengths, token_budget)

    def hidden(self, texts: Sequence[PairRow], rows: list[Row]) -> Hidden:
        packed = collate([pair.ids for pair in texts], rows).to(self.device)
        split = torch.tensor([texts[i].split for row in rows for i in row]).to(self.device)
        second = packed.positions >= torch.cat([split.new_zeros(1), split])[packed.sequence_ids]  # (R, W)
        return self.logits(packed, split, second & (packed.sequence_ids > 0)), None

    @abstractmethod
    def logits(self, packed: PackedBatch, split: Tensor, second: Tensor) -> Tensor:
        """Logits (n,). ``split`` (n,): the start of each pair's second sentence; ``second`` (R, W): its tokens."""


class PackedJointPairs(_PackedPairs):
    """Pairs for a ``JointPairModel``: positions restart in the second sentence, and each layer has its own bias."""

    def __init__(self, scorer: JointPairModel, dtype: torch.dtype) -> None:
        super().__init__(FusedBert(scorer.transformer, dtype), scorer.cross.device)
        self.scorer = scorer
        self.cross = scorer.cross.detach().to(dtype)  # (layers, heads)

    def logits(self, packed: PackedBatch, split: Tensor, second: Tensor) -> Tensor:
        starts = torch.cat([split.new_zeros(1), split])[packed.sequence_ids]
        bias = packed.attention_bias(self.transformer.dtype)  # (R, 1, W, W)
        between = (second[:, None, :, None] != second[:, None, None, :]).to(self.transformer.dtype)
        cross_biases = [between * cross[:, None, None] for cross in self.cross]  # (R, H, W, W) for each layer
        biases = cross_biases if bias is None else [bias + cross_bias for cross_bias in cross_biases]
        hidden = self.transformer(packed.ids, packed.positions - second * starts, biases)
        batch = PairBatch(packed.ids.flatten()[packed.token_index], packed.mask, split[:, None])
        return self.scorer.score(packed.unpack(hidden), batch)


class PackedClassifierPairs(_PackedPairs):
    """Pairs for a ``SequenceClassifier`` whose architecture is in ``HEADS``."""

    def __init__(self, scorer: SequenceClassifier, dtype: torch.dtype) -> None:
        super().__init__(FusedBert(scorer.transformer.base_model, dtype), scorer.transformer.device)
        self.scorer = scorer

    def logits(self, packed: PackedBatch, split: Tensor, second: Tensor) -> Tensor:
        token_types = second.long() if self.scorer.has_token_types else None
        bias = packed.attention_bias(self.transformer.dtype)
        return self.scorer.score(packed.unpack(self.transformer(packed.ids, packed.positions, bias, token_types)))


class PaddedPairs(InferenceRunner[PairRow]):
    """One pair in a row, through the module itself."""

    def __init__(self, scorer: SequenceClassifier | JointPairModel, pad_id: int) -> None:
        self.device = scorer.transformer.device
        self.scorer, self.pad_id = scorer, pad_id

    def batches(self, lengths: list[int], token_budget: int) -> Iterator[list[Row]]:
        for group in plan(lengths, token_budget):
            yield [[int(i)] for i in group]

    def hidden(self, texts: Sequence[PairRow], rows: list[Row]) -> Hidden:
        return self.scorer(pad_pairs([texts[row[0]] for row in rows], self.pad_id, self.device)), None


def build_pair_runner(
    scorer: SequenceClassifier | JointPairModel, dtype: torch.dtype, pad_id: int
) -> InferenceRunner[PairRow]:
    """A runner for ``scorer`` that computes in ``dtype``. The scorer must not change afterwards."""
    transformer = scorer.transformer
    if isinstance(scorer, JointPairModel) and supports_fused(transformer):
        return PackedJointPairs(scorer, dtype)
    if (
        isinstance(scorer, SequenceClassifier)
        and transformer.config.model_type in HEADS
        and supports_fused(transformer.base_model)
    ):
        return PackedClassifierPairs(scorer, dtype)
    return PaddedPairs(scorer, pad_id)
