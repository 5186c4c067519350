"""ModelFolder: what a model's folder says about itself, read once and passed on. ModelFormat: how its model is used.

The format is that of sentence-transformers. A folder holds the first module (a transformer: config.json,
model.safetensors, tokenizer files) and a list of modules (modules.json) that turn its output into a sentence vector:
``1_Pooling/config.json`` names the pooling, a Dense layer may change the dimension, ``2_Normalize`` scales to length 1.
config_sentence_transformers.json has the prompts and the number of dimensions to keep. A folder without modules.json is
a plain transformer, one with adapter_config.json alone an adapter of another model.

Modules that come with code of their own, and those that `training.models.modules` does not list, are refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from training.catalogue import CROSS_ENCODERS, asset
from training.errors import InputError
from training.models.files import check_pointers, read_json, read_object, write_json
from training.models.settings import ChatFormat, check_requirements, checked, transformer_settings
from training.pooling import parse_pooling
from training.sources.resolve import model_folder

# The names of the modules that are no classes here (`training.models.modules`).
TRANSFORMER, POOLING, ROUTER = "Transformer", "Pooling", "Router"
# The packages whose modules are opened: a module of any other one is code that comes with the model.
PACKAGES = ("sentence_transformers.",)
# The classes of sentence-transformers and PyLate that a folder may say it is of.
SENTENCE_TRANSFORMER, MULTI_VECTOR, COLBERT = "SentenceTransformer", "MultiVectorEncoder", "ColBERT"
SPARSE_ENCODER, CROSS_ENCODER = "SparseEncoder", "CrossEncoder"
# The weights of a cross-encoder that started as a bi-encoder, beside those of its transformer.
JOINT_HEAD = "head.safetensors"
# The names of a prompt for each role, the first that the folder has; those of sentence-transformers.
ROLES = {"query": ("query",), "document": ("document", "passage", "corpus")}

# The flags with which older folders name their pooling.
POOLING_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
# The settings of a Transformer; the names after the first are those of sentence-transformers before version 1.
_TRANSFORMER_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# Prompts that model cards quote, and the models that are known for them: E5, BGE, nomic-embed, mxbai.
_CARD_PROMPTS = (
    ("query: ", "passage: "),
    ("search_query: ", "search_document: "),
    ("Represent this sentence for searching relevant passages:",),
)


class ModuleEntry(NamedTuple):
    """A line of modules.json."""

    kind: str
    folder: Path
    package: str = ""


@dataclass(frozen=True)
class ModelFormat:
    """The settings under which a model is used, and with which it is written."""

    transformer: Path = Path()  # the folder of the first module, if there is one
    pooling: str | None = None  # None: not stated, as in a plain transformer
    normalizes: bool = False  # whether the last module scales vectors to length 1
    max_length: int | None = None  # tokens; None: not stated
    lowercase: bool = False
    truncation_side: str | None = None  # right or left; None: as the tokenizer says
    chat: ChatFormat | None = None  # None: texts are read as they are
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

    def with_prompt(self, prompt: str | None, name: str | None, model: str) -> ModelFormat:
        """The same with a prompt, given itself ("" for none) or by its name. InputError, which names the ``model``."""
        if prompt is not None and name is not None:
            raise InputError("give the prompt itself or its name, not both")
        prompts, default = dict(self.prompts), name
        if name is not None:
            if name not in prompts:
                names = ", ".join(prompts) or "none"
                raise InputError(f"{model} has no prompt named {name!r}; its folder names: {names}")
            default = name if prompts[name] else None
        elif prompt:
            default = next((key for key, text in prompts.items() if text == prompt), "default")
            prompts[default] = prompt
        return replace(self, prompts=prompts, default_prompt=default)

    def role_prompt(self, role: str) -> dict[str, str]:
        """The arguments of `with_prompt` for query or document; {} for the default. InputError for another role."""
        if role not in ROLES:
            raise InputError(f"role {role!r} is unknown; choose {' or '.join(ROLES)}")
        if name := next((name for name in ROLES[role] if name in self.prompts), None):
            return {"name": name}
        # A query's prompt belongs before no document.
        return {"prompt": ""} if any(self.default_prompt in names for names in ROLES.values()) else {}

    def advice(self, model: str) -> str:
        """One sentence if the folder says that prompts are needed but not which one is the default, else ""."""
        if self.prompt:
            return ""
        if named := [name for name, text in self.prompts.items() if text]:
            return (
                f"{model} was trained with prompts, and none is put before the sentences: its folder names "
                f"{', '.join(named)}; choose one"
            )
        card = self.transformer / "README.md"
        has_card = self.transformer != Path() and card.is_file()
        text = card.read_text(encoding="utf-8", errors="replace") if has_card else ""
        for prompts in _CARD_PROMPTS:
            if all(any(f"{quote}{prompt.strip()}" in text for quote in "\"'`“") for prompt in prompts):
                expected = " or ".join(f'"{prompt}"' for prompt in prompts)
                where = "every sentence" if len(prompts) > 1 else "a query"
                return f"{model} expects {expected} before {where}, as its model card says; give it as the prompt"
        return ""

    def write(self, folder: Path, width: int, before: Sequence[Any], after: Sequence[Any]) -> None:
        """Write modules.json, the settings and all modules beside a first one that is already in ``folder``.

        ``width`` is the length of the vectors that are pooled; ``before`` and ``after`` are the modules before the
        pooling and after it, without the last Normalize.
        """
        # The names that every version of the library understands.
        package = "sentence_transformers.models"
        is_pooled = self.input_module != "StaticEmbedding"
        first, last = ([type(module).__name__ for module in part] for part in (before, after))
        kinds = [*first, *[POOLING] * is_pooled, *last, *["Normalize"] * self.normalizes]
        modules = [("", self.input_module), *((f"{i}_{kind}", kind) for i, kind in enumerate(kinds, 1))]
        entries = [
            {"idx": index, "name": str(index), "path": path, "type": f"{package}.{kind}"}
            for index, (path, kind) in enumerate(modules)
        ]
        for module_folder in (folders := [folder / path for path, _ in modules[1:]]):
            module_folder.mkdir(exist_ok=True)
        write_json(folder / "modules.json", entries)
        if is_pooled:
            write_json(folders.pop(len(before)) / "config.json", self._pooling_config(width))
        if self.input_module == TRANSFORMER:
            settings: dict[str, Any] = {"max_seq_length": self.max_length, "do_lower_case": self.lowercase}
            settings |= self.chat.written() if self.chat else {}
            if self.truncation_side:
                settings["processor_kwargs"] = {"truncation_side": self.truncation_side}
            write_json(folder / _TRANSFORMER_FILES[0], settings)
        general = {
            "__version__": {name: version(name) for name in ("transformers", "torch")},
            "prompts": dict(self.prompts),
            "default_prompt_name": self.default_prompt,
            "similarity_fn_name": self.similarity,
            **({} if self.dimension is None else {"truncate_dim": self.dimension}),
        }
        write_json(folder / "config_sentence_transformers.json", general)
        for module, place in zip([*before, *after], folders, strict=False):
            module.write(place)

    def _pooling_config(self, width: int) -> dict[str, Any]:
        modes = parse_pooling(self.pooling or "mean")
        config: dict[str, Any] = {"word_embedding_dimension": width}
        # The flags cannot state another order than their own.
        if modes == tuple(mode for mode in POOLING_FLAGS if mode in modes):
            config |= {flag: mode in modes for mode, flag in POOLING_FLAGS.items()}
        else:
            config["pooling_mode"] = list(modes)
        return config | ({} if self.include_prompt else {"include_prompt": False})


@dataclass(frozen=True)
class ModelFolder:
    """The contents of a folder. ``ModelFolder.of`` finds one by its model's name, ``ModelFolder.read`` reads it."""

    path: Path
    source: str  # where it came from, in words
    first: Path  # the folder of the first module, with its settings and its tokenizer
    weights: Path  # that of config.json and the weights of a transformer: the first module's, or those of its base
    modules: tuple[ModuleEntry, ...]  # as modules.json lists them; none in a plain transformer
    config: Mapping[str, Any]  # config.json of the transformer
    general: Mapping[str, Any]  # config_sentence_transformers.json
    transformer: Mapping[str, Any]  # sentence_bert_config.json of the first module
    adapter: Mapping[str, Any]  # adapter_config.json
    pooling: Mapping[str, Any]  # config.json of the first pooling
    query_modules: tuple[ModuleEntry, ...] = ()  # of queries alone, where a Router parts them from documents
    default_role: str = "document"  # by which a Router reads a text that is said to be neither

    @classmethod
    def of(cls, name: str, home: str | Path | None = None, fetch: bool = True) -> ModelFolder:
        """The folder of a model by name, with the errors of `model_folder`, or of an adapter, built in or a path."""
        if adapter := _adapter_folder(name):
            folder = cls.read(adapter, "adapter")
        else:
            resolved = model_folder(name, home, fetch)
            folder = cls.read(resolved.path, resolved.source)
        return folder.over_base(home, fetch) if folder.is_adapter else folder

    @classmethod
    def read(cls, path: Path, source: str = "local folder") -> ModelFolder:
        """Read the settings in a folder. InputError if a file is damaged; a file that is not there has no settings."""
        check_pointers(path)
        modules, routes = _read_modules(path / "modules.json"), dict[str, Any]()
        if [entry.kind for entry in modules] == [ROUTER]:
            modules, routes = _read_routes(modules[0].folder)
        first = modules[0].folder if modules else path
        settings = next((file for name in _TRANSFORMER_FILES if (file := first / name).exists()), None)
        pooling = next((entry.folder for entry in modules if entry.kind == POOLING), None)
        return cls(
            path,
            source,
            first,
            first,
            modules,
            config=read_object(first / "config.json", {}),
            general=read_object(path / "config_sentence_transformers.json", {}),
            transformer={} if settings is None else read_object(settings),
            adapter=read_object(first / "adapter_config.json", {}),
            pooling={} if pooling is None else read_object(pooling / "config.json"),
            **routes,
        )

    @property
    def kind(self) -> str:
        """The class of sentence-transformers or PyLate that the folder names; "" if it names none."""
        # Older versions of PyLate name no class.
        is_colbert = "query_prefix" in self.general or self.is_stanford
        return str(COLBERT if is_colbert else self.general.get("model_type") or "")

    @property
    def is_stanford(self) -> bool:
        """Whether it is a ColBERT as its authors publish it: a transformer with a projection beside its weights."""
        return not self.modules and self._is_of("HF_ColBERT")

    @property
    def base(self) -> str:
        """The name of the model that an adapter belongs to; "" for any other folder."""
        return str(self.adapter.get("base_model_name_or_path") or "")

    @property
    def is_adapter(self) -> bool:
        """Whether it holds the weights of an adapter as peft writes them, and not those of its base."""
        return bool(self.base) and not self.has_joint_head and not any(self.first.glob("model*.safetensors"))

    def over_base(self, home: str | Path | None = None, fetch: bool = True) -> ModelFolder:
        """The same with the base's config and weights, by its name or beside the folder. InputError without a base."""
        try:
            resolved = model_folder(self.base, home, fetch)
        except InputError as error:
            # Adapters are often moved with their base, under whose old path it is written down.
            beside = self.path.absolute().parent / Path(self.base).name
            if not (beside / "config.json").is_file():
                raise InputError(f"the base of the adapter {self.path.name} cannot be opened: {error}") from error
            resolved = model_folder(str(beside), home, fetch)
        base = ModelFolder.read(resolved.path)
        if not base.config:
            raise InputError(f"the base of the adapter {self.path.name}, {self.base}, is no transformer")
        source = f"adapter over {self.base} ({resolved.source})"
        return replace(self, source=source, weights=base.first, config=base.config)

    @property
    def has_joint_head(self) -> bool:
        """Whether its cross-encoder started as a bi-encoder."""
        return (self.path / JOINT_HEAD).is_file()

    @property
    def is_cross_encoder(self) -> bool:
        """Whether ``CrossEncoder.load`` opens it: a model that scores pairs, such as one for classification."""
        if self.has_joint_head or self.kind == CROSS_ENCODER or self.adapter.get("task_type") == "SEQ_CLS":
            return True
        if any(entry.kind == POOLING for entry in self.modules):
            return False
        return self._is_of("ForSequenceClassification")

    @property
    def is_decoder(self) -> bool:
        """Whether it is a plain language model, which is an encoder, or scores pairs by answering yes or no."""
        return not self.modules and self._is_of("ForCausalLM")

    def _is_of(self, suffix: str) -> bool:
        architectures = self.config.get("architectures")
        return isinstance(architectures, list) and any(str(name).endswith(suffix) for name in architectures)

    def checked_modules(self, kinds: Collection[str], packages: tuple[str, ...] = PACKAGES) -> tuple[ModuleEntry, ...]:
        """The modules. InputError if one is not of these ``kinds`` or ``packages``."""
        router = [ModuleEntry(ROUTER, self.path, PACKAGES[0])] * bool(self.query_modules)
        for kind, _, package in (*router, *self.modules, *self.query_modules):
            if not f"{package}.{kind}".startswith(packages):
                raise InputError(
                    f"{self.path.name} has the module {package}.{kind}, code that comes with the model and is never "
                    "run; choose a model without code of its own"
                )
            if kind not in kinds:
                raise InputError(
                    f"{self.path.name} has the module {kind}, which is not supported; choose a model made of "
                    f"{', '.join(kinds)}"
                )
        return self.modules

    def transformer_settings(self, task: str = "feature-extraction", more: Collection[str] = ()) -> dict[str, Any]:
        """The fields of a `ModelFormat` that the settings of a transformer state, as in `settings`."""
        return transformer_settings(self.path.name, task, self.transformer, more)

    def general_settings(self, kinds: Collection[str], more: Collection[str] = ()) -> dict[str, Any]:
        """Prompts, dimension and similarity.

        InputError if they are damaged, the folder is of none of the ``kinds``, or it has a setting that nobody reads;
        ``more`` names those that others read.
        """
        from training.similarities import SIMILARITIES

        name = self.path.name
        own = ("model_type", "prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name", "requirements")
        general = checked(name, "config_sentence_transformers.json", self.general, (*own, *more))
        check_requirements(name, general.get("requirements"))
        kind = general.get("model_type")
        if kind is not None and kind not in kinds:
            raise InputError(f"{name} is a {kind}, not a model of sentence vectors; choose another one")
        prompts, default = general.get("prompts") or {}, general.get("default_prompt_name")
        if isinstance(prompts, str):
            prompts, default = {"default": prompts}, "default"
        if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
            raise InputError(f"the prompts of the model {name} are not texts by name; fetch the model again")
        if isinstance(default, str) and default not in prompts:
            raise InputError(f"the model {name} has no prompt named {default!r}, which is its default; fetch it again")
        dimension = general.get("truncate_dim")
        if dimension is not None and not (type(dimension) is int and dimension >= 1):
            raise InputError(f"the model {name} keeps {dimension!r} dimensions; truncate_dim must be 1 or more")
        similarity = general.get("similarity_fn_name") or "cosine"
        if similarity not in [*SIMILARITIES] and MULTI_VECTOR not in kinds:
            raise InputError(f"{name} has the similarity {similarity!r}; choose a model of {', '.join(SIMILARITIES)}")
        return {
            "prompts": {str(key): text or "" for key, text in prompts.items()},
            # A default that is no name, such as a list, is none.
            "default_prompt": default if default in [*prompts] else None,
            "dimension": dimension,
            "similarity": similarity,
        }


