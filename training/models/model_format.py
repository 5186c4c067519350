"""Read and write the model format of sentence-transformers.

A folder holds the first module (a transformer: config.json, model.safetensors, tokenizer files) and a list of modules
(modules.json) that turn its output into a sentence vector: ``1_Pooling/config.json`` names the pooling, a Dense layer
may change the dimension, ``2_Normalize`` scales to length 1. config_sentence_transformers.json has the prompts and the
number of dimensions to keep. A folder without modules.json is a plain transformer.

Only safetensors weights are accepted: a pickle can run code while it is being read. Modules that come with code of
their own, and those that `training.models.modules` does not list, are refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from training.errors import InputError
from training.models.folder_checks import only_pickles, read_json, read_object, write_json
from training.models.modules import INPUT_MODULES, KINDS, POOLING, SENTENCE_MODULES, TOKEN_MODULES, TRANSFORMER
from training.pooling import POOLINGS, parse_pooling
from training.similarities import SIMILARITIES

# The flags with which older folders name their pooling.
_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
# The settings of a Transformer; the names after the first are those of sentence-transformers before version 1.
_TRANSFORMER_CONFIGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
MIN_LENGTH = 3  # tokens: one between the two special tokens
PACKAGES = ("sentence_transformers.",)  # a module of any other package is code that comes with the model


class ModuleEntry(NamedTuple):
    """A line of modules.json."""

    kind: str
    folder: Path


@dataclass(frozen=True)
class ModelFormat:
    """The settings in a model's folder."""

    transformer: Path  # the folder of the first module
    pooling: str | None = None  # None: not stated, as in a plain transformer
    normalizes: bool = False  # whether the last module scales vectors to length 1
    max_length: int | None = None  # tokens; None: not stated
    lowercase: bool = False
    input_module: str = TRANSFORMER
    token_modules: tuple[ModuleEntry, ...] = ()  # between the first module and the pooling
    sentence_modules: tuple[ModuleEntry, ...] = ()  # after the pooling, without the last Normalize
    include_prompt: bool = True  # whether the tokens of a prompt are pooled
    prompts: Mapping[str, str] = field(default_factory=dict)  # by name
    default_prompt: str | None = None  # the name of the one that is put before every sentence
    dimension: int | None = None  # keep only the first so many dimensions (Matryoshka); None: all
    similarity: str = "cosine"  # by which its vectors are compared in retrieval: of `SIMILARITIES`
    expansion: tuple[int, int, str] | None = None  # shorter texts are filled up: to how many tokens, which id, token

    @property
    def prompt(self) -> str:
        """The text put before every sentence, "" for none."""
        return self.prompts[self.default_prompt] if self.default_prompt is not None else ""


def read_model_format(folder: Path) -> ModelFormat:
    """Read a model's folder. InputError if a file is damaged or a module is not supported."""
    if not (folder / "modules.json").exists():
        _check_weights(folder)
        return ModelFormat(folder)
    settings = general_settings(folder)
    first, *rest = read_modules(folder)
    if first.kind == TRANSFORMER:
        _check_weights(first.folder)
    kinds = [entry.kind for entry in rest]
    pooled = kinds.index(POOLING) if POOLING in kinds else 0
    _check_order(folder, first.kind, kinds, pooled)
    after = rest[pooled + (POOLING in kinds) :]
    normalizes = bool(after) and after[-1].kind == "Normalize"
    if first.kind == TRANSFORMER:
        settings |= transformer_settings(first.folder, folder.name)
    else:
        settings["pooling"] = "mean"  # a static embedding averages its tokens itself
    if POOLING in kinds:
        settings |= _pooling_settings(rest[pooled].folder)
    return ModelFormat(
        transformer=first.folder,
        input_module=first.kind,
        token_modules=tuple(rest[:pooled]),
        sentence_modules=tuple(after[:-1] if normalizes else after),
        normalizes=normalizes,
        **settings,
    )


