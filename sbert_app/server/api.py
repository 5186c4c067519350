"""The API beside Gradio's: the endpoints as ordinary routes, and health, metrics, the reference, the sheet of a class.

In ``/openapi.json`` the routes of ``/v1`` and a body for each example are written by hand, in an asset; the endpoints
are described by FastAPI.
"""

import json
from typing import Any

import gradio as gr
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel

from sbert_app import __version__
from sbert_app.pages.components import messages
from sbert_app.pages.learn import teacher
from sbert_app.server.endpoint import MOST_AT_ONCE, Endpoint, endpoints, status_of
from sbert_app.server.endpoints import ENDPOINTS
from sbert_app.services.access import REGISTRY
from sbert_app.services.container import Services
from training.catalogue import DEFAULT_MODEL, read_asset
from training.errors import InputError, UserFacingError
from training.sources.home import make_home


class Mistake(BaseModel):
    """The sentence that says what is wrong."""

    error: str


def endpoint_router(root_path: str) -> APIRouter:
    """The routes ``/api/NAME`` of the endpoints, which have to be registered: an object in, an object out."""
    routes, examples = APIRouter(prefix="/api", tags=["endpoints"]), json.loads(read_asset("openapi.json"))
    for function, (model, options) in ENDPOINTS.items():
        name, endpoint = function.__name__, endpoints[function.__name__]
        content = {"schema": endpoint.schema(), "example": examples["x-examples"][name]}
        routes.add_api_route(
            f"/{name}",
            _route(endpoint, CapacityLimiter(options.get("concurrency_limit", MOST_AT_ONCE)), root_path),
            methods=["POST"],
            operation_id=name,
            summary=endpoint.description.partition("\n")[0],
            description=endpoint.description,
            response_model=model,
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


def document_router(services: Services) -> APIRouter:
    """The routes. ``/health`` is answered without a login, the others are behind it."""
    routes = APIRouter()

    @routes.api_route("/health", methods=["GET", "HEAD"])
    def health() -> Response:
        # The reasons why the app cannot answer, as clauses that name no folder of this machine.
        missing = []
        try:
            make_home(services.settings.home)
        except InputError as error:
            missing.append(error.public)
        if not services.models.is_here(DEFAULT_MODEL):
            missing.append(f"the model {DEFAULT_MODEL} is being fetched, or cannot be")
        state = {"status": "unavailable" if missing else "ready", "version": __version__, "missing": missing}
        return JSONResponse(state, 503 if missing else 200)

    @routes.get("/metrics")
    def metrics() -> Response:
        # The machine's exporter has the metrics of the process.
        return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)

    @routes.get("/openapi.json")
    def openapi(request: Request) -> Response:
        document, described = json.loads(read_asset("openapi.json")), request.app.openapi()
        document["info"]["version"] = __version__
        del document["x-examples"]
        document["paths"] |= described["paths"]
        document["components"]["schemas"] |= described["components"]["schemas"]
        return JSONResponse(document)

    @routes.get("/docs")
    def docs() -> Response:
        return HTMLResponse(read_asset("api.html"))

    @routes.get(f"/{teacher.SHEET}")
    def sheet(request: Request) -> Response:
        """The questions of a class to print; its parameters are those of a class, ``answers=1`` adds the answers."""
        try:
            return HTMLResponse(teacher.sheet(dict(request.query_params), services.access))
        except UserFacingError as error:
            return HTMLResponse(messages.error_message(error), 400)

    return routes
