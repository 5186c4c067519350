"""The pages: each is a Gradio app of its own, built when it is first requested.

Building all pages takes seconds, so the app listens as soon as the front page exists. The endpoints
belong to the front page, so their addresses do not contain the name of a page. The other pages are
mounted at ``/bulk``, ``/train``, …; `Pages.build_all` builds the ones that nobody has requested
yet.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Any
from urllib.parse import quote

import gradio as gr
from fastapi import FastAPI
from markupsafe import Markup
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from sbert_app.pages import PAGES
from sbert_app.pages.components import pickers, theme
from sbert_app.pages.components.templates import render
from sbert_app.server.endpoint import register
from sbert_app.server.endpoints import ENDPOINTS
from sbert_app.server.errors import error_answer
from sbert_app.server.gradio_routes import is_open, without_deep_link
from sbert_app.server.workarounds import WholeSteps
from sbert_app.services.container import Services
from training.catalogue import ASSETS, read_asset

log = logging.getLogger("sbert_lab.pages")

FRONT = PAGES[0]
# Gradio serves the same files for every page. They are redirected to the front page, so that a
# browser loads them once. It remembers the redirects for a year.
SHARED = ("assets", "static", "svelte", "theme.css")
CACHED_FOR_A_YEAR = {"Cache-Control": "public, max-age=31536000, immutable"}
FOOTER = '<footer class="page-footer"><a href="./docs">Use via API</a></footer>'
# The maximum number of sessions of a page. Gradio drops the least recently used one with its state.
MOST_SESSIONS = 300


class Pages:
    """An ASGI app that passes a request to the page whose name its path begins with, or to the front page.

    Args:
        services: the services that the pages use.
        middleware: the middleware of each page. Gradio adds its own CORS headers unless it finds
            `CORSMiddleware` here.
    """

    _loop: asyncio.AbstractEventLoop

    def __init__(self, services: Services, middleware: list[Middleware]) -> None:
        self._services = services
        self._middleware = middleware
        # The lifespans of the pages, which end with the lifespan of the app.
        self._stack = AsyncExitStack()
        self._building = asyncio.Lock()
        self._front = build_page(FRONT, services)
        # All pages that have been built.
        self._built: dict[str, FastAPI] = {}
        # The pages whose lifespan has begun, because somebody has requested them.
        self._open: dict[str, FastAPI] = {}
        # Set when the first request has been answered.
        self.has_answered = threading.Event()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Holds the pages open while the server runs."""
        self._loop = asyncio.get_running_loop()
        async with self._stack:
            # Mounts and opens the front page. Other pages open at the first request for them.
            await self._page(FRONT)
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        name, _, rest = path[1:].partition("/")
        is_page = name in PAGES
        path_in_page = f"/{rest}" if is_page else path
        # Only the routes that the pages and gradio_client need are open.
        if not is_open(scope["method"], path_in_page):
            not_found = _not_found(Request(scope), self._services.settings.root_path)
            await not_found(scope, receive, send)
            return
        scope = without_deep_link(scope)
        if is_page:
            answer = self._quick_answer(scope, name, rest)
            if answer is not None:
                await answer(scope, receive, send)
                return
        else:
            name = FRONT
        app = await self._page(name)
        if path == f"/{name}":
            # Without the slash, Starlette would redirect to the path with it, which breaks the
            # relative links of the page.
            path = f"{path}/"
        # A proxy cuts the root path off, but Starlette finds a mounted app by the whole path.
        root = self._services.settings.root_path
        await app({**scope, "path": f"{root}{path}", "root_path": root}, receive, send)
        # `warm_up` waits for this before it imports and loads more.
        if name == FRONT:
            self.has_answered.set()

    def _quick_answer(self, scope: Scope, name: str, rest: str) -> Response | None:
        """Returns the answer to a request for a page if it does not need the page itself, or else None."""
        root = self._services.settings.root_path
        query = scope["query_string"].decode("latin-1")
        query = f"?{query}" if query else ""
        # The front page has the address of the app.
        if name == FRONT:
            return RedirectResponse(f"{root}/{query}")
        # The relative links of a page would lead to nowhere from the path with a slash.
        if scope["path"] == f"/{name}/":
            return RedirectResponse(f"{root}/{name}{query}")
        # The files of Gradio are the same for all pages, and are loaded from the front page.
        if rest.split("/")[0] in SHARED:
            return RedirectResponse(f"{root}/{quote(rest)}{query}", 308, CACHED_FOR_A_YEAR)
        # A browser gets a page that waits for this one; other programs wait until the page is built.
        accept = Headers(scope=scope).get("accept", "")
        is_navigation = scope["method"] == "GET" and "text/html" in accept
        if not rest and name not in self._built and is_navigation:
            return HTMLResponse(standalone("opening", current=name, root=f"{root}/"))
        return None

    def build_all(self) -> None:
        """Builds the pages that nobody has requested, one after the other. Called in a thread beside the server."""
        for name in PAGES:
            asyncio.run_coroutine_threadsafe(self._build(name), self._loop).result()

    async def _build(self, name: str) -> FastAPI:
        # One page at a time, as Gradio keeps the Blocks that is being built in a global variable.
        async with self._building:
            if name not in self._built:
                self._built[name] = await asyncio.to_thread(self._mount, name)
            return self._built[name]

    async def _page(self, name: str) -> FastAPI:
        """Returns a page, which is built and opened if this is the first request for it."""
        if name in self._open:
            return self._open[name]
        app = await self._build(name)
        # The lifespan starts Gradio's queue. FastAPI does not enter the lifespan of an app that is
        # mounted while the server runs. The queue looks for events a thousand times a second, so it
        # is not started for pages that nobody uses.
        async with self._building:
            if name not in self._open:
                await self._stack.enter_async_context(app.router.lifespan_context(app))
                self._open[name] = app
        return app

    def _mount(self, name: str) -> FastAPI:
        """Builds a page, and mounts it in an app of its own."""
        settings = self._services.settings
        is_front = name == FRONT
        blocks = self._front if is_front else build_page(name, self._services)
        path = "/" if is_front else f"/{name}"
        root_path = None
        if settings.root_path:
            root_path = f"{settings.root_path}{path}".rstrip("/")
        return gr.mount_gradio_app(
            FastAPI(openapi_url=None, middleware=self._middleware),
            blocks,
            path=path,
            root_path=root_path,
            max_file_size=f"{settings.upload_limit_mb}mb",
            theme=theme.build(),
            css_paths=sorted(ASSETS.glob("*.css")),
            favicon_path=ASSETS / "icon.png" if is_front else None,
            head=theme.head(name),
            pwa=is_front,
            footer_links=[],
            run_history=False,
            enable_monitoring=False,
            show_error=False,
            ssr_mode=False,
            mcp_server=False,
            app_kwargs={"exception_handlers": EXCEPTION_HANDLERS},
        )


