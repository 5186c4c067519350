"""Model: what all models are, and `open_model`, the one way to open any of them by name.

    open_model("all-MiniLM-L6-v2", "max")     or "tfidf", "minilm-stsb", "maxsim:<name>", "run:<id>", a folder, a Hub id

Every model but BM25 scores pairs of texts. What else a model can do is asked by its type:

    VectorModel     encodes a text as a vector that stays comparable between calls: `Encoder`, endpoints, GloVe
    PairModel       reads both texts of a pair together and gives one score: cross-encoders
    SparseModel     encodes a text as weights of words (`training.models.lexical`): TF-IDF, SPLADE
    TokenModel      encodes a text as one vector for each token: `Encoder`, ColBERT
    Retriever       ranks documents for queries: all models but cross-encoders; BM25 does nothing else

`OPENERS` lists the kinds of models, each with the names and folders that it claims. The first kind
that claims a name opens it. To add a kind, write a class with ``load`` and either `Model.score` or
`VectorModel.encode_batch`, and add a line to `OPENERS`.
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
from training.models.texts import (
    CHUNK,
    Chunk,
    OnRows,
    ReadReport,
    Rows,
    chunks,
    compute_chunks,
    numbered,
    texts,
)
from training.names import ModelName
from training.plugins import plugins, tried
from training.pooling import NO_POOLING, normalize_rows
from training.progress import Progress, ShouldStop, progress_bar, steps
from training.similarities import dot

if TYPE_CHECKING:
    import torch
    from scipy.sparse import csr_matrix

    from training.models.tokenization import TokenVectors

    Vectors: TypeAlias = np.ndarray | csr_matrix  # (N, D)

Pair = tuple[str, str]
# For each query the rows of its best documents, int64 (≤ k,), best first; documents with equal
# scores by row.
Ranking = list[np.ndarray]
M = TypeVar("M", bound="Model")

# The prefix of a SavedModel's name.
SAVED_MODEL = "use:"
WORD_VECTOR_FILES = (".txt", ".vec", ".npy")  # endings

log = logging.getLogger("sbert_lab.encoder")


class Model(ABC):
    """A model that scores pairs of texts."""

    kind: ClassVar[str] = "model"  # the name of this kind in errors and on pages
    # The reason in the error of `vectors_only`.
    why_vectors_only: ClassVar[str] = "its tokens and weights are not here"
    input_noun: ClassVar[str] = "sentence"  # one input of the model
    has_dtype: ClassVar[bool] = False  # whether ``dtype`` can be set
    name: str
    pooling: str | None = None  # None or `NO_POOLING` if the model pools nothing
    dimension: int | None = None  # the length of its vectors, if it has any
    # host:port of the remote server that receives the texts, or "" for a local model
    sent_to: str = ""

    @classmethod
    def load(cls, name: ModelName | str, *_: Any, **__: Any) -> Self:
        """Opens the model of this name. Kinds that read files take the folder, dtype, device and home too.

        InputError if it cannot be opened, or the name states a setting that it does not have.
        """
        cls.check_settings(ModelName.parse(name))
        return cls()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def vocabulary_size(self) -> int:
        """The number of different tokens; 0 if it is unknown."""
        return 0

    @property
    def max_length(self) -> int | None:
        """The number of tokens at which a text is truncated; None for no limit."""
        return None

    @abstractmethod
    def score(
        self,
        pairs: Sequence[Pair],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> np.ndarray:
        """Scores pairs of texts: float32 (N,), larger for more similar texts.

        ``on_progress`` is called with (done, all). ``should_stop`` is called before each batch; if
        it returns True, ``StoppedError`` is raised.
        """

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        """Tells for each text whether the model knows none of the tokens, so that scores of the text are meaningless.

        Examples are emoji, and scripts that the model was not trained on. Always False for models
        whose tokens are bytes, and for models that do not give their tokens.
        """
        return [False] * len(sentences)

    def start_multi_process_pool(self, *_: Any, **__: Any) -> NoReturn:
        """Raises InputError: one process uses the whole machine, so there are no pools as in sentence-transformers."""
        raise InputError(
            "there are no pools of processes: one process uses all cores, or one GPU; leave pool out, and for several "
            'GPUs start a process for each, which opens the model with device="cuda:0", "cuda:1", …'
        )

    def warn_of_truncation(self, cut: int) -> None:
        """Logs the number of sentences or pairs that were cut, if there are any."""
        if cut:
            inputs_were = f"{self.input_noun} was" if cut == 1 else f"{self.input_noun}s were"
            log.warning("%d %s cut at %d tokens", cut, inputs_were, self.max_length)

    def read_tokens(self, sentences: Sequence[Any]) -> tuple[int, list[int]]:
        """Counts the tokens of texts or pairs, and finds the positions of the inputs that are cut.

        (0, []) for a model that does not count tokens.
        """
        return 0, []

    @classmethod
    def check_settings(cls, name: ModelName) -> None:
        """Raises InputError if the name states a setting that models of this kind do not have."""
        if name.pooling not in (None, cls.pooling):
            what_it_does = f"always takes the {cls.pooling}"
            if cls.pooling in (None, NO_POOLING):
                what_it_does = "pools nothing"
            raise InputError(
                f"{name.name} is {_with_article(cls.kind)}, which {what_it_does}; leave the pooling out"
            )
        if name.dimension is not None or name.states_prompt:
            raise InputError(
                f"{name.name} has neither dimensions nor prompts to choose; leave them out"
            )
        if name.dtype and not cls.has_dtype:
            raise InputError(f"{name.name} has no precision to choose; leave {name.dtype} out")

    def with_settings(self, name: ModelName) -> Self:
        """Returns the model with the settings that the name states. InputError for a setting that it does not have."""
        self.check_settings(name)
        return self

    def for_role(self, role: str) -> Self:
        """Returns the same weights with the folder's prompt for a ``query`` or a ``document``, if it has one."""
        return self


