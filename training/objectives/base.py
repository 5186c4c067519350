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
# The teacher's score of (anchor, positive) minus its score of (anchor, negative): (B,).
TEACHER_MARGINS = "teacher's margins"

# The name of dev data that is a part of the training data, the number of parts, and the least
# number of its rows.
HELD_OUT = "held-out"
FOLDS = 10
MIN_HELD_OUT = 10

OBJECTIVES: dict[str, type[Objective]] = {}


class Objective:
    """A loss of sentence vectors. A subclass with a ``name`` becomes an objective that runs can use.

    A call maps the vectors of a batch, one (B, D) float32 per column, and its target to the mean
    loss, a scalar. Weights that are trained with the encoder are attributes of the type
    `torch.nn.Module`. torch is imported in calls only, because commands and pages need the facts,
    and torch takes seconds to import.
    """

    name: ClassVar[str]
    equation: ClassVar[str]
    help: ClassVar[str]
    rows: ClassVar[Rows]
    target: ClassVar[str | None] = None
    # The fields of a `RunConfig` that are the arguments of the class, in this order.
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
    # The figure that selects the best model; None = the first that is measured of `MAIN_METRICS`
    # (`training.trainer.run_metrics`), such as spearman, accuracy or loss.
    selected_by: ClassVar[str | None] = None

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            OBJECTIVES[cls.name] = cls

    @classmethod
    def build(cls, config: object, dimension: int, labels: int) -> Self:
        """Makes the objective from a config, for vectors of D dimensions and data with a number of ``labels``."""
        return cls(*(getattr(config, field) for field in cls.fields))

    @classmethod
    def own_fields(cls) -> tuple[str, ...]:
        """Returns the fields of a `RunConfig` that this objective uses, without the ones that all use."""
        fields = [*cls.fields]
        if cls.scores_pairs:
            fields.append("head")
        if cls.predicts_tokens:
            fields.append("vocabulary_size")
        if cls.needs_teacher():
            fields.append("teacher")
        if cls.can_mine_negatives:
            fields += ["mine_negatives", "negative_margin"]
        return tuple(fields)

    @classmethod
    def trains_vectors(cls) -> bool:
        """Tells whether it trains sentence vectors, not a cross-encoder or a language model."""
        return not (cls.scores_pairs or cls.predicts_tokens)

    def guess(self, rows: int, columns: int, scores: Sequence[float] | None) -> float | None:
        """Returns the loss of the best guess without the sentences; None if it is unknown.

        ``rows`` is the number of rows of a batch, ``columns`` the number of sentences of a row,
        ``scores`` are the gold scores of the data, from 0 to 5.
        """
        return None

    @classmethod
    def needs_teacher(cls) -> bool:
        """Tells whether a teacher computes the target."""
        return cls.target in (TEACHER_OUTPUT, TEACHER_MARGINS)

    @classmethod
    def transform(cls, data: Dataset, seed: int = 0) -> Dataset:
        """Returns the rows to learn from. InputError if the data does not have a form that the objective takes."""
        return transform_for(data, cls.rows, cls.name, seed)

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        """Computes the mean loss of a batch."""
        raise NotImplementedError


class OwnObjective(Objective):
    """An objective that the caller of `training.trainer.train.train` passes as an object.

    Inputs: the columns of the data as they are, (B, D) float32 each. Labels: int64 (B,), or gold
    scores divided by 5, float32 (B,), or None, as the data has them. Weights of a `torch.nn.Module`
    are trained with the encoder. ``call`` is a function of vectors and target that returns the
    loss, a scalar.
    """

    equation = "an object of the program that started the run"
    help = equation
    rows = Rows("Rows", "sentences", dict.fromkeys(FORMS, as_it_is))

    def __init__(self, call: Callable[..., Tensor]) -> None:
        self.call = call

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        """Computes the caller's loss. InputError unless it is a scalar that depends on the vectors."""
        import torch

        loss = self.call(list(vectors), target)
        if not isinstance(loss, torch.Tensor) or loss.ndim:
            result = repr(loss)
            if isinstance(loss, torch.Tensor):
                result = f"a tensor of shape {tuple(loss.shape)}"
            raise InputError(
                f"the objective returns {result}; it must be one number, such as the mean over the batch"
            )
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise InputError(
                "the objective does not depend on the vectors; compute it from them, without detach"
            )
        return loss


# The name is set here, as the class is not one of `OBJECTIVES`.
OwnObjective.name = "an objective of your own"


def own_name(words: str) -> str:
    """Returns the name in a config for an object that cannot be stored there, described in ``words``."""
    return f"own ({words})"


def is_own(name: str | None) -> bool:
    """Tells whether a name comes from `own_name`."""
    return name is not None and name.startswith("own (")


def objective_class(name: str) -> type[Objective]:
    """Returns the class of an objective by its name in a config. KeyError for an unknown name."""
    return OwnObjective if is_own(name) else OBJECTIVES[name]


def names(condition: Callable[[type[Objective]], Any]) -> tuple[str, ...]:
    """Returns the names of the objectives that meet a condition."""
    return tuple(name for name, objective in OBJECTIVES.items() if condition(objective))


def required(target: Tensor | None) -> Tensor:
    """Returns the target. TypeError, a bug, if there is none."""
    if target is None:
        raise TypeError("this objective needs a target")
    return target


def hold_out(data: Dataset, objective: str, seed: int = 0) -> tuple[Dataset, Dataset | None]:
    """Splits off a tenth of the rows that shares no sentence with the rest.

    Returns the data to train on, and the tenth as dev data; or all of the data and None, if the
    tenth is too small to judge a run, or cannot judge the objective.
    """
    folds = sentence_folds(data.columns, FOLDS, seed)
    is_held_out = folds == FOLDS - 1
    held_out = np.flatnonzero(is_held_out).tolist()
    if len(held_out) < MIN_HELD_OUT:
        note = f"too few of {len(data):,} rows can be held out: name dev data to judge the run"
        return data.with_note(note), None
    # SimCSE learns from any data, but its loss cannot judge it, and only these forms have another
    # figure.
    if objective_class(objective).needs_dropout and data.kind not in (SCORED, TRIPLETS, PAIRS):
        note = f"{data.kind} do not judge {objective}: name dev data to choose the best model"
        return data.with_note(note), None
    rest = data.select(np.flatnonzero(~is_held_out).tolist())
    note = (
        f"{len(held_out):,} of {len(data):,} rows, which share no sentence with the rest, are held out to judge "
        "the run"
    )
    # The notes of the data stay with the rows to train on.
    dev = replace(data.select(held_out), name=f"{data.name}, {HELD_OUT}", notes=())
    return rest.with_note(note), dev


def training_data(
    name: str, objective: str, seed: int = 0, home: str | Path | None = None
) -> Dataset:
    """Loads ``name``, transforms each of its parts as ``objective`` needs it, and joins them.

    Sets of different forms ("snli+stsb:train") can be joined if the objective can learn from both.
    """
    learner = objective_class(objective)
    parts = []
    for part in DataName.parse_joined(name):
        parts.append(learner.transform(load_one(part, home), seed))
    return join(parts)
