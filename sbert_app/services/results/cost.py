"""Quality against the size of the vectors, for every number of dimensions and every precision.

A model's vectors are computed once. Their first 384, 256, … 32 dimensions are scaled to length 1
and stored in float32, bfloat16, int8 and binary (`training.quantization`). Quality is Spearman's ρ
between the cosine of the stored vectors and the gold scores. All sizes are resampled with the same
pairs, so that differences have intervals too. FAISS searches exactly, in one thread; the time is
measured for one query.
"""

import math
import os
import platform
import statistics
import time
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np

from sbert_app.formats import format_count
from sbert_app.services.background.watch import UNWATCHED, Watch
from training.catalogue import SCORED
from training.data.dataset import Dataset
from training.errors import InputError
from training.evaluation.bootstrap import (
    Estimate,
    Statistic,
    correlation,
    resamples_for,
    sentence_keys,
)
from training.evaluation.metrics import why_undefined
from training.evaluation.scoring import without_score
from training.models.model import Model, VectorModel
from training.models.texts import first_positions
from training.pooling import normalize_rows
from training.quantization import PRECISIONS, bytes_per_vector, quantize, ranges, restore
from training.similarities import cosine

# The numbers of dimensions that are tried, if they are below the model's own.
DIMENSIONS = (1024, 768, 512, 384, 256, 128, 64, 32)
SEARCHED = 50_000
QUERIES = 15
# The names of exact indexes in the factory of FAISS.
FAISS_NAMES = {"float32": "Flat", "bfloat16": "SQbf16", "int8": "SQ8"}
NEAREST = 10
MAX_PAIRS = 20_000


@dataclass(frozen=True)
class Cell:
    """One size of the vectors: ρ ×100, its change from all dimensions in float32, and the time of a search."""

    dimension: int
    precision: str
    bytes: int
    rho: Estimate
    change: Estimate
    milliseconds: float


@dataclass(frozen=True)
class CostTable:
    """Every size of the vectors of a model on one data set, the largest first.

    int8 is calibrated on the distinct ``sentences``. ``note`` states how many rows are left out; ""
    if there are none.
    """

    model: str
    data: str
    n: int
    sentences: int
    cells: tuple[Cell, ...]
    searched: int
    machine: str
    note: str = ""

    def cell(self, dimension: int, precision: str) -> Cell:
        """The cell of one size."""
        size = (dimension, precision)
        return next(cell for cell in self.cells if (cell.dimension, cell.precision) == size)

    @property
    def dimensions(self) -> list[int]:
        """The numbers of dimensions, the largest first."""
        return list(dict.fromkeys(cell.dimension for cell in self.cells))

    def smallest_within(self, points: float) -> Cell | None:
        """The smallest size that loses at most ``points`` of ρ ×100 to the full vectors, by a non-inferiority test.

        The 95% interval of its change lies above −``points``. None if this holds for no smaller
        size.
        """
        # The first cell has the full vectors.
        near = [cell for cell in self.cells[1:] if cell.change.low >= -points]
        return min(near, key=lambda cell: (cell.bytes, -cell.rho.value), default=None)


