"""evaluate: how well a model does on a data set."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sbert_app.commands import options
from sbert_app.terminal import ProgressBar, clean_stdout, print_result
from training.registry import DEFAULT_MODEL

POOLED = ("mean", "max", "cls")


def evaluate(
    data: Annotated[
        str, typer.Option("--data", metavar="NAME_OR_FILE", help="stsb:test, sts12 … sts16, sickr, or a file.")
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="NAME", help="As everywhere; or tfidf, glove, a file of word vectors, minilm-stsb."
        ),
    ] = DEFAULT_MODEL,
    pooling: options.Pooling = None,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    home: options.Home = None,
    offline: options.Offline = False,
    as_json: options.Json = False,
) -> None:
    """Measure a model on a data set. Spearman and Pearson on scored pairs, accuracy on triplets."""
    place = options.prepare(home, offline)
    from training.data.load import load_data
    from training.evaluation.scoring import evaluate as measure

    with clean_stdout(), ProgressBar("evaluating", "sentences") as bar:
        dataset = load_data(data, place, split="test")  # reports a wrong name before the model is loaded
        scorer = options.load_scorer(model, pooling, dtype, device, place)
        found = measure(scorer, dataset, place, on_progress=bar)
    print_result(found, as_json, _table(found))


def _table(found: dict[str, Any]) -> str:
    """The figures ×100, a line for each similarity."""
    pooling = f" ({found['pooling']})" if found["pooling"] in POOLED else ""
    head = f"{found['model']}{pooling} on {found['data']}: n = {found['n']:,}, {found['seconds']:.1f} s"
    measures = {"spearman": "Spearman ρ ×100", "pearson": "Pearson ×100", "accuracy": "accuracy %"}
    there = [name for name in measures if name in found]
    lines = [f"{'':12}" + "".join(f"{measures[name]:>18}" for name in there)]
    for similarity in found[there[0]]:
        lines.append(f"{similarity:12}" + "".join(f"{100 * found[name][similarity]:18.2f}" for name in there))
    if "interval" in found:
        low, high = (100 * found["interval"][end] for end in ("low", "high"))
        how, first = found["interval"]["method"], next(iter(found["spearman"]))
        lines.append(f"95% interval of ρ under {first}: {low:.2f} to {high:.2f} ({how})")
    return "\n".join([head, *lines])
