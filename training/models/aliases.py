"""The names of sentence-transformers for what an encoder has, so that code for its models, such as evaluators, runs."""

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
    """The base of `Encoder`, with names of `sentence_transformers.SentenceTransformer` for it."""

    backbone: Any
    head: Any  # a sequence of `SentenceModule`
    _runner: InferenceRunner[Any] | None

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Writes the model's folder."""

    def save_pretrained(self, path: str | Path) -> None:
        """Writes the model's folder, as ``save``."""
        self.save(path)

    def push_to_hub(
        self, repo_id: str, token: str | None = None, private: bool = True, commit_message: str = "A model of SBERT Lab"
    ) -> str:
        """Uploads what ``save`` writes, with a model card, as `training.sources.hub.push_folder`, to org/name."""

        def write(folder: Path) -> None:
            self.save(folder)
            card = read_asset("model-card.md").format(name=repo_id.strip(), dimension=self.dimension)
            (folder / "README.md").write_text(card, encoding="utf-8")

        return push_folder(write, repo_id, token, private, commit_message)

    def to(self, device: str | torch.device) -> Self:
        """Moves the weights to a device, in place. InputError if this machine does not have it."""
        place = pick_device(device)
        self.backbone.to(place)
        self.head.to(place)
        self._runner = None
        return self

    def train(self) -> Self:
        """Dropout on, for training. Discards the copy that ``encode`` uses, as the weights are about to change."""
        self._runner = None
        self.backbone.train()
        self.head.train()
        return self

    def eval(self) -> Self:
        """Dropout off, for encoding."""
        self.backbone.eval()
        self.head.eval()
        return self

    def get_embedding_dimension(self) -> int:
        """The length of a vector."""
        return self.dimension

    get_sentence_embedding_dimension = get_embedding_dimension

    def similarity(self, u: Any, v: Any) -> torch.Tensor:
        """The similarity of each vector with each, (N, D), (M, D) -> (N, M), by that of the model's folder."""
        return similarity(as_rows(u), as_rows(v), self.similarity_fn_name)

    def similarity_pairwise(self, u: Any, v: Any) -> torch.Tensor:
        """The similarity of the vectors row by row, (N, D), (N, D) -> (N,), by that of the model's folder."""
        return pairwise_similarity(as_rows(u), as_rows(v), self.similarity_fn_name)

    @property
    def base_model(self) -> str:
        """The name, by which sentence-transformers tells the files of embeddings apart."""
        return self.name

    @property
    def model_card_data(self) -> Self:
        """The place where evaluators leave their figures: the model itself, see `set_evaluation_metrics`."""
        return self

    def set_evaluation_metrics(self, evaluator: Any, metrics: Mapping[str, Any], *_: Any) -> None:
        """Logs the figures of an evaluator, which returns them too."""
        log.info("%s: %s", type(evaluator).__name__, dict(metrics))


def converted(
    vectors: np.ndarray, precision: str | None, to_numpy: bool, to_tensor: bool, device: torch.device
) -> np.ndarray | torch.Tensor | list[torch.Tensor]:
    """Vectors (N, D) in a precision, as an array, a tensor or a list of tensors. InputError for an unknown one."""
    if precision is not None:
        # The library takes seconds to import.
        from sentence_transformers.util import quantize_embeddings

        if precision not in PRECISIONS:
            raise InputError(f"precision {precision!r} is unknown; choose {', '.join(PRECISIONS)}")
        try:
            vectors = quantize_embeddings(vectors, precision)
        except ValueError as error:
            raise InputError(str(error)) from error
    if to_numpy and not to_tensor:
        return vectors
    tensor = torch.from_numpy(vectors).to(device)
    return tensor if to_tensor else list(tensor)
