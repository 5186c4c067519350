"""``/v1``: the API of OpenAI's clients for embeddings, and of Jina's and Cohere's for re-ranking.

Beside it are the paths that clients of Cohere, Ollama, vLLM and text-embeddings-inference ask for vectors and scores.

The app's login (an API key is the bearer token), its hosts and its limits hold for them too. Answers and errors have
the shapes that the clients parse.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError

from sbert_app import __version__
from sbert_app.pages.components.messages import INTERNAL_ERROR
from sbert_app.process import is_ending
from sbert_app.server.endpoint import status_of
from sbert_app.server.limits import openai_error
from sbert_app.services import openai
from sbert_app.services.access import Quota, TooMany, visitor_of
from sbert_app.services.container import Services
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.other_clients import embed_for_cohere, embed_for_ollama, embed_prompt_for_ollama
from training.errors import Stopped, UserFacingError, summary_of
from training.names import ModelName
from training.sources.endpoint import REQUESTS_AT_ONCE

log = logging.getLogger("sbert_lab.api")

# Requests of one address at once: clients send the batches of a corpus side by side.
AT_ONCE = 64
# Threads that compute for all visitors; Gradio's pages and endpoints have others.
THREADS = 32
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
ENDING = "the app is ending"
# A client that has asked for too much at once may ask again after so many seconds.
RETRY_SECONDS = 1

Body = openai.RequestBody
Compute = Callable[[ModelCache, Any, Callable[[], bool]], Any]


def router(services: Services) -> APIRouter:
    """The routes. torch is imported at the first request."""
    routes = APIRouter()
    limit, threads = Quota(AT_ONCE), CapacityLimiter(THREADS)
    # A slow server holds up its own visitors alone.
    threads_of_servers = {address: CapacityLimiter(REQUESTS_AT_ONCE) for address in services.settings.allow_endpoints}

    def threads_of(model: str) -> CapacityLimiter:
        endpoint = ModelName.parse(model).endpoint
        return threads_of_servers.get(endpoint.address, threads) if endpoint else threads

    async def answer(request: Request, body: type[Body], compute: Compute) -> Response:
        return await _answer(request, body, compute, services.models, limit, threads_of)

    answers: dict[str, tuple[type[Body], Compute]] = {
        "/v1/embeddings": (openai.EmbeddingsRequest, openai.embeddings),
        # Clients of OpenAI's API may have a base address without /v1.
        "/embeddings": (openai.EmbeddingsRequest, openai.embeddings),
        "/v1/rerank": (openai.RerankRequest, openai.rerank),
        "/v2/rerank": (openai.RerankRequest, openai.rerank),
        "/v1/score": (openai.PairsRequest, openai.score),
        "/score": (openai.PairsRequest, openai.score),
        "/v1/embed": (openai.EmbeddingsRequest, partial(embed_for_cohere, version="1")),
        "/v2/embed": (openai.EmbeddingsRequest, partial(embed_for_cohere, version="2")),
        "/api/embed": (openai.EmbeddingsRequest, embed_for_ollama),
        "/api/embeddings": (openai.EmbeddingsRequest, embed_prompt_for_ollama),
        "/embed": (openai.EmbedRequest, openai.embed),
        "/rerank": (openai.RankRequest, openai.rank),
        "/similarity": (openai.SimilarityRequest, openai.similarity),
    }
    for path, (body, compute) in answers.items():
        routes.add_route(path, partial(answer, body=body, compute=compute), methods=["POST"])

    @routes.get("/info")
    def info() -> Response:
        return JSONResponse(openai.info(services.models, __version__))

    @routes.get("/v1/models")
    def models() -> Response:
        return JSONResponse(openai.list_models(services.jobs.store))

    @routes.get("/v1/models/{name:path}")
    def model(name: str) -> Response:
        for entry in openai.list_models(services.jobs.store)["data"]:
            if entry["id"] == name:
                return JSONResponse(entry)
        return _error(404, f"there is no model {name[:100]!r}; GET /v1/models lists them")

    async def no_answer(request: Request) -> Response:
        """Answers what the routes before it do not, in the shape that the clients read."""
        path = request.scope["path"]
        if path in answers or path == "/v1/models":
            return _error(405, "Method Not Allowed")
        return _error(404, f"there is no {path[:100]}; GET /v1/models, or POST to {', '.join(sorted(answers))}")

    # The last four are routes of text-embeddings-inference: token vectors, classes and tokens.
    for path in ("/v1/{path:path}", "/v2/{path:path}", "/predict", "/embed_all", "/embed_sparse", "/tokenize"):
        routes.add_route(path, no_answer, methods=METHODS)
    return routes


async def _answer(
    request: Request,
    body: type[Body],
    compute: Compute,
    models: ModelCache,
    limit: Quota,
    threads_of: Callable[[str], CapacityLimiter],
) -> Response:
    """Validates the body and computes in a thread until the client goes; errors have the shape of OpenAI's."""
    gone = threading.Event()

    def should_stop() -> bool:
        return gone.is_set() or is_ending.is_set()

    async def watch_client() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone.set()

    try:
        inputs = body.model_validate(await request.json())
    except ValidationError as error:
        return _error(400, _sentence(body, error))
    except (ValueError, RecursionError):
        # It is no UTF-8, has a number of thousands of digits, or is nested too deeply.
        return _error(400, "the request is not valid JSON")
    watching = asyncio.create_task(watch_client())
    try:
        # A request is counted before it takes a thread, for which others wait.
        with limit.held(visitor_of(request)):
            limiter = threads_of(inputs.model)
            return JSONResponse(await to_thread.run_sync(compute, models, inputs, should_stop, limiter=limiter))
    except Stopped:
        # Nobody reads this where the client has gone.
        return _error(503, ENDING, "server_error")
    except TooMany as error:
        refusal = _error(429, error.public, "rate_limit_error")
        refusal.headers["retry-after"] = str(RETRY_SECONDS)
        return refusal
    except UserFacingError as error:
        return _error(status_of(error), summary_of(error))
    except Exception:
        if is_ending.is_set():
            # Executors take nothing more.
            return _error(503, ENDING, "server_error")
        log.exception("a /v1 request failed")
        return _error(500, INTERNAL_ERROR, "server_error")
    finally:
        watching.cancel()


def _sentence(body: type[Body], error: ValidationError) -> str:
    """The first mistake: the field, and what it must be."""
    mistake = error.errors(include_url=False, include_input=False)[0]
    field = str(mistake["loc"][0]) if mistake["loc"] else "the body"
    if mistake["type"] == "extra_forbidden":
        taken = ", ".join(body.model_fields)
        return f"{field[:80]} is not known here, and may change what the answer means; the request takes {taken}"
    if mistake["type"] == "value_error":
        return str(mistake["ctx"]["error"])
    is_input = issubclass(body, openai.EmbeddingsRequest) and field in ("input", "inputs", "texts", "prompt")
    if is_input and mistake["type"] != "missing":
        return (
            f"{field} must be a text, or a list of 1 to {openai.MOST_INPUTS:,} texts of at most "
            f"{openai.MOST_CHARACTERS:,} characters, or token ids in their place"
        )
    return f"{field}: {mistake['msg'][:1].lower()}{mistake['msg'][1:]}"


def _error(status: int, message: str, kind: str = "invalid_request_error") -> JSONResponse:
    return JSONResponse(openai_error(message, kind), status_code=status)
