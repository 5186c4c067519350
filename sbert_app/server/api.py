"""``/api/NAME``: the endpoints as ordinary routes, which take an object of arguments and answer with an object."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from sbert_app.server.endpoint import MOST_AT_ONCE, Endpoint, endpoints, status_of
from sbert_app.server.endpoints import ENDPOINTS
from training.catalogue import read_asset
from training.errors import InputError, UserFacingError


class Mistake(BaseModel):
    """The sentence that says what is wrong."""

    error: str


def router(root_path: str = "") -> APIRouter:
    """The routes of the endpoints, which have to be registered."""
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
