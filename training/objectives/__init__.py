"""The training objectives: sentence vectors in, a scalar loss out.

Each objective is a small module that knows nothing of tokenizers or data sets: it takes the sentence vectors of a
batch, one tensor (B, D) float32 per column, and the targets of its B rows, and returns the mean loss. Values and
gradients equal those of the losses of sentence-transformers (tests/training/test_objectives.py).

    objective        columns                        target                  source
    classification   sentence1, sentence2           label 0..k-1            Reimers & Gurevych 2019, section 3
    regression       sentence1, sentence2           gold score / 5          Reimers & Gurevych 2019, section 3
    cosent           sentence1, sentence2           gold score / 5          Huang et al. 2024
    angle            sentence1, sentence2           gold score / 5          Li & Li 2024
    contrastive      sentence1, sentence2           0 apart, 1 together     Hadsell et al. 2006
    triplet          anchor, positive, negative     none                    Reimers & Gurevych 2019, section 3
    mnrl             anchor, positive[, negative]   none                    Henderson et al. 2017, section 4.4
    simcse           a sentence, the same again     none                    Gao, Yao & Chen 2021
    mse              any sentences                  a teacher's vectors     Reimers & Gurevych 2020
                     sentence1, sentence2           or a teacher's scores
    margin-mse       anchor, positive, negative     a teacher's margin      Hofstätter et al. 2020

`OBJECTIVES` holds all of them by name; `build_objective` makes one as a run's config says, trained at several
dimensions if it has ``matryoshka_dims``.
"""

from training.objectives.base import Vectors
from training.objectives.distillation import MarginMSE, MeanSquaredError
from training.objectives.modifiers import Matryoshka, Normalized
from training.objectives.pairs import (
    CONCATENATIONS,
    AnglE,
    Classification,
    Contrastive,
    CoSENT,
    Regression,
    concatenate,
    width,
)
from training.objectives.ranking import METRICS, MultipleNegativesRanking, Triplet
from training.objectives.table import OBJECTIVES, Entry, build_objective

__all__ = [
    "CONCATENATIONS",
    "METRICS",
    "OBJECTIVES",
    "AnglE",
    "Classification",
    "CoSENT",
    "Contrastive",
    "Entry",
    "MarginMSE",
    "Matryoshka",
    "MeanSquaredError",
    "MultipleNegativesRanking",
    "Normalized",
    "Regression",
    "Triplet",
    "Vectors",
    "build_objective",
    "concatenate",
    "width",
]
