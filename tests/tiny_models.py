"""Tiny random models of every architecture that SBERT Lab opens, made on the spot: no download, a few kilobytes.

`make_model(folder, architecture)` writes what such a model's folder on the Hub holds: config.json, safetensors
weights and a fast tokenizer with the architecture's own special tokens, and no modules.json.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = ("the", "a", "man", "woman", "cat", "dog", "is", "was", "playing", "eating", "guitar", "food", "on", "in")
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


# The special tokens, in the order of their ids.
BERT_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_SPECIALS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}

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
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, [], unk_token=specials["unk"]))
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


ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture(word_pieces, BERT_SPECIALS, "Bert", 64, {"max_position_embeddings": 64, **SHAPE}),
    "distilbert": Architecture(
        word_pieces,
        BERT_SPECIALS,
        "DistilBert",
        64,
        {"max_position_embeddings": 64, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48},
    ),
    # RoBERTa and MPNet count positions from the padding token's id plus one.
    "roberta": Architecture(
        byte_pairs, ROBERTA_SPECIALS, "Roberta", 64, {"max_position_embeddings": 66, "type_vocab_size": 1, **SHAPE}
    ),
    "mpnet": Architecture(word_pieces, ROBERTA_SPECIALS, "MPNet", 64, {"max_position_embeddings": 66, **SHAPE}),
    "modernbert": Architecture(
        byte_pairs,
        BERT_SPECIALS,
        "ModernBert",
        96,
        {"max_position_embeddings": 96, "local_attention": 16, "global_attn_every_n_layers": 2, **SHAPE},
    ),
}


def make_model(folder: Path, architecture: str = "bert", seed: int = 0, **settings: Any) -> Path:
    """Write a plain transformers folder with random weights; ``settings`` change its config."""
    made = ARCHITECTURES[architecture]
    tokenizer = made.tokenizer(made.specials)
    ids = {token: tokenizer.token_to_id(token) for token in made.specials.values()}
    cls, sep = made.specials["cls"], made.specials["sep"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B {sep}",
        special_tokens=[(cls, ids[cls]), (sep, ids[sep])],
    )
    config = getattr(transformers, f"{made.prefix}Config")(
        vocab_size=tokenizer.get_vocab_size(),
        pad_token_id=ids[made.specials["pad"]],
        bos_token_id=ids[cls],
        eos_token_id=ids[sep],
        cls_token_id=ids[cls],
        sep_token_id=ids[sep],
        # Far from zero, so that different sentences get clearly different vectors.
        **{"initializer_range": 0.5, **made.settings, **settings},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        getattr(transformers, f"{made.prefix}Model")(config).eval().save_pretrained(folder)
    names = {f"{name}_token": token for name, token in made.specials.items()}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=made.longest, **names
    ).save_pretrained(folder)
    return folder
