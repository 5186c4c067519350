"""ModelFolder: the settings in a model's folder, read and checked once. ModelFormat: how its model is used.

The format is sentence-transformers'. A folder holds the first module (a transformer: config.json,
model.safetensors, tokenizer files) and a list of modules (modules.json) that turn its output into a
sentence vector: ``1_Pooling/config.json`` names the pooling, a Dense layer may change the
dimension, ``2_Normalize`` scales to length 1. config_sentence_transformers.json has the prompts and
the number of dimensions to keep. A folder without modules.json is a plain transformer. A folder
with only adapter_config.json is an adapter of another model.

`Encoder` and `CrossEncoder` open a folder if all of its modules and settings are listed here.
sentence-transformers opens any other folder (`training.models.st_models`). Code that comes with a
model is never run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from training.catalogue import CROSS_ENCODERS, asset
from training.errors import InputError
from training.models.files import (
    check_pickles,
    check_pointers,
    read_json,
    read_object,
    read_tensors,
    write_json,
)
from training.models.sizes import check_module_sizes, check_transformer
from training.names import existing_path
from training.pooling import parse_pooling, poolings
from training.similarities import SIMILARITIES
from training.sources.resolve import model_folder

TRANSFORMER = "Transformer"
POOLING = "Pooling"
NORMALIZE = "Normalize"
# The classes of sentence-transformers that open a folder.
SENTENCE_TRANSFORMER = "SentenceTransformer"
MULTI_VECTOR = "MultiVectorEncoder"
SPARSE_ENCODER = "SparseEncoder"
CROSS_ENCODER = "CrossEncoder"
# Modules of sentence-transformers, and PyLate's Dense, which sentence-transformers replaces by its
# own.
_CLASS = re.compile(r"sentence_transformers(\.[A-Za-z_]\w*)+|pylate\.models\.Dense\.Dense")
# The file for the head of a cross-encoder that started as a bi-encoder. Its transformer has files
# of its own.
JOINT_HEAD = "head.safetensors"
# The names of prompts for each role, as in sentence-transformers. The first that a folder has is
# used.
ROLES = {"query": ("query",), "document": ("document", "passage", "corpus")}

# Older folders name their pooling by flags.
POOLING_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
# Encoder-decoders are opened by the classes of transformers that hold only the encoder.
ENCODER_CLASSES = {
    "t5": "T5EncoderModel",
    "mt5": "MT5EncoderModel",
    "umt5": "UMT5EncoderModel",
    "longt5": "LongT5EncoderModel",
}
ROUTER_CONFIG = "router_config.json"
WORDS_CONFIG = "wordembedding_config.json"
MIN_LENGTH = 3  # tokens: one between the two special tokens


def _transformer_settings(task: str, feature: str, output: str) -> dict[str, Any]:
    """Returns the settings of a Transformer: names and allowed values, None for any value.

    ``task`` selects the class of transformers, whose result has the field ``output``. The module
    passes this field on under the name ``feature``.
    """
    # A Transformer may also read messages or images. The models that are opened here read texts.
    modalities = {"text": {"method": "forward", "method_output_name": output}}
    return {
        "max_seq_length": None,
        "do_lower_case": None,
        "transformer_task": [task],
        "module_output_name": [feature],
        "modality_config": [modalities],
    }


# The settings of the models that are opened here, by file: names and allowed values. None allows
# any value.
_ENCODER = _transformer_settings("feature-extraction", "token_embeddings", "last_hidden_state")
_CLASSIFIER = _transformer_settings("sequence-classification", "scores", "logits")
_GENERAL = {
    "__version__": None,
    "model_type": [SENTENCE_TRANSFORMER, CROSS_ENCODER],
    "prompts": None,
    "default_prompt_name": None,
    "truncate_dim": None,
    "similarity_fn_name": [*SIMILARITIES],
    "activation_fn": None,
}
_POOLING = {
    **dict.fromkeys(POOLING_FLAGS.values()),
    "pooling_mode": None,
    "include_prompt": None,
    "word_embedding_dimension": None,
    "embedding_dimension": None,
}
_FEATURES = {
    "module_input_name": ["sentence_embedding"],
    "module_output_name": ["sentence_embedding"],
}
_DENSE = dict.fromkeys(
    ("in_features", "out_features", "bias", "activation_function", "use_residual")
)
_AFTER_POOLING: dict[str, dict[str, Any]] = {
    "Dense": {**_DENSE, **_FEATURES},
    "LayerNorm": {"dimension": None},
    NORMALIZE: _FEATURES,
}

# The file with the settings of a Transformer. Before version 1, sentence-transformers used the names
# after the first one too.
_TRANSFORMER_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# Prompts that the cards of E5, BGE, nomic-embed and mxbai quote. A single one is for queries only.
_CARD_PROMPTS = (
    ("query: ", "passage: "),
    ("search_query: ", "search_document: "),
    ("Represent this sentence for searching relevant passages:",),
)


class ModuleEntry(NamedTuple):
    """A module, as modules.json lists it."""

    kind: str  # the name of its class
    folder: Path
    package: str = ""  # the Python module that defines the class


@dataclass(frozen=True)
class ModelFormat:
    """The settings that a model is used and written with."""

    transformer: Path = Path()  # the folder of the first module, if there is one
    pooling: str | None = None  # None: not stated, as in a plain transformer
    normalizes: bool = False  # whether the last module scales vectors to length 1
    max_length: int | None = None  # tokens; None: not stated
    lowercase: bool = False
    sentence_modules: tuple[ModuleEntry, ...] = ()  # after the pooling, without the final Normalize
    include_prompt: bool = True  # whether the tokens of a prompt are pooled
    prompts: Mapping[str, str] = field(default_factory=dict)  # by name
    default_prompt: str | None = None  # the name of the prompt that is put before every sentence
    dimension: int | None = None  # the number of first dimensions to keep (Matryoshka); None: all
    similarity: str = "cosine"  # the one of `SIMILARITIES` that retrieval uses

    @property
    def prompt(self) -> str:
        """The text put before every sentence, "" for none."""
        if self.default_prompt is None:
            return ""
        return self.prompts[self.default_prompt]

    def with_prompt(self, prompt: str | None, name: str | None, model: str) -> ModelFormat:
        """Returns the format with a prompt, given as text ("" for none) or by name.

        InputError, with the name of the ``model``, if the format does not name this prompt.
        """
        if prompt is not None and name is not None:
            raise InputError("give the prompt itself or its name, not both")
        prompts = dict(self.prompts)
        default = None
        if name is not None:
            if name not in prompts:
                names = ", ".join(prompts) or "none"
                raise InputError(f"{model} has no prompt named {name!r}; its folder names: {names}")
            # An empty prompt of the folder stands for none.
            if prompts[name]:
                default = name
        elif prompt:
            # A prompt of the folder keeps its name.
            default = next((key for key, text in prompts.items() if text == prompt), "default")
            prompts[default] = prompt
        return replace(self, prompts=prompts, default_prompt=default)

    def write(
        self, folder: Path, width: int, before: Sequence[str], after: Sequence[Any]
    ) -> list[Path]:
        """Writes modules.json and the settings beside a first module, and returns the folders of all modules.

        Args:
            folder: the folder of the model.
            width: the length of the vectors that are pooled.
            before: the kinds of the modules before the pooling.
            after: the modules after the pooling, without the final Normalize. They are written too.
        """
        kinds = [*before, POOLING, *(type(module).__name__ for module in after)]
        if self.normalizes:
            kinds.append(NORMALIZE)
        folders = []
        entries = []
        for index, kind in enumerate(kinds):
            # The first module is in the folder itself.
            path = f"{index}_{kind}" if index else ""
            # Every version of sentence-transformers understands these names.
            entry = {
                "idx": index,
                "name": str(index),
                "path": path,
                "type": f"sentence_transformers.models.{kind}",
            }
            entries.append(entry)
            folders.append(folder / path)
            folders[index].mkdir(exist_ok=True)
        write_json(folder / "modules.json", entries)
        # The pooling follows the modules before it.
        write_json(folders[len(before)] / "config.json", self._pooling_config(width))
        if before[0] == TRANSFORMER:
            settings = {"max_seq_length": self.max_length, "do_lower_case": self.lowercase}
            # The first name is the one that sentence-transformers writes today.
            write_json(folder / _TRANSFORMER_FILES[0], settings)
        general: dict[str, Any] = {
            "__version__": {name: version(name) for name in ("transformers", "torch")},
            "prompts": dict(self.prompts),
            "default_prompt_name": self.default_prompt,
            "similarity_fn_name": self.similarity,
        }
        if self.dimension is not None:
            general["truncate_dim"] = self.dimension
        write_json(folder / "config_sentence_transformers.json", general)
        # The last folder may be the final Normalize's, which has no settings.
        for module, module_folder in zip(after, folders[len(before) + 1 :], strict=False):
            module.write(module_folder)
        return folders

    def _pooling_config(self, width: int) -> dict[str, Any]:
        """Returns the contents of the pooling's config.json, for vectors of the length ``width``."""
        modes = parse_pooling(self.pooling or "mean")
        config: dict[str, Any] = {"word_embedding_dimension": width}
        # Flags do not state an order: their poolings are concatenated in the order of
        # `POOLING_FLAGS`. Any other order, or a pooling without a flag, needs a list.
        if modes == tuple(mode for mode in POOLING_FLAGS if mode in modes):
            config |= {flag: mode in modes for mode, flag in POOLING_FLAGS.items()}
        else:
            config["pooling_mode"] = list(modes)
        if not self.include_prompt:
            config["include_prompt"] = False
        return config


