"""The state that the tabs of the Explore page share: the open corpus, its clustering, and the selection.

The page sets the ``gr.State`` of the `OpenCorpus` once the embeddings are computed, so that
``embed`` reads from memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sbert_app.formats import format_count, format_time
from sbert_app.services.background.watch import Watch
from sbert_app.services.clusters.clustering import ClusterSettings, cluster
from training.errors import InputError
from training.models.model import VectorModel
from training.names import ModelName

if TYPE_CHECKING:
    from sbert_app.services.corpus.embedded import EmbeddedCorpus
    from sbert_app.services.corpus.open_corpora import EmbeddingCache, KeptCorpus
    from sbert_app.services.models.cache import ModelCache

# The maximum length of a sentence on the page, in characters.
MAX_CHARACTERS = 400


@dataclass(frozen=True)
class OpenCorpus:
    """A corpus and its model.

    Attributes:
        corpus: the key of the corpus in the embedding cache.
        model: the model of the vectors; `OWN` for the user's own vectors.
        query_model: the model that encodes queries; by default ``model``.
        is_example: whether the corpus is the one with which the page opens.
    """

    corpus: str
    model: ModelName
    query_model: ModelName | None = None
    is_example: bool = False

    def query_encoder(self, models: ModelCache, dimension: int) -> VectorModel:
        """Returns the encoder of queries. Raises InputError if its vectors have another dimension than the corpus."""
        encoder = models.get(self.query_model or self.model, VectorModel, role="query")
        # Only vectors of the user can have another dimension. Other vectors come from this model.
        if encoder.dimension != dimension:
            raise InputError(
                f"your vectors have {dimension} dimensions, and {encoder.name} gives {encoder.dimension}: choose the "
                "model that made them, above, and open the corpus again."
            )
        return encoder

    def embed(self, embeddings: EmbeddingCache) -> EmbeddedCorpus:
        """Returns the corpus with its embeddings. Raises InputError if the cache no longer has the corpus."""
        return embeddings.embed(self.corpus, self.model)


def require_open(open_corpus: OpenCorpus | None) -> OpenCorpus:
    """Returns the open corpus. Raises InputError before the first one is open."""
    if open_corpus is None:
        raise InputError("no corpus is open yet.")
    return open_corpus


def find_clusters(
    embeddings: EmbeddingCache, embedded: EmbeddedCorpus, settings: ClusterSettings, watch: Watch
) -> np.ndarray:
    """Returns the cluster of each sentence of a corpus, int64 (N,), with the numbers of `clustering.cluster`."""
    return cluster(embedded, settings, embeddings.cache, embeddings.home, watch, embeddings.limits)


@dataclass(frozen=True)
class Shared:
    """The components of the shared state.

    Attributes:
        open_corpus: the gr.State of an `OpenCorpus`, or None.
        clustering: the gr.State of the `ClusterSettings` of the clusters on the page and of the
            colours of the map.
        corpus_ids: the gr.BrowserState of the ids of the corpora that this browser has opened.
        counts: the gr.State of a text with the numbers of rows and duplicates that the tab Pairs
            and duplicates has found; "" until then.
    """

    open_corpus: Any
    clustering: Any
    corpus_ids: Any
    counts: Any


@dataclass(frozen=True)
class SelectedRows:
    """The selected rows of a corpus, ascending."""

    corpus: str = ""
    rows: tuple[int, ...] = ()


def kept_choice(key: str, record: KeptCorpus) -> tuple[str, str]:
    """Returns a corpus of the visitor as a choice of a dropdown, (label, id)."""
    sentences = format_count(record.sentences, "sentence")
    return f"{record.name} ({sentences}, {format_time(record.created)})", key


def shorten(sentence: str) -> str:
    return sentence if len(sentence) <= MAX_CHARACTERS else sentence[:MAX_CHARACTERS] + " …"
