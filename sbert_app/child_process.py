"""Python modules of this project as child processes: ``python -m sbert_app.…`` from any working directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from training.assets import IN_CLONE


def module_command(module: str, *arguments: object) -> list[str]:
    """The command that runs a module with this interpreter.

    With ``-P``, as the working directory is the user's: a folder named ``training`` there must not be imported.
    """
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for such a command: this process's, and ``extra``.

    An installed package is found by itself. A clone may be run from any folder (``python …/app.py``), so there its
    root goes onto PYTHONPATH.
    """
    environment = {**os.environ, **(extra or {})}
    if IN_CLONE:
        root = str(Path(__file__).resolve().parents[1])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
    return environment
