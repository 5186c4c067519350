"""The transfer tasks of the paper's section 5 as data sets on the Hub: the training splits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sbert_app.services.results.transfer import ClassificationData, read_labelled
from training.errors import InputError
from training.sources.resolve import dataset_files

TRAINING = ("*train*",)  # file patterns; cross-validation makes its own test rows


@dataclass(frozen=True)
class TransferTask:
    """A data set on the Hub, and its column of classes."""

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
    """Load a task by name, from the home folder (data/<repository>) or the Hub.

    Raises:
        InputError: the name is unknown, the files cannot be found, or a column is missing.
    """
    if name not in TRANSFER_TASKS:
        raise InputError(f"there is no task {name!r}; choose {', '.join(TRANSFER_TASKS)}")
    task = TRANSFER_TASKS[name]
    paths = dataset_files(task.repo, TRAINING, home).paths
    return read_labelled(paths, task.title, task.label)
