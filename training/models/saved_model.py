"""SavedModel: ``use:<folder>``, an encoder of TensorFlow such as the Universal Sentence Encoder (Cer et al. 2018).

A SavedModel is a program. It is refused before it is loaded if it has operations that access files
or call Python.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np

from training.errors import InputError, first_line, install_command
from training.models.endpoint import PROBE
from training.models.model import SAVED_MODEL, VectorModel
from training.names import ModelName

FORBIDDEN = frozenset({"ReadFile", "WriteFile", "PyFunc", "PyFuncStateless", "EagerPyFunc"})


class SavedModel(VectorModel):
    """An encoder in a SavedModel, which is called directly, or by its signature default or serving_default."""

    kind = "SavedModel"
    batch_size = 64
    call: Any
    # The vector of `PROBE`.
    probe: np.ndarray

    @classmethod
    def load(cls, name: ModelName | str, **_: Any) -> Self:
        """Opens ``use:<folder>``. InputError if TensorFlow is missing, or the folder is not a sentence encoder."""
        parsed = ModelName.parse(name)
        model = cls()
        cls.check_settings(parsed)
        model.name = parsed.name
        folder = Path(parsed.name.removeprefix(SAVED_MODEL)).expanduser()
        if not (folder / "saved_model.pb").is_file():
            raise InputError(
                f"{folder} holds no SavedModel: there is no saved_model.pb; unpack the model of TF Hub"
            )
        try:
            # mypy does not find TensorFlow, an extra that is rarely installed.
            tensorflow = import_module("tensorflow")
            program = import_module("tensorflow.core.protobuf.saved_model_pb2").SavedModel()
            program.ParseFromString((folder / "saved_model.pb").read_bytes())
            operations = set[str]()
            for part in program.meta_graphs:
                operations |= {node.op for node in part.graph_def.node}
                for function in part.graph_def.library.function:
                    operations |= {node.op for node in function.node_def}
            forbidden = sorted(operations & FORBIDDEN)
            if forbidden:
                # This error becomes an InputError below.
                raise ValueError(f"it holds {', '.join(forbidden)}")  # noqa: TRY301
            loaded = tensorflow.saved_model.load(str(folder))
            model.call = loaded
            if not callable(loaded):
                signatures = getattr(loaded, "signatures", {})
                model.call = signatures.get("default") or signatures["serving_default"]
            [model.probe] = model.encode_batch([PROBE])
            model.dimension = len(model.probe)
        except ImportError as error:
            raise InputError(
                f"a SavedModel needs TensorFlow: {install_command('use')} installs it"
            ) from error
        except Exception as error:
            # TensorFlow and protobuf raise errors of many kinds.
            raise InputError(
                f"{folder} cannot be opened as an encoder of sentences: {first_line(error)}"
            ) from error
        return model

    def weights_sample(self, most: int) -> Iterator[tuple[str, np.ndarray]]:
        """Yields a vector that changes with the program, rounded as the last digits may differ between calls."""
        yield "probe", self.probe.round(3)

    def encode_batch(self, sentences: Sequence[str]) -> np.ndarray:
        """Returns the vectors of the program, (n, D)."""
        outputs = self.call(import_module("tensorflow").constant(sentences))
        # A signature returns its outputs by name.
        if isinstance(outputs, dict):
            outputs = next(iter(outputs.values()))
        vectors = np.asarray(outputs)
        if vectors.ndim != 2 or len(vectors) != len(sentences):
            raise InputError(
                f"the model maps {len(sentences)} sentences to an array of the shape {vectors.shape}"
            )
        return vectors
