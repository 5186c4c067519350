"""``/v1``: OpenAI's protocol for embeddings, and re-ranking in the shape that Cohere's and Jina's clients share.

Vectors have length 1. ``dimensions`` keeps their first components and scales them to length 1
again. This works for all models, and best for models that were trained for it (Matryoshka
representation learning). The model cache computes the requests of several clients in the same
batches. The app's login (the API key is the bearer token), hosts and limits apply here as well.
"""

import base64
from typing import Annotated, Any, Literal

import numpy as np
from anyio import CapacityLimiter
from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, Field, SkipValidation, WithJsonSchema

from sbert_app.server.answers import Tokens
from sbert_app.server.api import METHODS, add_endpoint, no_answer
from sbert_app.server.endpoint import MOST_CHARACTERS, Body, Call, Endpoint, Name, Sentence, example
from sbert_app.server.errors import error_answer
from sbert_app.services.container import Services
from sbert_app.services.models.unknown import check_finite, unknown_warnings
from sbert_app.services.usage import usage
from training.catalogue import CROSS_ENCODERS, ENCODERS
from training.errors import InputError
from training.models.model import Model, PairModel, VectorModel, required
from training.models.texts import ReadReport
from training.names import ModelName
from training.pooling import normalize_rows
from training.sources.endpoint import REQUESTS_AT_ONCE

# The maximum number of texts of a request; OpenAI has the same.
MOST_INPUTS = 2_048
# The maximum number of concurrent requests of one address. Clients send the batches of a corpus in
# parallel.
AT_ONCE = 64
THREADS = 32
NO_IDS = (
    "holds token ids of another model's tokenizer; send texts: "
    "LangChain does with OpenAIEmbeddings(check_embedding_ctx_length=False)"
)


def _texts(value: Any) -> Any:
    """Returns the value as a list. Raises ValueError for token ids, and says what the client has to set."""
    values = value if isinstance(value, list) else [value]
    if values and isinstance(values[0], int | list):
        raise ValueError(NO_IDS)
    return values


def _text(document: Any) -> Any:
    """Returns the text of ``{"text": "…"}``, and any other value unchanged."""
    if isinstance(document, dict) and document.keys() == {"text"}:
        return document["text"]
    return document


Texts = Annotated[
    list[Sentence],
    Field(min_length=1, max_length=MOST_INPUTS, fail_fast=True),
    BeforeValidator(_texts),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Document = Annotated[
    str,
    Field(max_length=MOST_CHARACTERS),
    BeforeValidator(_text),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "properties": {"text": {"type": "string"}}},
            ]
        }
    ),
]


class EmbeddingsBody(Body):
    model_config = example(model="all-MiniLM-L6-v2", input=["A cat sleeps.", "A kitten is asleep."])
    model: Name = Field(
        description=(
            "A name of /v1/models, a model of the Hub, run:<id>; :mean, :max or :cls after it "
            "choose the pooling."
        )
    )
    input: Texts = Field(description="A text, or up to 2,048 of them.")
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="Numbers, or little-endian float32 in base64."
    )
    dimensions: int | None = Field(
        None,
        ge=1,
        strict=True,
        description="The number of components that are kept, and scaled to length 1.",
    )
    input_type: Name | None = Field(
        None,
        description=(
            "query or document for the prompts in the model's folder, or the name of a prompt."
        ),
    )
    user: str | None = Field(None, description="Ignored.")


