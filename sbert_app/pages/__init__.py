"""The pages. A folder each, whose page.py has a ``build(services)`` that lays it out and wires it to services.

``build_app`` puts them together under one navigation bar; ``serve`` launches the result. Nothing here imports
torch: the first paint does not wait for it. A thread loads the default models meanwhile.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from sbert_app.pages.api import core, distill, metrics, openai, project, runs, score_file, search
from sbert_app.pages.api.metrics import CountRequests
from sbert_app.pages.api.sessions import OneSession
from sbert_app.pages.components import theme
from sbert_app.pages.components.not_found import not_found
from sbert_app.pages.learn import teacher
from sbert_app.pages.server.guard import guarded
from sbert_app.pages.server.hosts import AllowedHosts
from sbert_app.pages.server.limits import UploadLimits
from sbert_app.pages.server.login import PasswordCheck
from sbert_app.pages.server.visitors import McpCalls
from sbert_app.pages.server.whole_updates import WholeUpdates
from sbert_app.process import end_within
from sbert_app.services.container import Services
from sbert_app.services.files.jobs import ScoreJobs
from sbert_app.settings import Settings
from sbert_app.signals import stop_repeating
from training.assets import ASSETS
from training.errors import InputError

LAST_SECONDS = 10.0  # from the end of the server to that of the process, if a thread still waits for something

# (module, title in the navigation bar, path); the first is the front page
PAGES = (
    ("compare", "Compare", "/"),
    ("bulk", "Bulk", "bulk"),
    ("train", "Train", "train"),
    ("ablation", "Ablation", "ablation"),
    ("evaluate", "Evaluate", "evaluate"),
    ("explore", "Explore", "explore"),
    ("label", "Label", "label"),
    ("learn", "Learn", "learn"),
)
FOOTER = '<footer class="page-footer"><a href="./#api">Use via API</a></footer>'


def build_app(services: Services) -> gr.Blocks:
    """All pages in one Gradio app."""

    def leave(request: gr.Request) -> None:
        if request.session_hash:
            services.tasks.forget(request.session_hash)

    app = WholeUpdates(title="SBERT Lab", analytics_enabled=False, delete_cache=(3_600, 86_400))
    with app:
        for module, title, path in PAGES:
            _begin_page(app, title, path.strip("/"))
            gr.Navbar(main_page_name=PAGES[0][1])
            import_module(f"sbert_app.pages.{module}.page").build(services)
            gr.HTML(FOOTER)
        app.current_page = ""  # endpoints are listed on the page that was built last: all belong to the front page
        for endpoints in (core, score_file, runs, project, search, distill):
            endpoints.build(services)
        gr.State().keep_in_cache = _JobFiles(services.scoring)  # which Gradio iterates
        app.unload(leave)
    return app


class _JobFiles:
    """What Gradio does not delete when the app ends, as it does with all that it has served: the jobs' files.

    They are in the history of the next start. `ScoreJobs` removes them after a day.
    """

    def __init__(self, jobs: ScoreJobs) -> None:
        self._jobs = jobs

    def __iter__(self) -> Iterator[str]:
        return (str(path) for path in self._jobs.files())


def _begin_page(app: gr.Blocks, title: str, path: str) -> None:
    """Put what follows on a page of its own, as ``with app.route(title, path)`` does.

    At the end of each such block Gradio makes all routes of the web server, for nothing until the last: a second.
    """
    if path:  # the front page is there
        app.pages.append((path, title, True))
    app.current_page = path


def serve(settings: Settings, block: bool = True) -> tuple[gr.Blocks, str]:
    """Start the services and the web server. Returns the app and its URL; with ``block``, when it is stopped.

    Raises:
        InputError: the port is taken.
    """
    _stay_at_home(settings)
    services = Services.start(settings)
    app = build_app(services)
    app.queue(default_concurrency_limit=4, max_size=512)
    threading.Thread(target=services.warm, name="warm-up", daemon=True).start()
    try:
        url = _launch(app, settings, services)
        print(f"SBERT Lab is at {url}", flush=True)
        if block:
            app.block_thread()
    finally:
        if block:
            stop_repeating()
            services.scoring.close()
            end_within(LAST_SECONDS)
    return app, url


def _launch(app: gr.Blocks, settings: Settings, services: Services) -> str:
    """Start the web server. Returns its URL."""
    launched = threading.Event()
    try:
        _, url, _ = app.launch(**_launch_options(settings, services, launched))
    except OSError as error:
        _check_address(settings.host)
        raise InputError(f"port {settings.port} is taken; choose another with --port") from error
    launched.set()
    return url


def _check_address(host: str) -> None:
    """InputError if this machine has no such address to listen on."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(found[0], socket.SOCK_STREAM) as probe:
            probe.bind(found[4])
    except OSError as error:
        raise InputError(f"this machine has no address {host} to listen on; choose another with --host") from error


def _launch_options(settings: Settings, services: Services, launched: threading.Event) -> dict[str, Any]:
    return {
        "server_name": settings.host,
        "server_port": settings.port,
        "auth": PasswordCheck(*settings.auth) if settings.auth else None,
        "max_file_size": f"{settings.upload_limit_mb}mb",
        "theme": theme.build(),
        "css_paths": sorted(ASSETS.glob("*.css")),
        "favicon_path": ASSETS / "icon.png",
        "footer_links": ["api"],  # shown by our own link on each page (`FOOTER`)
        "head": theme.head(),
        "pwa": True,
        "app_kwargs": {
            "middleware": [Middleware(McpCalls), Middleware(CountRequests), Middleware(OneSession)],
            "routes": [*openai.routes(services), *metrics.routes(), *teacher.routes(services)],
            "lifespan": _guard(settings, launched),
            "exception_handlers": {404: not_found},
        },
        "mcp_server": settings.mcp,
        "prevent_thread_lock": True,
        "ssr_mode": False,
        "share": False,
        "quiet": True,
        "show_error": False,
        "enable_monitoring": False,
    }


def _guard(settings: Settings, launched: threading.Event) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    return guarded(
        AllowedHosts(settings.host, settings.allow_hosts),
        pages=frozenset({"/"} | {f"/{path}" for _, _, path in PAGES[1:]}),
        token=settings.token if settings.auth else None,
        on_space="SPACE_ID" in os.environ,
        uploads=UploadLimits(settings.temp_folder, settings.upload_limit_mb << 20, settings.temp_limit_mb << 20),
        is_starting=lambda: not launched.is_set(),
    )


def _stay_at_home(settings: Settings) -> None:
    """Nothing calls out on its own, and temporary files stay within the home folder."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["GRADIO_TEMP_DIR"] = str(settings.temp_folder)
    if settings.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
