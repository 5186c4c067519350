"""The tokens that models have read for an answer, and the texts that they have cut."""

from collections.abc import Sequence
from typing import Any

from sbert_app.services.access import TOKENS
from training.catalogue import ENCODERS
from training.models.model import Model
from training.models.texts import ReadReport
from training.names import ModelName


def read_tokens(model: Model, texts: Sequence[str]) -> tuple[int, list[int]]:
    """The number of tokens that are read, and the positions of texts that are cut; (0, []) for other models."""
    # They import torch, which takes seconds.
    from training.models.encoder import Encoder

    if not isinstance(model, Encoder):
        return 0, []
    report = ReadReport(cut=set())
    tokens = sum(map(len, model.tokenize(texts, report)))
    return tokens, [at for at, text in enumerate(texts) if text in (report.cut or ())]


def usage_of_rows(model: Model, columns: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The `usage` of rows of texts, with ``truncated`` rows. {} for a model whose tokens are not counted."""
    from training.models.cross_encoder import CrossEncoder
    from training.models.encoder import Encoder

    if isinstance(model, Encoder):
        tokens, cut = read_tokens(model, [text for column in columns for text in column])
    elif isinstance(model, CrossEncoder):
        rows = model.tokenizer([pair for column in columns[1:] for pair in zip(columns[0], column, strict=True)])
        tokens, cut = sum(map(len, rows)), [at for at, row in enumerate(rows) if row.truncated]
    else:
        return {}
    return usage(model.name, tokens, sorted({at % len(columns[0]) for at in cut}))


def usage_of_search(models: Sequence[Model], queries: Sequence[str], documents: Sequence[str]) -> dict[str, Any]:
    """The `usage` of a search by the first model, with ``truncated`` documents. {} if it is no bi-encoder."""
    from training.models.encoder import Encoder

    if not models or not isinstance(model := models[0], Encoder):
        return {}
    reads_query = reads_document = model
    if not ModelName.parse(model.name).states_prompt:
        reads_query, reads_document = model.for_role("query"), model.for_role("document")
    tokens, cut = read_tokens(reads_document, documents)
    return usage(model.name, tokens + read_tokens(reads_query, queries)[0], cut)


def usage(model: str, tokens: int, cut: list[int]) -> dict[str, Any]:
    """The part of an answer on the tokens that were read, and the positions of texts that were cut."""
    TOKENS.labels(model if model in ENCODERS else "other").inc(tokens)
    return {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}, "truncated": cut}
