"""SavedModel: a sentence encoder of TensorFlow, as TF Hub distributes the Universal Sentence Encoder.

    load_scorer("use:/models/universal-sentence-encoder_4")     the folder with saved_model.pb, as unpacked

It takes a batch of strings and returns a matrix: by being called, as TF 2's are, or by its signature ``default`` or
``serving_default``. TensorFlow is an optional dependency (the extra ``use``); it is imported here alone.

A SavedModel is a program. Those that read or write files, or call Python, are refused before they are loaded;
TensorFlow's own ``saved_model_cli scan`` looks for such operations too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from training.errors import InputError, Stopped
from training.models.vectors import normalize_rows

if TYPE_CHECKING:
    from training.models.encoder import EncodeReport, Progress

PREFIX = "use:"
BATCH = 64  # sentences
SIGNATURES = ("default", "serving_default")
FORBIDDEN = frozenset({"ReadFile", "WriteFile", "PyFunc", "PyFuncStateless", "EagerPyFunc"})


class SavedModelEncoder:
    """Sentence vectors by a SavedModel. The interface of the other baselines."""

    pooling = "none"

    def __init__(self, name: str, embed: Callable[[list[str]], np.ndarray]) -> None:
        """``embed``: n sentences -> (n, D)."""
        self.name, self._embed = name, embed
        self.dimension = int(embed([""]).shape[1])

    def encode(
        self,
        sentences: Sequence[str],
        normalize: bool | None = True,
        on_progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
        report: EncodeReport | None = None,
    ) -> np.ndarray:
        """Sentences -> float32 (N, D); ``normalize=True`` scales to length 1, None and False leave them."""
        vectors = np.zeros((len(sentences), self.dimension), dtype=np.float32)
        by_length = np.argsort([len(text) for text in sentences], kind="stable")  # transformers pad to the longest
        for start in range(0, len(sentences), BATCH):
            if should_stop is not None and should_stop():
                raise Stopped
            rows = by_length[start : start + BATCH]
            vectors[rows] = self._embed([sentences[row] for row in rows])
            if on_progress is not None:
                on_progress(start + len(rows), len(sentences))
        return normalize_rows(vectors) if normalize else vectors


def open_saved_model(name: str) -> SavedModelEncoder:
    """Open ``use:<folder>``.

    Raises:
        InputError: TensorFlow is missing, or the folder holds no SavedModel that maps sentences to vectors.
    """
    folder = Path(name.removeprefix(PREFIX)).expanduser()
    if not (folder / "saved_model.pb").is_file():
        raise InputError(
            f"{folder} holds no SavedModel (there is no saved_model.pb): unpack the model that TF Hub distributes, "
            f"and give its folder as {PREFIX}<folder>"
        )
    try:
        tf = import_module("tensorflow")
    except ImportError as error:
        raise InputError(
            f"{PREFIX} opens a SavedModel by TensorFlow, which is not installed: pip install 'sbert-lab[use]'"
        ) from error
    try:
        _check_operations(folder)
        loaded = tf.saved_model.load(str(folder))
        return SavedModelEncoder(name, _function_of(tf, loaded))
    except InputError:
        raise
    except Exception as error:  # TensorFlow raises its own classes, protobuf others
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"{folder} cannot be opened as an encoder of sentences: {reason[:200]}") from error


def _check_operations(folder: Path) -> None:
    """InputError if the model holds an operation of `FORBIDDEN`."""
    messages = import_module("tensorflow.core.protobuf.saved_model_pb2")
    saved = messages.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    graphs = [each.graph_def for each in saved.meta_graphs]
    nodes = [node for graph in graphs for node in graph.node]
    nodes += [node for graph in graphs for function in graph.library.function for node in function.node_def]
    if found := sorted({node.op for node in nodes} & FORBIDDEN):
        raise InputError(
            f"{folder} is refused: it holds {', '.join(found)}, operations that read or write files or call Python"
        )


def _function_of(tf: Any, loaded: Any) -> Callable[[list[str]], np.ndarray]:
    """A function of n strings to an array (n, D). InputError if the model has none."""
    signatures = getattr(loaded, "signatures", {})
    names = [name for name in SIGNATURES if name in signatures]
    if callable(loaded):
        call = loaded
    elif names:
        signature = signatures[names[0]]
        (argument,) = signature.structured_input_signature[1]

        def call(texts: Any) -> Any:
            return signature(**{argument: texts})
    else:
        raise InputError(
            f"the model is no function of sentences and has none of the signatures {', '.join(SIGNATURES)}"
        )

    def embed(texts: list[str]) -> np.ndarray:
        found = call(tf.constant(texts))
        if isinstance(found, dict):
            (found,) = [found[key] for key in ("default", "outputs") if key in found][:1] or found.values()
        vectors = np.asarray(found)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise InputError(f"the model maps {len(texts)} sentences to an array of the shape {vectors.shape}")
        return vectors

    return embed