def _adapter_folder(name: str) -> Path | None:
    # No folder has a name that is too long, the home of ~nobody, or a NUL.
    with suppress(OSError, RuntimeError, ValueError):
        folder = asset("cross-encoder") / name if name in CROSS_ENCODERS else Path(name).expanduser()
        return folder if (folder / "adapter_config.json").is_file() else None
    return None


def _read_modules(file: Path) -> tuple[ModuleEntry, ...]:
    if not file.exists():
        return ()
    try:
        entries = read_json(file)
        modules = tuple(_entry(file.parent, entry["path"], entry["type"]) for entry in entries)
        for entry in entries:
            checked(file.parent.name, file.name, entry, ("type", "path"))
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{file} is not a list of modules; fetch the model again") from error
    if not modules:
        raise InputError(f"{file} lists no module; fetch the model again")
    return modules


def _entry(folder: Path, name: str, class_name: Any) -> ModuleEntry:
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise InputError(f"{folder} has a module in {name[:80]!r}, which is outside of it; fetch the model again")
    package, _, kind = str(class_name).rpartition(".")
    return ModuleEntry(kind, folder / name, package)


def _read_routes(folder: Path) -> tuple[tuple[ModuleEntry, ...], dict[str, Any]]:
    """The modules of documents, and the fields of the queries', by a Router. InputError if it has other routes."""
    config = read_object(folder / "router_config.json")
    settings = checked(folder.name, ROUTER, config.get("parameters") or {}, ("default_route", "allow_empty_key"))
    try:
        routes = {
            role: tuple(_entry(folder, name, config["types"][name]) for name in names)
            for role, names in config["structure"].items()
        }
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"the Router of {folder.name} lists no modules; fetch the model again") from error
    if {*routes} != {*ROLES} or not all(routes.values()):
        raise InputError(f"the Router of {folder.name} has the routes {', '.join(routes)}, not {' and '.join(ROLES)}")
    default = settings.get("default_route") or next(iter(routes))
    return routes["document"], {"query_modules": routes["query"], "default_role": str(default)}
