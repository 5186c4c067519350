"""Open the transformer of a model: its tokenizer and its weights from a folder.

No code is executed: no pickle, no code that comes with a model. Weights that a file lacks are an error; transformers
would fill them with random numbers and only warn. Every damaged file is one clear sentence.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer
from torch import nn

from training.errors import InputError, first_line
from training.inference.fused_bert import position_offset
from training.models.files import read_tensors
from training.models.folder import ENCODER_CLASSES, TRANSFORMER, ModelFolder, ModelFormat
from training.models.model import of_the_library
from training.models.modules import SENTENCE_MODULES, EncoderParts
from training.models.sizes import check_backbone
from training.models.texts import tokenizing
from training.models.tokenization import unpadded
from training.models.word_networks import WordBackbone
from training.names import ModelName

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

DEFAULT_MAX_LENGTH = 512  # tokens, of a model that states no number of positions

NO_LIMIT = 1_000_000  # transformers gives a tokenizer without a limit the length 10**30
# Nothing is fetched, and no code of a model is run.
HERE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
# Settings of config.json that change the form of the result or the memory, as the code here expects them.
_FORMS = {"return_dict": True, "chunk_size_feed_forward": 0}
TOKENIZER = "tokenizer.json"
# Two texts with cases, accents, ligatures, Chinese, emoji, letters that few models know, numbers and white space.
PROBE = (
    "The Quick brown FOX isn't here, WE'LL see: naïve ÀÉÎ cafe\u0301 İstanbul straße \ufb01 ½",
    "  北京あカ 한국 😀 \u1797\u17b6\u179f\u17b6 שלום 3,141.59 in 2023,   0123456789\tx_y\r\n\n\nEnd. ",
)
_BY_FILE = "%s is read by its tokenizer.json, which the class of its tokenizer %s"
CLASSIFIER = "AutoModelForSequenceClassification"
LANGUAGE_MODEL = "AutoModelForMaskedLM"

log = logging.getLogger("sbert_lab.encoder")

# transformers cannot be imported by two threads at once.
importing = threading.Lock()


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and the warnings of transformers, whose settings are put back."""
    with importing:
        from transformers.utils import logging

    level = logging.get_verbosity()
    had_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if had_bars:
            logging.enable_progress_bar()


def open_parts(name: ModelName, folder: ModelFolder) -> EncoderParts:
    """The parts of the encoder of that name in its folder. InputError if it is none, or one cannot be opened."""
    form = own_form(name, folder)
    if folder.is_cross_encoder and (folder.adapter or name.run_id):
        raise InputError(f"{name} is a cross-encoder, which scores pairs and has no vectors; choose a bi-encoder")
    backbone, tokenizer = open_transformer(folder)
    longest = max_input_length(tokenizer, backbone, form.max_length)
    architecture = (getattr(backbone.config, "architectures", None) or [""])[0]
    is_decoder = architecture.endswith("ForCausalLM") and getattr(backbone.config, "is_causal", True)
    # A decoder reads from left to right.
    pooling = form.pooling or ("lasttoken" if is_decoder else "mean")
    form = replace(form, pooling=pooling, max_length=longest)
    head = nn.Sequential(*(SENTENCE_MODULES[kind].read(path) for kind, path, _ in form.sentence_modules))
    return EncoderParts(backbone, tokenizer, form, folder.source, head)


def own_form(name: ModelName | str, folder: ModelFolder) -> ModelFormat:
    """The settings of a model that is opened here. InputError for one that sentence-transformers opens."""
    if folder.form is None:
        raise of_the_library(str(name), folder.kind)
    return folder.form


def save_parts(folder: Path, backbone: Any, tokenizer: Any, form: ModelFormat, head: nn.Sequential, width: int) -> None:
    """Write an encoder, of ``width`` numbers a token, into an empty folder, which sentence-transformers opens too."""
    if isinstance(backbone, WordBackbone):
        kinds = [type(module).__name__ for module in backbone.modules_before_pooling]
        folders = form.write(folder, width, kinds, [*head])
        for module, place in zip(backbone.modules_before_pooling, folders, strict=False):
            module.save(str(place))
        return
    form.write(folder, width, [TRANSFORMER], [*head])
    with quiet():
        backbone.save_pretrained(folder)
    tokenizer.model_max_length = form.max_length
    tokenizer.save_pretrained(folder)


def open_transformer(folder: ModelFolder, auto_class: str = "AutoModel") -> tuple[Any, PreTrainedTokenizerFast]:
    """The transformer in a folder, as `open_backbone`, and its tokenizer. InputError also if their sizes do not fit."""
    backbone: Any = open_backbone(folder, auto_class)
    tokenizer = open_tokenizer(folder)
    check_tokens(folder.path, tokenizer, backbone)
    return backbone, tokenizer


