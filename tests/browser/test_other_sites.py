"""What the page of another site can do to the app on this machine, in a real Chromium: nothing."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

RUN = {"base": "scratch:1x32", "max_steps": 1, "name": "by another site"}
ASK = """async ([url, mode, type, body]) => {
  try {
    const headers = {"Content-Type": type};
    const answer = await fetch(url, {method: "POST", mode, headers, body: JSON.stringify(body)});
    return answer.type + " " + (await answer.text());
  } catch (error) { return String(error); }
}"""
UPLOAD = """async (url) => {
  const form = new FormData();
  form.append("files", new File(["a"], "from-another-site.csv"));
  try {
    return (await fetch(url, {method: "POST", mode: "no-cors", body: form})).type;
  } catch (error) { return String(error); }
}"""
READ = """async (url) => { try { return await (await fetch(url)).text(); } catch (error) { return String(error); } }"""
FRAME = """async (url) => {
  const frame = document.createElement("iframe");
  frame.src = url;
  document.body.append(frame);
  await new Promise((resolve) => { frame.onload = resolve; setTimeout(resolve, 5000); });
  try { return frame.contentDocument ? "read" : "unreadable"; } catch (error) { return "unreadable"; }
}"""


class Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>elsewhere</title><body>")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def other_site(chromium: Browser) -> Iterator[Page]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = chromium.new_context()
    page = context.new_page()
    # Chromium takes names in .localhost for this machine.
    page.goto(f"http://elsewhere.localhost:{server.server_port}/")
    yield page
    context.close()
    server.shutdown()


def runs(home: Path) -> set[str]:
    return {file.name for file in (home / "runs").glob("*")}


def test_another_site_starts_no_run_reads_and_uploads_nothing(other_site, app_url, home):
    before = runs(home)
    for mode in ("cors", "no-cors"):
        for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
            told = other_site.evaluate(ASK, [f"{app_url}/api/start_run", mode, kind, RUN])
            assert "TypeError" in told or told.strip() == "opaque"
    for path in ("/config", "/v1/models", "/metrics", "/gradio_api/info"):
        assert "TypeError" in other_site.evaluate(READ, app_url + path)
    other_site.evaluate(UPLOAD, f"{app_url}/gradio_api/upload")
    assert other_site.evaluate(FRAME, f"{app_url}/train") == "unreadable"
    assert runs(home) == before
    assert not list((home / "tmp").rglob("from-another-site.csv"))


def test_a_name_that_was_rebound_to_this_machine_is_not_answered(chromium, app_url, home):
    before = runs(home)
    context = chromium.new_context()
    page = context.new_page()
    answer = page.goto(f"http://rebound.localhost:{urlsplit(app_url).port}/favicon.ico")
    assert answer is not None and answer.status == 403
    for path, body in (
        ("list_runs", {}),
        ("start_run", RUN),
        ("evaluate", {"data": "stsb:dev", "model": "tfidf"}),
    ):
        told = page.evaluate(ASK, [f"/api/{path}", "cors", "application/json", body])
        assert "does not answer under that host name" in told
    assert runs(home) == before
    context.close()
