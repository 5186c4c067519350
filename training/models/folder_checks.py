"""What a model's folder says about itself, checked before anything of its size is built.

A folder is somebody else's. Its config.json may announce a billion layers, lead to /dev/zero, name code of the Hub, or
have text where numbers belong; transformers would take minutes and gigabytes to find out. Here the announced sizes are
compared with the shapes of the weights, which stand in the first bytes of each .safetensors file, so that what is
built is never larger than what the folder holds. Each mistake is one sentence.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn


MOST_HEADER = 100 << 20  # bytes of the header of a .safetensors file, as in the library
MOST_LAYERS = 1_000
MOST_POSITIONS = 10_000_000
SLACK = 64  # by which a size may exceed the largest dimension of a weight: padded vocabularies

# The settings that decide how large a model is, by the names that architectures give them.
LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
WIDTHS = ("hidden_size", "dim", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_heads", "n_head", "num_heads")
HEAD_WIDTHS = ("head_dim", "d_kv")  # where it is not the width divided by the heads
OTHER_SIZES = ("vocab_size", "intermediate_size", "hidden_dim", "embedding_size")
MODULE_SIZES = ("in_features", "out_features", "dimension", "embedding_dimension", "hidden_dim", "num_layers")
POSITIONS = ("max_position_embeddings", "n_positions", "type_vocab_size")
# Settings that make transformers fetch code, or a library that is not ours.
FOREIGN = ("quantization_config", "use_kernels", "experts_implementation")
ATTENTION = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")
OWN_ATTENTION = ("eager", "sdpa", None)
NESTED = ("text_config", "encoder", "vision_config")

_LAYER_INDEX = re.compile(r"(?:^|[._])(?:layers?|h|blocks?)\.(\d+)\.")


@dataclass(frozen=True)
class WeightShapes:
    """What the headers of the .safetensors files say."""

    numbers: int  # of all weights together
    largest: int  # dimension of any of them
    layers: int  # by the names of the weights; 0 where they are not numbered


def check_model_folder(folder: Path) -> None:
    """InputError if config.json, the tokenizer's files or the weights' headers cannot be those of a transformer."""
    for entry in folder.iterdir():
        if not entry.is_file() and not entry.is_dir():
            raise InputError(f"{entry} is no file; fetch the model again")
    config_file = folder / "config.json"
    config, shapes = read_object(config_file), read_shapes(folder)
    for settings in (config, *(config[name] for name in NESTED if isinstance(config.get(name), dict))):
        _check_foreign(config_file, settings)
        _check_sizes(config_file, settings, shapes)
    _check_tokenizer(folder, config, shapes)


def check_module_sizes(folder: Path, config: dict[str, Any]) -> None:
    """InputError if the sizes of a module after the transformer together need more numbers than its weights are."""
    file = folder / "config.json"
    sizes = dict(_sizes(file, config, MODULE_SIZES))
    if sizes and not any(folder.glob("*.safetensors")):
        read_tensors(folder)  # says what is missing
    numbers = read_shapes(folder).numbers if sizes else 1
    if math.prod(sizes.values()) > numbers:
        said = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise InputError(f"{folder} announces {said}, but its weights are only {numbers:,} numbers; fetch it again")


def read_shapes(folder: Path) -> WeightShapes:
    """The shapes of all weights in a folder, from the headers alone. InputError if one is damaged."""
    shapes: dict[str, list[int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        for name, entry in _header(file).items():
            shape = entry.get("shape") if isinstance(entry, dict) else None
            if name == "__metadata__":
                continue
            if not isinstance(shape, list) or not all(_is_count(size) for size in shape):
                raise InputError(f"{file} is damaged: the weight {name[:80]} has no shape; fetch the model again")
            shapes[name] = shape
    indices = [int(found[1]) for name in shapes if (found := _LAYER_INDEX.search(name)) and len(found[1]) < 6]
    return WeightShapes(
        numbers=sum(map(math.prod, shapes.values())),
        largest=max((size for shape in shapes.values() for size in shape), default=0),
        layers=max(indices, default=-1) + 1,
    )


def _header(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise InputError(f"{file} is no file; fetch the model again")
    with file.open("rb") as opened:
        first = opened.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else MOST_HEADER + 1
        if length > min(MOST_HEADER, file.stat().st_size - 8):
            raise InputError(f"{file} is no complete .safetensors file; fetch the model again")
        content = opened.read(length)
    header = parse_json(content, file)
    if not isinstance(header, dict):
        raise InputError(f"{file} is no complete .safetensors file; fetch the model again")
    return header


def _check_foreign(file: Path, settings: dict[str, Any]) -> None:
    for name in FOREIGN:
        if settings.get(name):
            raise InputError(f"{file} asks for {name}, which is not supported; choose a model without it")
    for name in ATTENTION:
        if settings.get(name) not in OWN_ATTENTION and not str(settings[name]).startswith("flash_attention"):
            raise InputError(
                f"{file} asks for the attention {str(settings[name])[:80]!r}, which would be fetched as code and is "
                "not loaded; choose a model without it"
            )


def _check_sizes(file: Path, settings: dict[str, Any], shapes: WeightShapes) -> None:
    found = (next(_sizes(file, settings, names), None) for names in (LAYERS, WIDTHS, HEADS))
    layers, width, heads = (size and size[1] for size in found)
    for name, size in _sizes(file, settings, (*WIDTHS, *OTHER_SIZES)):
        if size > shapes.largest + SLACK:
            raise InputError(
                f"{file} announces {name} {size:,}, but no weight is larger than {shapes.largest:,}; fetch it again"
            )
    for name, size in _sizes(file, settings, POSITIONS):
        if size > MOST_POSITIONS:
            raise InputError(f"{file} announces {name} {size:,}; at most {MOST_POSITIONS:,} are supported")
    shared = "num_hidden_groups" in settings  # ALBERT: all layers are one
    most_layers = MOST_LAYERS if shared or not shapes.layers else shapes.layers
    if layers and layers > most_layers:
        raise InputError(
            f"{file} announces {layers:,} layers, but the weights are of {most_layers:,}; fetch the model again"
        )
    if width and heads and width % heads and not any(name in settings for name in HEAD_WIDTHS):
        raise InputError(f"{file} divides a width of {width:,} among {heads:,} heads; fetch the model again")
    if width and (1 if shared else layers or 1) * width**2 > max(shapes.numbers, 1):
        raise InputError(
            f"{file} announces {layers or 1:,} layers of width {width:,}, but the weights are only "
            f"{shapes.numbers:,} numbers; fetch the model again"
        )


def _check_tokenizer(folder: Path, config: dict[str, Any], shapes: WeightShapes) -> None:
    """InputError for a tokenizer whose tokens the model does not know, or whose greatest length is none."""
    settings_file, tokenizer_file = folder / "tokenizer_config.json", folder / "tokenizer.json"
    settings = read_json(settings_file) if settings_file.exists() else {}
    longest = settings.get("model_max_length") if isinstance(settings, dict) else "no object"
    if longest is not None and (isinstance(longest, bool) or not isinstance(longest, int | float) or not longest >= 1):
        raise InputError(f"{settings_file} has model_max_length {str(longest)[:80]!r}; it must be 1 or more")
    if not tokenizer_file.exists():
        return
    rows = next((size for _, size in _sizes(folder / "config.json", config, ("vocab_size",))), shapes.largest)
    tokenizer = read_json(tokenizer_file)
    if not isinstance(tokenizer, dict):
        raise InputError(f"{tokenizer_file} holds no tokenizer; fetch the model again")
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    # Without tokens that were added later: texts hardly have those.
    last = len(vocabulary) - 1 if isinstance(vocabulary, list) else 0
    if isinstance(vocabulary, dict):
        last = max((value for value in vocabulary.values() if isinstance(value, int)), default=0)
    if last >= rows:
        raise InputError(
            f"{tokenizer_file} has a token number {last:,}, but the model knows {rows:,}; fetch the model again"
        )


def _sizes(file: Path, settings: dict[str, Any], names: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """(name, value) of those that there are. InputError for one that is not a whole number above 0."""
    for name in names:
        if name in settings and not isinstance(settings[name], dict):
            if not _is_count(settings[name]) or settings[name] < 1:
                raise InputError(f"{file} has {name} {str(settings[name])[:80]!r}; it must be a whole number from 1")
            yield name, settings[name]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def holds_cross_encoder(folder: Path) -> bool:
    """Whether ``CrossEncoder.load`` opens this folder: an adapter, or a sequence-classification model."""
    try:
        if (folder / JOINT_HEAD).is_file():
            return True
        config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    except (InputError, OSError):  # damaged, or a name that no file system takes
        return False
    architectures = config.get("architectures") if isinstance(config, dict) else None
    names = architectures if isinstance(architectures, list) else []
    return any(str(each).endswith("ForSequenceClassification") for each in names)


MULTI_VECTOR, COLBERT, SPARSE_ENCODER = "MultiVectorEncoder", "ColBERT", "SparseEncoder"


def stated_kind(folder: Path) -> str:
    """The class of sentence-transformers or PyLate that a folder names; "" if it names none, or is damaged."""
    try:
        general = read_object(folder / "config_sentence_transformers.json", {})
    except (InputError, OSError):  # as above
        return ""
    return str(COLBERT if "query_prefix" in general else general.get("model_type") or "")  # older PyLate names none


# ---------------------------------------------------------------- files


MOST_JSON = 64 << 20  # bytes: the largest tokenizers have 40 MB
WEIGHTS = "model.safetensors"
JOINT_HEAD = "head.safetensors"  # of a cross-encoder that started as a bi-encoder
PICKLES = ("pytorch_model.bin", "model.pt", "model.ckpt")


def read_json(file: Path) -> Any:
    """Parse a JSON file. InputError if it is no regular file (but a device, a pipe), too large, or not JSON."""
    if not file.is_file():
        raise InputError(f"{file} is missing, or is no file; fetch the model again")
    with file.open("rb") as opened:
        content = opened.read(MOST_JSON + 1)
    if len(content) > MOST_JSON:
        raise InputError(f"{file} is larger than {MOST_JSON >> 20} MB: this is no settings file of a model")
    return parse_json(content, file)


def parse_json(content: bytes, file: Path) -> Any:
    try:
        return json.loads(content.decode("utf-8"))
    except RecursionError as error:
        raise InputError(f"{file} is nested too deeply; fetch the model again") from error
    except ValueError as error:
        raise InputError(f"{file} is not valid JSON ({error}); fetch the model again") from error


def write_json(file: Path, value: Any) -> None:
    """Write ``value`` as indented UTF-8 JSON."""
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_object(file: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object in ``file``; if there is no such file ``default``, or InputError without a default."""
    if not file.exists():
        if default is None:
            raise InputError(f"{file} is missing; fetch the model again")
        return default
    value = read_json(file)
    if not isinstance(value, dict):
        raise InputError(f"{file} holds no settings; fetch the model again")
    return value


