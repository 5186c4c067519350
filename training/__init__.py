"""The core of SBERT Lab: encode, score and fine-tune Sentence-BERT. No web, no plots.

The names below are the public Python API; they are imported on first use, so that
``import training`` costs nothing (torch and transformers take seconds to import).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training.attribution import attribute
    from training.config import RunConfig
    from training.cross_encoder import CrossEncoder
    from training.data import load_data
    from training.encoder import Encoder
    from training.evaluation import evaluate
    from training.loop import train

__all__ = ["CrossEncoder", "Encoder", "RunConfig", "attribute", "evaluate", "load_data", "train"]

_HOME_OF = {
    "CrossEncoder": "training.cross_encoder",
    "Encoder": "training.encoder",
    "RunConfig": "training.config",
    "attribute": "training.attribution",
    "evaluate": "training.evaluation",
    "load_data": "training.data",
    "train": "training.loop",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'training' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
