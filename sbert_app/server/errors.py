"""Errors of one sentence: their statuses, their bodies, and the sentences for requests that do not fit."""

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from sbert_app.services.access import TooMany
from sbert_app.services.runs.record import RunBusy, RunNotFound, RunStateError
from training.data.tables.cells import quoted
from training.errors import NotFoundError, QuestionError, Stopped, UserFacingError, summary_of

# The addresses of OpenAI's, Cohere's and Jina's clients.
OPENAI = ("/v1", "/v2", "/rerank")
NO_JSON = "the request is not valid JSON"
ENDING = "the app is ending"


class InternalError(UserFacingError):
    """A fault of the app, which its log explains; the visitor is told that there was one, not which."""


STATUSES: dict[type[UserFacingError], int] = {
    InternalError: 500,
    TooMany: 429,
    QuestionError: 422,
    NotFoundError: 404,
    RunNotFound: 404,
    RunBusy: 409,
    RunStateError: 409,
}


def error_answer(path: str, status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error of one sentence in the shape that the clients of a path read."""
    if not path.startswith(OPENAI):
        return JSONResponse({"error": sentence}, status, headers)
    kind = "server_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error"
    error = {"message": sentence, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": error}, status, headers)


def answer_to(error: UserFacingError, path: str) -> JSONResponse:
    """The answer to a request that ended with a user's error."""
    status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 400)
    hint = "; GET /v1/models lists models" if path.startswith("/v1/") and isinstance(error, NotFoundError) else ""
    return error_answer(path, status, summary_of(error) + hint, {"Retry-After": "1"} if status == 429 else None)


def mistake(errors: Sequence[Any]) -> str:
    """The first mistake in a body as a sentence: the field, its value, and what it must be."""
    # What is missing may be there under a name that is not known.
    error = next((error for error in errors if error["type"] == "extra_forbidden"), errors[0])
    kind = error["type"]
    value = error["input"]
    field, *steps = error["loc"] or ("",)
    if kind == "json_invalid":
        return NO_JSON
    if not field:
        return "the request must be a JSON object, sent as application/json"
    if kind == "extra_forbidden":
        return f"{quoted(field)} is not known here; /docs describes the arguments"
    if kind == "missing":
        return f"{field} is missing; /docs describes the arguments"
    numbers = [step + 1 for step in steps if isinstance(step, int)]
    place = f"{field}, number {numbers[0]:,}," if numbers else str(field)
    if kind == "value_error":
        return f"{place} {error['ctx']['error']}"
    if kind in {"string_too_long", "too_long"}:
        unit = "characters" if isinstance(value, str) else "items"
        return f"{place} has {len(value):,} {unit}; at most {error['ctx']['max_length']:,} are taken"
    message = error["msg"]
    return f"{place} is {quoted(value)}: {message[:1].lower()}{message[1:]}"


async def _answer_to_body(request: Request, error: RequestValidationError) -> JSONResponse:
    # A place begins with "body".
    errors = [{**one, "loc": one["loc"][1:]} for one in error.errors()]
    return error_answer(request.url.path, 400, mistake(errors))


async def _answer_to_http(request: Request, error: HTTPException) -> JSONResponse:
    # FastAPI says 400 of what is no UTF-8, has a number of thousands of digits, or is nested too deeply.
    sentence = NO_JSON if error.status_code == 400 else str(error.detail)
    return error_answer(request.url.path, error.status_code, sentence, dict(error.headers or {}))


async def _answer_to_user(request: Request, error: UserFacingError) -> JSONResponse:
    return answer_to(error, request.url.path)


async def _answer_to_stop(request: Request, _: Stopped) -> JSONResponse:
    # Nobody reads this where the client has gone.
    return error_answer(request.url.path, 503, ENDING)


# Of the FastAPI app.
HANDLERS: dict[Any, Any] = {
    RequestValidationError: _answer_to_body,
    HTTPException: _answer_to_http,
    UserFacingError: _answer_to_user,
    Stopped: _answer_to_stop,
}
