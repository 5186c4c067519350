"""The transfer tasks of the paper's section 5, where copies of them lie on the Hub: their training splits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sbert_app.services.results.transfer import ClassificationData, read_labelled
from training.errors import InputError
from training.sources.resolve import dataset_files

TRAINING = ("*train*",)  # the files; the folds make their own test rows


@dataclass(frozen=True)
class TransferTask:
    """Where a task lies, and which column is the class."""

    title: str
    repo: str
    label: str = "label"


TRANSFER_TASKS = {
    "mr": TransferTask("MR, film reviews", "cornell-movie-review-data/rotten_tomatoes"),
    "cr": TransferTask("CR, product reviews", "SetFit/SentEval-CR"),
    "subj": TransferTask("SUBJ, subjective or not", "SetFit/subj"),
    "mpqa": TransferTask("MPQA, polarity of phrases", "jxm/mpqa"),
    "sst": TransferTask("SST, film reviews", "SetFit/sst2"),
    "trec": TransferTask("TREC, kinds of questions", "SetFit/TREC-QC", "label_coarse_text"),
    "mrpc": TransferTask("MRPC, paraphrases (pairs)", "SetFit/mrpc"),
}


def load_task(name: str, home: Path) -> ClassificationData:
    """A task by name, from the home folder (data/<repository>) or the Hub.

    Raises:
        InputError: there is none of this name, it cannot be had, or its columns are not what they should be.
    """
    if name not in TRANSFER_TASKS:
        raise InputError(f"there is no task {name!r}; choose {', '.join(TRANSFER_TASKS)}")
    task = TRANSFER_TASKS[name]
    paths = dataset_files(task.repo, TRAINING, home).paths
    return read_labelled(paths, task.title, task.label)
