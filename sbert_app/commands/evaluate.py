"""evaluate: how well a model does on a data set."""

import sys
import time
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from sbert_app.commands import options
from sbert_app.services.background.watch import UNWATCHED
from sbert_app.services.compare.calibration import calibrate_on, check, curve_key, own_curves
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.decisions import unread_pairs
from sbert_app.services.results.grid import overlap_with
from sbert_app.terminal import ProgressBar, clean_stdout, print_result
from training.catalogue import DEFAULT_MODEL
from training.data.load import load_data, load_retrieval
from training.data.transforms import POSITIVE_FROM, match_labels
from training.errors import InputError
from training.evaluation.mteb_tasks import evaluate_task, find_task
from training.evaluation.scoring import evaluate as measure
from training.evaluation.thresholds import decide_data, parse_criteria
from training.models.model import VectorModel
from training.models.retrievers import load_retriever
from training.names import DataName, ModelName


@dataclass(frozen=True)
class _ModelOptions(options.ModelOptions):
    model: Annotated[
        str, Option(metavar="NAME", help="As everywhere; or tfidf, glove, a file of word vectors, minilm-stsb.")
    ] = DEFAULT_MODEL


@options.grouped
def evaluate(
    argument: Annotated[str | None, Argument(metavar="DATA", hidden=True)] = None,
    *,
    data: Annotated[
        str | None,
        Option(metavar="NAME_OR_FILE", help="stsb:test, sts12 … sickr, a file, -, mteb:TASK, beir:FOLDER, …"),
    ] = None,
    model: _ModelOptions,
    file: options.PairFileOptions,
    threshold: options.Threshold = None,
    match_from: options.MatchFrom = None,
    calibrate: Annotated[
        str | None,
        Option(metavar="NAME_OR_FILE", help="Fit “x of 5” of Compare on --data, and check it on these pairs."),
    ] = None,
    keep_unknown: options.KeepUnknown = False,
    computing: options.Computing,
) -> None:
    """Measure a model on a data set.

    Spearman and Pearson on scored pairs, average precision and the best F1 on labelled ones, accuracy on triplets. With
    --threshold: from which similarity on pairs are matches, chosen on one half of them, measured on the other. On
    retrieval data (beir:FOLDER, beir:FILE, nanobeir:SET) nDCG, MRR, recall and MAP; there --model may also be bm25,
    NAME+bm25 or NAME?rerank=CROSS_ENCODER.
    """
    if (data is None) == (argument is None):
        raise InputError("name the data to measure the model on, such as --data stsb:test")
    if match_from is not None and threshold is None and not DataName.parse(data or argument or "").is_retrieval:
        raise InputError("--match-from is for --threshold and for retrieval; add --threshold, or leave it out")
    place = computing.prepare()
    with options.received(data or argument or "") as received:
        data = received if file == type(file)() else file.data(received)
        if calibrate is not None:
            _calibrate(data, calibrate, model, computing)
            return
        with clean_stdout(), ProgressBar("evaluating", "sentences") as bar:
            if threshold is not None:
                result = _decide(data, threshold, match_from, model, keep_unknown, computing, place, bar)
            elif (name := DataName.parse(data).mteb_task) is not None:
                # Here and below, what is wrong with the data is reported before the model is loaded.
                task = find_task(name)
                result = evaluate_task(options.load_model(model, computing), task, place, on_progress=bar)
            elif DataName.parse(data).is_retrieval:
                judged = load_retrieval(data, place)
                retriever = load_retriever(
                    model.model, lambda name: options.load_model(replace(model, model=name), computing)
                )
                result = measure(retriever, judged, on_progress=bar, relevant_from=match_from or 0.0)
                for note in judged.notes:
                    print(f"{judged.name}: {note}", file=sys.stderr)
            else:
                dataset = load_data(data, place, split="test")
                scorer = options.load_model(model, computing)
                result = measure(scorer, dataset, place, on_progress=bar, keep_unknown=keep_unknown)
                notes = [*dataset.notes, *result["notes"]]
                if (overlap := overlap_with(ModelName.parse(model.name), dataset, place)) is not None:
                    result["overlap"] = overlap.to_dict()
                    notes.append(f"of what {model.name} was trained on: {overlap}")
                for note in notes:
                    print(f"{dataset.name}: {note}", file=sys.stderr)
    by_key = {"choices": decision_lines, "queries": _retrieval_table, "n": _table, "main_score": _mteb_table}
    table = next(table for key, table in by_key.items() if key in result)
    print_result(result, computing.as_json, table(result))


def _calibrate(data: str, second: str, model: _ModelOptions, computing: options.Computing) -> None:
    """Fits the calibration of a bi-encoder, and prints how good it is on other pairs."""
    place = computing.prepare()
    name, models = ModelName.parse(model.name).with_pooling(model.pooling), ModelCache(place)
    with clean_stdout():
        curve = calibrate_on(models, name, data, place, UNWATCHED)
        report, encoder = check(models, name, second, place, UNWATCHED), models.get(name, VectorModel)
    file = own_curves(place).path(curve_key(encoder.name, encoder.pooling))
    answer = {"model": encoder.name, "pooling": encoder.pooling, "data": data, "n": curve.pairs, "file": str(file)}
    text = f"“x of 5” under {name.label} is fitted on {curve.pairs:,} pairs of {data}; delete {file} to undo that"
    print_result({**answer, "check": report.to_json()}, computing.as_json, f"{text}\n{report.describe}")