def check_pairs(pairs: Sequence[Pair], offset: int = 0) -> None:
    """Raises InputError with the number of a pair that is not two texts. ``offset`` pairs came before these."""
    for number, pair in enumerate(pairs, offset + 1):
        has_two = not isinstance(pair, str) and len(pair) == 2
        if not has_two or not all(isinstance(text, str) for text in pair):
            raise InputError(
                f"pair {number} is not two texts: give pairs such as (sentence1, sentence2)"
            )


class Retriever(ABC):
    """A model that ranks documents for queries."""

    name: str

    @abstractmethod
    def search(
        self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any
    ) -> Ranking:
        """Finds the best ``k`` documents for each query. ``watch``: on_progress and should_stop of `Model.score`."""


class TokenModel(Model):
    """A model with a vector for each token."""

    @abstractmethod
    def token_vectors(self, sentences: Sequence[str]) -> list[TokenVectors]:
        """Returns the tokens of each text with their vectors."""


class PairModel(Model):
    """A cross-encoder, which reads both texts of a pair together."""

    kind = "cross-encoder"
    input_noun = "pair"
    has_dtype = True
    mask: str = ""  # the mask token, which replaces a word that is left out
    # The training data, the settings, and Spearman ×100 on STSb dev and test; None if unknown.
    card: dict[str, Any] | None = None

    @classmethod
    def check_settings(cls, name: ModelName) -> None:
        """Raises InputError if the name states a setting other than a prompt or a dtype, which cross-encoders have."""
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
        """Scores pairs of sentences, from 0 (nothing in common) to 1 (the same meaning).

        A model whose configuration names the identity as its activation returns logits, as in
        sentence-transformers.

        Args:
            pairs: N pairs of texts, which may be empty. A pair longer than ``max_length`` tokens is
                truncated; the number of truncated pairs is logged.
            batch_size: the most pairs that are computed at a time, to save memory; None chooses a
                fast size.
            convert_to_tensor: return a tensor, not a NumPy array.
            pool: must be None; pools of processes are not supported.

        Returns:
            Scores, float32 (N,), in the order of the pairs.

        Raises:
            InputError: a pair is not two texts.

        Example::

            from sbert_lab import CrossEncoder

            model = CrossEncoder("minilm-stsb")
            scores = model.predict([("A man is eating.", "A man eats food."), ("A man is eating.", "It snows.")])
            print(scores.shape)  # (2,)
        """
        if pool is not None:
            # Raises InputError, which says what to use in place of processes.
            self.start_multi_process_pool()
        listed = pairs if isinstance(pairs, Sequence) else list(pairs)
        report = report or ReadReport()
        # A caller may pass one report to several calls, which adds up their counts.
        truncated_before = report.truncated

        def compute(rows: Rows, on_rows: OnRows) -> np.ndarray:
            return self._compute_scores(rows, batch_size, should_stop, on_rows)

        parts = (self._read_pairs(listed, start) for start in range(0, len(listed), CHUNK))
        # np.concatenate needs at least one array, and an empty input gives none.
        scores = [np.empty(0, dtype=np.float32)]
        with progress_bar(show_progress_bar, "Scoring", on_progress) as progress:
            scores += compute_chunks(parts, compute, report, progress, len(listed))
        self.warn_of_truncation(report.truncated - truncated_before)
        results = np.concatenate(scores)
        if not convert_to_tensor:
            return results
        # torch takes seconds to import, and some models compute without it.
        import torch

        return torch.from_numpy(results)

    def _read_pairs(self, pairs: Sequence[Pair], start: int) -> Chunk:
        """Reads the chunk of pairs that begins at ``start``. InputError if a pair is not two texts."""
        part = pairs[start : start + CHUNK]
        check_pairs(part, start)
        # A pair may be a list, which is not hashable.
        distinct, inverse = numbered((first, second) for first, second in part)
        return self._chunk(distinct, inverse)

    @abstractmethod
    def _chunk(self, pairs: list[Pair], inverse: list[int]) -> Chunk:
        """Returns distinct pairs as the model reads them."""

    @abstractmethod
    def _compute_scores(
        self, rows: Rows, batch_size: int | None, should_stop: ShouldStop | None, on_rows: OnRows
    ) -> np.ndarray:
        """Computes the scores of the rows of a chunk, (n,). ``on_rows`` is called with the number of rows done."""

    def score(
        self,
        pairs: Sequence[Pair],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> np.ndarray:
        """Calls ``predict``."""
        return self.predict(pairs, on_progress, should_stop)

    @abstractmethod
    def tokens(self, text: str) -> TokenVectors:
        """Returns the tokens of a text alone, without vectors."""

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Ranks documents by their score with a query.

        Args:
            query: a text.
            documents: texts.
            top_k: the number of documents to return; None returns all.
            return_documents: also return each document's ``text``.
            options: arguments of ``predict``.

        Returns:
            A dictionary for each document, best first, with ``corpus_id`` (its row) and ``score``.

        Raises:
            InputError: a document is not a text.
        """
        listed = texts(documents)
        scores = self.predict([(query, document) for document in listed], **options)
        results = []
        for row in np.argsort(-scores, kind="stable")[:top_k].tolist():
            result: dict[str, Any] = {"corpus_id": row, "score": float(scores[row])}
            if return_documents:
                result["text"] = listed[row]
            results.append(result)
        return results


class VectorModel(Model, Retriever):
    """A model of sentence vectors. Subclasses define `encode_batch`, or override `_read` and `_vectors`."""

    kind = "bi-encoder"
    pooling: str = NO_POOLING
    dimension: int  # D, the length of a sentence vector
    similarity_fn_name: str = "cosine"  # the similarity that retrieval uses
    # The settings that change its vectors, in one line; "" for the default. They are a part of the
    # key of stored vectors, which has the name, the pooling, the length and the weights anyway.
    settings: str = ""
    chunk_size: int = CHUNK  # sentences that are read and sorted by length together
    batch_size: ClassVar[int] = 256  # the most sentences in one call of `encode_batch`
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
        """Encodes sentences: float32 (N, D), in their order. Each distinct sentence is encoded once.

        ``normalize`` scales vectors to length 1; None follows the model's folder. ``report`` is
        filled with counts. The other arguments are as in `Model.score`. InputError if a sentence is
        not text.
        """
        distinct, inverse = numbered(texts(sentences))
        report = report or ReadReport()
        n = len(inverse)

        # `encode_stream` reports distinct sentences; the caller counts all of them.
        def progress(done: int, _: int | None) -> None:
            if on_progress is not None:
                on_progress(n * done // len(distinct), n)

        vectors = np.empty((len(distinct), self.dimension), dtype=np.float32)
        start = 0
        size = self.chunk_size
        for part in self.encode_stream(distinct, size, normalize, progress, should_stop, report):
            vectors[start : start + len(part)] = part
            start += len(part)
        # `encode_stream` has counted the distinct sentences.
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
        """Encodes any iterable in constant memory: yields float32 (n, D) for ``chunk`` sentences at a time.

        The other arguments are as in ``encode``. A sentence that occurs twice in a chunk is encoded
        once. While a GPU encodes a chunk, the next one is read and tokenised.
        """
        report = report or ReadReport()
        # A caller may pass one report to several calls, which adds up their counts.
        truncated_before = report.truncated

        def compute(rows: Rows, on_rows: OnRows) -> np.ndarray:
            return self._vectors(rows, normalize, on_rows, should_stop, report)

        parts = self._read(chunks(sentences, chunk))
        yield from compute_chunks(parts, compute, report, on_progress)
        self.warn_of_truncation(report.truncated - truncated_before)

    def encode_batch(self, sentences: Sequence[str]) -> np.ndarray:
        """Encodes a batch of n distinct sentences: (n, D), not normalised."""
        raise NotImplementedError

    def encode_query(
        self, sentences: Sequence[str], normalize: bool | None = True, **options: Any
    ) -> np.ndarray:
        """Calls ``encode`` with the folder's prompt for queries, if it has one."""
        return self.for_role("query").encode(sentences, normalize, **options)

    def encode_document(
        self, sentences: Sequence[str], normalize: bool | None = True, **options: Any
    ) -> np.ndarray:
        """Calls ``encode`` with the folder's prompt for documents, if it has one."""
        return self.for_role("document").encode(sentences, normalize, **options)

    def score(
        self,
        pairs: Sequence[Pair],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> np.ndarray:
        """Computes the cosine of each pair, float32 (N,)."""
        check_pairs(pairs)
        # One call for both sides, so that a sentence of both is encoded once. True scales vectors
        # to length 1, so that the dot product is the cosine.
        sentences = [first for first, _ in pairs] + [second for _, second in pairs]
        vectors = self.encode(sentences, True, on_progress, should_stop)
        u, v = np.split(vectors, 2)
        return dot(u, v)

    def search(
        self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any
    ) -> Ranking:
        """Finds the nearest documents by the model's similarity, with one chunk of vectors in memory at a time.

        The folder's prompts for queries and documents are used, unless the model's name states a
        prompt.
        """
        # The module imports torch, which takes seconds.
        from training.search import SearchIndex

        query_model = self
        document_model = self
        if not ModelName.parse(self.name).states_prompt:
            query_model = self.for_role("query")
            document_model = self.for_role("document")
        on_progress = watch.get("on_progress")
        should_stop = watch.get("should_stop")

        # `encode_stream` does not know the number of documents.
        def progress(done: int, _: int | None) -> None:
            if on_progress is not None:
                on_progress(done, len(documents))

        # The folder says whether vectors are normalised.
        query_vectors = query_model.encode(queries, normalize=None, should_stop=should_stop)
        nearest_scores = np.empty((len(queries), 0))  # (Q, up to k)
        nearest_rows = np.empty((len(queries), 0), np.int64)  # (Q, up to k)
        offset = 0
        chunks_of_vectors = document_model.encode_stream(
            documents,
            self.chunk_size,
            normalize=None,
            on_progress=progress,
            should_stop=should_stop,
        )
        for chunk in chunks_of_vectors:
            index = SearchIndex(chunk, self.similarity_fn_name)
            scores, rows = index.nearest(query_vectors, min(k, len(chunk)))
            # Merge with the nearest of the earlier chunks, and keep the best k of each query; of
            # equal scores the lower row comes first.
            nearest_scores = np.hstack([nearest_scores, scores])
            nearest_rows = np.hstack([nearest_rows, rows + offset])
            order = np.lexsort((nearest_rows, -nearest_scores))[:, :k]
            nearest_scores = np.take_along_axis(nearest_scores, order, axis=1)
            nearest_rows = np.take_along_axis(nearest_rows, order, axis=1)
            offset += len(chunk)
        return list(nearest_rows)

    def weights_sample(self, most: int) -> Iterator[tuple[str, np.ndarray]]:
        """Yields fewer than 2 · ``most`` numbers of each parameter, with its name. They identify a model.

        A model whose weights cannot be read yields nothing.
        """
        yield from ()

    def with_pooling(self, pooling: str | None) -> Self:
        """Returns the same weights (shared, not copied) with another pooling. InputError if it cannot be changed."""
        self.check_settings(ModelName(self.name, pooling=pooling))
        return self

    def allows_pooling(self, pooling: str) -> bool:
        """Tells whether `with_pooling` accepts this pooling."""
        with suppress(InputError):
            self.with_pooling(pooling)
            return True
        return False

    def _read(self, parts: Iterator[list[str]]) -> Iterator[Chunk]:
        """Yields chunks of sentences as the model reads them."""
        return (Chunk(*numbered(part)) for part in parts)

    def _vectors(
        self,
        rows: Rows,
        normalize: bool | None,
        on_rows: OnRows,
        should_stop: ShouldStop | None,
        report: ReadReport,
    ) -> np.ndarray:
        """Computes the vectors of the rows of a chunk, (n, D). ``on_rows`` is called with the number of rows done."""
        vectors = np.empty((len(rows), self.dimension), dtype=np.float32)
        starts = range(0, len(rows), self.batch_size)
        # `steps` counts the rows of such a range, not its batches.
        for start in steps(starts, lambda done, _: on_rows(done), should_stop):
            part = slice(start, start + self.batch_size)
            vectors[part] = self.encode_batch(rows[part])
        return normalize_rows(vectors) if normalize else vectors


def sample_weights(module: Any, most: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yields fewer than 2 · ``most`` numbers of each parameter of a module of PyTorch, with its name."""
    for name, tensor in sorted(module.state_dict().items()):
        # The step is rounded down, so there may be nearly twice as many numbers.
        step = max(1, tensor.numel() // most)
        sample = tensor.reshape(-1)[::step]
        yield f"{name} {tuple(tensor.shape)}", sample.float().cpu().numpy()


def best_rows(rows: np.ndarray, scores: np.ndarray, k: int) -> np.ndarray:
    """Returns the k of ``rows`` (n,) with the highest scores, best first; equal scores in the order of the rows."""
    if len(rows) > k:
        # Only rows with at least the k-th highest score are sorted.
        place = len(scores) - k
        is_high = scores >= np.partition(scores, place)[place]
        rows = rows[is_high]
        scores = scores[is_high]
    return rows[np.lexsort((rows, -scores))[:k]].astype(np.int64)


# Within `Opener`, ``type`` is the name of a field.
ModelClass: TypeAlias = type[Model]


class Opener(NamedTuple):
    """A kind of model: which names and folders belong to it, and the class that opens them.

    ``claims`` is first called with the name and None. If no kind claims the name alone, it is
    called again with the name and the folder.
    """

    group: str  # the group of the kind in figures
    # "module:class", imported when a model is opened because torch takes seconds to import; a
    # plug-in's class itself.
    place: str | type[Model]
    # Returns a truthy value for a model of this kind.
    claims: Callable[[ModelName, ModelFolder | None], Any]
    type: type[Model] = Model  # what is known about the class before it is imported

    @property
    def model_class(self) -> ModelClass:
        """The class of its models, imported now."""
        if not isinstance(self.place, str):
            return self.place
        module, _, class_name = self.place.partition(":")
        return getattr(import_module(f"training.models.{module}"), class_name)


def _is_word_vectors(name: ModelName) -> bool:
    if name.name == GLOVE:
        return True
    return name.name.endswith(WORD_VECTOR_FILES) and Path(name.name).expanduser().is_file()


OPENERS = [
    Opener("late interaction", "maxsim:MaxSim", lambda name, _: name.maxsim),
    Opener(
        "encoder", "endpoint:EndpointModel", lambda name, _: name.endpoint is not None, VectorModel
    ),
    Opener("baseline", "lexical:TfIdf", lambda name, _: name.name == TFIDF),
    Opener("baseline", "lexical:Bm25", lambda name, _: name.name == BM25),
    Opener(
        "baseline", "word_vectors:WordVectors", lambda name, _: _is_word_vectors(name), VectorModel
    ),
    Opener(
        "baseline",
        "saved_model:SavedModel",
        lambda name, _: name.name.startswith(SAVED_MODEL),
        VectorModel,
    ),
    Opener("encoder", "encoder:Encoder", lambda name, _: name.is_scratch, VectorModel),
    Opener(
        "late interaction",
        "st_models:MultiVectorModel",
        lambda _, folder: folder and folder.kind == MULTI_VECTOR,
    ),
    Opener(
        "sparse encoder",
        "st_models:SparseEncoder",
        lambda _, folder: folder and folder.kind == SPARSE_ENCODER,
    ),
    Opener(
        "cross-encoder",
        "cross_encoder:CrossEncoder",
        lambda _, folder: folder and folder.is_cross_encoder and folder.is_own,
    ),
    Opener(
        "cross-encoder",
        "st_models:STCrossEncoder",
        lambda _, folder: folder and folder.is_cross_encoder,
    ),
    Opener(
        "encoder",
        "st_models:STEncoder",
        lambda _, folder: folder and not folder.is_own,
        VectorModel,
    ),
    Opener("encoder", "encoder:Encoder", lambda _, folder: folder, VectorModel),
]


def find_opener(
    name: ModelName, home: str | Path | None = None, fetch: bool = True
) -> tuple[Opener, ModelFolder | None]:
    """Finds the kind of a model, and its folder unless the name alone determines the kind.

    InputError if the folder cannot be found or read, or if it would have to be downloaded and
    ``fetch`` is False.
    """
    for opener in OPENERS:
        if opener.claims(name, None):
            return opener, None
    plugin = _plugin_for(name, None)
    if plugin is not None:
        return plugin, None
    # Names that the built-in kinds claim come before plug-ins; for folders, plug-ins come first, as
    # the last built-in kind claims every folder.
    folder = ModelFolder.of(name.name, home, fetch)
    plugin = _plugin_for(name, folder)
    if plugin is not None:
        return plugin, folder
    return next(opener for opener in OPENERS if opener.claims(name, folder)), folder


def _plugin_for(name: ModelName, folder: ModelFolder | None) -> Opener | None:
    """Returns the first plug-in that claims the name or the folder; None if none does.

    A plug-in that raises an error is logged, and claims nothing.
    """
    for key, opener in plugins(Opener).items():
        if tried(key, partial(opener.claims, name, folder)):
            return opener
    return None


def opener_of(name: ModelName | str, home: str | Path | None = None) -> Opener:
    """Finds the kind of a model without a download. A model that is not on this machine counts as an encoder."""
    with suppress(InputError):
        opener, _ = find_opener(ModelName.parse(name), home, fetch=False)
        return opener
    # The last kind, `Encoder`, claims every folder.
    return OPENERS[-1]


def open_model(
    name: ModelName | Path | str,
    pooling: str | None = None,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "auto",
    home: str | Path | None = None,
) -> Model:
    """Opens a model of any kind by name: an `Encoder`, a `CrossEncoder`, TF-IDF, an endpoint, …

    Args:
        name: a name, a folder or a Hub id, which may state settings:
            ``all-mpnet-base-v2?dim=256:cls``.
        pooling: the pooling of an encoder, as in `Encoder.load`; None follows the name and the
            folder.
        dtype: auto, float32, bfloat16 or int8, for models whose precision can be set.
        device: auto, cpu, cuda, cuda:1 or mps.

    Returns:
        A model. Its type tells what it can do besides ``score``: see `training.models.model`.

    Raises:
        InputError: the model cannot be found or opened, or does not have a setting that is stated.

    Example::

        from sbert_lab import open_model

        model = open_model("tfidf")
        scores = model.score([("A man is eating.", "A man eats food."), ("A man is eating.", "It snows.")])
        print(scores.shape)  # (2,)
    """
    parsed = ModelName.parse(name).with_pooling(pooling)
    opener, folder = find_opener(parsed, home)
    return opener.model_class.load(parsed, folder=folder, dtype=dtype, device=device, home=home)


def required(model: Model, type_: type[M]) -> M:
    """Returns the model if it is of this type. InputError otherwise."""
    if isinstance(model, type_):
        return model
    # A TokenModel also has tokens, and a subclass of VectorModel, such as Encoder, has weights;
    # this model has vectors only.
    if isinstance(model, VectorModel) and issubclass(type_, VectorModel | TokenModel):
        raise vectors_only(model)
    raise InputError(
        f"{model.name} is {_with_article(model.kind)}; choose {_with_article(type_.kind)}"
    )


def vectors_only(model: Model) -> InputError:
    """Makes the error for a model whose tokens or weights are needed, but which gives vectors only."""
    return InputError(
        f"{model.name} is {_with_article(model.kind)}, which gives vectors only: {model.why_vectors_only}; choose a "
        "model by name"
    )


def of_the_library(name: str, kind: str) -> InputError:
    """Makes the error for a model of sentence-transformers where only our own kinds work, such as in training."""
    return InputError(
        f"{name} is a {kind} with modules or settings that sentence-transformers computes: open_model opens it. What "
        "is trained here, and explained word by word, is a transformer with a pooling or a head for one label; train "
        "other models by sentence-transformers' own trainer"
    )


def _with_article(kind: str) -> str:
    article = "an" if kind[0] in "aeiou" else "a"
    return f"{article} {kind}"


def default_encode(
    home: str | Path | None = None, device: str = "auto", should_stop: ShouldStop | None = None
) -> Callable[[list[str]], np.ndarray]:
    """Returns a function that encodes sentences, (n, D), with the default model. Each call opens the model."""

    def encode(sentences: list[str]) -> np.ndarray:
        import torch

        # Opening a model draws random numbers, but must not change the ones that a run draws next.
        # They are drawn on the CPU, so no other device is named.
        with torch.random.fork_rng(devices=[]):
            model = required(open_model(DEFAULT_MODEL, device=device, home=home), VectorModel)
        return model.encode(sentences, should_stop=should_stop)

    return encode