def write_model_format(
    folder: Path, model_format: ModelFormat, dimension: int, before: Sequence[str] = (), after: Sequence[str] = ()
) -> list[Path]:
    """Write modules.json, the pooling and the settings beside a first module that is already in ``folder``.

    ``dimension`` is that of the vectors that are pooled; ``before`` and ``after`` name the modules before the pooling
    and after it, without the last Normalize. Returns the folders of these modules, which are empty.
    """
    package = "sentence_transformers.models"  # names that every version of the library understands
    is_pooled = model_format.input_module != "StaticEmbedding"
    kinds = [*before, *[POOLING] * is_pooled, *after, *["Normalize"] * model_format.normalizes]
    modules = [("", model_format.input_module), *((f"{i}_{kind}", kind) for i, kind in enumerate(kinds, 1))]
    entries = [
        {"idx": index, "name": str(index), "path": path, "type": f"{package}.{kind}"}
        for index, (path, kind) in enumerate(modules)
    ]
    folders = [folder / path for path, _ in modules[1:]]
    for each in folders:
        each.mkdir(exist_ok=True)
    write_json(folder / "modules.json", entries)
    if is_pooled:
        write_json(folders.pop(len(before)) / "config.json", _pooling_config(model_format, dimension))
    if model_format.input_module == TRANSFORMER:
        settings = {"max_seq_length": model_format.max_length, "do_lower_case": model_format.lowercase}
        write_json(folder / _TRANSFORMER_CONFIGS[0], settings)
    write_json(
        folder / "config_sentence_transformers.json",
        {
            "__version__": {name: version(name) for name in ("transformers", "torch")},
            "prompts": dict(model_format.prompts),
            "default_prompt_name": model_format.default_prompt,
            "similarity_fn_name": model_format.similarity,
            **({} if model_format.dimension is None else {"truncate_dim": model_format.dimension}),
        },
    )
    return folders[: len(before) + len(after)]


def read_modules(
    folder: Path, kinds: Collection[str] = KINDS, packages: tuple[str, ...] = PACKAGES
) -> list[ModuleEntry]:
    """The modules of a folder. InputError if one is not of these ``kinds`` or ``packages``, or the list is damaged."""
    modules_file = folder / "modules.json"
    try:
        types = [(str(entry["type"]), folder / entry["path"]) for entry in read_json(modules_file)]
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{modules_file} is not a list of modules; fetch the model again") from error
    entries = [ModuleEntry(dotted.rsplit(".", 1)[-1], path) for dotted, path in types]
    for (dotted, _), (kind, _) in zip(types, entries, strict=True):
        if not dotted.startswith(packages):
            raise InputError(
                f"{folder.name} has the module {dotted}, code that comes with the model and is never run; choose "
                "a model without code of its own"
            )
        if kind not in kinds:
            raise InputError(
                f"{folder.name} has the module {kind}, which is not supported; choose a model made of "
                f"{', '.join(kinds)}"
            )
    if not entries or (kinds is KINDS and entries[0].kind not in INPUT_MODULES):
        raise InputError(f"{folder.name} is a model whose first module is not {', '.join(INPUT_MODULES)}")
    return entries


def _check_order(folder: Path, first: str, kinds: list[str], pooled: int) -> None:
    """InputError unless token modules, one pooling and sentence modules follow each other."""
    before, after = kinds[:pooled], kinds[pooled + 1 :] if POOLING in kinds else kinds
    # LSTMs are supported where WordEmbeddings come first, as in InferSent.
    allowed = TOKEN_MODULES if first == "WordEmbeddings" else {}
    needs_pooling = first == "WordEmbeddings" or (first == TRANSFORMER and bool(kinds))
    if (
        not set(before) <= set(allowed)
        or not set(after) <= set(SENTENCE_MODULES)
        or (first == "StaticEmbedding" and POOLING in kinds)
        or (needs_pooling and POOLING not in kinds)
    ):
        raise InputError(
            f"{folder.name} is a model of {' + '.join([first, *kinds])}, an order of modules that is not supported"
        )


