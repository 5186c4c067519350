"""Embeddings and re-ranking for clients of OpenAI's API: validated requests, and answers in the expected form.

Vectors have length 1. ``dimensions`` cuts them to so many components and scales them to length 1 again, which suits
models that were trained for it (Matryoshka representation learning) and is possible for all. The model cache computes
requests of several clients in the same batches.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sbert_app.services.models.cache import ModelCache
from sbert_app.services.models.unknown import check_finite, unknown_warnings
from sbert_app.services.runs.store import RunStore
from sbert_app.services.usage import usage
from training.catalogue import CROSS_ENCODERS, DEFAULT_CROSS_ENCODER, DEFAULT_MODEL, ENCODERS
from training.errors import InputError
from training.models.model import Model, PairModel, VectorModel, required
from training.models.texts import ReadReport
from training.names import ModelName
from training.pooling import normalize_rows

if TYPE_CHECKING:
    from training.models.encoder import Encoder

# The most texts of a request, as at OpenAI.
MOST_INPUTS = 2_048
MOST_CHARACTERS = 100_000
# The most token ids of a text; a model reads fewer.
MOST_TOKENS = 100_000

# Fields of other services that change no answer.
WITHOUT_EFFECT = {
    *("user", "id", "request_id", "metadata", "priority", "timeout", "store", "service_tier", "keep_alive", "ttl"),
    # Those of gateways such as LiteLLM and OpenRouter, which are about the way to the model.
    *("drop_params", "tags", "cache", "provider"),
}
# Fields that can only have the value that is in use anyway, in lower case.
USUAL = {
    **dict.fromkeys(("raw_scores", "late_chunking", "stream", "return_embeddings", "return_multivector"), "false"),
    "add_special_tokens": "true",
    "modality": "text",
    "truncation_direction": "right",
    "output_dtype": "float",
    "embed_dtype": "float32",
    "use_activation": "true",
    "embd_normalize": "2",
}
# The roles of texts by the names that other services have for them.
ROLES_OF = {
    **dict.fromkeys(("query", "search_query", "retrieval.query", "retrieval_query"), "query"),
    **dict.fromkeys(("document", "passage", "search_document"), "document"),
    **dict.fromkeys(("retrieval.passage", "retrieval_document"), "document"),
}

# Where a document that is an object has its text; the first of them is read.
TEXT_FIELDS = ("text", "content", "page_content")
# Whether a text may be cut at its end, by the values that other services have for it, in upper case.
TRUNCATE = {"TRUE": "END", "RIGHT": "END", "FALSE": "NONE"}

ShouldStop = Callable[[], bool]
Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]
TokenIds = Annotated[
    list[Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]], Field(min_length=1, max_length=MOST_TOKENS)
]
Name = Annotated[str, Field(min_length=1, max_length=4_096)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=MOST_INPUTS)]


def _also_called(*names: str, default: Any = ...) -> Any:
    """A field by the names that several services have for it."""
    return Field(default, validation_alias=AliasChoices(*names))


def _truncation(value: Any) -> str:
    """END or NONE for a value of any service; another value as it is, which is refused."""
    name = str(value).upper()
    return TRUNCATE.get(name, name)


def _text_of(value: Any) -> Any:
    """The text of {"text": "…"} or {"content": [{"type": "text", "text": "…"}]}; any other value as it is."""
    if isinstance(value, dict) and value.keys() == {"content"}:
        return _text_of(_only(value["content"]))
    is_text = isinstance(value, dict) and value.keys() <= {"type", "text"} and value.get("type", "text") == "text"
    return value.get("text", value) if is_text else value


def _only(value: Any) -> Any:
    """The item of a list of one; any other value as it is."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


