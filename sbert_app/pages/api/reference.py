"""``/openapi.json``: the endpoints as OpenAPI describes them; ``/docs``: a page to read and try them; ``/health``.

What is written by hand is an asset: the routes of ``/v1``, and a body for each example. The endpoints of the pages are
described by their functions' arguments and docstrings, as `sbert_app.pages.api.endpoint` has registered them.
"""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

from gradio.data_classes import FileData
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from sbert_app import __version__
from sbert_app.pages.api.endpoint import documentation, signatures
from sbert_app.pages.server.limits import RUN
from sbert_app.services.container import Services
from training.assets import read_asset
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError
from training.sources.home import make_home

_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)


def routes(services: Services) -> list[BaseRoute]:
    """The routes. `/health` is answered without a login."""

    def openapi(_: Request) -> Response:
        return JSONResponse(describe())

    def docs(_: Request) -> Response:
        return HTMLResponse(read_asset("api.html"))

    def health(_: Request) -> Response:
        missing = what_is_missing(services)
        state = {"status": "unavailable" if missing else "ready", "version": __version__, "missing": missing}
        return JSONResponse(state, 503 if missing else 200)

    return [Route("/openapi.json", openapi), Route("/docs", docs), Route("/health", health)]


def what_is_missing(services: Services) -> list[str]:
    """What keeps the app from answering, a clause each, without folders of this machine."""
    missing = []
    try:
        make_home(services.settings.home)
    except InputError as error:
        missing.append(error.public)
    if not services.models.is_here(DEFAULT_MODEL):
        missing.append(f"the model {DEFAULT_MODEL} is being fetched, or cannot be")
    return missing


def describe() -> dict[str, Any]:
    document = json.loads(read_asset("openapi.json"))
    document["info"]["version"] = __version__
    examples = document.pop("x-examples")
    for name, signature in signatures.items():
        document["paths"][f"{RUN}{name}"] = {"post": _operation(name, signature, examples.get(name, {}))}
    return document


def _operation(name: str, signature: inspect.Signature, example: dict[str, Any]) -> dict[str, Any]:
    text, _, arguments = documentation[name].partition("\n\nArgs:\n")
    described = {key: " ".join(words.split()) for key, words in _ARGUMENT.findall(arguments)}
    properties = {}
    for key, parameter in signature.parameters.items():
        schema = TypeAdapter(parameter.annotation).json_schema() if parameter.annotation is not FileData else _FILE
        default = {} if parameter.default is inspect.Parameter.empty else {"default": parameter.default}
        properties[key] = {**schema, **default, "description": described.get(key, "")}
    required = [key for key, each in signature.parameters.items() if each.default is inspect.Parameter.empty]
    body = {"type": "object", "properties": properties, "required": required}
    return {
        "tags": ["endpoints"],
        "operationId": name,
        "summary": text.partition("\n")[0],
        "description": text,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body, "example": example}}},
        "responses": {
            "200": {"description": "data: a list whose first element is the answer.", "content": _JSON},
            "4XX": {"$ref": "#/components/responses/Mistake"},
        },
    }


_FILE = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
_JSON = {"application/json": {"schema": {"type": "object", "properties": {"data": {"type": "array"}}}}}
