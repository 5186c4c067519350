"""Measure systems that were made here for assets/systems.json, the rows beside the paper's on the Evaluate page.

    python -m scripts.measure_ablation base --seeds 5 --nli snli-dev.csv snli-test.csv --keep models/
    python -m scripts.measure_systems models/ --sts sts12.csv sts14.csv sts16.csv

The first command trains the systems and keeps their models, ``<variant>-<seed>``. The second one
scores the models of the variants below and the raw BERT. Seeds that the file has on the same data
stay as they are. The models nli-<seed>, stsb-<seed> and two-stage-<seed> come from runs of the raw
BERT (benchmarks/README.md).
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

from sbert_app.services.results.grid import load_scored_pairs
from sbert_app.services.results.precomputed import SHIPPED_SYSTEMS, System, Systems
from sbert_app.services.store.documents import read_document, write_document
from training.catalogue import RAW_BERT
from training.data.dataset import Dataset
from training.errors import InputError
from training.evaluation.scoring import evaluate
from training.models.encoder import Encoder
from training.models.model import open_model
from training.sources.home import home_folder

DATA = ("stsb:test", "stsb:dev")
# The label of each variant, and its training data.
TRAINED = {
    "bilstm": ("InferSent: scratch:bilstm", "19,666 labelled pairs of SNLI dev and test"),
    "dan": ("Deep Averaging Network: scratch:dan", "19,666 labelled pairs of SNLI dev and test"),
    "nli": ("raw-bert-mini: NLI by ranking", "19,666 labelled pairs of SNLI dev and test"),
    "stsb": ("raw-bert-mini: STSb", "5,749 scored pairs of STSb train"),
    "two-stage": ("raw-bert-mini: NLI by ranking, then STSb", "SNLI dev and test, then STSb train"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 0 when the file is written, 2 for invalid input."""
    parser = argparse.ArgumentParser(
        prog="scripts.measure_systems", description="Measure systems that were made here."
    )
    parser.add_argument("models", type=Path, help="the folder that measure_ablation --keep filled")
    parser.add_argument(
        "--sts", type=Path, nargs="+", default=[], help="files of scored pairs, such as sts12.csv"
    )
    parser.add_argument("--out", type=Path, default=SHIPPED_SYSTEMS)
    args = parser.parse_args(arguments)
    command = "python -m scripts.measure_systems models"
    if args.sts:
        command += f" --sts {' '.join(path.name for path in args.sts)}"
    try:
        sources = {path.stem: str(path) for path in args.sts}
        sources |= {name: name for name in DATA}
        data = {name: load_scored_pairs(source, home_folder()) for name, source in sources.items()}
        before = {}
        if args.out.exists():
            for system in read_document(args.out, Systems).systems:
                before[system.label] = system
        systems = [*_trained(args.models, data, before), *_untrained(data)]
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write_document(args.out, Systems(systems, date.today().isoformat(), command))
    return 0


def _trained(folder: Path, data: dict[str, Dataset], before: dict[str, System]) -> Iterator[System]:
    """The systems of `TRAINED`, with the seeds of ``before`` and the seeds that the folder has beyond."""
    for variant, (label, made_of) in TRAINED.items():
        system = before.get(label)
        # Seeds that were trained or measured on other data do not count.
        if system is None or system.made_of != made_of or system.figures.keys() != data.keys():
            system = System(label, {name: [] for name in data}, made_of)
        models = {int(file.name.rpartition("-")[2]): file for file in folder.glob(f"{variant}-*")}
        seeds = sorted(seed for seed in models if seed >= system.seeds)
        missing = next(seed for seed in count(system.seeds) if seed not in models)
        if missing == 0 or missing < max(seeds, default=0):
            raise InputError(
                f"{folder} has no model {variant}-{missing}; train the seeds in order with measure_ablation --keep"
            )
        yield _with_seeds(system, [open_model(models[seed]) for seed in seeds], data)


def _untrained(data: dict[str, Dataset]) -> Iterator[System]:
    models = {
        "raw-bert-mini: mean": ("no labels: masked words alone", Encoder.load(RAW_BERT)),
        "raw-bert-mini: CLS": ("no labels: masked words alone", Encoder.load(RAW_BERT, "cls")),
    }
    for label, (made_of, encoder) in models.items():
        yield _with_seeds(System(label, {name: [] for name in data}, made_of), [encoder], data)


def _with_seeds(system: System, encoders: list[Any], data: dict[str, Dataset]) -> System:
    """The system with the figures of these encoders as its next seeds."""
    figures = {}
    for name, pairs in data.items():
        figures[name] = list(system.figures[name])
        for encoder in encoders:
            rho = evaluate(encoder, pairs)["spearman"]["cosine"]
            figures[name].append(round(100 * rho, 3))
    system = replace(system, figures=figures)
    means = {name: round(system.mean([name]), 2) for name in figures}
    print(system.label, means, file=sys.stderr)
    return system


if __name__ == "__main__":
    sys.exit(main())
