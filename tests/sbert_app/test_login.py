"""`server/login.py` in a real app with MCP: what is answered without a login, and to whose pages."""

import json
import re
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from running_app import RunningApp

from sbert_app.server.login import FREE_ATTEMPTS

START = {"base": "scratch:1x32", "max_steps": 1, "name": "by nobody"}
ORIGIN = "app://obsidian.md"
MCP = {"Accept": "application/json, text/event-stream"}

READ = (
    *(
        "/config",
        "/bulk?job=0",
        "/label",
        "/gradio_api/info",
        "/gradio_api/openapi.json",
        "/openapi.json",
        "/docs",
    ),
    *(
        "/gradio_api/queue/status",
        "/gradio_api/queue/data?session_hash=x",
        "/gradio_api/heartbeat/x",
    ),
    *(
        "/gradio_api/mcp/schema",
        "/gradio_api/mcp/sse",
        "/gradio_api/mcp/",
        "/gradio_api/file=assets/icon.png",
    ),
    *(
        "/gradio_api/startup-events",
        "/gradio_api/upload_progress?upload_id=x",
        "/gradio_api/monitoring",
    ),
    *(
        "/v1/models",
        "/v1/models/tfidf",
        "/metrics",
        "/learn/sheet",
        "/gradio_api/app_id",
        "/gradio_api/proxy=http://x/",
    ),
)
WRITTEN = {
    "/api/list_runs": {},
    "/api/start_run": START,
    "/gradio_api/run/list_runs": {"data": [50, ""]},
    "/gradio_api/call/list_runs": {"data": []},
    "/gradio_api/call/v2/list_runs": {},
    "/gradio_api/api/list_runs": {"data": []},
    "/gradio_api/queue/join": {"data": [], "fn_index": 0, "session_hash": "x"},
    "/gradio_api/reset": {"event_id": "x"},
    "/gradio_api/cancel": {"session_hash": "x", "fn_index": 0, "event_id": "x"},
    "/gradio_api/component_server": {
        "data": [],
        "component_id": 0,
        "fn_name": "x",
        "session_hash": "x",
    },
    "/gradio_api/mcp/": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    "/v1/embeddings": {"model": "all-MiniLM-L6-v2", "input": "x"},
    "/v1/rerank": {"model": "all-MiniLM-L6-v2", "query": "x", "documents": ["x"]},
}


@pytest.fixture(scope="module")
def app(shared_app: RunningApp) -> RunningApp:
    """As it answers those who have neither a session nor the token."""
    return replace(shared_app, headers={})


@pytest.mark.parametrize("path", READ)
def test_nothing_is_read_without_a_login(app, path):
    assert app.ask(path, headers={"Accept": "*/*"}).status == 401
    form = app.ask(path, headers={"Accept": "text/html"})
    assert form.status == 401 and 'type="password"' in form.text


@pytest.mark.parametrize("path", WRITTEN)
def test_nothing_is_asked_without_a_login(app, path):
    assert app.ask(path, WRITTEN[path], MCP).status == 401
    assert (
        app.ask(path, WRITTEN[path], {**MCP, "Authorization": "Bearer other-token"}).status == 401
    )
    assert (
        app.ask(path, WRITTEN[path], {**MCP, "Cookie": "sbert-lab=x; access-token=x"}).status == 401
    )


def test_nothing_is_uploaded_without_a_login(app):
    assert app.upload("from-nobody.csv", b"a").status == 401
    assert not list((app.home / "tmp").rglob("from-nobody.csv"))


def test_an_agent_with_the_token_may_use_the_tools_but_name_no_file(shared_app, tmp_path):
    secret = tmp_path / "secret.env"
    secret.write_text("PASSWORD=TOPSECRET\n")
    names = re.findall(r'"name":\s*"(\w+)"', all_of(shared_app, tool_body("tools/list")))
    assert {"compare", "evaluate", "start_run", "list_runs", "score_file"} <= set(names)
    arguments = {"sentences": ["A cat."], "model": "scratch:1x32"}
    answer = json.loads(
        all_of(shared_app, tool_body("tools/call", name="encode", arguments=arguments))
    )["result"]
    assert answer["structuredContent"]["dimension"] == 32
    asked = {"data": f"stsb:dev+{secret}", "model": "tfidf"}
    refused = all_of(shared_app, tool_body("tools/call", name="evaluate", arguments=asked))
    assert "cannot be used here" in refused
    assert "TOPSECRET" not in refused


