"""The HTTP endpoint of the Explore page: ``project``. Plain JSON in and out; the README shows it with curl."""

from __future__ import annotations

from typing import Any

from sbert_app.pages.api.arguments import register
from sbert_app.pages.api.endpoint import MOST_AT_ONCE, Between, endpoint
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.maps.corpus_map import EmbeddingSpec, MapRequest, compute_map
from sbert_app.services.maps.projection import MapSettings
from training.registry import DEFAULT_MODEL


def build(services: Services) -> None:
    """Register the endpoints in the open Blocks."""

    @endpoint(
        at_once=MOST_AT_ONCE,
        dimensions=Between(2, 3),
        neighbours=Between(2, 200),
        min_dist=Between(0, 0.99),
        seed=Between(0, 2**31 - 1),
    )
    def project(
        sentences: list[str],
        model: str = DEFAULT_MODEL,
        pooling: str = "",
        dimensions: int = 2,
        neighbours: int = 15,
        min_dist: float = 0.1,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Draw the UMAP map of 5 to 10,000 sentences: a point for each, near where their meanings are near.

        Args:
            sentences: the sentences; at least 5 different ones.
            model: a bi-encoder: short name, Hub id, run:<id>.
            pooling: mean, max or cls; empty = the model's own.
            dimensions: 2 or 3.
            neighbours: that hold each point, 2 to 200: few show detail, many show the whole.
            min_dist: how close points may lie, 0 to 0.99.
            seed: the same seed gives the same map.
        """
        drawn = compute_map(
            services.embeddings,
            MapRequest(
                services.embeddings.add(Corpus("sentences", sentences)),
                EmbeddingSpec(model or DEFAULT_MODEL, pooling or None),
                settings=MapSettings(dimensions, neighbours, min_dist, seed),
            ),
            lambda *_: None,
        )
        return {
            "model": drawn.embedded[0].model,
            "pooling": drawn.embedded[0].pooling,
            "seconds": round(drawn.seconds, 3),
            "from_cache": drawn.from_cache,
            "points": drawn.maps[0].round(4).tolist(),
        }

    register(project, concurrency_limit=1)
