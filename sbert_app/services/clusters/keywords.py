"""Keywords of clusters: class-based TF-IDF (Grootendorst 2022), in every language that writes words.

All sentences of a cluster count as one text. A word weighs its share in that text (TF), times the logarithm of how
rare it is among all sentences (IDF), times the logarithm of how much greater its share is here than elsewhere (what
makes it class-based). The last two must be much together, or the word says nothing: so articles and prepositions go
without a list of stop words, in small corpora too. Chinese and Japanese, written without spaces, are counted by two
characters at a time.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
FEWEST = 2  # sentences of a cluster that hold a keyword, where it has more than one
TELLING = (
    3.0  # the two logarithms multiplied, at least: in every seventh sentence, and five times as often as elsewhere
)


def keywords(sentences: Sequence[str], labels: np.ndarray, k: int = 6) -> dict[int, list[str]]:
    """The k words of each label that set it apart from the others, heaviest first.

    Args:
        sentences: N texts.
        labels: int (N,); each number is a class, also those below 0.
        k: words at most.
    """
    counts: dict[int, Counter[str]] = {}  # in each class
    holders: dict[int, Counter[str]] = {}  # sentences of each class that hold the word
    for sentence, label in zip(sentences, labels.tolist(), strict=True):
        found = list(words(sentence))
        counts.setdefault(label, Counter()).update(found)
        holders.setdefault(label, Counter()).update(set(found))
    overall: Counter[str] = Counter()
    rarity: Counter[str] = Counter()
    for label in counts:
        overall.update(counts[label])
        rarity.update(holders[label])
    sizes = Counter(labels.tolist())
    best = {}
    for label, own in counts.items():
        # One is added to every count elsewhere, so that a word that is only here has a finite ratio.
        elsewhere = (overall.total() - own.total() + 1) / max(own.total(), 1)
        weights = {}
        for word, count in own.items():
            ratio = count * elsewhere / (overall[word] - count + 1)
            telling = math.log(len(sentences) / rarity[word]) * math.log(ratio)
            if ratio > 1 and telling >= TELLING and holders[label][word] >= min(FEWEST, sizes[label]):
                weights[word] = count * telling
        best[label] = sorted(weights, key=lambda word: (-weights[word], word))[:k]
    return best


def words(sentence: str) -> Iterator[str]:
    """The words of a sentence in small letters; numbers do not count."""
    for word in WORD.findall(sentence.casefold()):
        if UNSPACED.search(word):
            yield from (word[at : at + 2] for at in range(max(1, len(word) - 1)))
        else:
            yield word
