"""The settings in the files of a model's folder: each is honoured, is refused by its name, or may be ignored.

The files are those of sentence-transformers. `IGNORED` lists the settings that change no vector and no score here;
`checked` refuses any other one that no code reads, unless its value is the default.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from training.errors import InputError, first_line

MIN_LENGTH = 3  # tokens: one between the two special tokens
NO_LIMIT = 1_000_000  # transformers gives a tokenizer without a limit the length 10**30

# Code that comes with a model is never run, the files are here, and there are no slow tokenizers.
_LOADING = ("trust_remote_code", "local_files_only", "use_fast")
# The settings that have no effect on vectors and scores, by the file or the setting that they are part of.
IGNORED: dict[str, tuple[str, ...]] = {
    # The modules are listed in their order, are named by their numbers, and get no arguments.
    "modules.json": ("idx", "name", "kwargs"),
    # The versions that wrote the folder; heads are computed in float32 anyway.
    "config_sentence_transformers.json": ("__version__", "keep_in_fp32_modules"),
    # Padding changes no vector, only the time.
    "sentence_bert_config.json": ("unpad_inputs",),
    # The precision is chosen where a model is opened; the output of the pooler is not read; other weights neither.
    "model_kwargs": (
        *(*_LOADING, "dtype", "torch_dtype", "attn_implementation", "device_map", "low_cpu_mem_usage"),
        *("add_pooling_layer", "use_safetensors"),
    ),
    # They change the time alone.
    "config_kwargs": (*_LOADING, "use_memory_efficient_attention", "unpad_inputs", "use_cache"),
    "processor_kwargs": (*_LOADING, "padding_side"),
    # Texts alone are read.
    "processing_kwargs": ("audio", "image", "video"),
    # Padding and the form of the result; transformers cuts texts on the side of the tokenizer, whatever a call says;
    # the logits of the last token alone are read.
    "text": (
        *("padding", "padding_side", "pad_to_multiple_of", "return_tensors", "return_attention_mask"),
        *("return_token_type_ids", "truncation_side", "logits_to_keep"),
    ),
    # Chunks change the memory alone, and the transformer says how many dimensions there are.
    "1_Pooling/config.json": ("chunk_size", "word_embedding_dimension", "embedding_dimension"),
}
# The packages that compute vectors and scores, by the names under which a folder may require a version of them.
_PACKAGES = {"pytorch": "torch", **{name: name for name in ("peft", "tokenizers", "torch", "transformers")}}
_DEFAULTS = {"add_special_tokens": True}  # the defaults that are not empty
# The names of these settings before version 5.4.
_OLD_NAMES = {"model_args": "model_kwargs", "tokenizer_args": "processor_kwargs", "config_args": "config_kwargs"}
_CALL_SETTINGS = ("max_length", "truncation")
# The output of a transformer for each task, and the tasks that have one text and not two.
_OF_TEXTS = ("feature-extraction", "fill-mask")
_OUTPUTS = {
    "feature-extraction": ("last_hidden_state", "token_embeddings"),
    "sequence-classification": ("logits", "scores"),
    "text-generation": ("logits", "causal_logits"),
    "fill-mask": ("logits", "token_embeddings"),
}
# The ways to cut one text; both texts of a pair are cut, the longer one first.
_CUTS = (None, True, False, "longest_first", "do_not_truncate")


@dataclass(frozen=True)
class ChatFormat:
    """The way in which a model's chat template is rendered around each text."""

    content: str = "auto"  # of a message: flat, a text, or structured, a list of one; auto: as the template reads it
    options: Mapping[str, Any] = field(default_factory=dict)  # of the template, such as add_generation_prompt
    restores_suffix: bool = True  # whether what the template puts after a text replaces the end of one that is cut

    def written(self) -> dict[str, Any]:
        """The settings in sentence_bert_config.json of an encoder whose texts it is put around."""
        entry = {"method": "forward", "method_output_name": "last_hidden_state"}
        return {
            "transformer_task": "feature-extraction",
            "modality_config": {"text": entry, "message": {**entry, "format": self.content}},
            "module_output_name": "token_embeddings",
            "processing_kwargs": {"chat_template": {**self.options, "restore_suffix": self.restores_suffix}},
        }


def checked(model: str, place: str, settings: Any, names: Collection[str]) -> dict[str, Any]:
    """The ``settings`` of a ``model`` in a file or under a key, ``place``, whose code reads those of these ``names``.

    InputError, with the name, for one that is not read, may not be ignored and is not at its default.
    """
    if not isinstance(settings, Mapping):
        raise InputError(f"{model} has the {place} {settings!r}, which are no settings; fetch the model again")
    ignored = IGNORED.get(place, ())
    for name, value in settings.items():
        is_default = value == _DEFAULTS[name] if name in _DEFAULTS else value in (None, "", False, [], {})
        if name not in names and name not in ignored and not is_default:
            raise InputError(
                f"{model} sets {name} to {str(value)[:80]!r} in {place}, which is not supported; choose a model without"
            )
    return dict(settings)


