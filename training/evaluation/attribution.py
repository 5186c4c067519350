"""Attribution: the share of each word in the score of two sentences. The first of two methods that applies is used.

**Exact**, for mean and max pooling: the cosine as a sum over pairs of words.

*Mean pooling.* u is the mean of its token vectors h_i and v of its h_j, so the cosine is a sum over
pairs:

    cos(u, v) = Σij  h_i·h_j / (T_u T_v |u| |v|)

This is exact: each cell is the share of a token pair, and all cells sum to the cosine. The same
holds for every pooling that is a weighted sum of tokens, and after linear modules (Dense without
activation), which map a sum to a sum. A bias is distributed equally over the tokens. Cutting the
vector to its first dimensions cuts every h_i.

*Max pooling.* Each dimension d of u is the value of one token, and the same holds for v, so u_d v_d
/ (|u| |v|) belongs to the pair of tokens with the largest values. This map sums to the cosine too.

**Leave-one-out** (Li et al. 2016), for every other encoder and for cross-encoders: the decrease of
the score if a word is left out. The word is not replaced by a mask, because the model would guess
what the mask stands for.

Sub-words are summed to words. In an exact map [CLS] and [SEP] have their own rows, as they are
pooled too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from training.models.model import Model, PairModel, required
from training.pooling import poolings

if TYPE_CHECKING:
    from training.models.encoder import Encoder
    from training.models.tokenization import TokenVectors


def has_exact_map(encoder: Encoder) -> bool:
    """Tells whether the cosine is a sum over pairs of tokens."""
    # With max pooling each dimension belongs to one token, unless a module mixes the dimensions.
    if encoder.pooling == "max":
        return len(encoder.head) == 0
    pooling = poolings().get(encoder.pooling)
    if pooling is None or pooling.weights is None:
        return False
    return all(module.is_linear or _only_scales(module) for module in encoder.head)


@dataclass(frozen=True)
class Word:
    """A word or special token of one sentence."""

    text: str
    # The offsets in the sentence. Start equals end for a special token, and for a word of a prompt.
    start: int
    end: int
    # The positions of its tokens.
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Attribution:
    """The cosine of two sentences as a sum over word pairs."""

    words_a: list[str]
    words_b: list[str]
    matrix: np.ndarray  # (A, B) float64, sums to the cosine
    cosine: float
    kind: str = "exact"

    def __repr__(self) -> str:
        return f"Attribution(cosine {self.cosine:.4f} of {len(self.words_a)} × {len(self.words_b)} words)"

    def _repr_html_(self) -> str:
        return heat_map(
            self.words_a, self.words_b, self.matrix, f"cosine {self.cosine:.4f}, as a sum"
        )


@dataclass(frozen=True)
class WordAttribution:
    """The decrease of the score of two sentences without each of their words."""

    words_a: list[str]
    words_b: list[str]
    added_a: np.ndarray  # (A,) float64
    added_b: np.ndarray  # (B,)
    score: float
    kind: str = "leave-one-out"

    def __repr__(self) -> str:
        return f"WordAttribution({self.kind}, of {len(self.words_a)} and {len(self.words_b)} words, {self.score:.4f})"

    def _repr_html_(self) -> str:
        first = heat_map(
            ["first"], self.words_a, self.added_a[None], f"score {self.score:.4f}; {self.kind}"
        )
        return first + heat_map(["second"], self.words_b, self.added_b[None], caption="")


def attribute(encoder: Model, a: str, b: str) -> Attribution | WordAttribution:
    """Computes the share of each word in the score of two sentences.

    Args:
        encoder: an encoder or a cross-encoder.
        a: a sentence of A words.
        b: a sentence of B words.

    Returns:
        For an encoder with mean or max pooling and linear modules, an `Attribution`: a matrix
        (A, B) of word pairs that sums to the cosine exactly. For other models a
        `WordAttribution`: the decrease of the score without each word, (A,) and (B,). ``kind``
        names the method.

    Raises:
        InputError: the model has neither tokens nor weights here.

    Example::

        from sbert_lab import Encoder, attribute

        result = attribute(Encoder("all-MiniLM-L6-v2"), "A man is eating.", "A man eats food.")
        print(result.words_a, result.words_b)
        print(result.matrix.sum(), result.cosine)  # equal
    """
    # These modules import torch, which takes seconds.
    from training.models.encoder import Encoder

    if isinstance(encoder, PairModel):
        words_a = words_of(a, encoder.tokens(a))
        words_b = words_of(b, encoder.tokens(b))
        return leave_one_out(encoder, a, b, words_a, words_b)
    encoder = required(encoder, Encoder)
    first, second = encoder.token_vectors([a, b])
    if has_exact_map(encoder):
        return attribute_tokens(encoder, a, b, first, second)
    return leave_one_out(encoder, a, b, words_of(a, first), words_of(b, second))


def attribute_tokens(
    encoder: Encoder, a: str, b: str, first: TokenVectors, second: TokenVectors
) -> Attribution:
    """Computes the exact map from the token vectors. The encoder must have one, see `has_exact_map`."""
    if encoder.pooling == "max":
        tokens = _max_map(encoder, first, second)  # (T of a, T of b)
    else:
        u_terms = _terms(encoder, first)
        v_terms = _terms(encoder, second)
        length = np.linalg.norm(u_terms.sum(axis=0)) * np.linalg.norm(v_terms.sum(axis=0))
        tokens = u_terms @ v_terms.T / (length or 1)
    words_a = words_of(a, first)
    words_b = words_of(b, second)
    matrix = _merger(words_a, len(first.tokens)) @ tokens @ _merger(words_b, len(second.tokens)).T
    return Attribution(_texts(words_a), _texts(words_b), matrix, float(matrix.sum()))


def _texts(words: Sequence[Word]) -> list[str]:
    return [word.text for word in words]


def words_of(sentence: str, vectors: TokenVectors) -> list[Word]:
    """Returns the words of a sentence as the tokenizer split them.

    A word with an apostrophe, such as don't, stays whole. Each special token is a word.
    """
    words = []
    prompt_length = len(vectors.prompt)
    # The places inside of words such as don't, which many tokenizers split at the apostrophe.
    inside: set[int] = set()
    for match in re.finditer(r"\w+['’]\w+", vectors.prompt + sentence):
        inside.update(range(match.start() + 1, match.end()))
    # The first token of each word.
    starts = []
    previous = None
    for token, number in enumerate(vectors.words):
        # The tokens of a word have the same number, special tokens have none.
        is_other = number != previous and vectors.offsets[token][0] not in inside
        if number is None or is_other:
            starts.append(token)
        previous = number
    # A word ends where the next one starts, and the last word at the end of all tokens.
    for first, next_first in pairwise([*starts, len(vectors.words)]):
        # The offsets in the prompt and the sentence together.
        start = vectors.offsets[first][0]
        end = vectors.offsets[next_first - 1][1]
        is_special = vectors.words[first] is None
        text = (vectors.prompt + sentence)[start:end]
        if is_special:
            text = vectors.tokens[first]
        stripped = text.strip()
        # The offsets in the sentence, after the prompt and the spaces before the word. They stay 0
        # for a special token, and for a word of the prompt.
        place = 0
        length = 0
        if not is_special and end > prompt_length:
            spaces = len(text) - len(text.lstrip())
            place = max(0, start + spaces - prompt_length)
            length = len(stripped)
        # A word of spaces alone is shown as its token.
        words.append(
            Word(
                stripped or vectors.tokens[first],
                start=place,
                end=place + length,
                tokens=tuple(range(first, next_first)),
            )
        )
    return words


def _merger(words: list[Word], tokens: int) -> np.ndarray:
    """Makes a matrix (W, T) of zeros and ones that sums the tokens of each word."""
    merger = np.zeros((len(words), tokens))
    for row, word in enumerate(words):
        merger[row, list(word.tokens)] = 1
    return merger


def _terms(encoder: Encoder, side: TokenVectors) -> np.ndarray:
    """Computes the terms (T, D) that sum to the sentence vector."""
    from training.models.modules import Dense

    pooling_weights = poolings()[encoder.pooling].weights
    assert pooling_weights is not None  # noqa: S101 - the pooling is a weighted sum, by `has_exact_map`
    # The tokens of a prompt may be left out.
    is_pooled = np.arange(len(side.hidden)) >= side.skipped
    weights = np.array(pooling_weights(len(side.hidden), side.skipped)) * is_pooled
    terms = side.hidden.astype(np.float64) * weights[:, None]
    for module in encoder.head:
        # By `has_exact_map` each module scales the vector to length 1, or is a linear `Dense`.
        if _only_scales(module):
            terms /= np.linalg.norm(terms.sum(axis=0)) or 1
        elif isinstance(module, Dense):
            terms = terms @ module.linear.weight.detach().double().cpu().numpy().T
            if module.linear.bias is not None:
                bias = module.linear.bias.detach().double().cpu().numpy()
                terms += bias * (is_pooled / is_pooled.sum())[:, None]
    return terms[:, : encoder.dimension]


def _only_scales(module: object) -> bool:
    """Tells whether a module only changes the length of a vector."""
    # The class is told by its name, because importing it imports torch.
    return type(module).__name__ == "Normalize"


def _max_map(encoder: Encoder, first: TokenVectors, second: TokenVectors) -> np.ndarray:
    """Computes the map (T of u, T of v) that sums to the cosine."""
    h = first.hidden[:, : encoder.dimension].astype(np.float64)
    k = second.hidden[:, : encoder.dimension].astype(np.float64)
    # The tokens of a prompt may be left out of the pooling.
    h[: first.skipped] = -np.inf
    k[: second.skipped] = -np.inf
    u = h.max(axis=0)  # (D,)
    v = k.max(axis=0)  # (D,)
    length = np.linalg.norm(u) * np.linalg.norm(v)
    tokens = np.zeros((len(h), len(k)))
    # Each dimension counts for the tokens with the largest values. `np.add.at` sums the dimensions
    # of the same pair of tokens.
    np.add.at(tokens, (h.argmax(axis=0), k.argmax(axis=0)), u * v / (length or 1))
    return tokens


def leave_one_out(
    model: Model, a: str, b: str, words_a: Sequence[Word], words_b: Sequence[Word]
) -> WordAttribution:
    """Computes the decrease of the score without each word, with all pairs in one batch."""
    # Special tokens and the words of a prompt cannot be left out.
    words_a = words_in_text(words_a)
    words_b = words_in_text(words_b)
    # The first score is the one of the whole sentences.
    scores = model.score([(a, b), *pairs_without(a, b, words_a, words_b)])
    added = (scores[0] - scores[1:]).astype(np.float64)
    added_a, added_b = np.split(added, [len(words_a)])
    return WordAttribution(_texts(words_a), _texts(words_b), added_a, added_b, float(scores[0]))


def words_in_text(words: Sequence[Word]) -> list[Word]:
    """Returns the words of the sentence itself, without special tokens and the words of a prompt."""
    return [word for word in words if word.end > word.start]


def pairs_without(
    a: str, b: str, words_a: Sequence[Word], words_b: Sequence[Word]
) -> list[tuple[str, str]]:
    """Returns the pair without each word of ``a``, and then without each word of ``b``."""
    pairs = [(_without(a, word), b) for word in words_a]
    return pairs + [(a, _without(b, word)) for word in words_b]


def _without(sentence: str, word: Word) -> str:
    """Removes a word from a sentence, with the spaces after it if it is the first word or follows a space."""
    before = sentence[: word.start]
    after = sentence[word.end :]
    if before == "" or before.endswith(" "):
        after = after.lstrip(" ")
    return before + after


def heat_map(rows: Sequence[str], columns: Sequence[str], values: np.ndarray, caption: str) -> str:
    """Makes an HTML table of numbers by row and column, in blue, or in orange for negative ones."""
    most = float(np.abs(values).max(initial=0)) or 1.0

    def cell(value: float) -> str:
        color = "0,114,178" if value > 0 else "230,159,0"
        return f"<td style='background:rgba({color},{abs(value) / most:.2f})'>{value:.3f}</td>"

    head = "".join(f"<th>{escape(word)}</th>" for word in columns)
    body = ""
    for word, line in zip(rows, values, strict=True):
        body += f"<tr><th>{escape(word)}</th>{''.join(map(cell, line))}</tr>"
    return f"<p>{escape(caption)}</p><table><tr><th></th>{head}</tr>{body}</table>"
