"""Tiny random models of every architecture that SBERT Lab opens, made on the spot: no download, a few kilobytes.

`make_model(folder, architecture)` writes what such a model's folder on the Hub holds: config.json,
safetensors weights and a fast tokenizer with the architecture's own special tokens, and no
modules.json.
"""

import string
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from training.models.encoder import Encoder
from training.models.word_networks import WordBackbone

WORDS = (
    "the",
    "a",
    "man",
    "woman",
    "cat",
    "dog",
    "is",
    "was",
    "playing",
    "eating",
    "guitar",
    "food",
    "on",
    "in",
)
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}


# The special tokens, in the order of their ids.
BERT_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_SPECIALS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
T5_SPECIALS = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
QWEN_SPECIALS = {"pad": "<|endoftext|>", "unk": "<|unk|>", "mask": "<|mask|>"}
GEMMA_SPECIALS = {"pad": "<pad>", "eos": "<eos>", "bos": "<bos>", "unk": "<unk>"}

Specials = dict[str, str]


def word_pieces(specials: Specials) -> Tokenizer:
    """Lower-cased WordPiece over a few words and all ASCII characters."""
    signs = [sign for sign in string.printable if not sign.isspace() and not sign.isupper()]
    pieces = [*specials.values(), *WORDS, *signs, *(f"##{sign}" for sign in signs)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=specials["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def byte_pairs(specials: Specials) -> Tokenizer:
    """Byte-level BPE without merges: every byte is a token, case and spaces count."""
    pieces = [*specials.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(
        models.BPE({piece: i for i, piece in enumerate(pieces)}, [], unk_token=specials["unk"])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


@dataclass(frozen=True)
class Architecture:
    """How to make one: its tokenizer, and its transformer with what the shape is called there."""

    tokenizer: Callable[[Specials], Tokenizer]
    specials: Specials
    prefix: str  # of the classes in transformers
    longest: int  # tokens
    settings: dict[str, Any]
    template: str = "cls $A sep"  # the special tokens around a text
    model_class: str = ""  # "" = the prefix and Model
    padding_side: str = "right"


# Of decoders: key and value heads fewer than query heads, positions by rotation.
DECODER = {"head_dim": 16, "num_key_value_heads": 1, "max_position_embeddings": 96}

ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture(
        word_pieces, BERT_SPECIALS, "Bert", 64, {"max_position_embeddings": 64, **SHAPE}
    ),
    "distilbert": Architecture(
        word_pieces,
        BERT_SPECIALS,
        "DistilBert",
        64,
        {"max_position_embeddings": 64, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48},
    ),
    # RoBERTa and MPNet count positions from the padding token's id plus one.
    "roberta": Architecture(
        byte_pairs,
        ROBERTA_SPECIALS,
        "Roberta",
        64,
        {"max_position_embeddings": 66, "type_vocab_size": 1, **SHAPE},
    ),
    "mpnet": Architecture(
        word_pieces, ROBERTA_SPECIALS, "MPNet", 64, {"max_position_embeddings": 66, **SHAPE}
    ),
    "modernbert": Architecture(
        byte_pairs,
        BERT_SPECIALS,
        "ModernBert",
        96,
        {
            "max_position_embeddings": 96,
            "local_attention": 16,
            "global_attn_every_n_layers": 2,
            **SHAPE,
        },
    ),
    "t5": Architecture(
        word_pieces,
        T5_SPECIALS,
        "T5",
        64,
        {
            "d_model": 32,
            "d_kv": 16,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 2,
            "relative_attention_max_distance": 32,
        },
        template="$A eos",
        model_class="T5EncoderModel",
    ),
    "qwen3": Architecture(
        byte_pairs,
        QWEN_SPECIALS,
        "Qwen3",
        96,
        {**SHAPE, **DECODER},
        template="$A pad",
        padding_side="left",
    ),
    "gemma3": Architecture(
        byte_pairs,
        GEMMA_SPECIALS,
        "Gemma3Text",
        96,
        {
            **SHAPE,
            **DECODER,
            "use_bidirectional_attention": True,
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention"],
            "query_pre_attn_scalar": 16,
        },
        template="bos $A eos",
    ),
}


# Architectures that were published with code of their own, and have a class in transformers since.
OWN_CODE: dict[str, Architecture] = {
    "nomic_bert": Architecture(
        word_pieces, BERT_SPECIALS, "NomicBert", 64, {"max_position_embeddings": 64, **SHAPE}
    ),
    "gte": Architecture(
        word_pieces, BERT_SPECIALS, "Gte", 64, {"max_position_embeddings": 64, **SHAPE}
    ),
    "jina_embeddings_v3": Architecture(
        word_pieces,
        ROBERTA_SPECIALS,
        "JinaEmbeddingsV3",
        64,
        {"max_position_embeddings": 64, **SHAPE},
    ),
    "eurobert": Architecture(
        byte_pairs, BERT_SPECIALS, "EuroBert", 64, {"max_position_embeddings": 64, **SHAPE}
    ),
}


def make_model(folder: Path, architecture: str = "bert", seed: int = 0, **settings: Any) -> Path:
    """Write a plain transformers folder with random weights; ``settings`` change its config."""
    made = {**ARCHITECTURES, **OWN_CODE}[architecture]
    tokenizer = made.tokenizer(made.specials)
    ids = {token: tokenizer.token_to_id(token) for token in made.specials.values()}
    template = " ".join(made.specials.get(part, part) for part in made.template.split())
    second = template.replace("$A", "$B").removeprefix(f"{made.specials.get('cls')} ")
    if architecture == "bert":
        # The one that has a type of its own for the tokens of a second text.
        second = " ".join(f"{part}:1" for part in second.split())
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, pair=f"{template} {second}", special_tokens=list(ids.items())
    )
    config = getattr(transformers, f"{made.prefix}Config")(
        vocab_size=tokenizer.get_vocab_size(),
        **{f"{name}_token_id": ids[token] for name, token in made.specials.items()},
        **(
            {"bos_token_id": ids[made.specials["cls"]], "eos_token_id": ids[made.specials["sep"]]}
            if "cls" in made.specials
            else {}
        ),
        # Far from zero, so that different sentences get clearly different vectors.
        **{"initializer_range": 0.5, "initializer_factor": 1.0, **made.settings, **settings},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        getattr(transformers, made.model_class or f"{made.prefix}Model")(
            config
        ).eval().save_pretrained(folder)
    names = {f"{name}_token": token for name, token in made.specials.items()}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=made.longest,
        padding_side=made.padding_side,
        **names,
    ).save_pretrained(folder)
    return folder


def module_names(encoder: Encoder) -> tuple[str, ...]:
    """The names of an encoder's modules, in order, as in modules.json."""
    backbone = encoder.backbone
    before = backbone.modules_before_pooling if isinstance(backbone, WordBackbone) else []
    first = [type(module).__name__ for module in before] or ["Transformer"]
    after = [type(module).__name__ for module in encoder.head]
    return (*first, "Pooling", *after, *["Normalize"] * encoder.normalizes)
