"""The HTTP endpoints that belong to no page: ``compare``, ``encode``, ``evaluate``. Plain JSON in and out.

Used with curl, with gradio_client and, under ``--mcp``, by agents; the README shows each.
"""

from __future__ import annotations

from typing import Any

from sbert_app.formats import json_values
from sbert_app.pages.api.arguments import register
from sbert_app.pages.api.endpoint import MOST_AT_ONCE, Between, endpoint
from sbert_app.services.compare.comparison import compare_by_name
from sbert_app.services.container import Services
from training.registry import DEFAULT_CROSS_ENCODER, DEFAULT_MODEL


def build(services: Services) -> None:
    """Register the endpoints in the open Blocks."""

    @endpoint(sentences=("sentence_a", "sentence_b"))
    def compare(
        sentence_a: str,
        sentence_b: str,
        model: str = DEFAULT_MODEL,
        pooling: str = "",
        cross_encoder: str = DEFAULT_CROSS_ENCODER,
    ) -> dict[str, Any]:
        """Compare two sentences: cosine, cross-encoder score (0 to 1; none with cross_encoder="none"), word map.

        Args:
            sentence_a: the first sentence.
            sentence_b: the second sentence.
            model: a bi-encoder: short name, Hub id, run:<id>.
            pooling: mean, max or cls; empty = the model's own.
            cross_encoder: a cross-encoder's name, or "none".
        """
        return compare_by_name(services.models, sentence_a, sentence_b, model, pooling, cross_encoder).to_json()

    @endpoint(at_once=MOST_AT_ONCE)
    def encode(
        sentences: list[str], model: str = DEFAULT_MODEL, pooling: str = "", normalize: bool = True
    ) -> dict[str, Any]:
        """Encode up to 10,000 sentences to vectors.

        Args:
            sentences: the sentences.
            model: a bi-encoder.
            pooling: mean, max or cls; empty = the model's own.
            normalize: scale each vector to length 1, so that the dot product is the cosine.
        """
        encoder = services.models.encoder(model or DEFAULT_MODEL, pooling or None)
        vectors = encoder.encode(sentences, normalize=normalize)
        return {
            "model": encoder.name,
            "pooling": encoder.pooling,
            "dimension": encoder.dimension,
            "embeddings": vectors.round(7).tolist(),
        }

    @endpoint(at_once=MOST_AT_ONCE, match_from=Between(0.01, 5.0))
    def evaluate(
        data: str = "stsb:test",
        model: str = DEFAULT_MODEL,
        pooling: str = "",
        threshold: str = "",
        match_from: float = 4.0,
    ) -> dict[str, Any]:
        """Spearman and Pearson of a model on a named data set, correlations in -1 to 1; or its threshold for matches.

        Args:
            data: stsb:dev, sts16, … or hf:org/name:config:split on the Hub; files are for the command line.
            model: a bi-encoder, tfidf, glove, or a cross-encoder such as minilm-stsb.
            pooling: mean, max or cls; empty = the model's own.
            threshold: best-f1, precision=0.95 or a number, several with commas: what it does to pairs it was not
                chosen on, in place of the correlations.
            match_from: the gold score (0 to 5) from which a pair counts as a match.
        """
        from training.data.load import load_data
        from training.evaluation.scoring import evaluate as measure
        from training.evaluation.thresholds import decide_data

        services.access.check_data(data)
        scorer = services.models.scorer(model or DEFAULT_MODEL, pooling or None)
        if not threshold:
            return measure(scorer, data, services.settings.home)
        pairs = load_data(data, services.settings.home, split="test")
        found = decide_data(scorer, pairs, threshold.split(","), match_from)
        return json_values({"model": scorer.name, "data": pairs.name, **found.to_dict()})

    register(compare, queue=False)
    register(encode, concurrency_limit=2)
    register(evaluate, concurrency_limit=1)
