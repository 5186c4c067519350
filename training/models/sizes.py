"""Whether what a model's folder announces fits its weights, checked before anything of that size is built, and after.

A config.json may announce a billion layers, name code of the Hub, or have text where numbers belong; transformers would
take minutes and gigabytes to find out. Here the announced sizes are compared with the shapes of the weights, which
stand in the first bytes of each .safetensors file, so that what is built is never larger than what the folder holds.
Each mistake is one sentence.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from training.errors import InputError, first_line
from training.models.files import WEIGHTS, read_object, read_tensors

INDEX = "model.safetensors.index.json"
MOST_LAYERS = 1_000
MOST_POSITIONS = 10_000_000
SLACK = 64  # by which a size may exceed the largest dimension of a weight: padded vocabularies

# The settings that decide how large a model is, by the names that architectures give them.
LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
WIDTHS = ("hidden_size", "dim", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_heads", "n_head", "num_heads")
OTHER_SIZES = (*HEADS, "vocab_size", "intermediate_size", "hidden_dim", "embedding_size")
MODULE_SIZES = ("in_features", "out_features", "dimension", "hidden_dim", "num_layers")
POSITIONS = ("max_position_embeddings", "n_positions")
# Settings that make transformers fetch code, or a library that is not ours.
FOREIGN = ("quantization_config", "use_kernels", "experts_implementation")
ATTENTION = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")
OWN_ATTENTION = ("eager", "sdpa", None)
NESTED = ("text_config", "encoder", "vision_config")
# No folder of a model is named like that.
FILE_SUFFIXES = (".json", ".safetensors", ".txt", ".model")

_LAYER_INDEX = re.compile(r"(?:^|[._])(?:layers?|h|blocks?)\.(\d+)\.")


def check_transformer(folder: Path, config: Mapping[str, Any]) -> None:
    """InputError if config.json or the weights' headers cannot be those of a transformer."""
    for entry in folder.iterdir():
        if not entry.is_file() and (not entry.is_dir() or entry.suffix in FILE_SUFFIXES):
            raise InputError(f"{entry} is no file; fetch the model again")
    index = read_object(folder / INDEX, {"weight_map": {}}).get("weight_map")
    if not isinstance(index, dict):
        raise InputError(f"{folder / INDEX} lists no weights; fetch the model again")
    for name in index.values():
        if not isinstance(name, str) or Path(name).name != name or "\\" in name:
            raise InputError(
                f"{folder} has weights in {str(name)[:80]!r}, which is outside of it; fetch the model again"
            )
        if not (folder / name).is_file() and not (folder / WEIGHTS).is_file():
            raise InputError(f"{folder} lacks {name}, a part of its weights; fetch the model again")
    if (folder / "adapter_config.json").is_file():
        raise InputError(
            f"{folder} has an adapter beside the weights of a whole model, which may have it or not: remove either"
        )
    config_file = folder / "config.json"
    shapes = read_shapes(folder)
    for settings in (config, *(config[name] for name in NESTED if isinstance(config.get(name), dict))):
        _check_foreign(config_file, settings)
        _check_sizes(config_file, settings, shapes)
    _check_code(config_file, config)


def check_backbone(folder: Path, backbone: Any) -> None:
    """InputError if a weight is no number, or positions are counted from a padding token that is not named."""
    # The command line reads folders before it imports torch.
    import torch

    embeddings = getattr(getattr(backbone, "base_model", None), "embeddings", None)
    # RoBERTa and its kin count positions from the padding token; a table alone, as Mamba's, has no positions.
    if getattr(embeddings, "padding_idx", 0) is None and not isinstance(embeddings, torch.nn.Embedding):
        raise InputError(f"{folder / 'config.json'} has no pad_token_id, from which positions are counted: give it one")
    for name, weights in backbone.named_parameters():
        # A sum is not finite if one of its numbers is not, and takes no memory.
        if not weights.sum(dtype=torch.float64).isfinite():
            raise InputError(
                f"the weights {name} in {folder} are not all numbers (NaN or infinite); fetch the model again"
            )


