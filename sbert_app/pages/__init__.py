"""The pages. A folder each, whose page.py has a ``build(services)`` that lays it out and wires it to services.

``build_app`` puts them together under one navigation bar; ``serve`` launches the result. Nothing here imports
torch: the first paint does not wait for it. A thread loads the default models meanwhile.
"""

from __future__ import annotations

import inspect
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.blocks import Block, BlockFunction
from gradio.routes import App
from gradio.state_holder import SessionState, StateHolder
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from sbert_app.pages.api import endpoints, metrics, openai, reference
from sbert_app.pages.api.metrics import CountRequests
from sbert_app.pages.api.sessions import OneSession
from sbert_app.pages.components import pickers, theme
from sbert_app.pages.components.templates import render
from sbert_app.pages.learn import teacher
from sbert_app.pages.server.address import McpCalls
from sbert_app.pages.server.guard import LOOPBACK, AllowedHosts, Guard, PasswordCheck, guarded
from sbert_app.pages.server.heartbeat import ShortHeartbeats
from sbert_app.pages.server.limits import UploadLimits, openai_error
from sbert_app.process import end_within
from sbert_app.services.container import Services
from sbert_app.services.files.jobs import ScoreJobs
from sbert_app.settings import Settings
from sbert_app.signals import stop_repeating
from training.assets import ASSETS
from training.errors import InputError

LAST_SECONDS = 10.0  # until the process ends after it was asked to, if a thread still waits for something
LAST_PROCESSOR_SECONDS = 2.0  # … or computes something
WAKE_SECONDS = 0.25  # between two looks of the waiting main thread whether a signal has come

QUEUE_SECONDS = 0.01  # between two looks of the queue whether there is something to do

PAGES = ("compare", "bulk", "train", "ablation", "evaluate", "explore", "label", "learn")  # the first is the front page
FOOTER = '<footer class="page-footer"><a href="./#api">Use via API</a></footer>'


def build_app(services: Services) -> gr.Blocks:
    def leave(request: gr.Request) -> None:
        if request.session_hash:
            services.tasks.forget(request.session_hash)

    _keep_signatures(Block)
    app = _WholeSteps(title="SBERT Lab", analytics_enabled=False, delete_cache=(3_600, 86_400))
    with _no_routes_yet(), app:
        for name in PAGES:
            # What follows is on a page of its own, as with ``app.route``; but at the end of each such block Gradio
            # makes all routes of the web server, for nothing until the last: a second.
            app.current_page = "" if name == PAGES[0] else name
            if app.current_page:
                app.pages.append((name, name.title(), True))
            gr.Navbar(main_page_name=PAGES[0].title())
            import_module(f"sbert_app.pages.{name}.page").build(services)
            pickers.read_anew(services)
            gr.HTML(FOOTER)
        app.current_page = ""  # endpoints are listed on the page that was built last: all belong to the front page
        endpoints.build(services)
        gr.State().keep_in_cache = _JobFiles(services.scoring)  # which Gradio iterates
        app.unload(leave)
    with _no_routes_yet():
        app.queue(default_concurrency_limit=4, max_size=512)
    # Gradio's queue looks for work a thousand times a second, and takes a twentieth of a core while the app is idle.
    app._queue.sleep_when_free = app._queue.progress_update_sleep_when_free = QUEUE_SECONDS
    return app


def _keep_signatures(kind: type[Block]) -> None:
    """Let the signatures of all components be known, where `inspect` looks first.

    Gradio asks for them for each component that it makes, and for all components in each session.
    """
    make = inspect.unwrap(vars(kind).get("__init__", lambda: None))
    vars(make)["__signature__"] = inspect.signature(make)
    for each in kind.__subclasses__():
        _keep_signatures(each)


@contextmanager
def _no_routes_yet() -> Iterator[None]:
    """Without the web server's routes, which Gradio makes at the end of a block, for the queue and at the launch."""
    made = vars(App)["create_app"]
    App.create_app = lambda *_, **__: None
    try:
        yield
    finally:
        App.create_app = made


class _WholeSteps(gr.Blocks):
    """`gr.Blocks` whose generators send each step whole, instead of Gradio's differences between them.

    Gradio sends what a generator yields as edits of what it yielded before, and its page applies them to objects that
    may still wait to be shown. So two steps that arrive while the page is busy, as on a slow telephone, lose what the
    first of them has changed besides values: a button stays disabled, a figure is never made visible.
    """

    def handle_streaming_diffs(
        self,
        block_fn: BlockFunction,
        data: list[Any],
        session_hash: str | None,
        run: str | None,
        final: bool,
        simple_format: bool = False,
    ) -> list[Any]:
        """The outputs of a step as they are sent: the first and the last whole anyway, the others as a replacement."""
        is_first = session_hash is None or run is None or run not in self.pending_diff_streams[session_hash]
        whole = super().handle_streaming_diffs(block_fn, data, session_hash, run, final, simple_format=True)
        if is_first or final or simple_format:
            return whole
        return [[["replace", [], value]] for value in whole]


class _Sessions(StateHolder):
    """Sessions that do not collect the settings of their components, which links to a state of a page would need.

    Gradio (`gr.DeepLinkButton`) collects those of all components of all pages, 70 ms and 2 MB for each session, and
    those of each component that changes.
    """

    def __getitem__(self, session_id: str) -> SessionState:
        if session_id not in self.session_data:
            with_no_blocks: Any = SimpleNamespace(default_config=self.blocks.default_config, blocks=())
            session = self.session_data[session_id] = SessionState(with_no_blocks)
            vars(session.blocks_config)["config_for_block"] = lambda *_: {}
        return super().__getitem__(session_id)


