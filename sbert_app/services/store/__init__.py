"""What is kept on disk, and the one reader and writer of records (`documents`).

`HOME` lists what a home folder has: docs/settings.md shows it, and a backup needs what is people's work and no more.
"""

from typing import NamedTuple


class Kept(NamedTuple):
    """A folder or file of the home folder."""

    name: str
    what: str
    is_work: bool = False  # people's work; everything else is rebuilt or fetched again


HOME = (
    Kept("runs/", "a folder each: config.json, events.jsonl, log.txt, checkpoint/, model/", is_work=True),
    Kept("experiments/", "sweeps and folds: the settings and the id of each run", is_work=True),
    Kept("sweeps/", "sweeps of earlier versions", is_work=True),
    Kept("folds/", "folds of earlier versions, and their data", is_work=True),
    Kept("annotations/", "Label: pairs and ratings", is_work=True),
    Kept("explore/", "groups of sentences, names of clusters", is_work=True),
    Kept("data/uploads/", "files that runs learn from", is_work=True),
    Kept("data/", "data sets that were fetched"),
    Kept("models/", "models that were fetched"),
    Kept("cache/", "embeddings, maps, results"),
    Kept("vectors/", "embeddings of large corpora, up to 64 GB; an incomplete file is gone on with"),
    Kept("numba/", "compiled code of UMAP"),
    Kept("tmp/", "uploads and results of the pages, Bulk's files and jobs among them, for a day"),
    Kept("jobs.sqlite", "the queue"),
)
