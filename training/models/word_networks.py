"""WordBackbone: the networks over word vectors, InferSent and DAN, made of sentence-transformers' modules.

WordEmbeddings, and an LSTM in InferSent, replace the transformer of an encoder, so that the same
loop trains them. Trained networks are saved in sentence-transformers' format.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class WordBackbone(nn.Module):
    """Computes token vectors from words with modules of sentence-transformers. The word number 0 is the padding."""

    def __init__(self, words: Any, lstm: Any = None) -> None:
        super().__init__()
        self.words = words
        self.lstm = lstm
        # In the order in which they are applied.
        self.modules_before_pooling = [words] if lstm is None else [words, lstm]
        width = self.modules_before_pooling[-1].get_embedding_dimension()
        # The part of a transformer's config that is used.
        self.config = SimpleNamespace(hidden_size=width, model_type="WordEmbeddings")

    def get_input_embeddings(self) -> nn.Embedding:
        """Returns the table of word vectors."""
        return self.words.emb_layer

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> SimpleNamespace:
        """Computes hidden states (B, T, H) from token ids (B, T), or their vectors (B, T, D).

        The mask is 0 for padding. None means that nothing is padded.
        """
        hidden = self.words.emb_layer(input_ids) if inputs_embeds is None else inputs_embeds
        if self.lstm is None:
            return SimpleNamespace(last_hidden_state=hidden)
        mask = torch.ones(hidden.shape[:2]) if attention_mask is None else attention_mask
        features = {"token_embeddings": hidden, "sentence_lengths": mask.long().sum(dim=1)}
        states = self.lstm(features)["token_embeddings"]  # (B, longest, H)
        # The LSTM leaves out positions that are padding in all texts.
        states = F.pad(states, (0, 0, 0, hidden.shape[1] - states.shape[1]))  # (B, T, H)
        if input_ids is not None:
            # The id 0 is the padding. A text without words is one such token, and gets zeros. With
            # ``inputs_embeds`` it is not known which tokens are padding.
            states = states * input_ids.ne(0)[..., None]
        return SimpleNamespace(last_hidden_state=states)
