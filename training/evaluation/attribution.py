"""Attribution: the cosine of two sentences as a sum over pairs of their words.

**Mean pooling.** u is the mean of its token vectors h_i and v of its h_j, so the cosine is a sum over pairs:

    cos(u, v) = Σij  h_i·h_j / (T_u T_v |u| |v|)

This is exact: each cell is the share of a token pair, and all cells add up to the cosine.

**Max pooling.** Each dimension d of u is the value of one token, and likewise of v, so u_d v_d / (|u| |v|) belongs to
the pair of tokens whose values are largest. This map sums to the cosine too; the shares are the fractions of
dimensions in which each token has the largest value.

**CLS pooling.** The vector is the output of one token. The other words act within the transformer, which is not a sum
over words, so there is no such map: leave words out one by one instead.

The cells of sub-words are added up to words. [CLS] and [SEP] have rows of their own: they are pooled too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from training.errors import InputError

if TYPE_CHECKING:
    from training.models.encoder import Encoder, TokenVectors

NO_MAP_FOR_CLS = (
    "CLS pooling has no exact word map: the sentence vector is the output of one token, and the other words act on "
    "it inside the transformer. Leaving words out one by one shows their effect."
)


@dataclass(frozen=True)
class Word:
    """A word or special token of one sentence."""

    text: str
    start: int  # offsets in the sentence; start == end for a special token
    end: int
    tokens: tuple[int, ...]  # positions of its sub-words


@dataclass(frozen=True)
class Attribution:
    """The cosine of two sentences as a sum over word pairs."""

    words_a: list[str]  # A
    words_b: list[str]  # B
    matrix: np.ndarray  # (A, B) float64, sums to the cosine
    cosine: float
    shares_a: np.ndarray  # (A,) share in the pooled vector: of tokens (mean) or of dimensions (max); sums to 1
    shares_b: np.ndarray  # (B,)


def attribute(encoder: Encoder, a: str, b: str) -> Attribution:
    """Attribute the cosine of ``a`` and ``b`` to word pairs. InputError under CLS pooling, which has no such map."""
    first, second = encoder.token_vectors([a, b])
    return attribute_tokens(encoder.pooling, a, b, first, second)


def attribute_tokens(pooling: str, a: str, b: str, first: TokenVectors, second: TokenVectors) -> Attribution:
    """Attribute the cosine of ``a`` and ``b`` to word pairs, given their token vectors. InputError as `attribute`."""
    if pooling not in _TOKEN_MAPS:
        raise InputError(NO_MAP_FOR_CLS)
    tokens, share_a, share_b = _TOKEN_MAPS[pooling](first.hidden.astype(np.float64), second.hidden.astype(np.float64))
    words_a, words_b = words_of(a, first), words_of(b, second)
    merge_a, merge_b = _merger(words_a, len(first.tokens)), _merger(words_b, len(second.tokens))
    matrix = merge_a @ tokens @ merge_b.T
    return Attribution(
        words_a=[word.text for word in words_a],
        words_b=[word.text for word in words_b],
        matrix=matrix,
        cosine=float(matrix.sum()),
        shares_a=merge_a @ share_a,
        shares_b=merge_b @ share_b,
    )


def words_of(sentence: str, vectors: TokenVectors) -> list[Word]:
    """The words of a sentence as the tokenizer split them; each special token is a word of its own."""
    words: list[Word] = []
    group: list[int] = []
    for position, word in enumerate(vectors.words):
        if group and (word is None or word != vectors.words[group[-1]]):
            words.append(_word(sentence, vectors, group))
            group = []
        group.append(position)
    return [*words, _word(sentence, vectors, group)] if group else words


def _word(sentence: str, vectors: TokenVectors, group: list[int]) -> Word:
    start, end = vectors.offsets[group[0]][0], vectors.offsets[group[-1]][1]
    special = vectors.words[group[0]] is None
    text = vectors.tokens[group[0]] if special else sentence[start:end]
    stripped = text.strip()
    start += len(text) - len(text.lstrip()) if not special else 0
    return Word(stripped or vectors.tokens[group[0]], start, start + (0 if special else len(stripped)), tuple(group))


def _merger(words: list[Word], tokens: int) -> np.ndarray:
    """A matrix (W, T) of zeros and ones that adds up the tokens of each word."""
    merger = np.zeros((len(words), tokens))
    for row, word in enumerate(words):
        merger[row, list(word.tokens)] = 1
    return merger


TokenMap = tuple[np.ndarray, np.ndarray, np.ndarray]  # (T_u, T_v) that sums to the cosine, shares (T_u,), (T_v,)


def _mean_map(h: np.ndarray, k: np.ndarray) -> TokenMap:
    lengths = np.linalg.norm(h.mean(axis=0)) * np.linalg.norm(k.mean(axis=0))
    shares = np.full(len(h), 1 / len(h)), np.full(len(k), 1 / len(k))
    return h @ k.T / (len(h) * len(k) * (lengths or 1)), *shares


def _max_map(h: np.ndarray, k: np.ndarray) -> TokenMap:
    winner_h, winner_k = h.argmax(axis=0), k.argmax(axis=0)  # (D,)
    u, v = h.max(axis=0), k.max(axis=0)
    tokens = np.zeros((len(h), len(k)))
    np.add.at(tokens, (winner_h, winner_k), u * v / ((np.linalg.norm(u) * np.linalg.norm(v)) or 1))
    dimensions = h.shape[1]
    wins = np.bincount(winner_h, minlength=len(h)), np.bincount(winner_k, minlength=len(k))
    return tokens, wins[0] / dimensions, wins[1] / dimensions


_TOKEN_MAPS: dict[str, Callable[[np.ndarray, np.ndarray], TokenMap]] = {"mean": _mean_map, "max": _max_map}
