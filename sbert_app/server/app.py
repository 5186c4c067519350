"""The FastAPI app: its middleware, from the outside inwards, its routers, and the pages mounted at its root."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware

from sbert_app import __version__
from sbert_app.hosts import AllowedHosts
from sbert_app.server import api, login, v1
from sbert_app.server.errors import HANDLERS
from sbert_app.server.events import WAITING, BoundedEvents
from sbert_app.server.hosts import AnswerHeaders, OwnSite
from sbert_app.server.limits import BodyLimits
from sbert_app.server.metrics import CountRequests
from sbert_app.server.pages import Pages
from sbert_app.server.workarounds import ShortHeartbeats
from sbert_app.services.container import Services
from sbert_app.settings import Settings

# Gradio compresses its scripts and styles itself. Compressing vectors and files is not worth the
# time.
NOT_COMPRESSED = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/json", "application/octet-stream")


def create_app(services: Services) -> FastAPI:
    """Returns the app that answers all requests."""
    settings = services.settings
    account = None
    if settings.auth:
        account = login.Account(*settings.auth, settings.token, settings.session_days)
    tools = None
    if settings.mcp:
        # Few people ask for tools, and the SDK takes time to import.
        from sbert_app.server.mcp import McpServer

        tools = McpServer(services)
    middleware = _middleware(settings, account)
    pages = Pages(services, [layer for layer in middleware if layer.cls is CORSMiddleware])

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with pages.lifespan(), tools.manager.run() if tools else nullcontext():
            yield

    app = FastAPI(
        title="SBERT Lab",
        version=__version__,
        description=api.DESCRIPTION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        # Behind a proxy, `/docs` sends its requests to addresses relative to its own.
        servers=[{"url": "."}],
        docs_url=None,
        redoc_url=None,
        exception_handlers=HANDLERS,
        middleware=middleware,
        lifespan=lifespan,
        routes=tools.routes() if tools else [],
    )
    if account:
        app.include_router(login.router(account, settings.root_path), include_in_schema=False)
    app.include_router(v1.router(services))
    app.include_router(api.endpoint_router(services))
    app.include_router(api.document_router(services))
    app.state.pages = pages
    app.mount("/", pages)
    return app


def _middleware(settings: Settings, account: login.Account | None) -> list[Middleware]:
    """Returns the layers of ASGI middleware, from the outside inwards."""
    layers = [
        Middleware(AnswerHeaders, on_space="SPACE_ID" in os.environ),
        Middleware(
            OwnSite,
            hosts=AllowedHosts(settings.host, settings.allow_hosts),
            origins=settings.allow_origins,
            has_proxy=bool(settings.proxies),
        ),
    ]
    if settings.allow_origins:
        origins = settings.allow_origins
        layers.append(
            Middleware(
                CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"]
            )
        )
    if account:
        layers.append(
            Middleware(login.LoginRequired, account=account, root_path=settings.root_path)
        )
    layers += [
        Middleware(
            GZipMiddleware,
            minimum_size=1_000,
            compresslevel=5,
            exclude_content_types=NOT_COMPRESSED,
        ),
        Middleware(CountRequests),
        Middleware(
            BodyLimits,
            folder=settings.temp_folder,
            of_upload=settings.upload_limit_mb << 20,
            of_folder=settings.temp_limit_mb << 20,
        ),
        Middleware(BoundedEvents, waiting=WAITING),
        Middleware(ShortHeartbeats),
    ]
    return layers