def check_requirements(model: str, requirements: Any) -> None:
    """InputError if a ``model`` requires other versions of the packages that compute it than those installed."""
    if not isinstance(requirements, Mapping) or not requirements:
        return
    from transformers.utils.versions import require_version

    for name in requirements.keys() & _PACKAGES.keys():
        requirement = requirements[name]
        specifier = requirement.get("specifier") if isinstance(requirement, Mapping) else requirement
        # One that cannot be read is none, as in sentence-transformers.
        if not isinstance(specifier, str) or specifier[:1] not in "<>=!":
            continue
        try:
            require_version(f"{_PACKAGES[name]}{specifier}")
        except ImportError as error:
            raise InputError(f"{model} requires {name}{specifier}: {first_line(error)}") from error
        except ValueError:
            continue


def transformer_settings(model: str, task: str, file: Mapping[str, Any], more: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a `ModelFormat` by ``file``, sentence_bert_config.json, for a transformer that does ``task``.

    ``task`` is that of sentence-transformers, such as feature-extraction; ``more`` names settings that others read.
    InputError, which names the ``model``, if it does another task, or a setting is not supported.
    """
    own = ("max_seq_length", "do_lower_case", "transformer_task", "module_output_name", "modality_config")
    names = (*own, "processing_kwargs", *_OLD_NAMES, *_OLD_NAMES.values(), *more)
    file = checked(model, "sentence_bert_config.json", file, names)
    output, feature = _OUTPUTS[task]
    kind = (file.get("transformer_task") or task, file.get("module_output_name") or feature)
    if kind != (task, feature):
        raise InputError(
            f"{model} is a model whose transformer does {' for '.join(map(str, kind))}, not {task} for {feature}; "
            "choose another one"
        )
    modalities = file.get("modality_config") or {}
    checked(model, "modality_config", modalities, modalities)
    for modality in {"text", "message"} & {*modalities}:
        entry = checked(model, modality, modalities[modality], ("method", "method_output_name", "format"))
        if (entry.get("method", "forward"), entry.get("method_output_name", output)) != ("forward", output):
            raise InputError(
                f"{model} reads {entry.get('method_output_name')} of {entry.get('method')} in modality_config, not "
                f"{output}; choose another model"
            )
    if modalities and not {"text", "message"} & {*modalities}:
        raise InputError(f"{model} reads {', '.join(modalities)}, and no texts; choose another model")
    loading = {new: file.get(new) or file.get(old) or {} for old, new in _OLD_NAMES.items()}
    for name in ("model_kwargs", "config_kwargs"):
        checked(model, name, loading[name], ())
    processor = checked(model, "processor_kwargs", loading["processor_kwargs"], ("model_max_length", "truncation_side"))
    if (side := processor.get("truncation_side")) not in (None, "left", "right"):
        raise InputError(f"{model} cuts texts on the side {side!r}; truncation_side must be left or right")
    places = ("text", "common", "chat_template")
    calls = checked(model, "processing_kwargs", file.get("processing_kwargs") or {}, places)
    text, common, template = (checked(model, name, calls.get(name) or {}, calls.get(name) or ()) for name in places)
    template = template if "message" in modalities else {}
    sizes = {name: template.pop(name) for name in (*_CALL_SETTINGS, *IGNORED["text"]) if name in template}
    call = checked(model, "text", {**text, **common, **sizes}, _CALL_SETTINGS)
    if (cut := call.get("truncation")) not in (*_CUTS, "only_first" if task in _OF_TEXTS else None):
        raise InputError(f"{model} sets truncation to {cut!r}, which is not supported; choose another model")
    chat = None
    if "message" in modalities:
        restores = bool(template.pop("restore_suffix", True))
        chat = ChatFormat(str(modalities["message"].get("format") or "auto"), template, restores)
    return {
        "max_length": _max_length(model, file, processor, call),
        "lowercase": bool(file.get("do_lower_case")),
        "truncation_side": side,
        "chat": chat,
    }


def _max_length(
    model: str, file: Mapping[str, Any], processor: Mapping[str, Any], call: Mapping[str, Any]
) -> int | None:
    """The most tokens of a text: what a call says goes before what the tokenizer is opened with."""
    if call.get("truncation") in (False, "do_not_truncate"):
        return NO_LIMIT
    settings = {
        "processing_kwargs.text.max_length": call.get("max_length"),
        "processor_kwargs.model_max_length": processor.get("model_max_length"),
        "max_seq_length": file.get("max_seq_length"),
    }
    name, length = next(((name, length) for name, length in settings.items() if length is not None), ("", None))
    if length is not None and not (isinstance(length, int) and length >= MIN_LENGTH):
        raise InputError(f"{model} is cut at {length!r} tokens; {name} must be {MIN_LENGTH} or more")
    return length
