"""`server/login.py`, with a stand-in for the app: who is let in, the form, the session, wrong passwords."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from sbert_app.server import login
from sbert_app.server.login import FREE_ATTEMPTS, Account, LoginRequired, has_token

RUN = "/gradio_api/run/list_runs"
MCP = "/gradio_api/mcp/"
HTML = {"Accept": "text/html,*/*"}
RIGHT = {"username": "teacher", "password": "right"}


def client(token: str | None = None, root_path: str = "") -> TestClient:
    account = Account("teacher", "right", token)
    app = FastAPI(
        middleware=[Middleware(LoginRequired, account=account, root_path=root_path)],
        openapi_url=None,
    )
    app.include_router(login.router(account, root_path))

    @app.api_route("/{path:path}", methods=["GET", "POST"])
    def anything(path: str) -> PlainTextResponse:
        return PlainTextResponse(f"in {path}")

    return TestClient(app, follow_redirects=False)


def test_without_a_login_only_health_icon_and_manifest_are_answered():
    for path in ("/", "/config", RUN, MCP, "/openapi.json", "/login/", "//health", "/assets/x.js"):
        for method in ("GET", "POST"):
            answer = client().request(method, path)
            assert answer.status_code == 401
            assert "log in" in answer.json()["error"]
    for path in ("/health", "/favicon.ico", "/manifest.json"):
        assert client().get(path).status_code == 200


def test_a_login_ends_by_itself(monkeypatch):
    now = 1_000.0
    monkeypatch.setattr(login.time, "monotonic", lambda: now)
    account = Account("teacher", "right", days=2)
    session = account.begin_session()
    headers = Headers({"cookie": f"{account.cookie}={session}"})
    now += 2 * 24 * 3600 - 1
    assert account.admits(headers)
    now += 2
    assert not account.admits(headers)
    other = account.begin_session()
    account.end_session(other)
    assert not account.admits(Headers({"cookie": f"{account.cookie}={other}"}))


def test_a_browser_gets_the_form_and_after_it_the_page_that_it_wanted():
    lab = client()
    form = lab.get("/bulk?job=1&x=%22", headers=HTML)
    assert form.status_code == 401
    assert (
        'name="page" value="/bulk?job=1&amp;x=%22"' in form.text and 'action="/login"' in form.text
    )
    wrong = lab.post(
        "/login", data={**RIGHT, "password": "wrong", "page": "/bulk?job=1"}, headers=HTML
    )
    assert wrong.status_code == 401
    assert (
        "The name or the password is wrong." in wrong.text and 'value="/bulk?job=1"' in wrong.text
    )
    answer = lab.post("/login", data={**RIGHT, "page": "/bulk?job=1"}, headers=HTML)
    assert (answer.status_code, answer.headers["location"]) == (303, "/bulk?job=1")
    assert lab.get("/bulk", headers=HTML).text == "in bulk"
    assert lab.post(RUN).status_code == 200
    assert lab.get("/logout", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 303
    assert lab.post(RUN).headers["cache-control"] == "no-store", (
        "the link of another site logs nobody out"
    )
    assert lab.get("/logout").status_code == 303
    assert lab.post(RUN).status_code == 401


def test_no_login_leads_to_another_site():
    for page in ("//evil.example", "/\\evil.example", "https://evil.example", ""):
        answer = client().post("/login", data={**RIGHT, "page": page}, headers=HTML)
        assert answer.headers["location"] == "/"


def test_behind_a_proxy_the_form_and_what_follows_have_its_path():
    lab = client(root_path="/lab")
    assert 'action="/lab/login"' in lab.get("/train", headers=HTML).text
    assert (
        lab.post("/login", data={**RIGHT, "page": "/train"}, headers=HTML).headers["location"]
        == "/lab/train"
    )


def test_a_program_logs_in_without_the_form():
    lab = client()
    assert lab.post("/login", data={**RIGHT, "password": "wrong"}).status_code == 401
    answer = lab.post("/login", data=RIGHT)
    assert answer.json() == {"success": True}
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Secure" not in cookie
    assert lab.get("/config").status_code == 200


def test_over_tls_the_login_cookie_is_secure():
    lab = client()
    assert "Secure" in lab.post("https://testserver/login", data=RIGHT).headers["set-cookie"]


def test_a_cookie_that_was_never_given_out_does_not_log_in():
    lab = client()
    name = lab.post("/login", data=RIGHT).headers["set-cookie"].partition("=")[0]
    lab.cookies.clear()
    for value in ("", "other", "None"):
        assert lab.get("/config", headers={"Cookie": f"{name}={value}"}).status_code == 401


def test_a_machine_logs_in_with_its_token():
    lab = client(token="secret")
    assert lab.post(MCP, headers={"Authorization": "Bearer secret"}).status_code == 200
    for wrong in ("Bearer other", "Basic secret", "secret", "Bearer "):
        assert lab.post(MCP, headers={"Authorization": wrong}).status_code == 401
    assert client().post(MCP, headers={"Authorization": "Bearer None"}).status_code == 401


def test_guessing_is_slowed_down():
    lab = client()
    wrong = {**RIGHT, "password": "wrong"}
    codes = [lab.post("/login", data=wrong).status_code for _ in range(FREE_ATTEMPTS + 3)]
    assert codes == [401] * FREE_ATTEMPTS + [429] * 3
    for headers in ({}, HTML):
        refused = lab.post("/login", data=RIGHT, headers=headers)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1


def test_simultaneous_password_guesses_are_counted_before_they_are_checked(monkeypatch):
    judged = []
    at_once = threading.Semaphore(1)

    def judge(self, user, password):
        assert at_once.acquire(blocking=False)
        time.sleep(0.05)
        at_once.release()
        judged.append(password)
        return password == "right"

    monkeypatch.setattr(Account, "is_right", judge)
    with client() as lab, ThreadPoolExecutor(30) as threads:
        guesses = [{**RIGHT, "password": f"guess {number}"} for number in range(30)]
        codes = [
            answer.status_code
            for answer in threads.map(lambda guess: lab.post("/login", data=guess), guesses)
        ]
    assert sorted(codes) == [401] * FREE_ATTEMPTS + [429] * (30 - FREE_ATTEMPTS)
    assert len(judged) == FREE_ATTEMPTS


def test_passwords_are_compared_whole():
    account = Account("teacher", "pässword")
    assert account.is_right("teacher", "pässword")
    assert not account.is_right("teacher", "password")
    assert not account.is_right("Teacher", "pässword")
    assert not account.is_right("", "\ud800")
    assert "pässword" not in repr(vars(account))


def test_without_a_token_none_is_right():
    assert has_token("Bearer x", "x")
    assert not has_token("Bearer ", "")
    assert not has_token("", None)
