"""Measure the table that the Evaluate page opens with: assets/evaluation.json.

    python -m scripts.measure_evaluation                                        STSb dev and test
    python -m scripts.measure_evaluation --sts sts12.csv sts14.csv sts16.csv    and SemEval files, named sts12, sts14, …
    python -m scripts.measure_evaluation --speed                                the speeds again, nothing else

Quality is every cell once. Speed is STSb test alone, the fastest of ``--rounds``: others may use the machine meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.eval_result import Metric
from sbert_app.services.results.grid import ResultGrid, load_scored_pairs, score_pairs
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.results.precomputed import SHIPPED, PrecomputedResults, as_text, to_dict
from scripts.measure_ablation import machine
from training.atomic import write_text
from training.errors import InputError
from training.sources.home import home_folder

MODELS = (
    *("tfidf", "glove"),
    *("all-MiniLM-L6-v2", "all-MiniLM-L6-v2:max", "all-MiniLM-L6-v2:cls"),
    *("all-mpnet-base-v2", "minilm-stsb", "mpnet-stsb"),
)
TIMED_ON = "stsb:test"
DATA = (TIMED_ON, "stsb:dev")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. 0: written; 2: the input is wrong."""
    asked = _parse(arguments)
    shelf = ModelCache(home_folder())
    try:
        values = PrecomputedResults.read(asked.out).values if asked.speed else measure(shelf, asked.models, asked.sts)
        values |= speeds(shelf, list(values["figures"]), asked.rounds)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write_text(asked.out, as_text(values))
    return 0


def measure(shelf: ModelCache, models: Sequence[str], files: Sequence[Path]) -> dict[str, Any]:
    """Every cell, as `sbert_app.services.results.precomputed` keeps it; no speeds yet."""
    named = {path.stem: str(path) for path in files}
    board = ResultGrid(list(models), [*named, *DATA])
    sets = {name: replace(load_scored_pairs(named.get(name, name), shelf.home), name=name) for name in board.data}
    board.sizes |= {name: len(data) for name, data in sets.items()}
    for model in board.models:
        choice = ModelSpec.parse(model)
        scorer = shelf.scorer(choice.name, choice.pooling)
        for name, data in sets.items():
            board.results[model, name] = score_pairs(scorer, data)
            print(
                f"{model} on {name}: {100 * board.results[model, name].value(Metric()):.2f}",
                file=sys.stderr,
                flush=True,
            )
    command = "python -m scripts.measure_evaluation"
    command += f" --sts {' '.join(path.name for path in files)}" if files else ""
    return {"command": command, "measured": date.today().isoformat(), **to_dict(board)}


def speeds(shelf: ModelCache, models: Sequence[str], rounds: int) -> dict[str, Any]:
    """Sentences a second of each model, and on what machine."""
    data, found = load_scored_pairs(TIMED_ON, shelf.home), {}
    for model in models:
        choice = ModelSpec.parse(model)
        scorer = shelf.scorer(choice.name, choice.pooling)
        fastest = min((score_pairs(scorer, data) for _ in range(rounds)), key=lambda cell: cell.seconds)
        found[model] = round(fastest.num_sentences / fastest.seconds, 1)
        print(f"{model}: {found[model]:,.0f} sentences/s", file=sys.stderr, flush=True)
    encoder = shelf.encoder("all-MiniLM-L6-v2")
    where = machine(encoder.device.type, str(encoder.dtype).removeprefix("torch."))
    return {"machine": {**where, "rounds": str(rounds), "load": f"{os.getloadavg()[0]:.1f}"}, "speeds": found}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts.measure_evaluation", description="Measure models on data sets.")
    parser.add_argument("--sts", type=Path, nargs="+", default=[], help="files of scored pairs, such as sts12.csv")
    parser.add_argument("--models", nargs="+", default=MODELS, help="names, with :max or :cls for another pooling")
    parser.add_argument("--speed", action="store_true", help="measure the speeds again, and nothing else")
    parser.add_argument("--rounds", type=int, default=5, help="of which the fastest is the speed")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
