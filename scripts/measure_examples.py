"""Measure the examples that pages open with, in assets/: python -m scripts.measure_examples [NAME …], or all of them.

- ``scores``: the scores of every pair of STSb dev, by the models that Evaluate opens with;
- ``cost``: the cost of the vectors of the default model on STSb test;
- ``triplets``: how often the default model finds an anchor nearer to its positive, on triplets of
  STSb dev;
- ``transfer``: classifiers of the genres of STSb dev, on the vectors of the models that Evaluate
  opens with;
- ``folds``: a run for each genre of STSb dev that trains the default model on the others;
- ``bulk``: the folder of the job that scores the example of Bulk;
- ``calibration``: the default model's curves from cosine to gold score, one for each pooling;
- ``map``: the map of the example corpus under the default model, with the default settings. It has
  to be drawn again after a change of the corpus, of the maps or of these settings.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from math import nan
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from sbert_app.pages.bulk.page import EXAMPLE, SHIPPED
from sbert_app.pages.evaluate.folds import DEFAULT_STEPS
from sbert_app.services.compare.calibration import SHIPPED as SHIPPED_CURVES
from sbert_app.services.corpus.embedded import encode
from sbert_app.services.corpus.open_corpora import SHIPPED as SHIPPED_MAP
from sbert_app.services.corpus.open_corpora import EmbeddingCache
from sbert_app.services.experiments import folds
from sbert_app.services.experiments.experiment import Experiments
from sbert_app.services.files.jobs import ScoreJobs, ScoreRequest
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.maps.projection import MapSettings, draw, map_key
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.cost import describe_processor, measure_cost
from sbert_app.services.results.grid import load_scored_pairs, timed_scores
from sbert_app.services.results.precomputed import (
    SCORED_DATA,
    SHIPPED_COST,
    SHIPPED_SCORES,
    PrecomputedResults,
)
from sbert_app.services.results.precomputed import SHIPPED as SHIPPED_RESULTS
from sbert_app.services.results.transfer import pairs_by_genre, score_transfer, sentences_by_genre
from sbert_app.services.runs.execution import execute
from sbert_app.services.runs.store import RunStore
from sbert_app.services.store.cache import DiskCache
from sbert_app.services.store.documents import read_document, write_document
from training.atomic import replace_file, write_text
from training.catalogue import DEFAULT_MODEL, TFIDF, asset
from training.data.load import load_data
from training.data.transforms import TRIPLET_ROWS, transform_for
from training.evaluation.calibration import FITTED_ON, Calibration, calibrate
from training.evaluation.scoring import evaluate
from training.models.encoder import Encoder
from training.models.model import Model, VectorModel
from training.names import ModelName
from training.pooling import PAPER_POOLINGS
from training.sources.home import home_folder

MODELS = (DEFAULT_MODEL, TFIDF)
COST_DATA = "stsb:test"
EXAMPLES = ("scores", "cost", "triplets", "transfer", "folds", "bulk", "calibration", "map")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(EXAMPLES))
    names = parser.parse_args(arguments).names or EXAMPLES
    unknown = set(names).difference(EXAMPLES)
    if unknown:
        parser.error(
            f"there is no {' or '.join(sorted(unknown))}; choose from {', '.join(EXAMPLES)}"
        )
    cache = ModelCache(home_folder())
    if "scores" in names:
        write_scores(cache, SHIPPED_SCORES)
    if "cost" in names:
        data = load_scored_pairs(COST_DATA, cache.home)
        cost = measure_cost(cache.get(DEFAULT_MODEL, Model), data)
        write_text(SHIPPED_COST, json.dumps(asdict(cost), indent=1) + "\n")
    if "triplets" in names:
        write_triplets(cache)
    if "transfer" in names:
        write_transfer(cache)
    if "folds" in names:
        write_folds(cache.home)
    if "bulk" in names:
        write_bulk(cache)
    if "calibration" in names:
        write_calibration(cache.home)
    if "map" in names:
        write_map(cache)
    return 0


def write_example(template: str, settings: str = "", **values: Any) -> None:
    """Writes the values of a template of Evaluate, with the day, the machine and the ``settings`` of their run."""
    origin = f"measured {date.today().isoformat()} on {describe_processor()}{settings}"
    text = json.dumps({"origin": origin, **values}, indent=1, ensure_ascii=False)
    write_text(asset(f"examples/{template}.json"), text + "\n")


def write_triplets(cache: ModelCache) -> None:
    data = transform_for(load_data(SCORED_DATA, cache.home), TRIPLET_ROWS, "triplet")
    result = evaluate(cache.get(DEFAULT_MODEL, Model), data)
    # The page does not show the time.
    del result["seconds"]
    write_example(
        "label_scores",
        model=DEFAULT_MODEL,
        data=data.name,
        notes=[*data.notes, *result["notes"]],
        result=result,
    )


def write_transfer(cache: ModelCache) -> None:
    """Writes the scores, with times that follow from the speeds of the table that ships: each page states the same."""
    data = sentences_by_genre(cache.home)
    speeds = read_document(SHIPPED_RESULTS, PrecomputedResults).speeds
    scores = []
    rows = []
    for name in MODELS:
        score = score_transfer(cache.get(name, Model), data)
        seconds = [len(data) / speeds[name]]
        figures = {**asdict(score), "mean": score.mean, "std": score.std, "seconds": seconds}
        scores.append(score)
        rows.append((ModelName(name).label, figures))
    write_example(
        "transfer_scores",
        data=data.name,
        size=len(data),
        classes=data.classes,
        rows=rows,
        best=max(score.mean for score in scores),
        notes=data.notes,
    )


def write_folds(home: Path) -> None:
    """Trains in this process. The runs are removed afterwards."""
    jobs = RunQueue(RunStore(home))
    jobs.starts_workers = False
    experiments = Experiments(jobs)
    file = pairs_by_genre(home)
    experiment = folds.start(
        file,
        None,
        experiments,
        base=DEFAULT_MODEL,
        max_steps=DEFAULT_STEPS,
        eval_every=DEFAULT_STEPS,
    )
    for run in experiment.runs:
        execute(experiments.store, run.id)
    experiment = experiments.get(experiment.id)
    cells = experiment.cells
    rows = []
    for cell in cells:
        row = {
            "plan": {"label": cell.plan.label, "pairs": cell.plan.pairs},
            "before": cell.before,
            "value": cell.value,
            "state": cell.state,
        }
        rows.append(row)
    write_example(
        "fold_scores",
        f"; base {DEFAULT_MODEL}, {DEFAULT_STEPS} steps of 16 pairs",
        data=experiment.record.name,
        by=experiment.record.by,
        folds=rows,
        done=sum(cell.value is not None for cell in cells),
        before=fmean(cell.before or nan for cell in cells),
        after=fmean(cell.value or nan for cell in cells),
    )
    experiments.delete(experiment.id)


def write_bulk(cache: ModelCache) -> None:
    """Writes the folder of a job that has scored the example, without the example itself."""
    with TemporaryDirectory() as folder:
        jobs = ScoreJobs(cache, Path(folder))
        request = ScoreRequest(EXAMPLE, None, DEFAULT_MODEL, "mean")
        # The first run warms up.
        jobs.run(request)
        job, summary = jobs.run(request)
        shutil.rmtree(SHIPPED, ignore_errors=True)
        shutil.copytree(job.folder, SHIPPED, ignore=shutil.ignore_patterns("input"))
        # The paths become relative to the folder.
        file = SHIPPED / "job.json"
        write_text(file, file.read_text(encoding="utf-8").replace(f"{job.folder}/", ""))
        print(f"{summary.rows_per_second:,.0f} rows/s", file=sys.stderr, flush=True)


def write_scores(cache: ModelCache, out: Path) -> None:
    """Writes the scores of every model with their time, and the day and the machine of the measurement."""
    data = load_scored_pairs(SCORED_DATA, cache.home)
    arrays: dict[str, Any] = {}
    for name in MODELS:
        result = timed_scores(cache.get(name, Model), data)
        for similarity, scores in result.scores.items():
            arrays[f"{name}/{similarity}"] = scores
        arrays[f"{name}/cost"] = np.array([result.num_sentences, result.seconds])
        print(
            f"{name}: {result.num_sentences / result.seconds:,.0f} sentences/s",
            file=sys.stderr,
            flush=True,
        )
    arrays["made"] = np.array(f"measured {date.today().isoformat()} on {describe_processor()}")
    with replace_file(out) as fresh, fresh.open("wb") as file:
        np.savez_compressed(file, **arrays)


def write_calibration(home: Path) -> None:
    """Writes the curves of the default model, encoded in float32, so that every machine writes the same file."""
    encoder = Encoder.load(DEFAULT_MODEL, dtype="float32", home=home)
    curves: dict[str, Calibration] = {}
    for pooling in PAPER_POOLINGS:
        curve = calibrate(encoder.with_pooling(pooling), FITTED_ON, home)
        curves[f"{DEFAULT_MODEL}|{pooling}"] = curve
        print(
            f"{pooling}: cosine {curve.cosines[0]} … {curve.cosines[-1]} -> gold {curve.gold[0]} … {curve.gold[-1]}"
        )
    write_document(SHIPPED_CURVES, curves)


def write_map(cache: ModelCache) -> None:
    """Replaces the map of the example corpus that ships."""
    embeddings = EmbeddingCache(cache, cache.home)
    corpus = embeddings.corpus(embeddings.example())
    embedded = encode(corpus, cache.get(DEFAULT_MODEL, VectorModel))
    SHIPPED_MAP.mkdir(parents=True, exist_ok=True)
    for old in SHIPPED_MAP.glob("*.npz"):
        old.unlink()
    key = map_key(MapSettings(), embedded)
    [points] = draw([embedded.vectors], MapSettings(), cache.home)
    DiskCache(SHIPPED_MAP).put(key, points)
    print(key)


if __name__ == "__main__":
    sys.exit(main())
