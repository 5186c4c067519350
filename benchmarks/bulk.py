"""A million rows through ``score``: its throughput relative to the encoder's, and its memory.

The generated file has pairs with gold scores and no repeated sentence, so that caching cannot help.
Two processes score it. One uses a stub encoder of negligible cost and writes CSV and Parquet, which
measures the overhead of everything but encoding. The other uses the real encoder, which also
encodes a sample of the rows alone, before and after; its memory is recorded throughout.
"""

import csv
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks import machine
from sbert_app.services.background.watch import Watch
from sbert_app.services.files.score import score_file
from training.data.tables.table import open_table
from training.models.encoder import Encoder
from training.models.model import VectorModel

WORDS = (
    "a the one old young small man woman child dog cat horse train city house garden river song book teacher doctor "
    "runs sleeps plays reads sings opens closes paints builds in on near under behind quickly slowly today again"
)
# The number of rows that are encoded without ``score``.
SAMPLE_ROWS = 4_000
# Points of the memory curve.
POINTS = 40


def run(rounds: int = 1, rows: int = 1_000_000, real_rows: int | None = None) -> dict[str, Any]:
    """Rows per second of each step, and the memory of both processes.

    Args:
        rounds: how often the sample is encoded alone before, and again after the file; the median
            counts.
        rows: in the file.
        real_rows: in a second file for the real encoder; None = the same file.
    """
    about = machine.describe()
    with tempfile.TemporaryDirectory() as folder:
        files = {"stand-in": rows, "encoder": rows if real_rows is None else real_rows}
        for name, count in files.items():
            write_pairs(Path(folder) / f"{name}.csv", count)
        write_pairs(Path(folder) / "sample.csv", SAMPLE_ROWS, first=files["encoder"] // 2)
        figures = {name: _in_a_process(name, folder, rounds) for name in files}
    return {
        "benchmark": "bulk",
        "rows": files["stand-in"],
        "all_but_encoding": figures["stand-in"],
        "rows_with_the_encoder": files["encoder"],
        **figures["encoder"],
        "machine": about,
    }


def _in_a_process(name: str, folder: str, rounds: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.bulk", name, folder, str(rounds)]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(process.stdout))


class StubEncoder(VectorModel):
    """Returns vectors of the default encoder's size without computing anything."""

    name = "stand-in"
    pooling = "mean"
    dimension = 384

    def encode(self, sentences: Sequence[str], *_: Any, **__: Any) -> np.ndarray:
        """Unit vectors: float32 (N, 384)."""
        vectors = np.zeros((len(sentences), self.dimension), dtype=np.float32)
        rows = np.arange(len(sentences))
        # Each vector lies on one axis.
        vectors[rows, rows % self.dimension] = 1
        return vectors


def write_pairs(path: Path, rows: int, first: int = 0) -> None:
    """Write pairs of sentences of 4 to 18 words and the row number, which makes them distinct.

    The numbers begin at ``first``.
    """
    draw = random.Random(first)
    words = WORDS.split()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "sentence1", "sentence2", "score"])
        for row in range(first, first + rows):
            one, other = (" ".join(draw.choices(words, k=draw.randint(4, 18))) for _ in range(2))
            writer.writerow([row, f"{one} {row}.", f"{other} {row}.", f"{draw.random() * 5:.2f}"])


class Stopwatch:
    """Elapsed and CPU seconds since its creation or the last lap. On a busy machine CPU time is more reliable."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def lap(self) -> tuple[float, float]:
        """Starts the next lap, and returns the elapsed and the CPU seconds of the last one."""
        wall_before = self._wall
        cpu_before = self._cpu
        self._wall = time.perf_counter()
        self._cpu = time.process_time()
        return self._wall - wall_before, self._cpu - cpu_before


def _without_the_encoder(folder: Path, _: int) -> dict[str, Any]:
    watch = Stopwatch()
    table = open_table(folder / "stand-in.csv")
    open_seconds, _open_cpu = watch.lap()
    rows = sum(len(batch) for batch in table.batches())
    read_seconds, read_cpu = watch.lap()
    score_file(
        table, [folder / "scored.csv", folder / "scored.parquet"], cast("Any", StubEncoder())
    )
    score_seconds, score_cpu = watch.lap()
    return {
        "open_seconds": round(open_seconds, 2),
        "read_rows_per_second": round(rows / read_seconds),
        "read_cpu_microseconds_per_row": round(1e6 * read_cpu / rows, 1),
        "rows_per_second": round(rows / score_seconds),
        "cpu_microseconds_per_row": round(1e6 * score_cpu / rows, 1),
        "peak_memory_mb": _peak_memory_mb(),
    }


def _with_the_encoder(folder: Path, rounds: int) -> dict[str, Any]:
    encoder = Encoder.load("all-MiniLM-L6-v2")
    sentences: list[str] = []
    for batch in open_table(folder / "sample.csv").batches():
        sentences += batch.rows["sentence1"]
        sentences += batch.rows["sentence2"]
    alone: list[tuple[float, float]] = []
    curve: list[dict[str, int]] = []
    rows = sum(len(batch) for batch in open_table(folder / "encoder.csv").batches())

    def encode_alone() -> None:
        for _ in range(rounds):
            watch = Stopwatch()
            encoder.encode(sentences)
            alone.append(watch.lap())

    def note(done: float, _: float) -> None:
        if done >= rows * (len(curve) + 1) / POINTS:
            curve.append({"row": round(done), "memory_mb": _memory_mb()})

    # The first call warms up.
    encoder.encode(sentences)
    encode_alone()
    watch = Stopwatch()
    score_file(folder / "encoder.csv", [folder / "scored.csv"], encoder, watch=Watch.of(note))
    wall, processor = watch.lap()
    encode_alone()
    # Seconds for a row.
    alone_wall = statistics.median(seconds for seconds, _ in alone) / SAMPLE_ROWS
    alone_processor = statistics.median(seconds for _, seconds in alone) / SAMPLE_ROWS
    return {
        "encode_rows_per_second": round(1 / alone_wall),
        "score_rows_per_second": round(rows / wall),
        "share_of_encode": round(alone_wall * rows / wall, 3),
        "processor_share_of_encode": round(alone_processor * rows / processor, 3),
        "score_seconds": round(wall, 1),
        "peak_memory_mb": _peak_memory_mb(),
        "memory": curve,
    }


def _memory_mb() -> int:
    """The resident memory now; on systems without /proc, its peak."""
    status = Path("/proc/self/statm")
    if not status.exists():
        return _peak_memory_mb()
    resident_pages = int(status.read_text().split()[1])
    return resident_pages * resource.getpagesize() >> 20


def _peak_memory_mb() -> int:
    # In bytes on macOS, and in KB elsewhere.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak >> (20 if sys.platform == "darwin" else 10)


PARTS = {"stand-in": _without_the_encoder, "encoder": _with_the_encoder}

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))))
