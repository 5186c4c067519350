"""Attribution: the share of each word in the score of two sentences, by the first of three methods that applies.

**Exact**, for mean and max pooling: the cosine as a sum over pairs of words.

*Mean pooling.* u is the mean of its token vectors h_i and v of its h_j, so the cosine is a sum over pairs:

    cos(u, v) = Σij  h_i·h_j / (T_u T_v |u| |v|)

This is exact: each cell is the share of a token pair, and all cells add up to the cosine. The same holds for every
pooling that is a weighted sum of tokens, and after linear modules (Dense without activation), which map a sum to a sum;
a bias is shared equally by the tokens. Cutting the vector to its first dimensions cuts every h_i.

*Max pooling.* Each dimension d of u is the value of one token, and likewise of v, so u_d v_d / (|u| |v|) belongs to
the pair of tokens whose values are largest. This map sums to the cosine too.

**Integrated gradients** (Sundararajan et al. 2017, equation 1), where the words act on one another within the network:
CLS and last-token pooling, or a module after the pooling that is not linear. To the cosine with the other sentence,
which stays as it is, a token adds (x − x')·∫ ∂cos/∂x dα along x' + α (x − x') from α = 0 to 1: x is its embedding, and
x', the baseline, that of the padding token; special tokens stay. The integral is a sum over Gauss-Legendre nodes, the
steps. Up to a remainder, which shrinks as they grow, the words add the cosine minus the baseline's (completeness).

**Leave-one-out** (Li et al. 2016), for cross-encoders: the fall of the score where a word is left out. A mask in its
place would tell the model that something stands there, and it would fill the gap.

Sub-words are added up to words. In an exact map [CLS] and [SEP] have rows of their own: they are pooled too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from training.errors import InputError
from training.models.model import Model, PairModel, required
from training.pooling import poolings

if TYPE_CHECKING:
    from torch import Tensor

    from training.models.encoder import Encoder
    from training.models.tokenization import TokenVectors

STEPS = 32
# The tokens whose activations are in memory for a backward pass, on each core.
TOKENS_AT_ONCE = 512


def has_exact_map(encoder: Encoder) -> bool:
    """Whether the cosine is a sum over pairs of tokens."""
    if encoder.pooling == "max":
        return not len(encoder.head)
    pooling = poolings().get(encoder.pooling)
    is_sum = pooling is not None and pooling.weights is not None
    return is_sum and all(module.is_linear or _scales(module) for module in encoder.head)


@dataclass(frozen=True)
class Word:
    """A word or special token of one sentence."""

    text: str
    # The offsets in the sentence; start equals end for a special token.
    start: int
    end: int
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
        return heat_map(self.words_a, self.words_b, self.matrix, f"cosine {self.cosine:.4f}, as a sum")


@dataclass(frozen=True)
class WordAttribution:
    """The amount that each word of two sentences adds to their score, while the other sentence stays as it is."""

    words_a: list[str]
    words_b: list[str]
    added_a: np.ndarray  # (A,) float64
    added_b: np.ndarray  # (B,)
    score: float
    # Leave-one-out; or integrated gradients, with their steps and the larger remainder.
    kind: str = "leave-one-out"
    # The cosines with the first sentence and with the second one at its baseline.
    baselines: tuple[float, ...] = ()
    # The cosine minus the baseline's and minus the sum over the words, of each sentence.
    remainders: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        added = {"added_a": self.added_a.round(6).tolist(), "added_b": self.added_b.round(6).tolist()}
        return {**asdict(self), **added}

    def __repr__(self) -> str:
        return f"WordAttribution({self.kind}, of {len(self.words_a)} and {len(self.words_b)} words, {self.score:.4f})"

    def _repr_html_(self) -> str:
        first = heat_map(["first"], self.words_a, self.added_a[None], f"score {self.score:.4f}; {self.kind}")
        return first + heat_map(["second"], self.words_b, self.added_b[None], "")


def attribute(encoder: Model, a: str, b: str, steps: int = STEPS) -> Attribution | WordAttribution:
    """The words that make the score of ``a`` and ``b``; ``kind`` names the method.

    Args:
        encoder: an encoder with mean or max pooling and linear modules gives a matrix of word pairs that sums to the
            cosine exactly; any other gives the share of each word in the cosine, by integrated gradients; and a
            cross-encoder the fall of its score without each word. InputError for another model.
        steps: the steps of the integrated gradients; the more, the smaller the remainder.
    """
    # These modules import torch, which takes seconds.
    from training.models.encoder import Encoder

    if isinstance(encoder, PairModel):
        return leave_one_out(encoder, a, b)
    encoder = required(encoder, Encoder)
    if not has_exact_map(encoder):
        return integrated_gradients(encoder, a, b, steps)
    return attribute_tokens(encoder, a, b, *encoder.token_vectors([a, b]))


def attribute_tokens(encoder: Encoder, a: str, b: str, first: TokenVectors, second: TokenVectors) -> Attribution:
    """The exact map of ``a`` and ``b`` from their token vectors. The encoder must have one, see `has_exact_map`."""
    if encoder.pooling == "max":
        tokens = _max_map(encoder, first, second)
    else:
        u_terms, v_terms = _terms(encoder, first), _terms(encoder, second)
        length = np.linalg.norm(u_terms.sum(axis=0)) * np.linalg.norm(v_terms.sum(axis=0))
        tokens = u_terms @ v_terms.T / (length or 1)
    words_a, words_b = words_of(a, first), words_of(b, second)
    matrix = _merger(words_a, len(first.tokens)) @ tokens @ _merger(words_b, len(second.tokens)).T
    texts_a, texts_b = ([word.text for word in words] for words in (words_a, words_b))
    return Attribution(texts_a, texts_b, matrix, float(matrix.sum()))


def words_of(sentence: str, vectors: TokenVectors) -> list[Word]:
    """The words of a sentence as the tokenizer split them; each special token is a word of its own."""
    words, before = [], len(vectors.prompt)
    starts = [i for i, word in enumerate(vectors.words) if not i or word is None or word != vectors.words[i - 1]]
    for first, next_first in pairwise([*starts, len(vectors.words)]):
        start, end = vectors.offsets[first][0], vectors.offsets[next_first - 1][1]
        is_special = vectors.words[first] is None
        text = vectors.tokens[first] if is_special else (vectors.prompt + sentence)[start:end]
        stripped = text.strip()
        # A word of the prompt and a special token have no place in the sentence: start equals end.
        is_inside = not is_special and end > before
        place = max(0, start + len(text) - len(text.lstrip()) - before) if is_inside else 0
        length = len(stripped) if is_inside else 0
        words.append(Word(stripped or vectors.tokens[first], place, place + length, tuple(range(first, next_first))))
    return words


def _merger(words: list[Word], tokens: int) -> np.ndarray:
    """A matrix (W, T) of zeros and ones that adds up the tokens of each word."""
    merger = np.zeros((len(words), tokens))
    for row, word in enumerate(words):
        merger[row, list(word.tokens)] = 1
    return merger


def _terms(encoder: Encoder, side: TokenVectors) -> np.ndarray:
    """The terms (T, D) that add up to the sentence vector."""
    # Torch takes seconds to import.
    from training.models.modules import Dense

    pooling_weights = poolings()[encoder.pooling].weights
    assert pooling_weights is not None  # noqa: S101 - the pooling is a weighted sum, by `has_exact_map`
    # Those of a prompt may be left out.
    is_pooled = np.arange(len(side.hidden)) >= side.skipped
    weights = np.array(pooling_weights(len(side.hidden), side.skipped)) * is_pooled
    terms = side.hidden.astype(np.float64) * weights[:, None]
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


def _max_map(encoder: Encoder, first: TokenVectors, second: TokenVectors) -> np.ndarray:
    """The map (T_u, T_v) that sums to the cosine."""
    h, k = (side.hidden[:, : encoder.dimension].astype(np.float64) for side in (first, second))
    # The tokens of a prompt may be left out of the pooling.
    h[: first.skipped], k[: second.skipped] = -np.inf, -np.inf
    u, v = h.max(axis=0), k.max(axis=0)  # (D,)
    tokens = np.zeros((len(h), len(k)))
    # The tokens with the largest values.
    winners = h.argmax(axis=0), k.argmax(axis=0)
    np.add.at(tokens, winners, u * v / ((np.linalg.norm(u) * np.linalg.norm(v)) or 1))
    return tokens


class _Path:
    """The straight line from a sentence's baseline to the sentence, both as the embeddings of its T tokens."""

    def __init__(self, encoder: Encoder, text: str) -> None:
        import torch

        (vectors,), (ids,) = encoder.token_vectors([text]), encoder.tokenize([text])
        is_special = [word is None for word in vectors.words] or [True]
        start = [token if special else encoder.pad_id for token, special in zip(ids, is_special, strict=True)]
        embed = encoder.backbone.get_input_embeddings()
        with torch.no_grad():
            self.start, self.end = embed(torch.tensor([start, ids], device=encoder.device))  # (T, E) float32
        self.encoder, self.words = encoder, words_of(text, vectors)

    def vectors(self, points: Tensor) -> Tensor:
        """Points of the path (S, T, E) -> sentence vectors (S, D), differentiable."""
        hidden = self.encoder.backbone(inputs_embeds=points).last_hidden_state
        return self.encoder.pool(hidden, None)[:, : self.encoder.dimension]

    def added(self, other: Tensor, steps: int) -> np.ndarray:
        """The amount that each word adds to the cosine with ``other`` (D,) along the path: (W,) float64."""
        import torch
        from torch.nn.functional import cosine_similarity

        from training import parallel

        nodes, weights = np.polynomial.legendre.leggauss(steps)
        way = self.end - self.start

        def gradient(part: np.ndarray) -> Tensor:
            alphas, shares = (torch.from_numpy(values[part] / 2).to(way) for values in (nodes + 1, weights))
            points = (self.start + alphas[:, None, None] * way).requires_grad_()
            cosines = cosine_similarity(self.vectors(points), other[None])
            return torch.autograd.grad((shares * cosines).sum(), points)[0].sum(0)

        at_once = max(1, TOKENS_AT_ONCE // len(way))
        parts = np.array_split(np.arange(steps), -(-steps // at_once))
        total = torch.stack(list(parallel.imap(gradient, parts))).sum(0)
        return _merger(self.words, len(way)) @ (way * total).sum(1).double().cpu().numpy()


def integrated_gradients(
    encoder: Encoder, a: str, b: str, steps: int = STEPS, second: Encoder | None = None
) -> WordAttribution:
    """The amount that each word adds to the cosine of ``a`` and ``b``, which ``second``, if any, reads."""
    import torch
    from torch.nn.functional import cosine_similarity

    if steps < 1:
        raise InputError(f"integrated gradients take at least 1 step, not {steps}")
    paths = _Path(encoder, a), _Path(second or encoder, b)
    with torch.no_grad():
        (u0, u), (v0, v) = (path.vectors(torch.stack([path.start, path.end])) for path in paths)
        pairs = torch.stack([u, u0, u]), torch.stack([v, v, v0])
    score, *baselines = cosine_similarity(*pairs).tolist()
    added = paths[0].added(v, steps), paths[1].added(u, steps)
    remainders = tuple(score - base - float(shares.sum()) for base, shares in zip(baselines, added, strict=True))
    kind = f"integrated gradients, {steps} steps, remainder {max(map(abs, remainders)):.3f}"
    words_a, words_b = ([word.text for word in path.words] for path in paths)
    return WordAttribution(words_a, words_b, *added, score, kind, tuple(baselines), remainders)


def leave_one_out(cross_encoder: PairModel, a: str, b: str) -> WordAttribution:
    """The fall of the score where a word is left out, one word at a time, with all pairs in one batch."""
    words_a = words_in_text(words_of(a, cross_encoder.tokens(a)))
    words_b = words_in_text(words_of(b, cross_encoder.tokens(b)))
    scores = cross_encoder.predict([(a, b), *pairs_without(a, b, words_a, words_b)])
    added = (scores[0] - scores[1:]).astype(np.float64)
    added_a, added_b = np.split(added, [len(words_a)])
    texts_a, texts_b = ([word.text for word in words] for words in (words_a, words_b))
    return WordAttribution(texts_a, texts_b, added_a, added_b, float(scores[0]))


def words_in_text(words: Sequence[Word]) -> list[Word]:
    """The words that have a place in the sentence, without special tokens and the words of a prompt."""
    return [word for word in words if word.end > word.start]


def pairs_without(a: str, b: str, words_a: Sequence[Word], words_b: Sequence[Word]) -> list[tuple[str, str]]:
    """The pair without each word of ``a`` in turn, and then without each word of ``b``."""
    pairs = [(_without(a, word), b) for word in words_a]
    return pairs + [(a, _without(b, word)) for word in words_b]


def _without(sentence: str, word: Word) -> str:
    """The sentence without a word, and without one of the two spaces around it."""
    before, after = sentence[: word.start], sentence[word.end :]
    return before + (after.lstrip(" ") if before.endswith(" ") or not before else after)


def heat_map(rows: Sequence[str], columns: Sequence[str], values: np.ndarray, caption: str) -> str:
    """An HTML table of numbers by row and column: the larger, the bluer; negative ones are orange."""
    most = float(np.abs(values).max(initial=0)) or 1.0

    def cell(value: float) -> str:
        color = "0,114,178" if value > 0 else "230,159,0"
        return f"<td style='background:rgba({color},{abs(value) / most:.2f})'>{value:.3f}</td>"

    head = "".join(f"<th>{escape(word)}</th>" for word in columns)
    lines = zip(rows, values, strict=True)
    body = "".join(f"<tr><th>{escape(word)}</th>{''.join(map(cell, line))}</tr>" for word, line in lines)
    return f"<p>{escape(caption)}</p><table><tr><th></th>{head}</tr>{body}</table>"
