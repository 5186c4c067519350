"""WordBackbone: a table of word or token vectors, and LSTMs if any, with the interface of a transformer.

What encodes and trains a transformer of the transformers library does the same with this: word vectors that are looked
up in a table (`get_input_embeddings`), and ``forward`` -> ``last_hidden_state`` (B, T, D).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from torch import Tensor, nn

from training.errors import InputError
from training.models.modules import LSTM, StaticEmbedding, WordEmbeddings


@dataclass(frozen=True)
class WordConfig:
    """The part of a transformer's config that is asked for."""

    hidden_size: int
    model_type: str  # WordEmbeddings or StaticEmbedding


class WordBackbone(nn.Module):
    """The modules before the pooling. ``input_module`` holds the table and the tokenizer."""

    def __init__(self, input_module: WordEmbeddings | StaticEmbedding, layers: Sequence[LSTM] = ()) -> None:
        super().__init__()
        self.input_module = input_module
        self.layers = nn.ModuleList(layers)
        dimension = input_module.table.embedding_dim
        for layer in layers:
            if layer.input_dimension != dimension:
                raise InputError(f"an LSTM takes vectors of {layer.input_dimension} dimensions, but gets {dimension}")
            dimension = layer.dimension
        self.config = WordConfig(dimension, type(input_module).__name__)

    @property
    def is_static(self) -> bool:
        """Whether a token's vector does not depend on the others."""
        return not len(self.layers)

    def get_input_embeddings(self) -> nn.Embedding:
        """The table."""
        return self.input_module.table

    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> SimpleNamespace:
        """Token ids (B, T), or their vectors (B, T, D), and a mask that is not 0 for real tokens; None = all are."""
        hidden = self.input_module(input_ids) if inputs_embeds is None else inputs_embeds
        for layer in self.layers:
            hidden = layer(hidden, attention_mask)
        return SimpleNamespace(last_hidden_state=hidden)
