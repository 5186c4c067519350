"""The home folder, and the one reader and writer of its records (`documents`).

`HOME` lists every kind of file in a home folder. docs/settings.md has the list, `home backup` saves
people's work, and a test damages each kind.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple


class HomeEntry(NamedTuple):
    """A folder or file of the home folder.

    Attributes:
        name: its path, or the beginning of its path.
        what: its content, in words.
        files: patterns of the files in it, in which * also matches a slash.
        is_work: whether it is people's work, which cannot be rebuilt or fetched again.
    """

    name: str
    what: str
    files: tuple[str, ...] = ("*",)
    is_work: bool = False


# A file belongs to the first entry whose name its path begins with.
HOME = (
    HomeEntry(
        "runs/",
        "a folder each: config.json, events.jsonl, log.txt, checkpoint/, model/",
        (
            "*/config.json",
            "*/run.json",
            "*/own.json",
            "*/negatives.jsonl",
            "*/checkpoint/*",
            "*/model/*",
            "*/name.txt",
            "*/events.jsonl",
            "*/log.txt",
            "*/tensorboard/*",
            "*/stop",
            "*/reserve",
        ),
        is_work=True,
    ),
    HomeEntry(
        "experiments/", "sweeps and folds: the settings and the id of each run", is_work=True
    ),
    HomeEntry(
        "annotations/",
        "Label: pairs and ratings",
        ("*/project.json", "*/pairs.jsonl", "*/training.json", "*/ratings.jsonl", "*/agreed.jsonl"),
        is_work=True,
    ),
    HomeEntry("calibration/own/", "what a cosine means by your gold scores", is_work=True),
    HomeEntry("data/uploads/", "files that runs learn from", ("*/*",), is_work=True),
    HomeEntry("data/", "data sets that were fetched"),
    HomeEntry("models/", "models that were fetched"),
    HomeEntry("cache/", "embeddings, maps, results", ("*.npz",)),
    HomeEntry("calibration/", "what a cosine means, for each model and pooling", ("*.json",)),
    HomeEntry(
        "vectors/",
        "embeddings of large corpora, up to 64 GB; an incomplete file is continued",
        ("*.f32", "*.f32.incomplete"),
    ),
    HomeEntry("numba/", "compiled code of UMAP"),
    HomeEntry(
        "tmp/",
        "uploads and results of the pages for a day, with Bulk's files and Explore's corpora",
    ),
    HomeEntry("worker-", "logs of the processes that execute runs", ("*.log",)),
)


def home_entry(path: str) -> HomeEntry | None:
    """The part of the home folder to which a file belongs, by its relative path; None for unknown files."""
    # The first entry that fits counts, as calibration/own/ stands before calibration/.
    for entry in HOME:
        if path.startswith(entry.name):
            rest = path.removeprefix(entry.name)
            is_known = any(fnmatchcase(rest, pattern) for pattern in entry.files)
            return entry if is_known else None
    return None
