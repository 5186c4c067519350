"""What the regions of a map are about: keywords at two depths, for whole continents and for the towns on them.

The map is divided by k-means, and the regions are joined to a third as many or fewer by Ward's method, so that one
depth is nested in the other. What sets the words of a region apart is class-based TF-IDF, as for clusters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.clusters.clustering import k_means
from sbert_app.services.clusters.summary import TITLE_KEYWORDS, keywords_of

FEWEST = 60  # sentences of a map that has regions
SENTENCES = 15  # of a fine region, on average
FINE, COARSE = (4, 120), (3, 14)  # fewest and most regions of each depth


class Topics(NamedTuple):
    """The regions of one depth."""

    labels: np.ndarray  # (N,) int64: the region of each point
    names: dict[int, str]  # label -> keywords; "" where nothing sets it apart


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
    words = keywords_of(sentences, labels, TITLE_KEYWORDS)
    return Topics(labels, {label: ", ".join(found) for label, found in words.items()})
