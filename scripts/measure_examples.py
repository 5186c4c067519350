"""Measure what Evaluate and Bulk open with: scores-stsb-dev.npz, cost.json and the folder bulk of assets/examples.

    python -m scripts.measure_examples                    all
    python -m scripts.measure_examples scores bulk        some

The scores of every pair of STSb dev, by the models that the examples show; the cost of the vectors of the default
model on STSb test; the folder of the job that scores the example of Bulk.
"""

from __future__ import annotations

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
from sbert_app.services.files.jobs import ScoreJobs, ScoreRequest
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.cost import describe_processor, measure_cost
from sbert_app.services.results.grid import load_scored_pairs, timed_scores
from sbert_app.services.results.precomputed import SCORED_DATA, SHIPPED_COST, SHIPPED_SCORES
from training.atomic import replace_file, write_text
from training.catalogue import DEFAULT_MODEL, TFIDF
from training.models.model import Model
from training.sources.home import home_folder

MODELS = (DEFAULT_MODEL, TFIDF)
COST_DATA = "stsb:test"
WHAT = ("scores", "cost", "bulk")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help=f"{', '.join(WHAT)}; all without one")
    what = parser.parse_args(arguments).what or WHAT
    if unknown := set(what).difference(WHAT):
        parser.error(f"there is no {' or '.join(sorted(unknown))}; choose from {', '.join(WHAT)}")
    cache = ModelCache(home_folder())
    if "scores" in what:
        write_scores(cache, SHIPPED_SCORES)
    if "cost" in what:
        found = measure_cost(cache.get(DEFAULT_MODEL, Model), load_scored_pairs(COST_DATA, cache.home))
        write_text(SHIPPED_COST, json.dumps(asdict(found), indent=1) + "\n")
    if "bulk" in what:
        write_bulk(cache)
    return 0


def write_bulk(cache: ModelCache) -> None:
    """The folder of a job that has scored the example, without the example itself."""
    with TemporaryDirectory() as folder:
        jobs = ScoreJobs(cache, Path(folder))
        request = ScoreRequest(EXAMPLE, None, DEFAULT_MODEL, "mean")
        jobs.run(request)  # warms up
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


if __name__ == "__main__":
    sys.exit(main())