def prompt_advice(name: str, folder: Path, prompts: Mapping[str, str]) -> str:
    """Returns a sentence that advises to use a prompt; "" if neither the folder nor its model card names one.

    It is for models that are used without a prompt.
    """
    names = [key for key, text in prompts.items() if text]
    if names:
        return (
            f"{name} was trained with prompts, and none is put before the sentences: its folder names "
            f"{', '.join(names)}; choose one"
        )
    card = folder / "README.md"
    # A model with random weights has no folder.
    if folder == Path() or not card.is_file():
        return ""
    text = card.read_text(encoding="utf-8", errors="replace")
    for quoted in _CARD_PROMPTS:
        if all(_is_quoted(prompt.strip(), text) for prompt in quoted):
            expected = " or ".join(f'"{prompt}"' for prompt in quoted)
            # A card that names one prompt has it for queries only.
            where = "every sentence" if len(quoted) > 1 else "a query"
            return f"{name} expects {expected} before {where}, as its model card says; give it as the prompt"
    return ""


def _is_quoted(prompt: str, text: str) -> bool:
    # No quotation mark is needed at the end, as a sentence may follow the prompt.
    return any(f"{quote}{prompt}" in text for quote in "\"'`“")


def role_prompt(role: str, prompts: Mapping[str, str], default: str | None) -> dict[str, str]:
    """Returns the arguments of ``with_prompt`` for query or document; {} keeps the default prompt.

    InputError for another role.
    """
    if role not in ROLES:
        raise InputError(f"role {role!r} is unknown; choose {' or '.join(ROLES)}")
    for name in ROLES[role]:
        if name in prompts:
            return {"name": name}
    # The default prompt is one of ``prompts``, and the loop has found no prompt for this role. So a
    # default with a name in `ROLES` is meant for the other role, and is left out.
    if any(default in names for names in ROLES.values()):
        return {"prompt": ""}
    return {}


