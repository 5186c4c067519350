"""Guard: the outermost ASGI layer. What it refuses, Gradio never sees.

In this order: the Host and Origin of a request; with a password set, the login, which covers every path, MCP and
Gradio's own endpoints included; and on every answer the security headers.

A web page of another site can make a browser send requests to an app on the same machine. Two checks stop it:

- **Host**: after DNS rebinding the browser believes that ``evil.example`` is this machine and sends that name as the
  host. Only names and addresses under which the app is really reached are answered.
- **Origin**: a browser names the site whose page sends a request. Only the app's own pages may send one.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, cookie_parser
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.pages.server.address import answer_in_json, show_token, visitor_of
from sbert_app.pages.server.asset_cache import AssetCache
from sbert_app.pages.server.limits import BodyLimits, UploadLimits
from sbert_app.services.quota import Quota

# What a browser needs before somebody has logged in: the page with the form, its scripts and styles, the login itself.
OPEN_PREFIXES = ("/assets/", "/static/", "/svelte/")
OPEN_PATHS = frozenset(
    {
        "/health",
        "/login",
        "/logout",
        "/theme.css",
        "/manifest.json",
        "/favicon.ico",
        "/pwa_icon",
        "/gradio_api/login_check",
    }
)
STARTUP = "/gradio_api/startup-events"
READING = frozenset({"GET", "HEAD"})

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to

FREE_ATTEMPTS = 5  # wrong passwords from one address before it has to wait
LONGEST_DELAY = 60.0  # seconds
FORGET_AFTER = 900.0  # seconds without a wrong password
_SCRYPT = {"n": 2**14, "r": 8, "p": 1}

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",  # Gradio's inline configuration, Plotly's WebGL
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "media-src 'self' data: blob:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors {ancestors}",
    )
)


class AllowedHosts:
    """The host names under which the app may be reached.

    Args:
        bound: the address that the server listens on.
        extra: further names, such as that of a reverse proxy; matched whole, without a port.
    """

    def __init__(self, bound: str, extra: Iterable[str] = ()) -> None:
        self._any_address = bound in WILDCARDS
        names = set(LOOPBACK) | {bound.strip("[]")} | {name.strip("[]") for name in extra}
        if self._any_address:
            names |= {socket.gethostname(), socket.getfqdn()}
        if space := os.environ.get("SPACE_HOST"):  # set by Hugging Face Spaces
            names |= set(space.split(","))
        self._names = {name.lower() for name in names if name and name not in WILDCARDS}

    def allows(self, host: str) -> bool:
        """Whether a Host header, such as ``127.0.0.1:7860``, names this app.

        An address (not a name) is enough where the app listens on all of them: rebinding needs a name.
        """
        name = host_name(host)
        with suppress(ValueError):
            return name in self._names or (self._any_address and bool(ip_address(name)))
        return False


def host_name(host: str) -> str:
    """``[::1]:7860`` -> ``::1``; lower case, empty if the header is malformed."""
    if "@" in host or "/" in host:
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def is_same_origin(origin: str, host: str) -> bool:
    """Whether the page that sent a request was loaded from the host that the request goes to.

    The scheme is not compared: behind a proxy that ends TLS the app itself is asked in plain HTTP.
    """
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False


class PasswordCheck:
    """Compares a name and a password with the one account of the app. The password itself is not kept."""

    def __init__(self, user: str, password: str) -> None:
        self._salt = os.urandom(16)
        self._user, self._hash = self._digest(user), self._digest(password)

    def __call__(self, user: str, password: str) -> bool:
        same_user = hmac.compare_digest(self._digest(user), self._user)
        same_password = hmac.compare_digest(self._digest(password), self._hash)
        return same_user and same_password

    def _digest(self, text: str) -> bytes:
        return hashlib.scrypt(text.encode(), salt=self._salt, **_SCRYPT)


def has_token(header: str, token: str | None) -> bool:
    """Whether an Authorization header is ``Bearer`` with the app's token; compared in constant time."""
    scheme, _, value = header.partition(" ")
    if not token or scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(value.strip().encode(), token.encode())


