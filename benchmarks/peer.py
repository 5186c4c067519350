"""A peer in its own process and environment: python benchmarks/peer.py BACKEND MODEL_FOLDER SENTENCES.json

Run by `benchmarks.peers` with the interpreter of an environment with sentence-transformers and its other back ends;
nothing of SBERT Lab is imported. It loads the model, encodes once and prints a line with "ready". For each line on
stdin it encodes all sentences and prints the seconds. At the end of stdin it writes the vectors to SENTENCES.npy.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

OPTIONS: dict[str, dict[str, Any]] = {
    "torch": {},
    "onnx": {"export": True, "provider": "CPUExecutionProvider"},
    "openvino": {"export": True},
}
PACKAGES = ("sentence-transformers", "transformers", "onnxruntime", "openvino", "torch")


def main(backend: str, folder: str, sentences_file: str) -> None:
    """See the module's docstring."""
    answers, sys.stdout = sys.stdout, sys.stderr  # keep the output of libraries out of the answers
    import numpy as np
    from sentence_transformers import SentenceTransformer

    sentences = json.loads(Path(sentences_file).read_text(encoding="utf-8"))
    model = SentenceTransformer(
        folder, backend=backend, device="cpu", local_files_only=True, model_kwargs=OPTIONS[backend]
    )
    vectors = model.encode(sentences[:256], normalize_embeddings=True, show_progress_bar=False)
    print(json.dumps({"ready": backend, "versions": _versions(), "cores": os.cpu_count()}), file=answers, flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        vectors = model.encode(sentences, normalize_embeddings=True, show_progress_bar=False)
        print(json.dumps({"seconds": time.perf_counter() - started}), file=answers, flush=True)
    np.save(Path(sentences_file).with_suffix(".npy"), vectors, allow_pickle=False)


def _versions() -> dict[str, str]:
    installed = {each.metadata["Name"].lower(): each.version for each in metadata.distributions()}
    return {name: installed[name] for name in PACKAGES if name in installed}


if __name__ == "__main__":
    main(*sys.argv[1:4])
