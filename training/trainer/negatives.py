"""Hard negatives, mined from the training data by the model that is about to be trained.

The negative of a pair is the nearest sentence to its anchor by cosine, among the second sentences of all rows, that is
no labelled positive of the anchor and is clearly less similar than the positive:

    cos(anchor, negative) <= cos(anchor, positive) - margin * |cos(anchor, positive)|

The margin is against false negatives: a sentence that is nearly as near as the positive, or nearer, is often a
positive that nobody has labelled. A pair without any such sentence has no negative and is left out.

Source: the relative margin is TopK-PercPos of Moreira et al. 2024, "NV-Retriever", section 3.2, with 95% by default.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, FiniteFloat

from training.atomic import write_text
from training.catalogue import PAIRS, TRIPLETS
from training.data.dataset import Dataset
from training.errors import InputError, first_line
from training.models.encoder import Encoder
from training.objectives import training_data
from training.trainer.config import RunConfig

# A sample of this size is searched if there are more, as every anchor is compared with every candidate.
MAX_CANDIDATES = 100_000
ANCHORS = 1_024
# The examples of a run's first event, and of a preview.
EXAMPLES = 20
PREVIEWED = 12

DAMAGED = "{} is damaged ({}); remove it, and the negatives are mined again"
# In the run's folder, so that a resumed run learns from the same triplets.
FILE = "negatives.jsonl"


class _Head(BaseModel):
    """The first line of the file; ``rows`` is the number of lines after it."""

    notes: tuple[str, ...]
    rows: int


class _Row(BaseModel):
    row: int
    sentences: tuple[str, str, str]
    cosines: tuple[FiniteFloat, FiniteFloat]


@dataclass(frozen=True)
class MinedTriplet:
    """A row with its mined negative, and the cosines of both with the anchor before training."""

    anchor: str
    positive: str
    negative: str
    positive_cosine: float
    negative_cosine: float


@dataclass(frozen=True)
class MinedNegatives:
    """N triplets, with the cosines (N, 2) of the positive and the negative with the anchor."""

    data: Dataset
    cosines: np.ndarray

    def examples(self, count: int = EXAMPLES) -> list[MinedTriplet]:
        """The triplets of ``count`` rows, spread over the data."""
        rows = np.unique(np.linspace(0, len(self.data) - 1, min(count, len(self.data))).astype(int))
        return [
            MinedTriplet(*(column[row] for column in self.data.columns), *map(float, self.cosines[row]))
            for row in rows.tolist()
        ]

    def write(self, folder: Path) -> None:
        """Writes a line for each triplet, atomically."""
        rows = zip(self.data.rows, *self.data.columns, self.cosines.tolist(), strict=True)
        values = ({"row": row, "sentences": texts, "cosines": cosines} for row, *texts, cosines in rows)
        lines = [json.dumps(value, ensure_ascii=False) for value in values]
        head = {"notes": self.data.notes, "rows": len(lines)}
        write_text(folder / FILE, "\n".join([json.dumps(head), *lines, ""]))

    @classmethod
    def read(cls, folder: Path, data: Dataset) -> MinedNegatives | None:
        """The negatives that `write` wrote for ``data``; None if there is no file. InputError if it is damaged."""
        file = folder / FILE
        if not os.path.lexists(file):
            return None
        try:
            first, *lines = file.read_bytes().rstrip(b"\n").split(b"\n")
            head = _Head.model_validate_json(first)
            rows = [_Row.model_validate_json(line) for line in lines]
        except (OSError, ValueError) as error:
            raise InputError(DAMAGED.format(file, first_line(error))) from error
        if head.rows != len(rows):
            raise InputError(DAMAGED.format(file, f"it has {len(rows)} of {head.rows} rows"))
        columns = tuple(list(column) for column in zip(*(row.sentences for row in rows), strict=True))
        mined = replace(data, columns=columns, rows=[row.row for row in rows], notes=head.notes)
        return cls(mined, np.array([row.cosines for row in rows]))


def mine_for(config: RunConfig, home: str | Path | None = None, **watch: Any) -> MinedNegatives:
    """The triplets that a run would learn from. InputError and StoppedError as `mine_negatives`."""
    data = training_data(config.train_data, config.objective, config.seed, home)
    encoder = Encoder.load(config.base, config.pooling, config.dtype, home=home, seed=config.seed)
    return mine_negatives(encoder, data, config.negative_margin, config.seed, **watch)


def mine_negatives(encoder: Encoder, data: Dataset, margin: float, seed: int = 0, **watch: Any) -> MinedNegatives:
    """Finds a hard negative for each pair of ``data``; the negatives of triplets are only candidates.

    ``margin`` is the relative margin above, 0 to 1; ``seed`` decides which `MAX_CANDIDATES` of more sentences are
    searched; ``watch`` has the on_progress and should_stop of ``encode``. InputError if the data has no pairs that
    belong together, or no pair gets a negative.
    """
    if data.kind not in (PAIRS, TRIPLETS):
        raise InputError(f"negatives are mined for pairs that belong together, but {data.name} holds {data.kind}")
    sentences = list(dict.fromkeys(chain.from_iterable(data.columns)))
    row_of = {text: row for row, text in enumerate(sentences)}
    vectors = torch.from_numpy(encoder.encode(sentences, **watch)).to(encoder.device)
    anchors, positives = ([row_of[text] for text in column] for column in data.columns[:2])
    candidates = np.array(sorted({row_of[text] for column in data.columns[1:] for text in column}))
    is_sample = len(candidates) > MAX_CANDIDATES
    if is_sample:
        candidates = np.sort(np.random.default_rng(seed).choice(candidates, MAX_CANDIDATES, replace=False))
    negatives, cosines = _nearest(vectors, anchors, positives, candidates, margin)
    keep = [i for i, row in enumerate(negatives) if row >= 0]
    if not keep:
        raise InputError(
            f"no pair of {data.name} has a negative that is {margin:.0%} less similar than its positive; "
            "take a smaller negative_margin, or more data"
        )
    sources = f"{MAX_CANDIDATES:,} drawn of the sentences" if is_sample else f"{len(candidates):,} sentences"
    gap = cosines[keep].mean(axis=0)
    dropped = len(data) - len(keep)
    without = f"; {dropped:,} of {len(data):,} rows have none and are left out" if dropped else ""
    note = (
        f"hard negatives are mined among {sources} with a margin of {margin:.0%}; mean cosine with the anchor "
        f"{gap[0]:.2f} of positives, {gap[1]:.2f} of negatives{without}"
    )
    labelled = data.select(keep, note)
    mined = replace(labelled, columns=(*labelled.columns[:2], [sentences[negatives[i]] for i in keep]))
    return MinedNegatives(mined, cosines[keep])


def _nearest(
    vectors: torch.Tensor, anchors: list[int], positives: list[int], candidates: np.ndarray, margin: float
) -> tuple[list[int], np.ndarray]:
    """The number of the negative of each row, -1 if there is none, and the cosines (N, 2)."""
    column_of = {int(row): column for column, row in enumerate(candidates)}
    # A sentence and its positives are no negatives of it.
    excluded_of: dict[int, set[int]] = defaultdict(set)
    for anchor, positive in zip(anchors, positives, strict=True):
        excluded_of[anchor] |= {anchor, positive}
        excluded_of[positive] |= {anchor, positive}
    pool = vectors[torch.from_numpy(candidates).to(vectors.device)]
    negatives: list[int] = []
    cosines = np.empty((len(anchors), 2))
    for start in range(0, len(anchors), ANCHORS):
        block = anchors[start : start + ANCHORS]
        queries = vectors[block]
        nearness = (queries * vectors[positives[start : start + ANCHORS]]).sum(dim=1)
        similarity = queries @ pool.T  # (A, candidates)
        limit = nearness - margin * nearness.abs()
        similarity[similarity > limit[:, None]] = -torch.inf
        for row, anchor in enumerate(block):
            excluded = [column_of[sentence] for sentence in excluded_of[anchor] if sentence in column_of]
            similarity[row, excluded] = -torch.inf
        best, columns = similarity.max(dim=1)
        has_negative = torch.isfinite(best).cpu().numpy()
        negatives += np.where(has_negative, candidates[columns.cpu().numpy()], -1).tolist()
        cosines[start : start + len(block)] = torch.stack([nearness, best], dim=1).cpu().numpy()
    return negatives, cosines
