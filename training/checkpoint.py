"""The sentence-transformers folder layout: reading it, writing it.

A folder holds the transformer (config.json, model.safetensors, tokenizer files) and a list of modules
(modules.json) that says how its output becomes a sentence vector: ``1_Pooling/config.json`` names the pooling,
an optional ``2_Normalize`` scales to length 1. A folder without modules.json is a plain transformer.

Only safetensors weights are accepted: a pickle can run any code while it is being read.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from training.errors import InputError

# How the pooling modes are called in files: today's one name, and the flags of older folders.
_FLAGS = {
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "cls": "pooling_mode_cls_token",
}


@dataclass(frozen=True)
class Layout:
    """What a model folder says about itself."""

    transformer: Path
    pooling: str | None = None  # None: a plain transformer, the caller chooses
    normalizes: bool = False
    max_length: int | None = None
    lowercase: bool = False
    prompt: str = ""  # put before every sentence, as the model was trained


def read_layout(folder: Path) -> Layout:
    """Read modules.json and its neighbours. InputError when a module cannot be represented here."""
    modules_file = folder / "modules.json"
    if not modules_file.exists():
        _check_weights(folder)
        return Layout(folder)
    modules = {entry["type"].rsplit(".", 1)[-1]: folder / entry["path"] for entry in read_json(modules_file)}
    unknown = set(modules) - {"Transformer", "Pooling", "Normalize"}
    if unknown or "Transformer" not in modules:
        raise InputError(
            f"{folder.name} has the module {', '.join(sorted(unknown)) or 'list without a Transformer'}, which is "
            "not supported; choose a model made of Transformer, Pooling and Normalize"
        )
    transformer = modules["Transformer"]
    _check_weights(transformer)
    settings = _read_json_if_there(transformer / "sentence_bert_config.json")
    general = _read_json_if_there(folder / "config_sentence_transformers.json")
    return Layout(
        transformer=transformer,
        pooling=_pooling_of(modules["Pooling"]) if "Pooling" in modules else None,
        normalizes="Normalize" in modules,
        max_length=settings.get("max_seq_length"),
        lowercase=bool(settings.get("do_lower_case")),
        prompt=(general.get("prompts") or {}).get(general.get("default_prompt_name") or "", "") or "",
    )


def write_layout(folder: Path, layout: Layout, dimension: int) -> None:
    """Write modules.json, the pooling and the settings beside a transformer that is already in ``folder``."""
    package = "sentence_transformers.models"  # the names that every version of the library understands
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if layout.normalizes:
        modules.append(("2_Normalize", "Normalize"))
    entries = [
        {"idx": index, "name": str(index), "path": path, "type": f"{package}.{kind}"}
        for index, (path, kind) in enumerate(modules)
    ]
    for path, _ in modules[1:]:
        (folder / path).mkdir(exist_ok=True)
    flags = {flag: name == layout.pooling for name, flag in _FLAGS.items()}
    write_json(folder / "modules.json", entries)
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": dimension, **flags})
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": layout.max_length, "do_lower_case": layout.lowercase},
    )
    write_json(
        folder / "config_sentence_transformers.json",
        {
            "__version__": {name: version(name) for name in ("transformers", "torch")},
            "prompts": {"default": layout.prompt} if layout.prompt else {},
            "default_prompt_name": "default" if layout.prompt else None,
            "similarity_fn_name": "cosine",
        },
    )


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of ``folder`` when the block ends well, and vanishes otherwise."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield fresh
        fresh.chmod(0o755)
        if folder.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
            folder.rename(old / folder.name)
            fresh.rename(folder)
            shutil.rmtree(old)
        else:
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def read_json(file: Path) -> Any:
    """Parse a JSON file. InputError with the file's name when it is none."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not valid JSON ({error}); fetch the model again") from error


def write_json(file: Path, value: Any) -> None:
    """Write ``value`` as indented UTF-8 JSON."""
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _read_json_if_there(file: Path) -> dict[str, Any]:
    return read_json(file) if file.exists() else {}


def _check_weights(folder: Path) -> None:
    if not (folder / "config.json").exists():
        raise InputError(f"{folder} is not a model folder: it has no config.json")
    if not any(folder.glob("*.safetensors")):
        raise InputError(
            f"{folder} has no .safetensors weights; pickled weights (.bin, .pt) are not loaded because they can run "
            "code: convert the model to safetensors"
        )


def _pooling_of(folder: Path) -> str:
    config = read_json(folder / "config.json")
    modes = (
        [config["pooling_mode"]]
        if "pooling_mode" in config
        else [name for name, flag in _FLAGS.items() if config.get(flag)]
    )
    other = [key for key, on in config.items() if key.startswith("pooling_mode_") and on is True]
    if len(modes) == 1 and modes[0] in _FLAGS and len(other) <= 1:
        return modes[0]
    found = " + ".join(modes or other) or "none"
    raise InputError(f"{folder.parent.name} pools by {found}; only {', '.join(_FLAGS)} are supported")