def measure_cost(model: Model, data: Dataset, watch: Watch = UNWATCHED) -> CostTable:
    """Measures every size.

    Raises InputError for a model without dense vectors, data without gold scores, or undefined ρ.
    """
    if not isinstance(model, VectorModel):
        raise InputError(
            f"{model.name} is a {model.kind}, without dense sentence vectors; choose a bi-encoder"
        )
    if data.kind != SCORED:
        raise InputError(
            f"{data.name} holds {data.kind}; this needs a score or a label for each pair"
        )
    if len(data) > MAX_PAIRS:
        data = data.select(range(MAX_PAIRS))
    # All first sentences, followed by all second ones.
    texts = list(chain.from_iterable(data.columns))
    # The positions of the distinct sentences, and for each text the row of its sentence among them.
    distinct, rows = np.unique(first_positions(texts), return_inverse=True)
    watch.report(0, "Encoding")
    sentences = [texts[row] for row in distinct]
    # With None, vectors have length 1 only if the folder of the model says so; each size is scaled
    # below.
    vectors = model.encode(
        sentences, normalize=None, on_progress=watch.on_progress, should_stop=watch.should_stop
    )
    # The rows of ``vectors`` of both sentences of each pair: (2, N).
    pairs = rows.reshape(2, -1)
    cosines = cosine(vectors[pairs[0]], vectors[pairs[1]])
    is_left_out, note = without_score(model, data.columns, [{"cosine": cosines}])
    if is_left_out.any():
        data = data.select(np.flatnonzero(~is_left_out).tolist())
        # Vectors that no remaining pair uses are dropped, and the rows are numbered anew.
        used, pairs = np.unique(pairs[:, ~is_left_out], return_inverse=True)
        vectors = vectors[used]
        pairs = pairs.reshape(2, -1)
    gold = np.asarray(data.scores, dtype=np.float64)
    full = vectors.shape[1]
    dimensions = [full, *(dimension for dimension in DIMENSIONS if dimension < full)]
    sizes = list(product(dimensions, PRECISIONS))
    cells = []
    keys = sentence_keys(data.columns)
    reference: Statistic | None = None
    for number, (dimension, precision) in enumerate(sizes):
        watch.check()
        watch.report(number / len(sizes), "Measuring sizes")
        shortened = normalize_rows(vectors[:, :dimension])
        calibration = ranges(shortened)
        # The vectors as a search sees them, rounded to this precision.
        stored = restore(quantize(shortened, precision, calibration), precision, calibration)
        scores = cosine(stored[pairs[0]], stored[pairs[1]])
        # The first size, the full vectors, is the one that the others are compared with.
        if reference is None:
            why = why_undefined(scores, gold)
            if why:
                raise InputError(f"the correlation of {model.name} on {data.name} is {why}")
        rho = correlation(scores, gold, resamples=resamples_for(len(gold)), keys=keys)
        reference = reference or rho
        cell = Cell(
            dimension,
            precision,
            bytes_per_vector(dimension, precision),
            rho=rho.estimate(100),
            change=(rho - reference).estimate(100),
            milliseconds=_search_milliseconds(shortened, precision),
        )
        cells.append(cell)
    return CostTable(
        model.name,
        data.name,
        len(data),
        len(vectors),
        tuple(cells),
        SEARCHED,
        describe_processor(),
        note,
    )


def describe_processor() -> str:
    """The processor's name and the number of cores that this process may use."""
    name = ""
    file = Path("/proc/cpuinfo")
    if file.is_file():
        for line in file.read_text(encoding="utf-8", errors="replace").split("\n"):
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    cores = os.cpu_count() or 1
    # Linux may restrict a process to some of the cores.
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    return f"{name or platform.processor() or platform.machine()}, {format_count(cores, 'core')}"


def _search_milliseconds(vectors: np.ndarray, precision: str) -> float:
    """The median time that FAISS takes to find the nearest of `SEARCHED` vectors to one query, in one thread.

    The vectors (N, D) are repeated up to that number, as the time of an exact search does not
    depend on their values.
    """
    # FAISS takes time to load.
    import faiss

    dimension = vectors.shape[1]
    stored = np.resize(vectors, (SEARCHED, dimension))
    if precision == "ubinary":
        # A binary index takes whole bytes.
        index: Any = faiss.index_binary_factory(8 * math.ceil(dimension / 8), "BFlat")
        # Ranges are needed, but have no effect on binary codes.
        stored = quantize(stored, precision, stored[:2])
    else:
        index = faiss.index_factory(dimension, FAISS_NAMES[precision], faiss.METRIC_INNER_PRODUCT)
        index.train(stored)
    index.add(stored)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        seconds = []
        for query in stored[:QUERIES]:
            started = time.perf_counter()
            index.search(query[None], NEAREST)
            seconds.append(time.perf_counter() - started)
    finally:
        faiss.omp_set_num_threads(threads)
    return 1000 * statistics.median(seconds)
