"""A plug-in of SBERT Lab: a model, a pooling and an objective."""

import numpy as np
import torch

from training.data.transforms import SCORED_ROWS
from training.models.model import Opener, VectorModel
from training.objectives.base import SCORES, Objective, Vectors, required
from training.pooling import Pooling


class Letters(VectorModel):
    """Counts how often each letter from a to z occurs in a sentence."""

    kind, name, dimension = "count of letters", "letters", 26

    def encode_batch(self, sentences: list[str]) -> np.ndarray:
        return np.array(
            [
                [sentence.lower().count(chr(97 + letter)) for letter in range(26)]
                for sentence in sentences
            ]
        )


def median(hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """The median of each dimension over the real tokens. (B, T, D) -> (B, D) float32."""
    hidden = hidden.float()
    return (
        (hidden if mask is None else hidden.masked_fill(~mask.unsqueeze(-1), float("nan")))
        .nanmedian(dim=1)
        .values
    )


class AbsoluteError(Objective):
    """The mean of |cos(u, v) - gold|."""

    name, equation = "absolute-error", "|cos(u, v) − gold|"
    help, rows, target = "the distance of the cosine from the gold score", SCORED_ROWS, SCORES

    def __call__(self, vectors: Vectors, target: torch.Tensor | None = None) -> torch.Tensor:
        return (torch.cosine_similarity(*vectors) - required(target)).abs().mean()


OPENER = Opener("baseline", Letters, lambda name, folder: name.name == "letters", VectorModel)
MEDIAN = Pooling(median, "median")
