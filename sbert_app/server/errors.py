"""Errors of one sentence: their statuses and bodies, and the sentences for requests that are malformed."""

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from sbert_app.services.access import TooManyRequestsError
from sbert_app.services.runs.record import RunBusyError, RunNotFoundError, RunStateError
from training.data.tables.cells import quoted
from training.errors import NotFoundError, QuestionError, StoppedError, UserFacingError, summary_of

# The addresses of OpenAI's, Cohere's and Jina's clients.
OPENAI = ("/v1", "/v2", "/rerank")
NO_JSON = "the request is not valid JSON"
ENDING = "the app is ending"


class InternalError(UserFacingError):
    """A fault of the app. Its log has the details, which the visitor is not told."""


STATUSES: dict[type[UserFacingError], int] = {
    InternalError: 500,
    TooManyRequestsError: 429,
    QuestionError: 422,
    NotFoundError: 404,
    RunNotFoundError: 404,
    RunBusyError: 409,
    RunStateError: 409,
}


def error_answer(
    path: str, status: int, sentence: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Returns an error of one sentence in the shape that the clients of a path expect."""
    if not path.startswith(OPENAI):
        return JSONResponse({"error": sentence}, status, headers)
    kind = "invalid_request_error"
    if status >= 500:
        kind = "server_error"
    elif status == 429:
        kind = "rate_limit_error"
    error = {"message": sentence, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": error}, status, headers)


async def _answer_to_user(request: Request, error: UserFacingError) -> JSONResponse:
    path = request.url.path
    status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 400)
    sentence = summary_of(error)
    if path.startswith("/v1/") and isinstance(error, NotFoundError):
        sentence += "; GET /v1/models lists models"
    headers = {"Retry-After": "1"} if status == 429 else None
    return error_answer(path, status, sentence, headers)


def mistake(errors: Sequence[Any]) -> str:
    """Returns the first mistake in a body as a sentence: the field, its value, and what it must be."""
    # An unknown field comes before a missing one, which may be the same field with its name
    # misspelt.
    error = next((error for error in errors if error["type"] == "extra_forbidden"), errors[0])
    kind = error["type"]
    value = error["input"]
    # The location is the field and the steps into its value; it is empty for the body itself.
    field, *steps = error["loc"] or ("",)
    if kind == "json_invalid":
        return NO_JSON
    if not field:
        return "the request must be a JSON object, sent as application/json"
    if kind == "extra_forbidden":
        return f"{quoted(field)} is not known here; /docs describes the arguments"
    if kind == "missing":
        return f"{field} is missing; /docs describes the arguments"
    # Positions in lists, counted from 1.
    numbers = [step + 1 for step in steps if isinstance(step, int)]
    place = f"{field}, number {numbers[0]:,}," if numbers else str(field)
    if kind == "value_error":
        return f"{place} {error['ctx']['error']}"
    if kind in {"string_too_long", "too_long"}:
        unit = "characters" if isinstance(value, str) else "items"
        most = error["ctx"]["max_length"]
        return f"{place} has {len(value):,} {unit}; at most {most:,} are taken"
    message = error["msg"]
    return f"{place} is {quoted(value)}: {message[:1].lower()}{message[1:]}"


async def _answer_to_body(request: Request, error: RequestValidationError) -> JSONResponse:
    # FastAPI puts "body" before the name of the field.
    errors = [{**entry, "loc": entry["loc"][1:]} for entry in error.errors()]
    return error_answer(request.url.path, 400, mistake(errors))


async def _answer_to_http(request: Request, error: HTTPException) -> JSONResponse:
    # FastAPI answers 400 to bytes that are not UTF-8, numbers of thousands of digits, and JSON
    # nested too deeply.
    sentence = NO_JSON if error.status_code == 400 else str(error.detail)
    return error_answer(request.url.path, error.status_code, sentence, dict(error.headers or {}))


async def _answer_to_stop(request: Request, _: StoppedError) -> JSONResponse:
    # Most of these clients have disconnected and do not read this.
    return error_answer(request.url.path, 503, ENDING)


# The exception handlers of the FastAPI app.
HANDLERS: dict[Any, Any] = {
    RequestValidationError: _answer_to_body,
    HTTPException: _answer_to_http,
    UserFacingError: _answer_to_user,
    StoppedError: _answer_to_stop,
}
