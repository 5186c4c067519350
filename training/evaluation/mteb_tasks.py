"""Tasks of the mteb library, the Massive Text Embedding Benchmark, on our encoders: ``mteb:STSBenchmark``.

mteb is an optional package (the extra ``mteb``). It has the data and the metrics of its tasks, and takes a model by an
adapter with its ``AbsEncoder`` as the base. Data comes from the Hub, through the `datasets` library's cache. The
sets of `LOCAL_DATA` are also ours: where the Hub cannot be reached, the task gets them from the home folder.
Source: Muennighoff et al. 2023, "MTEB: Massive Text Embedding Benchmark".
"""

import logging
import re
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from training.data.dataset import Dataset
from training.data.load import load_data
from training.errors import InputError, first_line, import_optional
from training.models.lexical import SparseModel
from training.models.model import Model, VectorModel
from training.names import MTEB
from training.progress import Progress, ShouldStop

# Tasks whose test split is one of our data sets.
LOCAL_DATA = {"STSBenchmark": "stsb:test", "SICK-R": "sickr", **{f"STS{year}": f"sts{year}" for year in range(12, 17)}}

log = logging.getLogger("sbert_lab.evaluation")


def find_task(name: str) -> Any:
    """The task of that name, as STSBenchmark, without its data. InputError if there is none, or mteb is missing."""
    mteb = import_optional("mteb", "mteb", "mteb:<task>")
    try:
        return mteb.get_task(name)
    except KeyError as error:
        raise InputError(f"mteb has no task {name!r}: {error.args[0]}") from error


def evaluate_task(model: Model, task: Any, home: str | Path | None = None, **watch: Any) -> dict[str, Any]:
    """Runs a task of `find_task` by mteb on a model of sentence vectors, which may be sparse.

    Data that the task already holds (``task.dataset``, ``task.data_loaded``) is used. ``watch`` has should_stop, and
    on_progress, called with (sentences encoded, None). Returns ``{"model", "pooling", "data", "type", "main_score",
    "scores", "seconds"}``; ``main_score`` is the task's own metric by name and value, ``scores`` all of them as mteb
    reports them, by split and subset. InputError if the model has no vectors, or its data cannot be fetched.
    """
    mteb = import_module("mteb")
    started = time.perf_counter()
    if not isinstance(model, VectorModel | SparseModel):
        raise InputError(f"{model.name} is a {model.kind}; the tasks of mteb need the vectors of a bi-encoder")
    name = task.metadata.name
    _load_data(task, name, home)
    adapter = _adapter(model, **watch)
    quiet = {"co2_tracker": False, "show_progress_bar": False}
    [task_result] = mteb.evaluate(adapter, [task], cache=None, overwrite_strategy="always", **quiet).task_results
    return {
        "model": model.name,
        "pooling": model.pooling,
        "data": f"{MTEB}{name}",
        "type": task.metadata.type,
        "main_score": {task.metadata.main_score: float(task_result.get_score())},
        "scores": {
            split: {subset["hf_subset"]: _figures(subset) for subset in subsets}
            for split, subsets in task_result.scores.items()
        },
        "seconds": round(time.perf_counter() - started, 3),
    }


def _load_data(task: Any, name: str, home: str | Path | None) -> None:
    """Lets mteb fetch the data of a task, or gives it ours where that fails. InputError if there is none."""
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HTTPError

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
    """Lets an STS task use these scored pairs as its test split, in place of its own from the Hub."""
    import datasets

    columns = {"sentence1": data.columns[0], "sentence2": data.columns[1], "score": data.scores}
    task.dataset = datasets.DatasetDict({"test": datasets.Dataset.from_dict(columns)})
    task.data_loaded = True


def _adapter(
    encoder: VectorModel | SparseModel, on_progress: Progress | None = None, should_stop: ShouldStop | None = None
) -> Any:
    base: Any = import_module("mteb.models.abs_encoder").AbsEncoder
    slug = re.sub(r"[^\w.-]+", "-", encoder.name).strip("-") or "model"
    done = 0

    class Adapter(base):
        """Our encode() on mteb's batches, with the folder's prompt for their side; similarities are mteb's own."""

        model = encoder
        mteb_model_meta = import_module("mteb.models").ModelMeta.create_empty({"name": f"sbert-lab/{slug}"})

        def __init__(self) -> None:
            pass

        def encode(self, inputs: Any, prompt_type: Any = None, **_: Any) -> np.ndarray:
            nonlocal done
            sentences = [text for batch in inputs for text in batch["text"]]
            # None where a task has no sides.
            role = getattr(prompt_type, "value", prompt_type)
            model = encoder if role is None else encoder.for_role(str(role))
            vectors = model.encode(sentences, None, should_stop=should_stop)
            done += len(sentences)
            if on_progress is not None:
                on_progress(done, None)
            return vectors

    return Adapter()


def _figures(subset: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in subset.items() if isinstance(value, int | float)}
