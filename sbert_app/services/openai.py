"""Embeddings and re-ranking for clients of OpenAI's API: validated requests, and answers in the expected form.

Vectors have length 1. ``dimensions`` cuts them to so many components and scales them to length 1 again, which suits
models that were trained for it (Matryoshka representation learning) and is possible for all. The model cache computes
requests of several clients in the same batches.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sbert_app.services.access import TOKENS
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.store import RunStore
from training.catalogue import CROSS_ENCODERS, ENCODERS
from training.errors import InputError
from training.models.model import Model, VectorModel, required
from training.models.texts import ReadReport
from training.names import ModelName
from training.pooling import normalize_rows

# The most texts of a request, as at OpenAI.
MOST_INPUTS = 2_048
MOST_CHARACTERS = 100_000
OWNER = "sbert-lab"
# The most token ids of a text; a model reads fewer.
MOST_TOKENS = 100_000

ShouldStop = Callable[[], bool]
Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]
TokenIds = Annotated[
    list[Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]], Field(min_length=1, max_length=MOST_TOKENS)
]
Name = Annotated[str, Field(min_length=1, max_length=4_096)]


class EmbeddingsRequest(BaseModel):
    """The body of ``POST /v1/embeddings``; other fields, such as user, have no effect.

    ``input`` is a text or token ids, or a list of either. Token ids are those of the model's own tokenizer, with its
    special tokens.
    """

    model_config = ConfigDict(extra="ignore")

    model: Name
    input: (
        Text
        | TokenIds
        | Annotated[list[Text], Field(min_length=1, max_length=MOST_INPUTS)]
        | Annotated[list[TokenIds], Field(min_length=1, max_length=MOST_INPUTS)]
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = None


class Document(BaseModel):
    """A document with fields; ``text`` is read."""

    text: Text


class RerankRequest(BaseModel):
    """The body of ``POST /v1/rerank``. ``texts`` is another name of ``documents``."""

    model_config = ConfigDict(extra="ignore")

    model: Name
    query: Text
    documents: Annotated[list[Text | Document], Field(min_length=1, max_length=MOST_INPUTS)] | None = None
    texts: Annotated[list[Text], Field(min_length=1, max_length=MOST_INPUTS)] | None = None
    top_n: Annotated[int, Field(strict=True, ge=1)] | None = None
    return_documents: bool = False


def embeddings(models: ModelCache, request: EmbeddingsRequest, should_stop: ShouldStop) -> dict[str, Any]:
    """The vectors of the inputs.

    Raises:
        Stopped: ``should_stop`` is true before a batch.
        InputError: the model cannot be used, has fewer dimensions than were asked for, or does not know a token id.
    """
    from training.models.encoder import Encoder

    encoder = models.get(request.model, VectorModel)
    if request.dimensions is not None and request.dimensions > encoder.dimension:
        raise InputError(f"dimensions is {request.dimensions}; {request.model} has {encoder.dimension}")
    inputs = request.input
    if isinstance(inputs, list) and not isinstance(inputs[0], str):
        ids: list[Any] = inputs if isinstance(inputs[0], list) else [inputs]
        vectors = required(encoder, Encoder).encode_ids(ids, should_stop=should_stop)
        tokens, cut = sum(map(len, ids)), list[int]()
    else:
        texts: list[Any] = [inputs] if isinstance(inputs, str) else inputs
        vectors = encoder.encode(texts, should_stop=should_stop)
        tokens, cut = read_tokens(encoder, texts)
    if request.dimensions is not None and request.dimensions < encoder.dimension:
        vectors = vectors[:, : request.dimensions]
        vectors = normalize_rows(vectors)
    encoded: list[Any] = vectors.tolist()
    if request.encoding_format == "base64":
        # Little-endian float32, as OpenAI's client decodes it.
        encoded = [base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii") for vector in vectors]
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(encoded)]
    return {"object": "list", "data": data, "model": request.model, **usage(request.model, tokens, cut)}


def rerank(models: ModelCache, request: RerankRequest, should_stop: ShouldStop) -> dict[str, Any]:
    """The documents by their relevance to the query, best first: a cross-encoder's score, or the cosine of vectors.

    Raises:
        Stopped: as `embeddings`.
        InputError: the model cannot be used, or there are no documents.
    """
    # It imports torch, which takes seconds.
    from training.models.cross_encoder import CrossEncoder

    items: Sequence[str | Document] | None = request.documents if request.documents is not None else request.texts
    if items is None:
        raise InputError("documents is missing; give a list of texts")
    documents = [item if isinstance(item, str) else item.text for item in items]
    model, pairs = models.get(request.model, Model), [(request.query, document) for document in documents]
    if isinstance(model, CrossEncoder):
        report = ReadReport(cut=set())
        scores = model.predict(pairs, should_stop=should_stop, report=report)
        tokens, cut = report.tokens, [at for at, pair in enumerate(pairs) if pair in (report.cut or ())]
    else:
        scores = model.score(pairs, should_stop=should_stop)
        tokens, cut = read_tokens(model, [request.query, *documents])
        cut = list(range(len(documents))) if 0 in cut else [at - 1 for at in cut]
    best = np.argsort(-scores, kind="stable")[: request.top_n]
    results = [
        {
            "index": int(i),
            "relevance_score": float(scores[i]),
            **({"document": {"text": documents[i]}} if request.return_documents else {}),
        }
        for i in best
    ]
    return {"object": "rerank", "model": request.model, "results": results, **usage(request.model, tokens, cut)}


def list_models(store: RunStore) -> dict[str, Any]:
    """The built-in models and the runs that have one; any model of the Hub may be named as well."""
    built_in = [_model(name, 0) for name in (*ENCODERS, *CROSS_ENCODERS)]
    runs = [_model(str(ModelName.of_run(run.id)), int(run.record.created)) for run in store.recent() if run.has_model]
    return {"object": "list", "data": built_in + runs}


def _model(name: str, created: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": OWNER}


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