def check_module_sizes(folder: Path) -> None:
    """InputError if the sizes of a module after the transformer together need more numbers than its weights are."""
    sizes: dict[str, int] = {}
    for file in (folder / "config.json", folder / "lstm_config.json"):
        sizes |= dict(_sizes(file, read_object(file, {}), MODULE_SIZES))
    if sizes and not any(folder.glob("[!.]*.safetensors")):
        # It says what is missing.
        read_tensors(folder)
    numbers = sum(map(math.prod, read_shapes(folder).values())) if sizes else 1
    if math.prod(sizes.values()) > numbers:
        text = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise InputError(f"{folder} announces {text}, but its weights are only {numbers:,} numbers; fetch it again")


def read_shapes(folder: Path) -> dict[str, list[int]]:
    """The shapes of all weights in a folder by their names, from the headers alone. InputError if one is damaged."""
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, list[int]] = {}
    for file in sorted(folder.glob("[!.]*.safetensors")):
        try:
            with safe_open(file, "np") as weights:
                shapes |= {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise InputError(f"{file} is damaged ({first_line(error)}); fetch the model again") from error
    return shapes


def _check_foreign(file: Path, settings: Mapping[str, Any]) -> None:
    for name in FOREIGN:
        if settings.get(name):
            raise InputError(f"{file} asks for {name}, which is not supported; choose a model without it")
    for name in ATTENTION:
        if settings.get(name) not in OWN_ATTENTION and not str(settings[name]).startswith("flash_attention"):
            raise InputError(
                f"{file} asks for the attention {str(settings[name])[:80]!r}, which would be fetched as code and is "
                "not loaded; choose a model without it"
            )
    # BERT and its kin lost them in transformers 5, which reads on as if there were none.
    if str(settings.get("position_embedding_type")).startswith("relative") and settings.get("model_type") != "esm":
        raise InputError(f"{file} asks for {settings['position_embedding_type']} positions, which are not supported")


def _check_code(file: Path, config: Mapping[str, Any]) -> None:
    """InputError for a decoder with code of its own, which makes it read in both directions."""
    if not config.get("auto_map") or not config.get("is_causal", True):
        return
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    kind = str(config.get("model_type"))
    # The mapping is lazy: its ``get`` does not find what ``[]`` does.
    config_class = CONFIG_MAPPING[kind] if kind in CONFIG_MAPPING else None  # noqa: SIM401
    if config_class in MODEL_FOR_CAUSAL_LM_MAPPING and config_class not in MODEL_FOR_MASKED_LM_MAPPING:
        raise InputError(
            f"{file} names code of its own (auto_map), which is never run; choose a model without, or with is_causal "
            "false in its config.json"
        )


def _check_sizes(file: Path, settings: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> None:
    sizes = (next(_sizes(file, settings, names), None) for names in (LAYERS, WIDTHS))
    layers, width = (size and size[1] for size in sizes)
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    for name, size in _sizes(file, settings, (*WIDTHS, *OTHER_SIZES)):
        if size > largest + SLACK:
            raise InputError(
                f"{file} announces {name} {size:,}, but no weight is larger than {largest:,}; fetch it again"
            )
    # DeBERTa has no types of tokens.
    positions = (*POSITIONS, "type_vocab_size") if settings.get("type_vocab_size") else POSITIONS
    for name, size in _sizes(file, settings, positions):
        if size > MOST_POSITIONS:
            raise InputError(f"{file} announces {name} {size:,}; at most {MOST_POSITIONS:,} are supported")
    # All layers of ALBERT are one; the weights of some models are not numbered.
    is_shared = "num_hidden_groups" in settings
    indices = [int(match[1]) for name in shapes if (match := _LAYER_INDEX.search(name)) and len(match[1]) < 6]
    most_layers = max(indices) + 1 if indices and not is_shared else MOST_LAYERS
    if layers and layers > most_layers:
        raise InputError(
            f"{file} announces {layers:,} layers, but the weights are of {most_layers:,}; fetch the model again"
        )
    numbers = sum(map(math.prod, shapes.values()))
    if width and (1 if is_shared else layers or 1) * width**2 > max(numbers, 1):
        raise InputError(
            f"{file} announces {layers or 1:,} layers of width {width:,}, but the weights are only {numbers:,} "
            "numbers; fetch the model again"
        )


def _sizes(file: Path, settings: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """(name, value) of those that there are. InputError for one that is not a whole number above 0."""
    for name in names:
        if name in settings and not isinstance(settings[name], dict):
            size = settings[name]
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise InputError(f"{file} has {name} {str(size)[:80]!r}; it must be a whole number from 1")
            yield name, size
