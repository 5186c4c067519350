"""Fine-tune the project's model on its ratings, and compare before and after on pairs that it has not seen.

The judged pairs are split by sentence into train (60%), dev (20%, which chooses the checkpoint) and held-out (20%): no
sentence is in two of them, and the held-out pairs are used once, for the comparison. The run is an ordinary one in the
queue; its data are kept with the uploads, so that later ratings do not change what it was trained on.
"""

from __future__ import annotations

import csv
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.annotations.project import Project
from sbert_app.services.annotations.quality import mean_ratings
from sbert_app.services.annotations.selection import score_pairs
from sbert_app.services.files.uploads import keep_upload
from sbert_app.services.files.writers import without_formula
from sbert_app.services.results.difference import Difference
from training.atomic import open_atomic, write_text
from training.data.groups import sentence_groups
from training.errors import InputError
from training.trainer.config import RunConfig

if TYPE_CHECKING:
    from sbert_app.services.jobs.queue import Jobs
    from sbert_app.services.models.cache import ModelCache
    from sbert_app.services.runs.record import Run
    from training.evaluation.bootstrap import Interval

SHARES = {"train": 0.6, "dev": 0.2, "held-out": 0.2}
FEWEST = 40  # judged pairs
FEWEST_OF_A_PART = 6
EPOCHS = 4.0

Row = tuple[str, str, float]  # first, second, mean rating


@dataclass(frozen=True)
class Training:
    """``training.json``: the run, and what it was not trained on."""

    run: str
    base: str
    train: int
    dev: int
    held_out: list[Row]


@dataclass(frozen=True)
class BeforeAfter:
    """Spearman ρ ×100 on the held-out pairs."""

    before: float
    after: float
    before_interval: Interval
    after_interval: Interval
    difference: Difference | None  # paired bootstrap; None where it is undefined
    pairs: int


def split(rows: list[Row], seed: int) -> dict[str, list[Row]]:
    """Rows by part; no sentence is in two parts.

    Raises:
        InputError: too few pairs, or too many of them share sentences.
    """
    if len(rows) < FEWEST:
        raise InputError(f"{len(rows)} pairs are judged; training needs {FEWEST} at least")
    groups = sentence_groups([[row[0] for row in rows], [row[1] for row in rows]])
    order = np.random.default_rng(seed).permutation(groups.max() + 1)
    order = order[np.argsort(-np.bincount(groups)[order], kind="stable")]  # the largest first, for even parts
    parts: dict[str, list[Row]] = {name: [] for name in SHARES}
    for group in order:
        # to the part that lacks the most of its share
        name = max(SHARES, key=lambda part: SHARES[part] - len(parts[part]) / len(rows))
        parts[name] += [rows[i] for i in np.flatnonzero(groups == group)]
    if any(len(part) < FEWEST_OF_A_PART for part in parts.values()):
        raise InputError(
            "the judged pairs share so many sentences that they cannot be divided into train, dev and held-out pairs "
            "without a sentence on two sides; judge more pairs"
        )
    return parts


def start(project: Project, jobs: Jobs, visitor: str = "") -> Run:
    """Split the ratings, queue the run, and remember its held-out pairs. InputError as `split`, or a full queue."""
    rows = [(project.pairs[i].first, project.pairs[i].second, mean) for i, mean in mean_ratings(project).items()]
    parts = split(rows, project.info.seed)
    files = {name: _keep(f"{project.id}-{name}.csv", parts[name], jobs.store.home) for name in ("train", "dev")}
    config = RunConfig(
        "regression",
        train_data=str(files["train"]),
        eval_data=str(files["dev"]),
        base=project.info.model,
        epochs=EPOCHS,
        name=f"label: {project.info.name}"[:80],
    )
    run = jobs.start(config, visitor)
    training = Training(run.id, project.info.model, len(parts["train"]), len(parts["dev"]), parts["held-out"])
    write_text(project.folder / "training.json", json.dumps(asdict(training), ensure_ascii=False) + "\n")
    return run


def last_training(project: Project) -> Training | None:
    """The last run that was started from this project, None before the first."""
    file = project.folder / "training.json"
    if not file.exists():
        return None
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        return Training(**{**values, "held_out": [tuple(row) for row in values["held_out"]]})
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error


def compare(training: Training, models: ModelCache) -> BeforeAfter:
    """Base and run on the held-out pairs. InputError if a model cannot be loaded."""
    from training.evaluation.bootstrap import bootstrap_interval, bootstrap_replicates
    from training.evaluation.metrics import spearman

    pairs = [(first, second) for first, second, _ in training.held_out]
    gold = np.array([rating for *_, rating in training.held_out])
    scores = {name: score_pairs(models, name, pairs) for name in (training.base, f"run:{training.run}")}
    before, after = scores.values()
    rho_before, rho_after = spearman(before, gold), spearman(after, gold)
    difference = None
    if not np.isnan(rho_before + rho_after):
        replicates = (bootstrap_replicates(values, gold) for values in (after, before))
        difference = Difference.of(rho_after, rho_before, *replicates)
    intervals = [bootstrap_interval(values, gold) for values in (before, after)]
    of_before, of_after = (each._replace(low=100 * each.low, high=100 * each.high) for each in intervals)
    return BeforeAfter(100 * rho_before, 100 * rho_after, of_before, of_after, difference, len(gold))


def export_csv(project: Project, file: Path) -> Path:
    """Every pair with its reason, scores and mean rating, and a column for each rater. Returns ``file``.

    Sentences and names that a spreadsheet would run as a formula get an apostrophe in front.
    """
    ratings, means = project.ratings(), mean_ratings(project)
    raters = sorted(ratings)
    taken = {"sentence1", "sentence2", "score", "reason", "model", "second_model"}
    file.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(file, newline="") as out:
        writer = csv.writer(out)
        headers = [f"rater {name}" if name in taken else without_formula(name) for name in raters]
        writer.writerow(["sentence1", "sentence2", "score", "reason", "model", "second_model", *headers])
        for i, pair in enumerate(project.pairs):
            mean = f"{means[i]:g}" if i in means else ""
            by_rater = (ratings[name].get(i, "") for name in raters)
            scores = (f"{pair.score:.4f}", f"{pair.second_score:.4f}")
            sentences = (without_formula(pair.first), without_formula(pair.second))
            writer.writerow([*sentences, mean, pair.reason, *scores, *by_rater])
    return file


def _keep(name: str, rows: list[Row], home: Path) -> Path:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        with file.open("w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows([("sentence1", "sentence2", "score"), *rows])
        return keep_upload(file, home)
