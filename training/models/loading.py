"""Open the transformer of a model: tokenizer and weights from a folder, or random weights of a given shape.

No code is executed: no pickle, no code that comes with a model. Weights that a file lacks are an error; transformers
would fill them with random numbers and only warn. Every damaged file is one clear sentence.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from training.catalogue import DEFAULT_MODEL, WORD_ENCODERS
from training.errors import InputError, first_line
from training.inference.fused_bert import position_offset
from training.models.folder_checks import check_model_folder, read_json
from training.models.model_format import ModelFormat, read_model_format
from training.models.modules import MODULES, SENTENCE_MODULES, TOKEN_MODULES, TRANSFORMER
from training.models.word_encoders import WordBackbone, build_word_encoder
from training.names import ModelName
from training.sources.resolve import model_folder

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    from training.models.modules.words import WhitespaceTokenizer


_UNUSED = "pooler."  # BERT's head for next-sentence prediction: many folders lack it, and pooling never reads it

DEFAULT_MAX_LENGTH = 512  # tokens, of a model that states no number of positions
NO_LIMIT = 1_000_000  # transformers gives a tokenizer without a limit the length 10**30

# Of encoder-decoders the encoder alone is opened, by the class of transformers that holds nothing else.
ENCODER_CLASSES = {
    "t5": "T5EncoderModel",
    "mt5": "MT5EncoderModel",
    "umt5": "UMT5EncoderModel",
    "longt5": "LongT5EncoderModel",
}
# What transformers raises for settings that are not what it expects.
_WRONG_SETTINGS = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, ImportError)

importing = threading.Lock()  # transformers cannot be imported by two threads at once


def open_input_module(
    model_format: ModelFormat,
) -> tuple[nn.Module, PreTrainedTokenizerFast | Tokenizer | WhitespaceTokenizer]:
    """The modules before the pooling, float32, and the tokenizer. InputError if a file is missing or damaged."""
    folder = model_format.transformer
    if model_format.input_module == TRANSFORMER:
        tokenizer = open_tokenizer(folder)
        return open_backbone(folder), tokenizer
    kind: Any = MODULES[model_format.input_module]
    module = kind.read(folder)
    layers = [TOKEN_MODULES[kind].read(path) for kind, path in model_format.token_modules]
    return WordBackbone(module, layers), module.tokenizer


def open_head(model_format: ModelFormat) -> nn.Sequential:
    """The modules after the pooling, without the last Normalize. InputError as ``open_input_module``."""
    return nn.Sequential(*(SENTENCE_MODULES[kind].read(path) for kind, path in model_format.sentence_modules))


def default_pooling(backbone: nn.Module) -> str:
    """The pooling of a plain transformer: of a decoder, which reads from left to right, the last token; else mean."""
    config: Any = backbone.config
    architectures = getattr(config, "architectures", None) or [""]
    is_decoder = architectures[0].endswith("ForCausalLM") and getattr(config, "is_causal", True)
    return "lasttoken" if is_decoder else "mean"


def open_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The fast tokenizer in ``folder``. InputError if there is none that can be opened, or the folder is no model's."""
    check_model_folder(folder)
    with importing:
        from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, use_fast=True, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # tokenizers raises bare ones, transformers whatever a missing key leads to
        raise InputError(f"{folder} has no tokenizer that can be opened: {first_line(error)}") from error


def open_backbone(folder: Path) -> nn.Module:
    """The transformer in ``folder``, float32, with PyTorch's fused attention where the architecture has it.

    InputError if the files are damaged, lack weights of the transformer, or are of an unsupported architecture.
    """
    from safetensors import SafetensorError

    with importing:
        import transformers

    config_file = folder / "config.json"
    model_type = read_json(config_file).get("model_type") if config_file.is_file() else None
    opener = getattr(transformers, ENCODER_CLASSES.get(str(model_type), "AutoModel"))
    try:
        backbone, report = opener.from_pretrained(
            folder,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        ImportError,
        SafetensorError,
    ) as error:
        raise InputError(f"{folder} cannot be opened as a transformer: {first_line(error)}") from error
    except RuntimeError as error:  # transformers has logged which weights
        raise InputError(f"the weights in {folder} do not fit its config.json; fetch the model again") from error
    missing = sorted(name for name in report["missing_keys"] if not name.startswith(_UNUSED))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{folder} lacks the weights {missing[0]}{more}; fetch the model again")
    if backbone.config.is_encoder_decoder and model_type not in ENCODER_CLASSES:
        raise InputError(
            f"{folder} is an encoder-decoder ({backbone.config.model_type}); choose an encoder such as BERT or MPNet"
        )
    if hasattr(backbone.config, "use_cache"):  # of keys and values, which only generating text reads again
        backbone.config.use_cache = False
    return backbone


