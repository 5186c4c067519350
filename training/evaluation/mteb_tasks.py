"""Tasks of the mteb library, the Massive Text Embedding Benchmark, on our encoders: ``mteb:STSBenchmark``.

mteb is an optional package (the extra ``mteb``). It has the data and the metrics of its tasks; what it needs of a model
is an adapter with its ``AbsEncoder`` as the base. Data comes from the Hub, through the `datasets` library's cache.
Source: Muennighoff et al. 2023, "MTEB: Massive Text Embedding Benchmark".
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from training.errors import InputError

if TYPE_CHECKING:
    from training.models.scorer import BiEncoder, Scorer

MTEB_PREFIX = "mteb:"

Progress = Callable[[int, int | None], None]
ShouldStop = Callable[[], bool]


def find_task(name: str) -> Any:
    """The task of that name, such as STSBenchmark, without its data.

    Raises:
        InputError: there is no such task, or mteb is not installed.
    """
    mteb = _mteb()
    try:
        return mteb.get_task(name)
    except KeyError as error:
        similar = " ".join(str(error.args[0]).split()) if error.args else ""
        raise InputError(f"mteb has no task {name!r}; its names are as in STSBenchmark, SICK-R. {similar}") from error


def evaluate_task(
    scorer: Scorer, task: Any, on_progress: Progress | None = None, should_stop: ShouldStop | None = None
) -> dict[str, Any]:
    """Run a task by mteb on a bi-encoder.

    Args:
        scorer: a bi-encoder or a baseline with ``encode``.
        task: of `find_task`. Data that it already holds (``task.dataset``, ``task.data_loaded``) is used.
        on_progress: called with (sentences encoded, None).
        should_stop: asked during encoding; if it says yes, ``Stopped`` is raised.

    Returns:
        ``{"model", "pooling", "data", "type", "main_score", "scores", "seconds"}``; ``main_score`` is the task's own
        metric by name and value, ``scores`` all of them as mteb reports them, by split and subset.

    Raises:
        InputError: the model has no vectors, or the data of the task cannot be fetched.
    """
    mteb, started = _mteb(), time.perf_counter()
    if not hasattr(scorer, "encode"):
        raise InputError(f"{scorer.name} is a cross-encoder; the tasks of mteb need the vectors of a bi-encoder")
    name = task.metadata.name
    try:
        task.load_data()
    except Exception as error:
        if not _is_about_data(error):
            raise
        raise InputError(f"the data of mteb:{name} cannot be fetched: {_first_line(error)}") from error
    result = mteb.evaluate(
        _adapter(cast("BiEncoder", scorer), on_progress, should_stop),
        [task],
        cache=None,
        co2_tracker=False,
        show_progress_bar=False,
        overwrite_strategy="always",
    )
    found = result.task_results[0]
    return {
        "model": scorer.name,
        "pooling": getattr(scorer, "pooling", None),
        "data": f"{MTEB_PREFIX}{name}",
        "type": task.metadata.type,
        "main_score": {task.metadata.main_score: float(found.get_score())},
        "scores": {
            split: {subset["hf_subset"]: _figures(subset) for subset in subsets}
            for split, subsets in found.scores.items()
        },
        "seconds": round(time.perf_counter() - started, 3),
    }


def _adapter(scorer: BiEncoder, on_progress: Progress | None, should_stop: ShouldStop | None) -> Any:
    """The model as mteb wants it."""
    mteb = _mteb()
    base: Any = mteb.models.abs_encoder.AbsEncoder
    done = 0

    class Adapter(base):
        """Our encode() on mteb's batches, with the folder's prompt for their side; similarities are mteb's own."""

        model = scorer
        mteb_model_meta = mteb.models.ModelMeta.create_empty({"name": f"sbert-lab/{_slug(scorer.name)}"})

        def __init__(self) -> None:
            pass

        def encode(self, inputs: Any, prompt_type: Any = None, **_: Any) -> np.ndarray:
            nonlocal done
            sentences = [text for batch in inputs for text in batch["text"]]
            vectors = _for_role(scorer, prompt_type).encode(sentences, normalize=None, should_stop=should_stop)
            done += len(sentences)
            if on_progress is not None:
                on_progress(done, None)
            return vectors

    return Adapter()


def _for_role(scorer: BiEncoder, prompt_type: Any) -> BiEncoder:
    """The model with its prompt for mteb's "query" or "document"; as it is where a task has no sides."""
    if prompt_type is None or not hasattr(scorer, "for_role"):
        return scorer
    return scorer.for_role(str(getattr(prompt_type, "value", prompt_type)))


def _mteb() -> Any:
    try:
        mteb = import_module("mteb")
        import_module("mteb.models.abs_encoder")
    except ImportError as error:
        raise InputError(
            "mteb:<task> needs the package mteb, which is not installed: pip install 'sbert-lab[mteb]'"
        ) from error
    return mteb


def _figures(subset: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in subset.items() if isinstance(value, int | float)}


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-") or "model"


def _is_about_data(error: Exception) -> bool:
    """Whether loading failed for the network, the Hub or the files, and not for a fault of the program."""
    import httpx
    from datasets.exceptions import DatasetsError

    return isinstance(error, OSError | ConnectionError | httpx.HTTPError | DatasetsError)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
