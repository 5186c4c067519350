"""Which hosts and origins are answered, and what every answer tells the browser. The app behind is a stand-in."""

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sbert_app.hosts import AllowedHosts, is_same_origin
from sbert_app.server.hosts import AnswerHeaders, OwnSite

EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing is bound here
RUN = "/gradio_api/run/list_runs"
MCP = "/gradio_api/mcp/"


async def anything(request):
    return PlainTextResponse("in")


def client(
    bound="127.0.0.1", extra=(), base="http://127.0.0.1:7860", on_space=False, origins=()
) -> TestClient:
    routes = [Route("/{path:path}", anything, methods=["GET", "POST", "OPTIONS", "DELETE"])]
    own = Middleware(OwnSite, hosts=AllowedHosts(bound, extra), origins=origins)
    outside = [Middleware(AnswerHeaders, on_space=on_space), own]
    return TestClient(Starlette(routes=routes, middleware=outside), base_url=base)


class TestHosts:
    def test_loopback_is_always_answered(self):
        for host in ("127.0.0.1:7860", "LOCALHOST:1", "[::1]:7860"):
            assert client().post(RUN, headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host", ["evil.example:7860", "127.0.0.1.evil.example", "", "[::1", "a@127.0.0.1:x"]
    )
    def test_other_names_are_refused_however_the_request_looks(self, host):
        for method in ("GET", "POST", "OPTIONS"):
            answer = client().request(method, RUN, headers={"Host": host})
            assert answer.status_code == 403
            assert "--allow-host" in answer.json()["error"]

    def test_bound_addresses_allowed_names_and_hosts_of_spaces_are_answered(self, monkeypatch):
        lab = client(bound="192.168.1.5", extra=["lab.example"])
        assert lab.get("/", headers={"Host": "192.168.1.5:80"}).status_code == 200
        assert lab.get("/", headers={"Host": "lab.example"}).status_code == 200
        assert lab.get("/", headers={"Host": "192.168.1.6"}).status_code == 403
        lab = client(bound=EVERYWHERE)
        assert lab.get("/", headers={"Host": "10.1.2.3:7860"}).status_code == 200
        assert lab.get("/", headers={"Host": "evil.example"}).status_code == 403
        monkeypatch.setenv("SPACE_HOST", "me-lab.hf.space")
        assert (
            client(bound=EVERYWHERE).get("/", headers={"Host": "me-lab.hf.space"}).status_code
            == 200
        )


class TestOrigins:
    @pytest.mark.parametrize(
        "origin",
        [
            "http://evil.example",
            "null",
            "http://localhost.evil.example",
            "http://127.0.0.1:1",
            "http://[",
            "",
        ],
    )
    @pytest.mark.parametrize("path", [RUN, "/gradio_api/upload", MCP, "/login"])
    def test_pages_of_other_sites_are_refused_on_every_path(self, origin, path):
        for method in ("POST", "OPTIONS", "DELETE"):
            answer = client().request(method, path, headers={"Origin": origin})
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers

    def test_pages_of_an_allowed_origin_may_send_requests(self):
        lab = client(origins=["app://obsidian.md"])
        assert lab.post(RUN, headers={"Origin": "app://obsidian.md"}).text == "in"
        for other in ("app://other", "http://evil.example"):
            assert lab.post(RUN, headers={"Origin": other}).status_code == 403

    def test_own_pages_links_and_scripts_without_an_origin_are_answered(self):
        assert client().post(RUN, headers={"Origin": "http://127.0.0.1:7860"}).status_code == 200
        # A proxy in front speaks TLS.
        behind_proxy = {"Host": "lab.example", "Origin": "https://lab.example"}
        assert client(extra=["lab.example"]).post(RUN, headers=behind_proxy).is_success
        assert client().post(RUN).text == "in"
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert client().get("/learn", headers=link).status_code == 200
        assert (
            client().get("/config", headers={**link, "Sec-Fetch-Mode": "no-cors"}).status_code
            == 403
        )
        assert is_same_origin("http://localhost:7860", "localhost:7860")
        assert not is_same_origin("http://localhost:7861", "localhost:7860")


class TestHeaders:
    def test_every_answer_carries_the_security_headers(self):
        for answer in (client().get("/"), client().get("/", headers={"Host": "evil.example"})):
            assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "SAMEORIGIN"
            assert answer.headers["referrer-policy"] == "same-origin"

    def test_a_space_may_be_framed(self):
        headers = client(on_space=True).get("/").headers
        assert "https://huggingface.co" in headers["content-security-policy"]
        assert "x-frame-options" not in headers

    def test_hashed_files_are_cached_by_the_browser(self):
        assert "immutable" in client().get("/assets/index-DphvyggB.js").headers["cache-control"]
        assert "cache-control" not in client().get("/").headers
