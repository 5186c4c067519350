"""BERT's weights and tokenizer without the transformers library, whose import takes 4 s and 150 MB.

Encoding needs the weights alone (`training.inference.fused_bert`) and the Rust tokenizer. `open_plain` reads both where
a folder holds nothing unusual. Training, gradients and saving need the objects of the transformers library: `whole`
makes them when they are first asked for; the module has the same parameters, not copies.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from training.errors import InputError
from training.models.folder_checks import WEIGHTS, read_object, read_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# What `BertConfig` takes for granted, of the settings that are read.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 30_522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3_072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
# Settings that only these values leave without consequence.
PLAIN: dict[str, tuple[Any, ...]] = {
    "model_type": ("bert",),
    "hidden_act": ("gelu", None),
    "position_embedding_type": ("absolute", None),
    **dict.fromkeys(("is_decoder", "add_cross_attention", "is_encoder_decoder"), (False, None)),
}
SPECIAL = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
importing = threading.Lock()  # transformers cannot be imported by two threads at once
_making = threading.Lock()


class PlainBert(nn.Module):
    """The parameters of a `BertModel`, by the same names and in the same modules. It computes nothing itself."""

    def __init__(self, stated: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """``stated``: the content of config.json. ValueError or KeyError if the tensors are not those it announces."""
        super().__init__()
        self.stated = stated
        self.config = config = SimpleNamespace(**{"is_decoder": False, "hidden_act": "gelu", **DEFAULTS, **stated})
        size, inner, unread = config.hidden_size, config.intermediate_size, dict(tensors)

        def parameter(name: str, *shape: int) -> nn.Parameter:
            if tuple(unread[name].shape) != shape:
                raise ValueError(f"{name} has the shape {tuple(unread[name].shape)}, not {shape}")
            return nn.Parameter(unread.pop(name))

        def table(name: str, rows: int) -> nn.Embedding:
            return nn.Embedding.from_pretrained(parameter(f"embeddings.{name}.weight", rows, size), freeze=False)

        def linear(name: str, outputs: int = size, inputs: int = size) -> nn.Linear:
            module = nn.Linear(1, 1)  # not of its size: nothing is drawn that is replaced at once
            module.out_features, module.in_features = outputs, inputs
            module.weight, module.bias = (
                parameter(f"{name}.weight", outputs, inputs),
                parameter(f"{name}.bias", outputs),
            )
            return module

        def norm(name: str) -> nn.LayerNorm:
            module = nn.LayerNorm(size, config.layer_norm_eps)
            module.weight, module.bias = parameter(f"{name}.weight", size), parameter(f"{name}.bias", size)
            return module

        def layer(at: str) -> nn.Module:
            attended = {name: linear(f"{at}.attention.self.{name}") for name in ("query", "key", "value")}
            joined = _parts(
                dense=linear(f"{at}.attention.output.dense"), LayerNorm=norm(f"{at}.attention.output.LayerNorm")
            )
            return _parts(
                attention=_parts(self=_parts(**attended), output=joined),
                intermediate=_parts(dense=linear(f"{at}.intermediate.dense", inner)),
                output=_parts(
                    dense=linear(f"{at}.output.dense", inputs=inner), LayerNorm=norm(f"{at}.output.LayerNorm")
                ),
            )

        with torch.random.fork_rng(devices=[]):
            self.embeddings = _parts(
                word_embeddings=table("word_embeddings", config.vocab_size),
                position_embeddings=table("position_embeddings", config.max_position_embeddings),
                token_type_embeddings=table("token_type_embeddings", config.type_vocab_size),
                LayerNorm=norm("embeddings.LayerNorm"),
            )
            layers = (layer(f"encoder.layer.{number}") for number in range(config.num_hidden_layers))
            self.encoder = _parts(layer=nn.ModuleList(layers))
            if "pooler.dense.weight" in unread:
                self.pooler = _parts(dense=linear("pooler.dense"))
        if unread:
            raise ValueError(f"{sorted(unread)} belong to something else")

    @property
    def base_model(self) -> PlainBert:
        """Itself, which has no head."""
        return self

    def get_input_embeddings(self) -> nn.Module:
        """The word embeddings."""
        return self.embeddings.get_submodule("word_embeddings")

    def whole(self) -> nn.Module:
        """transformers' module of the same parameters, always the same one."""
        with _making:
            if "_whole" not in self.__dict__:
                with importing:
                    from transformers import BertConfig, BertModel

                with torch.random.fork_rng(devices=[]):
                    model: Any = BertModel(BertConfig.from_dict({**self.stated, "use_cache": False}))
                model.load_state_dict(self.state_dict(keep_vars=True), strict=False, assign=True)
                device = next(self.parameters()).device
                self.__dict__["_whole"] = model.to(device).train(self.training)  # no child: its parameters are ours
        return self.__dict__["_whole"]


