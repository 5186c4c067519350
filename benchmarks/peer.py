"""A peer in a process and an environment of its own: python benchmarks/peer.py BACKEND MODEL_FOLDER SENTENCES.json

Run by `benchmarks.peers` with the interpreter of an environment that has sentence-transformers with one of its other
back ends; nothing of SBERT Lab is imported. It loads the model and encodes once, says "ready"; then, for each line on
stdin, it encodes everything and answers with the seconds; at the end of stdin it writes the vectors to SENTENCES.npy.
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
    """See the module."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
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
