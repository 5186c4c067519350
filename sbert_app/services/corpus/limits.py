"""How large a corpus may be, and from which size on it is treated as large. Each is a setting of the app."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CorpusLimits:
    """Numbers of sentences."""

    sentences: int = 1_000_000  # of a corpus; the first ones are used
    in_memory: int = 100_000  # up to which vectors are in memory; above, in a file that is mapped
    map_points: int = 50_000  # on a map; of more, a random sample is drawn
    clustered: int = 100_000  # that HDBSCAN groups; of more, a sample of ``map_points``, the others by their neighbours
