"""evaluate: how well a model does on a data set."""

import sys
from dataclasses import replace
from math import isnan
from typing import Annotated, Any

from typer import Option

from sbert_app.commands import options
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.compare.calibration import calibrate_on, check, curve_key, own_curves
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.evaluate import MTEB, PAIRS, RETRIEVAL, THRESHOLD
from sbert_app.services.results.evaluate import evaluate as measure
from sbert_app.terminal import ProgressBar, clean_stdout, print_result
from training.models.model import Model, VectorModel
from training.names import ModelName


@options.grouped
def evaluate(
    *,
    data: Annotated[
        str, Option(metavar="NAME_OR_FILE", help="stsb:test, sts12 … sickr, a file, -, mteb:TASK, beir:FOLDER, …")
    ],
    model: options.ModelOptions,
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
    retrieval data (beir:FOLDER, beir:FILE, nanobeir:SET) nDCG, MRR, recall and MAP. --model may also be tfidf, glove, a
    file of word vectors or minilm-stsb; for retrieval bm25, NAME+bm25 or NAME?rerank=CROSS_ENCODER.
    """
    place = computing.prepare()
    with options.received(data) as received:
        data = received if file == type(file)() else file.data(received)
        if calibrate is not None:
            _calibrate(data, calibrate, model, computing)
            return

        def load(name: str) -> Model:
            return options.load_model(replace(model, model=name), computing)

        with clean_stdout(), ProgressBar("evaluating", "sentences") as bar:
            evaluation = measure(model.model, data, place, load, threshold, match_from, keep_unknown, Watch.of(bar))
    figures = evaluation.figures
    for note in evaluation.notes:
        print(f"{figures['data']}: {note}", file=sys.stderr)
    print_result(figures, computing.as_json, TABLES[evaluation.kind](figures))


def _calibrate(data: str, second: str, model: options.ModelOptions, computing: options.Computing) -> None:
    """Fits the calibration of a bi-encoder, and prints how good it is on other pairs."""
    place = computing.prepare()
    name = ModelName.parse(model.name).with_pooling(model.pooling)
    models = ModelCache(place)
    with clean_stdout():
        curve = calibrate_on(models, name, data, place, UNWATCHED)
        report = check(models, name, second, place, UNWATCHED)
        encoder = models.get(name, VectorModel)
    file = own_curves(place).path(curve_key(encoder.name, encoder.pooling))
    answer = {"model": encoder.name, "pooling": encoder.pooling, "data": data, "n": curve.pairs, "file": str(file)}
    text = f"“x of 5” under {name.label} is fitted on {curve.pairs:,} pairs of {data}; delete {file} to undo that"
    print_result({**answer, "check": report.to_json()}, computing.as_json, f"{text}\n{report.describe}")


def decision_lines(decisions: dict[str, Any]) -> str:
    """Average precision, then a line for each threshold."""
    ap = decisions["average_precision"]
    n = decisions["n"]
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
        how = result["interval"]["method"]
        first = next(iter(result[there[0]]))
        what = "ρ" if "spearman" in result else "the accuracy"
        interval = how if isnan(low) else f"{low:.2f} to {high:.2f} ({how})"
        lines.append(f"95% interval of {what} under {first}: {interval}")
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


TABLES = {PAIRS: _table, THRESHOLD: decision_lines, RETRIEVAL: _retrieval_table, MTEB: _mteb_table}
