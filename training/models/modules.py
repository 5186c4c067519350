"""EncoderParts: what an encoder is made of. Dense, LayerNorm and Normalize: the modules after the pooling.

Each maps sentence vectors (B, D) to (B, D'), float32, and is written under the name that it has in
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

_ACTIVATIONS = ("torch.nn.modules.activation.", "torch.nn.modules.linear.", "torch.nn.")


class SentenceModule(nn.Module, ABC):
    """A module with the settings and weights in its folder."""

    @property
    def is_linear(self) -> bool:
        """Whether f(x) = W x + b: then a sum over tokens stays a sum over tokens."""
        return False

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> SentenceModule:
        """The module with fresh weights. InputError if a setting is missing or not supported."""
        return cls()

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The contents of config.json."""

    @classmethod
    def read(cls, folder: Path) -> SentenceModule:
        """Open the module in ``folder``. InputError if a file is missing or damaged."""
        # A Normalize made before it had settings has no config.json, or no folder at all.
        module = cls.from_config(read_object(folder / "config.json", {}), folder)
        if module.state_dict():
            load_weights(module, folder)
        return module

    def write(self, folder: Path) -> None:
        """Write config.json, and model.safetensors if there are weights."""
        write_json(folder / "config.json", self.config())
        if weights := self.state_dict():
            write_tensors(folder, weights)

    def output_dimension(self, dimension: int) -> int:
        """D' for vectors of D dimensions. InputError if it does not take D."""
        return dimension


class Dense(SentenceModule):
    """activation(x Wᵀ + b), optionally plus x (projected where the sizes differ)."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: str = "torch.nn.modules.activation.Tanh",
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
        before = config.get("in_features")
        after = config.get("out_features")
        if not (isinstance(before, int) and isinstance(after, int) and min(before, after) > 0):
            raise InputError(f"{folder / 'config.json'} states no sizes; fetch the model again")
        # Without a name it is the Tanh; null is none.
        activation = config.get("activation_function", f"{_ACTIVATIONS[0]}Tanh") or f"{_ACTIVATIONS[1]}Identity"
        return cls(before, after, bool(config.get("bias", True)), str(activation), bool(config.get("use_residual")))

    def config(self) -> dict[str, Any]:
        return {
            "in_features": self.linear.in_features,
            "out_features": self.linear.out_features,
            "bias": self.linear.bias is not None,
            "activation_function": self.activation_name,
            **({"use_residual": True} if self.use_residual else {}),
        }

    def output_dimension(self, dimension: int) -> int:
        _check_input("a Dense layer", self.linear.in_features, dimension)
        return self.linear.out_features

    def forward(self, x: Tensor) -> Tensor:
        out = self.activation_function(self.linear(x))
        return out if not self.use_residual else out + (self.residual(x) if hasattr(self, "residual") else x)


class LayerNorm(SentenceModule):
    """LayerNorm over the dimensions."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dimension)

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> LayerNorm:
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


SENTENCE_MODULES: dict[str, type[SentenceModule]] = {"Dense": Dense, "LayerNorm": LayerNorm, "Normalize": Normalize}


class EncoderParts(NamedTuple):
    """The modules of an encoder, and the settings under which it is used."""

    backbone: Any  # what comes before the pooling: a module of transformers, or a `WordBackbone`
    tokenizer: Any
    model_format: ModelFormat  # with a pooling and a longest input
    source: str  # where they came from, in words
    head: nn.Sequential  # the modules after the pooling, without the last Normalize

    @torch.no_grad()
    def token_width(self, pad_id: int) -> int:
        """The length of a token vector. The settings of a transformer name that of its layers, which may be another."""
        ids = torch.tensor([[pad_id]], device=next(self.backbone.parameters()).device)
        return int(self.backbone(ids).last_hidden_state.shape[-1])


def activation_named(name: str) -> nn.Module:
    """The activation of torch.nn of this name, such as torch.nn.modules.activation.Tanh.

    Nothing is imported by a path that a file states: the last part is looked up among torch.nn's own activations.
    InputError if it is none of them, or needs arguments.
    """
    kind = name.rsplit(".", 1)[-1]
    activation = getattr(nn, kind, None)
    is_activation = isinstance(activation, type) and (
        activation.__module__ == "torch.nn.modules.activation" or activation is nn.Identity
    )
    if name.removesuffix(kind) not in _ACTIVATIONS or not is_activation or activation is None:
        raise InputError(f"the activation {name} is none of torch.nn's, which are the only ones loaded by name")
    try:
        return activation()
    except TypeError as error:
        raise InputError(f"the activation {name} needs arguments, which a model's folder cannot state") from error


def _check_input(what: str, takes: int, dimension: int) -> None:
    if dimension != takes:
        raise InputError(
            f"{what} takes vectors of {takes} dimensions, but gets {dimension}; choose the model's own pooling"
        )
