"""The tokens that models have read for an answer, and the texts that they have cut."""

from collections.abc import Sequence
from typing import Any

from sbert_app.services.access import TOKENS
from training.catalogue import CROSS_ENCODERS, ENCODERS
from training.models.model import Model, PairModel, VectorModel
from training.names import ModelName


def usage_of_rows(model: Model, columns: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The `usage` of rows of texts, with ``truncated`` rows. {} for a model whose tokens are not counted."""
    inputs: list[Any] = [text for column in columns for text in column]
    if isinstance(model, PairModel):
        inputs = [pair for column in columns[1:] for pair in zip(columns[0], column, strict=True)]
    tokens, cut = model.read_tokens(inputs)
    if not tokens:
        return {}
    return usage(model.name, tokens, sorted({at % len(columns[0]) for at in cut}))


def usage_of_search(models: Sequence[Model], queries: Sequence[str], documents: Sequence[str]) -> dict[str, Any]:
    """The `usage` of a search by the first model, with ``truncated`` documents. {} if it is no bi-encoder."""
    if not models or not isinstance(model := models[0], VectorModel):
        return {}
    reads_query, reads_document = model, model
    if not ModelName.parse(model.name).states_prompt:
        reads_query, reads_document = model.for_role("query"), model.for_role("document")
    tokens, cut = reads_document.read_tokens(documents)
    if not tokens:
        return {}
    return usage(model.name, tokens + reads_query.read_tokens(queries)[0], cut)


def usage(model: str, tokens: int, cut: list[int]) -> dict[str, Any]:
    """The part of an answer on the tokens that were read, and the positions of texts that were cut."""
    TOKENS.labels(model if model in (*ENCODERS, *CROSS_ENCODERS) else "other").inc(tokens)
    return {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}, "truncated": cut}
