"""Load any model that scores sentence pairs by name: an encoder, a baseline without a transformer, a cross-encoder.

    load_scorer("all-MiniLM-L6-v2", "max")               or "tfidf", "glove", "minilm-stsb", "run:<id>", a Hub id

A name is a cross-encoder's if it is a built-in one, starts with cross-encoder/ as on the Hub, or is a folder or a run
that holds one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from training.catalogue import BM25, CROSS_ENCODERS, DEFAULT_MODEL
from training.errors import InputError
from training.models.baselines import is_baseline, load_baseline
from training.models.folder_checks import holds_cross_encoder
from training.names import ModelName
from training.sources.resolve import run_folder

if TYPE_CHECKING:
    import numpy as np
    from scipy.sparse import csr_matrix

    from training.models.baselines import SavedModelEncoder, TfIdf, WordVectors
    from training.models.cross_encoder import CrossEncoder
    from training.models.encoder import Encoder

    BiEncoder = Encoder | TfIdf | WordVectors | SavedModelEncoder
    Scorer = BiEncoder | CrossEncoder
    Vectors = np.ndarray | csr_matrix  # (N, D)

CROSS, BASELINE, ENCODER = "cross-encoder", "baseline", "encoder"


def kind_of(model: ModelName | str, home: str | Path | None = None) -> str:
    """encoder, baseline or cross-encoder, found out without loading; InputError for bm25. ``home``: where runs are."""
    parsed = ModelName.parse(model)
    if parsed.name == BM25:
        raise InputError(
            f"{BM25} ranks documents for queries: choose it for data such as beir:FOLDER, or another model"
        )
    name, folder = parsed.name, Path(parsed.name).expanduser()
    if parsed.run_id is not None:
        with suppress(InputError):  # there is no such run: said where it is loaded
            folder = run_folder(parsed.run_id, home)
    if name in CROSS_ENCODERS or name.startswith("cross-encoder/") or holds_cross_encoder(folder):
        return CROSS
    return BASELINE if is_baseline(name) else ENCODER


def load_scorer(
    name: ModelName | str,
    pooling: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    home: str | Path | None = None,
) -> Scorer:
    """Load a model of any kind by name.

    Raises:
        InputError: the model cannot be found or opened, or does not have this pooling.
    """
    model = ModelName.parse(name).with_pooling(pooling)
    kind = kind_of(model, home)
    if kind == BASELINE:
        if model.has_settings:
            raise InputError(f"{model.name} has neither dimensions nor prompts to choose; leave them out")
        return load_baseline(model.name, model.pooling, home)
    if kind == CROSS:
        from training.models.cross_encoder import CrossEncoder  # torch takes seconds to import

        return CrossEncoder.load(model, dtype, device, home)
    from training.models.encoder import Encoder

    return Encoder.load(model, None, dtype, device, home)


def default_encode(home: str | Path | None = None, device: str = "auto") -> Callable[[list[str]], np.ndarray]:
    """Sentences -> their vectors (n, D) by the default model, which is opened when this is called."""

    def encode(sentences: list[str]) -> np.ndarray:
        import torch

        from training.models.encoder import Encoder

        with torch.random.fork_rng(devices=[]):  # a run stays what it is
            return Encoder.load(DEFAULT_MODEL, device=device, home=home).encode(sentences)

    return encode
