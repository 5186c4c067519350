"""EndpointModel: a model behind an OpenAI-compatible server: ``endpoint:http://localhost:11434/v1#nomic-embed-text``.

The server returns only vectors, so word maps and training are not possible. Prompts and fewer
dimensions are applied here, as for any model. Vectors are cached in memory by text. After the
server has refused too many texts, requests get smaller. The caller decides which hosts may be asked
(`sbert_app.services.access`).
"""

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from training.errors import InputError, StoppedError
from training.inference.recent import RecentEmbeddings
from training.models.model import VectorModel
from training.models.texts import OnRows, ReadReport, Rows, replace_surrogates
from training.names import REQUEST_SETTINGS, Endpoint, ModelName
from training.pooling import normalize_rows
from training.progress import ShouldStop
from training.sources.endpoint import SECONDS, RefusedTextsError, fetch_vectors

TEXTS = 32  # texts in a request: the most that TEI accepts by default
# The vector of this text tells the number of dimensions, and identifies the model.
PROBE = "A man is playing a guitar."


@dataclass
class _Server:
    """The largest request that a server has not refused."""

    # At first the most texts that a name can ask for.
    most_texts: int = REQUEST_SETTINGS["batch"]


class EndpointModel(VectorModel):
    """A model that a server computes. ``EndpointModel.load`` requests a first vector."""

    kind = "endpoint"

    def __init__(self, name: str, endpoint: Endpoint, seconds: float = SECONDS) -> None:
        """Raises InputError if the server does not answer with a vector within ``seconds``."""
        self.name = name
        self.endpoint = endpoint
        self.sent_to = endpoint.address
        # The first vector, by which `weights_sample` identifies the model.
        self.probe = fetch_vectors(endpoint, [PROBE], seconds=seconds)[0]
        # Copies of the model with other settings share this object, so a refusal counts for all.
        self._server = _Server()
        self._batch = TEXTS  # the most texts in a request
        self._seconds = seconds
        # The dimensions of the server's vectors, and of the vectors that are returned.
        self.full_dimension = len(self.probe)
        self.dimension = self.full_dimension
        # The cached vectors, by the texts that are sent, prompts included. Copies share them too.
        self._recent = RecentEmbeddings(self.full_dimension)

    @classmethod
    def load(cls, name: ModelName | str, **_: Any) -> Self:
        """Opens ``endpoint:URL#model``. InputError if the server does not answer, or a setting does not fit."""
        parsed = ModelName.parse(name)
        if parsed.endpoint is None:
            raise InputError(f"{parsed} is no endpoint; write endpoint:http://HOST:PORT/v1#MODEL")
        return cls(parsed.name, parsed.endpoint, parsed.timeout or SECONDS).with_settings(parsed)

    def __repr__(self) -> str:
        prompt = f", prompt {self.prompt!r}" if self.prompt else ""
        return f"EndpointModel({self.name!r}, {self.dimension} dimensions{prompt})"

    def weights_sample(self, most: int) -> Iterator[tuple[str, np.ndarray]]:
        """Yields a vector that changes with the server's model, rounded as the last digits differ between calls."""
        yield "probe", self.probe.round(3)

    def with_settings(self, name: ModelName) -> Self:
        """Returns a copy with the dimension, the prompt, and the requests' size and timeout that the name states.

        InputError for any other setting.
        """
        # `check_settings` would refuse a dimension and a prompt, which an endpoint may have.
        self.check_settings(replace(name, dimension=None, prompt=None, prompt_name=None))
        if name.dimension is not None and not 1 <= name.dimension <= self.full_dimension:
            raise InputError(
                f"{self.name} has {self.full_dimension} dimensions; keep 1 to {self.full_dimension}"
            )
        if name.prompt_name is not None:
            raise InputError(
                f"{self.name} has no prompt named {name.prompt_name!r}; give the prompt itself"
            )
        model = copy.copy(self)
        model.dimension = name.dimension or self.dimension
        model.prompt = self.prompt if name.prompt is None else name.prompt
        model._batch = name.batch or self._batch
        model._seconds = name.timeout or self._seconds
        # `check_settings` accepts only the pooling "none", which changes nothing and is left out of
        # the name.
        model.name = str(replace(name, pooling=None))
        return model

    def _vectors(
        self,
        rows: Rows,
        normalize: bool | None,
        on_rows: OnRows,
        should_stop: ShouldStop | None,
        report: ReadReport,
    ) -> np.ndarray:
        """Sends the texts in several requests, one at a time."""
        # Servers refuse an empty text.
        inputs = [replace_surrogates(self.prompt + text) or " " for text in rows]
        # Collects the server's messages by text. With None, a refused text raises InputError.
        refused = report.refused

        def fetch(texts: list[str]) -> np.ndarray:
            return self._fetch(texts, should_stop, refused)

        vectors = np.empty((len(rows), self.dimension), dtype=np.float32)
        start = 0
        while start < len(rows):
            # `most_texts` gets smaller when the server refuses a request.
            part = slice(start, start + min(self._batch, self._server.most_texts))
            # `fetch` gets the texts that are not cached.
            full_vectors = self._recent.get(inputs[part], fetch)
            vectors[part] = full_vectors[:, : self.dimension]
            start = part.stop
            on_rows(min(start, len(rows)))
        if refused:
            # The caller looks a text up without its prompt.
            for text, sent in zip(rows, inputs, strict=True):
                if sent in refused:
                    refused[text] = refused[sent]
        return normalize_rows(vectors) if normalize else vectors

    def _fetch(
        self, texts: list[str], should_stop: ShouldStop | None, refused: dict[str, str] | None
    ) -> np.ndarray:
        """Requests the vectors of texts, in smaller requests if the server refuses them together.

        A text that is refused alone gets NaN, and the server's message is collected in ``refused``.
        Without ``refused``, the first such text raises InputError.
        """
        if should_stop is not None and should_stop():
            raise StoppedError
        try:
            vectors = fetch_vectors(self.endpoint, texts, should_stop, self._seconds)
        except RefusedTextsError as error:
            if len(texts) == 1:
                if refused is None:
                    raise
                refused[texts[0]] = error.words
                return np.full((1, self.full_dimension), np.nan, dtype=np.float32)
            # A number in the message may be the most texts that the server accepts; of several
            # numbers the largest is tried. Without one, half of the texts are tried.
            numbers = map(int, re.findall(r"\d{1,6}", error.words))
            limits = [number for number in numbers if 1 <= number < len(texts)]
            size = max(limits, default=len(texts) // 2)
            parts = []
            for start in range(0, len(texts), size):
                parts.append(self._fetch(texts[start : start + size], should_stop, refused))
            vectors = np.concatenate(parts)
            if np.isfinite(vectors).all():
                # No text was refused alone (NaN), so the server refused the number of texts.
                self._server.most_texts = min(self._server.most_texts, size)
        if vectors.shape[1] != self.full_dimension:
            raise InputError(
                f"{self.endpoint.address} gave {self.full_dimension} dimensions before and gives {vectors.shape[1]} "
                "now: another model is behind its name; start again"
            )
        return vectors