def check_tokens(folder: Path, tokenizer: Any, backbone: Any) -> None:
    """InputError if a tokenizer has a token that the transformer has no embedding for."""
    rows = backbone.get_input_embeddings().weight.shape[0]
    # A special token of a template may be in no vocabulary.
    greatest = max([*tokenizer.get_vocab().values(), *tokenizer.backend_tokenizer.encode("").ids], default=0)
    if greatest >= rows:
        raise InputError(
            f"{folder} has a token number {greatest:,}, but its model knows {rows:,}: resize its embeddings for "
            f"{tokenizer.convert_ids_to_tokens(greatest) or 'it'}, or fetch it again"
        )


def open_tokenizer(folder: ModelFolder) -> PreTrainedTokenizerFast:
    """The fast tokenizer in ``folder``, whose ids are those of tokenizer.json. InputError if none can be opened."""
    with importing:
        from transformers import AutoTokenizer, PreTrainedTokenizerFast
        from transformers.utils import is_sentencepiece_available

    has_own = any((folder.first / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
    path = folder.first if has_own else folder.weights
    try:
        with tokenizing():
            try:
                tokenizer = AutoTokenizer.from_pretrained(path, use_fast=True, **HERE)
                if not tokenizer.is_fast:
                    raise ValueError(f"{type(tokenizer).__name__} has no fast form")  # noqa: TRY301
            except (AttributeError, ImportError, KeyError, OSError, TypeError, ValueError) as error:
                # The class that is named may be of another kind than the file, such as a Unigram's of word pieces.
                if not (path / TOKENIZER).is_file():
                    raise
                log.warning(_BY_FILE, folder.path.name, f"cannot read: {first_line(error)}")
                tokenizer = PreTrainedTokenizerFast.from_pretrained(path, **HERE)
            unpadded(tokenizer.backend_tokenizer)
            tokenizer = as_in_file(tokenizer, path)
            tokenizer.backend_tokenizer.encode("")
    except InputError:
        raise
    except Exception as error:
        # tokenizers raises bare ones, transformers whatever a missing key leads to.
        reason = first_line(error)
        pieces = next(path.glob("*.model"), None)
        if pieces and not is_sentencepiece_available():
            reason = f"{pieces.name} needs the package sentencepiece; install it, or save the tokenizer as {TOKENIZER}"
        raise InputError(f"{path} has no tokenizer that can be opened: {reason}") from error
    if len({*tokenizer.get_vocab()} - {*tokenizer.all_special_tokens}) < 2:
        raise InputError(f"{path} has no tokenizer: there is no {TOKENIZER}, and no vocabulary; fetch the model again")
    # The types of tokens are computed here, from the two texts of a pair.
    types = [*tokenizer.backend_tokenizer.encode("a").type_ids, *tokenizer.backend_tokenizer.encode("a", "a").type_ids]
    if "token_type_ids" in tokenizer.model_input_names and types != sorted(types):
        raise InputError(f"{path} has types of tokens other than 0, and 1 for a second text, which are not supported")
    longest = tokenizer.model_max_length
    if isinstance(longest, bool) or not isinstance(longest, int | float) or not longest >= 1:
        raise InputError(f"{path} has model_max_length {str(longest)[:80]!r}; it must be 1 or more")
    return tokenizer


def as_in_file(tokenizer: PreTrainedTokenizerFast, path: Path) -> PreTrainedTokenizerFast:
    """A tokenizer that reads texts as the tokenizer.json in a folder says, if there is one.

    transformers builds tokenizers from their class and its defaults. Where that gives other ids or other token types
    for `PROBE`, the one in the file takes its place, with the special tokens and the settings of the class.
    """
    from transformers import PreTrainedTokenizerFast

    if not (path / TOKENIZER).is_file():
        return tokenizer
    file = unpadded(Tokenizer.from_file(str(path / TOKENIZER)))
    if _probed(tokenizer.backend_tokenizer) == _probed(file):
        return tokenizer
    log.warning(_BY_FILE, path.name, "does not follow")
    settings = ("model_max_length", "padding_side", "truncation_side", "model_input_names", "chat_template")
    return PreTrainedTokenizerFast(
        tokenizer_object=file,
        **{name: getattr(tokenizer, name) for name in settings},
        # A token that only the class knows, such as a default, would get an id that the model has no embedding for.
        **{n: t for n, t in tokenizer.special_tokens_map.items() if n.endswith("_token") and t in file.get_vocab()},
    )


def _probed(tokenizer: Tokenizer) -> list[Any]:
    """The ids and the token types of the texts of `PROBE`, as a pair and alone, and the pieces that these split into.

    Pieces such as the digits of a number may differ where the ids happen to be the same.
    """
    pair = tokenizer.encode(*PROBE)
    splitter = tokenizer.pre_tokenizer
    pieces = [splitter.pre_tokenize_str(text) for text in PROBE] if splitter else []
    return [pair.ids, pair.type_ids, *(tokenizer.encode(text).ids for text in PROBE), pieces]


def unopened(path: Path, manner: str, error: Exception) -> InputError:
    """The error of transformers about a folder in one sentence; ``manner`` says how it was to be opened."""
    # transformers points to a report of the weights that have other shapes, which is not shown.
    if "above report" in str(error):
        return InputError(f"the weights in {path} do not fit its config.json; fetch the model again")
    return InputError(f"{path} cannot be opened {manner}: {first_line(error)}")


@quiet()
def open_backbone(folder: ModelFolder, auto_class: str = "AutoModel") -> nn.Module:
    """The transformer in ``folder``, float32, with PyTorch's fused attention where the architecture has it.

    ``auto_class`` is the class of transformers that opens it; a `CLASSIFIER` may have a decoder. InputError if the
    files are damaged, lack weights of the transformer, or are of an unsupported architecture.
    """
    with importing:
        import transformers

    path = folder.weights
    model_type = folder.config.get("model_type")
    has_head = auto_class == CLASSIFIER
    opener = getattr(transformers, auto_class if has_head else ENCODER_CLASSES.get(str(model_type), auto_class))
    if folder.is_adapter and not folder.config:
        raise InputError(f"{path} holds an adapter alone; open it by the name of its folder")
    names = folder.config.get("architectures") or [""]
    is_new_head = folder.is_adapter and has_head and not str(names[0]).endswith("ForSequenceClassification")
    # As in sentence-transformers; the adapter has the weights of the head.
    options = {"num_labels": 1} if is_new_head else {}
    options |= {name: _FORMS[name] for name in _FORMS.keys() & folder.config.keys()}
    try:
        backbone, report = opener.from_pretrained(
            path, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **HERE, **options
        )
    except Exception as error:
        # transformers raises errors of many kinds about settings.
        raise unopened(path, "as a transformer", error) from error
    own = f"{backbone.base_model_prefix}."
    # BERT's head for next-sentence prediction, the pooler: many folders lack it, and pooling never reads it.
    missing = sorted(name for name in report["missing_keys"] if has_head or not name.startswith("pooler."))
    if auto_class == LANGUAGE_MODEL:
        # Its head may be new; the transformer below it may not.
        missing = [name for name in missing if name.startswith(own)]
    if folder.is_adapter:
        backbone, provided = merge_adapter(backbone, folder.first)
        missing = [name for name in missing if name not in provided]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        advice = "it needs code of its own" if "auto_map" in folder.config else "fetch the model again"
        raise InputError(f"{path} lacks the weights {missing[0]}{more}; {advice}")
    # A bias, a scale or an adapter of a layer, which would compute something else without it.
    layers = tuple(f"{name.removeprefix(own).rpartition('.')[0]}." for name, _ in backbone.named_parameters())
    for name in report["unexpected_keys"]:
        if name.removeprefix(own).startswith(layers):
            raise InputError(f"{path} has the weights {name}, which that layer does not read: save the model merged")
    check_backbone(path, backbone)
    # A cache of keys and values is read again by generating text alone.
    if hasattr(backbone.config, "use_cache"):
        backbone.config.use_cache = False
    return backbone


def merge_adapter(backbone: Any, path: Path) -> tuple[Any, set[str]]:
    """A transformer with the adapter in a folder merged into its weights, and the names of the weights that this has.

    InputError if the adapter has no safetensors weights, is of another base, or is of a kind that cannot be merged.
    """
    with importing:
        from peft import PeftModel, get_peft_model_state_dict

    tensors = read_tensors(path, "adapter_model.safetensors")
    try:
        with warnings.catch_warnings():
            # peft reads names of transformers that have newer ones.
            warnings.simplefilter("ignore")
            model = PeftModel.from_pretrained(backbone, str(path), local_files_only=True)
        expected = set(get_peft_model_state_dict(model, save_embedding_layers=False))
        if expected != set(tensors):
            name = min(expected ^ set(tensors))
            raise InputError(f"the adapter {path.name} does not fit its base, because of {name}; train it again")  # noqa: TRY301
        merged = model.merge_and_unload(safe_merge=True)
    except InputError:
        raise
    except Exception as error:
        # peft raises errors of many kinds about settings and shapes.
        raise InputError(f"the adapter {path.name} cannot be merged into its base: {first_line(error)}") from error
    return merged, {name.removeprefix("base_model.model.") for name in tensors}


def max_input_length(tokenizer: PreTrainedTokenizerFast, backbone: nn.Module, length: int | None = None) -> int:
    """The most tokens, special ones included, that both the tokenizer and the positions of the backbone allow.

    ``length``: in place of the tokenizer's limit.
    """
    positions = getattr(backbone.config, "max_position_embeddings", None)
    # Positions by rotation have no end: what a folder states is read.
    if length and getattr(backbone.config, "rope_parameters", None):
        return length
    # XLNet states −1: its positions are relative.
    limits = [int(positions) - position_offset(backbone)] if positions and positions > 0 else []
    if (longest := length or tokenizer.model_max_length) < NO_LIMIT:
        limits.append(int(longest))
    return min(limits, default=DEFAULT_MAX_LENGTH)
