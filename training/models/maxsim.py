"""LateInteraction: a text is a vector for each of its tokens, and two texts are compared token by token (MaxSim).

ColBERT (Khattab & Zaharia 2020, section 3.3): each token of the query finds the token of the document with the largest
cosine, and the score of the pair adds these maxima up. Documents are encoded before a query is known, as by a
bi-encoder, yet a score rests on single words, as with a cross-encoder. The price is a vector for each token.

- `MaxSim`, ``maxsim:<encoder>``, compares the token vectors of any encoder as they are, without special tokens. The
  score is the **mean** of the maxima over one text's tokens, averaged over both texts: in -1..1 and **symmetric**.
- `training.models.st_models.MultiVectorModel`, a folder of ColBERT's kind, is used as it was trained. The score is the
  **sum** over the tokens of the query, which is the first text of a pair (the mean, if the folder says meanmaxsim): it
  is **not symmetric**.
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
from training.models.model import Pair, Ranking, Retriever, TokenModel, best_rows, find_opener, open_model, required
from training.models.tokenization import TokenVectors
from training.names import ModelName
from training.pooling import normalize_rows
from training.progress import Progress, ShouldStop, steps

CHUNK = 256  # pairs, or documents, whose token vectors are in memory together


class Matches(NamedTuple):
    """(token, the token of the other text that it found, cosine) for each token, in the order of the text."""

    score: float
    first: list[tuple[str, str, float]]  # tokens of the query
    second: list[tuple[str, str, float]]  # of the document; empty unless the score is symmetric


class LateInteraction(TokenModel, Retriever):
    """A model that compares token vectors by MaxSim. ``LateInteraction(name)`` opens one, as `load` does."""

    kind, has_dtype = "late-interaction model", True
    takes_mean = True  # over the tokens, else the sum
    is_symmetric = True  # of a pair, and without special tokens

    def __new__(cls, name: Any = None, *, home: str | Path | None = None, **_: Any) -> Any:
        """Makes an empty model of the kind that the name has; its ``__init__`` opens it."""
        if cls is not LateInteraction:
            return super().__new__(cls)
        kind = find_opener(ModelName.parse(name), home)[0].model_class
        return super().__new__(kind if issubclass(kind, LateInteraction) else MaxSim)

    @classmethod
    def load(
        cls,
        name: ModelName | Path | str,
        dtype: str = "auto",
        device: str = "auto",
        home: str | Path | None = None,
        folder: ModelFolder | None = None,
    ) -> Any:
        """Load a folder or Hub id of ColBERT's kind, or any encoder, with or without ``maxsim:`` before its name.

        Arguments and errors are those of `CrossEncoder.load`.
        """
        model = open_model(name, None, dtype, device, home)
        return model if isinstance(model, LateInteraction) else MaxSim(required(model, TokenModel))

    @abstractmethod
    def token_vectors(self, sentences: Sequence[str], role: str = "document") -> list[TokenVectors]:
        """The tokens that count, and their vectors, of texts as query or document: a zero vector if none do."""

    def encode_query(self, sentences: Sequence[str]) -> list[np.ndarray]:
        """Texts as queries -> float32 (T, D) each."""
        return [text.hidden for text in self.token_vectors(sentences, "query")]

    def encode_document(self, sentences: Sequence[str]) -> list[np.ndarray]:
        """Texts as documents -> float32 (T, D) each."""
        return [text.hidden for text in self.token_vectors(sentences, "document")]

    def search(self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any) -> Ranking:
        """The documents with the highest MaxSim of the query's tokens; all scores are in memory, (Q, N) float32."""
        scores = self.similarity(queries, documents, **watch)
        return [best_rows(np.arange(len(documents)), row, k) for row in scores]

    def score(
        self, pairs: Sequence[Pair], on_progress: Progress | None = None, should_stop: ShouldStop | None = None
    ) -> np.ndarray:
        """Pairs of texts, for a ColBERT a query and a document each -> float32 (N,), in the caller's order."""
        scores = np.empty(len(pairs), dtype=np.float32)
        for start in steps(range(0, len(pairs), CHUNK), on_progress, should_stop):
            part = pairs[start : start + CHUNK]
            # Each text is read once.
            queries, documents = (list(dict.fromkeys(pair[side] for pair in part)) for side in (0, 1))
            first = dict(zip(queries, self.encode_query(queries), strict=True))
            second = dict(zip(documents, self.encode_document(documents), strict=True))
            scores[start : start + CHUNK] = [self._scores([first[a]], [second[b]])[0, 0] for a, b in part]
        return scores

    predict = score

    def similarity(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> np.ndarray:
        """Each of Q queries with each of N documents -> float32 (Q, N); of 256 documents the vectors are in memory.

        Of any model it is the tokens of the query, special ones too, that find those of the document: never symmetric.
        """
        model = copy.copy(self)
        model.is_symmetric = False
        scores = np.empty((len(queries), len(documents)), dtype=np.float32)
        encoded = model.encode_query(queries)
        for start in steps(range(0, len(documents), CHUNK), on_progress, should_stop):
            vectors = model.encode_document(documents[start : start + CHUNK])
            scores[:, start : start + CHUNK] = model._scores(encoded, vectors)
        return scores

    def matches(self, a: str, b: str) -> Matches:
        """The tokens of each text with those that they found in the other, and the sum of their cosines."""
        [first], [second] = self.token_vectors([a], "query"), self.token_vectors([b], "document")
        score = float(self._scores([first.hidden], [second.hidden])[0, 0])
        return Matches(score, _best(first, second), _best(second, first) if self.is_symmetric else [])

    def _scores(self, queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]) -> np.ndarray:
        """Q times (T, D) and N times (T_i, D) -> (Q, N)."""
        lengths = np.array([len(vectors) for vectors in documents])
        starts, tokens, scores = lengths.cumsum() - lengths, np.concatenate(documents).T, []
        for query in queries:
            cosines = query @ tokens  # (T, sum of T_i)
            there = np.maximum.reduceat(cosines, starts, axis=1).sum(axis=0)
            there = there / len(query) if self.takes_mean else there
            back = np.add.reduceat(cosines.max(axis=0), starts) / lengths if self.is_symmetric else there
            scores.append((there + back) / 2)
        return np.array(scores)


