"""Open the transformer of a model: tokenizer and weights from a folder, or random weights of a given shape.

No code is executed: no pickle, no code that comes with a model. Weights that a file lacks are an error; transformers
would fill them with random numbers and only warn. Every damaged file is one clear sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from training.catalogue import DEFAULT_MODEL, WORD_ENCODERS
from training.errors import InputError, first_line
from training.inference.fused_bert import position_offset
from training.models.endpoint import open_endpoint
from training.models.folder_checks import check_model_folder, holds_cross_encoder, read_object
from training.models.model_format import ModelFormat, read_model_format
from training.models.modules import MODULES, SENTENCE_MODULES, TOKEN_MODULES, TRANSFORMER
from training.models.plain_bert import PlainTokenizer, importing, open_plain
from training.models.word_encoders import WordBackbone, build_word_encoder
from training.names import ModelName
from training.sources.resolve import model_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


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
CLASSIFIER = "AutoModelForSequenceClassification"
LANGUAGE_MODEL = "AutoModelForMaskedLM"
# What transformers raises for settings that are not what it expects.
_WRONG_SETTINGS = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, ImportError)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and the warnings of transformers, whose settings are put back."""
    with importing:
        from transformers.utils import logging

    level, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if had_bars:
            logging.enable_progress_bar()


def open_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The fast tokenizer in ``folder``. InputError if there is none that can be opened, or the folder is no model's."""
    check_model_folder(folder)
    with importing:
        from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, local_files_only=True, trust_remote_code=False)
        greatest = max(tokenizer("")["input_ids"], default=0)  # a special token with another name is a new one
    except Exception as error:  # tokenizers raises bare ones, transformers whatever a missing key leads to
        raise InputError(f"{folder} has no tokenizer that can be opened: {first_line(error)}") from error
    known = read_object(folder / "config.json", {}).get("vocab_size")
    if isinstance(known, int) and greatest >= known:
        raise InputError(f"{folder}: its tokenizer has special tokens that its model does not know; fetch it again")
    return tokenizer


