"""Runs tasks of the mteb library, the Massive Text Embedding Benchmark, on our encoders: ``mteb:STSBenchmark``.

mteb is an optional package (the extra ``mteb``). It provides the data and the metrics of its tasks,
and calls a model through an adapter that derives from its ``AbsEncoder``. Data comes from the Hub,
through the cache of the `datasets` library. If the Hub cannot be reached, the sets of `LOCAL_DATA`
come from the home folder. Source: Muennighoff et al. 2023, "MTEB: Massive Text Embedding
Benchmark".
"""

import logging
import re
import time
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub.errors import HTTPError

from training.data.dataset import Dataset
from training.data.load import load_data
from training.errors import InputError, first_line, import_optional
from training.models.lexical import SparseModel
from training.models.model import Model, VectorModel
from training.names import MTEB
from training.progress import Progress, ShouldStop

# Tasks whose test split is one of our data sets.
LOCAL_DATA = {
    "STSBenchmark": "stsb:test",
    "SICK-R": "sickr",
    **{f"STS{year}": f"sts{year}" for year in range(12, 17)},
}

log = logging.getLogger("sbert_lab.evaluation")


def find_task(name: str) -> Any:
    """Finds a task by name, such as STSBenchmark, without its data. InputError if it or mteb is missing."""
    mteb = import_optional("mteb", "mteb", "mteb:<task>")
    try:
        return mteb.get_task(name)
    except KeyError as error:
        raise InputError(f"mteb has no task {name!r}: {error.args[0]}") from error


def evaluate_task(
    model: Model, task: Any, home: str | Path | None = None, **watch: Any
) -> dict[str, Any]:
    """Runs a task of `find_task` on a model of sentence vectors, which may be sparse.

    Args:
        model: a bi-encoder or a sparse model.
        task: a task of mteb. Data that it already holds (``task.dataset``, ``task.data_loaded``) is
            used.
        watch: should_stop, and on_progress, which is called with (sentences encoded, None).

    Returns:
        ``{"model", "pooling", "data", "type", "main_score", "scores", "seconds"}``. ``main_score``
        is the task's main metric by name and value, ``scores`` are all metrics as mteb reports
        them, by split and subset.

    Raises:
        InputError: the model does not give vectors, or the data cannot be fetched.
    """
    # `find_task` raises the error for a missing package. A plain import would let the type checker
    # read the package too.
    mteb = import_module("mteb")
    started = time.perf_counter()
    if not isinstance(model, VectorModel | SparseModel):
        raise InputError(
            f"{model.name} is a {model.kind}; the tasks of mteb need the vectors of a bi-encoder"
        )
    name = task.metadata.name
    _load_data(task, name, home)
    # Every call measures anew, and mteb stores nothing.
    results = mteb.evaluate(
        _adapter(model, **watch),
        [task],
        cache=None,
        overwrite_strategy="always",
        co2_tracker=False,
        show_progress_bar=False,
    )
    [task_result] = results.task_results
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for split, subsets in task_result.scores.items():
        scores[split] = {}
        for subset in subsets:
            # Besides figures there are texts, such as the name and the languages of the subset.
            figures = {}
            for figure, value in subset.items():
                if isinstance(value, int | float):
                    figures[figure] = float(value)
            scores[split][subset["hf_subset"]] = figures
    return {
        "model": model.name,
        "pooling": model.pooling,
        "data": f"{MTEB}{name}",
        "type": task.metadata.type,
        "main_score": {task.metadata.main_score: float(task_result.get_score())},
        "scores": scores,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _load_data(task: Any, name: str, home: str | Path | None) -> None:
    """Lets mteb fetch the data of a task, or provides ours if that fails. InputError if we do not have it."""
    # datasets takes seconds to import.
    from datasets.exceptions import DatasetsError

    try:
        task.load_data()
    except (OSError, HTTPError, DatasetsError) as error:
        message = f"the data of {MTEB}{name} cannot be fetched: {first_line(error)}"
        if name not in LOCAL_DATA:
            raise InputError(message) from error
        try:
            data = load_data(LOCAL_DATA[name], home, split="test")
        except InputError:
            raise InputError(message) from error
        log.info("%s; its pairs are those of %s (%s)", message, data.name, data.source)
        give_data(task, data)


def give_data(task: Any, data: Dataset) -> None:
    """Makes an STS task use these scored pairs as its test split instead of the data on the Hub."""
    import datasets

    columns = {"sentence1": data.columns[0], "sentence2": data.columns[1], "score": data.scores}
    task.dataset = datasets.DatasetDict({"test": datasets.Dataset.from_dict(columns)})
    task.data_loaded = True


def _adapter(
    encoder: VectorModel | SparseModel,
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> Any:
    """Makes a model of mteb that encodes with ``encoder``."""
    base: Any = import_module("mteb.models.abs_encoder").AbsEncoder
    # mteb takes names of the form organization/model only.
    slug = re.sub(r"[^\w.-]+", "-", encoder.name).strip("-") or "model"
    # The sentences that all calls of `encode` have encoded.
    done = 0

    class Adapter(base):
        """Encodes mteb's batches with the folder's prompts of queries and documents. mteb computes the similarities."""

        model = encoder
        mteb_model_meta = import_module("mteb.models").ModelMeta.create_empty(
            {"name": f"sbert-lab/{slug}"}
        )

        def encode(self, inputs: Any, prompt_type: Any = None, **_: Any) -> np.ndarray:
            nonlocal done
            sentences = list(chain.from_iterable(batch["text"] for batch in inputs))
            # None for tasks without queries and documents.
            role = getattr(prompt_type, "value", prompt_type)
            reader = encoder if role is None else encoder.for_role(str(role))
            # With None the vectors have length 1 only if the model's folder says so.
            vectors = reader.encode(sentences, normalize=None, should_stop=should_stop)
            done += len(sentences)
            if on_progress is not None:
                # How many sentences mteb will encode in all is unknown.
                on_progress(done, None)
            return vectors

    return Adapter()
