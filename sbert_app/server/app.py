"""The FastAPI app: its middleware, from the outside inwards, its routers, and the pages mounted at its root."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from importlib import import_module
from typing import Any

import gradio as gr
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sbert_app import __version__
from sbert_app.hosts import AllowedHosts
from sbert_app.pages import PAGES
from sbert_app.pages.components import pickers, theme
from sbert_app.pages.components.templates import render
from sbert_app.server import api, endpoints, login, v1
from sbert_app.server.errors import HANDLERS, error_answer
from sbert_app.server.hosts import AnswerHeaders, OwnSite
from sbert_app.server.limits import BodyLimits
from sbert_app.server.metrics import CountRequests
from sbert_app.server.workarounds import ShortHeartbeats, WholeSteps
from sbert_app.services.container import Services
from sbert_app.settings import Settings
from training.catalogue import ASSETS

# Pages are compressed, and Gradio compresses its scripts and styles. Vectors and files are not worth the time.
NOT_COMPRESSED = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/json", "application/octet-stream")


def create_app(services: Services) -> FastAPI:
    """The app that answers all requests."""
    settings = services.settings
    account = login.Account(*settings.auth, settings.token) if settings.auth else None
    tools = None
    if settings.mcp:
        from sbert_app.server.mcp import McpServer

        tools = McpServer(services)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with tools.manager.run() if tools else nullcontext():
            yield

    app = FastAPI(
        title="SBERT Lab",
        version=__version__,
        description=api.DESCRIPTION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        # `/docs` sends its requests below the address that it has behind a proxy.
        servers=[{"url": "."}],
        docs_url=None,
        redoc_url=None,
        exception_handlers=HANDLERS,
        middleware=[Middleware(layer, **options) for layer, options in _middleware(settings, account)],
        lifespan=lifespan,
        routes=tools.routes() if tools else [],
    )
    if account:
        app.include_router(login.router(account, settings.root_path), include_in_schema=False)
    pages = build(services)
    for router in (v1.router(services), api.endpoint_router(services), api.document_router(services)):
        app.include_router(router)
    return gr.mount_gradio_app(
        app,
        pages,
        path="/",
        root_path=settings.root_path or None,
        max_file_size=f"{settings.upload_limit_mb}mb",
        theme=theme.build(),
        css_paths=sorted(ASSETS.glob("*.css")),
        favicon_path=ASSETS / "icon.png",
        head=theme.head(),
        pwa=True,
        # Shown by our own link on each page (`FOOTER`).
        footer_links=["api"],
        run_history=False,
        enable_monitoring=False,
        show_error=False,
        ssr_mode=False,
        mcp_server=False,
        app_kwargs={"exception_handlers": {404: _no_answer, 405: _no_answer}},
    )


def _middleware(settings: Settings, account: login.Account | None) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The layers of ASGI middleware with their options, from the outside inwards."""
    yield AnswerHeaders, {"on_space": "SPACE_ID" in os.environ}
    yield OwnSite, {"hosts": AllowedHosts(settings.host, settings.allow_hosts), "origins": settings.allow_origins}
    if settings.allow_origins:
        yield CORSMiddleware, {"allow_origins": settings.allow_origins, "allow_methods": ["*"], "allow_headers": ["*"]}
    if account:
        yield login.LoginRequired, {"account": account, "root_path": settings.root_path}
    yield GZipMiddleware, {"minimum_size": 1_000, "compresslevel": 5, "exclude_content_types": NOT_COMPRESSED}
    yield CountRequests, {}
    limits = {"of_upload": settings.upload_limit_mb << 20, "of_folder": settings.temp_limit_mb << 20}
    yield BodyLimits, {"folder": settings.temp_folder, **limits}
    yield ShortHeartbeats, {}


async def _no_answer(request: Request, error: Exception) -> Response:
    """The answer to an unknown address or method: a page for browsers, JSON for everything else."""
    status, detail = (error.status_code, error.detail) if isinstance(error, HTTPException) else (404, "Not Found")
    if status != 404 or "text/html" not in request.headers.get("accept", "") or "/gradio_api/" in request.url.path:
        detail = f"there is no {request.url.path[:100]}; /docs describes what there is" if status == 404 else detail
        return error_answer(request.url.path, status, detail)
    root = f"{request.app.root_path}/"
    return HTMLResponse(render("components/templates/not_found.html", path=request.url.path[:200], root=root), 404)


FOOTER = '<footer class="page-footer"><a href="./#api">Use via API</a></footer>'


def build(services: Services) -> gr.Blocks:
    """The Gradio app of all pages; the endpoints belong to its front page."""

    def leave(request: gr.Request) -> None:
        if request.session_hash:
            services.tasks.forget(request.session_hash)

    front, *others = PAGES
    app = WholeSteps(title="SBERT Lab", analytics_enabled=False).queue(default_concurrency_limit=4, max_size=512)
    with app:
        _build_page(front, services, app)
        endpoints.build(services)
        app.unload(leave)
    for name in others:
        with app.route(name.title(), name):
            _build_page(name, services, app)
    # Each opening of a page is a session, and in each Gradio keeps the settings of all components of all pages: 1.8 MB.
    # The sessions that were not used for the longest go first, with what their pages had open.
    app.state_session_capacity = 300
    # A file that a request names by its path is read only if it was uploaded. Gradio checks that in launched apps, and
    # does not count a mounted one among them.
    app.has_launched = True
    return app


def _build_page(name: str, services: Services, app: gr.Blocks) -> None:
    gr.Navbar(main_page_name=PAGES[0].title())
    import_module(f"sbert_app.pages.{name}.page").build(services)
    pickers.read_anew(services, app)
    gr.HTML(FOOTER)
