"""`server/workarounds.py`: open pages hold no connection, and the app learns all the same when one is left."""

import threading

import gradio as gr
from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from sbert_app.server.workarounds import HEARTBEAT, ShortHeartbeats


def test_a_heartbeat_ends_at_once_and_a_page_that_is_left_says_so():
    sessions = []
    has_left = threading.Event()

    def leave(request: gr.Request) -> None:
        sessions.append(request.session_hash)
        has_left.set()

    with gr.Blocks(analytics_enabled=False) as pages:
        gr.State()
        pages.unload(leave)
    app = FastAPI(middleware=[Middleware(ShortHeartbeats)])
    with TestClient(gr.mount_gradio_app(app, pages, "/")) as client:
        answer = client.get(f"{HEARTBEAT}abc")
        assert (answer.status_code, answer.text) == (200, "data: ALIVE\n\n")
        assert sessions == []
        assert client.post(f"{HEARTBEAT}abc").status_code == 204
        assert has_left.wait(60)
    assert sessions == ["abc"]
