"""Which corpus the Explore page has open, and which model and pooling embed it.

The page puts a ``Selection`` into a ``gr.State`` once the embeddings are computed, so ``embed`` answers from memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbert_app.services.corpus.embedded import EmbeddedCorpus
    from sbert_app.services.corpus.embedding_cache import EmbeddingCache


@dataclass(frozen=True)
class Selection:
    """The open corpus, and the model and pooling that embed it."""

    corpus: str  # its key in the embedding cache
    model: str
    pooling: str

    def embed(self, embeddings: EmbeddingCache) -> EmbeddedCorpus:
        """The corpus with its embeddings.

        Raises:
            InputError: the corpus has been evicted from the cache meanwhile.
        """
        return embeddings.embed(self.corpus, self.model, self.pooling)
