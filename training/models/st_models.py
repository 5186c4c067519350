"""The models that sentence-transformers opens: every folder with a module or a setting that is not computed here.

    STEncoder           SentenceTransformer: static embeddings, word vectors, routers, chat templates, …
    STCrossEncoder      CrossEncoder: language models that answer yes or no, several texts by a chat template, …
    SparseEncoder       SparseEncoder: SPLADE (Formal et al. 2021) and similar models
    MultiVectorModel    MultiVectorEncoder: ColBERT, also as PyLate and its authors publish it

The library defines the format, so modules of later versions open without a change here.
`ModelFolder.checked` has checked the folder before. This module checks that every class is a module
of the library, and that tokenizer, embeddings and weights match. These models cannot be trained
here.
"""

from __future__ import annotations

import copy
import math
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
from training.models.loading import (
    NO_LIMIT,
    as_in_file,
    check_tokens,
    import_lock,
    opening_error,
    quiet,
)
from training.models.maxsim import LateInteraction
from training.models.model import Model, Pair, PairModel, VectorModel, log, sample_weights
from training.models.sizes import check_backbone, read_shapes
from training.models.texts import Chunk, OnRows, Rows, numbered, texts, tokenizing
from training.models.tokenization import (
    TextTokenizer,
    TokenVectors,
    text_tokenizer,
    without_vectors,
)
from training.names import ModelName
from training.progress import Progress, ShouldStop, steps

PYLATE = "pylate."
# Texts or pairs in one call of the library, which sorts them by length and computes 32 at a time.
BATCH = 256


class STModel(Model):
    """The base class of the four kinds: the library's model, its tokenizer, and the prompt and role of texts."""

    has_dtype = True
    why_vectors_only = "sentence-transformers computes it"
    library_class = SENTENCE_TRANSFORMER
    model: Any
    prompt: str = ""
    role: str | None = None  # query or document, as `for_role` sets it; None for neither
    default_prompt: str | None = None  # the name of a prompt
    dtype: torch.dtype
    source: str
    prompts: Any
    prompt_advice: str = ""
    _tokenizer: TextTokenizer
    _max_length: int | None
    _computing: threading.Lock

    def __init__(self, name: ModelName | Path | str | None = None, **options: Any) -> None:
        """Opens a model by name with the arguments of `load`, which fills a model without a name."""
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
        """Loads a folder or Hub id. Arguments and errors are as in `Encoder.load`, but int8 is not supported."""
        parsed = ModelName.parse(name)
        cls.check_settings(parsed)
        torch_device = pick_device(device)
        torch_dtype = pick_dtype(parsed.dtype or dtype, torch_device)
        if torch_dtype == torch.int8:
            raise InputError(f"{parsed.name} has no int8; choose auto")
        folder = folder or ModelFolder.of(parsed.name, home)
        opened = cls()
        # transformers' tokenizers change their settings in each call, so threads take turns.
        opened._computing = threading.Lock()
        # The name of the weights alone; `with_settings` adds the settings to it.
        opened.name = str(parsed.weights)
        opened.dtype = torch_dtype
        opened.source = folder.source
        opened.model = open_library(cls.library_class, folder, torch_dtype, torch_device)
        opened._prepare(folder)
        return opened.with_settings(parsed)

    def _prepare(self, folder: ModelFolder) -> None:
        """Sets the attributes that depend on the library's model. Subclasses add their own."""
        self.prompts = dict(self.model.prompts)
        self.default_prompt = self.model.default_prompt_name
        self.prompt = self.prompts.get(self.default_prompt, "")
        if not self.prompt:
            self.prompt_advice = prompt_advice(self.name, folder.first, self.prompts)
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
        """Returns the number of tokens that a long text is cut to. None for no limit, or an unknown one."""
        length = self.model.max_seq_length
        if not isinstance(length, int) or length >= NO_LIMIT:
            # The tokenizer of a static embedding may cut texts itself.
            truncation = getattr(self.model.tokenizer, "truncation", None)
            return truncation["max_length"] if truncation else None
        # The settings of the tokenizer take precedence over the length of the model, so the limit
        # is measured.
        text = "a " * length
        sample = [text, "a"] if isinstance(self, PairModel) else text
        ids = self.model.preprocess([sample])["input_ids"]
        # Not all modules of the library take ids of the shape (B, T).
        return ids.shape[-1] if ids.ndim == 2 else length

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.model.device

    def with_prompt(self, prompt: str | None = None, name: str | None = None) -> Self:
        """Returns the same weights with a text before every sentence ("" for none), or with a prompt of the folder."""
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
        # `with_prompt` may return this model itself, which must not change.
        model = copy.copy(self.with_prompt(**role_prompt(role, self.prompts, self.default_prompt)))
        # The caller follows the advice to use prompts.
        model.prompt_advice = ""
        # A router has different modules for queries and documents.
        model.role = role
        return model

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        return self._tokenizer.is_unknown(sentences)

    def read_tokens(self, sentences: Sequence[Any]) -> tuple[int, list[int]]:
        ids, cut = self._tokenizer.ids(sentences)
        return sum(map(len, ids)), cut

    @tokenizing()
    def _compute(self, sentences: Sequence[str], **options: Any) -> Any:
        """Computes texts with the library, with the prompt and in the role of this model."""
        method = f"encode_{self.role}" if self.role else "encode"
        encode = getattr(self.model, method)
        readable = self._tokenizer.readable(sentences)
        with self._computing:
            return encode(readable, prompt=self.prompt, show_progress_bar=False, **options)


