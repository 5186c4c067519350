"""``/v1``: the API of OpenAI's clients for embeddings, and of Jina's and Cohere's for re-ranking.

Beside it are the paths that clients of Cohere, Ollama, vLLM and text-embeddings-inference ask for vectors and scores.

The app's login (an API key is the bearer token), its hosts and its limits hold for them too. Answers and errors have
the shapes that the clients parse.
"""

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
from sbert_app.server.errors import error_answer
from sbert_app.services import openai, other_clients
from sbert_app.services.access import Quota, TooMany, visitor_of
from sbert_app.services.container import Services
from sbert_app.services.models.cache import ModelCache
from training.errors import Stopped, UserFacingError, summary_of
from training.names import ModelName
from training.sources.endpoint import REQUESTS_AT_ONCE

log = logging.getLogger("sbert_lab.api")

# Requests of one address at once: clients send the batches of a corpus side by side.
AT_ONCE = 64
# Threads that compute for all visitors; Gradio's pages and endpoints have others.
THREADS = 32
ENDING = "the app is ending"

Body = openai.RequestBody
Compute = Callable[[ModelCache, Any, Callable[[], bool]], Any]
Threads = Callable[[str], CapacityLimiter]


def router(services: Services) -> APIRouter:
    """The routes. torch is imported at the first request."""
    routes = APIRouter()
    limit, threads = Quota(AT_ONCE), CapacityLimiter(THREADS)
    # A slow server holds up its own visitors alone.
    threads_of_servers = {address: CapacityLimiter(REQUESTS_AT_ONCE) for address in services.settings.allow_endpoints}

    def threads_of(model: str) -> CapacityLimiter:
        endpoint = ModelName.parse(model).endpoint
        return threads_of_servers.get(endpoint.address, threads) if endpoint else threads

    answers: dict[str, tuple[type[Body], Compute]] = {
        "/v1/embeddings": (openai.EmbeddingsRequest, openai.embeddings),
        # Clients of OpenAI's API may have a base address without /v1.
        "/embeddings": (openai.EmbeddingsRequest, openai.embeddings),
        "/v1/rerank": (openai.RerankRequest, openai.rerank),
        "/v2/rerank": (openai.RerankRequest, openai.rerank),
        "/v1/score": (openai.PairsRequest, openai.score),
        "/score": (openai.PairsRequest, openai.score),
        "/v1/embed": (openai.EmbeddingsRequest, partial(other_clients.embed_for_cohere, version="1")),
        "/v2/embed": (openai.EmbeddingsRequest, partial(other_clients.embed_for_cohere, version="2")),
        "/api/embed": (openai.EmbeddingsRequest, other_clients.embed_for_ollama),
        "/api/embeddings": (openai.EmbeddingsRequest, other_clients.embed_prompt_for_ollama),
        # Clients of text-embeddings-inference may ask the address of the server alone.
        **dict.fromkeys(("/embed", "/"), (openai.EmbeddingsRequest, openai.embed)),
        "/rerank": (openai.RerankRequest, openai.rank),
        "/similarity": (openai.SimilarityRequest, openai.similarity),
    }
    answer = partial(_answer, models=services.models, limit=limit, threads_of=threads_of)
    for path, (body, compute) in answers.items():
        for spelling in _spellings(path):
            routes.add_route(spelling, partial(answer, body=body, compute=compute), methods=["POST"])

    listings: dict[str, Callable[[], dict[str, Any]]] = {
        **dict.fromkeys(("/v1/models", "/models"), partial(openai.list_models, services.jobs.store)),
        "/api/tags": partial(other_clients.list_for_ollama, services.jobs.store),
        "/api/version": partial(dict, version=__version__),
        "/info": partial(openai.info, services.models, __version__),
    }

    def listing(_: Request, entries: Callable[[], dict[str, Any]]) -> Response:
        return JSONResponse(entries())

    for path, entries in listings.items():
        for spelling in _spellings(path):
            routes.add_route(spelling, partial(listing, entries=entries), methods=["GET"])

    @routes.get("/v1/models/{name:path}")
    def model(name: str) -> Response:
        for entry in openai.list_models(services.jobs.store)["data"]:
            if entry["id"] == name:
                return JSONResponse(entry)
        return error_answer("/v1/models", 404, f"there is no model {name[:100]!r}; GET /v1/models lists them")

    async def no_answer(request: Request) -> Response:
        """Answers what the routes before it do not, in the shape that the clients read."""
        path = request.scope["path"]
        if path in answers or path in listings:
            method = "POST" if path in answers else "GET"
            return error_answer(path, 405, f"{path} takes {method} alone", {"allow": method})
        posts = ", ".join(sorted(answers.keys() - {"/"}))
        return error_answer(path, 404, f"there is no {path[:100]}; GET /v1/models, or POST to {posts}")

    # The last four are routes of text-embeddings-inference: token vectors, classes and tokens.
    others = ("/v1/{path:path}", "/v2/{path:path}", "/predict", "/embed_all", "/embed_sparse", "/tokenize")
    # A browser asks for the front page.
    for path in (*answers.keys() - {"/"}, *listings, *others):
        routes.add_route(path, no_answer, methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
    return routes


def _spellings(path: str) -> set[str]:
    """A path as clients ask for it whose base addresses end with a slash, or whose paths do."""
    return {path, f"{path}/", f"/{path}", "//".join(path.rsplit("/", 1))}


async def _answer(
    request: Request, body: type[Body], compute: Compute, models: ModelCache, limit: Quota, threads_of: Threads
) -> Response:
    """Validates the body and computes in a thread until the client goes."""
    gone, refusal = threading.Event(), partial(error_answer, request.scope["path"])

    def should_stop() -> bool:
        return gone.is_set() or is_ending.is_set()

    async def watch_client() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone.set()

    try:
        inputs = body.model_validate(await request.json())
    except ValidationError as error:
        return refusal(400, _sentence(body, error))
    except (ValueError, RecursionError):
        # It is no UTF-8, has a number of thousands of digits, or is nested too deeply.
        return refusal(400, "the request is not valid JSON")
    watching = asyncio.create_task(watch_client())
    try:
        # A request is counted before it takes a thread, for which others wait.
        with limit.held(visitor_of(request)):
            limiter = threads_of(inputs.model)
            return JSONResponse(await to_thread.run_sync(compute, models, inputs, should_stop, limiter=limiter))
    except Stopped:
        # Nobody reads this where the client has gone.
        return refusal(503, ENDING)
    except TooMany as error:
        return refusal(429, error.public, {"retry-after": "1"})
    except UserFacingError as error:
        return refusal(status_of(error), summary_of(error))
    except Exception:
        if is_ending.is_set():
            # Executors take nothing more.
            return refusal(503, ENDING)
        log.exception("a /v1 request failed")
        return refusal(500, INTERNAL_ERROR)
    finally:
        watching.cancel()


def _sentence(body: type[Body], error: ValidationError) -> str:
    """The first mistake: the field, and what it must be."""
    mistakes = error.errors(include_url=False, include_input=False)
    # What is missing may be there under a name that is not known.
    mistake = next((mistake for mistake in mistakes if mistake["type"] == "extra_forbidden"), mistakes[0])
    field = str(mistake["loc"][0]) if mistake["loc"] else ""
    if mistake["type"] == "extra_forbidden":
        taken = ", ".join(name for name in body.model_fields if name != "most_tokens")
        return f"{field[:80]} is not known here, and may change what the answer means; the request takes {taken}"
    if mistake["type"] == "value_error":
        return str(mistake["ctx"]["error"])
    if not field:
        return "the request must be a JSON object"
    if len(mistake["loc"]) == 1:
        return f"{field}: {mistake['msg'][:1].lower()}{mistake['msg'][1:]}"
    steps = (step for one in mistakes if one["type"].startswith("string_") for step in one["loc"])
    place = next((f"; number {step + 1} is not" for step in steps if isinstance(step, int)), "")
    texts = f"a list of 1 to {openai.MOST_INPUTS:,} texts of at most {openai.MOST_CHARACTERS:,} characters"
    if issubclass(body, openai.RerankRequest):
        return f"{field} must be {texts}, or of objects with one{place}"
    ids = ", or token ids in their place" if issubclass(body, openai.EmbeddingsRequest) else ""
    return f"{field} must be a text, or {texts}{ids}{place}"
