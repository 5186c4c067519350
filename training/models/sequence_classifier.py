"""PlainScorer: a sequence-classification model of the transformers library with one output, as a cross-encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from training.models.pair_tokenization import PairBatch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def _distilbert(model: Any, hidden: Tensor) -> Tensor:
    return model.classifier(torch.relu(model.pre_classifier(hidden[:, 0])))


# What comes after the transformer: hidden states (B, T, D) -> logits (B, 1), by architecture.
HEADS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "bert": lambda model, hidden: model.classifier(model.bert.pooler(hidden)),
    "roberta": lambda model, hidden: model.classifier(hidden),
    "xlm-roberta": lambda model, hidden: model.classifier(hidden),
    "camembert": lambda model, hidden: model.classifier(hidden),
    "mpnet": lambda model, hidden: model.classifier(hidden),
    "distilbert": _distilbert,
}


class SequenceClassifier(nn.Module):
    """PairBatch -> logits (B,) float32."""

    def __init__(self, model: PreTrainedModel, has_types: bool) -> None:
        super().__init__()
        self.transformer = model
        self.has_types = has_types

    def forward(self, batch: PairBatch) -> Tensor:
        mask = None if batch.mask is None else batch.mask.long()
        types = batch.second if batch.mask is None else batch.second & batch.mask
        kinds = {"token_type_ids": types.long()} if self.has_types else {}
        return self.transformer(input_ids=batch.ids, attention_mask=mask, **kinds).logits[:, 0].float()

    def score(self, hidden: Tensor) -> Tensor:
        """Hidden states (B, T, D) of the transformer alone -> logits (B,) float32. Of an architecture in `HEADS`."""
        return HEADS[self.transformer.config.model_type](self.transformer, hidden)[:, 0].float()
