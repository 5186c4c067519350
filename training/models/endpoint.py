"""EndpointModel: a model behind an OpenAI-compatible server: ``endpoint:http://localhost:11434/v1#nomic-embed-text``.

It gives vectors only. Tokens, weights and pooling are the server's, so there is no word map and nothing to train.
Prompts and fewer dimensions are applied here, as to any model. Its vectors are cached in memory by their texts. A
request holds fewer texts once the server has refused more. Which host may be asked is the caller's concern
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
from training.models.texts import Forward, ReadReport, Rows, replace_surrogates
from training.names import REQUEST_SETTINGS, Endpoint, ModelName
from training.pooling import normalize_rows
from training.progress import ShouldStop
from training.sources.endpoint import SECONDS, RefusedTextsError, fetch_vectors

TEXTS = 32  # the texts of a request: the most that TEI takes unless it is told otherwise
# Its vector says how many dimensions the model has, and which model it is.
PROBE = "A man is playing a guitar."


@dataclass
class _Server:
    """The most texts of a request that a server has been found to take."""

    most_texts: int = REQUEST_SETTINGS["batch"]


class EndpointModel(VectorModel):
    """A model that a server computes. ``EndpointModel.load`` asks it for a first vector."""

    kind = "endpoint"

    def __init__(self, name: str, endpoint: Endpoint, seconds: float = SECONDS) -> None:
        """InputError if the server does not answer with a vector within ``seconds``."""
        self.name, self.endpoint, self.sent_to = name, endpoint, endpoint.address
        self.probe = fetch_vectors(endpoint, [PROBE], seconds=seconds)[0]
        # It is shared by the model under all settings.
        self._server, self._batch, self._seconds = _Server(), TEXTS, seconds
        self.dimension = len(self.probe)
        self._recent = RecentEmbeddings(len(self.probe))

    @classmethod
    def load(cls, name: ModelName | str, **_: Any) -> Self:
        """Open ``endpoint:URL#model``. InputError if the server does not answer, or a setting does not fit."""
        parsed = ModelName.parse(name)
        if parsed.endpoint is None:
            raise InputError(f"{parsed} is no endpoint; write endpoint:http://HOST:PORT/v1#MODEL")
        return cls(parsed.name, parsed.endpoint, parsed.timeout or SECONDS).with_settings(parsed)

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
        model._batch, model._seconds = name.batch or self._batch, name.timeout or self._seconds
        model.name = str(replace(name, pooling=None))
        return model

    def _vectors(
        self, rows: Rows, normalize: bool | None, forward: Forward, should_stop: ShouldStop | None, report: ReadReport
    ) -> np.ndarray:
        """One request after the other."""
        # Servers refuse an empty text.
        whole = [replace_surrogates(self.prompt + text) or " " for text in rows]
        vectors, start = np.empty((len(rows), self.dimension), dtype=np.float32), 0
        while start < len(rows):
            part = slice(start, start + min(self._batch, self._server.most_texts))
            # A single request is stopped too.
            new = self._recent.get(whole[part], lambda texts: self._fetch(texts, should_stop, report.refused))
            vectors[part], start = new[:, : self.dimension], part.stop
            forward(min(start, len(rows)))
        if refused := report.refused:
            refused |= {text: refused[sent] for text, sent in zip(rows, whole, strict=True) if sent in refused}
        return normalize_rows(vectors) if normalize else vectors

    def _fetch(self, texts: list[str], should_stop: ShouldStop | None, refused: dict[str, str] | None) -> np.ndarray:
        """The vectors of texts, in smaller requests if the server refuses them all.

        A text that it refuses is NaN, and the server's words are collected in ``refused``; InputError if that is None.
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
            sizes = [int(number) for number in re.findall(r"\d{1,6}", error.words) if 1 <= int(number) < len(texts)]
            size = max(sizes, default=len(texts) // 2)
            parts = [texts[start : start + size] for start in range(0, len(texts), size)]
            vectors = np.concatenate([self._fetch(part, should_stop, refused) for part in parts])
            if np.isfinite(vectors).all():
                # They were too many, and none of them wrong.
                self._server.most_texts = min(self._server.most_texts, size)
        if vectors.shape[1] != self.full_dimension:
            raise InputError(
                f"{self.endpoint.address} gave {self.full_dimension} dimensions before and gives {vectors.shape[1]} "
                "now, from index 0 on: another model is behind its name; start again"
            )
        return vectors
