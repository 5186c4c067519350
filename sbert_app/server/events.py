"""Limits on the events that pages put into Gradio's queue, and on messages that nobody reads.

A page posts an event to ``queue/join`` and then reads the messages of its session at
``queue/data``. Gradio keeps an event until its turn comes, and a message until it is read, so one
visitor could fill the queue of a page or the memory.
"""

import asyncio
import json
import math
import time
from collections import Counter
from urllib.parse import urlencode

from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.server.errors import error_answer
from sbert_app.server.limits import replay
from sbert_app.services.access import visitor_of

JOIN = "/gradio_api/queue/join"
READ = "/gradio_api/queue/data"
# The maximum number of waiting events of one address. A class may share an address, and a page
# sends several at once.
MOST_WAITING = 128
# An event is counted for this time at most, because the event of a page that was closed never gets
# its turn.
WAITING_SECONDS = 600.0
# Messages are dropped if nobody starts to read them within this time.
UNREAD_SECONDS = 60.0
# The reader that makes Gradio drop messages disconnects after this time, when it has started to
# read.
BEGINNING_SECONDS = 0.1


class WaitingEvents:
    """The ids of the waiting events, with the addresses of their visitors."""

    def __init__(self) -> None:
        # The address, and the time since when the event is counted.
        self._waiting: dict[str, tuple[str, float]] = {}
        # The times of events whose turn came before Gradio answered with their ids.
        self._early: dict[str, float] = {}

    def count(self, visitor: str) -> int:
        """Returns the number of waiting events of a visitor. Forgets the events that have waited too long."""
        oldest = time.monotonic() - WAITING_SECONDS
        entries = self._waiting.items()
        self._waiting = {event: entry for event, entry in entries if entry[1] > oldest}
        # `add` never comes for some early events: their visitor has left before Gradio answered, or
        # `add` came before, and the event was forgotten before its turn.
        self._early = {event: since for event, since in self._early.items() if since > oldest}
        return sum(address == visitor for address, _ in self._waiting.values())

    def add(self, event: str, visitor: str) -> None:
        """Counts an event as waiting, unless its turn has come already."""
        if self._early.pop(event, None) is None:
            self._waiting[event] = (visitor, time.monotonic())

    def begin(self, event: str) -> None:
        """Notes that the turn of an event has come."""
        if self._waiting.pop(event, None) is None:
            self._early[event] = time.monotonic()


# The events of all pages.
WAITING = WaitingEvents()


class BoundedEvents:
    """ASGI middleware that refuses events of an address beyond `MOST_WAITING` and drops messages that nobody reads.

    Args:
        waiting: the waiting events. `WholeSteps` tells it when the turn of an event has come.
    """

    def __init__(self, app: ASGIApp, waiting: WaitingEvents) -> None:
        self.app = app
        self.waiting = waiting
        # The number of open readers. The keys here and below are the path of a page and the id of a
        # session.
        self._readers: Counter[tuple[str, str]] = Counter()
        self._last_event: dict[tuple[str, str], float] = {}
        # The timers that drop unread messages.
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}
        # Kept, because asyncio has only weak references to tasks.
        self._dropping: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path.endswith(JOIN) and scope["method"] == "POST":
            await self._join(scope, receive, send)
        elif path.endswith(READ) and scope["method"] == "GET":
            await self._read(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _join(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes an event on to Gradio, unless too many events of its visitor wait."""
        visitor = visitor_of(HTTPConnection(scope))
        if self.waiting.count(visitor) >= MOST_WAITING:
            sentence = f"{MOST_WAITING} events from your address wait for their turn; wait until one is answered"
            refusal = error_answer(scope["path"], 429, sentence, {"Retry-After": "1"})
            await refusal(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        try:
            session = str(json.loads(body)["session_hash"])
        except (ValueError, KeyError, TypeError):
            # Gradio refuses such a request.
            await self.app(scope, replay(body, receive), send)
            return
        key = (scope["path"].removesuffix(JOIN), session)
        # Noted now, and again after the answer: the page may open its reader before this task has the
        # whole answer.
        self._note(key)
        answer = bytearray()

        async def send_and_record(message: Message) -> None:
            answer.extend(message.get("body", b""))
            await send(message)

        await self.app(scope, replay(body, receive), send_and_record)
        try:
            event = str(json.loads(answer)["event_id"])
        except (ValueError, KeyError, TypeError):
            # Gradio has refused the event.
            return
        self.waiting.add(event, visitor)
        self._note(key)
        self._drop_later(scope, key)

    def _note(self, key: tuple[str, str]) -> None:
        """Notes the time of an event of a session, and forgets sessions whose last event is old."""
        now = time.monotonic()
        oldest = now - UNREAD_SECONDS
        entries = self._last_event.items()
        self._last_event = {earlier: last for earlier, last in entries if last > oldest}
        self._last_event[key] = now

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a reader of messages on to Gradio, unless its session has no events."""
        session = HTTPConnection(scope).query_params.get("session_hash", "")
        key = (scope["path"].removesuffix(READ), session)
        timer = self._timers.pop(key, None)
        began = time.monotonic()
        # A reader is allowed after a recent event, even if an earlier reader has read its messages.
        last = self._last_event.get(key, -math.inf)
        has_recent_event = began - last < UNREAD_SECONDS
        # An open reader has removed the timer, and the last event may be older.
        has_reader = self._readers[key] > 0
        if timer is None and not has_recent_event and not has_reader:
            sentence = "there are no events of this session; reload the page"
            await error_answer(scope["path"], 404, sentence)(scope, receive, send)
            return
        if timer is not None:
            timer.cancel()
        self._readers[key] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._readers[key] -= 1
            # This removes keys with zero, which Counter would keep.
            self._readers += Counter()
            if self._last_event.get(key, began) > began:
                # An event came while this reader was open. If it has not read the answer, the page
                # opens another one.
                self._drop_later(scope, key)

    def _drop_later(self, scope: Scope, key: tuple[str, str]) -> None:
        """Drops the messages of a session after a while, unless a reader is open or is opened by then."""
        if not self._readers[key] and key not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(UNREAD_SECONDS, self._drop, scope, key)

    def _drop(self, scope: Scope, key: tuple[str, str]) -> None:
        """Called by the timer of a session: forgets the session, and discards its messages."""
        del self._timers[key]
        self._last_event.pop(key, None)
        task = asyncio.create_task(self._discard(scope, key))
        self._dropping.add(task)
        task.add_done_callback(self._dropping.discard)

    async def _discard(self, scope: Scope, key: tuple[str, str]) -> None:
        """Makes Gradio drop the messages of a session by a reader that starts and disconnects."""
        page, session = key

        async def receive() -> Message:
            await asyncio.sleep(BEGINNING_SECONDS)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            """Discards the messages."""

        query = urlencode({"session_hash": session}).encode()
        reading = {**scope, "method": "GET", "path": page + READ, "query_string": query}
        await self.app(reading, receive, send)