class PlainTokenizer:
    """What is needed of a fast tokenizer to encode, by the names of the transformers library."""

    def __init__(self, folder: Path, backend_tokenizer: Tokenizer, stated: dict[str, Any]) -> None:
        """``stated``: the content of tokenizer_config.json."""
        self.folder, self.backend_tokenizer = folder, backend_tokenizer
        tokens = {name: _text_of(stated.get(name, default)) for name, default in zip(SPECIAL, _BERT, strict=True)}
        self.unk_token, self.sep_token, self.pad_token, self.cls_token, self.mask_token = tokens.values()
        self.all_special_ids: list[Any] = [backend_tokenizer.token_to_id(token) for token in tokens.values()]
        self.pad_token_id = backend_tokenizer.token_to_id(self.pad_token)
        self.model_max_length = stated.get("model_max_length") or 10**30  # as in transformers
        self.truncation_side = stated.get("truncation_side", "right")
        self._whole: PreTrainedTokenizerFast | None = None

    def whole(self) -> PreTrainedTokenizerFast:
        """transformers' tokenizer of the same folder, always the same one."""
        with _making:
            if self._whole is None:
                with importing:
                    from transformers import AutoTokenizer
                here: dict[str, Any] = {"use_fast": True, "local_files_only": True, "trust_remote_code": False}
                self._whole = AutoTokenizer.from_pretrained(self.folder, **here)
        return self._whole


_BERT = ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")


def open_plain(folder: Path) -> tuple[PlainBert, PlainTokenizer] | None:
    """A BERT that has passed `check_model_folder`; None if anything in its folder is unusual, or wrong."""
    try:
        tokenizer = _open_tokenizer(folder)
        return None if tokenizer is None else (_open_bert(folder, tokenizer), tokenizer)
    except (InputError, OSError, ValueError, TypeError, KeyError, RuntimeError):  # the transformers library says what
        return None


def _open_bert(folder: Path, tokenizer: PlainTokenizer) -> PlainBert:
    stated = read_object(folder / "config.json")
    if any(stated.get(name) not in values for name, values in PLAIN.items()):
        raise ValueError("a setting that changes the architecture")
    tensors = {name: value.float() for name, value in read_tensors(folder, WEIGHTS).items()}
    tensors.pop("embeddings.position_ids", None)  # of older versions: 0, 1, 2, …
    bert = PlainBert(stated, tensors)
    if max(tokenizer.backend_tokenizer.encode("").ids, default=0) >= bert.config.vocab_size:
        raise ValueError("special tokens that the model does not know")
    return bert


def _open_tokenizer(folder: Path) -> PlainTokenizer | None:
    """None unless transformers would use tokenizer.json as it is."""
    stated, file = read_object(folder / "tokenizer_config.json"), folder / "tokenizer.json"
    written = read_object(file)
    normalizer = written["normalizer"]
    as_stated = {
        "type": "BertNormalizer",
        "lowercase": stated.get("do_lower_case", True),
        "strip_accents": stated.get("strip_accents"),
        "handle_chinese_chars": stated.get("tokenize_chinese_chars", True),
    }
    if any(normalizer[name] != value for name, value in as_stated.items()):
        return None
    tokens = {_text_of(stated.get(name, default)) for name, default in zip(SPECIAL, _BERT, strict=True)}
    added = {token["content"] for token in written["added_tokens"]}
    more = {_text_of(token) for token in (stated.get("added_tokens_decoder") or {}).values()}
    is_bert = str(stated.get("tokenizer_class")) in ("BertTokenizer", "BertTokenizerFast")
    if not is_bert or not tokens | more <= added or stated.get("additional_special_tokens"):
        return None
    try:
        return PlainTokenizer(folder, Tokenizer.from_file(str(file)), stated)
    except Exception as error:  # tokenizers raises bare ones
        raise ValueError("the library cannot read it") from error


def whole(part: Any) -> Any:
    """The object of the transformers library for what `open_plain` has opened; anything else as it is."""
    return part.whole() if isinstance(part, PlainBert | PlainTokenizer) else part


def _text_of(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _parts(**modules: nn.Module) -> Any:
    """A module of these children."""
    parent = nn.Module()
    for name, module in modules.items():
        parent.add_module(name, module)
    return parent
