"""Open pages hold no connection, and the app learns all the same when one is left."""

import threading

import gradio as gr
import httpx
import pytest
from starlette.middleware import Middleware

from sbert_app.pages.server.heartbeat import HEARTBEAT, ShortHeartbeats

PATIENCE = 60.0


@pytest.fixture
def left():
    """The sessions that the app has seen leave, and an event that is set at each."""
    return [], threading.Event()


@pytest.fixture
def url(left):
    sessions, seen = left

    def leave(request: gr.Request) -> None:
        sessions.append(request.session_hash)
        seen.set()

    with gr.Blocks(analytics_enabled=False) as app:
        gr.State()
        app.unload(leave)
    options = {"app_kwargs": {"middleware": [Middleware(ShortHeartbeats)]}, "_frontend": False}
    _, address, _ = app.launch(prevent_thread_lock=True, quiet=True, ssr_mode=False, **options)
    yield address.rstrip("/")
    app.close(verbose=False)


def test_a_heartbeat_ends_at_once_and_nobody_has_left(url, left):
    answer = httpx.get(f"{url}{HEARTBEAT}abc", timeout=PATIENCE)
    assert (answer.status_code, answer.text) == (200, "data: ALIVE\n\n")
    assert left[0] == []


def test_a_page_that_is_left_says_so(url, left):
    sessions, seen = left
    assert httpx.post(f"{url}{HEARTBEAT}abc", timeout=PATIENCE).status_code == 204
    assert seen.wait(PATIENCE)
    assert sessions == ["abc"]