@dataclass(frozen=True)
class ModelFolder:
    """The contents of a folder. ``ModelFolder.of`` finds one by its model's name, ``ModelFolder.read`` reads it.

    The settings of a file that does not exist are empty.
    """

    path: Path
    source: str  # where it came from, in words
    first: Path  # the folder of the first module, with its settings and its tokenizer
    # The folder of a transformer's config.json and weights: ``first``, or the base of an adapter.
    weights: Path
    modules: tuple[ModuleEntry, ...]  # as modules.json lists them; none in a plain transformer
    config: Mapping[str, Any]  # config.json of the transformer
    general: Mapping[str, Any]  # config_sentence_transformers.json
    transformer: Mapping[str, Any]  # sentence_bert_config.json of the first module
    adapter: Mapping[str, Any]  # adapter_config.json
    pooling: Mapping[str, Any]  # config.json of the first pooling
    # How a model that is opened here is used; None if sentence-transformers opens it. Set by
    # `checked`.
    form: ModelFormat | None = None

    @classmethod
    def of(cls, name: str, home: str | Path | None = None, fetch: bool = True) -> ModelFolder:
        """Finds and checks the folder of a model or an adapter. If ``fetch`` is False, nothing is downloaded.

        InputError if the folder or the base of an adapter cannot be found, or `checked` refuses it.
        """
        adapter = _adapter_folder(name)
        if adapter is not None:
            folder = cls.read(adapter, "adapter")
        else:
            resolved = model_folder(name, home, fetch)
            folder = cls.read(resolved.path, resolved.source)
        if folder.is_adapter:
            folder = folder.over_base(home, fetch)
        return folder.checked()

    @classmethod
    def read(cls, path: Path, source: str = "local folder") -> ModelFolder:
        """Reads the settings in a folder. A missing file counts as a file without settings.

        InputError if a file is damaged, or is a Git LFS pointer.
        """
        check_pointers(path)
        modules = _read_modules(path / "modules.json")
        first = modules[0].folder if modules else path
        transformer = {}
        for name in _TRANSFORMER_FILES:
            if (first / name).exists():
                transformer = read_object(first / name)
                break
        pooling = {}
        for entry in modules:
            if entry.kind == POOLING:
                pooling = read_object(entry.folder / "config.json")
                break
        return cls(
            path,
            source,
            first=first,
            # `over_base` replaces the weights and the config of an adapter.
            weights=first,
            modules=modules,
            config=read_object(first / "config.json", {}),
            general=read_object(path / "config_sentence_transformers.json", {}),
            transformer=transformer,
            adapter=read_object(first / "adapter_config.json", {}),
            pooling=pooling,
        )

    @property
    def is_own(self) -> bool:
        """Whether it is opened here: a transformer whose settings and modules are all known."""
        return self.form is not None

    @property
    def kind(self) -> str:
        """The class of sentence-transformers that opens the folder, even if the folder does not name it."""
        class_name = str(self.general.get("model_type") or SENTENCE_TRANSFORMER)
        # Older folders of PyLate name the class "ColBERT". Some name no class, but have a prefix for
        # queries. The folders of ColBERT's authors name no class either, and have no modules.json.
        is_pylate = class_name == "ColBERT" or "query_prefix" in self.general
        is_stanford = not self.modules and self._has_architecture("HF_ColBERT")
        if is_pylate or is_stanford:
            return MULTI_VECTOR
        if self.has_joint_head or self.adapter.get("task_type") == "SEQ_CLS":
            return CROSS_ENCODER
        # With a pooling, the folder is a bi-encoder, even if config.json names a classifier.
        is_pooled = any(entry.kind == POOLING for entry in self.modules)
        if not is_pooled and self._has_architecture("ForSequenceClassification"):
            return CROSS_ENCODER
        return class_name

    @property
    def is_cross_encoder(self) -> bool:
        """Whether it scores pairs of texts, as a model for classification does."""
        return self.kind == CROSS_ENCODER

    @property
    def base(self) -> str:
        """The name of the model that an adapter belongs to; "" for any other folder."""
        return str(self.adapter.get("base_model_name_or_path") or "")

    @property
    def is_adapter(self) -> bool:
        """Whether it holds the weights of an adapter as peft writes them, without its base.

        False for an adapter with a joint head, whose base `CrossEncoder` opens.
        """
        # ``base`` is "" for a folder without adapter_config.json.
        if not self.base or self.has_joint_head:
            return False
        # A folder with weights of its own needs no base.
        return not any(self.first.glob("model*.safetensors"))

    def over_base(self, home: str | Path | None = None, fetch: bool = True) -> ModelFolder:
        """Returns the folder with the config and weights of the base, found by its name or beside the adapter.

        InputError if the base is found in neither place.
        """
        try:
            resolved = model_folder(self.base, home, fetch)
        except InputError as error:
            # The adapter may have been moved together with its base, and name the old path.
            beside = self.path.absolute().parent / Path(self.base).name
            if not (beside / "config.json").is_file():
                raise InputError(
                    f"the base of the adapter {self.path.name} cannot be opened: {error}"
                ) from error
            resolved = model_folder(str(beside), home, fetch)
        base = ModelFolder.read(resolved.path)
        if not base.config:
            raise InputError(
                f"the base of the adapter {self.path.name}, {self.base}, is no transformer"
            )
        source = f"adapter over {self.base} ({resolved.source})"
        return replace(self, source=source, weights=base.first, config=base.config)

    @property
    def has_joint_head(self) -> bool:
        """Whether its cross-encoder started as a bi-encoder."""
        return (self.path / JOINT_HEAD).is_file()

    def checked(self) -> ModelFolder:
        """Checks that the folder is safe to open, and sets ``form``: None if sentence-transformers must open it.

        InputError if it needs code that comes with it, has pickled weights, or announces sizes that
        its files do not have.
        """
        if self.has_joint_head:
            # An adapter has no config of its own. Its base is checked when it is opened.
            if self.config:
                check_transformer(self.weights, self.config)
            # A form shows that the folder is opened here. `CrossEncoder` uses none of its settings for
            # a joint model.
            return replace(self, form=ModelFormat())
        if not self.config and (not self.modules or self.modules[0].kind == TRANSFORMER):
            raise InputError(f"{self.weights} is not a model folder: it has no config.json")
        for name in self.classes():
            if not (isinstance(name, str) and _CLASS.fullmatch(name)):
                raise InputError(
                    f"{self.path.name} has the module {str(name)[:80]}, code that comes with the model and is never "
                    "run; choose a model without code of its own"
                )
        for folder in self._module_folders():
            check_pickles(folder)
            settings = read_object(folder / "config.json", {})
            if folder == self.weights and self.config:
                # The pattern leaves out the hidden files that macOS adds, such as
                # ._model.safetensors.
                if not any(folder.glob("[!.]*.safetensors")):
                    # Raises an error that says what is missing.
                    read_tensors(folder)
                check_transformer(folder, self.config)
            # The module is another transformer, such as one of a Router.
            elif "model_type" in settings:
                check_transformer(folder, settings)
            else:
                check_module_sizes(folder)
        self._check_general()
        return replace(self, form=self._own_form())

    def classes(self) -> list[Any]:
        """Returns the names of all classes that sentence-transformers would import to open the folder."""
        names: list[Any] = [f"{package}.{kind}" for kind, _, package in self.modules]
        for folder in self._module_folders():
            # The modules of a Router, and the tokenizer of word embeddings.
            names += _routes(folder).values()
            tokenizer_class = read_object(folder / WORDS_CONFIG, {}).get("tokenizer_class")
            if tokenizer_class:
                names.append(tokenizer_class)
        return names

    def _module_folders(self) -> list[Path]:
        """Returns the folder of the weights, then the folders of all modules, including a Router's."""
        folders = []
        pending = [entry.folder for entry in self.modules]
        while pending:
            folder = pending.pop(0)
            folders.append(folder)
            # A module of a Router may be a Router too. `_entry` checks that its folder is inside of
            # this one. The class, which `_entry` also takes, is not needed here.
            for name in _routes(folder):
                pending.append(_entry(folder, name, "").folder)
        return list(dict.fromkeys([self.weights, *folders]))

    def _own_form(self) -> ModelFormat | None:
        """Returns the settings of a model that is opened here; None if only sentence-transformers can open it."""
        if not self._has_known_modules() or self._reads_otherwise():
            return None
        kinds = [entry.kind for entry in self.modules]
        # The modules after the transformer and the pooling.
        after = self.modules[2:]
        transformer = _CLASSIFIER if self.kind == CROSS_ENCODER else _ENCODER
        # The settings of each file, with the names and values that are supported here.
        files = [
            (self.transformer, transformer),
            (self.general, _GENERAL),
            (self.pooling, _POOLING),
        ]
        for entry in after:
            settings = read_object(entry.folder / "config.json", {})
            files.append((settings, _AFTER_POOLING[entry.kind]))
        if not all(_is_known(settings, names) for settings, names in files):
            return None
        pooling = None
        if POOLING in kinds:
            # Vectors are concatenated in the order of the list, or of the old flags.
            flags = [mode for mode, flag in POOLING_FLAGS.items() if self.pooling.get(flag)]
            modes = self.pooling.get("pooling_mode") or flags
            if not isinstance(modes, list):
                modes = [modes]
            modes = [str(mode) for mode in modes]
            if not modes or not set(modes) <= set(poolings()):
                return None
            pooling = "+".join(modes)
        normalizes = bool(after) and after[-1].kind == NORMALIZE
        prompts = {}
        for name, text in (self.general.get("prompts") or {}).items():
            prompts[str(name)] = text or ""
        return ModelFormat(
            transformer=self.first,
            pooling=pooling,
            normalizes=normalizes,
            max_length=self.transformer.get("max_seq_length"),
            lowercase=bool(self.transformer.get("do_lower_case")),
            sentence_modules=after[:-1] if normalizes else after,
            include_prompt=bool(self.pooling.get("include_prompt", True)),
            prompts=prompts,
            default_prompt=self.general.get("default_prompt_name"),
            dimension=self.general.get("truncate_dim"),
            similarity=self.general.get("similarity_fn_name") or "cosine",
        )

    def _has_known_modules(self) -> bool:
        """Tells whether the architecture and the kinds and order of all modules are ones that are opened here."""
        kinds = [entry.kind for entry in self.modules]
        if self.kind == CROSS_ENCODER:
            # 2 is transformers' default number of labels.
            labels = self.config.get("id2label") or self.config.get("num_labels") or 2
            count = labels if isinstance(labels, int) else len(labels)
            # An adapter has its own head, so the labels of its base do not count.
            return kinds in ([], [TRANSFORMER]) and (count == 1 or self.is_adapter)
        if self.kind != SENTENCE_TRANSFORMER:
            return False
        # An encoder-decoder is opened only by a class that holds the encoder alone.
        has_encoder_class = self.config.get("model_type") in ENCODER_CLASSES
        if self.config.get("is_encoder_decoder") and not has_encoder_class:
            return False
        # A plain transformer has no list of modules.
        if not kinds:
            return True
        return kinds[:2] == [TRANSFORMER, POOLING] and set(kinds[2:]) <= set(_AFTER_POOLING)

    def _reads_otherwise(self) -> bool:
        """Tells whether sentence-transformers reads texts differently than the tokenizer alone.

        For a plain transformer, sentence-transformers applies the chat template in the folder.
        """
        settings = read_object(self.first / "tokenizer_config.json", {})
        # With this setting, transformers splits a special token that a text contains. The tokenizers
        # here do not.
        if settings.get("split_special_tokens"):
            return True
        names = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
        has_file = any((self.first / name).exists() for name in names)
        has_template = has_file or bool(settings.get("chat_template"))
        return has_template and not self.modules

    def _has_architecture(self, suffix: str) -> bool:
        """Tells whether config.json names a class of transformers that ends in ``suffix``."""
        architectures = self.config.get("architectures")
        if not isinstance(architectures, list):
            return False
        return any(str(name).endswith(suffix) for name in architectures)

    def _check_general(self) -> None:
        """Raises InputError if the length, the prompts or the dimension are damaged."""
        name = self.path.name
        length = self.transformer.get("max_seq_length")
        # The types are compared, as bool is a subclass of int.
        if length is not None and not (type(length) is int and length >= MIN_LENGTH):
            raise InputError(
                f"{name} is cut at {length!r} tokens; max_seq_length must be {MIN_LENGTH} or more"
            )
        prompts = self.general.get("prompts") or {}
        default = self.general.get("default_prompt_name")
        is_mapping = isinstance(prompts, dict)
        if not is_mapping or not all(isinstance(text, str | None) for text in prompts.values()):
            raise InputError(
                f"the prompts of the model {name} are not texts by name; fetch the model again"
            )
        # A list is searched, as a damaged default may not be hashable.
        if default is not None and default not in list(prompts):
            raise InputError(
                f"the model {name} has no prompt named {default!r}, which is its default; fetch it again"
            )
        dimension = self.general.get("truncate_dim")
        if dimension is not None and not (type(dimension) is int and dimension >= 1):
            raise InputError(
                f"the model {name} keeps {dimension!r} dimensions; truncate_dim must be 1 or more"
            )


