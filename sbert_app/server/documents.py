"""Addresses that are no pages of Gradio's: health, metrics, the reference of the API, the sheet of a class.

In ``/openapi.json`` the routes of ``/v1`` and a body for each example are written by hand, in an asset; the endpoints
are described by FastAPI (`sbert_app.server.api`).
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from sbert_app import __version__
from sbert_app.pages.components import messages
from sbert_app.pages.learn import teacher
from sbert_app.services.access import REGISTRY
from sbert_app.services.container import Services
from training.catalogue import DEFAULT_MODEL, read_asset
from training.errors import InputError, UserFacingError
from training.sources.home import make_home


def router(services: Services) -> APIRouter:
    """The routes. ``/health`` is answered without a login, the others are behind it."""
    routes = APIRouter()

    @routes.api_route("/health", methods=["GET", "HEAD"])
    def health() -> Response:
        missing = what_is_missing(services)
        state = {"status": "unavailable" if missing else "ready", "version": __version__, "missing": missing}
        return JSONResponse(state, 503 if missing else 200)

    @routes.get("/metrics")
    def metrics() -> Response:
        # The machine's exporter has the metrics of the process.
        return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)

    @routes.get("/openapi.json")
    def openapi(request: Request) -> Response:
        return JSONResponse(describe(request.app))

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


def what_is_missing(services: Services) -> list[str]:
    """The reasons why the app cannot answer, as clauses that name no folder of this machine."""
    missing = []
    try:
        make_home(services.settings.home)
    except InputError as error:
        missing.append(error.public)
    if not services.models.is_here(DEFAULT_MODEL):
        missing.append(f"the model {DEFAULT_MODEL} is being fetched, or cannot be")
    return missing


def describe(app: FastAPI) -> dict[str, Any]:
    """The API as OpenAPI describes it."""
    document = json.loads(read_asset("openapi.json"))
    document["info"]["version"] = __version__
    del document["x-examples"]
    endpoints = app.openapi()
    document["paths"] |= endpoints["paths"]
    document["components"]["schemas"] |= endpoints["components"]["schemas"]
    return document
