"""The contents of clusters, of selected sentences and of the regions of a map: keywords, and central sentences.

Keywords are found by a variant of class-based TF-IDF (Grootendorst 2022, whose weight is tf · ln(1
+ A / f)). All sentences of a cluster count as one document. The weight of a word is its frequency
in that document (TF), times the logarithm of its rarity among all sentences (IDF), times the
logarithm of the ratio of its frequency here to its frequency elsewhere (the class-based part). The
product of the two logarithms should reach a threshold; if no word of a class reaches it, the class
has its best words instead. The function words of some languages are left out
(`models.function_words`). Chinese and Japanese are written without spaces and counted as character
bigrams.

A map is divided into regions by k-means. Ward's method joins them to at most a third of their
number, so that the fine regions are nested in the coarse ones.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy  # loads its submodules on first use

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
        number: from 1, the largest cluster first; 0 is the noise.
        rows: the positions of its sentences in the corpus, int64.
        representatives: the positions of the sentences nearest to its centre, with distinct texts.
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
    """The clusters of `clustering.cluster`, the largest first, followed by the noise if there is any."""
    order = np.argsort(labels, kind="stable")
    distinct, starts = np.unique(labels[order], return_index=True)
    rows_of_labels = np.split(order, starts[1:])
    keywords_of_label = keywords(embedded.corpus.sentences, labels)
    clusters = []
    noise: list[Cluster] = []
    for label, rows in zip(distinct.tolist(), rows_of_labels, strict=True):
        if label == NOISE:
            noise = [Cluster(0, rows, keywords=[], representatives=[], cosine=None)]
            continue
        vectors = np.asarray(embedded.vectors[rows])
        # The sum, as its length does not change the order of the sentences.
        centre = vectors.sum(axis=0, dtype=np.float64)
        nearest = rows[np.argsort(-(vectors @ centre), kind="stable")]
        # Of sentences with the same text, the one nearest to the centre is taken.
        row_of_text: dict[str, int] = {}
        for row in nearest.tolist():
            row_of_text.setdefault(normalize_text(embedded.corpus.sentences[row]), row)
            if len(row_of_text) == REPRESENTATIVES:
                break
        representatives = list(row_of_text.values())
        cosine = mean_pair_cosine(vectors)
        clusters.append(Cluster(label + 1, rows, keywords_of_label[label], representatives, cosine))
    return clusters + noise


def label_columns(corpus: Corpus, clusters: list[Cluster]) -> dict[str, Column]:
    """All sentences with the number of their cluster (0 = noise), its keywords, and their other columns."""
    numbers = [0] * len(corpus)
    keywords_of_rows = [""] * len(corpus)
    for cluster in clusters:
        for row in cluster.rows.tolist():
            numbers[row] = cluster.number
            keywords_of_rows[row] = " ".join(cluster.keywords)
    columns: dict[str, Column] = {
        "cluster": numbers,
        "keywords": keywords_of_rows,
        "sentence": corpus.sentences,
    }
    return with_file_columns(columns, corpus.columns)


WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
# A keyword is in at least this many sentences of its cluster, unless the cluster has only one.
MIN_SENTENCES = 2
# The most sentences in which keywords are counted.
MAX_COUNTED = 100_000
# The least product of the logarithms. It is reached, for instance, by a word that is in one of
# seven sentences, and five times as frequent here as elsewhere.
MIN_SPECIFICITY = 3.0


def keywords(
    sentences: Sequence[str], labels: np.ndarray, k: int = 6, most: int = MAX_COUNTED
) -> dict[int, list[str]]:
    """The k words of each label that distinguish its sentences from the others, the highest weight first.

    ``labels``, int (N,), has the label of each sentence, such as its cluster. Words are counted in a
    random sample of at most ``most`` sentences. A label that is not in the sample has no keywords.
    """
    rows = fixed_sample(len(sentences), most)
    best: dict[int, list[str]] = {label: [] for label in np.unique(labels).tolist()}
    # By label: how often each word occurs, and in how many sentences.
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
    # The number of sentences of each label in the sample.
    sizes = Counter(labels[rows].tolist())
    # Each word as often as it occurs: `stop_words` knows a language by the share of its function
    # words among all words.
    stopped = stop_words(total_counts.elements())
    for label, class_counts in counts.items():
        # The number of words elsewhere for each word here. One is added to every count elsewhere,
        # so that the ratio of a word that occurs only here is finite.
        here = class_counts.total()
        others_per_word = (total_counts.total() - here + 1) / max(here, 1)
        weights = {}
        weaker = {}
        for word, count in class_counts.items():
            if word in stopped:
                continue
            # The frequency of the word here, divided by its frequency elsewhere.
            ratio = count * others_per_word / (total_counts[word] - count + 1)
            # The word is not more frequent here than elsewhere.
            if ratio <= 1:
                continue
            specificity = math.log(len(rows) / total_document_counts[word]) * math.log(ratio)
            is_frequent = document_counts[label][word] >= min(MIN_SENTENCES, sizes[label])
            if is_frequent and specificity >= MIN_SPECIFICITY:
                weights[word] = count * specificity
            else:
                weaker[word] = count * specificity
        # If no frequent word reaches the threshold, the best other words are taken.
        words_of_class = weights or weaker
        best[label] = sorted(words_of_class, key=lambda word: (-words_of_class[word], word))[:k]
    return best


def words(sentence: str) -> Iterator[str]:
    """The words of a sentence in lower case, without numbers."""
    for word in WORD.findall(sentence.casefold()):
        if UNSPACED.search(word):
            # Bigrams. A word of one character has none, and is yielded as it is.
            for start in range(max(1, len(word) - 1)):
                yield word[start : start + 2]
        else:
            yield word


# The most sentences of the subset, and of the others, in which keywords are counted.
KEYWORD_SENTENCES = 20_000


@dataclass(frozen=True, eq=False)
class Subset:
    """Selected sentences of a corpus.

    Attributes:
        rows: ascending positions in the corpus, int64.
        cosines: the mean cosine of each sentence with the others, float32 (n,); NaN for a single
            sentence.
        cosine: the mean over all pairs; None for a single sentence.
        keywords: the words that distinguish these sentences from the others.
    """

    rows: np.ndarray
    cosines: np.ndarray
    cosine: float | None
    keywords: list[str]

    def __len__(self) -> int:
        return len(self.rows)


def describe_subset(embedded: EmbeddedCorpus, rows: Iterable[int]) -> Subset:
    """Describes the sentences at ``rows``. Repeated rows, and rows that are not in the corpus, are left out."""
    positions = np.unique(np.fromiter(rows, dtype=np.int64))
    positions = positions[(positions >= 0) & (positions < len(embedded))]
    vectors = np.asarray(embedded.vectors[positions])
    cosine = mean_pair_cosine(vectors)
    # The mean cosine of each sentence with the others. A single sentence has none.
    if cosine is None:
        cosines = np.full(len(positions), np.nan, dtype=np.float32)
    else:
        total = vectors.sum(axis=0, dtype=np.float64)
        # The cosine of each sentence with itself, 1 but for rounding, is taken out of its sum.
        own_cosines = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
        cosines = ((vectors @ total - own_cosines) / (len(positions) - 1)).astype(np.float32)
    if not len(positions):
        return Subset(positions, cosines, cosine, [])
    others = np.setdiff1d(np.arange(len(embedded)), positions, assume_unique=True)
    sentences = []
    # 1 for sentences of the subset, 0 for the others.
    labels = []
    for label, rows_of_label in ((1, positions), (0, others)):
        sample = rows_of_label[fixed_sample(len(rows_of_label), KEYWORD_SENTENCES)]
        sentences += [embedded.corpus.sentences[row] for row in sample.tolist()]
        labels += [label] * len(sample)
    keywords_of_label = keywords(sentences, np.array(labels))
    return Subset(positions, cosines, cosine, keywords_of_label[1])


def containing(corpus: Corpus, text: str) -> np.ndarray:
    """The rows whose sentence contains a text, regardless of case: int64, ascending."""
    # With single spaces, as in the sentences of a corpus (`sentence_of`).
    text = " ".join(text.casefold().split())
    rows = []
    for row, sentence in enumerate(corpus.sentences):
        if text and text in sentence.casefold():
            rows.append(row)
    return np.array(rows, dtype=np.int64)


def save_subset(subset: Subset, corpus: Corpus, folder: Path) -> Path:
    """Writes a CSV file of row numbers from 1, sentences, mean cosines, and the other columns of the corpus.

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
# The mean number of sentences in a fine region.
SENTENCES = 15
# The fewest and the most fine and coarse regions.
FINE = (4, 120)
COARSE = (3, 14)


