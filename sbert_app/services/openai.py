"""Embeddings and re-ranking for clients of OpenAI's API: requests, validated; answers in the shapes they expect.

Vectors have length 1. ``dimensions`` keeps the first so many components and scales to length 1 again; that is useful
for models that were trained for it (Matryoshka representation learning), and possible for all. Requests of several
clients are computed in the same batches by the model cache.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sbert_app.services.metrics import TOKENS
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.store import RunStore
from training.catalogue import CROSS_ENCODERS, ENCODERS
from training.errors import InputError
from training.models.scorer import CROSS, kind_of
from training.names import ModelName

if TYPE_CHECKING:
    from training.models.encoder import Encoder

MOST_INPUTS = 2_048  # texts of a request, as at OpenAI
MOST_CHARACTERS = 100_000  # of a text
OWNER = "sbert-lab"

MOST_TOKENS = 100_000  # of a text that is given as token ids; a model reads fewer

Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]
TokenIds = Annotated[
    list[Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]], Field(min_length=1, max_length=MOST_TOKENS)
]
Name = Annotated[str, Field(min_length=1, max_length=4_096)]


class EmbeddingsRequest(BaseModel):
    """The body of ``POST /v1/embeddings``; other fields, such as user, have no effect.

    ``input``: a text or token ids, or a list of either. Token ids are those of the model's own tokenizer, with its
    special tokens; they are computed as they are.
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


def embeddings(models: ModelCache, request: EmbeddingsRequest) -> dict[str, Any]:
    """The vectors of the inputs.

    Raises:
        InputError: the model cannot be used, has fewer dimensions than were asked for, or does not know a token id.
    """
    encoder = models.encoder(ModelName.parse(request.model))
    if request.dimensions is not None and request.dimensions > encoder.dimension:
        raise InputError(f"dimensions is {request.dimensions}; {request.model} has {encoder.dimension}")
    vectors, tokens = _encode(encoder, request.input)
    if request.dimensions is not None and request.dimensions < encoder.dimension:
        vectors = vectors[:, : request.dimensions]
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    encoded = [_base64(vector) for vector in vectors] if request.encoding_format == "base64" else vectors.tolist()
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(encoded)]
    return {"object": "list", "data": data, "model": request.model, "usage": _usage(request.model, tokens)}


def _encode(encoder: Encoder, given: str | list[Any]) -> tuple[np.ndarray, int]:
    """Vectors of length 1, (N, D) float32, and the number of tokens."""
    if isinstance(given, list) and not isinstance(given[0], str):
        ids: list[list[int]] = given if isinstance(given[0], list) else [given]
        return encoder.encode_ids(ids), sum(map(len, ids))
    texts = [given] if isinstance(given, str) else given
    return encoder.encode(texts), sum(map(len, encoder.tokenize(texts)))


def rerank(models: ModelCache, request: RerankRequest) -> dict[str, Any]:
    """The documents by their relevance to the query, best first: a cross-encoder's score, or a bi-encoder's cosine.

    Raises:
        InputError: the model cannot be used, or there are no documents.
    """
    given: Sequence[str | Document] | None = request.documents if request.documents is not None else request.texts
    if given is None:
        raise InputError("documents is missing; give a list of texts")
    documents = [each if isinstance(each, str) else each.text for each in given]
    name = ModelName.parse(request.model)
    if kind_of(name) == CROSS:
        cross_encoder = models.cross_encoder(name)
        scores = cross_encoder.predict([(request.query, document) for document in documents])
        tokens = 0
    else:
        encoder = models.encoder(name)
        vectors = encoder.encode([request.query, *documents])
        scores = vectors[1:] @ vectors[0]
        tokens = sum(map(len, encoder.tokenize([request.query, *documents])))
    best = np.argsort(-scores, kind="stable")[: request.top_n]
    results = [
        {
            "index": int(i),
            "relevance_score": float(scores[i]),
            **({"document": {"text": documents[i]}} if request.return_documents else {}),
        }
        for i in best
    ]
    usage = {"usage": _usage(request.model, tokens)} if tokens else {}
    return {"object": "rerank", "model": request.model, "results": results, **usage}


def list_models(store: RunStore) -> dict[str, Any]:
    """The built-in models and the runs that have one; any model of the Hub may be named as well."""
    built_in = [_model(name, 0) for name in (*ENCODERS, *CROSS_ENCODERS)]
    runs = [_model(str(ModelName.of_run(run.id)), int(run.record.created)) for run in store.list() if run.has_model]
    return {"object": "list", "data": built_in + runs}


def _model(name: str, created: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": OWNER}


def _base64(vector: np.ndarray) -> str:
    """Little-endian float32, as OpenAI's client decodes it."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def _usage(model: str, tokens: int) -> dict[str, int]:
    TOKENS.labels(model if model in ENCODERS else "other").inc(tokens)
    return {"prompt_tokens": tokens, "total_tokens": tokens}
