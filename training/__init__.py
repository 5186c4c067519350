"""The core of SBERT Lab: encode, score and fine-tune Sentence-BERT. No web, no plots.

The names below are the public Python API; they are imported on first use, so that
``import training`` costs nothing (torch and transformers take seconds to import).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentence_transformers.util import community_detection as community_detection
    from sentence_transformers.util import quantize_embeddings as quantize_embeddings

    from training.clustering import near_duplicates as near_duplicates
    from training.data.dataset import Dataset as Dataset
    from training.data.load import RetrievalData as RetrievalData
    from training.data.load import load_data as load_data
    from training.errors import InputError as InputError
    from training.evaluation.attribution import attribute as attribute
    from training.evaluation.calibration import calibrate as calibrate
    from training.evaluation.scoring import evaluate as evaluate
    from training.evaluation.scoring import score as score
    from training.evaluation.thresholds import choose_threshold as choose_threshold
    from training.models.cross_encoder import CrossEncoder as CrossEncoder
    from training.models.encoder import Encoder as Encoder
    from training.models.maxsim import LateInteraction as LateInteraction
    from training.models.model import open_model as open_model
    from training.models.retrievers import load_retriever as load_retriever
    from training.models.st_models import SparseEncoder as SparseEncoder
    from training.search import QuantizedIndex as QuantizedIndex
    from training.search import SearchIndex as SearchIndex
    from training.search import paraphrase_mining as paraphrase_mining
    from training.search import semantic_search as semantic_search
    from training.search import similarity as similarity
    from training.trainer.config import RunConfig as RunConfig
    from training.trainer.train import train as train

__version__ = "0.2.0"

# The module of each name.
_MODULES = {
    "community_detection": "sentence_transformers.util",
    "quantize_embeddings": "sentence_transformers.util",
    "near_duplicates": "training.clustering",
    "Dataset": "training.data.dataset",
    "RetrievalData": "training.data.load",
    "load_data": "training.data.load",
    "InputError": "training.errors",
    "attribute": "training.evaluation.attribution",
    "calibrate": "training.evaluation.calibration",
    "evaluate": "training.evaluation.scoring",
    "score": "training.evaluation.scoring",
    "choose_threshold": "training.evaluation.thresholds",
    "CrossEncoder": "training.models.cross_encoder",
    "Encoder": "training.models.encoder",
    "LateInteraction": "training.models.maxsim",
    "open_model": "training.models.model",
    "load_retriever": "training.models.retrievers",
    "SparseEncoder": "training.models.st_models",
    "QuantizedIndex": "training.search",
    "SearchIndex": "training.search",
    "paraphrase_mining": "training.search",
    "semantic_search": "training.search",
    "similarity": "training.search",
    "RunConfig": "training.trainer.config",
    "train": "training.trainer.train",
}

__all__ = sorted(_MODULES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'training' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