def random_backbone(layers: int, dimension: int, vocabulary: int, seed: int) -> nn.Module:
    """A BERT of the given shape with random weights; heads of 32 or 64 dimensions, as in MiniLM and BERT.

    InputError if the shape is out of range.
    """
    with importing:
        from transformers import BertConfig, BertModel

    if not 1 <= layers <= 24 or not 32 <= dimension <= 1024 or dimension % 32:
        raise InputError(
            f"scratch:{layers}x{dimension} is out of range: 1 to 24 layers, 32 to 1024 dimensions in steps of 32"
        )
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=dimension,
        num_hidden_layers=layers,
        num_attention_heads=dimension // (64 if dimension >= 512 and dimension % 64 == 0 else 32),
        intermediate_size=4 * dimension,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BertModel(config)


def max_input_length(tokenizer: PreTrainedTokenizerFast, backbone: nn.Module) -> int:
    """The most tokens, special ones included, that both the tokenizer and the positions of the backbone allow."""
    positions = getattr(backbone.config, "max_position_embeddings", None)
    limits = [] if not positions else [int(positions) - position_offset(backbone)]
    if tokenizer.model_max_length < NO_LIMIT:
        limits.append(int(tokenizer.model_max_length))
    return min(limits, default=DEFAULT_MAX_LENGTH)


class OpenedModules(NamedTuple):
    """What `open_modules` found."""

    backbone: nn.Module
    tokenizer: Any
    head: nn.Sequential
    model_format: ModelFormat  # with a pooling and a longest input
    source: str  # where it is from, in words


def open_modules(
    name: str, home: str | Path | None = None, seed: int = 0, vocabulary_of: Iterable[str] = ()
) -> OpenedModules:
    """Open a model by name, without settings. Arguments and errors are those of `Encoder.load`."""
    opened = _open(name, home, seed, vocabulary_of)
    model_format = replace(
        opened.model_format,
        pooling=opened.model_format.pooling or default_pooling(opened.backbone),
        max_length=_longest_input(opened.model_format, opened.tokenizer, opened.backbone),
    )
    return opened._replace(model_format=model_format)


def _open(name: str, home: str | Path | None, seed: int, vocabulary_of: Iterable[str]) -> OpenedModules:
    if name in WORD_ENCODERS:
        made = build_word_encoder(name, vocabulary_of, seed, home)
        return OpenedModules(
            made.backbone, made.backbone.input_module.tokenizer, made.head, made.model_format, made.source
        )
    scratch = ModelName(name).scratch_shape
    resolved = model_folder(DEFAULT_MODEL if scratch else name, home)  # random weights borrow its tokenizer
    model_format = read_model_format(resolved.path)
    if scratch:
        tokenizer = open_tokenizer(model_format.transformer)
        backbone = random_backbone(*scratch, len(tokenizer), seed)
        model_format = replace(model_format, pooling="mean", normalizes=False)
        return OpenedModules(backbone, tokenizer, nn.Sequential(), model_format, "random weights")
    return OpenedModules(*open_input_module(model_format), open_head(model_format), model_format, resolved.source)


def _longest_input(model_format: ModelFormat, tokenizer: Any, backbone: nn.Module) -> int | None:
    """The most tokens of an input; None of a static embedding, which truncates nothing."""
    if isinstance(backbone, WordBackbone):
        return getattr(backbone.input_module, "max_length", None)
    longest = max_input_length(tokenizer, backbone)
    return min(model_format.max_length or longest, longest)
