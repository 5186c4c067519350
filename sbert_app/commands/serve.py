"""serve: the app in the browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from sbert_app.commands import options
from sbert_app.process import not_installed
from sbert_app.settings import Settings

OPTIONAL: dict[str, Callable[[Settings], bool]] = {  # package that Gradio imports -> whether it is used
    "mcp": lambda settings: settings.mcp
}


def serve(
    host: Annotated[str | None, typer.Option(help="The address to listen on. [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on. [7860]")] = None,
    home: options.Home = None,
    auth: Annotated[str | None, typer.Option(metavar="USER:PASS", help="Ask for this name and password.")] = None,
    auth_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file whose first line is USER:PASS.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A further host name to answer under, as of a proxy.")
    ] = None,
    allow_path: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A folder whose data and models visitors may name by path.")
    ] = None,
    allow_endpoint: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="A server that texts may be sent to, as endpoint:URL#MODEL."),
    ] = None,
    offline: Annotated[bool | None, typer.Option("--offline", help=options.OFFLINE_HELP)] = None,
    mcp: Annotated[bool | None, typer.Option("--mcp", help="Offer the endpoints to agents (MCP) too.")] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Execute runs on Ray: auto, ray://HOST:10001 or local.")
    ] = None,
    upload_limit_mb: Annotated[int | None, typer.Option(metavar="MB", help="Largest upload. [200]")] = None,
) -> None:
    """Serve the app. Every option may also be set in the environment: SBERT_HOST, SBERT_PORT, …"""
    given: dict[str, Any] = {
        "host": host,
        "port": port,
        "home": home,
        "auth": auth,
        "auth_file": auth_file,
        "allow_hosts": tuple(allow_host or ()),
        "allow_paths": tuple(allow_path or ()),
        "allow_endpoints": tuple(allow_endpoint or ()),
        "offline": offline,
        "mcp": mcp,
        "ray": ray,
        "upload_limit_mb": upload_limit_mb,
    }
    settings = Settings.gather(**given)
    options.prepare(settings.home, settings.offline)
    unused = [package for package, is_asked_for in OPTIONAL.items() if not is_asked_for(settings)]
    with not_installed(*unused):
        from sbert_app.pages import serve as launch

    launch(settings)