def _is_known(settings: Mapping[str, Any], names: Mapping[str, Any]) -> bool:
    """Tells whether all settings have known names and allowed values. None in ``names`` allows any value.

    A setting that is null counts as missing.
    """
    for name, value in settings.items():
        if value is None:
            continue
        if name not in names:
            return False
        allowed = names[name]
        if allowed is not None and value not in allowed:
            return False
    return True


def _adapter_folder(name: str) -> Path | None:
    """Returns the folder of an adapter, None for any other model."""
    folder = existing_path(name)
    # The package's own cross-encoders are adapters. A folder of the same name is not used.
    if name in CROSS_ENCODERS:
        folder = asset("cross-encoder") / name
    if folder is None or not (folder / "adapter_config.json").is_file():
        return None
    return folder


def _read_modules(file: Path) -> tuple[ModuleEntry, ...]:
    """Reads the modules that modules.json lists; () if the file does not exist. InputError if it is damaged."""
    if not file.exists():
        return ()
    modules = []
    try:
        for entry in read_json(file):
            modules.append(_entry(file.parent, entry["path"], entry["type"]))
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{file} is not a list of modules; fetch the model again") from error
    if not modules:
        raise InputError(f"{file} lists no module; fetch the model again")
    return tuple(modules)


def _routes(folder: Path) -> dict[str, Any]:
    """Reads the classes of a Router's modules, by the names of their folders. Returns {} for any other module.

    InputError if the modules are not listed by name, or one has the folder of the Router itself,
    which would then contain itself without end.
    """
    routes = read_object(folder / ROUTER_CONFIG, {}).get("types") or {}
    if not isinstance(routes, dict) or any(folder / name == folder for name in routes):
        raise InputError(
            f"{folder / ROUTER_CONFIG} does not list modules by their folders; fetch the model again"
        )
    return routes


def _entry(folder: Path, name: str, class_name: Any) -> ModuleEntry:
    """Returns the module in the folder ``name`` below ``folder``. InputError if it would be outside of it."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise InputError(
            f"{folder} has a module in {name[:80]!r}, which is outside of it; fetch the model again"
        )
    package, _, kind = str(class_name).rpartition(".")
    return ModuleEntry(kind, folder / name, package)
