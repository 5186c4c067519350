"""Model: what all models are, and `open_model`, the one way to open any of them by name.

    open_model("all-MiniLM-L6-v2", "max")     or "tfidf", "minilm-stsb", "maxsim:<name>", "run:<id>", a folder, a Hub id

Every model scores pairs of texts. What else it can do is asked by its type:

    VectorModel     texts to vectors that can be compared with those of any other call: `Encoder`, endpoints, GloVe
    PairModel       both texts of a pair to one score: cross-encoders
    SparseModel     texts to weights of words (`training.models.lexical`): TF-IDF, SPLADE
    TokenModel      texts to a vector for each token: `Encoder`, ColBERT
    Retriever       ranks documents for queries: all of the above, and BM25

`OPENERS` lists the kinds of models, each with the names and folders that it claims; the first that claims a name opens
it. A new kind is a class with ``load``, and with `Model.score` or `VectorModel.encode_batch`, and its line there.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Self, TypeAlias, TypeVar

import numpy as np

from training.catalogue import BM25, DEFAULT_MODEL, GLOVE, TFIDF
from training.errors import InputError
from training.models.folder import MULTI_VECTOR, SPARSE_ENCODER, ModelFolder
from training.models.texts import CHUNK, Chunk, Forward, ReadReport, Rows, chunks, compute_chunks, numbered, texts
from training.names import ModelName
from training.plugins import plugins, tried
from training.pooling import NO_POOLING, normalize_rows
from training.progress import Progress, ShouldStop, progress_bar, steps

if TYPE_CHECKING:
    import torch
    from scipy.sparse import csr_matrix

    from training.models.tokenization import TokenVectors

    Vectors: TypeAlias = np.ndarray | csr_matrix  # (N, D)

Pair = tuple[str, str]
# For each query the rows of its best documents, int64 (≤ k,); equal ones by their row.
Ranking = list[np.ndarray]
M = TypeVar("M", bound="Model")

# The prefix of a SavedModel's name, and the endings of files of word vectors.
SAVED_MODEL, WORD_VECTOR_FILES = "use:", (".txt", ".vec", ".npy")

log = logging.getLogger("sbert_lab.encoder")


class Model(ABC):
    """A model that scores pairs of texts."""

    kind: ClassVar[str] = "model"  # as errors and pages call it
    why_vectors_only: ClassVar[str] = "its tokens and weights are not here"
    input_noun: ClassVar[str] = "sentence"  # what is read at a time
    has_dtype: ClassVar[bool] = False  # whether it computes in a precision that can be chosen
    name: str
    pooling: str | None = None
    dimension: int | None = None  # of its vectors, if it has any
    sent_to: str = ""  # the host and port that texts are sent to; "" if they stay on this machine

    @classmethod
    def load(cls, name: ModelName | str, *_: Any, **__: Any) -> Self:
        """The model of that name. A kind that reads files has its own ``load``, which takes what `Opener.open` gives.

        InputError if it cannot be opened, or the name states a setting that it does not have.
        """
        cls.check_settings(ModelName.parse(name))
        return cls()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def vocabulary_size(self) -> int:
        """The number of different tokens; 0 if they are not known here."""
        return 0

    @property
    def max_length(self) -> int | None:
        """The tokens that are read of a text; None where there is no limit."""
        return None

    @abstractmethod
    def score(
        self, pairs: Sequence[Pair], on_progress: Progress | None = None, should_stop: ShouldStop | None = None
    ) -> np.ndarray:
        """Pairs of texts -> float32 (N,): the larger, the more similar.

        ``on_progress`` is called with (done, all); ``should_stop`` is asked before each batch, and ``Stopped`` raised.
        """

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        """Whether each text has no token that the model knows, so that its scores say nothing.

        Such are emoji, or the letters of a language that the model was not made for. No text is, where every byte is a
        token, or a model does not say which tokens it has.
        """
        return [False] * len(sentences)

    def start_multi_process_pool(self, *_: Any, **__: Any) -> NoReturn:
        """InputError: what sentence-transformers does in several processes is done in one."""
        raise InputError(
            "there are no pools of processes: one process uses all cores, or one GPU; leave pool out, and for several "
            'GPUs start a process for each, which opens the model with device="cuda:0", "cuda:1", …'
        )

    def warn_of_truncation(self, cut: int) -> None:
        """Logs how many sentences, or pairs, were cut, if any were."""
        if cut:
            what = f"{self.input_noun} was" if cut == 1 else f"{self.input_noun}s were"
            log.warning("%d %s cut at %d tokens", cut, what, self.max_length)

    def read_tokens(self, sentences: Sequence[Any]) -> tuple[int, list[int]]:
        """The number of tokens that are read of the texts, or of pairs, and the positions of those that are cut.

        (0, []) for a model that does not count tokens.
        """
        return 0, []

    @classmethod
    def check_settings(cls, name: ModelName) -> None:
        """InputError if the name states a setting that models of this kind do not have."""
        if name.pooling not in (None, cls.pooling):
            pools = "pools nothing" if cls.pooling in (None, NO_POOLING) else f"always takes the {cls.pooling}"
            raise InputError(f"{name.name} is {_with_article(cls.kind)}, which {pools}; leave the pooling out")
        if name.dimension is not None or name.states_prompt:
            raise InputError(f"{name.name} has neither dimensions nor prompts to choose; leave them out")
        if name.dtype and not cls.has_dtype:
            raise InputError(f"{name.name} has no precision to choose; leave {name.dtype} out")

    def with_settings(self, name: ModelName) -> Self:
        """The same model with the settings that the name states. InputError for one that it does not have."""
        self.check_settings(name)
        return self

    def for_role(self, role: str) -> Self:
        """The same weights with the prompt that the model's folder has for a ``query`` or a ``document``, if any."""
        return self


