"""The guard in front of the app: hosts, origins, logins, headers. The app behind it is a stand-in that answers "in"."""

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sbert_app.pages.server.guard import (
    FREE_ATTEMPTS,
    AllowedHosts,
    Guard,
    PasswordCheck,
    has_token,
    is_same_origin,
)

EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing is bound here
RUN = "/gradio_api/run/list_runs"
MCP = "/gradio_api/mcp/"


async def anything(request):
    return PlainTextResponse(f"in {request.cookies.get('access-token-unsecure-c', '')}".strip())


async def login(request):
    right = (await request.body()) == b"right"
    response = JSONResponse({"success": right}, status_code=200 if right else 400)
    response.set_cookie("access-token-c", "s1", httponly=True, samesite="none", secure=True)
    return response


BEHIND = Starlette(
    routes=[
        Route("/login", login, methods=["POST"]),
        Route("/{path:path}", anything, methods=["GET", "POST", "OPTIONS", "DELETE"]),
    ]
)


def client(bound="127.0.0.1", extra=(), base="http://127.0.0.1:7860", **options) -> TestClient:
    return TestClient(Guard(BEHIND, AllowedHosts(bound, extra), **options), base_url=base)


def with_login(**options) -> TestClient:
    return client(user_of={"s1": "teacher"}.get, session="s2", cookie="c", **options)


class TestHosts:
    @pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost", "LOCALHOST:1", "[::1]:7860"])
    def test_loopback_is_always_answered(self, host):
        assert client().post(RUN, headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host",
        ["evil.example", "evil.example:7860", "127.0.0.1.evil.example", "192.168.1.5", "", "[::1", "a@127.0.0.1:x"],
    )
    def test_other_names_are_refused_however_the_request_looks(self, host):
        for method in ("GET", "POST", "OPTIONS"):
            answer = client().request(method, RUN, headers={"Host": host})
            assert answer.status_code == 403
            assert "--allow-host" in answer.json()["error"]

    def test_the_bound_address_and_allowed_names_are_answered(self):
        lab = client(bound="192.168.1.5", extra=["lab.example"])
        assert lab.get("/", headers={"Host": "192.168.1.5:80"}).status_code == 200
        assert lab.get("/", headers={"Host": "lab.example"}).status_code == 200
        assert lab.get("/", headers={"Host": "192.168.1.6"}).status_code == 403

    def test_bound_to_all_addresses_any_address_is_answered_and_still_no_foreign_name(self):
        lab = client(bound=EVERYWHERE)
        assert lab.get("/", headers={"Host": "10.1.2.3:7860"}).status_code == 200
        assert lab.get("/", headers={"Host": "evil.example"}).status_code == 403

    def test_the_host_of_a_space_is_answered(self, monkeypatch):
        monkeypatch.setenv("SPACE_HOST", "me-lab.hf.space")
        assert client(bound=EVERYWHERE).get("/", headers={"Host": "me-lab.hf.space"}).status_code == 200


class TestOrigins:
    @pytest.mark.parametrize(
        "origin", ["http://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1:1", "http://[", ""]
    )
    @pytest.mark.parametrize("path", [RUN, "/gradio_api/upload", MCP, "/login"])
    def test_pages_of_other_sites_are_refused_on_every_path(self, origin, path):
        for method in ("POST", "OPTIONS", "DELETE"):
            answer = client().request(method, path, headers={"Origin": origin})
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers

    def test_own_pages_are_answered(self):
        assert client().post(RUN, headers={"Origin": "http://127.0.0.1:7860"}).status_code == 200
        assert (
            client(extra=["lab.example"])
            .post(RUN, headers={"Host": "lab.example", "Origin": "https://lab.example"})
            .is_success
        )  # a proxy in front speaks TLS

    def test_scripts_that_name_no_origin_are_answered(self):
        assert client().post(RUN).text == "in"

    def test_a_link_from_another_site_opens_the_page_but_its_scripts_read_nothing(self):
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert client().get("/learn", headers=link).status_code == 200
        assert client().get("/config", headers={**link, "Sec-Fetch-Mode": "no-cors"}).status_code == 403

    def test_ports_tell_origins_apart(self):
        assert is_same_origin("http://localhost:7860", "localhost:7860")
        assert not is_same_origin("http://localhost:7861", "localhost:7860")


class TestLogin:
    @pytest.mark.parametrize("path", ["/config", RUN, MCP, "/gradio_api/mcp/sse", "/gradio_api/reset", "/openapi.json"])
    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_without_a_login_nothing_is_answered(self, path, method):
        answer = with_login().request(method, path)
        assert answer.status_code == 401
        assert "log in" in answer.json()["error"]

    def test_the_form_and_what_it_needs_are_open(self):
        lab = with_login(pages=frozenset({"/", "/bulk"}))
        for path in ("/", "/bulk", "/bulk/", "/assets/index.js", "/theme.css", "/favicon.ico"):
            assert lab.get(path).status_code == 200
        assert lab.post("/bulk").status_code == 401
        assert lab.post("/login", content=b"right").status_code == 200

    def test_a_session_of_the_app_is_let_in_and_another_is_not(self):
        assert with_login().get("/config", headers={"Cookie": "access-token-c=s1"}).status_code == 200
        assert with_login().get("/config", headers={"Cookie": "access-token-c=other"}).status_code == 401

    def test_a_machine_shows_its_token_and_gets_a_session(self):
        lab = with_login(token="secret")
        assert lab.post(MCP, headers={"Authorization": "Bearer secret"}).text == "in s2"
        for wrong in ("Bearer other", "Basic secret", "secret", "Bearer "):
            assert lab.post(MCP, headers={"Authorization": wrong}).status_code == 401
        assert with_login().post(MCP, headers={"Authorization": "Bearer None"}).status_code == 401

    def test_gradio_reaches_its_own_start_event_until_it_has_started(self):
        starting = True
        lab = with_login(is_starting=lambda: starting)
        assert lab.get("/gradio_api/startup-events").status_code == 200
        starting = False
        assert lab.get("/gradio_api/startup-events").status_code == 401

    def test_guessing_is_slowed_down(self):
        lab = with_login()
        codes = [lab.post("/login", content=b"wrong").status_code for _ in range(FREE_ATTEMPTS + 3)]
        assert codes == [400] * FREE_ATTEMPTS + [429] * 3
        refused = lab.post("/login", content=b"right")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1


def test_passwords_are_compared_whole():
    check = PasswordCheck("teacher", "pässword")
    assert check("teacher", "pässword")
    assert not check("teacher", "password")
    assert not check("Teacher", "pässword")
    assert not check("", "")
    assert "pässword" not in repr(vars(check))


def test_no_token_is_never_right():
    assert has_token("Bearer x", "x")
    assert not has_token("Bearer ", "")
    assert not has_token("", None)


class TestHeaders:
    def test_every_answer_carries_them_refusals_too(self):
        for answer in (client().get("/"), client().get("/", headers={"Host": "evil.example"})):
            assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "SAMEORIGIN"
            assert answer.headers["referrer-policy"] == "same-origin"

    def test_a_space_may_be_shown_in_the_frame_of_its_page(self):
        headers = client(on_space=True).get("/").headers
        assert "https://huggingface.co" in headers["content-security-policy"]
        assert "x-frame-options" not in headers

    def test_session_cookies_stay_on_this_site(self):
        cookie = with_login().post("/login", content=b"right").headers["set-cookie"]
        assert "SameSite=Lax" in cookie
        assert "none" not in cookie.lower()
        assert "HttpOnly" in cookie
