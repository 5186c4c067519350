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

from training.device import to_device
from training.errors import InputError
from training.inference.batching import plan
from training.inference.fused_bert import FusedBert, supports_fused
from training.inference.packing import PackedBatch, Row, collate, plan_rows
from training.inference.runner import Hidden, InferenceRunner, attention_input, calibrate
from training.inference.unpadded import Boundaries, plan_unpadded
from training.models.joint_pair_model import JointPairModel
from training.models.pair_tokenization import PairBatch, PairRow, pad_pairs
from training.models.sequence_classifier import HEADS, SequenceClassifier


class _PackedPairs(InferenceRunner[PairRow]):
    """Pairs in packed rows. In place of hidden states, ``hidden`` returns logits (n,), and no mask."""

    unpadded = False  # whether the pairs of a batch are one row, and what keeps them apart their boundaries

    def __init__(self, transformer: FusedBert, device: torch.device) -> None:
        self.transformer, self.device = transformer, device

    def batches(self, lengths: list[int], token_budget: int) -> Iterator[list[Row]]:
        return plan_unpadded(lengths, token_budget) if self.unpadded else plan_rows(lengths, token_budget)

    def hidden(self, texts: Sequence[PairRow], rows: list[Row]) -> Hidden:
        chosen = [texts[i] for row in rows for i in row]
        numbers = iter(range(len(chosen)))
        collated = collate([pair.ids for pair in chosen], [[next(numbers) for _ in row] for row in rows])
        packed, bias = attention_input(collated, self.device, self.transformer.dtype, self.unpadded)
        split = to_device(torch.tensor([pair.split for pair in chosen]), self.device)
        second = packed.positions >= torch.cat([split.new_zeros(1), split])[packed.sequence_ids]  # (R, W)
        return self.logits(packed, bias, split, second & (packed.sequence_ids > 0)), None

    @abstractmethod
    def logits(self, packed: PackedBatch, bias: Tensor | Boundaries | None, split: Tensor, second: Tensor) -> Tensor:
        """Logits (n,).

        Args:
            packed: the batch.
            bias: what keeps its pairs apart in attention.
            split: (n,), the start of each pair's second sentence.
            second: (R, W) bool, the tokens of second sentences.
        """


class PackedJointPairs(_PackedPairs):
    """Pairs for a ``JointPairModel``: positions restart in the second sentence, and each layer has its own bias."""

    def __init__(self, scorer: JointPairModel, dtype: torch.dtype) -> None:
        super().__init__(FusedBert(scorer.transformer, dtype), scorer.cross.device)
        self.scorer = scorer
        self.cross = scorer.cross.detach()  # (layers, heads)

    def logits(self, packed: PackedBatch, bias: Tensor | Boundaries | None, split: Tensor, second: Tensor) -> Tensor:
        assert not isinstance(bias, Boundaries)  # noqa: S101 - not unpadded: (R, 1, W, W)
        starts = torch.cat([split.new_zeros(1), split])[packed.sequence_ids]
        between = (second[:, None, :, None] != second[:, None, None, :]).to(self.transformer.dtype)
        cross_by_layer = self.cross.to(self.transformer.dtype)
        cross_biases = [between * cross[:, None, None] for cross in cross_by_layer]  # (R, H, W, W) for each layer
        biases = cross_biases if bias is None else [bias + cross_bias for cross_bias in cross_biases]
        hidden = self.transformer(packed.ids, packed.positions - second * starts, biases)
        batch = PairBatch(packed.ids.flatten()[packed.token_index], packed.mask, split[:, None])
        return self.scorer.score(packed.unpack(hidden), batch)


class PackedClassifierPairs(_PackedPairs):
    """Pairs for a ``SequenceClassifier`` whose architecture is in ``HEADS``."""

    def __init__(self, scorer: SequenceClassifier, dtype: torch.dtype) -> None:
        super().__init__(FusedBert(scorer.transformer.base_model, dtype), scorer.transformer.device)
        self.scorer = scorer
        self.unpadded = self.transformer.unpadded

    def logits(self, packed: PackedBatch, bias: Tensor | Boundaries | None, split: Tensor, second: Tensor) -> Tensor:
        token_types = second.long() if self.scorer.has_token_types else None
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
    scorer: SequenceClassifier | JointPairModel, dtype: torch.dtype, pad_id: int, calibration: Sequence[PairRow] = ()
) -> InferenceRunner[PairRow]:
    """A runner for ``scorer`` that computes in ``dtype``. The scorer must not change afterwards.

    ``calibration``: pairs that the ranges of int8 are measured on.
    """
    packed = _packed_runner(scorer, dtype)
    if packed is None:
        if dtype == torch.int8:
            raise InputError(f"a cross-encoder of {scorer.transformer.config.model_type} has no int8; choose auto")
        return PaddedPairs(scorer, pad_id)
    if dtype == torch.int8:
        calibrate(packed, packed.transformer, calibration)
    return packed


def _packed_runner(scorer: SequenceClassifier | JointPairModel, dtype: torch.dtype) -> _PackedPairs | None:
    transformer = scorer.transformer
    if isinstance(scorer, JointPairModel):
        return PackedJointPairs(scorer, dtype) if supports_fused(transformer) else None
    has_head = transformer.config.model_type in HEADS and supports_fused(transformer.base_model)
    return PackedClassifierPairs(scorer, dtype) if has_head else None
