"""EncoderParts: the parts of an encoder. Dense, LayerNorm and Normalize: the modules after the pooling.

Each module maps sentence vectors (B, D) to (B, D'), float32. It has the same name as in
sentence-transformers' modules.json.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.errors import InputError
from training.models.files import load_weights, read_object, write_json, write_tensors
from training.models.folder import ModelFormat

# The modules of torch.nn that a folder may name an activation in.
_ACTIVATION_MODULES = ("torch.nn.modules.activation", "torch.nn.modules.linear", "torch.nn")
TANH = "torch.nn.modules.activation.Tanh"
IDENTITY = "torch.nn.modules.linear.Identity"


class SentenceModule(nn.Module, ABC):
    """A module that is stored in a folder of its own."""

    @property
    def is_linear(self) -> bool:
        """Whether f(x) = W x + b, which keeps a sum over tokens a sum over tokens."""
        return False

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> SentenceModule:
        """Makes the module with new weights. InputError if a setting is missing or not supported."""
        return cls()

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Returns the contents of config.json."""

    @classmethod
    def read(cls, folder: Path) -> SentenceModule:
        """Opens the module in ``folder``. InputError if a file is missing or damaged."""
        # Older versions of sentence-transformers saved a Normalize without config.json, or without a
        # folder.
        module = cls.from_config(read_object(folder / "config.json", {}), folder)
        if module.state_dict():
            load_weights(module, folder)
        return module

    def write(self, folder: Path) -> None:
        """Writes config.json, and model.safetensors if there are weights."""
        write_json(folder / "config.json", self.config())
        weights = self.state_dict()
        if weights:
            write_tensors(folder, weights)

    def output_dimension(self, dimension: int) -> int:
        """Returns D' for vectors of D dimensions. InputError if the module does not accept D."""
        return dimension


class Dense(SentenceModule):
    """Computes activation(x Wᵀ + b), optionally plus x, which is projected if the sizes differ."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: str = TANH,
        use_residual: bool = False,
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=bias)
        self.activation_name = activation
        self.activation_function = activation_named(activation)
        self.use_residual = use_residual
        if use_residual and in_features != out_features:
            self.residual = nn.Linear(in_features, out_features, bias=False)

    @property
    def is_linear(self) -> bool:
        return isinstance(self.activation_function, nn.Identity) and not self.use_residual

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> Dense:
        sizes: tuple[Any, Any] = (config.get("in_features"), config.get("out_features"))
        if not all(isinstance(size, int) and size >= 1 for size in sizes):
            raise InputError(f"{folder / 'config.json'} states no sizes; fetch the model again")
        # null stands for no activation.
        activation = config.get("activation_function", TANH) or IDENTITY
        return cls(
            *sizes,
            bool(config.get("bias", True)),
            str(activation),
            bool(config.get("use_residual")),
        )

    def config(self) -> dict[str, Any]:
        config = {
            "in_features": self.linear.in_features,
            "out_features": self.linear.out_features,
            "bias": self.linear.bias is not None,
            "activation_function": self.activation_name,
        }
        if self.use_residual:
            config["use_residual"] = True
        return config

    def output_dimension(self, dimension: int) -> int:
        _check_input("a Dense layer", self.linear.in_features, dimension)
        return self.linear.out_features

    def forward(self, x: Tensor) -> Tensor:
        out = self.activation_function(self.linear(x))
        if not self.use_residual:
            return out
        if self.linear.in_features != self.linear.out_features:
            return out + self.residual(x)
        return out + x


class LayerNorm(SentenceModule):
    """Layer normalisation over the dimensions."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dimension)

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> LayerNorm:
        # A number below 1 has been refused by `check_module_sizes`.
        if not isinstance(config.get("dimension"), int):
            raise InputError(f"{folder / 'config.json'} states no dimension; fetch the model again")
        return cls(config["dimension"])

    def config(self) -> dict[str, Any]:
        return {"dimension": self.norm.normalized_shape[0]}

    def output_dimension(self, dimension: int) -> int:
        _check_input("a LayerNorm", self.norm.normalized_shape[0], dimension)
        return dimension

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Normalize(SentenceModule):
    """Scales each vector to length 1; a zero vector stays zero."""

    def config(self) -> dict[str, Any]:
        return dict.fromkeys(("module_input_name", "module_output_name"), "sentence_embedding")

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)


SENTENCE_MODULES: dict[str, type[SentenceModule]] = {
    "Dense": Dense,
    "LayerNorm": LayerNorm,
    "Normalize": Normalize,
}


class EncoderParts(NamedTuple):
    """The parts of an encoder, and its settings."""

    backbone: Any  # the module before the pooling: a module of transformers, or a `WordBackbone`
    tokenizer: Any  # of transformers, or of words by sentence-transformers
    model_format: ModelFormat  # with a pooling and a maximum length
    source: str  # where the parts came from, in words
    head: nn.Sequential  # the modules after the pooling, without the final Normalize

    @torch.no_grad()
    def token_width(self, pad_id: int) -> int:
        """Measures the length of a token vector, as it may differ from the width of the layers in the settings."""
        ids = torch.tensor([[pad_id]], device=next(self.backbone.parameters()).device)
        return int(self.backbone(ids).last_hidden_state.shape[-1])


def activation_named(name: str) -> nn.Module:
    """Makes the activation of torch.nn with this name, such as torch.nn.modules.activation.Tanh.

    Nothing is imported from a path in a file. The last part of the name is looked up among the
    activations of torch.nn, and the part before it must be one of the modules that have them.
    InputError if torch.nn does not have the activation, or it needs arguments.
    """
    module, _, class_name = name.rpartition(".")
    activation: Any = getattr(nn, class_name, None)
    defined_in = getattr(activation, "__module__", "")
    is_activation = activation is nn.Identity or defined_in == "torch.nn.modules.activation"
    if not is_activation or module not in _ACTIVATION_MODULES:
        raise InputError(
            f"the activation {name} is none of torch.nn's, which are the only ones loaded by name"
        )
    try:
        return activation()
    except TypeError as error:
        raise InputError(
            f"the activation {name} needs arguments, which a model's folder cannot state"
        ) from error


def _check_input(what: str, takes: int, dimension: int) -> None:
    if dimension != takes:
        raise InputError(
            f"{what} takes vectors of {takes} dimensions, but gets {dimension}; choose the model's own pooling"
        )
