"""The models that sentence-transformers opens: every folder with a module or a setting that is not computed here.

    STEncoder           SentenceTransformer: static embeddings, word vectors, routers, chat templates, …
    STCrossEncoder      CrossEncoder: language models that answer yes or no, several texts by a chat template, …
    SparseEncoder       SparseEncoder: SPLADE (Formal et al. 2021) and its kin
    MultiVectorModel    MultiVectorEncoder: ColBERT, also as PyLate and its authors publish it

The library knows its format by definition, and a module that comes with a later version of it opens without a line
here. `ModelFolder.checked` has judged the folder before; what is checked here is that every class is a module of the
library, and that tokenizer, embeddings and weights fit each other. These models are not trained here.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from scipy.sparse import csr_matrix, vstack
from torch import nn

from training.device import pick_device, pick_dtype
from training.errors import InputError
from training.models.chat_templates import check_chat_templates
from training.models.files import WEIGHTS
from training.models.folder import (
    CROSS_ENCODER,
    MULTI_VECTOR,
    SENTENCE_TRANSFORMER,
    SPARSE_ENCODER,
    ModelFolder,
    ModelFormat,
    prompt_advice,
    role_prompt,
)
from training.models.lexical import SparseModel
from training.models.loading import NO_LIMIT, as_in_file, check_tokens, importing, quiet, unopened
from training.models.maxsim import LateInteraction
from training.models.model import Model, Pair, PairModel, VectorModel, log
from training.models.sizes import check_backbone, read_shapes
from training.models.texts import Chunk, Forward, Rows, numbered, texts, tokenizing
from training.models.tokenization import TextTokenizer, TokenVectors, text_tokenizer
from training.names import ModelName
from training.progress import Progress, ShouldStop, steps

PYLATE = "pylate."
BATCH = 256  # texts or pairs of a call of the library, which sorts them by length and computes 32 at a time


class STModel(Model):
    """The base of the four kinds: the model of the library, its tokenizer, and the prompt and the role of texts."""

    has_dtype = True
    why_vectors_only = "sentence-transformers computes it"
    library_class = SENTENCE_TRANSFORMER
    model: Any
    prompt: str = ""
    role: str | None = None
    default_prompt: str | None = None
    dtype: torch.dtype
    source: str
    prompts: Any
    prompt_advice: str = ""
    _tokenizer: TextTokenizer
    _max_length: int | None
    _computing: threading.Lock

    def __init__(self, name: ModelName | Path | str | None = None, **options: Any) -> None:
        """Opens a model by name with the arguments of `load`; without a name it is empty."""
        if name is not None:
            vars(self).update(vars(self.load(name, **options)))

    @classmethod
    def load(
        cls,
        name: ModelName | Path | str,
        dtype: str = "auto",
        device: str = "auto",
        home: str | Path | None = None,
        folder: ModelFolder | None = None,
    ) -> Self:
        """Load a folder or Hub id. Arguments and errors are those of `Encoder.load`; int8 is refused."""
        parsed = ModelName.parse(name)
        cls.check_settings(parsed)
        torch_device = pick_device(device)
        torch_dtype = pick_dtype(parsed.dtype or dtype, torch_device)
        if torch_dtype == torch.int8:
            raise InputError(f"{parsed.name} has no int8; choose auto")
        folder = folder or ModelFolder.of(parsed.name, home)
        opened = cls()
        # A tokenizer of transformers changes its settings in each call, and is not shared by threads.
        opened._computing = threading.Lock()
        opened.name = str(parsed.weights)
        opened.dtype = torch_dtype
        opened.source = folder.source
        opened.model = open_library(cls.library_class, folder, torch_dtype, torch_device)
        opened._prepare(folder)
        return opened.with_settings(parsed)

    def _prepare(self, folder: ModelFolder) -> None:
        """Read what is asked of all models off the opened one."""
        self.prompts = dict(self.model.prompts)
        self.default_prompt = self.model.default_prompt_name
        self.prompt = self.prompts.get(self.default_prompt, "")
        self.prompt_advice = "" if self.prompt else prompt_advice(self.name, folder.first, self.prompts)
        self._max_length = self._longest_input()
        form = ModelFormat(max_length=self._max_length)
        self._tokenizer = text_tokenizer(self.model.tokenizer, form).with_prompt(self.prompt)

    @property
    def vocabulary_size(self) -> int:
        return len(self.model.tokenizer.get_vocab())

    @property
    def max_length(self) -> int | None:
        return self._max_length

    def _longest_input(self) -> int | None:
        """The tokens that are read of a text that is too long. None: there is no limit, or it is not known."""
        length = self.model.max_seq_length
        if not isinstance(length, int) or length >= NO_LIMIT:
            # The tokenizer of a table may cut texts itself.
            truncation = getattr(self.model.tokenizer, "truncation", None)
            return truncation["max_length"] if truncation else None
        text = "a " * length
        # What a folder says about a call of its tokenizer goes before the length of the model.
        ids = self.model.preprocess([[text, "a"] if isinstance(self, PairModel) else text])["input_ids"]
        return ids.shape[-1] if ids.ndim == 2 else length

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.model.device

    def with_prompt(self, prompt: str | None = None, name: str | None = None) -> Self:
        """The same weights with a text before every sentence ("" for none), or with that of a name in the folder."""
        if prompt is None and name is None:
            return self
        form = ModelFormat(prompts=self.prompts, default_prompt=self.default_prompt)
        form = form.with_prompt(prompt, name, self.name)
        model = copy.copy(self)
        model.name = str(replace(ModelName.parse(self.name), prompt=prompt, prompt_name=name))
        model.prompt = form.prompt
        model.prompt_advice = ""
        model._tokenizer = self._tokenizer.with_prompt(form.prompt)
        return model

    def with_settings(self, name: ModelName) -> Self:
        self.check_settings(name)
        return self.with_prompt(name.prompt, name.prompt_name)

    def for_role(self, role: str) -> Self:
        model = copy.copy(self.with_prompt(**role_prompt(role, self.prompts, self.default_prompt)))
        model.prompt_advice = ""
        # A router reads queries by other modules than documents.
        model.role = role
        return model

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        return self._tokenizer.is_unknown(sentences)

    def read_tokens(self, sentences: Sequence[Any]) -> tuple[int, list[int]]:
        ids, cut = self._tokenizer.ids(sentences)
        return sum(map(len, ids)), cut

    @tokenizing()
    def _compute(self, sentences: Sequence[str], **options: Any) -> Any:
        """The answer of the library for texts, with the prompt and in the role of this model."""
        encode = getattr(self.model, f"encode_{self.role}" if self.role else "encode")
        readable = self._tokenizer.readable(sentences)
        with self._computing:
            return encode(readable, prompt=self.prompt, show_progress_bar=False, **options)


def open_library(library_class: str, folder: ModelFolder, dtype: torch.dtype, device: torch.device) -> Any:
    """A model of sentence-transformers in a folder, in evaluation mode.

    InputError if a class is none of its modules, it cannot be opened, or tokenizer, embeddings or weights do not fit.
    """
    with importing:
        import sentence_transformers

    check_classes(folder)
    check_chat_templates(folder.path)
    options = {"dtype": dtype, "use_safetensors": True}
    try:
        with quiet():
            model = getattr(sentence_transformers, library_class)(
                str(folder.path),
                device=str(device),
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs=options,
            ).eval()
    except Exception as error:
        # The library and transformers raise errors of many kinds about settings and files.
        raise unopened(folder.path, "by sentence-transformers", error) from error
    if dtype == torch.float32:
        # A table may be stored in half precision.
        model = model.float()
    check_backbone(folder.path, model)
    _check_numbers(folder, model)
    tables = [module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)]
    tokens = len(model.tokenizer.get_vocab())
    if model.transformers_model is None and tables and tokens > max(tables):
        raise InputError(f"{folder.path} has {tokens:,} tokens, but vectors for {max(tables):,} only; fetch it again")
    for module in model.modules():
        backbone = getattr(module, "model", None)
        tokenizer = getattr(module, "tokenizer", None)
        if backbone is not None and getattr(tokenizer, "is_fast", False):
            fitting = as_in_file(tokenizer, folder.first)
            if fitting is not tokenizer:
                module.processor = fitting
            check_tokens(folder.path, fitting, backbone)
    return model


def check_classes(folder: ModelFolder) -> None:
    """InputError if a folder names what is no module of a model, though it can be imported from the library."""
    from sentence_transformers.base.modules import Module
    from sentence_transformers.sentence_transformer.modules.tokenizer import WordTokenizer
    from sentence_transformers.util import import_from_string

    for name in folder.classes():
        if name.startswith(PYLATE):
            continue
        try:
            kind = import_from_string(name)
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"{folder.path.name} has the module {name}, which is not installed: update "
                "sentence-transformers, or choose another model"
            ) from error
        if not (isinstance(kind, type) and issubclass(kind, Module | WordTokenizer)):
            raise InputError(f"{folder.path.name} has the module {name}, which is no module of a model")


def _check_numbers(folder: ModelFolder, model: Any) -> None:
    """InputError if a transformer has more weights than its files: transformers makes up those that are missing."""
    backbone = model.transformers_model
    if backbone is None or not (folder.weights / WEIGHTS).is_file():
        return
    stored = sum(int(np.prod(shape)) for shape in read_shapes(folder.weights).values())
    own = {id(weights): weights.numel() for name, weights in backbone.named_parameters() if "pooler." not in name}
    if sum(own.values()) > stored:
        raise InputError(f"{folder.weights} lacks weights: it has {stored:,} numbers; fetch the model again")


class STEncoder(STModel, VectorModel):
    """A bi-encoder of any modules. ``STEncoder.load`` opens one."""

    batch_size = BATCH

    def _prepare(self, folder: ModelFolder) -> None:
        super()._prepare(folder)
        self.similarity_fn_name = self.model.similarity_fn_name
        self._set_dimension(self.model.get_embedding_dimension() or len(self.model.encode("a")))

    def _set_dimension(self, dimension: int) -> None:
        self.dimension = dimension
        self.settings = f"{self.dimension} {self.role} {self.prompt!r}"

    @classmethod
    def check_settings(cls, name: ModelName) -> None:
        """InputError if the name states a pooling, which the folder fixes."""
        super().check_settings(replace(name, prompt=None, prompt_name=None, dimension=None))

    def with_settings(self, name: ModelName) -> Self:
        self.check_settings(name)
        return self.with_prompt(name.prompt, name.prompt_name).with_dimension(name.dimension)

    def with_prompt(self, prompt: str | None = None, name: str | None = None) -> Self:
        model = super().with_prompt(prompt, name)
        if model is not self:
            model._set_dimension(self.dimension)
        return model

    def for_role(self, role: str) -> Self:
        model = super().for_role(role)
        model._set_dimension(self.dimension)
        return model

    def with_dimension(self, dimension: int | None) -> Self:
        """The same weights, keeping only the first ``dimension`` numbers of each vector; None changes nothing."""
        if dimension is None or dimension == self.dimension:
            return self
        if not 1 <= dimension <= self.dimension:
            raise InputError(f"{self.name} has {self.dimension} dimensions; keep 1 to {self.dimension}")
        model = copy.copy(self)
        model.name = str(replace(ModelName.parse(self.name), dimension=dimension))
        model._set_dimension(dimension)
        return model

    def encode_batch(self, sentences: Sequence[str]) -> np.ndarray:
        """A batch of n distinct sentences -> (n, D), as the model gives them."""
        return self._compute(sentences, truncate_dim=self.dimension)

    def weights_sample(self, most: int) -> Iterator[tuple[str, np.ndarray]]:
        """At most about ``most`` numbers of each parameter."""
        for name, tensor in sorted(self.model.state_dict().items()):
            sample = tensor.reshape(-1)[:: max(1, tensor.numel() // most)]
            yield f"{name} {tuple(tensor.shape)}", sample.float().cpu().numpy()

    def _read(self, parts: Iterator[list[str]]) -> Iterator[Chunk]:
        if self.prompt_advice:
            log.warning(self.prompt_advice)
            self.prompt_advice = ""
        for part in parts:
            distinct, inverse = numbered(part)
            ids, cut = self._tokenizer.ids(distinct)
            yield Chunk(distinct, inverse, [distinct[at] for at in cut], sum(map(len, ids)))


class STCrossEncoder(STModel, PairModel):
    """A cross-encoder of any modules. ``STCrossEncoder.load`` opens one."""

    library_class = CROSS_ENCODER

    def _prepare(self, folder: ModelFolder) -> None:
        super()._prepare(folder)
        tokenizer = self.model.tokenizer
        self.mask = str(tokenizer.mask_token or tokenizer.unk_token or "")
        if self.model.num_labels != 1:
            raise InputError(
                f"{self.name} returns {self.model.num_labels} numbers for a pair; a cross-encoder for similarity "
                "returns one"
            )

    def _compute_scores(
        self, rows: Rows, batch_size: int | None, should_stop: ShouldStop | None, forward: Forward
    ) -> np.ndarray:
        parts = []
        for start in steps(range(0, len(rows), BATCH), lambda done, _: forward(done), should_stop):
            part = [list(pair) for pair in rows[start : start + BATCH]]
            options = {"prompt": self.prompt, "batch_size": batch_size or 32, "show_progress_bar": False}
            with self._computing:
                parts.append(self.model.predict(part, **options))
        return np.concatenate(parts)

    def tokens(self, text: str) -> TokenVectors:
        [encoding] = self._tokenizer.with_prompt("").encodings([text])
        return TokenVectors(encoding.tokens, encoding.word_ids, encoding.offsets, np.empty((len(encoding.ids), 0)))

    def read_tokens(self, sentences: Sequence[Any]) -> tuple[int, list[int]]:
        firsts, _ = self._tokenizer.ids([first for first, _ in sentences])
        seconds, _ = self._tokenizer.with_prompt("").ids([second for _, second in sentences])
        lengths = [len(first) + len(second) for first, second in zip(firsts, seconds, strict=True)]
        longest = self.max_length
        return sum(lengths), [at for at, length in enumerate(lengths) if longest and length > longest]

    def _chunk(self, pairs: list[Pair], inverse: list[int]) -> Chunk:
        tokens, cut = self.read_tokens(pairs)
        firsts = self._tokenizer.readable([first for first, _ in pairs])
        seconds = self._tokenizer.readable([second for _, second in pairs])
        rows = list(zip(firsts, seconds, strict=True))
        return Chunk(rows, inverse, [pairs[at] for at in cut], tokens)


class Term(NamedTuple):
    """A token, its weight in two texts, and the product of these, its share of the dot product."""

    token: str
    first: float
    second: float
    share: float
    in_first: bool  # whether the text has it, or it was added
    in_second: bool


class SparseEncoder(STModel, SparseModel):
    """A sparse encoder of SPLADE's kind. ``SparseEncoder(name)`` opens one.

    A text is a weight for each token of the vocabulary, nearly all 0: it has weights also for words that it does not
    contain, and an inverted index finds it by them.
    """

    library_class = SPARSE_ENCODER
    dimension: int  # V

    def _prepare(self, folder: ModelFolder) -> None:
        super()._prepare(folder)
        self.dimension = self._compute(["a"]).shape[-1]
        names = self.model.tokenizer.convert_ids_to_tokens(range(self.vocabulary_size))
        self.vocabulary = names if len(names) == self.dimension else [str(row) for row in range(self.dimension)]

    def weigh(self, queries: Sequence[str], documents: Sequence[str], **watch: Any) -> tuple[csr_matrix, csr_matrix]:
        """The weights of both, each side with the prompt that the folder has for it."""
        weights = self.for_role("document").encode_sparse(documents, **watch)
        return self.for_role("query").encode_sparse(queries), weights

    def encode_sparse(
        self, sentences: Sequence[str], on_progress: Progress | None = None, should_stop: ShouldStop | None = None
    ) -> csr_matrix:
        """Sentences -> float32 (N, V), in the caller's order; ``vocabulary`` names the columns."""
        listed = texts(sentences)
        blocks = [csr_matrix(np.empty((0, self.dimension), dtype=np.float32))]
        for start in steps(range(0, len(listed), BATCH), on_progress, should_stop):
            weights = self._compute(listed[start : start + BATCH], save_to_cpu=True).float().coalesce()
            blocks.append(csr_matrix((weights.values(), weights.indices().numpy()), weights.shape))
        return vstack(blocks, format="csr")

    def terms(self, a: str, b: str) -> list[Term]:
        """The tokens that either text has a weight for, by their share of the dot product, then by weight."""
        weights = self.encode_sparse([a, b]).toarray()
        own = [np.isin(np.arange(self.dimension), row) for row in self._tokenizer.ids([a, b])[0]]
        columns = zip(self.vocabulary, *weights.tolist(), weights.prod(axis=0).tolist(), *own, strict=True)
        terms = [Term(*column) for column in columns if column[1] or column[2]]
        return sorted(terms, key=lambda term: (-term.share, -term.first - term.second))


class MultiVectorModel(STModel, LateInteraction):
    """A model of ColBERT's kind. ``MultiVectorModel.load`` opens one."""

    library_class = MULTI_VECTOR
    is_symmetric = False

    def _prepare(self, folder: ModelFolder) -> None:
        super()._prepare(folder)
        self.takes_mean = self.model.similarity_fn_name == "meanmaxsim"

    def token_vectors(self, sentences: Sequence[str], role: str = "document") -> list[TokenVectors]:
        vectors = []
        for text in self.for_role(role)._compute(texts(sentences), output_value=None, convert_to_numpy=False):
            is_counted = text["attention_mask"].bool()
            hidden = text["token_embeddings"][is_counted].float().cpu().numpy()
            names = self.model.tokenizer.convert_ids_to_tokens(text["input_ids"][is_counted])
            if not len(hidden):
                hidden = np.zeros((1, text["token_embeddings"].shape[-1]), np.float32)
            vectors.append(TokenVectors(names or [""], [], [], hidden))
        return vectors
