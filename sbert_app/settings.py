"""Settings: from flags, then SBERT_* variables, then defaults. One frozen object that everything is given."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.errors import InputError
from training.sources.home import home_folder


@dataclass(frozen=True)
class Settings:
    """What the app was told. Build it with ``Settings.gather``."""

    home: Path = field(default_factory=home_folder)
    host: str = "127.0.0.1"
    port: int = 7860
    auth: tuple[str, str] | None = None  # (user, password)
    offline: bool = False
    mcp: bool = False
    upload_limit_mb: int = 200
    models_kept: int = 4  # loaded models kept in memory, the least recently used goes first
    warm_maps: bool = True  # compile and import UMAP in the background, before anybody asks for a map

    @classmethod
    def gather(cls, **flags: Any) -> Settings:
        """Flags that are not None win over $SBERT_<NAME>, which wins over the default. InputError on nonsense."""
        found: dict[str, Any] = {}
        for name, parse in _PARSERS.items():
            value = flags.get(name)
            value = os.environ.get(f"SBERT_{name.upper()}") if value is None else value
            if value not in (None, ""):
                found[name] = parse(name, value)
        return cls(**found)

    @property
    def temp_folder(self) -> Path:
        """Where uploads and results of the pages live until they are cleaned away."""
        return self.home / "tmp"


def _whole(low: int, high: int) -> Callable[[str, Any], int]:
    def parse(name: str, value: Any) -> int:
        text = str(value).strip()
        if not text.isdigit() or not low <= int(text) <= high:
            raise InputError(f"{name} is {text!r}; it must be a whole number from {low} to {high}")
        return int(text)

    return parse


def _yes_no(name: str, value: Any) -> bool:
    known = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if str(value).lower() not in known:
        raise InputError(f"{name} is {value!r}; it must be yes or no")
    return known[str(value).lower()]


def _auth(name: str, value: Any) -> tuple[str, str]:
    user, colon, password = str(value).partition(":")
    if not (user and colon and password):
        raise InputError(f"{name} must look like USER:PASSWORD")
    return user, password


_PARSERS: dict[str, Callable[[str, Any], Any]] = {
    "home": lambda _, value: home_folder(value),
    "host": lambda _, value: str(value),
    "port": _whole(0, 65_535),
    "auth": _auth,
    "offline": _yes_no,
    "mcp": _yes_no,
    "upload_limit_mb": _whole(1, 100_000),
    "models_kept": _whole(1, 100),
    "warm_maps": _yes_no,
}
