"""Of Gradio's own routes those are open that a page needs, and no others, whatever a new version brings."""

from collections.abc import Iterable, Iterator

import gradio as gr
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from sbert_app.server.app import create_app
from sbert_app.server.gradio_routes import is_open, without_deep_link
from sbert_app.services.access import PUBLIC_RUNS
from sbert_app.services.container import Services
from sbert_app.settings import Settings

NEEDED = {
    "GET": {
        *(
            "/",
            "/config",
            "/theme.css",
            "/favicon.ico",
            "/robots.txt",
            "/manifest.json",
            "/pwa_icon",
        ),
        *("/assets/{path:path}", "/static/{path:path}", "/svelte/{path:path}"),
        *(
            "/gradio_api/info",
            "/gradio_api/file={path_or_url:path}",
            "/gradio_api/heartbeat/{session_hash}",
        ),
        *(
            "/gradio_api/queue/data",
            "/gradio_api/queue/status",
            "/gradio_api/upload_progress",
            "/gradio_api/app_id",
        ),
    },
    "POST": {
        *(
            "/gradio_api/queue/join",
            "/gradio_api/cancel",
            "/gradio_api/reset",
            "/gradio_api/upload",
        ),
        *("/gradio_api/run/{api_name}", "/gradio_api/api/{api_name}"),
    },
}
REFUSED = {
    ("GET", "/pwa_icon/{size}"),
    ("GET", "/login_check"),
    *(
        ("GET", f"/gradio_api/{path}")
        for path in ("user", "login_check", "token", "dev/reload", "deep_link")
    ),
    *(
        ("GET", f"/gradio_api/{path}")
        for path in ("runs", "run-history/buckets", "run-history/records", "openapi.json")
    ),
    ("GET", "/gradio_api/run-history/records/{endpoint}/{record_id}/assets/{asset_id}"),
    ("GET", "/gradio_api/custom_component/{id}/{environment}/{type}/{file_name}"),
    ("GET", "/gradio_api/proxy={url_path:path}"),
    ("GET", "/gradio_api/stream/{session_hash}/{run}/{component_id}/playlist.m3u8"),
    ("GET", "/gradio_api/stream/{session_hash}/{run}/{component_id}/{segment_id}.{ext}"),
    ("GET", "/gradio_api/stream/{session_hash}/{run}/{component_id}/playlist-file"),
    ("GET", "/gradio_api/file/{path:path}"),
    ("GET", "/gradio_api/call/{api_name}/{event_id}"),
    ("GET", "/gradio_api/call/v2/{api_name}/{event_id}"),
    *(("GET", f"/gradio_api/{path}") for path in ("startup-events", "theme.css", "vibe-code")),
    *(
        ("GET", path)
        for path in (
            "/openapi.json",
            "/logout",
            "/monitoring",
            "/monitoring/summary",
            "/monitoring/{key}",
        )
    ),
    *(("POST", path) for path in ("/login", "/gradio_api/run-history/connect")),
    *(("POST", f"/gradio_api/call/{path}") for path in ("{api_name}", "v2/{api_name}")),
    *(("POST", f"/gradio_api/stream/{path}") for path in ("{event_id}", "{event_id}/close")),
    *(
        ("POST", f"/gradio_api/{path}")
        for path in ("component_server", "process_recording", "vibe-edit", "vibe-code")
    ),
    *(("POST", f"/gradio_api/{path}") for path in ("undo-vibe-edit", "vibe-starter-queries")),
}


def routes_of(routes: Iterable[object]) -> Iterator[tuple[str, str]]:
    """(method, path) of the routes of an app of FastAPI, those of included routers too."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from routes_of(inner.routes)
            continue
        for method in getattr(route, "methods", None) or ():
            if method != "HEAD":
                yield method, getattr(route, "path", "").rstrip("/") or "/"


def gradios_routes() -> set[tuple[str, str]]:
    with gr.Blocks(analytics_enabled=False) as page:
        gr.Textbox()
    app = gr.mount_gradio_app(FastAPI(), page, "/", pwa=True)
    [mounted] = [
        route.app for route in app.routes if isinstance(getattr(route, "app", None), FastAPI)
    ]
    return set(routes_of(mounted.routes))


def test_each_route_of_gradio_is_on_the_list_or_refused():
    routes = gradios_routes()
    assert len(routes) > 40
    needed = {(method, path) for method, paths in NEEDED.items() for path in paths}
    assert routes - needed - REFUSED == set(), (
        "new in this version of Gradio: does a page need them?"
    )
    assert needed <= routes
    for method, path in needed:
        assert is_open(
            method,
            path.replace("{path_or_url:path}", "/srv/a.csv").replace("{api_name}", "compare"),
        ), path
    for method, path in REFUSED:
        assert not is_open(method, path), path


@pytest.mark.parametrize(
    "path", ["/pwa_icon/6000", "/pwa_icon/192/x", "/gradio_api/file=", "/nothing", "/gradio_api/"]
)
def test_other_addresses_are_not_open(path):
    assert not is_open("GET", path)
    assert not is_open("POST", path)
    assert not is_open("DELETE", path)


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        (b"deep_link=abc", b""),
        (b"a=1&deep_link=abc&b=", b"a=1&b="),
        (b"a=1&deep%5Flink=abc", b"a=1"),
        (b"a=x%20y", b"a=x%20y"),
    ],
)
def test_a_deep_link_is_dropped(query, rest):
    assert without_deep_link({"query_string": query})["query_string"] == rest


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Iterator[TestClient]:
    services = Services.start(Settings(home=tmp_path_factory.mktemp("home")))
    with TestClient(create_app(services), base_url="http://localhost") as client:
        yield client


def test_the_form_of_a_public_app_says_how_large_a_run_may_be(tmp_path):
    services = Services.start(Settings(home=tmp_path, public=True))
    with TestClient(create_app(services), base_url="http://localhost") as client:
        assert PUBLIC_RUNS in client.get("/train/config").text


@pytest.mark.parametrize("page", ["", "/learn"])
def test_pages_answer_their_own_addresses_alone(client, page):
    assert client.get(f"{page}/config").status_code == 200
    assert client.get(f"{page}/gradio_api/info").status_code == 200
    for method, path in (
        ("GET", "/gradio_api/deep_link?session_hash=plain"),
        ("GET", "/pwa_icon/6000"),
        ("POST", "/gradio_api/process_recording"),
        ("POST", "/gradio_api/component_server"),
        ("GET", "/gradio_api/queue/data?session_hash=nobody"),
    ):
        answer = client.request(method, page + path)
        assert (answer.status_code, list(answer.json())) == (404, ["error"]), path


def test_an_event_that_no_page_sends_is_refused_in_one_sentence(client, caplog):
    part = b'--x\r\nContent-Disposition: form-data; name="files"\r\n\r\nhello\r\n--x--\r\n'
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    event = {"data": [], "fn_index": 99_999, "session_hash": "x"}
    for path, content in (
        ("/gradio_api/upload", {"content": part, "headers": form}),
        ("/gradio_api/queue/join", {"json": event}),
    ):
        answer = client.post(path, **content)
        assert (answer.status_code, "reload it" in answer.json()["error"]) == (400, True)
    assert client.post("/gradio_api/run/nothing", json={"data": []}).status_code == 404
    few = client.post("/gradio_api/run/compare", json={"data": ["a"]})
    assert few.json()["error"] == "the request holds values that this page does not send"
    assert "Traceback" not in caplog.text


def test_the_address_of_the_app_is_not_what_a_header_says(client):
    answer = client.get("/config", headers={"X-Forwarded-Host": "evil.example"})
    assert "evil.example" not in answer.text
