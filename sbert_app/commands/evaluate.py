"""evaluate: how well a model does on a data set."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sbert_app.commands import options
from sbert_app.terminal import ProgressBar, clean_stdout, print_result
from training.registry import DEFAULT_MODEL


def evaluate(
    data: Annotated[
        str,
        typer.Option("--data", metavar="NAME_OR_FILE", help="stsb:test, sts12 … sts16, sickr, a file, or mteb:TASK."),
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="NAME", help="As everywhere; or tfidf, glove, a file of word vectors, minilm-stsb."
        ),
    ] = DEFAULT_MODEL,
    pooling: options.Pooling = None,
    dimension: options.Dimension = None,
    prompt: options.Prompt = None,
    prompt_name: options.PromptName = None,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    home: options.Home = None,
    offline: options.Offline = False,
    as_json: options.Json = False,
) -> None:
    """Measure a model on a data set.

    Spearman and Pearson on scored pairs, average precision and the best F1 on labelled ones, accuracy on triplets.
    """
    place = options.prepare(home, offline)
    model = options.with_settings(model, dimension, prompt, prompt_name)
    from training.data.load import load_data
    from training.evaluation.mteb_tasks import MTEB_PREFIX, evaluate_task, find_task
    from training.evaluation.scoring import evaluate as measure

    found: dict[str, Any]
    with clean_stdout(), ProgressBar("evaluating", "sentences") as bar:
        if data.startswith(MTEB_PREFIX):
            task = find_task(data.removeprefix(MTEB_PREFIX))  # reports a wrong name before the model is loaded
            scorer = options.load_scorer(model, pooling, dtype, device, place)
            found = evaluate_task(scorer, task, place, on_progress=bar)
        else:
            dataset = load_data(data, place, split="test")  # the same
            scorer = options.load_scorer(model, pooling, dtype, device, place)
            found = measure(scorer, dataset, place, on_progress=bar)
    print_result(found, as_json, _table(found) if "n" in found else _mteb_table(found))


def _table(found: dict[str, Any]) -> str:
    """The figures ×100, a line for each similarity."""
    pooling = f" ({found['pooling']})" if found["pooling"] not in (None, "none") else ""
    head = f"{found['model']}{pooling} on {found['data']}: n = {found['n']:,}, {found['seconds']:.1f} s"
    measures = {
        "spearman": "Spearman ρ ×100",
        "pearson": "Pearson ×100",
        "accuracy": "accuracy %",
        "average_precision": "AP ×100",
        "f1": "best F1 ×100",
    }
    there = [name for name in measures if name in found]
    lines = [f"{'':12}" + "".join(f"{measures[name]:>18}" for name in there)]
    for similarity in found[there[0]]:
        lines.append(f"{similarity:12}" + "".join(f"{100 * found[name][similarity]:18.2f}" for name in there))
    if "threshold" in found:
        first = next(iter(found["threshold"]))
        precision, recall = (100 * found[name][first] for name in ("precision", "recall"))
        at = f"the best F1 under {first} is at {found['threshold'][first]:.3f}"
        lines.append(
            f"{found['positives']:,} pairs belong together; {at}: precision {precision:.1f} %, recall {recall:.1f} %"
        )
    if "interval" in found:
        low, high = (100 * found["interval"][end] for end in ("low", "high"))
        how, first = found["interval"]["method"], next(iter(found["spearman"]))
        lines.append(f"95% interval of ρ under {first}: {low:.2f} to {high:.2f} ({how})")
    return "\n".join([head, *lines])


def _mteb_table(found: dict[str, Any]) -> str:
    """What mteb reports, ×100: the task's own metric, then all of a split and subset."""
    [(metric, value)] = found["main_score"].items()
    lines = [
        f"{found['model']} on {found['data']} ({found['type']}): {metric} {100 * value:.2f}, {found['seconds']:.1f} s"
    ]
    for split, subsets in found["scores"].items():
        for subset, figures in subsets.items():
            lines.append(f"{split}, {subset}: " + ", ".join(f"{name} {100 * x:.2f}" for name, x in figures.items()))
    return "\n".join(lines)
