"""The transformer as ``predict`` runs it: pairs of sentences to logits, in the precision of choice, on all cores.

As in encoding (inference.py), architectures of BERT's family run as ``FusedBert`` on packed rows, several pairs in
one; any other runs as its own module on padded batches. What a pair's tokens may attend to is a bias on the
attention: nothing between two pairs; between the two sentences of a twin scorer's pair, what its layers learned.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from training.batching import plan
from training.fused_bert import FusedBert, fits
from training.inference import Hidden, Inference
from training.packing import Packed, Row, lay_out, plan_rows
from training.pair_batches import PairBatch, PairRow, pad_pairs
from training.plain_scorer import HEADS, PlainScorer
from training.twin_scorer import TwinScorer


class _PackedPairs(Inference[PairRow]):
    """Pairs in packed rows. "Hidden states" are the logits here: (n,), and no mask."""

    def __init__(self, transformer: FusedBert, device: torch.device) -> None:
        super().__init__()
        self.transformer, self.device = transformer, device

    def batches(self, lengths: list[int], budget: int) -> Iterator[list[Row]]:
        return plan_rows(lengths, budget)

    def hidden(self, texts: Sequence[PairRow], rows: list[Row]) -> Hidden:
        packed = lay_out([pair.ids for pair in texts], rows).to(self.device)
        split = torch.tensor([texts[i].split for row in rows for i in row]).to(self.device)
        second = packed.positions >= torch.cat([split.new_zeros(1), split])[packed.owners]  # (R, W)
        return self.logits(packed, split, second & (packed.owners > 0)), None

    @abstractmethod
    def logits(self, packed: Packed, split: Tensor, second: Tensor) -> Tensor:
        """(n,). ``split`` (n,): where each pair's second sentence begins; ``second`` (R, W): the token is of one."""


class PackedTwins(_PackedPairs):
    """The pairs of a ``TwinScorer``: each sentence has positions of its own, each layer its own bias between them."""

    def __init__(self, scorer: TwinScorer, dtype: torch.dtype) -> None:
        super().__init__(FusedBert(scorer.transformer, dtype), scorer.cross.device)
        self.scorer = scorer
        self.cross = scorer.cross.detach().to(dtype)  # (layers, heads)

    def logits(self, packed: Packed, split: Tensor, second: Tensor) -> Tensor:
        starts = torch.cat([split.new_zeros(1), split])[packed.owners]
        bias = packed.attention_bias(self.transformer.dtype)  # (R, 1, W, W)
        between = (second[:, None, :, None] != second[:, None, None, :]).to(self.transformer.dtype)
        crossed = [between * cross[:, None, None] for cross in self.cross]  # of each layer (R, H, W, W)
        biases = crossed if bias is None else [bias + one for one in crossed]
        hidden = self.transformer(packed.ids, packed.positions - second * starts, biases)
        batch = PairBatch(packed.ids.flatten()[packed.places], packed.mask, split[:, None])
        return self.scorer.score(packed.unpack(hidden), batch)


class PackedPlain(_PackedPairs):
    """The pairs of a ``PlainScorer`` whose architecture is in ``HEADS``."""

    def __init__(self, scorer: PlainScorer, dtype: torch.dtype) -> None:
        super().__init__(FusedBert(scorer.transformer.base_model, dtype), scorer.transformer.device)
        self.scorer = scorer

    def logits(self, packed: Packed, split: Tensor, second: Tensor) -> Tensor:
        kinds = second.long() if self.scorer.has_types else None
        bias = packed.attention_bias(self.transformer.dtype)
        return self.scorer.score(packed.unpack(self.transformer(packed.ids, packed.positions, bias, kinds)))


class PaddedPairs(Inference[PairRow]):
    """One pair in a row, through the scorer's own module."""

    def __init__(self, scorer: PlainScorer | TwinScorer, pad_id: int) -> None:
        super().__init__()
        self.device = scorer.transformer.device
        self.scorer, self.pad_id = scorer, pad_id

    def batches(self, lengths: list[int], budget: int) -> Iterator[list[Row]]:
        for group in plan(lengths, budget):
            yield [[int(i)] for i in group]

    def hidden(self, texts: Sequence[PairRow], rows: list[Row]) -> Hidden:
        return self.scorer(pad_pairs([texts[row[0]] for row in rows], self.pad_id, self.device)), None


def prepare_pairs(scorer: PlainScorer | TwinScorer, dtype: torch.dtype, pad_id: int) -> Inference[PairRow]:
    """``scorer``, its transformer prepared to compute in ``dtype``. The scorer must not change after it."""
    transformer = scorer.transformer
    if isinstance(scorer, TwinScorer) and fits(transformer):
        return PackedTwins(scorer, dtype)
    if isinstance(scorer, PlainScorer) and transformer.config.model_type in HEADS and fits(transformer.base_model):
        return PackedPlain(scorer, dtype)
    return PaddedPairs(scorer, pad_id)
