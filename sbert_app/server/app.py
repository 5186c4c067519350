"""The FastAPI app: its middleware, from the outside inwards, its routers, and the pages mounted at its root."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

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

# Gradio compresses its scripts and styles itself, and compressing vectors and files takes longer than
# it saves.
NOT_COMPRESSED = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/json", "application/octet-stream")


def create_app(services: Services) -> FastAPI:
    """Returns the app that answers all requests."""
    settings = services.settings
    account = None
    if settings.auth:
        account = login.Account(*settings.auth, settings.token, settings.session_days)
    tools = None
    tool_routes = None
    if settings.mcp:
        # Few people ask for tools, and the SDK takes time to import.
        from sbert_app.server.mcp import McpServer

        tools = McpServer(services)
        tool_routes = tools.routes()
    # The layer that lets other sites read the answers. The app needs it, and also each page, as
    # Gradio adds headers of its own to a page without this layer.
    cross_origin = []
    if settings.allow_origins:
        layer = Middleware(
            CORSMiddleware,
            allow_origins=settings.allow_origins,
            allow_methods=["*"],
            allow_headers=["*"],
        )
        cross_origin.append(layer)
    pages = Pages(services, cross_origin)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(pages.lifespan())
            if tools:
                await stack.enter_async_context(tools.manager.run())
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
        middleware=_middleware(settings, account, cross_origin),
        lifespan=lifespan,
        routes=tool_routes,
    )
    if account:
        app.include_router(login.router(account, settings.root_path), include_in_schema=False)
    app.include_router(v1.router(services))
    app.include_router(api.endpoint_router(services))
    app.include_router(api.document_router(services))
    # For `run.serve`, which builds the remaining pages once the app listens.
    app.state.pages = pages
    app.mount("/", pages)
    return app


def _middleware(
    settings: Settings,
    account: login.Account | None,
    cross_origin: list[Middleware],
) -> list[Middleware]:
    """Returns the layers of ASGI middleware, from the outside inwards."""
    layers = [
        Middleware(AnswerHeaders, on_space="SPACE_ID" in os.environ),
        Middleware(
            OwnSite,
            hosts=AllowedHosts(settings.host, settings.allow_hosts),
            origins=settings.allow_origins,
            has_proxy=bool(settings.proxies),
        ),
        *cross_origin,
    ]
    if account:
        required = Middleware(login.LoginRequired, account=account, root_path=settings.root_path)
        layers.append(required)
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
            max_upload=settings.upload_limit_mb << 20,
            max_folder=settings.temp_limit_mb << 20,
        ),
        Middleware(BoundedEvents, waiting=WAITING),
        Middleware(ShortHeartbeats),
    ]
    return layers