class RequestBody(BaseModel):
    """The body of a request. null is the default of a field; a field that is not known is refused by its name.

    Clients of text-embeddings-inference nest fields in ``inputs`` and ``parameters``, those of Ollama in ``options``.
    A model cuts each text where it ends to read: ``truncate`` says whether it may, and ``most_tokens`` cannot be less.
    """

    model_config = ConfigDict(extra="forbid")

    model: Name
    truncate: Annotated[Literal["END", "NONE"], BeforeValidator(_truncation)] = _also_called(
        "truncate", "truncation", default="END"
    )
    most_tokens: int | None = _also_called(
        "truncate_prompt_tokens", "max_tokens_per_doc", "max_tokens", "num_ctx", default=None
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        for key in ("inputs", "parameters", "options"):
            if isinstance(nested := body.get(key), dict):
                # The other options of Ollama are about the generation of text.
                fields = {"num_ctx": nested.get("num_ctx")} if key == "options" else nested
                body = {**body, key: None, **fields}
        for key, value in body.items():
            if isinstance(value, list) and None in value:
                raise ValueError(f"{key} {value.index(None) + 1} is null; each must be a text")
            if value is not None and key in USUAL and str(value).lower() != USUAL[key]:
                raise ValueError(f"{key} can only be {USUAL[key]} here")
        for key in {"input", "inputs", "query"}.intersection(body):
            # Jina's and Cohere's clients put a text into an object.
            value = body[key]
            body = {**body, key: list(map(_text_of, value)) if isinstance(value, list) else _text_of(value)}
        if isinstance(model := body.get("model"), str):
            # Clients of Ollama name the tag of a model.
            body = {**body, "model": model.removesuffix(":latest")}
        ignored = WITHOUT_EFFECT | USUAL.keys()
        return {key: value for key, value in body.items() if value is not None and key not in ignored}


class EmbeddingsRequest(RequestBody):
    """The body of ``POST /v1/embeddings``.

    Clients of text-embeddings-inference and of servers of one model name none.

    ``input`` is a text or token ids, or a list of either. Token ids are those of the model's own tokenizer, with its
    special tokens. ``input_type`` is a role, as other services name it, or like ``prompt_name`` the name of a prompt.
    """

    model: Name = DEFAULT_MODEL
    input: Text | TokenIds | Texts | Annotated[list[TokenIds], Field(min_length=1, max_length=MOST_INPUTS)] = (
        _also_called("input", "inputs", "texts", "prompt")
    )
    # Cohere's and Jina's clients may send a list of one.
    encoding_format: Annotated[Literal["float", "base64"], BeforeValidator(_only)] = _also_called(
        "encoding_format", "embedding_type", "embedding_types", default="float"
    )
    # infinity's client sends 0 for all of them.
    dimensions: Annotated[int, Field(strict=True, ge=0, le=100_000)] | None = _also_called(
        "dimensions", "output_dimension", default=None
    )
    input_type: Name | None = _also_called("input_type", "task", "task_type", default=None)
    prompt_name: Name | None = None
    normalize: bool = _also_called("normalize", "normalized", default=True)


class RerankRequest(RequestBody):
    """The body of ``POST /v1/rerank``. ``texts`` is another name of ``documents``.

    ``rank_fields`` names the fields of documents that are read one after the other, as at Cohere; else `TEXT_FIELDS`.
    """

    model: Name = DEFAULT_CROSS_ENCODER
    query: Text
    documents: Annotated[list[Text | dict[str, Any]], Field(min_length=1, max_length=MOST_INPUTS)] = _also_called(
        "documents", "texts", "passages"
    )
    rank_fields: list[Name] = []
    top_n: Annotated[int, Field(strict=True, ge=1)] | None = _also_called("top_n", "top_k", default=None)
    return_documents: bool = _also_called("return_documents", "return_text", default=False)


class PairsRequest(RequestBody):
    """The body of ``POST /score``, as at vLLM: pairs of texts, of which the first may be one for all."""

    text_1: Text | Texts = _also_called("text_1", "queries", "data_1", "source_sentence")
    text_2: Text | Texts = _also_called("text_2", "documents", "items", "data_2", "sentences")


class SimilarityRequest(PairsRequest):
    """The body of ``POST /similarity``, as clients of text-embeddings-inference send it: without a model."""

    model: Name = DEFAULT_MODEL


def embeddings(models: ModelCache, request: EmbeddingsRequest, should_stop: ShouldStop) -> dict[str, Any]:
    """The vectors of the inputs, of length 1 unless the request says otherwise.

    Stopped if ``should_stop`` is true before a batch. InputError if the model cannot be used, has fewer dimensions than
    were asked for or no such prompt, token ids are of another tokenizer, or a text is too long and may not be cut.
    """
    from training.models.encoder import Encoder

    name, role = ModelName.parse(request.model), ROLES_OF.get((request.input_type or "").lower())
    if request.prompt_name and request.input_type:
        raise InputError("prompt_name and input_type both choose the prompt; send one of them")
    if request.prompt_name is not None:
        name = replace(name, prompt_name=request.prompt_name, prompt=None)
    model = models.get(name, Model, role=role)
    if isinstance(model, PairModel):
        sentence = f"{request.model} is a cross-encoder, which scores pairs and has no vectors; ask /v1/rerank"
        raise InputError(sentence, public=sentence)
    encoder = required(model, VectorModel)
    if request.input_type and not role and any(encoder.prompts.values()):
        encoder = encoder.with_settings(replace(name, prompt_name=request.input_type, prompt=None))
    if request.dimensions is not None and request.dimensions > encoder.dimension:
        raise InputError(f"dimensions is {request.dimensions}; {request.model} has {encoder.dimension}")
    inputs = request.input
    if isinstance(inputs, list) and not isinstance(inputs[0], str):
        ids: list[Any] = inputs if isinstance(inputs[0], list) else [inputs]
        if (request.input_type or request.prompt_name) and encoder.prompt:
            raise InputError(f"token ids cannot have the prompt {encoder.prompt!r}; send texts")
        owner = required(encoder, Encoder)
        _check_ends(owner, ids)
        vectors = owner.encode_ids(ids, request.normalize, should_stop)
        tokens, cut, warnings = sum(map(len, ids)), list[int](), list[str]()
    else:
        texts: list[Any] = [inputs] if isinstance(inputs, str) else inputs
        vectors = check_finite(encoder, encoder.encode(texts, request.normalize, should_stop=should_stop))
        tokens, cut = encoder.read_tokens(texts)
        _check_cut(encoder, request, cut)
        warnings = unknown_warnings([encoder], texts)
    if request.dimensions and request.dimensions < encoder.dimension:
        vectors = vectors[:, : request.dimensions]
        vectors = normalize_rows(vectors) if request.normalize else vectors
    encoded: list[Any] = vectors.tolist()
    if request.encoding_format == "base64":
        # Little-endian float32, as OpenAI's client decodes it.
        encoded = [base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii") for vector in vectors]
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(encoded)]
    read = usage(request.model, tokens, cut)
    return {"object": "list", "data": data, "model": request.model, **read, "warnings": warnings}


def embed(models: ModelCache, request: EmbeddingsRequest, should_stop: ShouldStop) -> list[Any]:
    """The same vectors in the form of text-embeddings-inference: a list of them."""
    return [item["embedding"] for item in embeddings(models, request, should_stop)["data"]]


def _check_ends(encoder: Encoder, rows: Sequence[Sequence[int]]) -> None:
    """Raises InputError for token ids that do not begin and end as all of this model's do: another tokenizer's."""
    samples = [list(row) for row in encoder.with_prompt("").tokenize(["a", "Prices rose.", "9"])]
    start, end = (
        [ids[0] for ids in takewhile(lambda ids: len(set(ids)) == 1, zip(*rows, strict=False))]
        for rows in (samples, [row[::-1] for row in samples])
    )
    for number, row in enumerate(rows, 1):
        if len(row) < len(start) + len(end) or row[: len(start)] != start or row[len(row) - len(end) :] != end[::-1]:
            raise InputError(
                f"the token ids of input {number} do not begin with {start} and end with {end[::-1]}, as those of "
                f"{encoder.name} do: they are another tokenizer's; send texts"
            )


def _check_cut(model: Model, request: RequestBody, cut: Sequence[int]) -> None:
    """Raises InputError if texts were cut elsewhere than the request allows."""
    if cut and request.truncate == "NONE":
        raise InputError(f"text {cut[0] + 1} is longer than the {model.max_length:,} tokens that {model.name} reads")
    if request.most_tokens is not None and 0 <= request.most_tokens < (model.max_length or 0):
        raise InputError(f"{model.name} reads {model.max_length:,} tokens of a text, and cannot stop at fewer")


def rerank(models: ModelCache, request: RerankRequest, should_stop: ShouldStop) -> dict[str, Any]:
    """The documents by their relevance to the query, best first: a cross-encoder's score, or the cosine of vectors.

    Stopped as `embeddings`. InputError if the model cannot be used, or a text is too long for it and may not be cut.
    """
    documents, unread = list[str](), dict[str, None]()
    for at, item in enumerate(request.documents):
        fields = {"text": item} if isinstance(item, str) else {key: item[key] for key in item if type(item[key]) is str}
        names = request.rank_fields or [name for name in TEXT_FIELDS if name in fields][:1]
        texts = [fields.pop(name) for name in names if name in fields]
        if not texts and isinstance(item, dict):
            raise InputError(f"document {at} has no text in {' or '.join(request.rank_fields or TEXT_FIELDS)}")
        documents.append("\n".join(texts) if isinstance(item, dict) else item)
        unread |= dict.fromkeys(name for name in fields if name != "id" and isinstance(item, dict))
    scores, read = _score(models, request, [request.query], documents, ("the query", "document"), should_stop)
    if unread:
        read["warnings"].append(f"{', '.join(unread)} of documents not read; rank_fields names the fields to read")
    best = np.argsort(-scores, kind="stable")[: request.top_n]
    results: list[dict[str, Any]] = [{"index": int(i), "relevance_score": float(scores[i])} for i in best]
    if request.return_documents:
        for result in results:
            result["document"] = {"text": documents[result["index"]]}
    return {"object": "rerank", "model": request.model, "results": results, **read}


def score(models: ModelCache, request: PairsRequest, should_stop: ShouldStop) -> dict[str, Any]:
    """The score of each pair: a cross-encoder's, or the cosine of vectors.

    Stopped as `embeddings`. InputError as `rerank`, or if the texts are no pairs.
    """
    firsts = [request.text_1] if isinstance(request.text_1, str) else request.text_1
    seconds = [request.text_2] if isinstance(request.text_2, str) else request.text_2
    if len(firsts) not in (1, len(seconds)):
        raise InputError(f"text_1 has {len(firsts)} texts and text_2 has {len(seconds)}; give one, or as many")
    scores, read = _score(models, request, firsts, seconds, ("text_1", "text_2"), should_stop)
    data = [{"object": "score", "index": at, "score": float(value)} for at, value in enumerate(scores)]
    return {"object": "list", "model": request.model, "data": data, **read}


def similarity(models: ModelCache, request: SimilarityRequest, should_stop: ShouldStop) -> list[float]:
    """The same scores in the form of text-embeddings-inference: a list of them."""
    return [item["score"] for item in score(models, request, should_stop)["data"]]


def _score(
    models: ModelCache,
    request: RequestBody,
    firsts: list[str],
    seconds: list[str],
    names: tuple[str, str],
    should_stop: ShouldStop,
) -> tuple[np.ndarray, dict[str, Any]]:
    """The scores of pairs, float (N,), and the part of the answer on what was read of them.

    ``firsts`` holds the first text of each pair, or one for all. ``names`` are those of first and second texts in
    warnings. In a ranking a bi-encoder has the prompts of its folder for a query and for documents.
    """
    roles = ("query", "document") if isinstance(request, RerankRequest) else (None, None)
    first, model = (models.get(request.model, Model, role=role) for role in roles)
    texts = [*firsts, *seconds]
    pairs = list(zip(firsts * (len(seconds) // len(firsts)), seconds, strict=True))
    if isinstance(model, PairModel):
        report = ReadReport(cut=set())
        scores = model.predict(pairs, should_stop=should_stop, report=report)
        tokens, cut = report.tokens, [at for at, pair in enumerate(pairs) if pair in (report.cut or ())]
    else:
        if isinstance(first, VectorModel) and isinstance(model, VectorModel):
            vectors = first.encode(firsts, should_stop=should_stop), model.encode(seconds, should_stop=should_stop)
            scores = np.einsum("nd,nd->n", *np.broadcast_arrays(*vectors))
        else:
            scores = model.score(pairs, should_stop=should_stop)
        (tokens, long), (more, also_long) = first.read_tokens(firsts), model.read_tokens(seconds)
        tokens, is_long = tokens + more, {*(firsts[at] for at in long), *(seconds[at] for at in also_long)}
        cut = [at for at, pair in enumerate(pairs) if is_long.intersection(pair)]
    _check_cut(model, request, cut)
    check_finite(model, scores)
    numbered = [names[0]] if len(firsts) == 1 else [f"{names[0]} {at}" for at in range(len(firsts))]
    numbered += [f"{names[1]} {at}" for at in range(len(seconds))]
    warnings = unknown_warnings([model], texts, numbered)
    return scores, {**usage(request.model, tokens, cut), "warnings": warnings}


def rank(models: ModelCache, request: RerankRequest, should_stop: ShouldStop) -> Any:
    """The same ranking; without a model in the form of text-embeddings-inference, a list of indices and scores."""
    answer = rerank(models, request, should_stop)
    if "model" in request.model_fields_set:
        return answer
    return [
        {"index": result["index"], "score": result["relevance_score"], **result.get("document", {})}
        for result in answer["results"]
    ]


def info(models: ModelCache, version: str) -> dict[str, Any]:
    """The default model as ``GET /info`` of text-embeddings-inference describes it."""
    model = models.get(DEFAULT_MODEL, VectorModel)
    return {
        "model_id": model.name,
        "model_type": {"embedding": {"pooling": model.pooling}},
        "max_input_length": model.max_length,
        "max_client_batch_size": MOST_INPUTS,
        "version": version,
    }


def list_models(store: RunStore) -> dict[str, Any]:
    """The built-in models and the runs that have one; any model of the Hub may be named as well."""
    created = dict.fromkeys((*ENCODERS, *CROSS_ENCODERS), 0)
    created |= {str(ModelName.of_run(run.id)): int(run.record.created) for run in store.recent() if run.has_model}
    kind = {"object": "model", "owned_by": "sbert-lab"}
    return {"object": "list", "data": [{"id": name, "created": time, **kind} for name, time in created.items()]}
