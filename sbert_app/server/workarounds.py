"""Workarounds for Gradio 6.31. Each class says what goes wrong without it, and can go once that no longer does."""

import asyncio
from typing import Annotated, Any, Literal

import gradio as gr
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.server.events import WAITING
from training.errors import UserFacingError, summary_of

HEARTBEAT = "/gradio_api/heartbeat/"
# The types of the values that a page sends, by the kind of the component; None where nothing is chosen.
KINDS: dict[Any, Any] = {
    (gr.Textbox, gr.HTML, gr.BrowserState): str,
    (gr.Slider, gr.Number): int | float,
    (gr.Dropdown, gr.Radio, gr.CheckboxGroup): str | int | float,
}
WRONG = "the request holds values that this page does not send"


class EventValues(BaseModel):
    """The types of the values that the events of the pages carry; an event has some of them."""

    model_config = ConfigDict(from_attributes=True, strict=True)
    pair: int = 0
    step: int = 0
    score: int | Literal["none"] = 0
    project: str = ""
    rater: str = ""
    threshold: float = Field(0, allow_inf_nan=False)
    run: str = ""
    name: str = ""
    on: bool = False
    row: NonNegativeInt = 0
    rows: list[NonNegativeInt] = []
    # The row of a table that was clicked begins with its number.
    row_value: Annotated[list[Any], Field(min_length=1), AfterValidator(lambda row: [float(str(row[0]))])] = []
    add: bool = False


class WholeSteps(gr.Blocks):
    """`gr.Blocks` whose generators send each step as a replacement of the one before.

    Gradio sends what a generator yields as edits of what it yielded before, and its page applies them to objects that
    may still wait to be shown. Two steps that arrive while the page is busy, as on a slow telephone, lose what the
    first has changed besides values: a button stays disabled, a figure is never made visible. The browser test of Bulk,
    ``test_what_arrives_while_the_page_is_busy_is_shown``, fails without this class.
    """

    async def call_function(
        self,
        block_fn: Any,
        processed_input: list[Any],
        iterator: Any = None,
        requests: Any = None,
        event_id: str | None = None,
        event_data: gr.EventData | None = None,
        *more: Any,
        **options: Any,
    ) -> Any:
        """Calls a handler. Values of the wrong kind, which no page sends, are the caller's mistake and no fault."""
        if event_id is not None and iterator is None:
            WAITING.begin(event_id)
        # Endpoints, whose values Gradio does not prepare, look at theirs themselves.
        if block_fn.preprocess:
            processed_input = list(map(_checked, block_fn.inputs, processed_input))
        try:
            if block_fn.collects_event_data:
                EventValues.model_validate(event_data)
            return await super().call_function(
                block_fn, processed_input, iterator, requests, event_id, event_data, *more, **options
            )
        except (AttributeError, ValidationError) as error:
            if not isinstance(error, ValidationError) and not isinstance(error.obj, gr.EventData):
                raise
            raise gr.Error(WRONG, print_exception=False) from error
        except UserFacingError as error:
            raise gr.Error(summary_of(error), print_exception=False) from error

    def handle_streaming_diffs(
        self,
        block_fn: Any,
        data: list[Any],
        session_hash: str | None,
        run: str | None,
        final: bool,
        simple_format: bool = False,
    ) -> list[Any]:
        """The outputs of a step as they are sent: Gradio sends the first and the last whole, and this the others."""
        is_first = session_hash is None or run is None or run not in self.pending_diff_streams[session_hash]
        step = super().handle_streaming_diffs(block_fn, data, session_hash, run, final, simple_format=True)
        return step if is_first or final or simple_format else [[["replace", [], value]] for value in step]


def _checked(component: Any, value: Any) -> Any:
    """The value of a component, "" for no text. gr.Error if the page sends none of this type for it."""
    if value is None and not isinstance(component, gr.Slider):
        return "" if isinstance(component, gr.Textbox) else None
    types = next((types for kind, types in KINDS.items() if isinstance(component, kind)), None)
    if types is None:
        return value
    choices = [choice for _, choice in getattr(component, "choices", None) or ()]
    if choices and all(isinstance(choice, str) for choice in choices):
        types = str
    has_list = isinstance(component, gr.BrowserState | gr.CheckboxGroup) or bool(
        getattr(component, "multiselect", False)
    )
    items = value if isinstance(value, list) else [value]
    # A truth value is a number to Python.
    is_fit = all(isinstance(item, types) and not isinstance(item, bool) for item in items)
    if not is_fit or isinstance(value, list) != has_list:
        raise gr.Error(WRONG, print_exception=False)
    return value


class ShortHeartbeats:
    """ASGI middleware: answers heartbeats itself, and turns the POST of a page that is left into the end of one.

    Gradio's page holds one request open for good, and the app learns from its end that the page has gone. A browser
    allows six connections to a host over HTTP/1.1, so a seventh tab would wait for ever. Here that request is answered
    at once, and ``assets/app.js`` says by a POST to the same address when a page is left.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_heartbeat = scope["type"] == "http" and HEARTBEAT in scope["path"]
        if is_heartbeat and scope["method"] == "GET":
            await Response("data: ALIVE\n\n", media_type="text/event-stream")(scope, receive, send)
        elif is_heartbeat and scope["method"] == "POST":
            await self._end(scope)
            await Response(status_code=204)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _end(self, scope: Scope) -> None:
        """Shows Gradio a heartbeat that begins and breaks off, at which it stops what the session computes."""
        has_begun = asyncio.Event()

        async def receive() -> Message:
            await has_begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                has_begun.set()

        await self.app({**scope, "method": "GET"}, receive, send)
