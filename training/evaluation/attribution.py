"""Attribution: the cosine of two sentences as a sum over pairs of their words.

**Mean pooling.** u is the mean of its token vectors h_i and v of its h_j, so the cosine is a sum over pairs:

    cos(u, v) = Σij  h_i·h_j / (T_u T_v |u| |v|)

This is exact: each cell is the share of a token pair, and all cells add up to the cosine. The same holds for every
pooling that is a weighted sum of tokens, and after linear modules (Dense without activation), which map a sum to a sum;
a bias is shared equally by the tokens. Cutting the vector to its first dimensions cuts every h_i.

**Max pooling.** Each dimension d of u is the value of one token, and likewise of v, so u_d v_d / (|u| |v|) belongs to
the pair of tokens whose values are largest. This map sums to the cosine too; the shares are the fractions of
dimensions in which each token has the largest value.

**CLS and last-token pooling.** The vector is the output of one token. The other words act within the transformer, which
is not a sum over words, so there is no such map; nor is there one after a module that is not linear. Leave words out
one by one instead. `why_no_map` says which it is.

The cells of sub-words are added up to words. [CLS] and [SEP] have rows of their own: they are pooled too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from training import notebook
from training.errors import InputError
from training.pooling import POOLINGS, pooling_label

if TYPE_CHECKING:
    from training.models.encoder import Encoder, TokenVectors

NO_MAP_FOR_CLS = (
    "CLS pooling has no exact word map: the sentence vector is the output of one token, and the other words act on "
    "it inside the transformer. Leaving words out one by one shows their effect."
)
_NO_MAP = " has no exact word map. Leaving words out one by one shows their effect."


def why_no_map(encoder: Encoder) -> str:
    """Why there is no exact word map for this encoder, in one or two sentences; "" if there is one."""
    pooling = encoder.pooling
    if pooling == "cls":
        return NO_MAP_FOR_CLS
    if pooling == "max" and not len(encoder.head):
        return ""
    if pooling not in POOLINGS or POOLINGS[pooling].weights is None:
        label = pooling_label(pooling)
        return f"{label[0].upper()}{label[1:]} pooling{_NO_MAP}"
    bent = [type(module).__name__ for module in encoder.head if not (module.is_linear or _scales(module))]
    return f"A {bent[0]} module, which is not linear, comes after the pooling: that{_NO_MAP}" if bent else ""


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

    def __repr__(self) -> str:
        return f"Attribution(cosine {self.cosine:.4f} of {len(self.words_a)} × {len(self.words_b)} words)"

    def _repr_html_(self) -> str:
        return notebook.heat_map(self.words_a, self.words_b, self.matrix, f"cosine {self.cosine:.4f}, as a sum")


def attribute(encoder: Encoder, a: str, b: str) -> Attribution:
    """Attribute the cosine of ``a`` and ``b`` to word pairs. InputError if the encoder has no such map."""
    first, second = encoder.token_vectors([a, b])
    return attribute_tokens(encoder, a, b, first, second)


def attribute_tokens(encoder: Encoder, a: str, b: str, first: TokenVectors, second: TokenVectors) -> Attribution:
    """Attribute the cosine of ``a`` and ``b`` to word pairs, given their token vectors. InputError as `attribute`."""
    if reason := why_no_map(encoder):
        raise InputError(reason)
    to_terms = _max_map if encoder.pooling == "max" else _sum_map
    tokens, share_a, share_b = to_terms(encoder, first, second)
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
    """A word; one of the prompt, like a special token, stands nowhere in the sentence: start == end."""
    before = len(vectors.prompt)
    start, end = vectors.offsets[group[0]][0], vectors.offsets[group[-1]][1]
    special = vectors.words[group[0]] is None
    text = vectors.tokens[group[0]] if special else (vectors.prompt + sentence)[start:end]
    stripped = text.strip()
    inside = not special and end > before
    first = max(0, start + len(text) - len(text.lstrip()) - before) if inside else 0
    last = first + len(stripped) if inside else first
    return Word(stripped or vectors.tokens[group[0]], first, last, tuple(group))


def _merger(words: list[Word], tokens: int) -> np.ndarray:
    """A matrix (W, T) of zeros and ones that adds up the tokens of each word."""
    merger = np.zeros((len(words), tokens))
    for row, word in enumerate(words):
        merger[row, list(word.tokens)] = 1
    return merger


TokenMap = tuple[np.ndarray, np.ndarray, np.ndarray]  # (T_u, T_v) that sums to the cosine, shares (T_u,), (T_v,)


def _sum_map(encoder: Encoder, first: TokenVectors, second: TokenVectors) -> TokenMap:
    weights = [_weights(encoder, side) for side in (first, second)]
    terms = [_terms(encoder, side, each) for side, each in zip((first, second), weights, strict=True)]
    lengths = [np.linalg.norm(each.sum(axis=0)) for each in terms]
    shares = [each / (each.sum() or 1) for each in weights]
    return terms[0] @ terms[1].T / (lengths[0] * lengths[1] or 1), shares[0], shares[1]


def _is_pooled(side: TokenVectors) -> np.ndarray:
    """(T,) False for the tokens of a prompt that is left out."""
    return np.arange(len(side.hidden)) >= side.skipped


def _weights(encoder: Encoder, side: TokenVectors) -> np.ndarray:
    """(T,) the weight of each token in the pooled vector."""
    weights = POOLINGS[encoder.pooling].weights
    assert weights is not None  # noqa: S101 - `why_no_map` has said so
    return np.array(weights(len(side.hidden), side.skipped)) * _is_pooled(side)


def _terms(encoder: Encoder, side: TokenVectors, weights: np.ndarray) -> np.ndarray:
    """(T, D) terms that add up to the sentence vector."""
    is_pooled = _is_pooled(side)
    terms = side.hidden.astype(np.float64) * weights[:, None]
    from training.models.modules import Dense  # torch takes seconds to import

    for module in encoder.head:
        if _scales(module):
            terms /= np.linalg.norm(terms.sum(axis=0)) or 1
        elif isinstance(module, Dense):
            terms = terms @ module.linear.weight.detach().double().cpu().numpy().T
            if module.linear.bias is not None:
                terms += module.linear.bias.detach().double().cpu().numpy() * (is_pooled / is_pooled.sum())[:, None]
    return terms[:, : encoder.dimension]


def _scales(module: object) -> bool:
    """Whether a module only changes the length of a vector."""
    return type(module).__name__ == "Normalize"


def _max_map(encoder: Encoder, first: TokenVectors, second: TokenVectors) -> TokenMap:
    h, k = (
        np.where(_is_pooled(side)[:, None], side.hidden, -np.inf)[:, : encoder.dimension].astype(np.float64)
        for side in (first, second)
    )
    winner_h, winner_k = h.argmax(axis=0), k.argmax(axis=0)  # (D,)
    u, v = h.max(axis=0), k.max(axis=0)
    tokens = np.zeros((len(h), len(k)))
    np.add.at(tokens, (winner_h, winner_k), u * v / ((np.linalg.norm(u) * np.linalg.norm(v)) or 1))
    dimensions = h.shape[1]
    wins = np.bincount(winner_h, minlength=len(h)), np.bincount(winner_k, minlength=len(k))
    return tokens, wins[0] / dimensions, wins[1] / dimensions