def open_library(
    library_class: str, folder: ModelFolder, dtype: torch.dtype, device: torch.device
) -> Any:
    """Opens a model of sentence-transformers in a folder, in evaluation mode.

    InputError if a class is not a module of the library, or tokenizer, embeddings and weights do
    not match.
    """
    with import_lock:
        import sentence_transformers

    check_classes(folder)
    check_chat_templates(folder.path)
    opener = getattr(sentence_transformers, library_class)
    try:
        with quiet():
            model = opener(
                str(folder.path),
                device=str(device),
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"dtype": dtype, "use_safetensors": True},
            )
    except Exception as error:
        # The library and transformers raise errors of many kinds about settings and files.
        raise opening_error(folder.path, "by sentence-transformers", error) from error
    model.eval()
    if dtype == torch.float32:
        # Static embeddings may be stored in half precision.
        model = model.float()
    check_backbone(folder.path, model)
    _check_missing_weights(folder, model)
    # The numbers of rows of the tables of token vectors, for a model without a transformer. The
    # tables of transformers are checked below by `check_tokens`.
    sizes = []
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            sizes.append(module.num_embeddings)
    tokens = len(model.tokenizer.get_vocab())
    largest = max(sizes, default=tokens)
    if model.transformers_model is None and tokens > largest:
        raise InputError(
            f"{folder.path} has {tokens:,} tokens, but vectors for {largest:,} only; fetch it again"
        )
    # Each transformer in the model gets a tokenizer that reads texts as tokenizer.json says.
    for module in model.modules():
        backbone = getattr(module, "model", None)
        tokenizer = getattr(module, "tokenizer", None)
        if backbone is not None and getattr(tokenizer, "is_fast", False):
            file_tokenizer = as_in_file(tokenizer, folder.first)
            if file_tokenizer is not tokenizer:
                # The library's property ``tokenizer`` returns the processor.
                module.processor = file_tokenizer
            check_tokens(folder.path, file_tokenizer, backbone)
    return model


def check_classes(folder: ModelFolder) -> None:
    """Raises InputError if a folder names a class of the library that is not a module of a model."""
    # sentence-transformers takes seconds to import.
    from sentence_transformers.base.modules import Module
    from sentence_transformers.sentence_transformer.modules.tokenizer import WordTokenizer
    from sentence_transformers.util import import_from_string

    for name in folder.classes():
        # The library opens PyLate's Dense as a Dense of its own.
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
            raise InputError(
                f"{folder.path.name} has the module {name}, which is no module of a model"
            )


def _check_missing_weights(folder: ModelFolder, model: Any) -> None:
    """Raises InputError if a transformer has more weights than its files.

    transformers fills in missing weights with random numbers.
    """
    backbone = model.transformers_model
    # Weights in several files, or in the folders of a Router, are not counted.
    if backbone is None or not (folder.weights / WEIGHTS).is_file():
        return
    stored = sum(map(math.prod, read_shapes(folder.weights).values()))
    # named_parameters() returns shared weights once.
    needed = 0
    for name, weights in backbone.named_parameters():
        # Many folders lack BERT's pooler, and nothing here uses it.
        if "pooler." not in name:
            needed += weights.numel()
    if needed > stored:
        raise InputError(
            f"{folder.weights} lacks weights: it has {stored:,} numbers; fetch the model again"
        )


