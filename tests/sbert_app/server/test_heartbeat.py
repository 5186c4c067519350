"""Open pages hold no connection, and the app learns all the same when one is left."""

import threading
from collections.abc import Iterator

import gradio as gr
import pytest
from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from sbert_app.server.workarounds import HEARTBEAT, ShortHeartbeats

PATIENCE = 60.0


@pytest.fixture
def left() -> tuple[list[str | None], threading.Event]:
    """The sessions that the app has seen leave, and an event that is set at each."""
    return [], threading.Event()


@pytest.fixture
def client(left) -> Iterator[TestClient]:
    sessions, seen = left

    def leave(request: gr.Request) -> None:
        sessions.append(request.session_hash)
        seen.set()

    with gr.Blocks(analytics_enabled=False) as pages:
        gr.State()
        pages.unload(leave)
    app = FastAPI(middleware=[Middleware(ShortHeartbeats)])
    with TestClient(gr.mount_gradio_app(app, pages, "/")) as client:
        yield client


def test_a_heartbeat_ends_at_once_and_nobody_has_left(client, left):
    answer = client.get(f"{HEARTBEAT}abc")
    assert (answer.status_code, answer.text) == (200, "data: ALIVE\n\n")
    assert left[0] == []


def test_a_page_that_is_left_says_so(client, left):
    sessions, seen = left
    assert client.post(f"{HEARTBEAT}abc").status_code == 204
    assert seen.wait(PATIENCE)
    assert sessions == ["abc"]
