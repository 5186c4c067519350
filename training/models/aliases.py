"""sentence-transformers' names for the methods of an encoder, so that code for its models, such as evaluators, runs."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from training.catalogue import read_asset
from training.device import pick_device
from training.errors import InputError
from training.inference.runner import InferenceRunner
from training.models.model import VectorModel, log
from training.search import as_rows, pairwise_similarity, similarity
from training.sources.hub import push_folder

PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")


class SentenceTransformerNames(VectorModel):
    """The base class of `Encoder`. It adds the names of `sentence_transformers.SentenceTransformer`."""

    backbone: Any
    head: Any  # a sequence of `SentenceModule`
    _runner: InferenceRunner[Any] | None  # the copy for ``encode``; None until it is needed

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Writes the model's folder."""

    def save_pretrained(self, path: str | Path) -> None:
        """Calls ``save``."""
        self.save(path)

    def push_to_hub(
        self,
        repo_id: str,
        token: str | None = None,
        private: bool = True,
        commit_message: str = "A model of SBERT Lab",
    ) -> str:
        """Uploads the folder that ``save`` writes, with a model card, and returns the address of the repository.

        ``repo_id`` is the repository, org/name. The other arguments and the errors are as in
        `training.sources.hub.push_folder`.
        """

        def write(folder: Path) -> None:
            self.save(folder)
            template = read_asset("model-card.md")
            card = template.format(name=repo_id.strip(), dimension=self.dimension)
            (folder / "README.md").write_text(card, encoding="utf-8")

        return push_folder(write, repo_id, token, private, commit_message)

    def to(self, device: str | torch.device) -> Self:
        """Moves the weights to a device, in place. InputError if this machine does not have it."""
        place = pick_device(device)
        self.backbone.to(place)
        self.head.to(place)
        # The copy for ``encode`` is still on the other device; `inference` makes a new one.
        self._runner = None
        return self

    def train(self) -> Self:
        """Enables dropout. Discards the copy of the weights that ``encode`` uses, as training changes the weights."""
        self._runner = None
        self.backbone.train()
        self.head.train()
        return self

    def eval(self) -> Self:
        """Disables dropout."""
        self.backbone.eval()
        self.head.eval()
        return self

    def get_embedding_dimension(self) -> int:
        """Returns the length of a vector."""
        return self.dimension

    get_sentence_embedding_dimension = get_embedding_dimension

    def similarity(self, u: Any, v: Any) -> torch.Tensor:
        """Compares each of N vectors with each of M: (N, D), (M, D) -> (N, M), by the similarity of the folder."""
        return similarity(as_rows(u), as_rows(v), self.similarity_fn_name)

    def similarity_pairwise(self, u: Any, v: Any) -> torch.Tensor:
        """Compares vectors row by row: (N, D), (N, D) -> (N,), by the similarity of the folder."""
        return pairwise_similarity(as_rows(u), as_rows(v), self.similarity_fn_name)

    @property
    def base_model(self) -> str:
        """The name, which sentence-transformers uses in the names of embedding files."""
        return self.name

    @property
    def model_card_data(self) -> Self:
        """The object that evaluators report their figures to: the model itself, see `set_evaluation_metrics`."""
        return self

    def set_evaluation_metrics(self, evaluator: Any, metrics: Mapping[str, Any], *_: Any) -> None:
        """Logs the figures of an evaluator, without the epoch and the step, which come last."""
        log.info("%s: %s", type(evaluator).__name__, dict(metrics))


def convert_vectors(
    vectors: np.ndarray,
    precision: str | None,
    to_numpy: bool,
    to_tensor: bool,
    device: torch.device,
) -> np.ndarray | torch.Tensor | list[torch.Tensor]:
    """Converts vectors (N, D) to a precision, as an array, a tensor or a list.

    InputError for an unknown precision, or for int8 or uint8 of a single vector.
    """
    if precision is not None:
        if precision not in PRECISIONS:
            raise InputError(f"precision {precision!r} is unknown; choose {', '.join(PRECISIONS)}")
        # The library takes seconds to import.
        from sentence_transformers.util import quantize_embeddings

        try:
            vectors = quantize_embeddings(vectors, precision)
        except ValueError as error:
            # int8 and uint8 measure the ranges of the numbers, which takes several vectors.
            raise InputError(str(error)) from error
    # As in sentence-transformers, ``to_tensor`` takes precedence.
    if to_numpy and not to_tensor:
        return vectors
    tensor = torch.from_numpy(vectors).to(device)
    return tensor if to_tensor else list(tensor)
