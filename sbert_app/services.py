"""What the pages are given: the settings and the services, made once when the app starts."""

from __future__ import annotations

from dataclasses import dataclass

from sbert_app.settings import Settings
from sbert_app.shelf import ModelShelf


@dataclass(frozen=True)
class Services:
    """One of each service."""

    settings: Settings
    shelf: ModelShelf

    @classmethod
    def start(cls, settings: Settings) -> Services:
        """Make the services. Nothing heavy happens here: models load when they are first asked for."""
        settings.home.mkdir(parents=True, exist_ok=True)
        return cls(settings, ModelShelf(settings.home, settings.models_kept))