def build_page(name: str, services: Services) -> gr.Blocks:
    """Builds the Gradio app of one page. The app of the front page contains the endpoints, too."""

    def leave(request: gr.Request) -> None:
        # The tab of a browser was closed, which stops the tasks of its session.
        if request.session_hash:
            services.tasks.forget(request.session_hash)

    # A gr.Blocks whose generators send each step whole, and not as edits of the step before.
    app = WholeSteps(title=f"{name.title()} · SBERT Lab", analytics_enabled=False, fill_width=True)
    app.queue(default_concurrency_limit=4, max_size=512)
    with app:
        navigation = render("components/templates/navigation.html", current=name, root="./")
        gr.HTML(navigation, apply_default_css=False)
        import_module(f"sbert_app.pages.{name}.page").build(services)
        # Pickers of runs and models read their choices again whenever the page is opened.
        pickers.read_anew(services, app)
        gr.HTML(FOOTER, elem_id="page-footer")
        if name == FRONT:
            for endpoint in ENDPOINTS.values():
                register(endpoint, services)
        app.unload(leave)
    app.state_session_capacity = MOST_SESSIONS
    # In launched apps, Gradio reads a file that a request names by its path only if it was
    # uploaded. A mounted app does not count as launched.
    app.has_launched = True
    return app


async def _answer_to_unknown(request: Request, error: HTTPException) -> Response:
    if error.status_code == 404:
        return _not_found(request, request.app.root_path)
    # 405: the address has no such method.
    return error_answer(request.url.path, error.status_code, error.detail)


async def _answer_to_malformed(request: Request, error: Exception) -> Response:
    log.info("a malformed request of an event: %r", error)
    return error_answer(
        request.url.path, 400, "the request holds what this page does not send; reload it"
    )


# Gradio raises KeyError for an unknown event number, and TypeError for a part of an upload that is
# not a file. Errors in the handlers of events do not get here.
EXCEPTION_HANDLERS: dict[Any, Any] = {
    404: _answer_to_unknown,
    405: _answer_to_unknown,
    KeyError: _answer_to_malformed,
    TypeError: _answer_to_malformed,
}


def _not_found(request: Request, root: str) -> Response:
    """Returns the answer to an unknown address or method: a page for browsers, JSON for other clients."""
    path = request.url.path
    if "text/html" not in request.headers.get("accept", "") or "/gradio_api/" in path:
        return error_answer(path, 404, f"there is no {path[:100]}; /docs describes what there is")
    return HTMLResponse(standalone("not_found", path=path[:200], root=f"{root}/", current=""), 404)


def standalone(template: str, **values: str) -> Markup:
    """Renders a page without Gradio."""
    # This file holds the style of the navigation, as an HTML element.
    style = read_asset("navigation.html")
    script = read_asset("app.js")
    return render(f"components/templates/{template}.html", style=style, script=script, **values)
