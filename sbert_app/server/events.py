"""Events that pages put into Gradio's queue: how many of an address may wait, and messages that nobody reads.

A page posts an event to ``queue/join`` and then reads the messages of its session at ``queue/data``. Gradio keeps
events and messages until their turn comes or somebody reads them; one visitor could fill the queue of a page, or the
memory.
"""

import asyncio
import json
import time
from collections import Counter
from urllib.parse import urlencode

from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.server.errors import error_answer
from sbert_app.server.limits import replay
from sbert_app.services.access import visitor_of

JOIN, READ = "/gradio_api/queue/join", "/gradio_api/queue/data"
# Events of one address that wait for their turn. A class may share an address, and a page sends some at once.
MOST_WAITING = 128
# An event whose page has gone never gets its turn.
WAITING_SECONDS = 600.0
# Messages that nobody has begun to read for so long are dropped.
UNREAD_SECONDS = 60.0
# A reader that breaks off has begun to read after this time.
BEGINNING_SECONDS = 0.1


class WaitingEvents:
    """The events that wait, by their ids, with the address of their visitor."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, float]] = {}
        # An event may begin before its id has been answered.
        self._early: set[str] = set()

    def count(self, visitor: str) -> int:
        """The events of a visitor that wait."""
        oldest = time.monotonic() - WAITING_SECONDS
        self._waiting = {event: entry for event, entry in self._waiting.items() if entry[1] > oldest}
        return sum(entry[0] == visitor for entry in self._waiting.values())

    def add(self, event: str, visitor: str) -> None:
        if event in self._early:
            self._early.remove(event)
        else:
            self._waiting[event] = (visitor, time.monotonic())

    def begin(self, event: str) -> None:
        """The turn of an event has come."""
        if self._waiting.pop(event, None) is None:
            self._early.add(event)


# Those of all pages.
WAITING = WaitingEvents()


class BoundedEvents:
    """ASGI middleware that refuses events of an address beyond `MOST_WAITING`, and drops messages nobody reads.

    Args:
        waiting: is told by `WholeSteps` when the turn of an event has come.
    """

    def __init__(self, app: ASGIApp, waiting: WaitingEvents) -> None:
        self.app = app
        self.waiting = waiting
        # By the path of the page and the session: open readers, the time of the last event, and the call that drops
        # unread messages.
        self._readers: Counter[tuple[str, str]] = Counter()
        self._joined: dict[tuple[str, str], float] = {}
        self._unread: dict[tuple[str, str], asyncio.TimerHandle] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path.endswith(JOIN) and scope["method"] == "POST":
            await self._join(scope, receive, send)
        elif path.endswith(READ) and scope["method"] == "GET":
            await self._read(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _join(self, scope: Scope, receive: Receive, send: Send) -> None:
        visitor = visitor_of(HTTPConnection(scope))
        if self.waiting.count(visitor) >= MOST_WAITING:
            sentence = f"{MOST_WAITING} events from your address wait for their turn; wait until one is answered"
            await error_answer(scope["path"], 429, sentence, {"Retry-After": "1"})(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        try:
            session = str(json.loads(body)["session_hash"])
        except (ValueError, KeyError, TypeError):
            # Gradio refuses it.
            await self.app(scope, replay(body, receive), send)
            return
        key = (scope["path"].removesuffix(JOIN), session)
        # The page may open its reader before this task goes on after the answer.
        self._note(key)
        answer = bytearray()

        async def sending(message: Message) -> None:
            answer.extend(message.get("body", b""))
            await send(message)

        await self.app(scope, replay(body, receive), sending)
        try:
            event = str(json.loads(answer)["event_id"])
        except (ValueError, KeyError, TypeError):
            # It was refused.
            return
        self.waiting.add(event, visitor)
        self._note(key)
        self._drop_later(scope, key)

    def _note(self, key: tuple[str, str]) -> None:
        """Notes that an event of a session has come."""
        now = time.monotonic()
        self._joined = {page: joined for page, joined in self._joined.items() if now - joined < UNREAD_SECONDS}
        self._joined[key] = now

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = HTTPConnection(scope).query_params.get("session_hash", "")
        key = (scope["path"].removesuffix(READ), session)
        timer = self._unread.pop(key, None)
        began = time.monotonic()
        # A page may open a reader after another one has brought its answer.
        is_known = began - self._joined.get(key, -UNREAD_SECONDS) < UNREAD_SECONDS
        if timer is None and not is_known and not self._readers[key]:
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
            # Counter keeps zeros.
            self._readers += Counter()
            if self._joined.get(key, began) > began:
                # This reader may have ended before an event that came while it was open; the page opens another one.
                self._drop_later(scope, key)

    def _drop_later(self, scope: Scope, key: tuple[str, str]) -> None:
        """Drops the messages of a session after a while, unless a reader is open or opens until then."""
        if not self._readers[key] and key not in self._unread:
            loop = asyncio.get_running_loop()
            self._unread[key] = loop.call_later(UNREAD_SECONDS, self._drop, scope, key)

    def _drop(self, scope: Scope, key: tuple[str, str]) -> None:
        del self._unread[key]
        self._joined.pop(key, None)
        # Referred to until it has ended.
        self._dropping = asyncio.create_task(self._break_off(scope, key))

    async def _break_off(self, scope: Scope, key: tuple[str, str]) -> None:
        """Shows Gradio a reader that begins and goes away, at which it drops the messages of the session."""
        page, session = key

        async def receive() -> Message:
            await asyncio.sleep(BEGINNING_SECONDS)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            """Nobody reads it."""

        query = urlencode({"session_hash": session}).encode()
        await self.app({**scope, "method": "GET", "path": page + READ, "query_string": query}, receive, send)
