"""Measure the table that the Evaluate page opens with: assets/evaluation.json.

    python -m scripts.measure_evaluation                                        STSb dev and test
    python -m scripts.measure_evaluation --sts sts12.csv sts14.csv sts16.csv    also SemEval files
    python -m scripts.measure_evaluation --speed                                only the speeds

Quality: every model on every data set once. Speed: STSb test, the fastest of ``--rounds``, because
other processes may use the machine at the same time.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.grid import ResultGrid, load_scored_pairs, timed_scores
from sbert_app.services.results.precomputed import SHIPPED, PrecomputedResults
from sbert_app.services.results.results import AVERAGE, STATISTICS, Metric
from sbert_app.services.results.table import Results, averaged_of
from sbert_app.services.store.documents import read_document
from scripts.measure_ablation import machine
from training.atomic import write_text
from training.errors import InputError
from training.models.encoder import Encoder
from training.models.model import Model
from training.similarities import SIMILARITIES
from training.sources.home import home_folder

MODELS = (
    "tfidf",
    "glove",
    "all-MiniLM-L6-v2",
    "all-MiniLM-L6-v2:max",
    "all-MiniLM-L6-v2:cls",
    "all-mpnet-base-v2",
    "minilm-stsb",
    "mpnet-stsb",
)
TIMED_ON = "stsb:test"
DATA = (TIMED_ON, "stsb:dev")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 0 when the file is written, 2 for invalid input."""
    args = _parse(arguments)
    cache = ModelCache(home_folder())
    try:
        if args.speed:
            # Raises InputError if the file is not a table of results.
            read_document(args.out, PrecomputedResults)
            values = json.loads(args.out.read_text(encoding="utf-8"))
        else:
            values = measure(cache, args.models, args.sts)
        values |= speeds(cache, list(values["figures"]), args.rounds)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write_text(args.out, as_text(values))
    return 0


def measure(cache: ModelCache, models: Sequence[str], files: Sequence[Path]) -> dict[str, Any]:
    """Every estimate in the format of `sbert_app.services.results.precomputed`, without the speeds."""
    sources = {path.stem: str(path) for path in files}
    sources |= {name: name for name in DATA}
    grid = ResultGrid(list(models), list(sources))
    datasets = {}
    for name, source in sources.items():
        datasets[name] = replace(load_scored_pairs(source, cache.home), name=name)
        grid.sizes[name] = len(datasets[name])
    for model in grid.models:
        scorer = cache.get(model, Model)
        for name, data in datasets.items():
            result = timed_scores(scorer, data)
            grid.results[model, name] = result
            print(f"{model} on {name}: {result.estimate(Metric()).value:.2f}", file=sys.stderr)
    command = "python -m scripts.measure_evaluation"
    if files:
        command += f" --sts {' '.join(path.name for path in files)}"
    return {"command": command, "measured": date.today().isoformat(), **to_dict(grid)}


def speeds(cache: ModelCache, models: Sequence[str], rounds: int) -> dict[str, Any]:
    """Sentences per second of each model, and the machine."""
    data = load_scored_pairs(TIMED_ON, cache.home)
    sentences_per_second = {}
    for model in models:
        scorer = cache.get(model, Model)
        results = [timed_scores(scorer, data) for _ in range(rounds)]
        fastest = min(results, key=lambda result: result.seconds)
        rate = fastest.num_sentences / fastest.seconds
        sentences_per_second[model] = round(rate, 1)
        print(f"{model}: {rate:,.0f} sentences/s", file=sys.stderr)
    encoder = cache.get("all-MiniLM-L6-v2", Encoder)
    about = machine(encoder.device.type, str(encoder.dtype).removeprefix("torch."))
    return {
        "machine": {**about, "rounds": str(rounds), "load": f"{os.getloadavg()[0]:.1f}"},
        "speeds": sentences_per_second,
    }


def to_dict(results: Results) -> dict[str, Any]:
    """The data sets, estimates and differences of any results, in the format of the file."""
    columns = list(results.data)
    if averaged_of(results):
        columns.append(AVERAGE)
    figures = {}
    for model in results.models:
        figures[model] = {name: _estimates(results, model, name) for name in columns}
    return {
        "data": {name: results.sizes.get(name) for name in results.data},
        "figures": figures,
        "differences": {name: _differences(results, name) for name in columns},
    }


def as_text(values: dict[str, Any]) -> str:
    """JSON with a line for each estimate."""
    text = json.dumps(values, ensure_ascii=False, indent=1)
    # The innermost lists are joined to one line each.
    return re.sub(r"\[[^\[\]{}]*\]", lambda match: " ".join(match[0].split()), text) + "\n"


def _estimates(results: Results, model: str, data: str) -> dict[str, dict[str, list[float]]] | None:
    """The estimates by statistic and similarity; None if the model has no results on these data."""
    estimates: dict[str, dict[str, list[float]]] = {}
    for statistic in STATISTICS:
        estimates[statistic] = {}
        for similarity in SIMILARITIES:
            estimate = results.estimate(model, data, Metric(similarity, statistic))
            if estimate:
                estimates[statistic][similarity] = [round(number, 3) for number in estimate]
    return estimates if estimates["spearman"] else None


def _differences(results: Results, data: str) -> dict[str, dict[str, list[float]]]:
    """The difference of each model from each later one."""
    differences: dict[str, dict[str, list[float]]] = {}
    for position, model in enumerate(results.models):
        differences[model] = {}
        for other in results.models[position + 1 :]:
            estimate = results.difference(model, other, data, Metric())
            if estimate:
                differences[model][other] = [round(number, 4) for number in estimate]
    return differences


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts.measure_evaluation", description="Measure models on data sets."
    )
    parser.add_argument(
        "--sts", type=Path, nargs="+", default=[], help="files of scored pairs, such as sts12.csv"
    )
    parser.add_argument(
        "--models", nargs="+", default=MODELS, help="names, with :max or :cls for another pooling"
    )
    parser.add_argument("--speed", action="store_true", help="measure only the speeds")
    parser.add_argument(
        "--rounds", type=int, default=5, help="measurements of the speed; the fastest counts"
    )
    parser.add_argument("--out", type=Path, default=SHIPPED)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