class STEncoder(STModel, VectorModel):
    """A bi-encoder with any modules. ``STEncoder.load`` opens one."""

    batch_size = BATCH

    def _prepare(self, folder: ModelFolder) -> None:
        super()._prepare(folder)
        self.similarity_fn_name = self.model.similarity_fn_name
        # Some modules do not state their dimension.
        self.dimension = self.model.get_embedding_dimension() or len(self.model.encode("a"))

    @property
    def settings(self) -> str:  # type: ignore[override]
        """The dimension, the role and the prompt, which change the vectors."""
        return f"{self.dimension} {self.role} {self.prompt!r}"

    @classmethod
    def check_settings(cls, name: ModelName) -> None:
        """Raises InputError if the name states a pooling, as the folder decides it."""
        super().check_settings(replace(name, prompt=None, prompt_name=None, dimension=None))

    def with_settings(self, name: ModelName) -> Self:
        self.check_settings(name)
        return self.with_prompt(name.prompt, name.prompt_name).with_dimension(name.dimension)

    def with_dimension(self, dimension: int | None) -> Self:
        """Returns the same weights, keeping the first ``dimension`` numbers of each vector. None changes nothing."""
        if dimension is None or dimension == self.dimension:
            return self
        if not 1 <= dimension <= self.dimension:
            raise InputError(
                f"{self.name} has {self.dimension} dimensions; keep 1 to {self.dimension}"
            )
        model = copy.copy(self)
        model.name = str(replace(ModelName.parse(self.name), dimension=dimension))
        model.dimension = dimension
        return model

    def encode_batch(self, sentences: Sequence[str]) -> np.ndarray:
        return self._compute(sentences, truncate_dim=self.dimension)

    def weights_sample(self, most: int) -> Iterator[tuple[str, np.ndarray]]:
        return sample_weights(self.model, most)

    def _read(self, parts: Iterator[list[str]]) -> Iterator[Chunk]:
        """Counts the tokens of each part, and yields its distinct sentences as texts."""
        if self.prompt_advice:
            log.warning(self.prompt_advice)
            self.prompt_advice = ""
        for part in parts:
            # Its rows are token ids.
            chunk = self._tokenizer.chunk(part)
            # The library takes texts and tokenizes them itself, so the distinct texts take the place
            # of the rows.
            distinct, _ = numbered(part)
            yield chunk._replace(rows=distinct)


class STCrossEncoder(STModel, PairModel):
    """A cross-encoder with any modules. ``STCrossEncoder.load`` opens one."""

    library_class = CROSS_ENCODER

    def _prepare(self, folder: ModelFolder) -> None:
        super()._prepare(folder)
        tokenizer = self.model.tokenizer
        # The token that explanations put in place of a word.
        self.mask = str(tokenizer.mask_token or tokenizer.unk_token or "")
        if self.model.num_labels != 1:
            raise InputError(
                f"{self.name} returns {self.model.num_labels} numbers for a pair; a cross-encoder for similarity "
                "returns one"
            )

    def _compute_scores(
        self, rows: Rows, batch_size: int | None, should_stop: ShouldStop | None, on_rows: OnRows
    ) -> np.ndarray:
        parts = []
        for start in steps(range(0, len(rows), BATCH), lambda done, _: on_rows(done), should_stop):
            pairs = [list(pair) for pair in rows[start : start + BATCH]]
            with self._computing:
                scores = self.model.predict(
                    pairs,
                    prompt=self.prompt,
                    # 32 is the library's default.
                    batch_size=batch_size or 32,
                    show_progress_bar=False,
                )
            parts.append(scores)
        return np.concatenate(parts)

    def tokens(self, text: str) -> TokenVectors:
        [encoding] = self._tokenizer.with_prompt("").encodings([text])
        return without_vectors(encoding)

    def read_tokens(self, sentences: Sequence[Any]) -> tuple[int, list[int]]:
        # The inputs are pairs. The prompt is counted once, before the first text. Special tokens
        # are counted as if each text were alone.
        firsts, _ = self._tokenizer.ids([first for first, _ in sentences])
        seconds, _ = self._tokenizer.with_prompt("").ids([second for _, second in sentences])
        lengths = [len(first) + len(second) for first, second in zip(firsts, seconds, strict=True)]
        cut = []
        if self.max_length is not None:
            cut = [row for row, length in enumerate(lengths) if length > self.max_length]
        return sum(lengths), cut

    def _chunk(self, pairs: list[Pair], inverse: list[int]) -> Chunk:
        tokens, cut = self.read_tokens(pairs)
        firsts = self._tokenizer.readable([first for first, _ in pairs])
        seconds = self._tokenizer.readable([second for _, second in pairs])
        rows = list(zip(firsts, seconds, strict=True))
        return Chunk(rows, inverse, [pairs[row] for row in cut], tokens)


