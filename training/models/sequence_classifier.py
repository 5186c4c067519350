"""SequenceClassifier: a cross-encoder that is a classification model of the transformers library with one output."""

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


# The classification head, by architecture: hidden states (B, T, D) -> logits (B, 1).
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

    def __init__(self, model: PreTrainedModel, has_token_types: bool) -> None:
        super().__init__()
        self.transformer = model
        self.has_token_types = has_token_types

    def forward(self, batch: PairBatch) -> Tensor:
        mask = None if batch.mask is None else batch.mask.long()
        types = batch.second if batch.mask is None else batch.second & batch.mask
        token_types = {"token_type_ids": types.long()} if self.has_token_types else {}
        return self.transformer(input_ids=batch.ids, attention_mask=mask, **token_types).logits[:, 0].float()

    def score(self, hidden: Tensor) -> Tensor:
        """Hidden states (B, T, D) of the transformer -> logits (B,) float32. For architectures in ``HEADS``."""
        return HEADS[self.transformer.config.model_type](self.transformer, hidden)[:, 0].float()
