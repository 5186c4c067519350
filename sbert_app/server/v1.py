"""``/v1``: the API of OpenAI's clients for embeddings, and of Jina's and Cohere's for re-ranking.

The app's login (an API key is the bearer token), its hosts and its limits hold for them too. Answers and errors have
the shapes that the clients parse.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError

from sbert_app.pages.components.messages import INTERNAL_ERROR
from sbert_app.process import is_ending
from sbert_app.server.endpoint import status_of
from sbert_app.server.limits import openai_error
from sbert_app.services.access import Quota, TooMany, visitor_of
from sbert_app.services.container import Services
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.openai import MOST_CHARACTERS, MOST_INPUTS, EmbeddingsRequest, RerankRequest, list_models
from sbert_app.services.openai import embeddings as compute_embeddings
from sbert_app.services.openai import rerank as compute_ranking
from training.errors import Stopped, UserFacingError, summary_of

log = logging.getLogger("sbert_lab.api")

AT_ONCE = 64  # requests of one address: clients send the batches of a corpus side by side
THREADS = 32  # that compute for all visitors; Gradio's own pages and endpoints have others
ENDING = "the app is ending"
RETRY_SECONDS = 1  # after which a client may ask again, when it has asked for too much at once

Body = TypeVar("Body", bound=BaseModel)


def router(services: Services) -> APIRouter:
    """The routes below ``/v1``. torch is imported at the first request."""
    routes = APIRouter(prefix="/v1")
    limit, threads = Quota(AT_ONCE), CapacityLimiter(THREADS)

    @routes.post("/embeddings")
    async def embeddings(request: Request) -> Response:
        return await _answer(request, EmbeddingsRequest, compute_embeddings, services.models, limit, threads)

    @routes.post("/rerank")
    async def rerank(request: Request) -> Response:
        return await _answer(request, RerankRequest, compute_ranking, services.models, limit, threads)

    @routes.get("/models")
    def models() -> Response:
        return JSONResponse(list_models(services.jobs.store))

    @routes.get("/models/{name:path}")
    def model(name: str) -> Response:
        for each in list_models(services.jobs.store)["data"]:
            if each["id"] == name:
                return JSONResponse(each)
        return _error(404, f"there is no model {name[:100]!r}; GET /v1/models lists them")

    @routes.api_route("/{path:path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
    def nothing(path: str) -> Response:
        """Answers what the routes before it do not, in the shape that the clients read."""
        is_route = path in ("embeddings", "rerank", "models")
        return _error(405, "Method Not Allowed") if is_route else _error(404, "Not Found")

    return routes


async def _answer(
    request: Request,
    body: type[Body],
    compute: Callable[[ModelCache, Body, Callable[[], bool]], dict[str, Any]],
    models: ModelCache,
    limit: Quota,
    threads: CapacityLimiter,
) -> Response:
    """Validate the body, compute in a thread until the client goes, and say what is wrong as OpenAI does."""
    gone = threading.Event()

    def should_stop() -> bool:
        return gone.is_set() or is_ending.is_set()

    async def watch_client() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone.set()

    try:
        asked = body.model_validate(await request.json())
    except ValidationError as error:
        return _error(400, _sentence(error))
    except (ValueError, RecursionError):  # no UTF-8; a number of thousands of digits; nested too deep
        return _error(400, "the request is not valid JSON")
    watching = asyncio.create_task(watch_client())
    try:
        with limit.held(visitor_of(request)):  # counted before a thread is taken, for which others wait
            return JSONResponse(await to_thread.run_sync(compute, models, asked, should_stop, limiter=threads))
    except Stopped:
        return _error(503, ENDING, "server_error")  # nobody reads it where the client has gone
    except TooMany as error:
        refusal = _error(429, error.public, "rate_limit_error")
        refusal.headers["retry-after"] = str(RETRY_SECONDS)
        return refusal
    except UserFacingError as error:
        return _error(status_of(error), summary_of(error))
    except Exception:
        if is_ending.is_set():  # executors take nothing more
            return _error(503, ENDING, "server_error")
        log.exception("a /v1 request failed")
        return _error(500, INTERNAL_ERROR, "server_error")
    finally:
        watching.cancel()


def _sentence(error: ValidationError) -> str:
    """The first mistake: which field, and what it must be."""
    mistake = error.errors(include_url=False, include_input=False)[0]
    field = str(mistake["loc"][0]) if mistake["loc"] else "the body"
    if field == "input":
        return (
            f"input must be a text, or a list of 1 to {MOST_INPUTS:,} texts of at most {MOST_CHARACTERS:,} characters, "
            "or token ids in their place"
        )
    return f"{field}: {mistake['msg'][:1].lower()}{mistake['msg'][1:]}"


def _error(status: int, message: str, kind: str = "invalid_request_error") -> JSONResponse:
    return JSONResponse(openai_error(message, kind), status_code=status)
