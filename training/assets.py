"""The files that ship with the project: example sentences, adapters, lessons, styles, measured tables.

In a clone they lie in ``assets/`` at its root; an installed package carries them inside itself.
"""

from __future__ import annotations

from pathlib import Path

_INSTALLED = Path(__file__).with_name("_assets")

IN_CLONE = not _INSTALLED.is_dir()
"""Whether this code runs in a clone of the repository, rather than as an installed package."""

ASSETS = Path(__file__).parents[1] / "assets" if IN_CLONE else _INSTALLED


def plain_sentences() -> list[str]:
    """About 400 short sentences on anything from law to weather, no two of one event."""
    lines = read_asset("plain-sentences.txt").split("\n")
    return [line for line in lines if line and not line.startswith("#")]


def asset(name: str) -> Path:
    """The path of a shipped file or folder, by its name relative to ``assets/``: ``asset("examples/corpus.csv")``."""
    return ASSETS / name


def read_asset(name: str) -> str:
    """The text of a shipped file."""
    return asset(name).read_text(encoding="utf-8")
