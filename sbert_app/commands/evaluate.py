"""evaluate: measures a model on a data set."""

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
        str,
        Option(
            metavar="NAME_OR_FILE",
            help="stsb:test, sts12 … sickr, a file, -, mteb:TASK, beir:FOLDER, …",
        ),
    ],
    model: options.ModelOptions,
    file: options.PairFileOptions,
    threshold: options.Threshold = None,
    match_from: options.MatchFrom = None,
    calibrate: Annotated[
        str | None,
        Option(
            metavar="NAME_OR_FILE",
            help="Fit “x of 5” of Compare on --data, and check it on these pairs.",
        ),
    ] = None,
    keep_unknown: options.KeepUnknown = False,
    computing: options.Computing,
) -> None:
    """Measure a model on a data set.

    Spearman and Pearson on scored pairs, average precision and the best F1 on labelled ones,
    accuracy on triplets. With --threshold: from which similarity on pairs are matches, chosen on
    one half of them, measured on the other. On retrieval data (beir:FOLDER, beir:FILE,
    nanobeir:SET) nDCG, MRR, recall and MAP. --model may also be tfidf, glove, a file of word
    vectors or minilm-stsb; for retrieval bm25, NAME+bm25 or NAME?rerank=CROSS_ENCODER.
    """
    home_path = computing.prepare()
    with options.input_file(data) as source:
        data = file.with_options(source)
        if calibrate is not None:
            _calibrate(data, calibrate, model, computing)
            return

        # Called with the name of each model, because --model may join several, as in
        # NAME?rerank=CROSS_ENCODER.
        def load(name: str) -> Model:
            return options.load_model(replace(model, model=name), computing)

        with clean_stdout(), ProgressBar("evaluating", "sentences") as bar:
            evaluation = measure(
                model.model,
                data,
                home_path,
                load,
                threshold,
                match_from,
                keep_unknown,
                Watch.of(bar),
            )
    figures = evaluation.figures
    for note in evaluation.notes:
        print(f"{figures['data']}: {note}", file=sys.stderr)
    print_result(figures, computing.as_json, TABLES[evaluation.kind](figures))


def _calibrate(
    data: str, check_data: str, model: options.ModelOptions, computing: options.Computing
) -> None:
    """Fits the calibration of a bi-encoder on ``data``, and prints its reliability on ``check_data``."""
    home_path = computing.prepare()
    name = ModelName.parse(model.name).with_pooling(model.pooling)
    models = ModelCache(home_path)
    with clean_stdout():
        # Stores the curve, which `check` reads.
        curve = calibrate_on(models, name, data, home_path, UNWATCHED)
        report = check(models, name, check_data, home_path, UNWATCHED)
        encoder = models.get(name, VectorModel)
    file = own_curves(home_path).path(curve_key(encoder.name, encoder.pooling))
    result = {
        "model": encoder.name,
        "pooling": encoder.pooling,
        "data": data,
        "n": curve.pairs,
        "file": str(file),
        "check": report.to_json(),
    }
    text = f"“x of 5” under {name.label} is fitted on {curve.pairs:,} pairs of {data}; delete {file} to undo that"
    print_result(result, computing.as_json, f"{text}\n{report.description}")


def decision_lines(decisions: dict[str, Any]) -> str:
    """Returns lines with the average precision and each threshold."""
    lines = [
        f"{_head(decisions)}: {decisions['match']}",
        f"average precision {_percent(decisions['average_precision'], 2, '95% ')}; "
        f"{decisions['matches']:,} of {decisions['n']:,} pairs are matches",
    ]
    for choice in decisions["choices"]:
        threshold = choice["threshold"]
        if isnan(threshold["value"]):
            lines.append(f"{choice['criterion']}: {choice['why_none']}")
            continue
        rule = f"{decisions['similarity']} from {threshold['value']:.3f}"
        # Without an interval, both bounds are the threshold.
        if threshold["low"] < threshold["high"]:
            rule += f" (95% {threshold['low']:.3f} to {threshold['high']:.3f})"
        measured = f"measured on {choice['measured_on']:,} pairs"
        if choice["is_held_out"]:
            measured = f"chosen on {choice['chosen_on']:,} pairs, measured on the other {choice['measured_on']:,}"
        if not choice["is_tested"]:
            measured = f"reached on one half, not tested; {measured}"
        figures = []
        for name in ("precision", "recall", "F1"):
            figures.append(f"{name} {_percent(choice[name.lower()], 1)}")
        lines.append(f"{choice['criterion']}: {rule} on; {measured}: {', '.join(figures)}")
    return "\n".join(lines)


