"""Keywords of clusters: class-based TF-IDF (Grootendorst 2022), for every language with a script of words.

All sentences of a cluster count as one document. The weight of a word is its frequency in that document (TF), times
the logarithm of its rarity among all sentences (IDF), times the logarithm of the ratio of its frequency here to its
frequency elsewhere (the class-based part). The product of the two logarithms should reach a threshold; a class in which
no word does has its best ones instead. Articles, prepositions and the like are left out in the languages of
`sbert_app.services.function_words`. Chinese and Japanese, written without spaces, are counted as character bigrams.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from sbert_app.services.function_words import stop_words

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
MIN_SENTENCES = 2  # of a cluster that contain a keyword, unless the cluster has only one
MAX_COUNTED = 100_000  # sentences of a large corpus whose words are counted
MIN_SPECIFICITY = 3.0  # product of the logarithms: in one sentence of seven, and five times as frequent as elsewhere


def keywords(sentences: Sequence[str], labels: np.ndarray, k: int = 6) -> dict[int, list[str]]:
    """The words of each label that distinguish it from the others, the highest weight first.

    Args:
        sentences: N texts.
        labels: int (N,); each number is a class, negative ones too.
        k: the maximum number of words of a label.
    """
    counts: dict[int, Counter[str]] = {}  # occurrences in each class
    document_counts: dict[int, Counter[str]] = {}  # sentences of each class that contain the word
    for sentence, label in zip(sentences, labels.tolist(), strict=True):
        tokens = list(words(sentence))
        counts.setdefault(label, Counter()).update(tokens)
        document_counts.setdefault(label, Counter()).update(set(tokens))
    total_counts: Counter[str] = Counter()
    total_document_counts: Counter[str] = Counter()
    for label in counts:
        total_counts.update(counts[label])
        total_document_counts.update(document_counts[label])
    sizes, stopped = Counter(labels.tolist()), stop_words(total_counts.elements())
    best = {}
    for label, class_counts in counts.items():
        # One is added to every count elsewhere, so that the ratio of a word that occurs only here is finite.
        elsewhere = (total_counts.total() - class_counts.total() + 1) / max(class_counts.total(), 1)
        weights, weaker = {}, {}
        for word, count in class_counts.items():
            if word in stopped:
                continue
            ratio = count * elsewhere / (total_counts[word] - count + 1)
            specificity = math.log(len(sentences) / total_document_counts[word]) * math.log(ratio)
            is_frequent = document_counts[label][word] >= min(MIN_SENTENCES, sizes[label])
            if ratio > 1 and specificity >= MIN_SPECIFICITY and is_frequent:
                weights[word] = count * specificity
            elif ratio > 1:
                weaker[word] = count * specificity
        chosen = weights or weaker
        best[label] = sorted(chosen, key=lambda word: (-chosen[word], word))[:k]
    return best


def words(sentence: str) -> Iterator[str]:
    """The words of a sentence in lower case, without numbers."""
    for word in WORD.findall(sentence.casefold()):
        if UNSPACED.search(word):
            yield from (word[i : i + 2] for i in range(max(1, len(word) - 1)))
        else:
            yield word


def keywords_of(
    sentences: Sequence[str], labels: np.ndarray, k: int = 6, most: int = MAX_COUNTED
) -> dict[int, list[str]]:
    """`keywords`, counted in a random sample of at most ``most`` sentences; a label without any there has none."""
    if len(sentences) <= most:
        return keywords(sentences, labels, k)
    rows = np.sort(np.random.default_rng(0).choice(len(sentences), most, replace=False))
    counted = keywords([sentences[row] for row in rows.tolist()], labels[rows], k)
    return {label: counted.get(label, []) for label in np.unique(labels).tolist()}
