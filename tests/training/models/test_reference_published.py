"""As `test_reference`, folders as people publish them: equal vectors and scores, or one sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_reference import (
    BERT,
    GENERAL,
    POOLING,
    SMALL,
    TEXTS,
    TOLERANCE,
    assert_equal_scores,
    change,
    classifier,
    make,
    named,
    other,
)
from tiny_models import make_model

from training.errors import InputError
from training.models.encoder import Encoder
from training.models.maxsim import LateInteraction
from training.models.model import VectorModel, open_model, required
from training.models.st_models import SparseEncoder

MORE_TEXTS = [
    *TEXTS,
    "  the cat ",
    "\t\n",
    "日本語",
    "a [MASK] b [SEP] c",
    "ﬁ ½ İstanbul",
    "\u200b\u00ad",
]
BARE = {**SMALL, "max_position_embeddings": 64}
DECODER = {**SMALL, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 96}


def weights(
    change_names: Callable[[str], str], architecture: str = "bert", more: str = "a"
) -> Callable[[Path], Path]:
    """A maker of a folder whose weights have other names, and of one of this name."""

    def maker(path: Path) -> Path:
        file = make(architecture=architecture)(path) / "model.safetensors"
        tensors = {change_names(name): tensor.clone() for name, tensor in load_file(file).items()}
        save_file({**tensors, more: torch.ones(32)}, file)
        return file.parent

    return maker


def flags_beside_a_name(path: Path) -> Path:
    folder = make()(path)
    config = {
        "word_embedding_dimension": 32,
        "pooling_mode": "cls",
        "pooling_mode_mean_tokens": True,
    }
    (folder / POOLING).write_text(json.dumps(config))
    return folder


def static(path: Path, most_tokens: int | None = None, is_model2vec: bool = False) -> Path:
    """A table of token vectors, whose tokenizer may cut texts, perhaps in the layout of model2vec."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(make_model(path / "plain") / "tokenizer.json"))
    if most_tokens:
        tokenizer.enable_truncation(most_tokens)
    table = torch.randn(tokenizer.get_vocab_size(), 16, generator=torch.Generator().manual_seed(0))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, table)], device="cpu").save(
        str(path / "model")
    )
    if is_model2vec:
        rows = torch.arange(len(table)) % 20
        scale = torch.linspace(0, 2, len(table), dtype=torch.float64)
        tensors = {"embeddings": table[:20].half(), "mapping": rows, "weights": scale}
        save_file(tensors, path / "model/model.safetensors")
    return path / "model"


def network(name: str, **settings: Any) -> Callable[[Path], Path]:
    return lambda path: other(path, name, **{**BARE, **settings})


def decoder(name: str, **settings: Any) -> Callable[[Path], Path]:
    return lambda path: other(path, name, "qwen3", **{**DECODER, **settings})


FOLDERS: dict[str, Callable[[Path], Path]] = {
    "BERT with another GELU": network("Bert", hidden_act="gelu_new"),
    "BERT of one type of tokens": network("Bert", type_vocab_size=1),
    "ERNIE": network("Ernie"),
    "RoFormer": network("RoFormer", embedding_size=32),
    "RemBERT": network("RemBert", input_embedding_size=16),
    "FNet": network("FNet"),
    "DeBERTa": network("Deberta", relative_attention=True, pos_att_type="c2p|p2c"),
    "Qwen2, not causal": decoder("Qwen2", is_causal=False),
    "Llama": decoder("Llama"),
    "Mistral": decoder("Mistral", sliding_window=8),
    "Gemma2": decoder("Gemma2", sliding_window=8),
    "Mamba": network("Mamba", state_size=4),
    "ModernBERT as a decoder": decoder("ModernBertDecoder", local_attention=8),
    "names of BERT's": weights("bert.{}".format),
    "names of a decoder's body": weights(lambda name: name.removeprefix("model."), "qwen3"),
    "names as TensorFlow has them": weights(
        lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        )
    ),
    "positions that the tokenizer does not have": make(BERT, "roberta", max_seq_length=66),
    "flags beside a name": flags_beside_a_name,
    "compared by dot": make(GENERAL, similarity_fn_name="dot"),
    "a table whose tokenizer cuts texts": lambda path: static(path, most_tokens=5),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_the_vectors_of_published_folders_are_those_of_the_reference(tmp_path: Path, kind: str):
    from sentence_transformers import SentenceTransformer

    folder = FOLDERS[kind](tmp_path)
    ours = required(open_model(folder, dtype="float32", device="cpu"), VectorModel)
    theirs = SentenceTransformer(str(folder), device="cpu")
    if isinstance(theirs.max_seq_length, int):
        theirs.max_seq_length = min(theirs.max_seq_length, ours.max_length)
    expected = np.concatenate([theirs.encode([text]) for text in MORE_TEXTS])
    np.testing.assert_allclose(ours.encode(MORE_TEXTS, normalize=None), expected, **TOLERANCE)
    assert ours.similarity_fn_name == theirs.similarity_fn_name


def test_a_table_without_vectors_is_refused(tmp_path: Path):
    folder = static(tmp_path)
    save_file({"zork": torch.ones(500, 16)}, folder / "model.safetensors")
    with pytest.raises(InputError, match="cannot be opened by sentence-transformers"):
        open_model(folder)