def _percent(figure: dict[str, float], digits: int, level: str = "") -> str:
    """Returns a figure and its interval, times 100, with the ``level`` of the interval in words."""
    value, low, high = (f"{100 * figure[name]:.{digits}f}" for name in ("value", "low", "high"))
    return f"×100 {value} ({level}{low} to {high})"


def _head(result: dict[str, Any]) -> str:
    model = result["model"]
    if result["pooling"] not in (None, "none"):
        model += f" ({result['pooling']})"
    return f"{model} on {result['data']}"


def _table(result: dict[str, Any]) -> str:
    """Returns the figures ×100, a line for each similarity."""
    titles = {
        "spearman": "Spearman ρ ×100",
        "pearson": "Pearson ×100",
        "accuracy": "accuracy %",
        "average_precision": "AP ×100",
        "f1": "best F1 ×100",
    }
    metrics = [name for name in titles if name in result]
    lines = [
        f"{_head(result)}: n = {result['n']:,}, {result['seconds']:.1f} s",
        " " * 12 + "".join(f"{titles[name]:>18}" for name in metrics),
    ]
    similarities = list(result[metrics[0]])
    for similarity in similarities:
        line = f"{similarity:12}"
        for name in metrics:
            figure = 100 * result[name][similarity]
            line += "undefined".rjust(18) if isnan(figure) else f"{figure:18.2f}"
        lines.append(line)
    first = similarities[0]
    # Labelled pairs have the threshold of the best F1.
    if "threshold" in result:
        lines.append(
            f"{result['positives']:,} pairs belong together; the best F1 under {first} is at "
            f"{result['threshold'][first]:.3f}: precision {100 * result['precision'][first]:.1f} %, "
            f"recall {100 * result['recall'][first]:.1f} %"
        )
    if "interval" in result:
        interval = result["interval"]
        # If there is no interval, ``method`` says why.
        text = interval["method"]
        if not isnan(interval["low"]):
            text = f"{100 * interval['low']:.2f} to {100 * interval['high']:.2f} ({text})"
        metric = "ρ" if "spearman" in result else "the accuracy"
        lines.append(f"95% interval of {metric} under {first}: {text}")
    return "\n".join(lines)


def _mteb_table(result: dict[str, Any]) -> str:
    """Returns the figures of mteb, ×100: the main score of the task, then all metrics of each split and subset."""
    [(metric, value)] = result["main_score"].items()
    task = f"{result['model']} on {result['data']} ({result['type']})"
    lines = [f"{task}: {metric} {100 * value:.2f}, {result['seconds']:.1f} s"]
    for split, subsets in result["scores"].items():
        for subset, figures in subsets.items():
            metrics = ", ".join(f"{name} {100 * value:.2f}" for name, value in figures.items())
            lines.append(f"{split}, {subset}: {metrics}")
    return "\n".join(lines)


def _retrieval_table(result: dict[str, Any]) -> str:
    """Returns the figures ×100, each with its interval."""
    size = f"{result['queries']:,} queries, {result['documents']:,} documents, {result['seconds']:.1f} s"
    lines = [f"{result['model']} on {result['data']}: {size}"]
    for figure, interval in result["intervals"].items():
        bounds = f"{100 * interval['low']:.2f} to {100 * interval['high']:.2f}"
        lines.append(f"{figure:12}{100 * result[figure]:8.2f}   (95% {bounds})")
    return "\n".join([*lines, f"×100; {result['method']}"])


TABLES = {PAIRS: _table, THRESHOLD: decision_lines, RETRIEVAL: _retrieval_table, MTEB: _mteb_table}