def read_tensors(folder: Path, name: str = WEIGHTS) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU. InputError if they are missing, pickled or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = folder / name
    if not file.is_file():
        if any((folder / pickled).is_file() for pickled in PICKLES):
            raise only_pickles(folder)
        raise InputError(f"{file} is missing; fetch the model again")
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file} is damaged ({' '.join(str(error).split())}); fetch the model again") from error


def only_pickles(folder: Path) -> InputError:
    """The error for a folder without weights that may be read."""
    return InputError(
        f"{folder} has no .safetensors weights; pickled weights (.bin, .pt) are not loaded because they can run code: "
        "convert the model to safetensors"
    )


def write_tensors(folder: Path, tensors: dict[str, Tensor], name: str = WEIGHTS) -> None:
    """Write a file that `read_tensors` reads."""
    from safetensors.torch import save_file

    save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, folder / name)


def load_weights(module: nn.Module, folder: Path) -> None:
    """Copy the tensors in ``folder`` into ``module``, as float32. InputError if they do not fit."""
    tensors, expected = read_tensors(folder), module.state_dict()
    if {name: value.shape for name, value in tensors.items()} != {name: v.shape for name, v in expected.items()}:
        raise InputError(f"the weights in {folder} do not fit its configuration; fetch the model again")
    module.load_state_dict({name: value.float() for name, value in tensors.items()})


def check_replaceable(folder: Path) -> None:
    """InputError if ``folder`` exists and is neither empty nor a model: other files are never replaced."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder for the model")
    names = {entry.name for entry in folder.iterdir()}
    if names and not names & {"config.json", "modules.json", "adapter_config.json"}:
        raise InputError(f"{folder} holds other files; name a new folder for the model")
