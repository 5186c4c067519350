"""What the tabs of the Explore page share: the open corpus, and how its clusters are found.

The page puts an ``OpenCorpus`` into a ``gr.State`` once the embeddings are computed, so ``embed`` answers from memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sbert_app.formats import format_count, format_time
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.clusters.clustering import ClusterSettings, cluster
from sbert_app.services.clusters.edits import EditedClusters, edit_store, edited, edits_key
from training.errors import InputError
from training.models.model import VectorModel
from training.names import ModelName

if TYPE_CHECKING:
    from sbert_app.services.corpus.embedded import EmbeddedCorpus
    from sbert_app.services.corpus.embedding_cache import EmbeddingCache
    from sbert_app.services.corpus.kept import KeptCorpus
    from sbert_app.services.models.cache import ModelCache

MAX_CHARACTERS = 400  # of a sentence


@dataclass(frozen=True)
class OpenCorpus:
    corpus: str  # its key in the embedding cache
    model: ModelName  # of its vectors, `OWN` for those that the user has brought
    query_model: ModelName | None = None  # what encodes queries, where that is not the model
    is_example: bool = False

    def query_encoder(self, models: ModelCache, dimension: int) -> VectorModel:
        """What encodes a query for vectors of so many dimensions. InputError if it is another model's."""
        encoder = models.get(self.query_model or self.model, VectorModel, None, "query")
        if encoder.dimension != dimension:
            raise InputError(
                f"your vectors have {dimension} dimensions, and {encoder.name} gives {encoder.dimension}: choose the "
                "model that made them, above, and open the corpus again."
            )
        return encoder

    def embed(self, embeddings: EmbeddingCache) -> EmbeddedCorpus:
        """The corpus with its embeddings. InputError if the corpus has been evicted from the cache meanwhile."""
        return embeddings.embed(self.corpus, self.model)


def opened(open_corpus: OpenCorpus | None) -> OpenCorpus:
    """The open corpus. InputError if there is none yet."""
    if open_corpus is None:
        raise InputError("no corpus is open yet.")
    return open_corpus


@dataclass(frozen=True)
class Clustering:
    """How the clusters were found that were shown last; the map colours by the same ones."""

    settings: ClusterSettings = field(default_factory=ClusterSettings)
    changes: int = 0  # counts names and merges, so that the map notices them


def current_clusters(
    embeddings: EmbeddingCache, embedded: EmbeddedCorpus, settings: ClusterSettings, watch: Watch = UNWATCHED
) -> EditedClusters:
    """The clusters of a corpus, with the names and the merges that people gave them."""
    labels = cluster(embedded, settings, embeddings.cache, embeddings.home, watch, embeddings.limits)
    return edited(labels, edit_store(embeddings.home).get(edits_key(embedded, settings)))


@dataclass(frozen=True)
class Shared:
    """The states that every tab gets."""

    open_corpus: Any  # gr.State of an OpenCorpus, or None
    clustering: Any  # gr.State of a Clustering
    corpus_ids: Any  # gr.BrowserState of the ids of the corpora that this browser has opened


@dataclass(frozen=True)
class SelectedRows:
    """Sentences that were selected, by lasso, by box, by their words or as a group."""

    corpus: str = ""  # its key in the embedding cache
    rows: tuple[int, ...] = ()  # ascending
    group: str = ""  # the name of the group, if they are one


def kept_choice(key: str, record: KeptCorpus) -> tuple[str, str]:
    """One of the visitor's corpora as a choice of a dropdown."""
    return f"{record.name} ({format_count(record.sentences, 'sentence')}, {format_time(record.created)})", key


def shorten(sentence: str) -> str:
    return sentence if len(sentence) <= MAX_CHARACTERS else sentence[:MAX_CHARACTERS] + " …"
