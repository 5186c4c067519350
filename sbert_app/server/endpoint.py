"""An endpoint: a typed function of a request's body that is called over HTTP, by gradio_client and by agents.

The body and the answer are pydantic models. `sbert_app.server.api` makes a FastAPI route of an
endpoint, `register` a function for gradio_client, and `sbert_app.server.mcp` a tool for agents. All
three share the threads of the endpoint and the limits of a visitor.
"""

import asyncio
import inspect
import logging
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, get_type_hints
from weakref import WeakValueDictionary

import gradio as gr
from anyio import CapacityLimiter, to_thread
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from sbert_app.pages.components.messages import INTERNAL_ERROR
from sbert_app.process import is_ending
from sbert_app.server.errors import InternalError, mistake
from sbert_app.services.access import Quota, visitor_of
from sbert_app.services.container import Services
from training.errors import InputError, StoppedError, UserFacingError

log = logging.getLogger("sbert_lab.api")

# More sentences would make an answer of many megabytes; the command line writes files instead.
MOST_SENTENCES = 10_000
MOST_CHARACTERS = 100_000
# The maximum length of the name of a model, a data set or a run, in characters.
LONGEST_NAME = 4_096
# The maximum number of concurrent requests of one address to an endpoint that computes for seconds.
MOST_AT_ONCE = 16

Sentence = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Sentences = Annotated[list[Sentence], Field(max_length=MOST_SENTENCES, fail_fast=True)]
Name = Annotated[str, Field(max_length=LONGEST_NAME)]


class Body(BaseModel):
    """The body of a request. null means the default of a field; unknown fields are refused by name."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if value is not None}

    @classmethod
    def parse(cls, values: Any) -> Any:
        """Returns the body with these values. Raises InputError with one sentence if they are wrong."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise InputError(mistake(error.errors(include_url=False))) from None


def example(**values: Any) -> ConfigDict:
    """Returns the config of a body with an example for ``/docs``."""
    return ConfigDict(json_schema_extra={"examples": [values]})


@dataclass(frozen=True)
class Call:
    """A request without its body.

    Attributes:
        visitor: the address that the request came from.
        should_stop: returns whether the answer is not needed any more.
        files: the prefix of the addresses of the app's files; "" where Gradio adds it.
    """

    services: Services
    visitor: str = ""
    should_stop: Callable[[], bool] = is_ending.is_set
    files: str = ""


class Endpoint:
    """A function of a `Call` and a `Body`. The name of the function is the name of the endpoint.

    Args:
        function: its annotations are the types of the body and of the answer, and its docstring is
            the description.
        threads: the maximum number of requests that are computed at the same time.
        at_once: the maximum number of requests of one visitor that are computed or wait at the same
            time.
    """

    def __init__(
        self, function: Callable[..., Any], threads: int = MOST_AT_ONCE, at_once: float = math.inf
    ) -> None:
        hints = get_type_hints(function)
        self.function = function
        self.name = function.__name__
        self.description = inspect.getdoc(function) or ""
        self.body: type[Body] = hints["body"]
        self.answer_type = hints["return"]
        self.answer: TypeAdapter[Any] = TypeAdapter(self.answer_type)
        self.threads = CapacityLimiter(threads)
        self.quota = Quota(at_once)
        # A lock for each visitor whose request waits or is computed. It disappears with the last of
        # these requests.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, call: Call, body: Body) -> Any:
        """Returns the answer as JSON values.

        Raises:
            TooManyRequestsError: the visitor has too many requests under way.
            StoppedError: the answer is not needed any more.
            InternalError: a fault of the app.
            UserFacingError: an error of the function that the user can mend.
        """
        return await self._compute(call, body, partial(self.answer.dump_python, mode="json"))

    async def run_json(self, call: Call, body: Body) -> bytes:
        """Returns the answer as encoded JSON. Raises what `run` raises."""
        return await self._compute(call, body, self.answer.dump_json)

    async def _compute(self, call: Call, body: Body, dump: Callable[[Any], Any]) -> Any:
        """Returns the answer as ``dump`` converts it. The function and ``dump`` run in a thread."""

        def compute() -> Any:
            try:
                return dump(self.function(call, body))
            except (UserFacingError, StoppedError):
                raise
            except Exception as error:
                # Executors that have been shut down refuse further work.
                if is_ending.is_set():
                    raise StoppedError from error
                log.exception("%s failed", self.name)
                raise InternalError(INTERNAL_ERROR) from error

        # A request is counted before it waits for a thread. If there is only one thread, at most one
        # request of each visitor waits for it, so that a visitor with many requests does not hold
        # up the others.
        with self.quota.held(call.visitor):
            turn = self._turns.setdefault(call.visitor, asyncio.Lock())
            has_one_thread = self.threads.total_tokens == 1
            async with turn if has_one_thread else nullcontext():
                return await to_thread.run_sync(compute, limiter=self.threads_for(call, body))

    def threads_for(self, call: Call, body: Body) -> CapacityLimiter:
        """Returns the limiter of the threads that compute the answer to ``body``."""
        return self.threads


def files_at(request: Request, services: Services) -> str:
    """Returns the prefix of the addresses of the app's files. The address of a file is the prefix and the path."""
    base = str(request.base_url).rstrip("/")
    return f"{base}{services.settings.root_path}/gradio_api/file="


def register(endpoint: Endpoint, services: Services) -> None:
    """Registers an endpoint for gradio_client in the open Blocks. The fields of its body are the arguments."""
    fields = endpoint.body.model_fields

    async def call(*arguments: Any) -> Any:
        *values, request = arguments
        # Clients of Gradio send defaults too. They are left out, so that the body has only the fields
        # that were set, as in a request to ``/api``.
        values_by_name = {}
        for (name, field), value in zip(fields.items(), values, strict=False):
            if field.is_required() or value != field.default:
                values_by_name[name] = value
        body = endpoint.body.parse(values_by_name)
        return await endpoint.run(Call(services, visitor_of(request)), body)

    # Gradio reads the names, types and defaults of the arguments from the signature.
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = []
    annotations: dict[str, Any] = {"request": gr.Request}
    for name, field in fields.items():
        default = inspect.Parameter.empty if field.is_required() else field.default
        parameters.append(inspect.Parameter(name, kind, default=default))
        annotations[name] = field.annotation
    # After parameters with defaults, the request needs one, too.
    parameters.append(inspect.Parameter("request", kind, default=None))
    call.__annotations__ = annotations
    call.__signature__ = inspect.Signature(parameters, return_annotation=endpoint.answer_type)  # type: ignore[attr-defined]
    # The endpoint has its own limits, so it does not wait in the queue of the pages.
    gr.api(call, api_name=endpoint.name, api_description=endpoint.description, queue=False)
