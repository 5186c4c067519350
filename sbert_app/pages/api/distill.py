"""The HTTP endpoint ``distill``. Plain JSON in and out."""

from __future__ import annotations

from typing import Any

from sbert_app.pages.api.arguments import register
from sbert_app.pages.api.endpoint import Between, endpoint
from sbert_app.services.container import Services
from sbert_app.services.models.distillation import distill_to_home
from training.registry import DEFAULT_MODEL


def build(services: Services) -> None:
    """Register the endpoint in the open Blocks."""

    @endpoint(at_once=1, dimension=Between(2, 4096))
    def distill(model: str = DEFAULT_MODEL, dimension: int = 256, data: str = "") -> dict[str, Any]:
        """Distil an encoder into a static model: a table of token vectors, without a network, a hundred times as fast.

        Args:
            model: a bi-encoder: short name, Hub id, run:<id>.
            dimension: of the new vectors, 2 up to the model's.
            data: a named data set to count the frequencies of tokens in; empty = estimated by Zipf's law.
        """
        if data:
            services.access.check_data(data)
        return distill_to_home(services.models, model or DEFAULT_MODEL, dimension, data).to_json()

    register(distill, concurrency_limit=1)
