"""Measure the table that the Evaluate page opens with: assets/evaluation.json.

    python -m scripts.measure_evaluation                                        STSb dev and test
    python -m scripts.measure_evaluation --sts sts12.csv sts14.csv sts16.csv    also SemEval files
    python -m scripts.measure_evaluation --speed                                only the speeds

Quality: every model on every data set once. Speed: STSb test, the fastest of ``--rounds``, as other
processes may use the machine meanwhile.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
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
    *("tfidf", "glove"),
    *("all-MiniLM-L6-v2", "all-MiniLM-L6-v2:max", "all-MiniLM-L6-v2:cls"),
    *("all-mpnet-base-v2", "minilm-stsb", "mpnet-stsb"),
)
TIMED_ON = "stsb:test"
DATA = (TIMED_ON, "stsb:dev")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 0 when the file is written, 2 for invalid input."""
    args = _parse(arguments)
    cache = ModelCache(home_folder())
    try:
        if args.speed:
            # This fails if the file is no such table.
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
    named = {path.stem: str(path) for path in files}
    grid = ResultGrid(list(models), [*named, *DATA])
    datasets = {
        name: replace(load_scored_pairs(named.get(name, name), cache.home), name=name)
        for name in grid.data
    }
    grid.sizes |= {name: len(data) for name, data in datasets.items()}
    for model in grid.models:
        scorer = cache.get(model, Model)
        for name, data in datasets.items():
            grid.results[model, name] = timed_scores(scorer, data)
            print(
                f"{model} on {name}: {grid.results[model, name].estimate(Metric()).value:.2f}",
                file=sys.stderr,
                flush=True,
            )
    command = "python -m scripts.measure_evaluation"
    command += f" --sts {' '.join(path.name for path in files)}" if files else ""
    return {"command": command, "measured": date.today().isoformat(), **to_dict(grid)}


def speeds(cache: ModelCache, models: Sequence[str], rounds: int) -> dict[str, Any]:
    """Sentences per second of each model, and the machine."""
    data, sentences_per_second = load_scored_pairs(TIMED_ON, cache.home), {}
    for model in models:
        scorer = cache.get(model, Model)
        fastest = min(
            (timed_scores(scorer, data) for _ in range(rounds)), key=lambda result: result.seconds
        )
        sentences_per_second[model] = round(fastest.num_sentences / fastest.seconds, 1)
        print(
            f"{model}: {sentences_per_second[model]:,.0f} sentences/s", file=sys.stderr, flush=True
        )
    encoder = cache.get("all-MiniLM-L6-v2", Encoder)
    about = machine(encoder.device.type, str(encoder.dtype).removeprefix("torch."))
    return {
        "machine": {**about, "rounds": str(rounds), "load": f"{os.getloadavg()[0]:.1f}"},
        "speeds": sentences_per_second,
    }


def to_dict(results: Results) -> dict[str, Any]:
    """The data sets, estimates and differences of any results, in the format of the file."""
    columns = [*results.data, *([AVERAGE] if averaged_of(results) else [])]
    return {
        "data": {name: results.sizes.get(name) for name in results.data},
        "figures": {
            model: {name: _estimates(results, model, name) for name in columns}
            for model in results.models
        },
        "differences": {name: dict(_differences(results, name)) for name in columns},
    }


def as_text(values: dict[str, Any]) -> str:
    """JSON with a line for each estimate."""
    text = json.dumps(values, ensure_ascii=False, indent=1)
    return re.sub(r"\[[^\[\]{}]*\]", lambda match: " ".join(match[0].split()), text) + "\n"


def _estimates(results: Results, model: str, data: str) -> dict[str, dict[str, list[float]]] | None:
    estimates = {
        statistic: {
            similarity: [round(number, 3) for number in estimate]
            for similarity in SIMILARITIES
            if (estimate := results.estimate(model, data, Metric(similarity, statistic)))
        }
        for statistic in STATISTICS
    }
    return estimates if estimates["spearman"] else None


def _differences(results: Results, data: str) -> Iterator[tuple[str, dict[str, list[float]]]]:
    for i, a in enumerate(results.models):
        differences = {b: results.difference(a, b, data, Metric()) for b in results.models[i + 1 :]}
        yield (
            a,
            {
                b: [*(round(number, 4) for number in numbers)]
                for b, numbers in differences.items()
                if numbers
            },
        )


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
