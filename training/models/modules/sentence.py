"""The modules after the pooling, Dense, LayerNorm, Normalize and Dropout, each (B, D) -> (B, D'), float32."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from training.errors import InputError
from training.models.files import load_weights, read_object, write_json, write_tensors
from training.models.settings import checked
from training.models.sizes import check_module_sizes

# The features that these modules read and write in sentence-transformers.
SENTENCE, TOKENS = "sentence_embedding", "token_embeddings"
_FEATURE_NAMES = ("module_input_name", "module_output_name")
FEATURES = {SENTENCE: "sentence vector", TOKENS: "token vectors"}
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
    def read(cls, folder: Path, feature: str = SENTENCE) -> SentenceModule:
        """Open the module in ``folder``. InputError if a file is missing or damaged, or it works on another feature."""
        # A Normalize made before it had settings has no config.json, or no folder at all.
        config = read_object(folder / "config.json", {})
        _check_features(config, folder, feature)
        check_module_sizes(folder, config)
        module = cls.from_config(config, folder)
        checked(folder.parent.name, f"{folder.name}/config.json", config, (*module.config(), *_FEATURE_NAMES))
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
        self.activation_name, self.activation_function = activation, activation_named(activation)
        self.use_residual = use_residual
        if use_residual and in_features != out_features:
            self.residual = nn.Linear(in_features, out_features, bias=False)

    @property
    def is_linear(self) -> bool:
        return isinstance(self.activation_function, nn.Identity) and not self.use_residual

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> Dense:
        before, after = config.get("in_features"), config.get("out_features")
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
        return dict.fromkeys(_FEATURE_NAMES, SENTENCE)

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)


class Dropout(SentenceModule):
    """Dropout in training; the identity in inference."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    @property
    def is_linear(self) -> bool:
        return True

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> Dropout:
        p = config.get("dropout", 0.2)
        if not isinstance(p, int | float) or not 0 <= p < 1:
            raise InputError(f"{folder / 'config.json'} states the dropout {p!r}; it must be from 0 to below 1")
        return cls(float(p))

    def config(self) -> dict[str, Any]:
        return {"dropout": self.p}

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)


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


def _check_features(config: dict[str, Any], folder: Path, feature: str) -> None:
    """InputError if the module is set to read or write anything but ``feature``."""
    for name in filter(None, map(config.get, _FEATURE_NAMES)):
        if name != feature:
            raise InputError(f"{folder} works on {name}; only modules on the {FEATURES[feature]} are supported")
