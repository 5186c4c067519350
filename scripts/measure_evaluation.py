"""Measure the table that the Evaluate page opens with: assets/evaluation.json.

    python -m scripts.measure_evaluation                                        STSb dev and test
    python -m scripts.measure_evaluation --sts sts12.csv sts14.csv sts16.csv    and SemEval files, named sts12, sts14, …

Every cell is scored ``--rounds`` times and the fastest counts for its speed: others may use the machine meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from sbert_app.evaluation.board import Board, read, score
from sbert_app.evaluation.choice import ModelChoice
from sbert_app.evaluation.measured import SHIPPED, to_json
from sbert_app.runs.record import write_whole
from sbert_app.shelf import ModelShelf
from scripts.measure_ablation import machine
from training.errors import InputError
from training.sources import home_folder

MODELS = (
    *("tfidf", "glove"),
    *("all-MiniLM-L6-v2", "all-MiniLM-L6-v2:max", "all-MiniLM-L6-v2:cls"),
    *("all-mpnet-base-v2", "minilm-stsb", "mpnet-stsb"),
)
DATA = ("stsb:test", "stsb:dev")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. 0: written; 2: the input is wrong."""
    asked = _parse(arguments)
    files = {path.stem: path for path in asked.sts}
    home = home_folder()
    shelf, board = ModelShelf(home), Board(list(asked.models), [*files, *DATA])
    speeds = {}
    try:
        sets = {name: read(str(files.get(name, name)), home) for name in board.data}
        for model in board.models:
            choice = ModelChoice.parse(model)
            scorer = shelf.scorer(choice.name, choice.pooling)
            for name, data in sets.items():
                rounds = [score(scorer, data) for _ in range(asked.rounds)]
                board.cells[model, name] = min(rounds, key=lambda cell: cell.seconds)
                board.sizes[name] = len(data)
            speeds[model] = board.speed(model) or 0.0
            print(f"{model}: {speeds[model]:,.0f} sentences/s", file=sys.stderr, flush=True)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    where = {**_machine(shelf), "rounds": str(asked.rounds), "load": f"{os.getloadavg()[0]:.1f}"}
    command = "python -m scripts.measure_evaluation"
    command += f" --sts {' '.join(path.name for path in asked.sts)}" if asked.sts else ""
    write_whole(asked.out, to_json(board, where, command, date.today().isoformat(), speeds))
    return 0


def _machine(shelf: ModelShelf) -> dict[str, str]:
    encoder = shelf.encoder("all-MiniLM-L6-v2")
    return machine(encoder.device.type, str(encoder.dtype).removeprefix("torch."))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts.measure_evaluation", description="Measure models on data sets.")
    parser.add_argument("--sts", type=Path, nargs="+", default=[], help="files of scored pairs, such as sts12.csv")
    parser.add_argument("--models", nargs="+", default=MODELS, help="names, with :max or :cls for another pooling")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=SHIPPED)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
