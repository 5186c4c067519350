"""The evaluation of a model on any data by name, for `sbert-lab evaluate` and the endpoint `evaluate`.

    evaluate("all-MiniLM-L6-v2", "stsb:test", home, models.get).figures["spearman"]["cosine"]

Mistakes in the data or the threshold are reported before a model is loaded.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.results.carry import advise
from sbert_app.services.results.grid import overlap_with
from training.data.load import load_data, load_retrieval
from training.data.transforms import POSITIVE_FROM, match_labels
from training.errors import InputError
from training.evaluation import scoring
from training.evaluation.mteb_tasks import evaluate_task, find_task
from training.evaluation.thresholds import parse_criteria
from training.models.model import Model
from training.models.retrievers import load_retriever
from training.names import DataName, ModelName

PAIRS = "pairs"
THRESHOLD = "threshold"
RETRIEVAL = "retrieval"
MTEB = "mteb"


@dataclass(frozen=True)
class Evaluation:
    """The figures of a model on a data set.

    Attributes:
        kind: PAIRS (or triplets), THRESHOLD, RETRIEVAL or MTEB.
        figures: the plain values that `scoring.evaluate`, `DataDecision.to_dict` or `evaluate_task`
            returned.
        notes: sentences on the data, and on its overlap with the training data of the model.
        models: the models that were loaded, in this order.
        texts: the columns that the models have read; for RETRIEVAL the queries and the documents.
    """

    kind: str
    figures: dict[str, Any]
    notes: Sequence[str]
    models: Sequence[Model]
    texts: Sequence[Sequence[str]] = ()


def evaluate(
    model: str,
    data: str,
    home: Path,
    load: Callable[[str], Model],
    threshold: str | None = None,
    match_from: float | None = None,
    keep_unknown: bool = False,
    watch: Watch = UNWATCHED,
) -> Evaluation:
    """Evaluates a model on a data set by name.

    Args:
        model: the name of a model; for retrieval data, any name that `load_retriever` takes, such as
            all-MiniLM-L6-v2+bm25.
        load: opens a model by its name.
        threshold: criteria, separated by commas, for the similarity from which on pairs match. It is
            chosen on one half of the pairs and measured on the other half.
        match_from: the gold score from which a pair is a match, or the grade from which a document
            is relevant.
        keep_unknown: whether pairs with a text without known tokens count.

    Raises InputError if the arguments do not fit the data, or the data or the model cannot be opened.
    """
    name = DataName.parse(data)
    models: list[Model] = []
    callbacks: dict[str, Any] = {"on_progress": watch.on_progress, "should_stop": watch.should_stop}

    def load_model(name: str) -> Model:
        """Loads a model, and adds it to the models of the evaluation."""
        models.append(load(name))
        return models[-1]

    if threshold and (name.is_retrieval or name.mteb_task is not None):
        raise InputError(
            f"{data} has no pairs to choose a threshold by; leave the threshold out, or name pairs"
        )
    if match_from is not None and not (threshold or name.is_retrieval):
        raise InputError(
            "match-from is for a threshold and for retrieval; name a threshold, or leave it out"
        )
    if name.mteb_task is not None:
        task = find_task(name.mteb_task)
        figures = evaluate_task(load_model(model), task, home, **callbacks)
        # A task has no notes.
        return Evaluation(MTEB, figures, (), models)
    if name.is_retrieval:
        retrieval_data = load_retrieval(data, home)
        retriever = load_retriever(model, load_model)
        # With 0.0 each document that has a grade is relevant.
        figures = scoring.evaluate(
            retriever, retrieval_data, home, relevant_from=match_from or 0.0, **callbacks
        )
        texts = (retrieval_data.queries, retrieval_data.documents)
        return Evaluation(RETRIEVAL, figures, retrieval_data.notes, models, texts)

    started = time.perf_counter()
    dataset = load_data(data, home, split="test")
    if not threshold:
        figures = scoring.evaluate(
            load_model(model), dataset, home, keep_unknown=keep_unknown, **callbacks
        )
        notes = [*dataset.notes, *figures["notes"]]
        overlap = overlap_with(ModelName.parse(model), dataset, home)
        if overlap is not None:
            figures["overlap"] = overlap.to_dict()
            notes.append(f"of what {model} was trained on: {overlap}")
        return Evaluation(PAIRS, figures, notes, models, dataset.columns)

    criteria = [str(criterion) for criterion in parse_criteria(threshold.split(","))]
    if match_from is None:
        match_from = POSITIVE_FROM
    # Raises InputError, before a model is loaded, if the data does not say which pairs match.
    match_labels(dataset, match_from)
    advice = advise(
        ModelName.parse(model),
        dataset,
        lambda name: load_model(str(name)),
        home,
        criteria,
        match_from=match_from,
        watch=watch,
        keep_unknown=keep_unknown,
    )
    # `advise` has loaded the model by `load_model`.
    figures = {
        "model": models[0].name,
        "pooling": models[0].pooling,
        "data": dataset.name,
        **advice.decision.to_dict(),
        "notes": advice.notes,
        "seconds": round(time.perf_counter() - started, 3),
    }
    return Evaluation(THRESHOLD, figures, advice.notes, models, dataset.columns)
