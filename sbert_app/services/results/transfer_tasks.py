"""The transfer tasks of the paper's section 5, where copies of them lie on the Hub: their training splits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sbert_app.services.results.transfer import Labelled, read_labelled
from training.errors import InputError
from training.sources.resolve import dataset_files

TRAINING = ("*train*",)  # the files; the folds make their own test rows


@dataclass(frozen=True)
class Task:
    """Where a task lies, and which column is the class."""

    title: str
    repo: str
    label: str = "label"


TASKS = {
    "mr": Task("MR, film reviews", "cornell-movie-review-data/rotten_tomatoes"),
    "cr": Task("CR, product reviews", "SetFit/SentEval-CR"),
    "subj": Task("SUBJ, subjective or not", "SetFit/subj"),
    "mpqa": Task("MPQA, polarity of phrases", "jxm/mpqa"),
    "sst": Task("SST, film reviews", "SetFit/sst2"),
    "trec": Task("TREC, kinds of questions", "SetFit/TREC-QC", "label_coarse_text"),
    "mrpc": Task("MRPC, paraphrases (pairs)", "SetFit/mrpc"),
}


def load_task(name: str, home: Path) -> Labelled:
    """A task by name, from the home folder (data/<repository>) or the Hub.

    Raises:
        InputError: there is none of this name, it cannot be had, or its columns are not what they should be.
    """
    if name not in TASKS:
        raise InputError(f"there is no task {name!r}; choose {', '.join(TASKS)}")
    task = TASKS[name]
    paths = dataset_files(task.repo, TRAINING, home).paths
    return read_labelled(paths, task.title, task.label)
