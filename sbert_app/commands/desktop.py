"""desktop: the app in a window of its own, on a free port of this machine. It ends with the window."""

from __future__ import annotations

import os
import sys

from filelock import FileLock, Timeout

from sbert_app.commands import options
from sbert_app.settings import Settings
from training.catalogue import asset
from training.errors import InputError
from training.sources.home import make_home


def desktop(home: options.Home = None, offline: options.Offline = False) -> None:
    """Open the app in a window of its own; closing it ends the app. Runs go on. Needs the extra desktop."""
    place = options.prepare(home, offline)
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise InputError("there is no display to open a window on; sbert-lab serve serves the app to a browser")
    make_home(place)
    try:
        with FileLock(place / "desktop.lock", timeout=0):
            import webview

            from sbert_app.server.run import serve

            def show(url: str) -> None:
                webview.create_window("SBERT Lab", url, width=1280, height=860, min_size=(390, 600))
                try:
                    webview.start(icon=str(asset("icon.png")))
                except webview.errors.WebViewException as error:
                    message = "neither Qt nor GTK is installed: pip install 'sbert-lab[desktop]' installs Qt"
                    raise InputError(message) from error
                raise KeyboardInterrupt

            serve(Settings.gather(home=place, host="127.0.0.1", port="0"), show)
    except Timeout as error:
        raise InputError("SBERT Lab is open in a window already; close that one first") from error
