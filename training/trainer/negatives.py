"""Hard negatives, mined from the training data by the model that is about to be trained.

The negative of a pair is the sentence nearest to its anchor by cosine, among the second sentences
of all rows, that is not a labelled positive of the anchor and is clearly less similar than the
positive:

    cos(anchor, negative) <= cos(anchor, positive) - margin * |cos(anchor, positive)|

The margin avoids false negatives: a sentence that is nearly as similar as the positive, or more
similar, is often a positive that nobody has labelled. A pair without such a sentence is left out.

Source: the relative margin is TopK-PercPos of Moreira et al. 2024, "NV-Retriever", section 3.2,
with 95% by default.
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
from training.models.texts import numbered
from training.objectives import training_data
from training.trainer.config import RunConfig

# Every anchor is compared with every candidate, so a sample of this size is searched if there are
# more.
MAX_CANDIDATES = 100_000
# Anchors that are compared at a time.
ANCHORS = 1_024
# The number of examples in a run's first event, and in a preview.
EXAMPLES = 20
PREVIEWED = 12

DAMAGED = "{} is damaged ({}); remove it, and the negatives are mined again"
# A file in the run's folder, so that a resumed run learns from the same triplets.
FILE = "negatives.jsonl"


class _Head(BaseModel):
    """The first line of the file. ``rows`` is the number of lines after it."""

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
        """Returns the triplets of ``count`` rows, spread over the data."""
        count = min(count, len(self.data))
        rows = np.linspace(0, len(self.data) - 1, count).astype(int)
        triplets = []
        for row in np.unique(rows).tolist():
            sentences = [column[row] for column in self.data.columns]
            triplets.append(MinedTriplet(*sentences, *self.cosines[row].tolist()))
        return triplets

    def write(self, folder: Path) -> None:
        """Writes a line for each triplet, atomically."""
        lines = [json.dumps({"notes": self.data.notes, "rows": len(self.data)})]
        rows = zip(self.data.rows, *self.data.columns, self.cosines.tolist(), strict=True)
        for row, *sentences, cosines in rows:
            values = {"row": row, "sentences": sentences, "cosines": cosines}
            lines.append(json.dumps(values, ensure_ascii=False))
        write_text(folder / FILE, "\n".join([*lines, ""]))

    @classmethod
    def read(cls, folder: Path, data: Dataset) -> MinedNegatives | None:
        """Reads the negatives that `write` wrote for ``data``; None without a file. InputError if it is damaged."""
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
        sentences = [row.sentences for row in rows]
        columns = tuple(map(list, zip(*sentences, strict=True)))
        mined = replace(data, columns=columns, rows=[row.row for row in rows], notes=head.notes)
        return cls(mined, np.array([row.cosines for row in rows]))


def mine_for(config: RunConfig, home: str | Path | None = None, **watch: Any) -> MinedNegatives:
    """Mines the triplets that a run would learn from. InputError and StoppedError as in `mine_negatives`."""
    data = training_data(config.train_data, config.objective, config.seed, home)
    encoder = Encoder.load(config.base, config.pooling, config.dtype, home=home, seed=config.seed)
    return mine_negatives(encoder, data, config.negative_margin, config.seed, **watch)


def mine_negatives(
    encoder: Encoder, data: Dataset, margin: float, seed: int = 0, **watch: Any
) -> MinedNegatives:
    """Finds a hard negative for each pair of ``data``. The negatives of triplets are used as candidates only.

    Args:
        encoder: the model that compares the sentences.
        data: pairs that belong together, or triplets.
        margin: the relative margin above, 0 to 1.
        seed: the seed of the sample, if there are more than `MAX_CANDIDATES` sentences.
        watch: on_progress and should_stop of ``encode``.

    InputError if the data does not have such pairs, or no pair gets a negative.
    """
    if data.kind not in (PAIRS, TRIPLETS):
        raise InputError(
            f"negatives are mined for pairs that belong together, but {data.name} holds {data.kind}"
        )
    # The row of each text among the distinct sentences, column after column.
    sentences, rows = numbered(chain.from_iterable(data.columns))
    anchors = rows[: len(data)]
    positives = rows[len(data) : 2 * len(data)]
    # The distinct second sentences, and the negatives of triplets.
    candidates = np.unique(rows[len(data) :])
    # `encode` scales the vectors to length 1, so their dot products are cosines.
    vectors = torch.from_numpy(encoder.encode(sentences, **watch)).to(encoder.device)
    sources = f"{len(candidates):,} sentences"
    if len(candidates) > MAX_CANDIDATES:
        random = np.random.default_rng(seed)
        candidates = np.sort(random.choice(candidates, MAX_CANDIDATES, replace=False))
        sources = f"{MAX_CANDIDATES:,} drawn of the sentences"
    # A pair without a negative has −1.
    negatives, cosines = _nearest(vectors, anchors, positives, candidates, margin)
    keep = [i for i, row in enumerate(negatives) if row >= 0]
    if not keep:
        raise InputError(
            f"no pair of {data.name} has a negative that is {margin:.0%} less similar than its positive; "
            "take a smaller negative_margin, or more data"
        )
    mean_positive, mean_negative = cosines[keep].mean(axis=0)
    note = (
        f"hard negatives are mined among {sources} with a margin of {margin:.0%}; mean cosine with the anchor "
        f"{mean_positive:.2f} of positives, {mean_negative:.2f} of negatives"
    )
    dropped = len(data) - len(keep)
    if dropped:
        note += f"; {dropped:,} of {len(data):,} rows have none and are left out"
    selected = data.select(keep, note)
    third = [sentences[negatives[i]] for i in keep]
    return MinedNegatives(replace(selected, columns=(*selected.columns[:2], third)), cosines[keep])


def _nearest(
    vectors: torch.Tensor,
    anchors: list[int],
    positives: list[int],
    candidates: np.ndarray,
    margin: float,
) -> tuple[list[int], np.ndarray]:
    """Returns the row of each anchor's negative, -1 for none, and the cosines (N, 2) with positive and negative.

    ``anchors``, ``positives`` and ``candidates`` are rows of ``vectors``, which have length 1.
    """
    # The column of each candidate in the matrix of similarities, by its row in ``vectors``.
    column_of = {int(row): column for column, row in enumerate(candidates)}
    # A sentence itself and its positives cannot be its negatives. The relation holds in both
    # directions, as the positive of one row may be the anchor of another.
    excluded_of: dict[int, set[int]] = defaultdict(set)
    for anchor, positive in zip(anchors, positives, strict=True):
        excluded_of[anchor] |= {anchor, positive}
        excluded_of[positive] |= {anchor, positive}
    pool = vectors[torch.from_numpy(candidates).to(vectors.device)]
    negatives: list[int] = []
    cosines = np.empty((len(anchors), 2))
    for start in range(0, len(anchors), ANCHORS):
        part = slice(start, start + ANCHORS)
        queries = vectors[anchors[part]]  # (A, D)
        to_positive = (queries * vectors[positives[part]]).sum(dim=1)  # (A,)
        similarity = queries @ pool.T  # (A, candidates)
        limit = to_positive - margin * to_positive.abs()
        similarity[similarity > limit[:, None]] = -torch.inf
        for row, anchor in enumerate(anchors[part]):
            # Some excluded sentences are not candidates: they are only ever anchors, or the random
            # sample of candidates lacks them.
            excluded = [column_of[other] for other in excluded_of[anchor] if other in column_of]
            similarity[row, excluded] = -torch.inf
        best, columns = similarity.max(dim=1)
        has_negative = torch.isfinite(best).cpu().numpy()
        negatives += np.where(has_negative, candidates[columns.cpu().numpy()], -1).tolist()
        cosines[part] = torch.stack([to_positive, best], dim=1).cpu().numpy()
    return negatives, cosines
