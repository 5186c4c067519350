"""`server/events.py`: an address has a bounded queue of events, and messages that nobody reads are dropped."""

import asyncio
import gc
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import gradio as gr
import pytest
from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.testclient import TestClient
from waiting import wait_until

from sbert_app.server import events
from sbert_app.server.events import JOIN, READ, BoundedEvents, WaitingEvents
from sbert_app.server.workarounds import WholeSteps


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> WaitingEvents:
    waiting = WaitingEvents()
    monkeypatch.setattr("sbert_app.server.workarounds.WAITING", waiting)
    return waiting


class Page:
    """A page with one event, which ends when it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()
        with WholeSteps(analytics_enabled=False) as self.blocks:
            gr.Button().click(self.work, None, gr.Textbox(), api_name="work", concurrency_limit=1)

    def work(self) -> str:
        self.entered.set()
        assert self.go_on.wait(30)
        return "done"


@pytest.fixture
def page() -> Iterator[Page]:
    page = Page()
    yield page
    page.go_on.set()


@pytest.fixture
def client(page: Page, waiting: WaitingEvents) -> Iterator[TestClient]:
    app = FastAPI(middleware=[Middleware(BoundedEvents, waiting=waiting)])
    with TestClient(gr.mount_gradio_app(app, page.blocks, "/"), client=("10.0.0.7", 1)) as client:
        yield client


def join(client: TestClient, session: str) -> Any:
    return client.post(JOIN, json={"data": [], "fn_index": 0, "session_hash": session})


def messages(client: TestClient, session: str) -> list[str]:
    """The messages of a session until its last event is done."""
    with client.stream("GET", READ, params={"session_hash": session}) as stream:
        return [
            json.loads(line[6:])["msg"] for line in stream.iter_lines() if line.startswith("data: ")
        ]


def test_an_address_has_so_many_events_that_wait(client, page, waiting, monkeypatch):
    monkeypatch.setattr(events, "MOST_WAITING", 2)
    assert join(client, "first").status_code == 200
    assert page.entered.wait(30)
    wait_until(lambda: waiting.count("10.0.0.7") == 0)
    assert [join(client, f"s{number}").status_code for number in range(2)] == [200, 200]
    refused = join(client, "more")
    assert refused.status_code == 429
    assert refused.json()["error"].startswith("2 events from your address wait")
    assert waiting.count("10.0.0.8") == 0
    page.go_on.set()
    wait_until(lambda: waiting.count("10.0.0.7") == 0)
    assert join(client, "more").status_code == 200


def test_messages_that_nobody_reads_are_dropped(client, page, monkeypatch):
    monkeypatch.setattr(events, "UNREAD_SECONDS", 0.5)
    page.go_on.set()
    join(client, "read")
    assert messages(client, "read")[-2:] == ["process_completed", "close_stream"]
    join(client, "unread")
    time.sleep(2)  # a look would read them
    assert client.get(READ, params={"session_hash": "unread"}).status_code == 404


def test_a_reader_of_a_session_without_events_is_told_so(client):
    answer = client.get(READ, params={"session_hash": "nobody"})
    assert (answer.status_code, answer.json()["error"]) == (
        404,
        "there are no events of this session; reload the page",
    )


def test_an_event_that_begins_before_its_id_is_known_does_not_wait():
    waiting = WaitingEvents()
    waiting.begin("early")
    waiting.add("early", "10.0.0.7")
    assert waiting.count("10.0.0.7") == 0


def test_an_event_that_begins_after_it_was_counted_is_forgotten(monkeypatch):
    waiting = WaitingEvents()
    waiting.add("late", "10.0.0.7")
    monkeypatch.setattr(events, "WAITING_SECONDS", 0.0)
    assert waiting.count("10.0.0.7") == 0
    waiting.begin("late")
    waiting.count("10.0.0.7")
    assert not waiting._early


def test_an_event_that_comes_while_a_reader_ends_can_be_read_by_the_next():
    ended = asyncio.Event()

    async def gradio(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == READ:
            await ended.wait()
        body = b'{"event_id": "1"}'
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    app = BoundedEvents(gradio, WaitingEvents())

    async def ask(method: str, path: str) -> int:
        statuses: list[int] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b'{"session_hash": "s"}', "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            statuses.append(message.get("status", 0))

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"session_hash=s",
            "headers": [],
        }
        await app({**scope, "client": ("10.0.0.7", 1)}, receive, send)
        return statuses[0]

    async def visit() -> tuple[int, int]:
        await ask("POST", JOIN)
        reader = asyncio.create_task(ask("GET", READ))
        await asyncio.sleep(0)
        await ask("POST", JOIN)
        ended.set()
        return await reader, await ask("GET", READ)

    assert asyncio.run(visit()) == (200, 200)


def test_the_messages_of_every_session_are_dropped_to_the_end(monkeypatch):
    monkeypatch.setattr(events, "UNREAD_SECONDS", 0.0)
    ended: list[str] = []

    async def gradio(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == READ:
            try:
                # Only this task refers to the future.
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append(scope["query_string"].decode())
        else:
            await send({"type": "http.response.body", "body": b'{"event_id": "1"}'})

    app = BoundedEvents(gradio, WaitingEvents())

    async def ask(session: str) -> None:
        async def receive() -> dict[str, Any]:
            body = json.dumps({"session_hash": session}).encode()
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            """Discards the answer."""

        scope = {"type": "http", "method": "POST", "path": JOIN, "headers": []}
        await app({**scope, "client": ("10.0.0.7", 1)}, receive, send)

    async def visit() -> list[str]:
        await ask("first")
        await ask("second")
        await asyncio.sleep(0.05)
        gc.collect()
        return list(ended)

    assert asyncio.run(visit()) == []
    assert sorted(ended) == ["session_hash=first", "session_hash=second"]
