"""The modules that an encoder is made of, under the names of sentence-transformers' modules.json.

    Transformer, WordEmbeddings, StaticEmbedding      the first module: text to token vectors
    LSTM                                              token vectors to token vectors
    Pooling                                           token vectors to a sentence vector (`training.pooling`)
    Dense, LayerNorm, Normalize, Dropout              sentence vector to sentence vector

``MODULES`` holds those that have weights or settings of their own; the Transformer is opened by
`training.models.loading`. What is not listed here is refused by name: CNN, BoW, WordWeights, Router, CLIPModel, …
"""

from typing import Any, NamedTuple

import torch
from torch import nn

from training.models.folder import POOLING, TRANSFORMER, ModelFormat
from training.models.modules.sentence import Dense, Dropout, LayerNorm, Normalize, SentenceModule
from training.models.modules.words import LSTM, StaticEmbedding, WordEmbeddings

INPUT_MODULES = (TRANSFORMER, "WordEmbeddings", "StaticEmbedding")

TOKEN_MODULES: dict[str, type[LSTM]] = {"LSTM": LSTM}
SENTENCE_MODULES: dict[str, type[SentenceModule]] = {
    module.__name__: module for module in (Dense, LayerNorm, Normalize, Dropout)
}
MODULES = {"WordEmbeddings": WordEmbeddings, "StaticEmbedding": StaticEmbedding, **TOKEN_MODULES, **SENTENCE_MODULES}
KINDS = (*INPUT_MODULES, *TOKEN_MODULES, POOLING, *SENTENCE_MODULES)


class EncoderParts(NamedTuple):
    """The modules of an encoder, and the settings under which it is used."""

    backbone: Any  # what comes before the pooling: a module of transformers, or a `WordBackbone`
    tokenizer: Any
    model_format: ModelFormat  # with a pooling and a longest input
    source: str  # where they came from, in words
    head: nn.Sequential  # the modules after the pooling, without the last Normalize

    @torch.no_grad()
    def token_width(self, pad_id: int) -> int:
        """The length of a token vector. The settings of a transformer name that of its layers, which may be another."""
        ids = torch.tensor([[pad_id]], device=next(self.backbone.parameters()).device)
        return int(self.backbone(ids).last_hidden_state.shape[-1])
