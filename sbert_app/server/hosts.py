"""ASGI middleware that comes first: it refuses requests of other sites and sets the headers of every answer.

A web page of another site can make a browser send requests to an app on the same machine. Two
checks stop it:

- **Host**: after DNS rebinding the browser believes that ``evil.example`` is this machine and sends
  that name as the host. The app answers only to the names and addresses under which it is really
  reached.
- **Origin**: a browser names the site whose page sends a request. Only the app's own pages may send
  one.

Gradio builds the addresses in a page from ``X-Forwarded-Host``, which any client can set. The
header is therefore removed unless the app is behind a proxy.
"""

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sbert_app.hosts import AllowedHosts, is_same_origin
from sbert_app.server.errors import error_answer

# Gradio's files here have a hash of their content in their names, so a cached copy never becomes
# stale.
HASHED = "/assets/"
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        # Gradio's configuration is an inline script, and Plotly's WebGL compiles functions from
        # text.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
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


class AnswerHeaders:
    """ASGI middleware that sets security headers, and lets browsers cache scripts and styles for a year.

    Args:
        on_space: whether the app runs as a Hugging Face Space, which shows it in a frame.
    """

    def __init__(self, app: ASGIApp, on_space: bool = False) -> None:
        self.app = app
        ancestors = "'self' https://huggingface.co" if on_space else "'self'"
        self.headers = {
            "Content-Security-Policy": CONTENT_SECURITY_POLICY.format(ancestors=ancestors),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",
        }
        # A Space is shown in a frame of huggingface.co, which this header could not allow.
        if not on_space:
            self.headers["X-Frame-Options"] = "SAMEORIGIN"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self.headers)
                if scope["path"].startswith(HASHED) and message["status"] == 200:
                    headers["Cache-Control"] = "public, max-age=31536000, immutable"
            await send(message)

        await self.app(scope, receive, send_with_headers)


class OwnSite:
    """ASGI middleware that refuses requests for other host names and requests from pages of other sites.

    Args:
        origins: the sites whose pages may send requests and read the answers.
        has_proxy: whether the app is behind a proxy.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: AllowedHosts,
        origins: Collection[str] = (),
        has_proxy: bool = False,
    ) -> None:
        self.app = app
        self.hosts = hosts
        self.origins = origins
        self.has_proxy = has_proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in {"http", "websocket"}:
            headers = Headers(scope=scope)
            if not self.hosts.allows(headers.get("host", "")):
                sentence = "this app does not answer under that host name; to allow it: serve --allow-host NAME"
                await refuse(403, sentence, scope, receive, send)
                return
            if is_foreign(headers) and headers.get("origin") not in self.origins:
                sentence = "requests from pages of other sites are not answered; to allow one: serve --allow-origin"
                await refuse(403, sentence, scope, receive, send)
                return
            if not self.has_proxy:
                trusted = [item for item in scope["headers"] if item[0] != b"x-forwarded-host"]
                scope = {**scope, "headers": trusted}
        await self.app(scope, receive, send)


def is_foreign(headers: Headers) -> bool:
    """Whether a page of another site has sent a request. A link on another site is not such a request."""
    origin = headers.get("origin")
    if origin is not None:
        return not is_same_origin(origin, headers.get("host", ""))
    # Browsers send simple GET requests without an Origin, but with these headers.
    is_elsewhere = headers.get("sec-fetch-site") in {"cross-site", "same-site"}
    return is_elsewhere and headers.get("sec-fetch-mode") != "navigate"


async def refuse(
    status: int,
    sentence: str,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Answers a request with one sentence, or closes a web socket."""
    if scope["type"] == "websocket":
        # 1008: the request breaks a rule of the server.
        await send({"type": "websocket.close", "code": 1008})
        return
    await error_answer(scope["path"], status, sentence)(scope, receive, send)