class Embedding(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: SkipValidation[list[float] | str]


class Embeddings(BaseModel):
    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Tokens
    truncated: list[int]
    warnings: list[str]


class RerankBody(Body):
    model_config = example(
        model="minilm-stsb",
        query="a sleeping cat",
        documents=["Prices rose.", "A kitten is asleep."],
    )
    model: Name = Field(
        description=(
            "A cross-encoder, whose scores are returned, or a bi-encoder, whose cosines are."
        )
    )
    query: Sentence
    documents: Annotated[
        list[Document], Field(min_length=1, max_length=MOST_INPUTS, fail_fast=True)
    ] = Field(description="Texts, or objects with a text.")
    top_n: int | None = Field(
        None, ge=1, description="The number of documents that are returned, best first."
    )
    return_documents: bool = False


class RankedText(BaseModel):
    text: str


class Ranked(BaseModel):
    index: int
    relevance_score: float
    document: RankedText | None = None


class Ranking(BaseModel):
    model: str
    results: list[Ranked]
    usage: Tokens
    truncated: list[int]
    warnings: list[str]


def embeddings(call: Call, body: EmbeddingsBody) -> Embeddings:
    """Encode texts to vectors of length 1."""
    name = call.services.settings.model_of(body.model)
    role = None
    if body.input_type in ("query", "document"):
        role = body.input_type
    model = call.services.models.get(name, Model, role=role)
    if isinstance(model, PairModel):
        # ``public`` is the message for visitors. By default, folders are removed from it, and
        # "/v1/rerank" would become "rerank".
        sentence = f"{body.model} is a cross-encoder, which scores pairs and has no vectors; ask /v1/rerank"
        raise InputError(sentence, public=sentence)
    encoder = required(model, VectorModel)
    if body.input_type and not role:
        # Here ``input_type`` names a prompt of the model's folder. Only the prompt changes: the
        # encoder keeps its pooling and dimension, as the `ModelName` has neither.
        folder = ModelName.parse(name).name
        encoder = encoder.with_settings(ModelName(folder, prompt_name=body.input_type))
    if body.dimensions and body.dimensions > encoder.dimension:
        raise InputError(f"dimensions is {body.dimensions}; {body.model} has {encoder.dimension}")
    vectors = encoder.encode(body.input, should_stop=call.should_stop)
    check_finite(encoder, vectors)
    if body.dimensions and body.dimensions < encoder.dimension:
        vectors = normalize_rows(vectors[:, : body.dimensions])
    data = []
    for index, vector in enumerate(vectors):
        embedding: Any
        if body.encoding_format == "base64":
            # OpenAI's client expects little-endian float32.
            embedding = base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
        else:
            embedding = vector.tolist()
        data.append(Embedding(index=index, embedding=embedding))
    tokens, cut = encoder.read_tokens(body.input)
    return Embeddings(
        data=data,
        model=body.model,
        warnings=unknown_warnings([encoder], body.input),
        **usage(name, tokens, cut),
    )


def rerank(call: Call, body: RerankBody) -> Ranking:
    """Rank documents by their relevance to a query, best first: a cross-encoder's score, or the cosine of vectors."""
    models = call.services.models
    name = call.services.settings.model_of(body.model)
    documents = body.documents
    pairs = [(body.query, document) for document in documents]
    # The folder of a bi-encoder may have a prompt for documents, and another one for queries.
    model = models.get(name, Model, role="document")
    if isinstance(model, PairModel):
        # The model adds the pairs that it truncates.
        cut_pairs: set[Any] = set()
        report = ReadReport(cut=cut_pairs)
        scores = model.predict(pairs, should_stop=call.should_stop, report=report)
        tokens = report.tokens
        cut = [index for index, pair in enumerate(pairs) if pair in cut_pairs]
    else:
        query_model = models.get(name, Model, role="query")
        if isinstance(model, VectorModel) and isinstance(query_model, VectorModel):
            query_vector = query_model.encode([body.query], should_stop=call.should_stop)[0]
            scores = model.encode(documents, should_stop=call.should_stop) @ query_vector
        else:
            # A model without sentence vectors, such as late interaction, scores pairs itself.
            scores = model.score(pairs, should_stop=call.should_stop)
        query_tokens, is_query_cut = query_model.read_tokens([body.query])
        document_tokens, cut = model.read_tokens(documents)
        tokens = query_tokens + document_tokens
        # A query that is truncated counts as a truncation of all pairs.
        if is_query_cut:
            cut = list(range(len(documents)))
    check_finite(model, scores)
    best = np.argsort(-scores, kind="stable")[: body.top_n]
    results = []
    for index in best.tolist():
        document = RankedText(text=documents[index]) if body.return_documents else None
        results.append(Ranked(index=index, relevance_score=scores[index], document=document))
    names = ["the query", *(f"document {index}" for index in range(len(documents)))]
    return Ranking(
        model=body.model,
        results=results,
        warnings=unknown_warnings([model], [body.query, *documents], names),
        **usage(name, tokens, cut),
    )


class V1Endpoint(Endpoint):
    """An endpoint whose model may be on another server. A slow server delays only requests for its own models."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, THREADS, AT_ONCE)
        self.threads_of_servers: dict[str, CapacityLimiter] = {}

    def threads_for(self, call: Call, body: Any) -> CapacityLimiter:
        settings = call.services.settings
        server = ModelName.parse(settings.model_of(body.model)).endpoint
        # A server that is not allowed has no limiter, because nothing is sent to it.
        if server is None or server.address not in settings.allow_endpoints:
            return self.threads
        return self.threads_of_servers.setdefault(server.address, CapacityLimiter(REQUESTS_AT_ONCE))


class OpenAIMistake(BaseModel):
    """An error of one sentence in the shape that OpenAI's clients expect."""

    class Details(BaseModel):
        message: str
        type: str
        param: None
        code: None

    error: Details


class ModelEntry(BaseModel):
    id: str
    created: int = 0
    object: Literal["model"] = "model"
    owned_by: Literal["sbert-lab"] = "sbert-lab"


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelEntry]


def router(services: Services) -> APIRouter:
    """Returns the routes of ``/v1``, and of re-ranking for clients of other versions."""
    routes = APIRouter(tags=["v1"])
    add_endpoint(routes, "/v1/embeddings", V1Endpoint(embeddings), services, OpenAIMistake)
    ranking = V1Endpoint(rerank)
    add_endpoint(routes, "/v1/rerank", ranking, services, OpenAIMistake)
    # For version 2 of Cohere's client, and for clients whose base address is the server without
    # /v1.
    for path in ("/v2/rerank", "/rerank"):
        add_endpoint(routes, path, ranking, services, OpenAIMistake, is_described=False)

    @routes.get("/v1/models")
    def models() -> ModelList:
        """The aliases, the built-in models and the runs with a model. Any model of the Hub can be used as well."""
        aliases = [alias.partition("=")[0] for alias in services.settings.aliases]
        entries = [ModelEntry(id=name) for name in (*aliases, *ENCODERS, *CROSS_ENCODERS)]
        for run in services.jobs.store.recent():
            if run.has_model:
                name = str(ModelName.of_run(run.id))
                entries.append(ModelEntry(id=name, created=int(run.record.created)))
        return ModelList(data=entries)

    @routes.get("/v1/models/{name:path}", response_model=ModelEntry)
    def model(name: str) -> ModelEntry | Response:
        """One of the models in the list."""
        for entry in models().data:
            if entry.id == name:
                return entry
        return error_answer(
            "/v1/models", 404, f"there is no model {name[:100]!r}; GET /v1/models lists them"
        )

    for path in ("/v1/{path:path}", "/v2/{path:path}", "/rerank"):
        routes.add_api_route(path, no_answer, methods=METHODS, include_in_schema=False)
    return routes
