"""A threshold for a model on labelled pairs, and the equivalent of another model's threshold.

    was = ModelThreshold.parse("all-mpnet-base-v2@0.82")
    advice = advise(ModelName.parse("all-MiniLM-L6-v2"), load_data("stsb:dev"), open_model, home, was=was)
    print(advice.carried_sentence)

Both models score the same pairs, without pairs that one of them was trained on or cannot score.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.results.decisions import has_both_kinds, unread_pairs
from training.data.dataset import Dataset
from training.data.transforms import POSITIVE_FROM, match_labels
from training.errors import InputError
from training.evaluation.bootstrap import sentence_keys
from training.evaluation.match_scores import BEST_F1, PRECISION
from training.evaluation.scoring import row_scores, without_score
from training.evaluation.thresholds import (
    CarriedThreshold,
    DataDecision,
    carry_threshold,
    decide,
    parse_criteria,
)
from training.models.model import Model
from training.names import ModelName

# Example pairs for users who have none yet.
EXAMPLE = "stsb:dev"
ABOUT_EXAMPLE = (
    "STS benchmark, dev: 1,500 pairs from news, image captions and forums, CC BY-SA 4.0. They are not your texts: "
    "pairs of your own decide"
)


class ModelThreshold(NamedTuple):
    """A model and its threshold, written ``NAME@0.82``."""

    model: ModelName
    threshold: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads NAME@0.82. Raises InputError if the model or the number is missing."""
        name, _, number = text.rpartition("@")
        try:
            threshold = float(number)
        except ValueError:
            threshold = math.nan
        if not name or not math.isfinite(threshold):
            raise InputError(
                f"{text[:80]!r} must be a model and its threshold, such as all-mpnet-base-v2@0.82"
            )
        return cls(ModelName.parse(name), threshold)


@dataclass(frozen=True, eq=False)
class ThresholdAdvice:
    """The thresholds of a model on ``data``.

    If the model replaces an earlier one, ``was`` is the earlier model with its threshold, and
    ``carried`` are the equivalents of this threshold for the new model.
    """

    model: ModelName
    data: str
    decision: DataDecision
    was: ModelThreshold | None = None
    carried: CarriedThreshold | None = None
    notes: tuple[str, ...] = ()

    @property
    def carried_sentence(self) -> str:
        """A sentence on the earlier threshold and its equivalents; "" if there was no earlier model."""
        carried = self.carried
        if self.was is None or carried is None:
            return ""
        before = f"{self.was.threshold:g} under {self.was.model.label}"
        # No pair reaches the earlier threshold.
        if not carried.accepted:
            return f"{before} accepts none of these pairs, so that nothing can be said of it"
        value, low, high = (100 * figure for figure in carried.precision)
        sentence = (
            f"{before} accepts {100 * carried.accepted:.1f}% of these pairs, of which {value:.0f}% match "
            f"(95% {low:.0f} to {high:.0f}); the same share is {carried.same_share:.3f} under {self.model.label}"
        )
        if math.isnan(carried.same_precision):
            return f"{sentence}, which has the same precision nowhere"
        return f"{sentence}, the same precision {carried.same_precision:.3f}"

    def to_dict(self) -> dict[str, Any]:
        """The advice as plain values."""
        return {
            "model": str(self.model),
            "data": self.data,
            "was": self.was and {"model": str(self.was.model), "threshold": self.was.threshold},
            "carried": self.carried and self.carried.to_dict(),
            **self.decision.to_dict(),
            "sentence": self.carried_sentence,
            "notes": list(self.notes),
        }


def advise(
    model: ModelName,
    rows: Dataset,
    load: Callable[[ModelName], Model],
    home: Path,
    criteria: Sequence[str] = (f"{PRECISION}=0.95", BEST_F1),
    was: ModelThreshold | None = None,
    match_from: float = POSITIVE_FROM,
    watch: Watch = UNWATCHED,
    keep_unknown: bool = False,
) -> ThresholdAdvice:
    """Scores the pairs with the model and the earlier one, which ``load`` opens, and chooses thresholds.

    Pairs whose score is not finite are left out, and pairs with a text without known tokens unless
    ``keep_unknown``. Raises InputError if a criterion cannot be read, the pairs do not say which of
    them match, or a model cannot be opened.
    """
    # Checked first, so that a mistake is reported before anything is scored.
    parse_criteria(criteria)
    names = [model]
    # The earlier threshold may be one of the same model, which then is scored once.
    if was is not None and was.model != model:
        names.append(was.model)
    notes = list[str]()
    # Only the pairs stay that none of the models was trained on.
    for name in names:
        rows, more = unread_pairs(name, rows, home, match_from)
        notes += more
    matches, meaning = match_labels(rows, match_from)
    scores: dict[ModelName, tuple[str, np.ndarray]] = {}
    is_left_out = np.zeros(len(rows), bool)
    for number, name in enumerate(names, start=1):
        step = watch.stage(f"{number} of {len(names)}: {name.label}")
        scorer = load(name)
        # The rows are pairs, so that one pair of columns has scores.
        [by_similarity] = row_scores(
            scorer, rows.columns, on_progress=step.on_progress, should_stop=step.should_stop
        )
        # The cosines, or the only scores of a cross-encoder.
        similarity, values = next(iter(by_similarity.items()))
        scores[name] = (similarity, values)
        unscored, note = without_score(scorer, rows.columns, [{similarity: values}], keep_unknown)
        is_left_out |= unscored
        if note:
            notes.append(note)
    is_scored = ~is_left_out
    if not has_both_kinds(matches[is_scored]):
        raise InputError(
            f"{rows.name}: the pairs that are left are of one kind, so that no threshold can be chosen"
        )
    keys = sentence_keys(rows.columns)[is_scored]
    similarity, values = scores[model]
    decision = decide(values[is_scored], matches[is_scored], criteria, keys=keys)
    carried = None
    if was is not None:
        _, before = scores[was.model]
        carried = carry_threshold(
            values[is_scored], matches[is_scored], before[is_scored], was.threshold, keys
        )
    on_data = DataDecision(similarity, meaning, decision)
    return ThresholdAdvice(model, rows.name, on_data, was, carried, tuple(notes))
