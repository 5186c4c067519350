"""The login: one account of the app, whose sessions are cookies, and a token for programs.

`LoginRequired` protects the whole app: the pages, every endpoint, MCP. Without a session a browser
gets the login form in place of a page, and other clients get 401.
"""

import hashlib
import hmac
import os
import secrets
import time

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.pages.components.templates import render
from sbert_app.server.hosts import refuse
from sbert_app.services.access import Quota, visitor_of

OPEN_PATHS = frozenset({"/health", "/login", "/favicon.ico", "/manifest.json", "/pwa_icon"})
# The number of attempts from one address before it has to wait.
FREE_ATTEMPTS = 5
# The longest wait, in seconds.
LONGEST_DELAY = 60.0
# Wrong passwords are forgotten after this time without another one, in seconds.
FORGET_AFTER = 900.0
_SCRYPT = {"n": 2**14, "r": 8, "p": 1}


class Account:
    """The one account of the app, its sessions and its token. The password itself is not kept."""

    def __init__(self, user: str, password: str, token: str | None = None, days: float = 7) -> None:
        self._salt = os.urandom(16)
        self._account_digest = self._digest(user, password)
        self._token = token
        self.session_seconds = days * 24 * 3600
        # The time at which each session ends.
        self._sessions: dict[str, float] = {}
        # Browsers send a cookie to all ports of a host, so two apps on one machine need different
        # names.
        self.cookie = f"sbert-lab-{secrets.token_hex(4)}"

    def is_right(self, user: str, password: str) -> bool:
        """Whether the name and the password are right. This takes a tenth of a second, on purpose."""
        return hmac.compare_digest(self._digest(user, password), self._account_digest)

    def admits(self, headers: Headers) -> bool:
        """Whether a request brings the token or the cookie of a session."""
        if has_token(headers.get("authorization", ""), self._token):
            return True
        session = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        return self._sessions.get(session, 0.0) > time.monotonic()

    def begin_session(self) -> str:
        """Returns a new session, and forgets the sessions that have ended."""
        now = time.monotonic()
        self._sessions = {session: end for session, end in self._sessions.items() if end > now}
        session = secrets.token_urlsafe(24)
        self._sessions[session] = now + self.session_seconds
        return session

    def end_session(self, session: str) -> None:
        self._sessions.pop(session, None)

    def _digest(self, user: str, password: str) -> bytes:
        # A name cannot contain a colon, so no two accounts give the same text.
        return hashlib.scrypt(
            f"{user}:{password}".encode("utf-8", "replace"), salt=self._salt, **_SCRYPT
        )


def has_token(header: str, token: str | None) -> bool:
    """Whether an Authorization header is ``Bearer`` with the app's token. Compares in constant time."""
    scheme, _, value = header.partition(" ")
    if not token or scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(value.strip().encode(), token.encode())


class LoginRequired:
    """ASGI middleware that answers requests without a login by the form or by 401."""

    def __init__(self, app: ASGIApp, account: Account, root_path: str = "") -> None:
        self.app = app
        self.account = account
        self.root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if scope["path"] in OPEN_PATHS or self.account.admits(headers):

            async def send_uncached(message: Message) -> None:
                if message["type"] == "http.response.start":
                    # After the logout, a browser must not show a page that it has kept.
                    MutableHeaders(scope=message).setdefault("Cache-Control", "no-store")
                await send(message)

            await self.app(scope, receive, send_uncached)
        elif scope.get("method") == "GET" and "text/html" in headers.get("accept", ""):
            wanted_page = scope["path"]
            if scope["query_string"]:
                wanted_page += f"?{scope['query_string'].decode('latin-1')}"
            await login_page(self.root_path, wanted_page)(scope, receive, send)
        else:
            sentence = "log in first, or send the token: Authorization: Bearer TOKEN"
            await refuse(401, sentence, scope, receive, send)


def login_page(root_path: str, wanted_page: str, error: str = "") -> Response:
    """Returns the form, which leads to ``wanted_page`` after the login."""
    page = render("components/templates/login.html", root=root_path, page=wanted_page, error=error)
    return HTMLResponse(page, 401)


def router(account: Account, root_path: str = "") -> APIRouter:
    """Returns the routes ``/login``, for the form and for `gradio_client`, and ``/logout``."""
    routes = APIRouter()
    attempts = Quota(FREE_ATTEMPTS, FORGET_AFTER, LONGEST_DELAY)
    # Only one password is compared at a time, which takes a core for a tenth of a second.
    hashing = CapacityLimiter(1)

    @routes.post("/login")
    async def login(request: Request) -> Response:
        """Begins a session if the name and the password are right, and sets its cookie."""
        is_browser = "text/html" in request.headers.get("accept", "")
        visitor = visitor_of(request)

        def refusal(sentence: str, page: str, status: int) -> Response:
            if not is_browser:
                return JSONResponse({"error": sentence}, status)
            answer = login_page(root_path, page, sentence)
            answer.status_code = status
            return answer

        # `take` counts an attempt, or returns the seconds to wait. An attempt counts before the
        # password is compared, because other attempts may come at the same time. An attempt during
        # a wait is refused without comparing, and does not extend the wait.
        wait = attempts.take(visitor)
        if wait > 0:
            seconds = max(1, round(wait))
            answer = refusal(f"too many wrong passwords; try again in {seconds} s", "/", 429)
            answer.headers["retry-after"] = str(seconds)
            return answer
        # The form is read after the attempt was counted, as other attempts may come while it is read.
        form = await request.form(max_files=0, max_fields=10)
        username = str(form.get("username", "")).strip()
        password = str(form.get("password", ""))
        page = str(form.get("page", ""))
        if not await to_thread.run_sync(account.is_right, username, password, limiter=hashing):
            return refusal("the name or the password is wrong", page, 401)
        # The password is right, so all attempts of this address are forgotten.
        attempts.give_back(visitor)
        if is_browser:
            # Two slashes, or a slash and a backslash, would lead to another site.
            if not page.startswith("/") or page.startswith(("//", "/\\")):
                page = "/"
            answer = RedirectResponse(root_path + page, 303)
        else:
            answer = JSONResponse({"success": True})
        answer.set_cookie(
            account.cookie,
            account.begin_session(),
            max_age=int(account.session_seconds),
            httponly=True,
            secure=request.url.scheme == "https",
            samesite="lax",
        )
        return answer

    @routes.get("/logout")
    def logout(request: Request) -> Response:
        answer = RedirectResponse(f"{root_path}/", 303)
        # A link on another site must not log anybody out.
        if request.headers.get("sec-fetch-site") not in {"cross-site", "same-site"}:
            account.end_session(request.cookies.get(account.cookie, ""))
            answer.delete_cookie(account.cookie)
        return answer

    return routes