def _decide(
    data: str,
    threshold: str,
    match_from: float | None,
    model: _ModelOptions,
    keep_unknown: bool,
    computing: options.Computing,
    home: Path,
    bar: ProgressBar,
) -> dict[str, Any]:
    name = DataName.parse(data)
    if name.mteb_task is not None or name.is_retrieval:
        raise InputError(f"{data} has no pairs to choose a threshold by; leave --threshold out, or name data of pairs")
    criteria = [str(criterion) for criterion in parse_criteria(threshold.split(","))]
    started, dataset = time.perf_counter(), load_data(data, home, split="test")
    # This reports what is wrong before the model is loaded.
    match_from = POSITIVE_FROM if match_from is None else match_from
    match_labels(dataset, match_from)
    dataset, notes = unread_pairs(ModelName.parse(model.name), dataset, home, match_from)
    scorer = options.load_model(model, computing)
    decisions = decide_data(scorer, dataset, criteria, match_from, bar, keep_unknown=keep_unknown)
    for note in filter(None, (*notes, decisions.left_out)):
        print(note, file=sys.stderr)
    names = {"model": scorer.name, "pooling": getattr(scorer, "pooling", None), "data": dataset.name}
    return {**names, **decisions.to_dict(), "seconds": round(time.perf_counter() - started, 3)}


def decision_lines(decisions: dict[str, Any]) -> str:
    """Average precision, then a line for each threshold."""
    ap, n = decisions["average_precision"], decisions["n"]
    lines = [
        f"{_head(decisions)}: {decisions['match']}",
        f"average precision ×100 {100 * ap['value']:.2f} (95% {100 * ap['low']:.2f} to {100 * ap['high']:.2f}); "
        f"{decisions['matches']:,} of {n:,} pairs are matches",
    ]
    for choice in decisions["choices"]:
        at = choice["threshold"]
        if at["value"] != at["value"]:
            lines.append(f"{choice['criterion']}: {choice['why_none']}")
            continue
        interval = f" (95% {at['low']:.3f} to {at['high']:.3f})" if at["low"] < at["high"] else ""
        figures = ", ".join(
            f"{name} ×100 {100 * value['value']:.1f} ({100 * value['low']:.1f} to {100 * value['high']:.1f})"
            for name, value in ((key, choice[key.lower()]) for key in ("precision", "recall", "F1"))
        )
        measured = f"measured on {choice['measured_on']:,} pairs"
        if choice["is_held_out"]:
            measured = f"chosen on {choice['chosen_on']:,} pairs, measured on the other {choice['measured_on']:,}"
        if not choice["is_tested"]:
            measured = f"reached on one half, not tested; {measured}"
        threshold = f"{decisions['similarity']} from {at['value']:.3f}{interval} on"
        lines.append(f"{choice['criterion']}: {threshold}; {measured}: {figures}")
    return "\n".join(lines)


def _head(result: dict[str, Any]) -> str:
    pooling = f" ({result['pooling']})" if result["pooling"] not in (None, "none") else ""
    return f"{result['model']}{pooling} on {result['data']}"


def _table(result: dict[str, Any]) -> str:
    """The figures ×100, a line for each similarity."""
    head = f"{_head(result)}: n = {result['n']:,}, {result['seconds']:.1f} s"
    measures = {"spearman": "Spearman ρ ×100", "pearson": "Pearson ×100", "accuracy": "accuracy %"}
    measures |= {"average_precision": "AP ×100", "f1": "best F1 ×100"}
    there = [name for name in measures if name in result]
    lines = [f"{'':12}" + "".join(f"{measures[name]:>18}" for name in there)]
    for similarity in result[there[0]]:
        figures = (100 * result[name][similarity] for name in there)
        cells = ("undefined" if isnan(figure) else f"{figure:.2f}" for figure in figures)
        lines.append(f"{similarity:12}" + "".join(f"{cell:>18}" for cell in cells))
    if "threshold" in result:
        first = next(iter(result["threshold"]))
        precision, recall = (100 * result[name][first] for name in ("precision", "recall"))
        at = f"the best F1 under {first} is at {result['threshold'][first]:.3f}"
        lines.append(
            f"{result['positives']:,} pairs belong together; {at}: precision {precision:.1f} %, recall {recall:.1f} %"
        )
    if "interval" in result:
        low, high = (100 * result["interval"][end] for end in ("low", "high"))
        how, first = result["interval"]["method"], next(iter(result["spearman"]))
        interval = how if isnan(low) else f"{low:.2f} to {high:.2f} ({how})"
        lines.append(f"95% interval of ρ under {first}: {interval}")
    return "\n".join([head, *lines])


def _mteb_table(result: dict[str, Any]) -> str:
    """The figures of mteb, ×100: the task's own metric, then all metrics of each split and subset."""
    [(metric, value)] = result["main_score"].items()
    task = f"{result['model']} on {result['data']} ({result['type']})"
    lines = [f"{task}: {metric} {100 * value:.2f}, {result['seconds']:.1f} s"]
    for split, subsets in result["scores"].items():
        for subset, figures in subsets.items():
            lines.append(f"{split}, {subset}: " + ", ".join(f"{name} {100 * x:.2f}" for name, x in figures.items()))
    return "\n".join(lines)


def _retrieval_table(result: dict[str, Any]) -> str:
    """The figures ×100, each with its interval."""
    size = f"{result['queries']:,} queries, {result['documents']:,} documents, {result['seconds']:.1f} s"
    lines = [f"{result['model']} on {result['data']}: {size}"]
    for figure, interval in result["intervals"].items():
        low, high = (100 * interval[end] for end in ("low", "high"))
        lines.append(f"{figure:12}{100 * result[figure]:8.2f}   (95% {low:.2f} to {high:.2f})")
    return "\n".join([*lines, f"×100; {result['method']}"])
