"""The base class of objectives, with all facts that trainer, pages, commands and estimates need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from training.catalogue import PAIRS, SCORED, TRIPLETS
from training.data.dataset import Dataset, join
from training.data.load import load_one
from training.data.transforms import FORMS, Rows, as_it_is, sentence_folds, transform_for
from training.errors import InputError
from training.names import DataName

if TYPE_CHECKING:
    from torch import Tensor

Vectors = Sequence["Tensor"]

# The targets that an objective compares the vectors with.
# Labels: int64 (B,).
LABELS = "labels"
# Gold scores divided by 5: float32 (B,).
SCORES = "scores"
# The numbers of the sentences, equal for equal texts: int64 (B, columns).
TEXTS = "texts"
# The vectors of a bi-encoder (B, columns, D), or the scores of a cross-encoder (B,).
TEACHER_OUTPUT = "teacher's output"
# The teacher's score of (anchor, positive) minus that of (anchor, negative): (B,).
TEACHER_MARGINS = "teacher's margins"

# The name of dev data that is a part of the training data, the number of parts, and the fewest rows that are held out.
HELD_OUT = "held-out"
FOLDS = 10
MIN_HELD_OUT = 10

OBJECTIVES: dict[str, type[Objective]] = {}


class Objective:
    """A loss of sentence vectors. A subclass with a ``name`` is an objective that runs can have.

    A call maps the vectors of a batch, one (B, D) float32 per column, and its target to the mean loss, a scalar.
    Weights that are trained with the encoder are attributes of the type `torch.nn.Module`. Nothing is imported from
    torch before a call, as the facts are needed where torch is not.
    """

    name: ClassVar[str]
    equation: ClassVar[str]
    help: ClassVar[str]
    rows: ClassVar[Rows]
    target: ClassVar[str | None] = None
    # The fields of a `RunConfig` that are the arguments of the class, in their order.
    fields: ClassVar[tuple[str, ...]] = ()
    # Whether its negatives are the other rows of the batch.
    uses_batch: ClassVar[bool] = False
    # Whether its negatives may be mined, see `training.trainer.negatives`.
    can_mine_negatives: ClassVar[bool] = False
    # Whether it compares the model's own output, of length 1 if its folder says so.
    takes_output: ClassVar[bool] = False
    # Whether the two vectors of a sentence differ by dropout alone.
    needs_dropout: ClassVar[bool] = False
    # Whether it trains a cross-encoder, by the logits of pairs.
    scores_pairs: ClassVar[bool] = False
    # Whether it trains a language model, by the logits of tokens.
    predicts_tokens: ClassVar[bool] = False
    # The figure that selects the best model; None = spearman, accuracy or loss.
    selected_by: ClassVar[str | None] = None

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            OBJECTIVES[cls.name] = cls

    @classmethod
    def build(cls, config: object, dimension: int, labels: int) -> Self:
        """The objective with the settings of a config, for vectors of D dimensions and data with so many labels."""
        return cls(*(getattr(config, field) for field in cls.fields))

    @classmethod
    def own_fields(cls) -> tuple[str, ...]:
        """The fields of a `RunConfig` that this objective uses, and not all others do."""
        by_fact = {
            ("head",): cls.scores_pairs,
            ("vocabulary_size",): cls.predicts_tokens,
            ("teacher",): cls.needs_teacher(),
            ("mine_negatives", "negative_margin"): cls.can_mine_negatives,
        }
        return (*cls.fields, *(field for fields, is_its in by_fact.items() if is_its for field in fields))

    @classmethod
    def trains_vectors(cls) -> bool:
        """Whether it trains sentence vectors, and neither a cross-encoder nor a language model."""
        return not (cls.scores_pairs or cls.predicts_tokens)

    def guess(self, rows: int, scores: Sequence[float] | None) -> float | None:
        """The loss of the best answer that does not look at the sentences; None if that is not known.

        ``rows`` is the number of rows of a batch, ``scores`` are the gold scores of the data, from 0 to 5.
        """
        return None

    @classmethod
    def needs_teacher(cls) -> bool:
        """Whether a model gives the target."""
        return cls.target in (TEACHER_OUTPUT, TEACHER_MARGINS)

    @classmethod
    def transform(cls, data: Dataset, seed: int = 0) -> Dataset:
        """The rows to learn from. InputError if the data does not have a form that the objective takes."""
        return transform_for(data, cls.rows, cls.name, seed)

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        """The mean loss of a batch."""
        raise NotImplementedError


class OwnObjective(Objective):
    """An objective that the caller of `training.trainer.train.train` passes as an object.

    Inputs: the columns of the data as they are, (B, D) float32 each. Labels: int64 (B,), or gold scores divided by 5,
    float32 (B,), or None, as the data has them. Weights of a `torch.nn.Module` are trained with the encoder.
    ``call`` is a function of vectors and target that returns the loss, a scalar.
    """

    equation = "an object of the program that started the run"
    help = equation
    rows = Rows("Rows", "sentences", dict.fromkeys(FORMS, as_it_is))

    def __init__(self, call: Callable[..., Tensor]) -> None:
        self.call = call

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        import torch

        loss = self.call(list(vectors), target)
        if not isinstance(loss, torch.Tensor) or loss.ndim:
            result = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else repr(loss)
            raise InputError(f"the objective returns {result}; it must be one number, such as the mean over the batch")
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise InputError("the objective does not depend on the vectors; compute it from them, without detach")
        return loss


# The name is set here, as the class is not one of `OBJECTIVES`.
OwnObjective.name = "an objective of your own"


def own_name(words: str) -> str:
    """The name in a config of an object that cannot be written down."""
    return f"own ({words})"


def is_own(name: str | None) -> bool:
    """Whether a name is one of `own_name`."""
    return name is not None and name.startswith("own (")


def objective_class(name: str) -> type[Objective]:
    """The class of an objective by its name in a config; KeyError if there is none."""
    return OwnObjective if is_own(name) else OBJECTIVES[name]


def names(condition: Callable[[type[Objective]], Any]) -> tuple[str, ...]:
    """The names of the objectives that meet a condition."""
    return tuple(name for name, objective in OBJECTIVES.items() if condition(objective))


def required(target: Tensor | None) -> Tensor:
    """The target. TypeError without one, which is an error of the program."""
    if target is None:
        raise TypeError("this objective needs a target")
    return target


def hold_out(data: Dataset, objective: str, seed: int = 0) -> tuple[Dataset, Dataset | None]:
    """The rows to train on, and a tenth that share no sentence with them; None if there are too few to judge a run."""
    held = np.flatnonzero(sentence_folds(data.columns, FOLDS, seed) == FOLDS - 1)
    if len(held) < MIN_HELD_OUT:
        return data.with_note(f"too few of {len(data):,} rows can be held out: name dev data to judge the run"), None
    if objective_class(objective).needs_dropout and data.kind not in (SCORED, TRIPLETS, PAIRS):
        return data.with_note(f"{data.kind} do not judge {objective}: name dev data to choose the best model"), None
    rest = data.select(sorted({*range(len(data))}.difference(held.tolist())))
    note = f"{len(held):,} of {len(data):,} rows, which share no sentence with the rest, are held out to judge the run"
    return rest.with_note(note), replace(data.select(held.tolist()), name=f"{data.name}, {HELD_OUT}", notes=())


def training_data(name: str, objective: str, seed: int = 0, home: str | Path | None = None) -> Dataset:
    """Loads ``name``, transforms each of its parts as ``objective`` needs it, and joins them.

    Two sets of different forms ("snli+stsb:train") join where the objective can learn from both.
    """
    learner = objective_class(objective)
    return join([learner.transform(load_one(part, home), seed) for part in DataName.parse_joined(name)])
