"""The contents of clusters, of selected sentences and of the regions of a map: keywords, and central sentences.

Keywords are in the manner of class-based TF-IDF (Grootendorst 2022, whose weight is tf · ln(1 + A / f)), for every
language with a script of words. All sentences of a cluster count as one document. The weight of a word is its
frequency in that document (TF), times the logarithm of its rarity among all sentences (IDF), times the logarithm of the
ratio of its frequency here to its frequency elsewhere (the class-based part). The product of the two logarithms should
reach a threshold; a class in which no word does has its best ones instead. The function words of some languages are
left out (`models.function_words`). Chinese and Japanese, written without spaces, are counted as character bigrams.

A map is divided into regions by k-means, and the regions are joined to a third as many or fewer by Ward's method, so
that the fine regions are nested in the coarse ones.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.clusters.clustering import NOISE, k_means
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus, fixed_sample, mean_pair_cosine
from sbert_app.services.corpus.search import normalize_text
from sbert_app.services.files.writers import Column, save_table, with_file_columns
from sbert_app.services.models.function_words import stop_words

REPRESENTATIVES = 3
TITLE_KEYWORDS = 2


@dataclass(frozen=True, eq=False)
class Cluster:
    """A cluster, or the noise.

    Attributes:
        number: from 1, the largest first; 0 is the noise.
        rows: int64, the positions of its sentences in the corpus.
        representatives: the positions of the sentences nearest to its centre, of distinct texts.
        cosine: the mean over all its pairs; None for a single sentence.
    """

    number: int
    rows: np.ndarray
    keywords: list[str]
    representatives: list[int]
    cosine: float | None

    @property
    def title(self) -> str:
        """The first keywords of the cluster."""
        return ", ".join(self.keywords[:TITLE_KEYWORDS])


def describe_clusters(embedded: EmbeddedCorpus, labels: np.ndarray) -> list[Cluster]:
    """The clusters of `clustering.cluster`, the largest first, and then the noise if there is any."""
    order = np.argsort(labels, kind="stable")
    distinct, starts = np.unique(labels[order], return_index=True)
    words = keywords(embedded.corpus.sentences, labels)
    clusters: list[Cluster] = []
    noise: list[Cluster] = []
    for label, rows in zip(distinct.tolist(), np.split(order, starts[1:]), strict=True):
        if label == NOISE:
            noise = [Cluster(0, rows, [], [], None)]
            continue
        vectors = np.asarray(embedded.vectors[rows])
        nearest = rows[np.argsort(-(vectors @ vectors.sum(axis=0, dtype=np.float64)), kind="stable")]
        row_of: dict[str, int] = {}
        for row in nearest.tolist():
            row_of.setdefault(normalize_text(embedded.corpus.sentences[row]), row)
            if len(row_of) == REPRESENTATIVES:
                break
        representatives = list(row_of.values())
        clusters.append(Cluster(label + 1, rows, words[label], representatives, mean_pair_cosine(vectors)))
    return clusters + noise


def label_columns(corpus: Corpus, clusters: list[Cluster]) -> dict[str, Column]:
    """All sentences with their cluster (0 = noise), its keywords, and their other columns."""
    numbers = np.zeros(len(corpus), dtype=np.int64)
    for cluster in clusters:
        numbers[cluster.rows] = cluster.number
    by_number = {cluster.number: cluster for cluster in clusters}
    own = [by_number[number] for number in numbers.tolist()]
    columns: dict[str, Column] = {
        "cluster": [cluster.number for cluster in own],
        "keywords": [" ".join(cluster.keywords) for cluster in own],
        "sentence": corpus.sentences,
    }
    return with_file_columns(columns, corpus.columns)


WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
# The fewest sentences of a cluster that contain a keyword, unless the cluster has only one.
MIN_SENTENCES = 2
MAX_COUNTED = 100_000
# The product of the logarithms: in one sentence of seven, and five times as frequent as elsewhere.
MIN_SPECIFICITY = 3.0


def keywords(sentences: Sequence[str], labels: np.ndarray, k: int = 6, most: int = MAX_COUNTED) -> dict[int, list[str]]:
    """The k words of each label, int (N,), that distinguish its sentences from the others, the highest weight first.

    They are counted in a random sample of at most ``most`` sentences; a label without any there has none.
    """
    rows = fixed_sample(len(sentences), most)
    best: dict[int, list[str]] = {label: [] for label in np.unique(labels).tolist()}
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    document_counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for row, label in zip(rows.tolist(), labels[rows].tolist(), strict=True):
        tokens = list(words(sentences[row]))
        counts[label].update(tokens)
        document_counts[label].update(set(tokens))
    total_counts: Counter[str] = Counter()
    total_document_counts: Counter[str] = Counter()
    for label in counts:
        total_counts.update(counts[label])
        total_document_counts.update(document_counts[label])
    sizes = Counter(labels[rows].tolist())
    stopped = stop_words(total_counts.elements())
    for label, class_counts in counts.items():
        # One is added to every count elsewhere, so that the ratio of a word that occurs only here is finite.
        elsewhere = (total_counts.total() - class_counts.total() + 1) / max(class_counts.total(), 1)
        weights = {}
        weaker = {}
        for word, count in class_counts.items():
            if word in stopped:
                continue
            ratio = count * elsewhere / (total_counts[word] - count + 1)
            specificity = math.log(len(rows) / total_document_counts[word]) * math.log(ratio)
            is_frequent = document_counts[label][word] >= min(MIN_SENTENCES, sizes[label])
            if ratio > 1 and specificity >= MIN_SPECIFICITY and is_frequent:
                weights[word] = count * specificity
            elif ratio > 1:
                weaker[word] = count * specificity
        words_of_class = weights or weaker
        best[label] = sorted(words_of_class, key=lambda word: (-words_of_class[word], word))[:k]
    return best


def words(sentence: str) -> Iterator[str]:
    """The words of a sentence in lower case, without numbers."""
    for word in WORD.findall(sentence.casefold()):
        if UNSPACED.search(word):
            yield from (word[i : i + 2] for i in range(max(1, len(word) - 1)))
        else:
            yield word


# The most sentences of the subset, and of the others, that keywords are counted in.
KEYWORD_SENTENCES = 20_000


@dataclass(frozen=True, eq=False)
class Subset:
    """Selected sentences of a corpus.

    Attributes:
        rows: int64, ascending positions in the corpus.
        cosines: float32 (n,), the mean cosine of each with the others; NaN for a single sentence.
        cosine: the mean over all pairs; None for a single sentence.
        keywords: the words that set these sentences apart from the others.
    """

    rows: np.ndarray
    cosines: np.ndarray
    cosine: float | None
    keywords: list[str]

    def __len__(self) -> int:
        return len(self.rows)


def describe_subset(embedded: EmbeddedCorpus, rows: Iterable[int]) -> Subset:
    """Describe the sentences at ``rows``, without repeated rows and those that the corpus does not have."""
    positions = np.unique(np.fromiter(rows, dtype=np.int64))
    positions = positions[(positions >= 0) & (positions < len(embedded))]
    vectors = np.asarray(embedded.vectors[positions])
    cosine = mean_pair_cosine(vectors)
    if cosine is None:
        cosines = np.full(len(positions), np.nan, dtype=np.float32)
    else:
        total = vectors.sum(axis=0, dtype=np.float64)
        own = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
        cosines = ((vectors @ total - own) / (len(positions) - 1)).astype(np.float32)
    if not len(positions):
        return Subset(positions, cosines, cosine, [])
    others = np.setdiff1d(np.arange(len(embedded)), positions, assume_unique=True)
    parts = [part[fixed_sample(len(part), KEYWORD_SENTENCES)] for part in (positions, others)]
    sentences = [embedded.corpus.sentences[row] for part in parts for row in part.tolist()]
    return Subset(positions, cosines, cosine, keywords(sentences, np.repeat([1, 0], list(map(len, parts))))[1])


def containing(corpus: Corpus, text: str) -> np.ndarray:
    """The rows whose sentence contains a text, in upper or lower case: int64, ascending."""
    text = " ".join(text.casefold().split())
    rows = (row for row, sentence in enumerate(corpus.sentences) if text in sentence.casefold())
    return np.fromiter(rows if text else (), dtype=np.int64)


def save_subset(subset: Subset, corpus: Corpus, folder: Path) -> Path:
    """Write a CSV file of row numbers from 1, sentences, mean cosines, and the other columns of the corpus.

    Raises InputError if the file cannot be written.
    """
    rows = subset.rows.tolist()
    selected = corpus.select(rows)
    columns: dict[str, Column] = {
        "row": [row + 1 for row in rows],
        "sentence": selected.sentences,
        "mean_cosine": subset.cosines,
    }
    return save_table(folder / "selected.csv", with_file_columns(columns, selected.columns))


# The fewest sentences of a map that has regions.
FEWEST = 60
# The sentences of a fine region, on average.
SENTENCES = 15
# The fewest and the most regions of each depth.
FINE = (4, 120)
COARSE = (3, 14)


class Topics(NamedTuple):
    """The regions of one depth: that of each point, int64 (N,), and their keywords; "" where nothing sets one apart."""

    labels: np.ndarray
    names: dict[int, str]


def find_topics(points: np.ndarray, sentences: list[str], watch: Watch = UNWATCHED) -> tuple[Topics, Topics]:
    """The coarse and the fine regions of a map, float32 (N, dimensions); one without a name if it is small."""
    if len(points) < FEWEST:
        whole = Topics(np.zeros(len(points), dtype=np.int64), {0: ""})
        return whole, whole
    from scipy.cluster.hierarchy import fcluster, ward

    count = int(np.clip(len(points) // SENTENCES, *FINE))
    fine = np.unique(k_means(points, min(count, len(points)), watch), return_inverse=True)[1]
    centres = np.stack([points[fine == label].mean(axis=0) for label in range(fine.max() + 1)])
    joined = min(int(np.clip(count // 3, *COARSE)), len(centres))
    coarse = (fcluster(ward(centres), joined, "maxclust") - 1)[fine] if len(centres) > 1 else fine
    return _named(coarse, sentences), _named(fine, sentences)


def _named(labels: np.ndarray, sentences: list[str]) -> Topics:
    words = keywords(sentences, labels, TITLE_KEYWORDS)
    return Topics(labels, {label: ", ".join(best) for label, best in words.items()})
