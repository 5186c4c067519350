"""Measures the runs of lesson 17 for assets/defects.json: python -m scripts.measure_defects [--seeds 3] [--steps 48]

All 16 combinations of a seed come before the next seed. The file is written after each run; called
again, the script goes on with those that are missing.
"""

import argparse
from dataclasses import replace
from datetime import date

from sbert_app.services.experiments.defects import (
    COMBINATIONS,
    SHIPPED,
    STEPS,
    DefectTable,
    shipped,
    train_with,
)
from sbert_app.services.store.documents import write_document
from scripts.measure_ablation import machine
from training.sources.home import home_folder


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    command = f"python -m scripts.measure_defects --seeds {options.seeds} --steps {options.steps}"
    table = shipped() if SHIPPED.exists() else DefectTable(command, "", {}, ())
    table = replace(table, command=command)
    finished = {(run.defects, run.seed) for run in table.runs}
    for seed in range(options.seeds):
        for defects in COMBINATIONS:
            if (defects, seed) in finished:
                continue
            run = train_with(defects, seed, options.steps, home_folder())
            table = replace(
                table,
                measured=date.today().isoformat(),
                machine=machine("cpu", "bfloat16"),
                runs=(*table.runs, run),
            )
            write_document(SHIPPED, table)
            rho = f"ρ {run.rho[0]:.3f} -> {run.rho[-1]:.3f}"
            end = f"loss {run.losses[-1]:.3f}, {rho}, random pairs {run.random_cosine[-1]:.3f}"
            print(
                f"{' '.join(defects) or 'none'}, seed {seed}: {end}, {run.seconds:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
