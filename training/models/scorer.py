"""Load what scores sentence pairs by name: an encoder, a baseline, a cross-encoder, late interaction, SPLADE.

    load_scorer("all-MiniLM-L6-v2", "max")            or "tfidf", "minilm-stsb", "maxsim:<name>", "run:<id>", a Hub id

A name is a cross-encoder's if it is a built-in one, starts with cross-encoder/ as on the Hub, or is a folder or a run
that holds one. Folders say themselves that they are of ColBERT's or of SPLADE's kind.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from training.catalogue import BM25, CROSS_ENCODERS, DEFAULT_MODEL, ENCODERS
from training.errors import InputError
from training.models.baselines import is_baseline, load_baseline
from training.models.folder_checks import COLBERT, MULTI_VECTOR, SPARSE_ENCODER, holds_cross_encoder, stated_kind
from training.names import ModelName, is_repo_id
from training.sources.home import home_folder
from training.sources.resolve import model_folder, run_folder

if TYPE_CHECKING:
    import numpy as np
    from scipy.sparse import csr_matrix

    from training.models.baselines import SavedModelEncoder, TfIdf, WordVectors
    from training.models.cross_encoder import CrossEncoder
    from training.models.encoder import Encoder
    from training.models.late_interaction import LateInteraction
    from training.models.sparse import SparseEncoder

    BiEncoder: TypeAlias = Encoder | TfIdf | WordVectors | SavedModelEncoder | SparseEncoder
    Scorer: TypeAlias = BiEncoder | CrossEncoder | LateInteraction
    Vectors = np.ndarray | csr_matrix  # (N, D)

CROSS, BASELINE, ENCODER, LATE, SPARSE = "cross-encoder", "baseline", "encoder", "late interaction", "sparse encoder"
CLASSES = {  # torch takes seconds to import
    CROSS: ("training.models.cross_encoder", "CrossEncoder"),
    ENCODER: ("training.models.encoder", "Encoder"),
    LATE: ("training.models.late_interaction", "LateInteraction"),
    SPARSE: ("training.models.sparse", "SparseEncoder"),
}
STATED = {MULTI_VECTOR: LATE, COLBERT: LATE, SPARSE_ENCODER: SPARSE}  # what a folder says that it is


def kind_of(model: ModelName | str, home: str | Path | None = None) -> str:
    """A key of ``CLASSES``, or baseline, found out without loading; InputError for bm25. ``home``: where runs are."""
    parsed = ModelName.parse(model)
    if parsed.maxsim:
        return LATE
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
    if is_repo_id(name) and not folder.is_dir():
        folder = home_folder(home) / "models" / name
    return BASELINE if is_baseline(name) else STATED.get(stated_kind(folder), ENCODER)


def fetched_kind(model: ModelName | str, home: str | Path | None = None) -> str:
    """`kind_of`, for which an id of the Hub is fetched: its folder says what it is."""
    name, kind = ModelName.parse(model).name, kind_of(model, home)
    if kind != ENCODER or name in ENCODERS or not is_repo_id(name):
        return kind
    return STATED.get(stated_kind(model_folder(name, home).path), ENCODER)


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
    kind = fetched_kind(model, home)
    if kind == BASELINE:
        if model.has_settings:
            raise InputError(f"{model.name} has neither dimensions nor prompts to choose; leave them out")
        return load_baseline(model.name, model.pooling, home)
    module, name_of_class = CLASSES[kind]
    return getattr(import_module(module), name_of_class).load(model, dtype=dtype, device=device, home=home)


def default_encode(
    home: str | Path | None = None, device: str = "auto", should_stop: Callable[[], bool] | None = None
) -> Callable[[list[str]], np.ndarray]:
    """Sentences -> their vectors (n, D) by the default model, which is opened when this is called."""

    def encode(sentences: list[str]) -> np.ndarray:
        import torch

        from training.models.encoder import Encoder

        with torch.random.fork_rng(devices=[]):  # a run stays what it is
            return Encoder.load(DEFAULT_MODEL, device=device, home=home).encode(sentences, should_stop=should_stop)

    return encode
