"""EncodeReport: what calls of ``encode`` have counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class EncodeReport:
    """Counts of calls of ``encode``; pass an empty one to have it filled."""

    sentences: int = 0
    unique: int = 0  # sentences that were computed: each once within a chunk
    tokens: int = 0  # of the unique sentences, special tokens included, padding not
    truncated: int = 0  # unique sentences cut at max_length
    seconds: float = 0.0

    def add(self, other: EncodeReport) -> None:
        """Add the counts of a part that was encoded elsewhere; ``seconds`` stay those of the caller."""
        self.sentences += other.sentences
        self.unique += other.unique
        self.tokens += other.tokens
        self.truncated += other.truncated
