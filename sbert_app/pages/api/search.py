"""The HTTP endpoint ``search``: the sentences of a data set, or of a list, that are nearest to a query."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sbert_app.pages.api.arguments import register
from sbert_app.pages.api.endpoint import MOST_AT_ONCE, Between, endpoint
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus, encode
from sbert_app.services.corpus.search import MAX_K, check_query
from sbert_app.services.corpus.search import search as find
from training.errors import UserFacingError
from training.registry import DEFAULT_MODEL


def build(services: Services) -> None:
    """Register the endpoint in the open Blocks."""
    keys: dict[str, str] = {}  # of the data sets that were searched; what they hold stays the same

    @endpoint(at_once=MOST_AT_ONCE, sentences=("query",), k=Between(1, MAX_K))
    def search(
        query: str,
        data: str = "stsb:dev",
        sentences: list[str] | None = None,
        model: str = DEFAULT_MODEL,
        pooling: str = "",
        k: int = 10,
        cross_encoder: str = "none",
    ) -> dict[str, Any]:
        """Search: the k sentences nearest to a query, best first, with cosines, scores and milliseconds.

        Args:
            query: a sentence, a question, a few words.
            data: a data set whose sentences are searched: stsb:dev, sts16, snli:test, …
            sentences: up to 10,000 sentences to search instead of a data set.
            model: a bi-encoder: short name, Hub id, run:<id>.
            pooling: mean, max or cls; empty = the model's own.
            k: how many, 1 to 100.
            cross_encoder: a cross-encoder that reads the 4k nearest beside the query and re-ranks them; or "none".
        """
        check_query(query, k)
        model = model or DEFAULT_MODEL
        space = _listed(sentences, model, pooling) if sentences is not None else _named(data, model, pooling)
        crosser = services.models.cross_encoder_or_none(cross_encoder)
        found = find(space, query, services.models.encoder(model, pooling or None, "query"), k, crosser)
        return {"model": space.model, "pooling": space.pooling, "data": space.corpus.name, **found.to_json()}

    def _listed(sentences: list[str], model: str, pooling: str) -> EmbeddedCorpus:
        # Not through the cache of corpora, where it would evict those that visitors have open.
        encoder = services.models.encoder(model, pooling or None, "document")
        return encode(Corpus("sentences", sentences), encoder, services.embeddings.cache)

    def _named(data: str, model: str, pooling: str) -> EmbeddedCorpus:
        spaces = services.embeddings
        if data in keys:
            with suppress(UserFacingError):  # pushed out by others meanwhile
                return spaces.embed(keys[data], model, pooling or None)
        keys[data] = spaces.add(Corpus.from_data(services.access.check_data(data), spaces.home))
        return spaces.embed(keys[data], model, pooling or None)

    register(search, concurrency_limit=4)
