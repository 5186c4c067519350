"""serve and desktop: run the app for browsers, or in its own window on a free port of this machine."""

import os
import sys
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from filelock import FileLock, Timeout
from typer import Option

from sbert_app.commands import options
from sbert_app.hosts import LOOPBACK
from sbert_app.services.background.ray_cluster import MISSING
from sbert_app.settings import Settings
from training.catalogue import asset
from training.errors import InputError, install_command
from training.sources.home import make_home

OPEN_TO_ALL = (
    "whoever reaches this port uses the models, sees, stops and deletes all runs, and uploads files; "
    "set one with --auth USER:PASS, or listen on 127.0.0.1"
)


def serve(
    host: Annotated[str | None, Option(help="The address to listen on. [127.0.0.1]")] = None,
    port: Annotated[int | None, Option(help="The port to listen on. [7860]")] = None,
    home: options.Home = None,
    auth: Annotated[
        str | None, Option(metavar="USER:PASS", help="Ask for this name and password.")
    ] = None,
    auth_file: Annotated[
        Path | None, Option(metavar="FILE", help="A file whose first line is USER:PASS.")
    ] = None,
    session_days: Annotated[
        float | None, Option(metavar="DAYS", help="When a login ends by itself. [7]")
    ] = None,
    allow_hosts: Annotated[
        list[str] | None,
        Option(
            "--allow-host",
            metavar="NAME",
            help="A further host name to answer under, as of a proxy.",
        ),
    ] = None,
    proxies: Annotated[
        list[str] | None,
        Option(
            "--proxy",
            metavar="ADDRESS",
            help="A proxy in front, whose X-Forwarded-For is believed.",
        ),
    ] = None,
    allow_paths: Annotated[
        list[Path] | None,
        Option(
            "--allow-path",
            metavar="DIR",
            help="A folder whose data and models visitors may name by path.",
        ),
    ] = None,
    allow_endpoints: Annotated[
        list[str] | None,
        Option(
            "--allow-endpoint",
            metavar="HOST:PORT",
            help="A server that texts may be sent to, as endpoint:URL#MODEL.",
        ),
    ] = None,
    allow_origins: Annotated[
        list[str] | None,
        Option(
            "--allow-origin",
            metavar="ORIGIN",
            help="A page that may send requests: app://obsidian.md.",
        ),
    ] = None,
    aliases: Annotated[
        list[str] | None,
        Option(
            "--alias", metavar="NAME=MODEL", help="A further name of a model for clients of /v1."
        ),
    ] = None,
    offline: Annotated[bool | None, Option("--offline", help=options.OFFLINE_HELP)] = None,
    mcp: Annotated[
        bool | None, Option("--mcp", help="Offer the endpoints to agents (MCP) too.")
    ] = None,
    root_path: Annotated[
        str | None, Option(metavar="PATH", help="The path behind a proxy, such as /sbert.")
    ] = None,
    public: Annotated[
        bool | None,
        Option("--public", help="For everybody: built-in models, short training, small uploads."),
    ] = None,
    open_browser: Annotated[
        bool | None,
        Option("--open/--no-open", help="Open the browser. [on a terminal with a desktop]"),
    ] = None,
    ray: Annotated[
        str | None,
        Option(metavar="ADDRESS", help="Execute runs on Ray: auto, ray://HOST:10001 or local."),
    ] = None,
    keep_alive: Annotated[
        int | None, Option(metavar="MINUTES", help="When an unused model leaves the memory. [10]")
    ] = None,
    upload_limit_mb: Annotated[
        int | None, Option(metavar="MB", help="Largest upload. [200]")
    ] = None,
) -> None:
    """Serve the app. Every option may also be set in the environment: SBERT_HOST, SBERT_PORT, …"""
    # The parameters have the names of fields of the settings; `gather` leaves the others out.
    settings = Settings.gather(**locals())
    if settings.ray and find_spec("ray") is None:
        raise InputError(MISSING)
    if settings.host not in LOOPBACK and not settings.auth:
        print(f"There is no login: {OPEN_TO_ALL}", file=sys.stderr)
    if open_browser is None:
        open_browser = has_desktop() and sys.stdout.isatty()
    # Forbids the use of the network with --offline, and raises InputError if the home is a file.
    options.prepare(settings.home, settings.offline)
    # Imported after wrong options are reported, because it imports Gradio, which takes seconds.
    from sbert_app.server.run import serve as run

    show = webbrowser.open if open_browser else None
    run(settings, show)


def has_desktop() -> bool:
    """Whether the person who started this process would see a window."""
    if "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform in ("win32", "darwin") or has_display()


def has_display() -> bool:
    """Whether there is a display of X11 or Wayland."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def desktop(home: options.Home = None, offline: options.Offline = False) -> None:
    """Open the app in its own window. Closing the window ends the app, but not its runs. Needs the extra desktop."""
    home_path = options.prepare(home, offline)
    if sys.platform == "linux" and not has_display():
        raise InputError(
            "there is no display to open a window on; sbert-lab serve serves the app to a browser"
        )
    # A home folder has one window at a time. The lock file needs the folder.
    make_home(home_path)
    try:
        with FileLock(home_path / "desktop.lock", timeout=0):
            import webview

            from sbert_app.server.run import serve as run

            def show(url: str) -> None:
                webview.create_window("SBERT Lab", url, width=1280, height=860, min_size=(390, 600))
                try:
                    webview.start(icon=str(asset("icon.png")))
                except webview.errors.WebViewException as error:
                    command = install_command("desktop")
                    raise InputError(
                        f"neither Qt nor GTK is installed: {command} installs Qt"
                    ) from error
                # The window was closed, which ends the app as Ctrl-C does.
                raise KeyboardInterrupt

            run(Settings.gather(home=home_path, host="127.0.0.1", port=0), show)
    except Timeout as error:
        raise InputError("SBERT Lab is open in a window already; close that one first") from error
