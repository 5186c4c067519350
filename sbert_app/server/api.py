"""The routes of the HTTP API, and of health, metrics, the reference and the printed sheet of a class."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import fastapi_offline
from fastapi import APIRouter, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel

from sbert_app import __version__
from sbert_app.pages.components import messages
from sbert_app.pages.learn import teacher
from sbert_app.process import is_ending
from sbert_app.server.endpoint import Call, Endpoint, files_at
from sbert_app.server.endpoints import ENDPOINTS
from sbert_app.server.errors import error_answer
from sbert_app.services.access import REGISTRY, visitor_of
from sbert_app.services.container import Services
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError, UserFacingError
from training.sources.home import make_home

DESCRIPTION = """Sentence similarity over HTTP: embeddings and re-ranking for clients of OpenAI's API under /v1, and
what the pages do under /api. A mistake is answered with a status from 400 to 499 and one sentence. Where the app has a
login, send the header Authorization: Bearer with the value of SBERT_TOKEN."""
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Mistake(BaseModel):
    """A sentence that says what is wrong."""

    error: str


def endpoint_router(services: Services) -> APIRouter:
    """Returns the routes ``/api/<name>`` of the endpoints, which take and return a JSON object."""
    routes = APIRouter(tags=["endpoints"])
    for name, endpoint in ENDPOINTS.items():
        add_endpoint(routes, f"/api/{name}", endpoint, services, Mistake)
    routes.add_api_route("/api/{path:path}", no_answer, methods=METHODS, include_in_schema=False)
    return routes


def add_endpoint(
    routes: APIRouter,
    path: str,
    endpoint: Endpoint,
    services: Services,
    error: Any,
    is_described: bool = True,
) -> None:
    """Adds the route of an endpoint.

    Args:
        error: the pydantic model of its errors.
        is_described: whether ``/docs`` shows the route.
    """

    async def answer(body: endpoint.body, request: Request) -> Response:  # type: ignore[name-defined]
        async with _watch_client(request) as should_stop:
            call = Call(services, visitor_of(request), should_stop, files_at(request, services))
            return Response(await endpoint.run_json(call, body), media_type="application/json")

    routes.add_api_route(
        path,
        answer,
        methods=["POST"],
        # Each id may occur once in the description.
        operation_id=endpoint.name if is_described else None,
        include_in_schema=is_described,
        summary=endpoint.description.partition("\n")[0],
        description=endpoint.description,
        # For the description, as ``answer`` returns the finished JSON.
        response_model=endpoint.answer_type,
        responses={"4XX": {"model": error, "description": "What is wrong, in one sentence."}},
    )


@asynccontextmanager
async def _watch_client(request: Request) -> AsyncIterator[Callable[[], bool]]:
    """Yields a function that says whether the client has disconnected or the app is ending."""
    has_gone = threading.Event()

    async def watch() -> None:
        # FastAPI has read the body, so nothing is left to receive but the end of the connection.
        while (await request.receive())["type"] != "http.disconnect":
            pass
        has_gone.set()

    def should_stop() -> bool:
        return has_gone.is_set() or is_ending.is_set()

    watcher = asyncio.create_task(watch())
    try:
        yield should_stop
    finally:
        watcher.cancel()


async def no_answer(request: Request) -> Response:
    """Answers 404 to an address or a method that none of the earlier routes has."""
    path = request.url.path
    return error_answer(
        path, 404, f"there is no {request.method} {path[:100]}; /docs describes what there is"
    )


def document_router(services: Services) -> APIRouter:
    """Returns the routes of health, metrics, ``/docs`` and the sheet. Only ``/health`` is answered without a login."""
    routes = APIRouter(tags=["state"])

    @routes.api_route("/health", methods=["GET", "HEAD"])
    def health() -> Response:
        """Whether the app can answer, or what is missing (503)."""
        # Anybody may read the reasons, so they do not name folders of this machine.
        missing = []
        try:
            make_home(services.settings.home)
        except InputError as error:
            missing.append(error.public)
        if not services.models.is_here(DEFAULT_MODEL):
            missing.append(f"the model {DEFAULT_MODEL} is being fetched, or cannot be")
        state = {
            "status": "unavailable" if missing else "ready",
            "version": __version__,
            "missing": missing,
        }
        return JSONResponse(state, 503 if missing else 200)

    @routes.get("/metrics")
    def metrics() -> Response:
        """Figures for Prometheus: requests, latency, waiting requests, requests of a batch, tokens."""
        # Metrics of the process are left to an exporter for the whole machine.
        return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)

    # FastAPI would load Swagger's files from another host; the package fastapi_offline has them.
    routes.mount("/docs/files", StaticFiles(packages=[(fastapi_offline.__name__, "static")]))

    @routes.get("/docs", include_in_schema=False)
    def docs() -> Response:
        # Relative addresses also work behind a proxy.
        return get_swagger_ui_html(
            openapi_url="openapi.json",
            title="SBERT Lab: HTTP API",
            swagger_js_url="docs/files/swagger-ui-bundle.js",
            swagger_css_url="docs/files/swagger-ui.css",
            swagger_favicon_url="favicon.ico",
        )

    @routes.get(f"/{teacher.SHEET}", include_in_schema=False)
    def sheet(request: Request) -> Response:
        """The printed sheet of a class. It takes the parameters of the class's link; ``answers=1`` adds the answers."""
        try:
            return HTMLResponse(teacher.sheet(dict(request.query_params), services.access))
        except UserFacingError as error:
            return HTMLResponse(messages.error_message(error), 400)

    return routes
