"""``/api/NAME``: the endpoints as ordinary routes, which take an object of arguments and answer with the object itself.

`ANSWERS` describes the answers for ``/openapi.json``, from which clients are generated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import gradio as gr
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict

from sbert_app.server.endpoint import MOST_AT_ONCE, Endpoint, endpoints, status_of
from sbert_app.server.endpoints import ENDPOINTS
from sbert_app.services.corpus.search import Hit
from sbert_app.services.files.report import ScoreSummary
from sbert_app.services.models.cache import Distilled
from sbert_app.services.runs.record import RunProgress, RunRecord
from training.catalogue import read_asset
from training.errors import InputError, UserFacingError

API = "/api/"
Json = dict[str, Any]
Figures = dict[str, float | None]


class Mistake(BaseModel):
    """The sentence that says what is wrong."""

    error: str


class Tokens(BaseModel):
    """The tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class Comparison(BaseModel):
    cosine: float
    cross_encoder: float | None
    model: str
    pooling: str
    cross_encoder_model: str | None
    by_pooling: dict[str, float]
    words_a: list[str]
    words_b: list[str]
    matrix: list[list[float]] | None
    truncated: list[bool]
    usage: Tokens
    dimension: int
    prompts: list[str]
    remark: str
    warnings: list[str]
    milliseconds: Figures
    words: list[Json] | None = None
    second: Json | None = None


class Encoded(BaseModel):
    model: str
    pooling: str
    dimension: int
    embeddings: list[list[float]]
    warnings: list[str]
    usage: Tokens
    truncated: list[int]


class Evaluation(BaseModel):
    """The figures of scored pairs, or of retrieval; other data and thresholds have figures of their own."""

    model_config = ConfigDict(extra="allow")
    model: str
    data: str
    pooling: str | None = None
    n: int | None = None
    spearman: Figures | None = None
    pearson: Figures | None = None
    interval: Json | None = None
    queries: int | None = None
    documents: int | None = None
    intervals: Json | None = None
    seconds: float | None = None
    usage: Tokens | None = None
    truncated: list[int] | None = None


@dataclass(kw_only=True)
class ScoredFile(ScoreSummary):
    columns: Json  # type: ignore[assignment]
    report: Json | None  # type: ignore[assignment]
    gold: Json | None  # type: ignore[assignment]
    file: str
    matches: Json | None = None


@dataclass(frozen=True, kw_only=True)
class Run(RunProgress, RunRecord):
    id: str
    name: str
    collapsed: str | None = None
    undefined: str | None = None
    model: str | None
    config: Json


@dataclass(frozen=True, kw_only=True)
class RunStatus(Run):
    events: list[Json]
    events_seen: int


class Projection(BaseModel):
    model: str
    pooling: str
    seconds: float
    from_cache: bool
    points: list[list[float]]
    usage: Tokens
    truncated: list[int]


class Search(BaseModel):
    model: str
    pooling: str
    data: str
    query: str
    searched: int
    exact: bool
    cross_encoder: str | None
    candidates: int
    milliseconds: Figures
    hits: list[Hit]
    warnings: list[str]
    usage: Tokens
    truncated: list[int]


ANSWERS: dict[str, Any] = {
    "compare": Comparison,
    "encode": Encoded,
    "evaluate": Evaluation,
    "score_file": ScoredFile,
    "start_run": Run,
    "run_status": RunStatus,
    "stop_run": Run,
    "list_runs": list[Run],
    "project": Projection,
    "search": Search,
    "distill": Distilled,
}


def router(root_path: str = "") -> APIRouter:
    """The routes of the endpoints, which have to be registered."""
    routes, examples = APIRouter(prefix=API.rstrip("/"), tags=["endpoints"]), json.loads(read_asset("openapi.json"))
    for function, options in ENDPOINTS.items():
        name, endpoint = function.__name__, endpoints[function.__name__]
        content = {"schema": endpoint.schema(), "example": examples["x-examples"][name]}
        routes.add_api_route(
            f"/{name}",
            _route(endpoint, CapacityLimiter(options.get("concurrency_limit", MOST_AT_ONCE)), root_path),
            methods=["POST"],
            operation_id=name,
            summary=endpoint.description.partition("\n")[0],
            description=endpoint.description,
            response_model=ANSWERS[name],
            responses={"4XX": {"model": Mistake, "description": "What is wrong, in one sentence."}},
            openapi_extra={"requestBody": {"required": True, "content": {"application/json": content}}},
        )
    return routes


def _route(endpoint: Endpoint, limiter: CapacityLimiter, root_path: str) -> Any:
    async def answer(request: Request) -> Response:
        try:
            arguments = await request.json()
        except (ValueError, RecursionError):
            return JSONResponse({"error": "the request is not valid JSON"}, 400)
        if not isinstance(arguments, dict):
            return JSONResponse({"error": "the request must be a JSON object with the arguments by name"}, 400)
        try:
            return JSONResponse(
                await to_thread.run_sync(endpoint.answer, arguments, request, root_path, limiter=limiter)
            )
        except InputError as error:
            return JSONResponse({"error": error.public}, status_of(error))
        except gr.Error as error:
            cause = error.__cause__
            status = status_of(cause) if isinstance(cause, UserFacingError) else 500
            return JSONResponse({"error": error.message}, status)

    return answer
