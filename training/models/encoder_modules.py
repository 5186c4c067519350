"""EncoderModules: what an encoder is made of, and the settings under which its weights are used.

An encoder is a list of modules, as in sentence-transformers (`training.models.modules`): ``backbone`` is what comes
before the pooling, a transformer or word vectors; ``head`` what comes after it, mostly nothing, in some models a Dense
layer. A last Normalize, a prompt and a smaller number of dimensions are settings (`training.models.model_format`).

Here text becomes token ids, and token ids become sentence vectors, differentiably. The poolings, dimensions and prompts
of one model share its weights: each ``with_…`` returns a copy that differs in a setting alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.assets import read_asset
from training.atomic import replace_folder
from training.device import to_host
from training.errors import InputError
from training.inference.batching import pad
from training.models.endpoint import EndpointBackbone, vectors_only
from training.models.folder_checks import check_replaceable
from training.models.loading import DEFAULT_MAX_LENGTH, quiet
from training.models.model_format import ModelFormat, write_model_format
from training.models.plain_bert import PlainTokenizer, whole
from training.models.tokenization import EncodeReport, TextTokenizer, text_tokenizer
from training.models.word_encoders import WordBackbone
from training.names import ModelName
from training.pooling import NO_POOLING, check_pooling, parse_pooling, pooling_function
from training.sources.push import push_folder

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    from training.models.modules.words import WhitespaceTokenizer


class EncoderModules:
    """Tokenizer, backbone, pooling and head."""

    def __init__(
        self,
        name: str,
        backbone: nn.Module,
        tokenizer: PreTrainedTokenizerFast | PlainTokenizer | Tokenizer | WhitespaceTokenizer | TextTokenizer,
        model_format: ModelFormat,
        dtype: torch.dtype,
        source: str = "",
        head: nn.Sequential | None = None,
    ) -> None:
        self.name = name
        self.weights = backbone  # without the transformers library, where that is not needed
        self.head = nn.Sequential() if head is None else head
        self._tokenizer = tokenizer
        self.model_format = model_format
        self.dtype = dtype
        self.source = source
        empty_id = getattr(getattr(backbone, "input_module", None), "empty_id", 0)
        self._text_tokenizer = text_tokenizer(tokenizer, model_format, empty_id)
        self._advised = False  # whether `prompt_advice` has been logged
        self._apply_settings()

    def __repr__(self) -> str:
        prompt = f", prompt {self.prompt!r}" if self.prompt else ""
        precision = str(self.dtype).removeprefix("torch.")
        return (
            f"Encoder({self.name!r}, {self.pooling}, {self.dimension} dimensions, {precision}, {self.device}{prompt})"
        )

    @property
    def backbone(self) -> nn.Module:
        """What comes before the pooling: a transformer, as a module of the transformers library, or word vectors."""
        self.weights = whole(self.weights)
        return self.weights

    @backbone.setter
    def backbone(self, module: nn.Module) -> None:
        self.weights = module

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the transformers library, or of word vectors."""
        return whole(self._tokenizer)

    @property
    def pooling(self) -> str:
        """mean, max, cls, …: a name in `training.pooling.POOLINGS`, or several joined by +; none of an endpoint."""
        return NO_POOLING if self.sent_to else self.model_format.pooling or "mean"

    @property
    def sent_to(self) -> str:
        """The host and port that texts are sent to, of an endpoint; "" if they stay on this machine."""
        return self.weights.endpoint.address if isinstance(self.weights, EndpointBackbone) else ""

    @property
    def normalizes(self) -> bool:
        """Whether the model's own output is scaled to length 1: its last module is a Normalize."""
        return self.model_format.normalizes

    @property
    def max_length(self) -> int:
        """Longest input in tokens, special tokens included; longer sentences are truncated."""
        return self.model_format.max_length or DEFAULT_MAX_LENGTH

    @property
    def vocabulary_size(self) -> int:
        """The number of different tokens."""
        return int(self.weights.get_input_embeddings().num_embeddings)  # type: ignore[operator]

    @property
    def pad_id(self) -> int:
        """The id of the token that pads a batch."""
        return self._text_tokenizer.pad_id

    @property
    def dimension(self) -> int:
        """D, the length of a sentence vector."""
        return min(self.model_format.dimension or self.full_dimension, self.full_dimension)

    @property
    def prompt(self) -> str:
        """The text put before every sentence, "" for none."""
        return self.model_format.prompt

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts of the model's folder, by name."""
        return dict(self.model_format.prompts)

    @property
    def prompt_advice(self) -> str:
        """One sentence if the model was trained with prompts and none is used, else ""."""
        return "" if self.prompt else self._advice

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the modules, in order, as in modules.json."""
        is_static = self.model_format.input_module == "StaticEmbedding"
        before = [self.model_format.input_module, *(type(each).__name__ for each in self._token_modules)]
        after = [type(each).__name__ for each in self.head] + ["Normalize"] * self.normalizes
        return (*before, *(() if is_static else ("Pooling",)), *after)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.weights.parameters()).device

    @property
    def settings(self) -> str:
        """What its vectors depend on beside the weights, as one line."""
        form = self.model_format
        return f"{self.pooling} {self.max_length} {self.dimension} {form.include_prompt} {self.prompt!r}"

    def with_pooling(self, pooling: str | None) -> Self:
        """The same weights (shared, not copied) under another pooling. InputError if the modules after it forbid it."""
        check_pooling(pooling)
        if pooling is None or pooling == self.pooling:
            return self
        if self.sent_to:
            raise InputError(f"{self.name} is an endpoint, whose server pools; leave the pooling out")
        if self.model_format.input_module == "StaticEmbedding":
            raise InputError(f"{self.name} always takes the mean of its token vectors; leave the pooling out")
        return self._with_settings(pooling=pooling)

    def allows_pooling(self, pooling: str) -> bool:
        """Whether `with_pooling` would return an encoder."""
        try:
            self.with_pooling(pooling)
        except InputError:
            return False
        return True

    def with_dimension(self, dimension: int | None) -> Self:
        """The same weights, keeping only the first ``dimension`` numbers of each vector; None changes nothing."""
        if dimension is None or dimension == self.dimension:
            return self
        if not 1 <= dimension <= self.full_dimension:
            raise InputError(f"{self.name} has {self.full_dimension} dimensions; keep 1 to {self.full_dimension}")
        return self._with_settings({"dimension": dimension}, dimension=dimension)

    def with_prompt(self, prompt: str | None = None, name: str | None = None) -> Self:
        """The same weights with a text before every sentence, given itself or by its name in the model's folder.

        ``""`` is no prompt; None and None change nothing. InputError if there is no prompt of that name, or both are
        given.
        """
        if prompt is None and name is None:
            return self
        if prompt is not None and name is not None:
            raise InputError("give the prompt itself or its name, not both")
        prompts, default = self.prompts, name
        if name is not None:
            if name not in prompts:
                known = ", ".join(prompts) or "none"
                raise InputError(f"{self.name} has no prompt named {name!r}; its folder names: {known}")
            default = name if prompts[name] else None
        elif prompt:
            default = next((known for known, text in prompts.items() if text == prompt), "default")
            prompts[default] = prompt
        stated = {"prompt": prompt, "prompt_name": name}
        return self._with_settings(stated, prompts=prompts, default_prompt=default)

    def for_role(self, role: str) -> Self:
        """The same weights with the prompt that the model's folder has for a ``query`` or a ``document``, if any."""
        if role not in ROLES:
            raise InputError(f"role {role!r} is unknown; choose {' or '.join(ROLES)}")
        name = next((name for name in ROLES[role] if name in self.model_format.prompts), None)
        encoder = copy.copy(self) if name is None else self.with_prompt(name=name)
        encoder._advised = True
        return encoder

    def train(self) -> Self:
        """Dropout on, for training."""
        self.backbone.train()
        self.head.train()
        return self

    def eval(self) -> Self:
        """Dropout off, for encoding."""
        self.backbone.eval()
        self.head.eval()
        return self

    def tokenize(self, sentences: Sequence[str], report: EncodeReport | None = None) -> list[list[int]]:
        """Token ids with special tokens, truncated at ``max_length``, not padded. InputError for an endpoint."""
        if self.sent_to:
            raise vectors_only(self.name)
        ids, cut = self._text_tokenizer.ids(sentences)
        if report is not None:
            report.truncated += len(cut)
            report.add_cut(sentences[at] for at in cut)
        return ids

    def embed(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Token ids -> sentence vectors (B, full_dimension) float32, differentiable, without the last Normalize."""
        batch, device = pad(ids, self._text_tokenizer.pad_id), self.device
        mask = None if batch.mask is None else batch.mask.to(device, non_blocking=True)
        attention_mask = None if mask is None else mask.long()
        hidden = self.backbone(batch.ids.to(device, non_blocking=True), attention_mask=attention_mask).last_hidden_state
        return self.pool(hidden, mask)

    def pool(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Hidden states (B, T, H), mask -> sentence vectors (B, full_dimension), without the last Normalize."""
        pooled = self._pool(hidden, mask)
        return self.head(pooled) if len(self.head) else pooled

    def save(self, folder: str | Path) -> None:
        """Write a folder that sentence-transformers opens too. Replaces a model, but no other files."""
        target = Path(folder).expanduser().absolute()
        check_replaceable(target)
        with replace_folder(target) as fresh:
            if isinstance(self.backbone, WordBackbone):
                self.backbone.input_module.write(fresh)
            else:
                with quiet():
                    self.backbone.save_pretrained(fresh)  # type: ignore[operator]
                self.tokenizer.model_max_length = self.max_length
                self.tokenizer.save_pretrained(fresh)
            before: list[Any] = list(self._token_modules)
            kinds = [[type(module).__name__ for module in modules] for modules in (before, self.head)]
            folders = write_model_format(fresh, self.model_format, self._hidden_dimension, *kinds)
            for module, place in zip([*before, *self.head], folders, strict=True):
                module.write(place)

    def push_to_hub(
        self,
        repo_id: str,
        token: str | None = None,
        private: bool = True,
        commit_message: str = "A sentence encoder from SBERT Lab",
    ) -> str:
        """Upload what ``save`` writes, with a model card, to ``repo_id`` (org/name). Returns its address.

        Args:
            repo_id: made if it does not exist.
            token: with the right to write; None = the one of HF_TOKEN or ``hf auth login``.
            private: of a new repository.
            commit_message: of the upload.

        Raises:
            InputError: the name or the token cannot be used, or the Hub cannot be reached.
        """

        def write(folder: Path) -> None:
            self.save(folder)
            card = read_asset("model-card.md").format(name=repo_id.strip(), dimension=self.dimension)
            (folder / "README.md").write_text(card, encoding="utf-8")

        return push_folder(write, repo_id, token, private, commit_message)

    def _to_vectors(self, normalize: bool | None) -> Callable[[Tensor, Tensor | None], np.ndarray]:
        """What turns hidden states (B, T, H) and their mask into sentence vectors (B, D) on the host."""
        dimension, to_unit = self.dimension, self.normalizes if normalize is None else normalize
        # Truncation comes after the model's own Normalize, as in sentence-transformers.
        truncates, is_unit_before = dimension < self.full_dimension, normalize is None and self.normalizes

        def to_vectors(hidden: Tensor, mask: Tensor | None) -> np.ndarray:
            found = self.pool(hidden, mask)
            if truncates:
                found = (F.normalize(found, dim=1) if is_unit_before else found)[:, :dimension]
            if to_unit and not (truncates and is_unit_before):
                found = F.normalize(found, dim=1)
            return to_host(found)

        return to_vectors

    @property
    def _token_modules(self) -> Iterable[nn.Module]:
        """The modules between the first one and the pooling."""
        return self.weights.layers if isinstance(self.weights, WordBackbone) else ()

    @property
    def _hidden_dimension(self) -> int:
        """H, the length of a token vector."""
        return int(self.weights.config.hidden_size)  # type: ignore[union-attr, arg-type]

    def _with_settings(self, stated: dict[str, Any] | None = None, /, **changes: Any) -> Self:
        """A copy with changes of the model format; what is ``stated`` becomes part of its name."""
        encoder = copy.copy(self)
        encoder.name = str(replace(ModelName.parse(self.name), **(stated or {})))
        encoder.model_format = replace(self.model_format, **changes)
        encoder._text_tokenizer = self._text_tokenizer.with_prompt(encoder.prompt)
        encoder._apply_settings()
        return encoder

    def _apply_settings(self) -> None:
        """What follows from ``model_format``: the pooling function, the dimension. InputError if they do not fit."""
        model_format, tokenizer = self.model_format, self._text_tokenizer
        pooling = model_format.pooling or "mean"
        pooled = len(parse_pooling(pooling)) * self._hidden_dimension
        head: Iterable[Any] = self.head
        # The length of a sentence vector before truncation to ``dimension``.
        self.full_dimension = int(reduce(lambda size, module: module.output_dimension(size), head, pooled))
        if model_format.dimension is not None and model_format.dimension > self.full_dimension:
            raise InputError(f"{self.name} keeps {model_format.dimension} dimensions of {self.full_dimension}")
        skipped = 0 if model_format.include_prompt or not self.prompt else tokenizer.prompt_length()
        self._pool = pooling_function(pooling, skipped)
        self.skipped_tokens = skipped
        self._advice = advice(self.name, model_format)


# ---------------------------------------------------------------- prompts

# Prompts: texts that a model was trained to find before a sentence, such as "query: ".
#
# A model's folder may name them (config_sentence_transformers.json). The names ``query`` and ``document`` (or passage,
# corpus) are roles: what one searches with, and what is searched. Some models state their prompts only in the model
# card, README.md; `advice` knows the best known ones.


# The names of a prompt for each role, the first that the folder has; those of sentence-transformers.
ROLES = {"query": ("query",), "document": ("document", "passage", "corpus")}

# Prompts that model cards quote, and the models that are known for them: E5, BGE, nomic-embed, mxbai.
CARD_PROMPTS = (
    ("query: ", "passage: "),
    ("search_query: ", "search_document: "),
    ("Represent this sentence for searching relevant passages:",),
)


def advice(model: str, model_format: ModelFormat) -> str:
    """One sentence if the model's folder says that it needs prompts but not which one it uses by default, else ""."""
    named = [name for name, text in model_format.prompts.items() if text]
    if named:
        return (
            f"{model} was trained with prompts, and none is put before the sentences: its folder names "
            f"{', '.join(named)}; choose one"
        )
    card = model_format.transformer / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    for prompts in CARD_PROMPTS:
        if all(any(f"{quote}{prompt.strip()}" in text for quote in "\"'`“") for prompt in prompts):
            expected = " or ".join(f'"{prompt}"' for prompt in prompts)
            where = "every sentence" if len(prompts) > 1 else "a query"
            return f"{model} expects {expected} before {where}, as its model card says; give it as the prompt"
    return ""