@quiet()
def open_backbone(folder: Path, auto_class: str = "AutoModel") -> nn.Module:
    """The transformer in ``folder``, float32, with PyTorch's fused attention where the architecture has it.

    ``auto_class`` is the class of transformers that opens it. A `CLASSIFIER` may have a decoder.

    InputError if the files are damaged, lack weights of the transformer, or are of an unsupported architecture.
    """
    from safetensors import SafetensorError

    with importing:
        import transformers

    stated = read_object(folder / "config.json", {})
    model_type = stated.get("model_type")
    is_classifier = auto_class == CLASSIFIER
    opener = getattr(transformers, auto_class if is_classifier else ENCODER_CLASSES.get(str(model_type), auto_class))
    try:
        backbone, report = opener.from_pretrained(
            folder,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (*_WRONG_SETTINGS, SafetensorError, RuntimeError) as error:
        if "interpreter shutdown" in str(error):  # no fault of the files: the process ends while it loads
            raise
        if "above report" in str(error):  # of weights that have other shapes, or cannot be converted
            raise InputError(f"the weights in {folder} do not fit its config.json; fetch the model again") from error
        raise InputError(f"{folder} cannot be opened as a transformer: {first_line(error)}") from error
    missing = sorted(name for name in report["missing_keys"] if not name.startswith(_UNUSED))
    if auto_class == LANGUAGE_MODEL:
        # Its head may be new; the transformer below it may not.
        missing = [name for name in missing if name.startswith(f"{backbone.base_model_prefix}.")]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{folder} lacks the weights {missing[0]}{more}; fetch the model again")
    if backbone.config.is_encoder_decoder and model_type not in ENCODER_CLASSES and not is_classifier:
        raise InputError(
            f"{folder} is an encoder-decoder ({backbone.config.model_type}); choose an encoder such as BERT or MPNet"
        )
    if model_type == "nomic_bert":  # transformers does not read these published names: its defaults have to be right
        config = backbone.config
        read = {"n_layer": config.num_hidden_layers, "n_head": config.num_attention_heads}
        for name, value in {**read, "rotary_emb_base": config.rope_parameters["rope_theta"]}.items():
            if stated.get(name, value) != value:
                raise InputError(f"{folder}/config.json says {name} {stated[name]}; NomicBERT opens with {value} only")
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


def random_language_model(layers: int, dimension: int, vocabulary: int, max_length: int | None, seed: int) -> nn.Module:
    """A BERT of the given shape with its language-modelling head, with random weights."""
    with importing:
        from transformers import BertForMaskedLM

    config: Any = random_backbone(layers, dimension, vocabulary, seed).config
    config.max_position_embeddings = max_length or config.max_position_embeddings
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BertForMaskedLM(config)


def max_input_length(
    tokenizer: PreTrainedTokenizerFast | PlainTokenizer, backbone: nn.Module, stated: int | None = None
) -> int:
    """The most tokens, special ones included, that both the tokenizer and the positions of the backbone allow.

    ``stated``: in place of the tokenizer's limit.
    """
    positions = getattr(backbone.config, "max_position_embeddings", None)
    limits = [] if not positions else [int(positions) - position_offset(backbone)]
    if (longest := stated or tokenizer.model_max_length) < NO_LIMIT:
        limits.append(int(longest))
    return min(limits, default=DEFAULT_MAX_LENGTH)


def open_modules(
    name: str, home: str | Path | None = None, seed: int = 0, vocabulary_of: Iterable[str] = ()
) -> tuple[nn.Module, Any, nn.Sequential, ModelFormat, str]:
    """Open a model by name, without settings. Arguments and errors are those of `Encoder.load`.

    Returns the backbone, the tokenizer, the head, the format with a pooling and a longest input, and the source in
    words.
    """
    if (endpoint := ModelName(name).endpoint) is not None:
        return open_endpoint(name, endpoint)
    backbone: Any
    scratch = ModelName(name).scratch_shape
    if name in WORD_ENCODERS:
        backbone, head, model_format, source = build_word_encoder(name, vocabulary_of, seed, home)
        tokenizer = backbone.input_module.tokenizer
    else:
        resolved = model_folder(DEFAULT_MODEL if scratch else name, home)  # random weights borrow its tokenizer
        if ModelName(name).run_id is not None and holds_cross_encoder(resolved.path):
            raise InputError(f"{name} is a cross-encoder, which scores pairs and has no vectors; choose a bi-encoder")
        source, model_format = resolved.source, read_model_format(resolved.path)
        folder = model_format.transformer
        if scratch:
            source = "random weights"
            model_format = replace(model_format, pooling="mean", normalizes=False, sentence_modules=())
        if model_format.input_module == TRANSFORMER:
            check_model_folder(folder)
            if (plain := None if scratch else open_plain(folder)) is not None:
                backbone, tokenizer = plain
            else:
                tokenizer = open_tokenizer(folder)
                backbone = random_backbone(*scratch, len(tokenizer), seed) if scratch else open_backbone(folder)
        else:
            input_module: Any = MODULES[model_format.input_module]
            module = input_module.read(folder)
            tokenizer = module.tokenizer
            layers = [TOKEN_MODULES[kind].read(path) for kind, path in model_format.token_modules]
            backbone = WordBackbone(module, layers)
        head = nn.Sequential(*(SENTENCE_MODULES[kind].read(path) for kind, path in model_format.sentence_modules))
    if isinstance(backbone, WordBackbone):
        longest = getattr(backbone.input_module, "max_length", None)  # a static embedding truncates nothing
    else:
        longest = max_input_length(tokenizer, backbone)
        longest = min(model_format.max_length or longest, longest)
    architecture = (getattr(backbone.config, "architectures", None) or [""])[0]
    is_decoder = architecture.endswith("ForCausalLM") and getattr(backbone.config, "is_causal", True)
    pooling = model_format.pooling or ("lasttoken" if is_decoder else "mean")  # a decoder reads from left to right
    return backbone, tokenizer, head, replace(model_format, pooling=pooling, max_length=longest), source
