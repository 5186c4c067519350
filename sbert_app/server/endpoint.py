"""An endpoint: a typed function of a request's body that HTTP, gradio_client and agents call alike.

The body is a pydantic model, and so is the answer. `sbert_app.server.api` makes a route of FastAPI of an endpoint,
`register` an API of Gradio's for gradio_client, and `sbert_app.server.mcp` a tool of agents. All three compute in the
same threads, within the same limits of a visitor.
"""

import asyncio
import inspect
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
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
from training.errors import InputError, Stopped, UserFacingError

log = logging.getLogger("sbert_lab.api")

# An HTTP answer is no file: for more sentences there is the command line.
MOST_SENTENCES = 10_000
MOST_CHARACTERS = 100_000
# The length of the name of a model, a data set or a run, in characters.
LONGEST_NAME = 4_096
# The requests of one address to an endpoint that are worked on at once, where each computes for seconds.
MOST_AT_ONCE = 16

Sentence = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Sentences = Annotated[list[Sentence], Field(max_length=MOST_SENTENCES, fail_fast=True)]
Name = Annotated[str, Field(max_length=LONGEST_NAME)]


class Body(BaseModel):
    """The body of a request. null means the default of a field; an error names each field that is not known."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if value is not None}

    @classmethod
    def parse(cls, values: Any) -> Any:
        """The body of these values. InputError with one sentence if they are wrong."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise InputError(mistake(error.errors(include_url=False))) from None


def example(**values: Any) -> ConfigDict:
    """The config of a body with an example for ``/docs``."""
    return ConfigDict(json_schema_extra={"examples": [values]})


@dataclass(frozen=True)
class Call:
    """A request beside its body.

    Attributes:
        visitor: the address that it came from.
        should_stop: whether nobody waits for the answer any more.
        files: the address of the app's files; "" where Gradio adds it.
    """

    services: Services
    visitor: str = ""
    should_stop: Callable[[], bool] = is_ending.is_set
    files: str = ""


class Endpoint:
    """A function of a `Call` and a `Body`, by its name.

    Args:
        function: its annotations are the types of the body and of the answer, and its docstring is the description.
        threads: the requests of all visitors that are computed at once.
        at_once: the requests of one visitor that are worked on or wait at once.
    """

    def __init__(self, function: Callable[..., Any], threads: int = MOST_AT_ONCE, at_once: float = math.inf) -> None:
        hints = get_type_hints(function)
        self.function = function
        self.name = function.__name__
        self.description = inspect.getdoc(function) or ""
        self.body: type[Body] = hints["body"]
        self.answer_type = hints["return"]
        self.answer: TypeAdapter[Any] = TypeAdapter(self.answer_type)
        self.threads = CapacityLimiter(threads)
        self.quota = Quota(at_once)
        # Of each visitor who waits.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, call: Call, body: Body) -> Any:
        """The answer as JSON values.

        TooMany if the visitor has too much under way, Stopped if nobody waits any more, InternalError for a fault of
        the app, or a user's error of the function.
        """
        return await self._compute(call, body, self._values)

    async def run_json(self, call: Call, body: Body) -> bytes:
        """The answer as JSON, in bytes. Errors as `run`."""
        return await self._compute(call, body, self.answer.dump_json)

    async def _compute(self, call: Call, body: Body, dump: Callable[[Any], Any]) -> Any:
        def compute() -> Any:
            try:
                return dump(self.function(call, body))
            except (UserFacingError, Stopped):
                raise
            except Exception as error:
                # At the end executors take nothing more.
                if is_ending.is_set():
                    raise Stopped from error
                log.exception("%s failed", self.name)
                raise InternalError(INTERNAL_ERROR) from error

        # A request is counted before it takes a thread, for which others wait. Where there is one thread, each visitor
        # has a turn: their other requests wait here, not before those of others.
        with self.quota.held(call.visitor):
            turn = self._turns.setdefault(call.visitor, asyncio.Lock())
            async with turn if self.threads.total_tokens == 1 else nullcontext():
                return await to_thread.run_sync(compute, limiter=self.threads_for(call, body))

    def _values(self, answer: Any) -> Any:
        return self.answer.dump_python(answer, mode="json")

    def threads_for(self, call: Call, body: Body) -> CapacityLimiter:
        """The threads that compute the answer to ``body``."""
        return self.threads


def files_at(request: Request, services: Services) -> str:
    """The address of the app's files, for a request; a path follows."""
    return f"{str(request.base_url).rstrip('/')}{services.settings.root_path}/gradio_api/file="


def register(endpoint: Endpoint, services: Services) -> None:
    """Registers an endpoint in the open Blocks, for gradio_client: the fields of the body are its arguments."""
    fields = endpoint.body.model_fields

    async def call(*arguments: Any) -> Any:
        *values, request = arguments
        # Gradio's clients fill in the defaults, and `Body` knows what has been left out.
        values_by_name: Mapping[str, Any] = {
            name: value
            for (name, field), value in zip(fields.items(), values, strict=False)
            if field.is_required() or value != field.default
        }
        return await endpoint.run(Call(services, visitor_of(request)), endpoint.body.parse(values_by_name))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(name, kind, default=inspect.Parameter.empty if field.is_required() else field.default)
        for name, field in fields.items()
    ]
    request = inspect.Parameter("request", kind, default=None)
    call.__signature__ = inspect.Signature([*parameters, request], return_annotation=endpoint.answer_type)  # type: ignore[attr-defined]
    call.__annotations__ = {
        **{name: field.annotation for name, field in fields.items()},
        "request": gr.Request,
    }
    # The endpoint has limits of its own, and so takes no place in the queue of the pages.
    gr.api(call, api_name=endpoint.name, api_description=endpoint.description, queue=False)
