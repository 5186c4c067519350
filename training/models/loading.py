"""Opens the transformer of a model: its tokenizer and its weights from a folder.

No code is executed: neither pickles nor code that comes with a model. Missing weights are an error.
transformers would fill them with random numbers and only warn. Every damaged file raises one clear
sentence.
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

DEFAULT_MAX_LENGTH = 512  # tokens, for a model that does not state a number of positions

NO_LIMIT = 1_000_000  # transformers gives a tokenizer without a limit the length 10**30
# Never download, and never execute code from a model repository.
HERE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
# Settings of config.json that change the type of the result or the memory. If a config.json states
# them, they are replaced by these values, which are transformers' defaults: the code here relies on
# them.
_FORMS = {"return_dict": True, "chunk_size_feed_forward": 0}
TOKENIZER = "tokenizer.json"
# Two texts with upper case, accents, ligatures, Chinese, emoji, rare scripts, numbers and white
# space.
PROBE = (
    "The Quick brown FOX isn't here, WE'LL see: naïve ÀÉÎ cafe\u0301 İstanbul straße \ufb01 ½",
    "  北京あカ 한국 😀 \u1797\u17b6\u179f\u17b6 שלום 3,141.59 in 2023,   0123456789\tx_y\r\n\n\nEnd. ",
)
_BY_FILE = "%s is read by its tokenizer.json, which the class of its tokenizer %s"
CLASSIFIER = "AutoModelForSequenceClassification"
LANGUAGE_MODEL = "AutoModelForMaskedLM"

log = logging.getLogger("sbert_lab.encoder")

# transformers takes seconds to import, and two threads cannot import it at once.
import_lock = threading.Lock()


@contextmanager
def quiet() -> Iterator[None]:
    """Switches the progress bars and the warnings of transformers off, and restores its settings afterwards."""
    with import_lock:
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
    """Opens the parts of an encoder. InputError if the folder is not an encoder, or a part cannot be opened."""
    form = own_form(name, folder)
    # A cross-encoder that is an adapter, or that a run trained, is refused. Any other cross-encoder
    # is opened as a transformer without its head.
    if folder.is_cross_encoder and (folder.adapter or name.run_id):
        raise InputError(
            f"{name} is a cross-encoder, which scores pairs and has no vectors; choose a bi-encoder"
        )
    backbone, tokenizer = open_transformer(folder)
    longest = max_input_length(tokenizer, backbone, form.max_length)
    architecture = (getattr(backbone.config, "architectures", None) or [""])[0]
    is_causal = getattr(backbone.config, "is_causal", True)
    pooling = form.pooling
    if pooling is None:
        # A decoder whose config.json has is_causal false reads in both directions.
        is_decoder = architecture.endswith("ForCausalLM") and is_causal
        # Only the last token of a decoder has read the whole text.
        pooling = "lasttoken" if is_decoder else "mean"
    form = replace(form, pooling=pooling, max_length=longest)
    head = nn.Sequential()
    for kind, path, _ in form.sentence_modules:
        head.append(SENTENCE_MODULES[kind].read(path))
    return EncoderParts(backbone, tokenizer, form, folder.source, head)


def own_form(name: ModelName | str, folder: ModelFolder) -> ModelFormat:
    """Returns the settings of a model that is opened here. InputError for a model that sentence-transformers opens."""
    if folder.form is None:
        raise of_the_library(str(name), folder.kind)
    return folder.form


def save_parts(
    folder: Path, backbone: Any, tokenizer: Any, form: ModelFormat, head: nn.Sequential, width: int
) -> None:
    """Writes an encoder into an empty folder, which sentence-transformers can open.

    ``width`` is the length of a token's vector.
    """
    if isinstance(backbone, WordBackbone):
        modules = backbone.modules_before_pooling
        kinds = [type(module).__name__ for module in modules]
        # The other folders belong to the pooling and the head, which are written already.
        folders = form.write(folder, width, before=kinds, after=[*head])[: len(kinds)]
        for module, module_folder in zip(modules, folders, strict=True):
            module.save(str(module_folder))
        return
    form.write(folder, width, before=[TRANSFORMER], after=[*head])
    with quiet():
        backbone.save_pretrained(folder)
    tokenizer.model_max_length = form.max_length
    tokenizer.save_pretrained(folder)


def open_transformer(
    folder: ModelFolder, auto_class: str = "AutoModel"
) -> tuple[Any, PreTrainedTokenizerFast]:
    """Opens the transformer in a folder and its tokenizer. InputError, also if their sizes do not match."""
    backbone: Any = open_backbone(folder, auto_class)
    tokenizer = open_tokenizer(folder)
    check_tokens(folder.path, tokenizer, backbone)
    return backbone, tokenizer


def check_tokens(folder: Path, tokenizer: Any, backbone: Any) -> None:
    """Raises InputError if the transformer lacks an embedding for a token."""
    rows = backbone.get_input_embeddings().weight.shape[0]
    # An empty text gives the special tokens of the tokenizer's template, which may be missing from
    # the vocabulary.
    special_ids = tokenizer.backend_tokenizer.encode("").ids
    greatest = max([*tokenizer.get_vocab().values(), *special_ids], default=0)
    if greatest >= rows:
        raise InputError(
            f"{folder} has a token number {greatest:,}, but its model knows {rows:,}: resize its embeddings for "
            f"{tokenizer.convert_ids_to_tokens(greatest) or 'it'}, or fetch it again"
        )


def open_tokenizer(folder: ModelFolder) -> PreTrainedTokenizerFast:
    """Opens the fast tokenizer in ``folder``, with the ids of tokenizer.json if it exists. InputError if that fails."""
    with import_lock:
        from transformers import AutoTokenizer, PreTrainedTokenizerFast
        from transformers.utils import is_sentencepiece_available

    path = folder.weights
    # An adapter may have a tokenizer of its own.
    for name in (TOKENIZER, "tokenizer_config.json"):
        if (folder.first / name).is_file():
            path = folder.first
    try:
        # `tokenizing` converts a panic of the tokenizers library to InputError.
        with tokenizing():
            try:
                tokenizer = AutoTokenizer.from_pretrained(path, use_fast=True, **HERE)
                if not tokenizer.is_fast:
                    raise ValueError(f"{type(tokenizer).__name__} has no fast form")  # noqa: TRY301
            except (AttributeError, ImportError, KeyError, OSError, TypeError, ValueError) as error:
                # The class may not match the file, such as a class for Unigram and a file with word
                # pieces.
                if not (path / TOKENIZER).is_file():
                    raise
                log.warning(_BY_FILE, folder.path.name, f"cannot read: {first_line(error)}")
                tokenizer = PreTrainedTokenizerFast.from_pretrained(path, **HERE)
            # Changes the tokenizer in place.
            unpadded(tokenizer.backend_tokenizer)
            tokenizer = as_in_file(tokenizer, path)
            # Raises an error if the tokenizer cannot be used.
            tokenizer.backend_tokenizer.encode("")
    except InputError:
        raise
    except Exception as error:
        # tokenizers raises plain Exceptions, and transformers any kind for a missing key.
        reason = first_line(error)
        sentencepiece_file = next(path.glob("*.model"), None)
        if sentencepiece_file and not is_sentencepiece_available():
            reason = (
                f"{sentencepiece_file.name} needs the package sentencepiece; install it, or save the tokenizer "
                f"as {TOKENIZER}"
            )
        raise InputError(f"{path} has no tokenizer that can be opened: {reason}") from error
    # Without files, transformers makes a tokenizer of nearly nothing but special tokens.
    if len({*tokenizer.get_vocab()} - {*tokenizer.all_special_tokens}) < 2:
        raise InputError(
            f"{path} has no tokenizer: there is no {TOKENIZER}, and no vocabulary; fetch the model again"
        )
    # `PairBatch.token_types` computes the types of tokens from the split of a pair: 0 for the first
    # text, then 1. The types of a text alone, followed by the types of a pair, must be in this order.
    types = tokenizer.backend_tokenizer.encode("a").type_ids
    types += tokenizer.backend_tokenizer.encode("a", "a").type_ids
    if "token_type_ids" in tokenizer.model_input_names and types != sorted(types):
        raise InputError(
            f"{path} has types of tokens other than 0, and 1 for a second text, which are not supported"
        )
    longest = tokenizer.model_max_length
    # bool is a subclass of int, and NaN is a float that is not below 1.
    is_number = isinstance(longest, int | float) and not isinstance(longest, bool)
    if not is_number or not longest >= 1:
        raise InputError(f"{path} has model_max_length {str(longest)[:80]!r}; it must be 1 or more")
    return tokenizer


def as_in_file(tokenizer: PreTrainedTokenizerFast, path: Path) -> PreTrainedTokenizerFast:
    """Returns a tokenizer that reads texts as the tokenizer.json in a folder, if there is one, defines it.

    transformers builds tokenizers from their class and its defaults. If that gives other ids or
    token types for `PROBE`, the tokenizer in the file is used, with the special tokens and the
    settings of the class.
    """
    from transformers import PreTrainedTokenizerFast

    if not (path / TOKENIZER).is_file():
        return tokenizer
    file_tokenizer = unpadded(Tokenizer.from_file(str(path / TOKENIZER)))
    if _read_probe(tokenizer.backend_tokenizer) == _read_probe(file_tokenizer):
        return tokenizer
    log.warning(_BY_FILE, path.name, "does not follow")
    vocabulary = file_tokenizer.get_vocab()
    special_tokens = {}
    for name, token in tokenizer.special_tokens_map.items():
        # A special token that only the class defines, by default, has no embedding in the model.
        if name.endswith("_token") and token in vocabulary:
            special_tokens[name] = token
    return PreTrainedTokenizerFast(
        tokenizer_object=file_tokenizer,
        model_max_length=tokenizer.model_max_length,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        model_input_names=tokenizer.model_input_names,
        chat_template=tokenizer.chat_template,
        **special_tokens,
    )


def _read_probe(tokenizer: Tokenizer) -> list[Any]:
    """Returns the ids and token types of the texts of `PROBE`, as a pair and alone, and the words that they split into.

    Two tokenizers may split a text into different words, such as the digits of a number, and still
    return equal ids by chance.
    """
    pair = tokenizer.encode(*PROBE)
    results: list[Any] = [pair.ids, pair.type_ids]
    for text in PROBE:
        results.append(tokenizer.encode(text).ids)
        if tokenizer.pre_tokenizer:
            results.append(tokenizer.pre_tokenizer.pre_tokenize_str(text))
    return results


def opening_error(path: Path, manner: str, error: Exception) -> InputError:
    """Makes the error for a folder that transformers cannot open. ``manner`` is, for example, "as a transformer"."""
    # The message refers to a report of the weights with other shapes, which `quiet` hides.
    if "above report" in str(error):
        return InputError(
            f"the weights in {path} do not fit its config.json; fetch the model again"
        )
    return InputError(f"{path} cannot be opened {manner}: {first_line(error)}")


@quiet()
def open_backbone(folder: ModelFolder, auto_class: str = "AutoModel") -> nn.Module:
    """Opens the transformer in ``folder``, float32, with PyTorch's fused attention if the architecture supports it.

    ``auto_class`` is the class of transformers that opens it. An encoder-decoder is opened without
    its decoder, unless ``auto_class`` is `CLASSIFIER`. InputError if the files are damaged, lack
    weights of the transformer, or the architecture is not supported.
    """
    with import_lock:
        import transformers

    path = folder.weights
    model_type = folder.config.get("model_type")
    is_classifier = auto_class == CLASSIFIER
    class_name = auto_class
    if not is_classifier:
        class_name = ENCODER_CLASSES.get(str(model_type), auto_class)
    opener = getattr(transformers, class_name)
    # `ModelFolder.of` adds the config of the base, `ModelFolder.read` does not.
    if folder.is_adapter and not folder.config:
        raise InputError(f"{path} holds an adapter alone; open it by the name of its folder")
    # The code here relies on transformers' defaults of these settings, whatever config.json states.
    options = {name: _FORMS[name] for name in _FORMS.keys() & folder.config.keys()}
    architectures = folder.config.get("architectures") or [""]
    base_has_head = str(architectures[0]).endswith("ForSequenceClassification")
    is_adapted_head = folder.is_adapter and is_classifier
    if is_adapted_head and not base_has_head:
        # The adapter has the weights of the head, which has one label, as in sentence-transformers.
        options["num_labels"] = 1
    try:
        backbone, report = opener.from_pretrained(
            path,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            **HERE,
            **options,
        )
    except Exception as error:
        # transformers raises errors of many kinds about settings.
        raise opening_error(path, "as a transformer", error) from error
    # The names of weights have this prefix if the model has a head.
    prefix = f"{backbone.base_model_prefix}."
    missing = sorted(report["missing_keys"])
    if not is_classifier:
        # Many folders lack BERT's pooler, its head for next-sentence prediction, and nothing here
        # uses it.
        missing = [name for name in missing if not name.startswith("pooler.")]
    if auto_class == LANGUAGE_MODEL:
        # The head may have random weights, but not the transformer below it.
        missing = [name for name in missing if name.startswith(prefix)]
    if folder.is_adapter:
        backbone, adapter_weights = merge_adapter(backbone, folder.first)
        # An adapter may have whole modules, such as a head, which its base lacks.
        missing = [name for name in missing if name not in adapter_weights]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        advice = "fetch the model again"
        if "auto_map" in folder.config:
            advice = "it needs code of its own"
        raise InputError(f"{path} lacks the weights {missing[0]}{more}; {advice}")
    # The names of the layers that have weights. The dot keeps layer.1 apart from layer.10.
    layers = set()
    for name, _ in backbone.named_parameters():
        layer, _, _ = name.removeprefix(prefix).rpartition(".")
        layers.add(f"{layer}.")
    for name in report["unexpected_keys"]:
        # Weights of other modules, such as a head, may be left out. A layer without its bias, scale
        # or adapter would compute something else.
        if name.removeprefix(prefix).startswith(tuple(layers)):
            raise InputError(
                f"{path} has the weights {name}, which that layer does not read: save the model merged"
            )
    check_backbone(path, backbone)
    # Only text generation needs the key/value cache.
    if hasattr(backbone.config, "use_cache"):
        backbone.config.use_cache = False
    return backbone


def merge_adapter(backbone: Any, path: Path) -> tuple[Any, set[str]]:
    """Merges an adapter into a transformer. Returns the transformer, and the names of the adapter's weights.

    The names are without peft's prefix, as the transformer names its own weights.

    InputError if the adapter has no safetensors weights, has another base, or cannot be merged.
    """
    with import_lock:
        from peft import PeftModel, get_peft_model_state_dict

    tensors = read_tensors(path, "adapter_model.safetensors")
    try:
        with warnings.catch_warnings():
            # peft uses deprecated names of transformers.
            warnings.simplefilter("ignore")
            model = PeftModel.from_pretrained(backbone, str(path), local_files_only=True)
        # By default, peft asks the Hub for the size of the base's vocabulary.
        expected = set(get_peft_model_state_dict(model, save_embedding_layers=False))
        if expected != set(tensors):
            name = min(expected ^ set(tensors))
            raise InputError(  # noqa: TRY301
                f"the adapter {path.name} does not fit its base, because of {name}; train it again"
            )
        # ``safe_merge`` raises an error for weights that become NaN.
        merged = model.merge_and_unload(safe_merge=True)
    except InputError:
        raise
    except Exception as error:
        # peft raises errors of many kinds about settings and shapes.
        raise InputError(
            f"the adapter {path.name} cannot be merged into its base: {first_line(error)}"
        ) from error
    return merged, {name.removeprefix("base_model.model.") for name in tensors}


def max_input_length(
    tokenizer: PreTrainedTokenizerFast, backbone: nn.Module, length: int | None = None
) -> int:
    """Returns the most tokens, with special ones, that both the tokenizer and the positions of the backbone allow.

    ``length`` replaces the tokenizer's limit.
    """
    # Rotary positions have no limit, so a stated length is kept.
    if length and getattr(backbone.config, "rope_parameters", None):
        return length
    limits = []
    positions = getattr(backbone.config, "max_position_embeddings", None)
    # XLNet states −1, as its positions are relative.
    if positions and positions > 0:
        # RoBERTa's family and MPNet leave the first positions unused.
        limits.append(int(positions) - position_offset(backbone))
    longest = length or tokenizer.model_max_length
    if longest < NO_LIMIT:
        limits.append(int(longest))
    return min(limits, default=DEFAULT_MAX_LENGTH)
