"""The files that ship with the project: example sentences, adapters, lessons, styles, measured tables.

In a clone they lie in ``assets/`` at its root; an installed package carries them inside itself.
"""

from __future__ import annotations

from pathlib import Path

_INSTALLED = Path(__file__).with_name("_assets")
_IN_CLONE = Path(__file__).parents[1] / "assets"

ASSETS = _INSTALLED if _INSTALLED.is_dir() else _IN_CLONE


def asset(name: str) -> Path:
    """The path of a shipped file or folder, by its name relative to ``assets/``: ``asset("examples/corpus.csv")``."""
    return ASSETS / name
