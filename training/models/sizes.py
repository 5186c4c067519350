"""Checks that the sizes in a model's settings match its weights, before and after the model is built.

A config.json may announce a billion layers, name code on the Hub, or contain text instead of
numbers. transformers would take minutes and gigabytes to find out. Here the announced sizes are
compared with the shapes in the header of each .safetensors file, so that no model is built that is
larger than its files. Each mistake raises one sentence.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from training.errors import InputError, first_line
from training.models.files import WEIGHTS, check_finite, read_object, read_tensors

INDEX = "model.safetensors.index.json"
MOST_LAYERS = 1_000
MOST_POSITIONS = 10_000_000
# A size may exceed the largest dimension of a weight by this much, as vocabularies are padded.
SLACK = 64

# The settings that decide how large a model is, under the names of different architectures.
LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
WIDTHS = ("hidden_size", "dim", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_heads", "n_head", "num_heads")
OTHER_SIZES = (*HEADS, "vocab_size", "intermediate_size", "hidden_dim", "embedding_size")
MODULE_SIZES = ("in_features", "out_features", "dimension", "hidden_dim", "num_layers")
POSITIONS = ("max_position_embeddings", "n_positions")
# Settings that make transformers fetch code, or need a library that is not installed.
FOREIGN = ("quantization_config", "use_kernels", "experts_implementation")
ATTENTION = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")
OWN_ATTENTION = ("eager", "sdpa", None)
NESTED = ("text_config", "encoder", "vision_config")
# A folder with such a name stands for a file that was not copied.
FILE_SUFFIXES = (".json", ".safetensors", ".txt", ".model")

_LAYER_INDEX = re.compile(r"(?:^|[._])(?:layers?|h|blocks?)\.(\d+)\.")


def check_transformer(folder: Path, config: Mapping[str, Any]) -> None:
    """Raises InputError if config.json or the headers of the weights cannot belong to a transformer."""
    for entry in folder.iterdir():
        # A folder with the name of a file stands for a file that was not copied.
        is_folder = entry.is_dir() and entry.suffix not in FILE_SUFFIXES
        if not entry.is_file() and not is_folder:
            raise InputError(f"{entry} is no file; fetch the model again")
    index = read_object(folder / INDEX, {"weight_map": {}}).get("weight_map")
    if not isinstance(index, dict):
        raise InputError(f"{folder / INDEX} lists no weights; fetch the model again")
    for name in index.values():
        # On Windows the backslash separates folders too.
        if not isinstance(name, str) or Path(name).name != name or "\\" in name:
            raise InputError(
                f"{folder} has weights in {str(name)[:80]!r}, which is outside of it; fetch the model again"
            )
        # transformers reads the file with all weights first, and the index only without it.
        if not (folder / name).is_file() and not (folder / WEIGHTS).is_file():
            raise InputError(f"{folder} lacks {name}, a part of its weights; fetch the model again")
    if (folder / "adapter_config.json").is_file():
        raise InputError(
            f"{folder} has an adapter beside the weights of a whole model, which may have it or not: remove either"
        )
    config_file = folder / "config.json"
    shapes = read_shapes(folder)
    for settings in (config, *map(config.get, NESTED)):
        if isinstance(settings, Mapping):
            _check_foreign(config_file, settings)
            _check_sizes(config_file, settings, shapes)
    _check_code(config_file, config)


def check_backbone(folder: Path, backbone: Any) -> None:
    """Raises InputError if a weight is not finite, or the padding token that positions start from is missing."""
    # The command line reads folders before it imports torch and transformers, which take seconds.
    import torch

    base_model = getattr(backbone, "base_model", None)
    embeddings = getattr(base_model, "embeddings", None)
    # RoBERTa and similar models count positions from the padding token: ``padding_idx`` of their
    # embeddings is None if config.json does not name it. BERT's embeddings lack the attribute, and
    # pass. A plain table of embeddings, as in Mamba, has the attribute, but no positions.
    is_table = isinstance(embeddings, torch.nn.Embedding)
    if getattr(embeddings, "padding_idx", 0) is None and not is_table:
        raise InputError(
            f"{folder / 'config.json'} has no pad_token_id, from which positions are counted: give it one"
        )
    check_finite(backbone.named_parameters(), folder)


def check_module_sizes(folder: Path) -> None:
    """Raises InputError if the sizes of a module after the transformer need more numbers than its weights have."""
    sizes: dict[str, int] = {}
    for file in (folder / "config.json", folder / "lstm_config.json"):
        sizes |= dict(_sizes(file, read_object(file, {}), MODULE_SIZES))
    if not sizes:
        return
    # The pattern leaves out the hidden files that macOS adds, such as ._model.safetensors.
    if not any(folder.glob("[!.]*.safetensors")):
        # Raises an error that says what is missing.
        read_tensors(folder)
    numbers = sum(map(math.prod, read_shapes(folder).values()))
    # A module has at least as many weights as the product of its sizes, such as in · out features
    # of a Dense.
    if math.prod(sizes.values()) > numbers:
        text = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise InputError(
            f"{folder} announces {text}, but its weights are only {numbers:,} numbers; fetch it again"
        )


def read_shapes(folder: Path) -> dict[str, list[int]]:
    """Reads the shapes of all weights in a folder, by name, from the headers only. InputError if one is damaged."""
    shapes: dict[str, list[int]] = {}
    # The pattern leaves out the hidden files that macOS adds, such as ._model.safetensors.
    for file in sorted(folder.glob("[!.]*.safetensors")):
        try:
            with safe_open(file, "np") as weights:
                # ``weights`` cannot be iterated like a dictionary.
                for name in weights.keys():  # noqa: SIM118
                    shapes[name] = weights.get_slice(name).get_shape()
        except (OSError, SafetensorError) as error:
            raise InputError(
                f"{file} is damaged ({first_line(error)}); fetch the model again"
            ) from error
    return shapes


def _check_foreign(file: Path, settings: Mapping[str, Any]) -> None:
    """Raises InputError for a setting that would fetch code, or that transformers does not follow."""
    for name in FOREIGN:
        if settings.get(name):
            raise InputError(
                f"{file} asks for {name}, which is not supported; choose a model without it"
            )
    for name in ATTENTION:
        attention = settings.get(name)
        # transformers has `OWN_ATTENTION` and flash attention itself. It fetches any other name from
        # the Hub. None, for a missing setting, is in `OWN_ATTENTION`.
        is_flash = str(attention).startswith("flash_attention")
        if attention not in OWN_ATTENTION and not is_flash:
            raise InputError(
                f"{file} asks for the attention {str(attention)[:80]!r}, which would be fetched as code and is "
                "not loaded; choose a model without it"
            )
    # transformers 5 removed relative positions from BERT and similar models, and ignores the
    # setting.
    positions = str(settings.get("position_embedding_type"))
    if positions.startswith("relative"):
        raise InputError(f"{file} asks for {positions} positions, which are not supported")


def _check_code(file: Path, config: Mapping[str, Any]) -> None:
    """Raises InputError for a decoder with its own code, which makes it read in both directions."""
    # With is_causal false, the class of transformers reads in both directions too.
    if not config.get("auto_map") or not config.get("is_causal", True):
        return
    from transformers import (
        CONFIG_MAPPING,
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
    )

    model_type = str(config.get("model_type"))
    # The mapping is lazy, and ``get`` does not load its entries.
    config_class = None
    if model_type in CONFIG_MAPPING:
        config_class = CONFIG_MAPPING[model_type]
    # Encoders such as BERT have a class for causal language models too.
    is_decoder = config_class in MODEL_FOR_CAUSAL_LM_MAPPING
    if is_decoder and config_class not in MODEL_FOR_MASKED_LM_MAPPING:
        raise InputError(
            f"{file} names code of its own (auto_map), which is never run; choose a model without, or with is_causal "
            "false in its config.json"
        )


def _check_sizes(
    file: Path, settings: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]
) -> None:
    """Raises InputError if the settings announce sizes that weights of these shapes cannot have."""
    layers = _first_size(file, settings, LAYERS)
    width = _first_size(file, settings, WIDTHS)
    # The largest dimension of any weight.
    largest = max(chain.from_iterable(shapes.values()), default=0)
    # A vocabulary may be padded, so a size may be larger by `SLACK`.
    for name, size in _sizes(file, settings, (*WIDTHS, *OTHER_SIZES)):
        if size > largest + SLACK:
            raise InputError(
                f"{file} announces {name} {size:,}, but no weight is larger than {largest:,}; fetch it again"
            )
    # These sizes are only limited, as rotary positions have no weights. DeBERTa states 0 types of
    # tokens, which `_sizes` would refuse.
    positions = (*POSITIONS, "type_vocab_size") if settings.get("type_vocab_size") else POSITIONS
    for name, size in _sizes(file, settings, positions):
        if size > MOST_POSITIONS:
            raise InputError(
                f"{file} announces {name} {size:,}; at most {MOST_POSITIONS:,} are supported"
            )
    # The layers of ALBERT share their weights, so they cannot be counted. The weights of some models
    # are not numbered; then only more than `MOST_LAYERS` layers are refused.
    is_shared = "num_hidden_groups" in settings
    most_layers = MOST_LAYERS
    if not is_shared:
        indices = [match[1] for match in map(_LAYER_INDEX.search, shapes) if match]
        # int() raises an error for a very long number.
        counts = [int(index) + 1 for index in indices if len(index) < 6]
        most_layers = max(counts, default=MOST_LAYERS)
    if layers and layers > most_layers:
        raise InputError(
            f"{file} announces {layers:,} layers, but the weights are of {most_layers:,}; fetch the model again"
        )
    numbers = sum(map(math.prod, shapes.values()))
    stored_layers = 1
    if layers and not is_shared:
        stored_layers = layers
    # Each layer has at least one matrix of the width.
    if width and stored_layers * width**2 > max(numbers, 1):
        raise InputError(
            f"{file} announces {layers or 1:,} layers of width {width:,}, but the weights are only {numbers:,} "
            "numbers; fetch the model again"
        )


def _first_size(file: Path, settings: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """Returns the first of the settings that is there; None if none is."""
    return next((size for _, size in _sizes(file, settings, names)), None)


def _sizes(
    file: Path, settings: Mapping[str, Any], names: tuple[str, ...]
) -> Iterator[tuple[str, int]]:
    """Yields (name, value) for each of the settings that is there. InputError if it is not a whole number above 0.

    Settings of a nested configuration are left out.
    """
    for name in names:
        if name not in settings or isinstance(settings[name], dict):
            continue
        size = settings[name]
        # bool is a subclass of int.
        if type(size) is not int or size < 1:
            raise InputError(
                f"{file} has {name} {str(size)[:80]!r}; it must be a whole number from 1"
            )
        yield name, size