class Term(NamedTuple):
    """A token and its weights in two texts. ``share``, the product of both, is its part of the dot product."""

    token: str
    first: float
    second: float
    share: float
    in_first: bool  # whether the text contains it; otherwise the model has added it
    in_second: bool


class SparseEncoder(STModel, SparseModel):
    """A sparse encoder such as SPLADE. ``SparseEncoder(name)`` opens one.

    It encodes a text as a weight for each token of the vocabulary, nearly all 0. Words that the
    text does not contain can have weights too, and an inverted index finds the text by them.

    Example::

        from sbert_lab import SparseEncoder

        encoder = SparseEncoder("naver/splade-v3")
        weights = encoder.encode_sparse(["A man is eating.", "A man eats food."])
        print(weights.shape)  # (2, size of the vocabulary)
        print(encoder.terms("A man is eating.", "A man eats food.")[:3])
    """

    library_class = SPARSE_ENCODER
    dimension: int  # V

    def _prepare(self, folder: ModelFolder) -> None:
        super()._prepare(folder)
        self.dimension = self._compute(["a"]).shape[-1]
        names = self.model.tokenizer.convert_ids_to_tokens(range(self.vocabulary_size))
        # Without names for all columns, the columns are numbered.
        if len(names) != self.dimension:
            names = [str(column) for column in range(self.dimension)]
        self.vocabulary = names

    def weigh(
        self, queries: Sequence[str], documents: Sequence[str], **watch: Any
    ) -> tuple[csr_matrix, csr_matrix]:
        """Computes the weights of queries and of documents, each with the folder's prompt for their role."""
        # Only the documents report progress.
        document_weights = self.for_role("document").encode_sparse(documents, **watch)
        return self.for_role("query").encode_sparse(queries), document_weights

    def encode_sparse(
        self,
        sentences: Sequence[str],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> csr_matrix:
        """Encodes sentences: sparse float32 (N, V), in their order. ``vocabulary`` names the columns."""
        listed = texts(sentences)
        # vstack needs at least one block, and an empty input gives none.
        blocks = [csr_matrix(np.empty((0, self.dimension), dtype=np.float32))]
        for start in steps(range(0, len(listed), BATCH), on_progress, should_stop):
            output = self._compute(listed[start : start + BATCH], save_to_cpu=True)
            weights = output.float().coalesce()
            blocks.append(
                csr_matrix((weights.values().numpy(), weights.indices().numpy()), weights.shape)
            )
        return vstack(blocks, format="csr")

    def terms(self, a: str, b: str) -> list[Term]:
        """Returns the tokens with a weight in either text, sorted by their share of the dot product, then by weight."""
        weights = self.encode_sparse([a, b]).toarray()
        [ids_a, ids_b], _ = self._tokenizer.ids([a, b])
        terms = []
        # A column of the weights is the id of a token.
        for column in np.flatnonzero(weights.any(axis=0)).tolist():
            first, second = weights[:, column].tolist()
            share = float(weights[0, column] * weights[1, column])
            token = self.vocabulary[column]
            terms.append(Term(token, first, second, share, column in ids_a, column in ids_b))
        return sorted(terms, key=lambda term: (-term.share, -term.first - term.second))


class MultiVectorModel(STModel, LateInteraction):
    """A model such as ColBERT. ``MultiVectorModel.load`` opens one."""

    library_class = MULTI_VECTOR
    is_symmetric = False

    def _prepare(self, folder: ModelFolder) -> None:
        super()._prepare(folder)
        self.takes_mean = self.model.similarity_fn_name == "meanmaxsim"

    def token_vectors(self, sentences: Sequence[str], role: str = "document") -> list[TokenVectors]:
        in_role = self.for_role(role)
        # None asks for the tokens beside the vectors.
        outputs = in_role._compute(texts(sentences), output_value=None, convert_to_numpy=False)
        vectors = []
        for text in outputs:
            # The library's mask is 0 for padding, and for tokens that are not compared.
            is_compared = text["attention_mask"].bool()  # (T,)
            hidden = text["token_embeddings"][is_compared].float().cpu().numpy()  # (T, D)
            names = self.model.tokenizer.convert_ids_to_tokens(text["input_ids"][is_compared])
            # A text without tokens gets a zero vector.
            if not len(hidden):
                hidden = np.zeros((1, text["token_embeddings"].shape[-1]), np.float32)
            vectors.append(TokenVectors(names or [""], [], [], hidden))
        return vectors
