"""LateInteraction: a text is encoded as a vector for each token, and two texts are compared token by token (MaxSim).

In ColBERT (Khattab & Zaharia 2020, section 3.3) each token of the query finds the token of the
document with the largest cosine, and the score of the pair is the sum of these maxima. Documents
can be encoded before a query is known, as with a bi-encoder, but scores depend on single words, as
with a cross-encoder. The price is a vector for each token.

- `MaxSim`, ``maxsim:<encoder>``, compares the token vectors of any encoder, without special tokens.
  The score is the **mean** of the maxima over one text's tokens, averaged over both texts: in -1..1
  and **symmetric**.
- `training.models.st_models.MultiVectorModel`, such as ColBERT, is used as it was trained. The
  score is the **sum** over the tokens of the query, which is the first text of a pair (the mean, if
  the folder says meanmaxsim). It is **not symmetric**.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from training.models.folder import ModelFolder
from training.models.model import (
    Pair,
    Ranking,
    Retriever,
    TokenModel,
    best_rows,
    find_opener,
    open_model,
    required,
)
from training.models.tokenization import TokenVectors
from training.names import ModelName
from training.pooling import normalize_rows
from training.progress import Progress, ShouldStop, steps

CHUNK = 256  # pairs, or documents, whose token vectors are in memory together


class Matches(NamedTuple):
    """The score of two texts, and for each token, in order: the token, the best token of the other text, the cosine."""

    score: float
    first: list[tuple[str, str, float]]  # the query's tokens
    # The document's tokens; empty unless the score is symmetric.
    second: list[tuple[str, str, float]]


class LateInteraction(TokenModel, Retriever):
    """A model that compares token vectors by MaxSim. ``LateInteraction(name)`` opens one, as `load` does.

    Example::

        from sbert_lab import LateInteraction

        model = LateInteraction("all-MiniLM-L6-v2")
        scores = model.score([("A man is eating.", "A man eats food."), ("A man is eating.", "It snows.")])
        print(scores.shape)  # (2,)
        print(model.matches("A man is eating.", "A man eats food.").first)  # matching tokens
    """

    kind = "late-interaction model"
    has_dtype = True
    takes_mean = True  # the mean over the tokens instead of the sum
    # Whether the order of a pair does not matter. If so, special tokens are left out.
    is_symmetric = True

    def __new__(cls, name: Any = None, *, home: str | Path | None = None, **_: Any) -> Any:
        """Makes an empty model of the kind that the name has; its ``__init__`` opens it."""
        # Only the base class looks for the kind. `copy.copy` and `STModel.load` make an object of a
        # subclass, without a name.
        if cls is not LateInteraction:
            return super().__new__(cls)
        opener, _folder = find_opener(ModelName.parse(name), home)
        model_class = opener.model_class
        is_late_interaction = issubclass(model_class, LateInteraction)
        return super().__new__(model_class if is_late_interaction else MaxSim)

    @classmethod
    def load(
        cls,
        name: ModelName | Path | str,
        dtype: str = "auto",
        device: str = "auto",
        home: str | Path | None = None,
        folder: ModelFolder | None = None,
    ) -> Any:
        """Loads a folder or Hub id such as ColBERT, or any encoder, with or without ``maxsim:`` before its name.

        The other arguments are as in `CrossEncoder.load`, but ``folder`` is not used. InputError if
        the model cannot be found or opened, or does not give token vectors.
        """
        model = open_model(name, dtype=dtype, device=device, home=home)
        if isinstance(model, LateInteraction):
            return model
        return MaxSim(required(model, TokenModel))

    @abstractmethod
    def token_vectors(self, sentences: Sequence[str], role: str = "document") -> list[TokenVectors]:
        """Returns the tokens that are compared, with their vectors, or a zero vector for a text without such tokens."""

    def encode_query(self, sentences: Sequence[str]) -> list[np.ndarray]:
        """Encodes texts as queries: float32 (T, D) each."""
        return [text.hidden for text in self.token_vectors(sentences, "query")]

    def encode_document(self, sentences: Sequence[str]) -> list[np.ndarray]:
        """Encodes texts as documents: float32 (T, D) each."""
        return [text.hidden for text in self.token_vectors(sentences, "document")]

    def search(
        self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any
    ) -> Ranking:
        """Finds the documents with the highest MaxSim. All scores are in memory, (Q, N) float32."""
        scores = self.similarity(queries, documents, **watch)
        return [best_rows(np.arange(len(documents)), row, k) for row in scores]

    def score(
        self,
        pairs: Sequence[Pair],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> np.ndarray:
        """Scores pairs of texts: float32 (N,), in their order. For a ColBERT a pair is a query and a document."""
        scores = np.empty(len(pairs), dtype=np.float32)
        for start in steps(range(0, len(pairs), CHUNK), on_progress, should_stop):
            part = pairs[start : start + CHUNK]
            # Each distinct text is encoded once.
            queries = list(dict.fromkeys(query for query, _ in part))
            documents = list(dict.fromkeys(document for _, document in part))
            query_vectors = dict(zip(queries, self.encode_query(queries), strict=True))
            document_vectors = dict(zip(documents, self.encode_document(documents), strict=True))
            for row, (query, document) in enumerate(part, start):
                score = self._scores([query_vectors[query]], [document_vectors[document]])
                scores[row] = score[0, 0]
        return scores

    predict = score

    def similarity(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> np.ndarray:
        """Scores each of Q queries with each of N documents: float32 (Q, N), with few documents in memory at a time.

        For every model the tokens of the query, special tokens included, are matched with the
        tokens of the document. The result is not symmetric.
        """
        model = copy.copy(self)
        # Only this direction is scored, and special tokens are kept.
        model.is_symmetric = False
        scores = np.empty((len(queries), len(documents)), dtype=np.float32)
        encoded = model.encode_query(queries)
        for start in steps(range(0, len(documents), CHUNK), on_progress, should_stop):
            vectors = model.encode_document(documents[start : start + CHUNK])
            scores[:, start : start + CHUNK] = model._scores(encoded, vectors)
        return scores

    def matches(self, a: str, b: str) -> Matches:
        """Returns the score of two texts, and for each of their tokens the best token of the other text."""
        [first] = self.token_vectors([a], "query")
        [second] = self.token_vectors([b], "document")
        score = float(self._scores([first.hidden], [second.hidden])[0, 0])
        second_matches = _best_matches(second, first) if self.is_symmetric else []
        return Matches(score, _best_matches(first, second), second_matches)

    def _scores(self, queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]) -> np.ndarray:
        """Scores Q queries, (T, D) each, with N documents, (T_i, D) each: (Q, N)."""
        # Each text has at least one vector (`token_vectors`), so no segment for reduceat is empty.
        lengths = np.array([len(vectors) for vectors in documents])
        starts = lengths.cumsum() - lengths
        tokens = np.concatenate(documents).T  # (D, sum of T_i)
        scores = []
        for query in queries:
            cosines = query @ tokens  # (T, sum of T_i)
            # The best token of each document for each token of the query, summed over the query.
            score = np.maximum.reduceat(cosines, starts, axis=1).sum(axis=0)  # (N,)
            if self.takes_mean:
                score = score / len(query)
            if self.is_symmetric:
                # The mean over the document's tokens.
                reverse = np.add.reduceat(cosines.max(axis=0), starts) / lengths
                score = (score + reverse) / 2
            scores.append(score)
        return np.array(scores)


class MaxSim(LateInteraction):
    """Late interaction with the token vectors of an encoder, scaled to length 1."""

    encoder: TokenModel

    def __init__(self, encoder: TokenModel | ModelName | Path | str, **options: Any) -> None:
        """Takes an encoder, or opens one by name with the arguments of `load`."""
        if isinstance(encoder, TokenModel):
            self.encoder = encoder
        else:
            self.encoder = self.load(encoder, **options).encoder
        self.name = str(replace(ModelName.parse(self.encoder.name), maxsim=True))

    @classmethod
    def load(
        cls,
        name: ModelName | Path | str,
        dtype: str = "auto",
        device: str = "auto",
        home: str | Path | None = None,
        folder: ModelFolder | None = None,
    ) -> Self:
        """Loads ``maxsim:<encoder>``. ``folder`` is not used, as the encoder has its own.

        InputError if it cannot be opened, or does not give token vectors.
        """
        parsed = ModelName.parse(name)
        cls.check_settings(parsed)
        name = replace(parsed, maxsim=False)
        encoder = open_model(name, dtype=dtype, device=device, home=home)
        return cls(required(encoder, TokenModel))

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        return self.encoder.is_unknown(sentences)

    def token_vectors(self, sentences: Sequence[str], role: str = "document") -> list[TokenVectors]:
        vectors = []
        # The encoder's own prompt is used in both roles.
        for text in self.encoder.token_vectors(sentences):
            rows = []
            for row, word in enumerate(text.words):
                # A special token belongs to no word. A symmetric score leaves special tokens out.
                if word is not None or not self.is_symmetric:
                    rows.append(row)
            if rows:
                tokens = [text.tokens[row] for row in rows]
                hidden = normalize_rows(text.hidden[rows])
            else:
                # A text without tokens gets one zero vector, as `_scores` needs one.
                tokens = [""]
                hidden = np.zeros((1, text.hidden.shape[1]), np.float32)
            # Words and offsets are not needed to compare tokens.
            vectors.append(TokenVectors(tokens, [], [], hidden))
        return vectors


def _best_matches(text: TokenVectors, other: TokenVectors) -> list[tuple[str, str, float]]:
    """Finds for each token of ``text`` the best token of ``other``, and their cosine."""
    cosines = text.hidden @ other.hidden.T  # (T, T of the other)
    best = []
    for i, j in enumerate(cosines.argmax(axis=1)):
        best.append((text.tokens[i], other.tokens[j], float(cosines[i, j])))
    return best