class Topics(NamedTuple):
    """The regions of a map: the region of each point, int64 (N,), and the names of the regions.

    A name consists of keywords. It is "" if the region has none.
    """

    labels: np.ndarray
    names: dict[int, str]


def find_topics(
    points: np.ndarray, sentences: list[str], watch: Watch = UNWATCHED
) -> tuple[Topics, Topics]:
    """The coarse and the fine regions of a map of ``points`` (N, dimensions). A small map is one unnamed region."""
    if len(points) < FEWEST:
        whole = Topics(np.zeros(len(points), dtype=np.int64), {0: ""})
        return whole, whole
    # FINE and COARSE are the fewest and the most regions.
    count = int(np.clip(len(points) // SENTENCES, *FINE))
    labels = k_means(points, count, watch)
    # Clusters of k-means may be empty, so the others are numbered again, without gaps. ``fine`` has
    # the new number of each point's cluster.
    _, fine = np.unique(labels, return_inverse=True)
    centres = np.stack([points[fine == label].mean(axis=0) for label in range(fine.max() + 1)])
    # Ward's method needs two regions. If all points are equal, there is only one, on both levels.
    coarse: np.ndarray = fine
    if len(centres) > 1:
        coarse_count = min(int(np.clip(count // 3, *COARSE)), len(centres))
        tree = scipy.cluster.hierarchy.ward(centres)
        # The coarse region of each fine region. SciPy numbers clusters from 1.
        coarse_of_fine = scipy.cluster.hierarchy.fcluster(tree, coarse_count, "maxclust") - 1
        coarse = coarse_of_fine[fine]
    return _topics(coarse, sentences), _topics(fine, sentences)


def _topics(labels: np.ndarray, sentences: list[str]) -> Topics:
    best = keywords(sentences, labels, TITLE_KEYWORDS)
    return Topics(labels, {label: ", ".join(best[label]) for label in best})
