"""SavedModel: ``use:<folder>``, an encoder of TensorFlow such as the Universal Sentence Encoder (Cer et al. 2018).

It is a program: one with operations that reach files, or call Python, is refused before it is loaded.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np

from training.errors import InputError, first_line, install_command
from training.models.model import SAVED_MODEL, VectorModel
from training.names import ModelName

FORBIDDEN = frozenset({"ReadFile", "WriteFile", "PyFunc", "PyFuncStateless", "EagerPyFunc"})


class SavedModel(VectorModel):
    """Sentence vectors by a SavedModel, which is called itself or by its signature default or serving_default."""

    kind = "SavedModel"
    batch_size = 64
    call: Any

    @classmethod
    def load(cls, name: ModelName | str, **_: Any) -> Self:
        """Open ``use:<folder>``. InputError if TensorFlow is missing, or the folder holds no encoder of sentences."""
        parsed = ModelName.parse(name)
        model = cls()
        cls.check_settings(parsed)
        model.name = parsed.name
        folder = Path(parsed.name.removeprefix(SAVED_MODEL)).expanduser()
        if not (folder / "saved_model.pb").is_file():
            raise InputError(f"{folder} holds no SavedModel: there is no saved_model.pb; unpack the model of TF Hub")
        try:
            tensorflow = import_module("tensorflow")
            saved = import_module("tensorflow.core.protobuf.saved_model_pb2").SavedModel()
            saved.ParseFromString((folder / "saved_model.pb").read_bytes())
            for graph in (part.graph_def for part in saved.meta_graphs):
                nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
                if refused := sorted({node.op for node in nodes} & FORBIDDEN):
                    raise ValueError(f"it holds {', '.join(refused)}")  # noqa: TRY301 - said in one sentence below
            loaded = tensorflow.saved_model.load(str(folder))
            signatures = getattr(loaded, "signatures", {})
            model.call = loaded if callable(loaded) else signatures.get("default") or signatures["serving_default"]
            model.dimension = model.encode_batch([""]).shape[1]
        except ImportError as error:
            raise InputError(f"a SavedModel needs TensorFlow: {install_command('use')} installs it") from error
        except Exception as error:  # TensorFlow raises its own classes, protobuf others
            raise InputError(f"{folder} cannot be opened as an encoder of sentences: {first_line(error)}") from error
        return model

    def encode_batch(self, sentences: Sequence[str]) -> np.ndarray:
        """The vectors as the program gives them, (n, D)."""
        outputs = self.call(import_module("tensorflow").constant(sentences))
        vectors = np.asarray(next(iter(outputs.values())) if isinstance(outputs, dict) else outputs)
        if vectors.ndim != 2 or len(vectors) != len(sentences):
            raise InputError(f"the model maps {len(sentences)} sentences to an array of the shape {vectors.shape}")
        return vectors
