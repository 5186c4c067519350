"""What is kept on disk, and the one reader and writer of records (`documents`).

`HOME` lists every kind of file in a home folder, as the code that writes it names it: docs/settings.md shows the list,
`home backup` saves what is people's work, and a test damages each kind.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple


class Kept(NamedTuple):
    """A folder or file of the home folder. Patterns of its files stand by what becomes of one that is damaged.

    In a pattern * is also a slash. ``readers``: modules of sbert_app.services, or of training.
    """

    name: str
    what: str
    readers: str
    said: tuple[str, ...] = ()  # one sentence names it, and what to do
    skipped: tuple[str, ...] = ()  # what is damaged in it counts as not there
    anew: tuple[str, ...] = ()  # it is computed anew
    is_work: bool = False  # people's work; everything else is rebuilt or fetched again


HOME = (
    Kept(
        "runs/",
        "a folder each: config.json, events.jsonl, log.txt, checkpoint/, model/",
        "runs.store, training.trainer, training.models",
        said=("*/config.json", "*/run.json", "*/own.json", "*/negatives.jsonl", "*/checkpoint/*", "*/model/*"),
        skipped=("*/name.txt", "*/events.jsonl", "*/log.txt", "*/tensorboard/*", "*/stop", "*/reserve"),
        is_work=True,
    ),
    Kept("experiments/", "sweeps and folds: the settings and the id of each run", "experiments", ("*",), is_work=True),
    Kept(
        "annotations/",
        "Label: pairs and ratings",
        "annotations",
        said=("*/project.json", "*/pairs.jsonl", "*/training.json"),
        skipped=("*/ratings.jsonl", "*/agreed.jsonl"),
        is_work=True,
    ),
    Kept("explore/groups/", "groups of sentences", "corpus.groups", ("*",), is_work=True),
    Kept("explore/clusters/", "names of clusters", "clusters.edits", ("*",), is_work=True),
    Kept("calibration/own/", "what a cosine means by your gold scores", "compare.calibration", ("*",), is_work=True),
    Kept("data/uploads/", "files that runs learn from", "training.data", ("*/*",), is_work=True),
    Kept("models/static/", "static models that were distilled here", "training.models", ("*/*",), is_work=True),
    Kept("data/", "data sets that were fetched", "training.data", ("*",)),
    Kept("models/", "models that were fetched", "training.models", ("*",)),
    Kept("cache/", "embeddings, maps, results", "store.cache", anew=("*.npz",)),
    Kept("calibration/", "what a cosine means, for each model and pooling", "compare.calibration", anew=("*.json",)),
    Kept(
        "vectors/",
        "embeddings of large corpora, up to 64 GB; an incomplete file is continued",
        "corpus.embedded",
        anew=("*.f32", "*.f32.incomplete"),
    ),
    Kept("numba/", "compiled code of UMAP", "maps.layout", anew=("*",)),
    Kept(
        "tmp/",
        "uploads and results of the pages for a day, with Bulk's files and Explore's corpora",
        "files.jobs, corpus.shared_sentences, corpus.kept",
        skipped=("*",),
    ),
    Kept("jobs.sqlite", "the queue; a damaged one is set aside beside it", "jobs.queue", anew=("*",)),
    Kept("worker-", "logs of the processes that execute runs", "", skipped=("*.log",)),
)


def kept_of(path: str) -> Kept | None:
    """What a file of the home folder is part of, by its path there; None if no part of the app writes such a one."""
    for kept in HOME:
        if path.startswith(kept.name):
            patterns = (*kept.said, *kept.skipped, *kept.anew)
            return kept if any(fnmatchcase(path.removeprefix(kept.name), each) for each in patterns) else None
    return None