class Guard:
    """ASGI middleware.

    Args:
        app: what is guarded.
        hosts: the Host headers that are answered.
        pages: the paths of the app's pages, which show the login form to who has not logged in.
        user_of: the user that a session token (from a cookie) belongs to, or None; None for no login at all.
        session: the session token of requests that bring the bearer ``token``.
        cookie: the name of the session cookie.
        token: the bearer token for machines, if there is one.
        own_token: that of the app's requests to itself, by which tool calls are carried out.
        on_space: whether the app runs as a Hugging Face Space, which shows it in a frame.
        is_starting: whether Gradio may still make the request to itself that starts its queue, which may not fail.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: AllowedHosts,
        pages: frozenset[str] = frozenset({"/"}),
        user_of: Callable[[str], str | None] | None = None,
        session: str = "",
        cookie: str = "",
        token: str | None = None,
        own_token: str | None = None,
        on_space: bool = False,
        is_starting: Callable[[], bool] = lambda: False,
    ) -> None:
        self.app, self.hosts, self.pages, self.is_starting = app, hosts, pages, is_starting
        self.user_of, self.session, self.cookie = user_of, session, cookie
        self.tokens = (token, own_token)
        self.failures = Quota(FREE_ATTEMPTS, FORGET_AFTER, LONGEST_DELAY)  # wrong passwords of each address
        self.headers = _security_headers(on_space)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refused_host(headers) or self._refused_origin(scope, headers)
        if refusal is None and self.user_of is not None:
            scope, refusal = self._authenticate(scope, headers)
        if refusal is not None:
            await self._refuse(refusal, scope, receive, send)
            return
        if self.user_of is not None and scope.get("method") == "POST" and _path(scope) == "/login":
            await self._login(scope, receive, send)
            return
        await self.app(scope, receive, self._with_headers(send))

    def _refused_host(self, headers: Headers) -> JSONResponse | None:
        if self.hosts.allows(headers.get("host", "")):
            return None
        return _error(403, "this app does not answer under that host name; to allow it: serve --allow-host NAME")

    def _refused_origin(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        """A request that the page of another site sent, whatever it asks for. Links from other sites work."""
        origin = headers.get("origin")
        if origin is not None:
            foreign = not is_same_origin(origin, headers.get("host", ""))
        else:  # browsers send no Origin with simple GET requests, but say where they come from
            elsewhere = headers.get("sec-fetch-site") in {"cross-site", "same-site"}
            foreign = elsewhere and headers.get("sec-fetch-mode") != "navigate"
        return _error(403, "requests from pages of other sites are not answered") if foreign else None

    def _authenticate(self, scope: Scope, headers: Headers) -> tuple[Scope, JSONResponse | None]:
        """The scope, with a session where the request brought the bearer token, and the refusal if there is one."""
        assert self.user_of is not None  # noqa: S101 - the caller has looked
        if any(has_token(headers.get("authorization", ""), token) for token in self.tokens):
            return self._with_session(scope), None
        cookies = cookie_parser(headers.get("cookie", ""))
        if any(self.user_of(cookies[name]) for name in self._cookie_names() if name in cookies):
            return scope, None
        path, reads = _path(scope), scope.get("method", "GET") in READING
        is_open = path in OPEN_PATHS or (reads and (path in self.pages or path.startswith(OPEN_PREFIXES)))
        is_open |= path == STARTUP and self.is_starting()
        return scope, None if is_open else _error(401, "log in first, or send the token: Authorization: Bearer TOKEN")

    def _cookie_names(self) -> tuple[str, str]:
        return f"access-token-{self.cookie}", f"access-token-unsecure-{self.cookie}"

    def _with_session(self, scope: Scope) -> Scope:
        cookie = f"{self._cookie_names()[1]}={self.session}".encode()
        others = [header for header in scope["headers"] if header[0] != b"cookie"]
        return {**scope, "headers": [*others, (b"cookie", cookie)]}

    async def _login(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a login on, unless its address has to wait; learn from the answer whether the password was right.

        What is refused during a delay is not read and does not extend it.
        """
        address = visitor_of(HTTPConnection(scope))
        wait = self.failures.seconds_to_wait(address)
        if wait > 0:
            seconds = max(1, round(wait))
            refusal = _error(429, f"too many wrong passwords; try again in {seconds} s")
            refusal.headers["retry-after"] = str(seconds)
            await self._refuse(refusal, scope, receive, send)
            return

        async def learn(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] == 200:
                    self.failures.give_back(address)
                elif message["status"] in {400, 401}:
                    self.failures.add(address)
            await send(message)

        await self.app(scope, receive, self._with_headers(learn))

    async def _refuse(self, response: JSONResponse, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        await response(scope, receive, self._with_headers(send))

    def _with_headers(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
                # Gradio sets its session cookie for use from any site (SameSite=None); here none is sent across sites.
                message["headers"] = [
                    (name, _lax(value) if name.lower() == b"set-cookie" else value)
                    for name, value in message["headers"]
                ]
            await send(message)

        return sending


def guarded(uploads: UploadLimits, **options: Any) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """A lifespan for Gradio's app that puts a `Guard` with ``options`` around it before the first request is answered.

    Gradio adds middleware of its own outside of what it is given, CORS among it; a guard has to stand outside of
    that too.
    """

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        login: dict[str, Any] = {}
        if app.auth is not None:
            session, own_token = secrets.token_urlsafe(16), secrets.token_urlsafe(32)
            app.tokens[session] = "token"
            login = {"user_of": app.tokens.get, "session": session, "own_token": own_token, "cookie": app.cookie_id}
        if (tools := app.get_blocks().mcp_server_obj) is not None:
            answer_in_json(tools)
            if login:
                show_token(tools, login["own_token"])
        same_for_all = frozenset() if login else options.get("pages", frozenset())
        cached = AssetCache(app.middleware_stack, same_for_all)
        app.middleware_stack = Guard(BodyLimits(cached, uploads), **login, **options)
        yield

    return lifespan


def _path(scope: Scope) -> str:
    return scope["path"].rstrip("/") or "/"


def _error(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status_code=status)


def _security_headers(on_space: bool) -> dict[str, str]:
    ancestors = "'self' https://huggingface.co" if on_space else "'self'"
    headers = {
        "Content-Security-Policy": CONTENT_SECURITY_POLICY.format(ancestors=ancestors),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
    }
    return headers if on_space else {**headers, "X-Frame-Options": "SAMEORIGIN"}


def _lax(cookie: bytes) -> bytes:
    parts = [part for part in cookie.split(b"; ") if not part.lower().startswith(b"samesite=")]
    return b"; ".join([*parts, b"SameSite=Lax"])
