"""The tokens that models read for an answer, and the texts that they truncated."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from sbert_app.services.access import TOKENS
from training.catalogue import CROSS_ENCODERS, ENCODERS
from training.models.model import Model, PairModel, VectorModel
from training.names import ModelName


def usage_of_rows(model: Model, columns: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The `usage` of rows of texts, with ``truncated`` rows. {} for a model whose tokens are not counted."""
    # All rows of the first column, then all rows of the next one. A cross-encoder reads pairs: the
    # first column with the second, then the first with the third.
    inputs: list[Any] = []
    if isinstance(model, PairModel):
        for column in columns[1:]:
            inputs += zip(columns[0], column, strict=True)
    else:
        inputs += chain.from_iterable(columns)
    # The number of tokens, and the positions in ``inputs`` of the texts that are cut.
    tokens, cut = model.read_tokens(inputs)
    if not tokens:
        return {}
    # Each column has a text in every row, so the remainder of a position is its row.
    cut_rows = {position % len(columns[0]) for position in cut}
    return usage(model.name, tokens, sorted(cut_rows))


def usage_of_search(
    models: Sequence[Model], queries: Sequence[str], documents: Sequence[str]
) -> dict[str, Any]:
    """The `usage` of a search by the first model, with ``truncated`` documents. {} if it is not a bi-encoder."""
    model = models[0] if models else None
    if not isinstance(model, VectorModel):
        return {}
    for_queries = model
    for_documents = model
    # Without a prompt in its name, a model reads queries and documents with the prompts of its
    # folder if it has any, and their tokens count, too.
    if not ModelName.parse(model.name).states_prompt:
        for_queries = model.for_role("query")
        for_documents = model.for_role("document")
    document_tokens, cut = for_documents.read_tokens(documents)
    if not document_tokens:
        return {}
    query_tokens, _ = for_queries.read_tokens(queries)
    return usage(model.name, document_tokens + query_tokens, cut)


def usage(model: str, tokens: int, cut: list[int]) -> dict[str, Any]:
    """The fields of an answer with the number of ``tokens`` read, and the positions ``cut`` of truncated texts.

    Also counts the tokens for ``/metrics``.
    """
    # Other names are counted together, as visitors can type any number of names.
    TOKENS.labels(model if model in (*ENCODERS, *CROSS_ENCODERS) else "other").inc(tokens)
    return {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}, "truncated": cut}
