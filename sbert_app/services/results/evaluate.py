"""The evaluation of a model on any data by name: what `sbert-lab evaluate` and the endpoint `evaluate` answer.

    evaluate("all-MiniLM-L6-v2", "stsb:test", home, models.get).figures["spearman"]["cosine"]

What is wrong with the data or the threshold is reported before a model is loaded.
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
        figures: what `scoring.evaluate`, `DataDecision.to_dict` or `evaluate_task` returned, as plain values.
        notes: sentences on the data, and on what the model has learned from them.
        models: the models that were loaded, the first one first.
        texts: the columns that they have read; of RETRIEVAL the queries, then the documents.
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
    """Evaluate a model on a data set by name.

    Args:
        model: a name; for retrieval data also one that `load_retriever` takes.
        load: opens a model by its name.
        threshold: criteria, parted by commas, for the similarity from which pairs are matches. It is chosen on one half
            of the pairs and measured on the other.
        match_from: the gold score from which a pair is a match, or the grade from which a document is relevant.
        keep_unknown: whether pairs count that have a text of which the model knows no token.

    Raises InputError if the data cannot be used in that way, or the model cannot be opened.
    """
    name = DataName.parse(data)
    models: list[Model] = []
    watched: dict[str, Any] = {"on_progress": watch.on_progress, "should_stop": watch.should_stop}

    def opened(part: str) -> Model:
        models.append(load(part))
        return models[-1]

    if threshold and (name.is_retrieval or name.mteb_task is not None):
        raise InputError(f"{data} has no pairs to choose a threshold by; leave the threshold out, or name pairs")
    if match_from is not None and not (threshold or name.is_retrieval):
        raise InputError("match-from is for a threshold and for retrieval; name a threshold, or leave it out")
    if name.mteb_task is not None:
        task = find_task(name.mteb_task)
        return Evaluation(MTEB, evaluate_task(opened(model), task, home, **watched), (), models)
    if name.is_retrieval:
        judged = load_retrieval(data, home)
        retriever = load_retriever(model, opened)
        figures = scoring.evaluate(retriever, judged, home, relevant_from=match_from or 0.0, **watched)
        return Evaluation(RETRIEVAL, figures, judged.notes, models, (judged.queries, judged.documents))

    started = time.perf_counter()
    dataset = load_data(data, home, split="test")
    if not threshold:
        figures = scoring.evaluate(opened(model), dataset, home, keep_unknown=keep_unknown, **watched)
        notes = [*dataset.notes, *figures["notes"]]
        overlap = overlap_with(ModelName.parse(model), dataset, home)
        if overlap is not None:
            figures["overlap"] = overlap.to_dict()
            notes.append(f"of what {model} was trained on: {overlap}")
        return Evaluation(PAIRS, figures, notes, models, dataset.columns)

    criteria = [str(criterion) for criterion in parse_criteria(threshold.split(","))]
    match_from = POSITIVE_FROM if match_from is None else match_from
    match_labels(dataset, match_from)
    advice = advise(
        ModelName.parse(model),
        dataset,
        lambda name: opened(str(name)),
        home,
        criteria,
        match_from=match_from,
        watch=watch,
        keep_unknown=keep_unknown,
    )
    names = {"model": models[0].name, "pooling": models[0].pooling, "data": dataset.name}
    seconds = round(time.perf_counter() - started, 3)
    figures = {**names, **advice.decision.to_dict(), "notes": advice.notes, "seconds": seconds}
    return Evaluation(THRESHOLD, figures, advice.notes, models, dataset.columns)