def check_pairs(pairs: Sequence[Pair], offset: int = 0) -> None:
    """InputError if a pair is not two texts, with its number; ``offset`` came before them."""
    for number, pair in enumerate(pairs, offset + 1):
        if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise InputError(f"pair {number} is not two texts: give pairs such as (sentence1, sentence2)")


class Retriever(ABC):
    """A model that ranks documents for queries."""

    name: str

    @abstractmethod
    def search(self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any) -> Ranking:
        """The best ``k`` documents for each query. ``watch``: on_progress and should_stop, as of `Model.score`."""


class TokenModel(Model):
    """A model with a vector for each token."""

    @abstractmethod
    def token_vectors(self, sentences: Sequence[str]) -> list[TokenVectors]:
        """The tokens of each text with their vectors."""


class PairModel(Model):
    """A cross-encoder, which reads both texts of a pair together."""

    kind, input_noun, has_dtype = "cross-encoder", "pair", True
    mask: str = ""  # the token that stands for a word that is left out
    card: dict[str, Any] | None = None  # data, settings, Spearman ×100 on STSb dev and test; None if not known

    @classmethod
    def check_settings(cls, name: ModelName) -> None:
        """InputError if the name states a setting that cross-encoders do not have; they have prompts."""
        super().check_settings(replace(name, prompt=None, prompt_name=None))

    def predict(
        self,
        pairs: Iterable[Pair],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
        report: ReadReport | None = None,
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        convert_to_tensor: bool = False,
        pool: Any = None,
    ) -> Any:
        """Pairs of sentences -> float32 (N,), in the caller's order.

        From 0 (nothing in common) to 1 (the same meaning). A model whose configuration names the identity as its
        activation returns bare logits, as in sentence-transformers.

        Args:
            pairs: any two texts each, also empty; truncated at ``max_length``, which is counted and logged.
            batch_size: pairs computed at a time, at most, to save memory; None = as many as is fast here.
            convert_to_tensor: return a tensor, not a NumPy array.
            pool: None; InputError for a pool of processes.
        """
        if pool is not None:
            self.start_multi_process_pool()
        listed = pairs if isinstance(pairs, Sequence) else list(pairs)
        report = report or ReadReport()
        before = report.truncated

        def compute(rows: Rows, forward: Forward) -> np.ndarray:
            return self._compute_scores(rows, batch_size, should_stop, forward)

        parts = (self._read_pairs(listed, start) for start in range(0, len(listed), CHUNK))
        scores = [np.empty(0, dtype=np.float32)]
        with progress_bar(show_progress_bar, "Scoring", on_progress) as progress:
            scores += compute_chunks(parts, compute, report, progress, len(listed))
        self.warn_of_truncation(report.truncated - before)
        results = np.concatenate(scores)
        if not convert_to_tensor:
            return results
        import torch

        return torch.from_numpy(results)

    def _read_pairs(self, pairs: Sequence[Pair], start: int) -> Chunk:
        """A chunk of the pairs as the model reads them. InputError if one is not two texts."""
        part = pairs[start : start + CHUNK]
        check_pairs(part, start)
        distinct, inverse = numbered((first, second) for first, second in part)
        return self._chunk(distinct, inverse)

    @abstractmethod
    def _chunk(self, pairs: list[Pair], inverse: list[int]) -> Chunk:
        """Distinct pairs as the model reads them."""

    @abstractmethod
    def _compute_scores(
        self, rows: Rows, batch_size: int | None, should_stop: ShouldStop | None, forward: Forward
    ) -> np.ndarray:
        """The scores of the rows of a chunk, (n,); ``forward`` gets the number that is done."""

    def score(
        self, pairs: Sequence[Pair], on_progress: Progress | None = None, should_stop: ShouldStop | None = None
    ) -> np.ndarray:
        """The same as ``predict``."""
        return self.predict(pairs, on_progress, should_stop)

    @abstractmethod
    def tokens(self, text: str) -> TokenVectors:
        """The tokens of a text alone, without vectors."""

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """The documents by their score with a query, best first: ``corpus_id`` (row), ``score`` and perhaps ``text``.

        Args:
            top_k: how many to return; None = all.
            return_documents: put the documents into the result too, as ``text``.
            options: of ``predict``.
        """
        listed = texts(documents)
        scores = self.predict([(query, document) for document in listed], **options)
        best = np.argsort(-scores, kind="stable")[:top_k].tolist()
        results = []
        for row in best:
            result = {"corpus_id": row, "score": float(scores[row])}
            results.append({**result, "text": listed[row]} if return_documents else result)
        return results


