"""What the tabs of the Explore page share: the open corpus, and how its clusters are found.

The page puts a ``Selection`` into a ``gr.State`` once the embeddings are computed, so ``embed`` answers from memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sbert_app.services.clusters.clustering import ClusterSettings

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


@dataclass(frozen=True)
class Clustering:
    """How the clusters were found that were shown last; the map colours by the same ones."""

    settings: ClusterSettings = field(default_factory=ClusterSettings)
    changes: int = 0  # counts names and merges, so that the map notices them


@dataclass(frozen=True)
class Shared:
    """The states that every tab gets."""

    selection: Any  # gr.State of a Selection, or None
    clustering: Any  # gr.State of a Clustering


@dataclass(frozen=True)
class Picked:
    """Sentences that were selected, by lasso, by box, by their words or as a group."""

    corpus: str = ""  # its key in the embedding cache
    rows: tuple[int, ...] = ()  # ascending
    group: str = ""  # the name of the group, if they are one