class _JobFiles:
    """What Gradio does not delete when the app ends, as it does with all that it has served: the jobs' files.

    They are in the history of the next start. `ScoreJobs` removes them after a day.
    """

    def __init__(self, jobs: ScoreJobs) -> None:
        self._jobs = jobs

    def __iter__(self) -> Iterator[str]:
        return (str(path) for path in self._jobs.files())


def _wait() -> None:
    """Until a signal raises. The system may hand a signal to another thread, which does not wake this one."""
    while True:
        time.sleep(WAKE_SECONDS)


def serve(
    settings: Settings,
    block: bool = True,
    on_ready: Callable[[str], object] = lambda url: None,
    wait: Callable[[], object] = _wait,
) -> tuple[gr.Blocks, str]:
    """Start the services and the web server. Returns the app and its URL; with ``block``, when ``wait()`` returns.

    ``on_ready`` is called with the URL once the app answers.

    Raises:
        InputError: the port is taken.
    """
    _stay_at_home(settings)
    services = Services.start(settings)
    app = build_app(services)
    threading.Thread(target=services.warm, name="warm-up", daemon=True).start()
    try:
        url = _launch(app, settings, services)
        print(f"SBERT Lab is at {url}", flush=True)
        if block:
            with suppress(KeyboardInterrupt):
                on_ready(url)
                wait()
    finally:
        if block:
            _end(app, services)
    return app, url


def _end(app: gr.Blocks, services: Services) -> None:
    """What is computed stops first: the server waits for the requests that wait for it."""
    stop_repeating()
    end_within(LAST_SECONDS, LAST_PROCESSOR_SECONDS)
    print("Keyboard interruption in main thread... closing server.", flush=True)
    services.scoring.close()
    services.tasks.close()
    app.close(verbose=False)


def _launch(app: gr.Blocks, settings: Settings, services: Services) -> str:
    """Start the web server. Returns its URL."""
    launched = threading.Event()
    try:
        _, url, _ = app.launch(
            server_name=settings.host,
            server_port=settings.port or _free_port(settings.host),
            auth=PasswordCheck(*settings.auth) if settings.auth else None,
            max_file_size=f"{settings.upload_limit_mb}mb",
            theme=theme.build(),
            css_paths=sorted(ASSETS.glob("*.css")),
            favicon_path=ASSETS / "icon.png",
            footer_links=["api"],  # shown by our own link on each page (`FOOTER`)
            head=theme.head(),
            pwa=True,
            root_path=settings.root_path or None,
            app_kwargs={
                "middleware": [Middleware(each) for each in (ShortHeartbeats, McpCalls, CountRequests, OneSession)],
                "routes": [
                    *openai.routes(services),
                    *metrics.routes(),
                    *reference.routes(services),
                    *teacher.routes(services),
                ],
                "lifespan": guarded(
                    UploadLimits(settings.temp_folder, settings.upload_limit_mb << 20, settings.temp_limit_mb << 20),
                    hosts=AllowedHosts(settings.host, settings.allow_hosts),
                    pages=frozenset({"/", *(f"/{name}" for name in PAGES[1:])}),
                    token=settings.token if settings.auth else None,
                    on_space="SPACE_ID" in os.environ,
                    is_starting=lambda: not launched.is_set(),
                ),
                "exception_handlers": {404: _no_answer, 405: _no_answer},
            },
            mcp_server=settings.mcp,
            prevent_thread_lock=True,
            ssr_mode=False,
            share=False,
            quiet=True,
            show_error=False,
            enable_monitoring=False,
            _frontend=False,  # or Gradio asks for the first page, once, and ends the app if a busy machine takes 3 s
        )
    except OSError as error:
        _free_port(settings.host)
        raise InputError(f"port {settings.port} is taken; choose another with --port") from error
    is_guarded = isinstance(app.server_app.middleware_stack, Guard)
    if not is_guarded:  # a server goes on when a layer fails as it starts
        app.close(verbose=False)
        raise RuntimeError("the guard does not stand before the app")
    sessions = _Sessions()
    sessions.set_blocks(app)
    app.server_app.state_holder = sessions
    launched.set()
    return url


def _free_port(host: str) -> int:
    """A port that nobody listens on. InputError if this machine has no such address to listen on."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(found[0], socket.SOCK_STREAM) as probe:
            probe.bind(found[4])
            return int(probe.getsockname()[1])
    except OSError as error:
        raise InputError(f"this machine has no address {host} to listen on; choose another with --host") from error


def _stay_at_home(settings: Settings) -> None:
    """Nothing calls out on its own, temporary files stay within the home folder, and no proxy stands before the app.

    Gradio asks the app itself to start its queue and to carry out tool calls. HTTP_PROXY holds for downloads alone.
    """
    around = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(filter(None, (around, *sorted(LOOPBACK), settings.host)))
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["GRADIO_TEMP_DIR"] = str(settings.temp_folder)
    if settings.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"


async def _no_answer(request: Request, error: Exception) -> Response:
    """What an unknown address or method answers: a page for browsers, JSON for everything else."""
    status, detail = (error.status_code, error.detail) if isinstance(error, HTTPException) else (404, "Not Found")
    if request.url.path.startswith("/v1/"):
        return JSONResponse(openai_error(detail), status)
    if status != 404 or "text/html" not in request.headers.get("accept", "") or "/gradio_api/" in request.url.path:
        return JSONResponse({"error": detail}, status)
    root = str(request.base_url)
    return HTMLResponse(
        render("components/templates/not_found.html", path=request.url.path[:200], root=root), status_code=404
    )
