"""Measure the examples that pages open with, in assets/: python -m scripts.measure_examples [NAME …], or all of them.

- ``scores``: the scores of every pair of STSb dev, by the models that Evaluate opens with;
- ``cost``: the cost of the vectors of the default model on STSb test;
- ``bulk``: the folder of the job that scores the example of Bulk;
- ``calibration``: the default model's curves from cosine to gold score, one for each pooling;
- ``map``: the map of the example corpus under the default model, with the default settings. It has to be drawn again
  after a change of the corpus, of the maps or of these settings.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from sbert_app.pages.bulk.page import EXAMPLE, SHIPPED
from sbert_app.services.compare.calibration import SHIPPED as SHIPPED_CURVES
from sbert_app.services.corpus.embedded import encode
from sbert_app.services.corpus.open_corpora import SHIPPED as SHIPPED_MAP
from sbert_app.services.corpus.open_corpora import EmbeddingCache
from sbert_app.services.files.jobs import ScoreJobs, ScoreRequest
from sbert_app.services.maps.projection import MapSettings, draw, map_key
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.cost import describe_processor, measure_cost
from sbert_app.services.results.grid import load_scored_pairs, timed_scores
from sbert_app.services.results.precomputed import SCORED_DATA, SHIPPED_COST, SHIPPED_SCORES
from sbert_app.services.store.cache import DiskCache
from sbert_app.services.store.documents import write_document
from training.atomic import replace_file, write_text
from training.catalogue import DEFAULT_MODEL, TFIDF
from training.evaluation.calibration import FITTED_ON, Calibration, calibrate
from training.models.encoder import Encoder
from training.models.model import Model, VectorModel
from training.pooling import PAPER_POOLINGS
from training.sources.home import home_folder

MODELS = (DEFAULT_MODEL, TFIDF)
COST_DATA = "stsb:test"
EXAMPLES = ("scores", "cost", "bulk", "calibration", "map")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(EXAMPLES))
    names = parser.parse_args(arguments).names or EXAMPLES
    if unknown := set(names).difference(EXAMPLES):
        parser.error(f"there is no {' or '.join(sorted(unknown))}; choose from {', '.join(EXAMPLES)}")
    cache = ModelCache(home_folder())
    if "scores" in names:
        write_scores(cache, SHIPPED_SCORES)
    if "cost" in names:
        cost = measure_cost(cache.get(DEFAULT_MODEL, Model), load_scored_pairs(COST_DATA, cache.home))
        write_text(SHIPPED_COST, json.dumps(asdict(cost), indent=1) + "\n")
    if "bulk" in names:
        write_bulk(cache)
    if "calibration" in names:
        write_calibration(cache.home)
    if "map" in names:
        write_map(cache)
    return 0


def write_bulk(cache: ModelCache) -> None:
    """The folder of a job that has scored the example, without the example itself."""
    with TemporaryDirectory() as folder:
        jobs = ScoreJobs(cache, Path(folder))
        request = ScoreRequest(EXAMPLE, None, DEFAULT_MODEL, "mean")
        # The first run warms up.
        jobs.run(request)
        job, summary = jobs.run(request)
        shutil.rmtree(SHIPPED, ignore_errors=True)
        shutil.copytree(job.folder, SHIPPED, ignore=shutil.ignore_patterns("input"))
        file = SHIPPED / "job.json"
        write_text(file, file.read_text(encoding="utf-8").replace(f"{job.folder}/", ""))
        print(f"{summary.rows_per_second:,.0f} rows/s", file=sys.stderr, flush=True)


def write_scores(cache: ModelCache, out: Path) -> None:
    """The scores of every model, with the time that they took, and where and when that was."""
    data, arrays = load_scored_pairs(SCORED_DATA, cache.home), dict[str, Any]()
    for name in MODELS:
        result = timed_scores(cache.get(name, Model), data)
        arrays |= {f"{name}/{similarity}": scores for similarity, scores in result.scores.items()}
        arrays[f"{name}/cost"] = np.array([result.num_sentences, result.seconds])
        print(f"{name}: {result.num_sentences / result.seconds:,.0f} sentences/s", file=sys.stderr, flush=True)
    arrays["made"] = np.array(f"measured {date.today().isoformat()} on {describe_processor()}")
    with replace_file(out) as fresh, fresh.open("wb") as file:
        np.savez_compressed(file, **arrays)


def write_calibration(home: Path) -> None:
    """The curves of the default model, encoded in float32, so that every machine writes the same file."""
    encoder, curves = Encoder.load(DEFAULT_MODEL, dtype="float32", home=home), dict[str, Calibration]()
    for pooling in PAPER_POOLINGS:
        curve = curves[f"{DEFAULT_MODEL}|{pooling}"] = calibrate(encoder.with_pooling(pooling), FITTED_ON, home)
        print(f"{pooling}: cosine {curve.cosines[0]} … {curve.cosines[-1]} -> gold {curve.gold[0]} … {curve.gold[-1]}")
    write_document(SHIPPED_CURVES, curves)


def write_map(cache: ModelCache) -> None:
    """The map of the example corpus, in place of the one that ships."""
    embeddings = EmbeddingCache(cache, cache.home)
    embedded = encode(embeddings.corpus(embeddings.example()), cache.get(DEFAULT_MODEL, VectorModel))
    SHIPPED_MAP.mkdir(parents=True, exist_ok=True)
    for old in SHIPPED_MAP.glob("*.npz"):
        old.unlink()
    key = map_key(MapSettings(), embedded)
    DiskCache(SHIPPED_MAP).put(key, draw([embedded.vectors], MapSettings(), cache.home)[0])
    print(key)


if __name__ == "__main__":
    sys.exit(main())
