"""Opening the transformer itself: tokenizer and weights out of a folder, or random weights of a given shape.

Nothing is executed (no pickle, no code that comes with a model) and nothing is guessed: transformers fills in
random numbers for weights that a file lacks and only warns, which would make a model that answers nonsense.
Here that is an error, and so is every damaged file, in one sentence each.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from training.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_POSITION_OFFSET = {"roberta", "xlm-roberta", "camembert", "mpnet"}  # positions start after the padding index
_UNUSED = "pooler."  # BERT's own head for next-sentence prediction; many folders lack it, pooling never reads it

importing = threading.Lock()  # two threads that import transformers at once see half of it


def open_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The fast tokenizer in ``folder``. InputError if there is none that can be opened."""
    with importing:
        from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, use_fast=True, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder} has no tokenizer that can be opened: {_first_line(error)}") from error


def open_backbone(folder: Path) -> nn.Module:
    """The transformer in ``folder``, float32, with PyTorch's fused attention wherever it has that (MPNet has not).

    InputError if the files are damaged, lack weights of the transformer, or are of a kind that is not supported.
    """
    from safetensors import SafetensorError

    with importing:
        from transformers import AutoModel

    try:
        backbone, found = AutoModel.from_pretrained(
            folder,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise InputError(f"{folder} cannot be opened as a transformer: {_first_line(error)}") from error
    except RuntimeError as error:  # transformers has logged which ones
        raise InputError(f"the weights in {folder} do not fit its config.json; fetch the model again") from error
    missing = sorted(name for name in found["missing_keys"] if not name.startswith(_UNUSED))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{folder} lacks the weights {missing[0]}{more}; fetch the model again")
    if backbone.config.is_encoder_decoder:
        raise InputError(
            f"{folder} is an encoder-decoder ({backbone.config.model_type}); choose an encoder such as BERT or MPNet"
        )
    return backbone


def random_backbone(layers: int, dimension: int, vocabulary: int, seed: int) -> nn.Module:
    """A BERT of the given shape with random weights; heads of 32 or 64 dimensions, as in MiniLM and BERT."""
    with importing:
        from transformers import BertConfig, BertModel

    if not 1 <= layers <= 24 or not 32 <= dimension <= 1024 or dimension % 32:
        raise InputError(
            f"scratch:{layers}x{dimension} is out of range: 1 to 24 layers, 32 to 1024 dimensions in steps of 32"
        )
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=dimension,
        num_hidden_layers=layers,
        num_attention_heads=dimension // (64 if dimension >= 512 and dimension % 64 == 0 else 32),
        intermediate_size=4 * dimension,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BertModel(config)


def longest_input(tokenizer: PreTrainedTokenizerFast, backbone: nn.Module) -> int:
    """The most tokens, special ones included, that both have room for."""
    config: Any = backbone.config
    positions = getattr(config, "max_position_embeddings", None) or 512
    if config.model_type in _POSITION_OFFSET:
        positions -= config.pad_token_id + 1
    return min(int(positions), int(min(tokenizer.model_max_length, 1_000_000)))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(" :") if str(error).strip() else type(error).__name__
