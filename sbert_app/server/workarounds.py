"""Workarounds for Gradio 6.31. Each class says what goes wrong without it, and goes once Gradio has mended that."""

import asyncio
from typing import Annotated, Any, Literal

import gradio as gr
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.server.events import WAITING
from training.errors import UserFacingError, summary_of

HEARTBEAT = "/gradio_api/heartbeat/"
# The types of the values that a page sends for each kind of component. The value is None if nothing
# is chosen.
KINDS: dict[Any, Any] = {
    (gr.Textbox, gr.HTML, gr.BrowserState): str,
    (gr.Slider, gr.Number): int | float,
    (gr.Dropdown, gr.Radio, gr.CheckboxGroup): str | int | float,
}
WRONG = "the request holds values that this page does not send"


class EventValues(BaseModel):
    """The types of the values that events of the pages carry. An event has some of these fields."""

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
    # The first cell of the table row that was clicked is a number.
    row_value: Annotated[
        list[Any], Field(min_length=1), AfterValidator(lambda row: [float(str(row[0]))])
    ] = []
    add: bool = False


class WholeSteps(gr.Blocks):
    """`gr.Blocks` whose generators send each step as a replacement of the one before.

    Gradio sends each output of a generator as edits of the one before, and the page applies them to
    objects that it may not have shown yet. If two steps arrive while the page is busy, as on a slow
    telephone, all changes of the first step except values are lost: a button stays disabled, a
    figure stays hidden. The browser test of Bulk,
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
        """Calls a handler. Values of a wrong type, which no page sends, are an error of the client, not of the app."""
        # The turn of a queued event has come. Later steps of a generator have an iterator.
        if event_id is not None and iterator is None:
            WAITING.begin(event_id)
        # Gradio does not prepare the values of endpoints, which check them themselves.
        if block_fn.preprocess:
            processed_input = list(map(_check_value, block_fn.inputs, processed_input))
        try:
            if block_fn.collects_event_data:
                EventValues.model_validate(event_data)
            return await super().call_function(
                block_fn,
                processed_input,
                iterator,
                requests,
                event_id,
                event_data,
                *more,
                **options,
            )
        except ValidationError as error:
            raise gr.Error(WRONG, print_exception=False) from error
        except AttributeError as error:
            # EventData raises it for a value that the request lacks. Any other one is a fault of the
            # app.
            if not isinstance(error.obj, gr.EventData):
                raise
            raise gr.Error(WRONG, print_exception=False) from error
        except UserFacingError as error:
            raise gr.Error(summary_of(error), print_exception=False) from error

    def validate_inputs(self, block_fn: Any, inputs: list[Any]) -> None:
        """Refuses a call with too few values, which Gradio would log as a fault of the app."""
        if len(inputs) < len(block_fn.inputs):
            raise gr.Error(WRONG, print_exception=False)

    def handle_streaming_diffs(
        self,
        block_fn: Any,
        data: list[Any],
        session_hash: str | None,
        run: str | None,
        final: bool,
        simple_format: bool = False,
    ) -> list[Any]:
        """Returns the outputs of a step as they are sent. Gradio sends the first and the last step whole already."""
        is_first = (
            session_hash is None
            or run is None
            or run not in self.pending_diff_streams[session_hash]
        )
        # In the simple format Gradio computes no edits.
        step = super().handle_streaming_diffs(
            block_fn, data, session_hash, run, final, simple_format=True
        )
        if is_first or final or simple_format:
            return step
        # An edit of a value at its root, by which the whole value is replaced.
        return [[["replace", [], value]] for value in step]


def _check_value(component: Any, value: Any) -> Any:
    """Returns the value of a component, "" for a text box without text. Raises gr.Error if its type is wrong."""
    if value is None and isinstance(component, gr.Textbox):
        return ""
    # A slider cannot be empty, so None is a wrong value for it.
    if value is None and not isinstance(component, gr.Slider):
        return None
    types = next((types for kind, types in KINDS.items() if isinstance(component, kind)), None)
    if types is None:
        return value
    # Where all choices are texts, a number is not one of them.
    choices = [choice for _, choice in getattr(component, "choices", None) or ()]
    if choices and all(isinstance(choice, str) for choice in choices):
        types = str
    is_multiple = bool(getattr(component, "multiselect", False))
    # The browser states of the pages are lists of ids.
    has_list = is_multiple or isinstance(component, gr.BrowserState | gr.CheckboxGroup)
    if isinstance(value, list) != has_list:
        raise gr.Error(WRONG, print_exception=False)
    items = value if has_list else [value]
    for item in items:
        # bool is a subclass of int.
        if isinstance(item, bool) or not isinstance(item, types):
            raise gr.Error(WRONG, print_exception=False)
    return value


class ShortHeartbeats:
    """ASGI middleware that answers heartbeats at once, and takes a POST to their address as the end of a page.

    A page of Gradio holds one request open, the heartbeat, and the app learns from its end that the
    page was closed. A browser opens at most six connections to a host over HTTP/1.1, so a seventh
    tab would wait for ever. With this class the request ends at once, and ``assets/app.js`` sends a
    POST to the same address when a page is left.
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
        """Makes Gradio stop the work of a session by a heartbeat that starts and disconnects."""
        has_begun = asyncio.Event()

        async def receive() -> Message:
            await has_begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                has_begun.set()

        await self.app({**scope, "method": "GET"}, receive, send)
