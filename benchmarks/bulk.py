"""A million rows through ``score``: what reading, bookkeeping and writing cost beside encoding, and the memory.

The file is written for the occasion: pairs with gold scores, no sentence twice, so that nothing is saved by
remembering. One process reads it alone, then scores it with a stand-in for the encoder that costs next to nothing,
into CSV and Parquet; what that takes is what a real run pays on top of encoding. The real encoder's rate on some
of the same sentences stands beside it, once alone and once through ``score_file``.
"""

from __future__ import annotations

import csv
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WORDS = (
    "a the one old young small man woman child dog cat horse train city house garden river song book teacher doctor "
    "runs sleeps plays reads sings opens closes paints builds in on near under behind quickly slowly today again"
)
SAMPLE_ROWS = 4_000  # scored by the real encoder


def run(rounds: int = 1, rows: int = 1_000_000) -> dict[str, Any]:
    """Rows a second of each step and the peak memory of the process.

    Args:
        rounds: times that the real encoder is measured, alone and in ``score_file`` in turn; the best counts.
        rows: in the file.
    """
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder) / "pairs.csv", rows)
        _write(Path(folder) / "sample.csv", SAMPLE_ROWS)
        child = [sys.executable, "-m", "benchmarks.bulk", folder]
        found = json.loads(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
        return {"rows": rows, **found, **_with_the_encoder(Path(folder), rounds)}


class StandIn:
    """The size of the default encoder's vectors, at the cost of filling them."""

    name, pooling, dimension = "stand-in", "mean", 384

    def encode(
        self, sentences: Sequence[str], normalize: bool | None = True, on_progress: Any = None, should_stop: Any = None
    ) -> np.ndarray:
        """Unit vectors that differ a little. float32 (N, 384)."""
        vectors = np.zeros((len(sentences), self.dimension), dtype=np.float32)
        vectors[np.arange(len(sentences)), np.arange(len(sentences)) % self.dimension] = 1
        return vectors


def _write(path: Path, rows: int) -> None:
    draw, words = random.Random(0), WORDS.split()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "sentence1", "sentence2", "score"])
        for row in range(rows):
            first, second = (" ".join(draw.choices(words, k=11)) for _ in range(2))
            writer.writerow([row, f"{first} {row}.", f"{second} {row}.", f"{draw.random() * 5:.2f}"])


class Watch:
    """Wall and processor seconds since it was made or read last. On a busy machine only the latter mean much."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def lap(self) -> tuple[float, float]:
        """(wall, processor) seconds, and begin again."""
        before, cpu_before = self._wall, self._cpu
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self._wall - before, self._cpu - cpu_before


def _without_the_encoder(folder: Path) -> dict[str, Any]:
    from sbert_app.scoring.file import score_file
    from training.tables import open_table

    watch = Watch()
    table = open_table(folder / "pairs.csv")
    opened, _ = watch.lap()
    rows = sum(len(batch) for batch in table.batches())
    read, read_cpu = watch.lap()
    score_file(table, [folder / "scored.csv", folder / "scored.parquet"], StandIn())
    scored, scored_cpu = watch.lap()
    return {
        "open_seconds": round(opened, 2),
        "read_rows_per_second": round(rows / read),
        "read_cpu_microseconds_per_row": round(1e6 * read_cpu / rows, 1),
        "all_but_encoding_rows_per_second": round(rows / scored),
        "all_but_encoding_cpu_microseconds_per_row": round(1e6 * scored_cpu / rows, 1),
        "peak_memory_mb": _peak_memory_mb(),
    }


def _with_the_encoder(folder: Path, rounds: int) -> dict[str, Any]:
    from sbert_app.scoring.file import score_file
    from training.encoder import Encoder
    from training.tables import open_table

    encoder = Encoder.load("all-MiniLM-L6-v2")
    columns = [batch.rows for batch in open_table(folder / "sample.csv").batches()]
    sentences = [text for part in columns for name in ("sentence1", "sentence2") for text in part[name]]
    encoder.encode(sentences[:200])
    alone, whole = [], []
    for _ in range(rounds):
        watch = Watch()
        encoder.encode(sentences)
        alone.append(watch.lap())
        score_file(folder / "sample.csv", [folder / "scored.csv"], encoder)
        whole.append(watch.lap())
    return {
        "encode_rows_per_second": round(SAMPLE_ROWS / min(alone)[0]),
        "score_rows_per_second": round(SAMPLE_ROWS / min(whole)[0]),
        "encode_cpu_share_of_score": round(min(cpu for _, cpu in alone) / min(cpu for _, cpu in whole), 3),
        "peak_memory_with_the_encoder_mb": _peak_memory_mb(),
    }


def _peak_memory_mb() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak >> (20 if sys.platform == "darwin" else 10)


if __name__ == "__main__":
    print(json.dumps(_without_the_encoder(Path(sys.argv[1]))))
