"""The objective of language modelling: masked tokens are predicted from the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from training.data.transforms import DISTINCT_ROWS
from training.objectives.base import Objective, Vectors, required

if TYPE_CHECKING:
    from torch import Tensor

# The fraction of the tokens that are predicted, and the fractions of these that become [MASK] or a
# random token. The others are not changed.
MASKED = 0.15
REPLACED_BY_MASK = 0.8
REPLACED_AT_RANDOM = 0.1


class MaskedLanguageModelling(Objective):
    """Masked language modelling: mean over the masked tokens of -log softmax(W h + b)[token].

    Inputs: one column, the logits of the masked tokens, (M, V) float32. Labels: the ids of the
    tokens, int64 (M,). Source: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional
    Transformers", section 3.1, "Masked LM"; `BertForMaskedLM` in transformers. The next sentence is
    not predicted, as Liu et al. 2019 (RoBERTa, section 4.2) found that this does not help.
    """

    name = "mlm"
    equation = "−log softmax(W h)[token] of each masked token"
    help = (
        "no labels: 15% of the tokens are hidden and predicted from the others; "
        "trains the transformer, not its vectors"
    )
    rows = DISTINCT_ROWS
    predicts_tokens = True
    selected_by = "loss"

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        import torch.nn.functional as F

        [logits] = vectors
        return F.cross_entropy(logits, required(target))


def mask_tokens(
    ids: np.ndarray,
    can_be_masked: np.ndarray,
    mask_id: int,
    vocabulary_size: int,
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Masks tokens as in Devlin et al. 2019, section 3.1. The same state of ``generator`` masks the same tokens.

    ``ids`` are int64 (B, T), of ``vocabulary_size`` tokens; ``can_be_masked`` is bool (B, T), False
    for special tokens and padding. Returns the ids (B, T) with the masked tokens replaced, and
    their positions (M,) in the flattened ids. M is at least 1 if any token can be masked, as the
    mean over no token is NaN.
    """
    # One draw decides whether a token is masked and what replaces it.
    draws = generator.random(ids.shape)
    draws[~can_be_masked] = 1
    is_masked = draws < MASKED
    if not is_masked.any() and can_be_masked.any():
        is_masked = draws == draws.min()
        # A new draw decides what replaces it, with the same probabilities as for other tokens.
        draws[is_masked] = MASKED * generator.random()
    # Between 0 and 1 for masked tokens: below 0.8 they become [MASK], below 0.9 a random token.
    choices = draws / MASKED
    random_ids = generator.integers(vocabulary_size, size=ids.shape)
    is_replaced = is_masked & (choices < REPLACED_BY_MASK + REPLACED_AT_RANDOM)
    inputs = np.where(is_replaced, random_ids, ids)
    inputs[is_masked & (choices < REPLACED_BY_MASK)] = mask_id
    return inputs, np.flatnonzero(is_masked)