def tool_body(method: str, **parameters: object) -> dict[str, object]:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": method,
        **({"params": parameters} if parameters else {}),
    }


def all_of(app: RunningApp, body: dict[str, object]) -> str:
    """The whole answer of the MCP server, which may come as a stream of events."""
    return httpx.post(
        f"{app.url}/gradio_api/mcp/", json=body, headers={**MCP, **app.headers}, timeout=120
    ).text


def test_whether_the_app_is_ready_is_said_without_a_login(app):
    answer = app.ask("/health")
    assert (answer.status, json.loads(answer.text)["status"]) == (200, "ready")


def test_password_guesses_with_forged_addresses_count_as_one_visitor(app):
    """The password stands in no list of processes, and many guesses hold up nobody."""
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = app.ask("/login", b"username=teacher&password=correct+horse", kind)
    assert answer.status == 200
    assert (
        app.ask("/api/list_runs", {}, {"Cookie": answer.headers["set-cookie"].split(";")[0]}).status
        == 200
    )
    command = Path(f"/proc/{app.process.pid}/cmdline")
    assert not command.exists() or b"correct horse" not in command.read_bytes()

    def guess(number: int) -> int:
        forged = {**kind, "X-Forwarded-For": f"10.0.0.{number}"}
        return app.ask("/login", b"username=teacher&password=guess", forged).status

    with ThreadPoolExecutor(60) as threads:
        answers = threads.map(guess, range(60))
        assert app.ask("/health", timeout=5).status in (200, 503)
        codes = list(answers)
    # One more may be judged whenever the delay is over.
    assert set(codes) == {401, 429} and FREE_ATTEMPTS <= codes.count(401) < 3 * FREE_ATTEMPTS


def test_the_page_of_an_allowed_origin_may_ask_before_it_sends_its_token(app, shared_app):
    asks = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    allowed = app.ask("/v1/embeddings", headers={"Origin": ORIGIN, **asks}, method="OPTIONS")
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, ORIGIN)
    assert (
        app.ask(
            "/v1/embeddings", headers={"Origin": "app://other", **asks}, method="OPTIONS"
        ).status
        == 403
    )
    answer = shared_app.ask("/v1/models", headers={"Origin": ORIGIN})
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, ORIGIN)


def test_other_accounts_of_the_machine_read_nothing_that_visitors_write(shared_app):
    [path] = json.loads(shared_app.upload("a.csv", b"sentence1,sentence2\na b,c d\n").text)
    file = {"path": path, "meta": {"_type": "gradio.FileData"}}
    assert shared_app.call("score_file", file=file, model="scratch:1x32").status == 200
    folders = [
        folder
        for folder in shared_app.home.iterdir()
        if folder.name not in ("models", "data", "numba")
    ]
    written = [
        path for folder in folders for path in (folder, *folder.rglob("*")) if path.is_file()
    ]
    assert len(written) > 3
    assert [path for path in written if path.stat().st_mode & 0o077] == []
    assert shared_app.home.stat().st_mode & 0o007 == 0


@pytest.mark.parametrize("path", ["/", "/gradio_api/upload", "/metrics"])
def test_every_answer_has_the_security_headers(app, shared_app, path):
    for asked in (app, shared_app):
        assert "frame-ancestors 'self'" in asked.ask(path).headers["content-security-policy"]


@pytest.mark.parametrize("name", ["x.html", "x.svg", "x.xml", "x.js"])
def test_an_upload_is_never_a_page_of_this_site(shared_app, name):
    uploaded = shared_app.upload(name, b"<script>alert(1)</script>")
    assert uploaded.status == 200
    path = urllib.parse.quote(json.loads(uploaded.text)[0])
    answer = shared_app.ask(f"/gradio_api/file={path}")
    assert "attachment" in answer.headers["content-disposition"]
    assert not re.search("html|svg|xml|javascript", answer.headers["content-type"])