def scored(name: str, tokenizer: str = "bert", **settings: Any) -> Callable[[Path], Path]:
    model = "AutoModelForSequenceClassification"
    return lambda path: other(path / "model", name, tokenizer, model, num_labels=1, **settings)


def without_padding(path: Path) -> Path:
    folder = scored("Qwen2", "qwen3", **DECODER)(path)
    change(folder / "config.json", pad_token_id=None)
    return folder


SCORERS: dict[str, Callable[[Path], Path]] = {
    "FNet": scored("FNet", **BARE),
    "DeBERTa": scored(
        "DebertaV2", relative_attention=True, pos_att_type="c2p|p2c", pooler_hidden_size=32, **BARE
    ),
    "ModernBERT's mean": scored("ModernBert", "modernbert", classifier_pooling="mean", **BARE),
    "Gemma2": scored("Gemma2", "qwen3", **DECODER),
    "no padding token": without_padding,
    "an activation of a version before that": lambda path: (
        change(
            classifier(path / "m") / "config.json",
            sbert_ce_default_activation_function=named("linear", "Identity"),
        )
        or path / "m"
    ),
}


@pytest.mark.parametrize("kind", SCORERS)
def test_the_scores_of_published_folders_are_those_of_the_reference(tmp_path: Path, kind: str):
    assert_equal_scores(SCORERS[kind](tmp_path))


@pytest.mark.parametrize("route", ["query", "document", None])
def test_a_router_encodes_queries_and_documents_by_different_modules(
    tmp_path: Path, route: str | None
):
    from sentence_transformers import SparseEncoder as Reference
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

    plain = make_model(tmp_path / "plain")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        transformers.AutoModelForMaskedLM.from_pretrained(plain).save_pretrained(plain)
    tokenizer = transformers.AutoTokenizer.from_pretrained(plain)
    table = SparseStaticEmbedding(tokenizer, torch.linspace(0, 3, len(tokenizer)))
    document = [Transformer(str(plain), transformer_task="fill-mask"), SpladePooling()]
    router = Router.for_query_document([table], document, default_route=route)
    theirs = Reference(modules=[router], device="cpu")
    theirs.save(str(tmp_path / "model"))
    ours = open_model(str(tmp_path / "model"), dtype="float32")
    assert isinstance(ours, SparseEncoder)
    for model, encode in (
        (ours, theirs.encode),
        (ours.for_role("query"), theirs.encode_query),
        (ours.for_role("document"), theirs.encode_document),
    ):
        expected = np.concatenate([encode([text]).to_dense().numpy() for text in MORE_TEXTS])
        np.testing.assert_allclose(model.encode_sparse(MORE_TEXTS).toarray(), expected, **TOLERANCE)


def test_a_colbert_as_its_authors_publish_it(tmp_path: Path):
    from sentence_transformers import MultiVectorEncoder

    folder = make_model(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["[unused0]", "[unused1]"], special_tokens=True)
    network = transformers.AutoModel.from_pretrained(folder)
    network.resize_token_embeddings(len(tokenizer))
    tokenizer.save_pretrained(folder)
    projection = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
    tensors = {f"bert.{name}": tensor.contiguous() for name, tensor in network.state_dict().items()}
    save_file(
        {**tensors, "linear.weight": projection}, folder / "model.safetensors", {"format": "pt"}
    )
    change(folder / "config.json", architectures=["HF_ColBERT"], vocab_size=len(tokenizer))
    change(folder / "artifact.metadata", query_maxlen=16, doc_maxlen=40, mask_punctuation=True)
    ours = open_model(str(folder), dtype="float32")
    theirs = MultiVectorEncoder(str(folder), device="cpu")
    assert isinstance(ours, LateInteraction)
    for mine, encode in (
        (ours.encode_query, theirs.encode_query),
        (ours.encode_document, theirs.encode_document),
    ):
        for text, vectors in zip(TEXTS, mine(TEXTS), strict=True):
            np.testing.assert_allclose(vectors, encode([text])[0], **TOLERANCE)


# Its first token is of type 1, as XLNet's last one is of type 2.
def of_types(path: Path) -> Path:
    folder = make("tokenizer_config.json", model_input_names=["input_ids", "token_type_ids"])(path)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["post_processor"]["single"][0]["SpecialToken"]["type_id"] = 1
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


QUERY = "encoder.layer.0.attention.self.query"
UNREAD = "which that layer does not read"


@pytest.mark.parametrize(
    ("maker", "reason"),
    [
        (
            weights(str, more=f"{QUERY}.lora_A.weight"),
            f"has the weights {QUERY}.lora_A.weight, {UNREAD}",
        ),
        (weights("bert.{}".format, more=f"bert.{QUERY}.weight_scale_inv"), UNREAD),
        (weights(str, "qwen3", "layers.0.self_attn.q_proj.bias"), UNREAD),
        (of_types, "has types of tokens other than 0, and 1 for a second text"),
        (
            make("config.json", "qwen3", auto_map={"AutoModel": "code.Model"}),
            "names code of its own",
        ),
    ],
)
def test_a_folder_that_would_give_other_vectors_is_refused(
    tmp_path: Path, maker: Callable[[Path], Path], reason: str
):
    with pytest.raises(InputError, match=reason):
        Encoder.load(str(maker(tmp_path)))