def _pooling_settings(folder: Path) -> dict[str, Any]:
    config = read_object(folder / "config.json")
    # The order of concatenation: as listed, or that in which sentence-transformers reads its old flags.
    stated = config.get("pooling_mode") or [mode for mode, flag in _FLAGS.items() if config.get(flag)]
    modes = [str(mode) for mode in stated] if isinstance(stated, list) else [str(stated)]
    if not modes or not set(modes) <= set(POOLINGS):
        named = " + ".join(modes) or "nothing"
        raise InputError(f"{folder.parent.name} pools by {named}; only {', '.join(POOLINGS)} are supported")
    return {"pooling": "+".join(modes), "include_prompt": config.get("include_prompt") is not False}


def _pooling_config(model_format: ModelFormat, dimension: int) -> dict[str, Any]:
    modes = parse_pooling(model_format.pooling or "mean")
    config: dict[str, Any] = {"word_embedding_dimension": dimension}
    if modes == tuple(mode for mode in _FLAGS if mode in modes):  # the flags cannot state another order
        config |= {flag: mode in modes for mode, flag in _FLAGS.items()}
    else:
        config["pooling_mode"] = list(modes)
    return config | ({} if model_format.include_prompt else {"include_prompt": False})


def transformer_settings(folder: Path, name: str, task: str = "feature-extraction") -> dict[str, Any]:
    """Greatest length and case, of a transformer that does ``task``. InputError if it does another one."""
    files = [file for each in _TRANSFORMER_CONFIGS if (file := folder / each).exists()]
    settings = read_object(files[0]) if files else {}
    max_length = settings.get("max_seq_length")
    if max_length is not None and not (isinstance(max_length, int) and max_length >= MIN_LENGTH):
        raise InputError(f"{name} is cut at {max_length!r} tokens; max_seq_length must be {MIN_LENGTH} or more")
    stated = settings.get("transformer_task", task)
    if stated != task or settings.get("module_output_name", "token_embeddings") != "token_embeddings":
        raise InputError(f"{name} is a model whose transformer does {stated}, not {task}; choose another one")
    return {"max_length": max_length, "lowercase": bool(settings.get("do_lower_case"))}


def general_settings(folder: Path, kinds: Collection[str] = ("SentenceTransformer",)) -> dict[str, Any]:
    """Prompts and dimension. InputError if they are damaged, or the folder says that it is of none of the ``kinds``."""
    general = read_object(folder / "config_sentence_transformers.json", {})
    kind = general.get("model_type")
    if kind is not None and kind not in kinds:
        raise InputError(f"{folder.name} is a {kind}, not a model of sentence vectors; choose another one")
    prompts, default = general.get("prompts") or {}, general.get("default_prompt_name")
    if isinstance(prompts, str):
        prompts, default = {"default": prompts}, "default"
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise InputError(f"the prompts of the model {folder.name} are not texts by name; fetch the model again")
    if default not in [*prompts]:  # whatever it is, also a list
        default = None
    dimension = general.get("truncate_dim")
    if dimension is not None and not (isinstance(dimension, int) and dimension >= 1):
        raise InputError(f"the model {folder.name} keeps {dimension!r} dimensions; truncate_dim must be 1 or more")
    prompts = {str(name): text or "" for name, text in prompts.items()}
    stated = general.get("similarity_fn_name")
    similarity = stated if isinstance(stated, str) and stated in SIMILARITIES else "cosine"
    return {"prompts": prompts, "default_prompt": default, "dimension": dimension, "similarity": similarity}


def _check_weights(folder: Path) -> None:
    if not (folder / "config.json").exists():
        raise InputError(f"{folder} is not a model folder: it has no config.json")
    read_object(folder / "config.json")
    if not any(folder.glob("*.safetensors")):
        raise only_pickles(folder)
