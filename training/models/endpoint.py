"""EndpointModel: a model behind an OpenAI-compatible server: ``endpoint:http://localhost:11434/v1#nomic-embed-text``.

It gives vectors only. Tokens, weights and pooling are the server's, so there is no word map and nothing to train.
Prompts and fewer dimensions are applied here, as to any model. Its vectors are cached in memory by their texts. Which
host may be asked is the caller's concern (`sbert_app.services.access`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from training.errors import InputError
from training.inference.recent import RecentEmbeddings
from training.models.model import VectorModel
from training.models.texts import replace_surrogates
from training.names import Endpoint, ModelName
from training.pooling import normalize_rows
from training.progress import ShouldStop, steps
from training.sources.endpoint import fetch_vectors

TEXTS = 32  # of a request: the most that TEI takes unless it is told otherwise
# Its vector says how many dimensions the model has, and which model it is.
PROBE = "A man is playing a guitar."


class EndpointModel(VectorModel):
    """A model that a server computes. ``EndpointModel.load`` asks it for a first vector."""

    kind = "endpoint"

    def __init__(self, name: str, endpoint: Endpoint) -> None:
        """InputError if the server does not answer with a vector."""
        self.name, self.endpoint, self.sent_to = name, endpoint, endpoint.address
        self.probe = fetch_vectors(endpoint, [PROBE])[0]
        self.dimension = len(self.probe)
        self._recent = RecentEmbeddings(len(self.probe))

    @classmethod
    def load(cls, name: ModelName | str, **_: Any) -> Self:
        """Open ``endpoint:URL#model``. InputError if the server does not answer, or a setting does not fit."""
        parsed = ModelName.parse(name)
        if parsed.endpoint is None:
            raise InputError(f"{parsed} is no endpoint; write endpoint:http://HOST:PORT/v1#MODEL")
        return cls(parsed.name, parsed.endpoint).with_settings(parsed)

    def __repr__(self) -> str:
        prompt = f", prompt {self.prompt!r}" if self.prompt else ""
        return f"EndpointModel({self.name!r}, {self.dimension} dimensions{prompt})"

    @property
    def full_dimension(self) -> int:
        """The dimensions of the server's vectors."""
        return len(self.probe)

    def weights_sample(self, most: int) -> Iterator[tuple[str, np.ndarray]]:
        """A vector that changes with the model there; its last digits differ between calls."""
        yield "probe", self.probe.round(3)

    def with_settings(self, name: ModelName) -> Self:
        """The same server with fewer dimensions, or with a prompt. InputError for any other setting."""
        self.check_settings(replace(name, dimension=None, prompt=None, prompt_name=None))
        if name.dimension is not None and not 1 <= name.dimension <= self.full_dimension:
            raise InputError(f"{self.name} has {self.full_dimension} dimensions; keep 1 to {self.full_dimension}")
        if name.prompt_name is not None:
            raise InputError(f"{self.name} has no prompt named {name.prompt_name!r}; give the prompt itself")
        model = copy.copy(self)
        model.dimension = name.dimension or self.dimension
        model.prompt = self.prompt if name.prompt is None else name.prompt
        model.name = str(replace(name, pooling=None))
        return model

    def _vectors(
        self,
        rows: Sequence[str],
        normalize: bool | None,
        on_progress: Callable[[int], None],
        should_stop: ShouldStop | None,
    ) -> np.ndarray:
        """One request after the other, in the caller's thread: those that compute do not wait for a server."""

        def fetch(new: list[str]) -> np.ndarray:
            vectors = fetch_vectors(self.endpoint, new, should_stop)
            if vectors.shape[1] != self.full_dimension:
                raise InputError(
                    f"{self.endpoint.address} gave {self.full_dimension} dimensions before and gives "
                    f"{vectors.shape[1]} now: another model is behind its name; start again"
                )
            return vectors

        # Servers refuse an empty text.
        whole = [replace_surrogates(self.prompt + text) or " " for text in rows]
        vectors = np.empty((len(rows), self.dimension), dtype=np.float32)
        for start in steps(range(0, len(rows), TEXTS), lambda done, _: on_progress(done), should_stop):
            part = slice(start, start + TEXTS)
            vectors[part] = self._recent.get(whole[part], fetch)[:, : self.dimension]
        return normalize_rows(vectors) if normalize else vectors