class VectorModel(Model, Retriever):
    """A model of sentence vectors. A new kind has `encode_batch`, or its own `_read` and `_vectors`."""

    kind = "bi-encoder"
    pooling: str = NO_POOLING
    dimension: int  # D, the length of a sentence vector
    similarity_fn_name: str = "cosine"  # by which its vectors are compared in retrieval
    settings: str = ""  # what its vectors depend on beside its weights, as one line; "" if nothing is special
    chunk_size: int = CHUNK  # sentences that are read and sorted by length together
    batch_size: ClassVar[int] = 256  # sentences of a call of `encode_batch`, at most
    prompt: str = ""  # the text put before every sentence, "" for none
    prompts: Mapping[str, str] = {}  # the prompts of the model's folder, by name
    prompt_advice: str = ""  # one sentence if the model was trained with prompts and none is used

    def encode(
        self,
        sentences: Sequence[str],
        normalize: bool | None = True,
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
        report: ReadReport | None = None,
    ) -> np.ndarray:
        """Sentences -> float32 (N, D), in the caller's order; each distinct one is encoded once.

        ``normalize`` scales to length 1; None does what the model's folder says. ``report`` is filled with counts. The
        rest is as in `Model.score`. InputError if a sentence is not text.
        """
        distinct, inverse = numbered(texts(sentences))
        report, n, start = report or ReadReport(), len(inverse), 0
        progress = None if on_progress is None else lambda done, _: on_progress(n * done // len(distinct), n)
        vectors = np.empty((len(distinct), self.dimension), dtype=np.float32)
        for part in self.encode_stream(distinct, self.chunk_size, normalize, progress, should_stop, report):
            vectors[start : start + len(part)] = part
            start += len(part)
        report.inputs += n - len(distinct)
        return vectors if len(distinct) == n else vectors[inverse]

    def encode_stream(
        self,
        sentences: Iterable[str],
        chunk: int = CHUNK,
        normalize: bool | None = True,
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
        report: ReadReport | None = None,
    ) -> Iterator[np.ndarray]:
        """Like ``encode`` for any iterable: yields float32 (n, D) for ``chunk`` sentences at a time.

        Memory stays flat however many there are. A sentence that occurs twice in a chunk is encoded once. While a GPU
        encodes a chunk, the next one is read and tokenised.
        """
        report = report or ReadReport()
        before = report.truncated

        def compute(rows: Rows, forward: Forward) -> np.ndarray:
            return self._vectors(rows, normalize, forward, should_stop, report)

        yield from compute_chunks(self._read(chunks(sentences, chunk)), compute, report, on_progress)
        self.warn_of_truncation(report.truncated - before)

    def encode_batch(self, sentences: Sequence[str]) -> np.ndarray:
        """A batch of n distinct sentences -> (n, D), as the model gives them."""
        raise NotImplementedError

    def encode_query(self, sentences: Sequence[str], normalize: bool | None = True, **options: Any) -> np.ndarray:
        """Like ``encode``, whose options it takes, with the prompt that the model's folder has for queries."""
        return self.for_role("query").encode(sentences, normalize, **options)

    def encode_document(self, sentences: Sequence[str], normalize: bool | None = True, **options: Any) -> np.ndarray:
        """Like ``encode``, whose options it takes, with the prompt that the model's folder has for documents."""
        return self.for_role("document").encode(sentences, normalize, **options)

    def score(
        self, pairs: Sequence[Pair], on_progress: Progress | None = None, should_stop: ShouldStop | None = None
    ) -> np.ndarray:
        """The cosine of each pair, float32 (N,)."""
        check_pairs(pairs)
        sentences = [pair[side] for side in (0, 1) for pair in pairs]
        first, second = np.split(self.encode(sentences, True, on_progress, should_stop), 2)
        return np.einsum("nd,nd->n", first, second)

    def search(self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any) -> Ranking:
        """The nearest documents by the model's similarity, a chunk of vectors in memory at a time.

        Queries and documents have the prompts that the folder has for them, unless the model's name states one.
        """
        from training.search import SearchIndex

        for_query, for_document = self, self
        if not ModelName.parse(self.name).states_prompt:
            for_query, for_document = self.for_role("query"), self.for_role("document")
        forward, should_stop = watch.get("on_progress"), watch.get("should_stop")
        progress = None if forward is None else lambda done, _: forward(done, len(documents))
        vectors = for_query.encode(queries, None, should_stop=should_stop)
        scores, rows, done = np.empty((len(queries), 0)), np.empty((len(queries), 0), np.int64), 0
        for part in for_document.encode_stream(documents, self.chunk_size, None, progress, should_stop):
            nearest = SearchIndex(part, self.similarity_fn_name).nearest(vectors, min(k, len(part)))
            scores, rows, done = np.hstack([scores, nearest[0]]), np.hstack([rows, nearest[1] + done]), done + len(part)
            best = np.lexsort((rows, -scores))[:, :k]
            scores, rows = np.take_along_axis(scores, best, 1), np.take_along_axis(rows, best, 1)
        return list(rows)

    def weights_sample(self, most: int) -> Iterator[tuple[str, np.ndarray]]:
        """At most about ``most`` numbers of each table of weights, by name: what identifies a model."""
        yield from ()

    def with_pooling(self, pooling: str | None) -> Self:
        """The same weights (shared, not copied) under another pooling. InputError if it has no other one."""
        self.check_settings(ModelName(self.name, pooling=pooling))
        return self

    def allows_pooling(self, pooling: str) -> bool:
        """Whether `with_pooling` would return a model."""
        with suppress(InputError):
            self.with_pooling(pooling)
            return True
        return False

    def _read(self, parts: Iterator[list[str]]) -> Iterator[Chunk]:
        """Chunks of sentences as the model reads them."""
        return (Chunk(*numbered(part)) for part in parts)

    def _vectors(
        self, rows: Rows, normalize: bool | None, forward: Forward, should_stop: ShouldStop | None, report: ReadReport
    ) -> np.ndarray:
        """The vectors of the rows of a chunk, (n, D); ``forward`` gets the number that is done."""
        vectors = np.empty((len(rows), self.dimension), dtype=np.float32)
        for start in steps(range(0, len(rows), self.batch_size), lambda done, _: forward(done), should_stop):
            part = slice(start, start + self.batch_size)
            vectors[part] = self.encode_batch(rows[part])
        return normalize_rows(vectors) if normalize else vectors


def best_rows(rows: np.ndarray, scores: np.ndarray, k: int) -> np.ndarray:
    """The k of ``rows`` (n,) with the highest scores, best first; of equal ones the first rows."""
    if len(rows) > k:
        is_enough = scores >= np.partition(scores, len(scores) - k)[len(scores) - k]
        rows, scores = rows[is_enough], scores[is_enough]
    return rows[np.lexsort((rows, -scores))[:k]].astype(np.int64)


class Opener(NamedTuple):
    """A kind of model. ``claims`` is asked of a name alone first, with None; if no kind claims it, with its folder."""

    group: str  # in figures
    # module:class, imported when a model is opened, as torch takes seconds; or the class itself, of a plug-in.
    place: str | type[Model]
    claims: Callable[[ModelName, ModelFolder | None], Any]  # truthy if it does
    type: type[Model] = Model  # or VectorModel: what can be known before the import

    @property
    def model_class(self) -> Any:
        """The class of its models, imported now."""
        if not isinstance(self.place, str):
            return self.place
        module, _, class_name = self.place.partition(":")
        return getattr(import_module(f"training.models.{module}"), class_name)

    def open(self, name: ModelName, **options: Any) -> Model:
        """Open a model by the class method ``load``, which takes its folder, dtype, device and home."""
        return self.model_class.load(name, **options)


def _is_word_vectors(name: ModelName) -> bool:
    return name.name == GLOVE or (name.name.endswith(WORD_VECTOR_FILES) and Path(name.name).expanduser().is_file())


OPENERS = [
    Opener("late interaction", "maxsim:MaxSim", lambda name, _: name.maxsim),
    Opener("encoder", "endpoint:EndpointModel", lambda name, _: name.endpoint is not None, VectorModel),
    Opener("baseline", "lexical:TfIdf", lambda name, _: name.name == TFIDF),
    Opener("baseline", "lexical:Bm25", lambda name, _: name.name == BM25),
    Opener("baseline", "word_vectors:WordVectors", lambda name, _: _is_word_vectors(name), VectorModel),
    Opener("baseline", "saved_model:SavedModel", lambda name, _: name.name.startswith(SAVED_MODEL), VectorModel),
    Opener("encoder", "encoder:Encoder", lambda name, _: name.is_scratch, VectorModel),
    Opener("late interaction", "st_models:MultiVectorModel", lambda _, folder: folder and folder.kind == MULTI_VECTOR),
    Opener("sparse encoder", "st_models:SparseEncoder", lambda _, folder: folder and folder.kind == SPARSE_ENCODER),
    Opener(
        "cross-encoder",
        "cross_encoder:CrossEncoder",
        lambda _, folder: folder and folder.is_cross_encoder and folder.is_own,
    ),
    Opener("cross-encoder", "st_models:STCrossEncoder", lambda _, folder: folder and folder.is_cross_encoder),
    Opener("encoder", "st_models:STEncoder", lambda _, folder: folder and not folder.is_own, VectorModel),
    Opener("encoder", "encoder:Encoder", lambda _, folder: folder, VectorModel),
]


def find_opener(
    name: ModelName, home: str | Path | None = None, fetch: bool = True
) -> tuple[Opener, ModelFolder | None]:
    """The kind of a model, and its folder, unless the name alone says what it is.

    InputError if the folder cannot be found or read; also, without ``fetch``, if it would have to be downloaded.
    """
    opener = next((opener for opener in OPENERS if opener.claims(name, None)), None) or _plugin_for(name, None)
    if opener is not None:
        return opener, None
    folder = ModelFolder.of(name.name, home, fetch)
    return _plugin_for(name, folder) or next(opener for opener in OPENERS if opener.claims(name, folder)), folder


def _plugin_for(name: ModelName, folder: ModelFolder | None) -> Opener | None:
    """The first plug-in that claims the name or the folder."""
    for key, opener in plugins(Opener).items():
        if tried(key, partial(opener.claims, name, folder)):
            return opener
    return None


def opener_of(name: ModelName | str, home: str | Path | None = None) -> Opener:
    """The kind of a model as far as this machine knows it, without a download: an encoder's where nothing is known."""
    with suppress(InputError):
        return find_opener(ModelName.parse(name), home, fetch=False)[0]
    return OPENERS[-1]


def open_model(
    name: ModelName | Path | str,
    pooling: str | None = None,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "auto",
    home: str | Path | None = None,
) -> Model:
    """Open a model of any kind by name: an `Encoder`, a `CrossEncoder`, TF-IDF, an endpoint, …

    The name may state settings (`training.names`); ``pooling``, ``dtype``, ``device`` and ``home`` are as in
    `Encoder.load`. InputError if the model cannot be found or opened, or does not have a setting that is stated.
    """
    parsed = ModelName.parse(name).with_pooling(pooling)
    opener, folder = find_opener(parsed, home)
    return opener.open(parsed, folder=folder, dtype=dtype, device=device, home=home)


def required(model: Model, type_: type[M]) -> M:
    """The model, if it is of this type. InputError otherwise."""
    if isinstance(model, type_):
        return model
    if isinstance(model, VectorModel) and issubclass(type_, VectorModel | TokenModel):
        raise vectors_only(model)
    raise InputError(f"{model.name} is {_with_article(model.kind)}; choose {_with_article(type_.kind)}")


def vectors_only(model: Model) -> InputError:
    """The error for what needs the tokens or the weights of a model that has none here."""
    return InputError(
        f"{model.name} is {_with_article(model.kind)}, which gives vectors only: {model.why_vectors_only}; choose a "
        "model by name"
    )


def of_the_library(name: str, kind: str) -> InputError:
    """The error for what only a model that is opened here can do, such as to be trained."""
    return InputError(
        f"{name} is a {kind} with modules or settings that sentence-transformers computes: open_model opens it. What "
        "is trained here, and explained word by word, is a transformer with a pooling or a head for one label; train "
        "other models by sentence-transformers' own trainer"
    )


def _with_article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def default_encode(
    home: str | Path | None = None, device: str = "auto", should_stop: ShouldStop | None = None
) -> Callable[[list[str]], np.ndarray]:
    """Sentences -> their vectors (n, D) by the default model, which is opened when this is called."""

    def encode(sentences: list[str]) -> np.ndarray:
        import torch

        # The random numbers of a run stay what they are.
        with torch.random.fork_rng(devices=[]):
            model = required(open_model(DEFAULT_MODEL, device=device, home=home), VectorModel)
        return model.encode(sentences, should_stop=should_stop)

    return encode
