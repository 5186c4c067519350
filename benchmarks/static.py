"""A static model for benchmarks in which encoding must take almost no time."""

from pathlib import Path

from training.catalogue import DEFAULT_MODEL
from training.models.encoder import Encoder
from training.models.model import VectorModel, open_model, required


def static_model(folder: Path) -> VectorModel:
    """Writes a model that averages the default model's embeddings of tokens, and opens it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    encoder = Encoder.load(DEFAULT_MODEL)
    table = encoder.backbone.get_input_embeddings().weight.detach()
    SentenceTransformer(modules=[StaticEmbedding(encoder.tokenizer, table)]).save(str(folder))
    return required(open_model(folder), VectorModel)
