"""Read and write the model format of sentence-transformers.

A folder holds the transformer (config.json, model.safetensors, tokenizer files) and a list of modules (modules.json)
that turn its output into a sentence vector: ``1_Pooling/config.json`` names the pooling, an optional ``2_Normalize``
scales to length 1. A folder without modules.json is a plain transformer.

Only safetensors weights are accepted: a pickle can run code while it is being read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from training.errors import InputError

# Pooling modes by name, as folders state them today, and the flags of older folders.
_FLAGS = {
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "cls": "pooling_mode_cls_token",
}
_UNSUPPORTED_FLAGS = {
    mode: f"pooling_mode_{mode}" for mode in ("mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
}
MIN_LENGTH = 3  # tokens: one between the two special tokens


@dataclass(frozen=True)
class ModelFormat:
    """The settings in a model's folder."""

    transformer: Path  # the folder of the transformer
    pooling: str | None = None  # None: not stated, as in a plain transformer
    normalizes: bool = False  # whether vectors are scaled to length 1
    max_length: int | None = None  # tokens; None: not stated
    lowercase: bool = False
    prompt: str = ""  # put before every sentence, as in training


def read_model_format(folder: Path) -> ModelFormat:
    """Read a model's folder. InputError if a file is damaged or a module is not supported."""
    modules_file = folder / "modules.json"
    if not modules_file.exists():
        _check_weights(folder)
        return ModelFormat(folder)
    try:
        modules = {entry["type"].rsplit(".", 1)[-1]: folder / entry["path"] for entry in read_json(modules_file)}
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{modules_file} is not a list of modules; fetch the model again") from error
    unknown = set(modules) - {"Transformer", "Pooling", "Normalize"}
    if unknown or "Transformer" not in modules:
        raise InputError(
            f"{folder.name} has the module {', '.join(sorted(unknown)) or 'list without a Transformer'}, which is "
            "not supported; choose a model made of Transformer, Pooling and Normalize"
        )
    transformer = modules["Transformer"]
    _check_weights(transformer)
    settings = _read_object(transformer / "sentence_bert_config.json", {})
    max_length = settings.get("max_seq_length")
    if max_length is not None and not (isinstance(max_length, int) and max_length >= MIN_LENGTH):
        raise InputError(f"{folder.name} is cut at {max_length!r} tokens; max_seq_length must be {MIN_LENGTH} or more")
    prompt = _prompt_of(folder)
    pooling = _pooling_of(modules["Pooling"], prompt) if "Pooling" in modules else None
    return ModelFormat(
        transformer=transformer,
        pooling=pooling,
        normalizes="Normalize" in modules,
        max_length=max_length,
        lowercase=bool(settings.get("do_lower_case")),
        prompt=prompt,
    )


def write_model_format(folder: Path, model_format: ModelFormat, dimension: int) -> None:
    """Write modules.json, the pooling and the settings beside a transformer that is already in ``folder``."""
    package = "sentence_transformers.models"  # names that every version of the library understands
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if model_format.normalizes:
        modules.append(("2_Normalize", "Normalize"))
    entries = [
        {"idx": index, "name": str(index), "path": path, "type": f"{package}.{kind}"}
        for index, (path, kind) in enumerate(modules)
    ]
    for path, _ in modules[1:]:
        (folder / path).mkdir(exist_ok=True)
    flags = {flag: name == model_format.pooling for name, flag in _FLAGS.items()}
    write_json(folder / "modules.json", entries)
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": dimension, **flags})
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": model_format.max_length, "do_lower_case": model_format.lowercase},
    )
    write_json(
        folder / "config_sentence_transformers.json",
        {
            "__version__": {name: version(name) for name in ("transformers", "torch")},
            "prompts": {"default": model_format.prompt} if model_format.prompt else {},
            "default_prompt_name": "default" if model_format.prompt else None,
            "similarity_fn_name": "cosine",
        },
    )


def check_replaceable(folder: Path) -> None:
    """InputError if ``folder`` exists and is neither empty nor a model: other files are never replaced."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder for the model")
    names = {entry.name for entry in folder.iterdir()}
    if names and not names & {"config.json", "modules.json", "adapter_config.json"}:
        raise InputError(f"{folder} holds other files; name a new folder for the model")


def read_json(file: Path) -> Any:
    """Parse a JSON file. InputError with the file's name if it is not valid."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not valid JSON ({error}); fetch the model again") from error


def write_json(file: Path, value: Any) -> None:
    """Write ``value`` as indented UTF-8 JSON."""
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _read_object(file: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object in ``file``; if there is no such file ``default``, or InputError without a default."""
    if not file.exists():
        if default is None:
            raise InputError(f"{file} is missing; fetch the model again")
        return default
    value = read_json(file)
    if not isinstance(value, dict):
        raise InputError(f"{file} holds no settings; fetch the model again")
    return value


def _check_weights(folder: Path) -> None:
    if not (folder / "config.json").exists():
        raise InputError(f"{folder} is not a model folder: it has no config.json")
    _read_object(folder / "config.json")
    if not any(folder.glob("*.safetensors")):
        raise InputError(
            f"{folder} has no .safetensors weights; pickled weights (.bin, .pt) are not loaded because they can run "
            "code: convert the model to safetensors"
        )


def _prompt_of(folder: Path) -> str:
    """The prompt that the model was trained with, "" for none."""
    general = _read_object(folder / "config_sentence_transformers.json", {})
    prompts = general.get("prompts") or {}
    prompt = prompts.get(general.get("default_prompt_name")) if isinstance(prompts, dict) else prompts
    if prompt and not isinstance(prompt, str):
        raise InputError(f"the default prompt of {folder.name} is {prompt!r}, not text; fetch the model again")
    return prompt or ""


def _pooling_of(folder: Path, prompt: str) -> str:
    config = _read_object(folder / "config.json")
    flags = {**_FLAGS, **_UNSUPPORTED_FLAGS}
    stated = config.get("pooling_mode") or [mode for mode, flag in flags.items() if config.get(flag)]
    modes = [str(mode) for mode in stated] if isinstance(stated, list) else [str(stated)]
    if len(modes) != 1 or modes[0] not in _FLAGS:
        named = " + ".join(modes) or "nothing"
        raise InputError(f"{folder.parent.name} pools by {named}; only {', '.join(_FLAGS)} are supported")
    if prompt and config.get("include_prompt") is False:
        raise InputError(
            f"{folder.parent.name} leaves its prompt out of the pooling, which is not supported; choose another model"
        )
    return modes[0]