class MaxSim(LateInteraction):
    """The token vectors of an encoder, scaled to length 1."""

    def __init__(self, encoder: TokenModel | ModelName | Path | str, **options: Any) -> None:
        """Takes an encoder, or opens one by name with the arguments of `load`."""
        opened = encoder if isinstance(encoder, TokenModel) else self.load(encoder, **options).encoder
        self.name = str(replace(ModelName.parse(opened.name), maxsim=True))
        self.encoder: TokenModel = opened

    @classmethod
    def load(
        cls,
        name: ModelName | Path | str,
        dtype: str = "auto",
        device: str = "auto",
        home: str | Path | None = None,
        folder: ModelFolder | None = None,
    ) -> Self:
        """Load ``maxsim:<encoder>``. InputError also if it has no token vectors."""
        parsed = ModelName.parse(name)
        cls.check_settings(parsed)
        return cls(required(open_model(replace(parsed, maxsim=False), None, dtype, device, home), TokenModel))

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        return self.encoder.is_unknown(sentences)

    def token_vectors(self, sentences: Sequence[str], role: str = "document") -> list[TokenVectors]:
        counted = []
        for text in self.encoder.token_vectors(sentences):
            rows = [row for row, word in enumerate(text.words) if word is not None or not self.is_symmetric]
            hidden = normalize_rows(text.hidden[rows]) if rows else np.zeros((1, text.hidden.shape[1]), np.float32)
            counted.append(TokenVectors([text.tokens[row] for row in rows] or [""], [], [], hidden))
        return counted


def _best(text: TokenVectors, other: TokenVectors) -> list[tuple[str, str, float]]:
    cosines = text.hidden @ other.hidden.T
    best = cosines.argmax(axis=1)
    return [(text.tokens[i], other.tokens[j], float(cosines[i, j])) for i, j in enumerate(best)]
