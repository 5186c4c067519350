"""Compile umap-learn, once on a machine: ``python -m sbert_app.services.maps.compile_umap``.

`umap_engine` runs it with ``HOME FOLDER``, as a process of low priority: half a minute of compiling in the app would
delay every answer.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from sbert_app.services.maps.projection import DIMENSIONS, MapSettings, draw
from sbert_app.services.maps.umap_engine import compile_ahead, import_umap
from training.sources.home import home_folder

LOW_PRIORITY = 10  # niceness


def main(home: Path, folder: Path) -> None:
    """Draw the smallest maps that use every compiled function: one in two dimensions, one in three."""
    os.nice(LOW_PRIORITY)
    import_umap(folder)
    vectors = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for dimensions in DIMENSIONS:
        draw(vectors, MapSettings(dimensions=dimensions, epochs=2), home)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        compile_ahead(home_folder())
