"""The HTTP endpoint of the Explore page: ``project``. Plain JSON in and out; the README shows it with curl."""

from __future__ import annotations

from typing import Any

import gradio as gr

from sbert_app.pages.api.core import MOST_SENTENCES, gradio_errors
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.maps.corpus_map import EmbeddingSpec, MapRequest, compute_map
from sbert_app.services.maps.projection import MapSettings
from training.errors import InputError
from training.registry import DEFAULT_MODEL


def build(services: Services) -> None:
    """Register the endpoints in the open Blocks."""

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
        with gradio_errors():
            drawn = compute_map(
                services.embeddings,
                MapRequest(
                    services.embeddings.add(_corpus(sentences)),
                    EmbeddingSpec(model or DEFAULT_MODEL, pooling or None),
                    settings=MapSettings(int(dimensions), int(neighbours), float(min_dist), int(seed)),
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

    gr.api(project, api_name="project", concurrency_limit=1)


def _corpus(sentences: list[str]) -> Corpus:
    """InputError unless it is a list of texts of a size that an answer can hold."""
    is_list = isinstance(sentences, list) and all(isinstance(sentence, str) for sentence in sentences)
    if not is_list or len(sentences) > MOST_SENTENCES:
        raise InputError(f"sentences must be a list of at most {MOST_SENTENCES:,} texts")
    return Corpus("sentences", sentences)
