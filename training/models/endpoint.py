"""A model behind an OpenAI-compatible server as an encoder: ``endpoint:http://localhost:11434/v1#nomic-embed-text``.

It gives vectors only. Tokens, weights and pooling are the server's, so there is no word map and nothing to train; what
asks for them gets one sentence. Prompts and fewer dimensions are applied here, as to any model. Its vectors are cached
in memory by their texts. Which host may be asked is the caller's concern (`sbert_app.services.access`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn

from training.errors import InputError
from training.inference.batching import Row
from training.inference.recent import RecentEmbeddings
from training.inference.runner import Hidden, Ids, InferenceRunner, Reduce, Result
from training.models.model_format import ModelFormat
from training.models.tokenization import TextTokenizer, replace_surrogates, texts
from training.names import Endpoint
from training.progress import ShouldStop, steps
from training.sources.endpoint import fetch_vectors

TEXTS = 32  # of a request: the most that TEI takes unless it is told otherwise
PROBE = "A man is playing a guitar."  # its vector says how many dimensions the model has, and which model it is


class EndpointTokenizer(TextTokenizer):
    """The ids of a text are its code points, from which `EndpointRunner` makes the text again."""

    def __init__(self, name: str) -> None:
        self.name, self.pad_id, self.prompt = name, ord(" "), ""  # servers refuse an empty text

    def encodings(self, sentences: Iterable[str]) -> NoReturn:
        raise vectors_only(self.name)

    def ids(self, sentences: Iterable[str]) -> tuple[list[list[int]], list[int]]:
        whole = (replace_surrogates(self.prompt + text) for text in texts(sentences))
        return [[*map(ord, text)] or [self.pad_id] for text in whole], []

    def prompt_length(self) -> int:
        return 0

    @property
    def backend_tokenizer(self) -> NoReturn:
        """That of a transformer, which distilling asks for."""
        raise vectors_only(self.name)


class EndpointBackbone(nn.Module):
    """Where the weights of another encoder are: the address, and a vector that changes with the model there."""

    def __init__(self, name: str, endpoint: Endpoint) -> None:
        super().__init__()
        self.name, self.endpoint = name, endpoint
        probe = torch.from_numpy(fetch_vectors(endpoint, [PROBE])[0].round(3))  # the last digits differ between calls
        self.probe = nn.Parameter(probe, requires_grad=False)
        self.config = SimpleNamespace(hidden_size=len(probe), model_type="endpoint")

    def forward(self, *_: Any, **__: Any) -> NoReturn:
        """InputError: what asks for more than vectors gets none."""
        raise vectors_only(self.name)

    get_input_embeddings = save_pretrained = forward


class EndpointRunner(InferenceRunner[Ids]):
    """One request after the other, in the caller's thread: the threads that compute do not wait for a server."""

    device = torch.device("cpu")

    def __init__(self, backbone: EndpointBackbone) -> None:
        self.endpoint, self.dimension = backbone.endpoint, backbone.config.hidden_size
        self._recent = RecentEmbeddings(self.dimension)

    def map(
        self, texts: Sequence[Ids], reduce: Reduce[Result], should_stop: ShouldStop | None = None
    ) -> Iterator[tuple[list[int], Result]]:
        size = min(TEXTS, self.batch_size or TEXTS)
        for start in steps(range(0, len(texts), size), should_stop=should_stop):
            rows = list(range(start, min(start + size, len(texts))))
            yield rows, reduce(*self.hidden(texts, [rows], should_stop))

    def hidden(self, texts: Sequence[Ids], rows: list[Row], should_stop: ShouldStop | None = None) -> Hidden:

        def fetch(new: list[str]) -> np.ndarray:
            vectors = fetch_vectors(self.endpoint, new, should_stop)
            if vectors.shape[1] != self.dimension:
                raise InputError(
                    f"{self.endpoint.address} gave {self.dimension} dimensions before and gives {vectors.shape[1]} "
                    "now: another model is behind its name; start again"
                )
            return vectors

        found = self._recent.get(["".join(map(chr, texts[i])) for row in rows for i in row], fetch)
        return torch.from_numpy(found)[:, None], None


def open_endpoint(
    name: str, endpoint: Endpoint
) -> tuple[EndpointBackbone, EndpointTokenizer, nn.Sequential, ModelFormat, str]:
    """What `training.models.loading.open_modules` returns. InputError if the server does not answer with a vector."""
    model_format = ModelFormat(Path(name), "mean", input_module="Endpoint")  # the mean of one vector
    return EndpointBackbone(name, endpoint), EndpointTokenizer(name), nn.Sequential(), model_format, endpoint.address


def vectors_only(name: str) -> InputError:
    """The error for what needs tokens or weights."""
    return InputError(
        f"{name} is an endpoint, which gives vectors only: its tokens and weights are not here; choose a model by name"
    )
