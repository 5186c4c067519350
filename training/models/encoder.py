"""Encoder: the bi-encoder of Sentence-BERT. Tokenizer, transformer, pooling and what follows: sentences to vectors.

Both sentences of a pair pass through the same weights (a siamese network, section 3 of the paper), so there is
one ``Encoder``, and pairs are compared by the cosine of its vectors.

An encoder is a list of modules, as in sentence-transformers (`training.models.modules`): ``backbone`` is what comes
before the pooling, a transformer or word vectors; ``head`` what comes after it, mostly nothing, in some models a Dense
layer. A last Normalize, a prompt and a smaller number of dimensions are settings (`training.models.model_format`).

The float32 weights in ``backbone`` and ``head`` are the ones that are trained and saved. ``encode`` computes with a
copy of the backbone prepared for inference (`training.inference.runner`), in bfloat16 where the hardware does that
natively.
"""

from __future__ import annotations

import copy
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.atomic import replace_folder
from training.device import pick_device, pick_dtype
from training.errors import InputError
from training.inference.batching import pad
from training.inference.runner import InferenceRunner, build_runner
from training.inference.static import StaticRunner
from training.models.files import check_replaceable
from training.models.loading import (
    DEFAULT_MAX_LENGTH,
    default_pooling,
    max_input_length,
    open_head,
    open_input_module,
    open_tokenizer,
    random_backbone,
)
from training.models.model_format import ModelFormat, read_model_format, write_model_format
from training.models.pooling import check_pooling, parse_pooling, pooling_function
from training.models.prompts import advice, named_prompt, role_prompt
from training.models.reference import parse_reference
from training.models.tokenization import TokenVectors, text_tokenizer, texts
from training.models.word_backbone import WordBackbone
from training.registry import DEFAULT_MODEL
from training.sources.resolve import model_folder

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    from training.models.modules.words import WhitespaceTokenizer

log = logging.getLogger("sbert_lab.encoder")

Progress = Callable[[int, int | None], None]  # (sentences done, sentences in all if known)

CHUNK = 8_192  # sentences that are tokenised and sorted by length together
_building = threading.Lock()  # several threads may ask for the runner first; one copies the weights
SCRATCH = re.compile(r"scratch:(\d{1,2})x(\d{1,4})")


@dataclass
class EncodeReport:
    """Counts of calls of ``encode``; pass an empty one to have it filled."""

    sentences: int = 0
    unique: int = 0  # sentences that were computed: each once within a chunk
    tokens: int = 0  # of the unique sentences, special tokens included, padding not
    truncated: int = 0  # unique sentences cut at max_length
    seconds: float = 0.0


class Encoder:
    """A bi-encoder. ``Encoder.load`` opens one."""

    def __init__(
        self,
        name: str,
        backbone: nn.Module,
        tokenizer: PreTrainedTokenizerFast | Tokenizer | WhitespaceTokenizer,
        model_format: ModelFormat,
        dtype: torch.dtype,
        source: str = "",
        head: nn.Sequential | None = None,
    ) -> None:
        self.name = name
        self.backbone = backbone
        self.head = nn.Sequential() if head is None else head
        self.tokenizer = tokenizer
        self.model_format = model_format
        self.dtype = dtype
        self.source = source
        self._runner: InferenceRunner[Sequence[int]] | None = None
        empty_id = getattr(getattr(backbone, "input_module", None), "empty_id", 0)
        self._text_tokenizer = text_tokenizer(tokenizer, model_format, empty_id)
        self._advised = False
        self._apply_settings()

    @classmethod
    def load(
        cls,
        name: str,
        pooling: str | None = None,
        dtype: str = "auto",
        device: str = "auto",
        home: str | Path | None = None,
        seed: int = 0,
        dimension: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> Encoder:
        """Load by name: a short name, Hub id, local folder, ``run:<id>`` or ``scratch:<layers>x<dim>``.

        Dimension and prompt can be part of the name (`training.models.reference`): ``all-mpnet-base-v2?dim=256``.

        Args:
            name: see above.
            pooling: one of `training.models.pooling.POOLINGS`, or several joined by +, such as mean+max; None takes
                the one that the folder names, else mean (of a decoder the last token).
            dtype: of inference: auto, float32 or bfloat16. ``backbone`` stays float32.
            device: auto, cpu, cuda, cuda:1, mps.
            home: the home folder; None = $SBERT_HOME or the platform's.
            seed: of the random weights of ``scratch:``.
            dimension: keep only the first so many dimensions (Matryoshka); None = as many as the folder says.
            prompt: text put before every sentence; "" for none; None = as the folder says.
            prompt_name: the same by its name in the folder.

        Raises:
            InputError: the model cannot be found or opened, or the pooling, dimension or prompt does not fit it.
        """
        check_pooling(pooling)
        stated = parse_reference(name)
        name = stated.name
        torch_device = pick_device(device)
        torch_dtype = pick_dtype(dtype, torch_device)
        scratch = SCRATCH.fullmatch(name)
        resolved = model_folder(DEFAULT_MODEL if scratch else name, home)  # random weights borrow its tokenizer
        model_format = read_model_format(resolved.path)
        head = nn.Sequential()
        if scratch:
            tokenizer: Any = open_tokenizer(model_format.transformer)
            backbone = random_backbone(int(scratch[1]), int(scratch[2]), len(tokenizer), seed)
            model_format = replace(model_format, pooling="mean", normalizes=False)
        else:
            backbone, tokenizer = open_input_module(model_format)
            head = open_head(model_format)
        model_format = replace(
            model_format,
            pooling=model_format.pooling or default_pooling(backbone),
            max_length=_longest_input(model_format, tokenizer, backbone),
        )
        if isinstance(backbone, WordBackbone):
            torch_dtype = torch.float32
        backbone.to(torch_device).eval()
        source = "random weights" if scratch else resolved.source
        encoder = cls(name, backbone, tokenizer, model_format, torch_dtype, source, head.to(torch_device).eval())
        if prompt is None and prompt_name is None:
            prompt, prompt_name = stated.prompt, stated.prompt_name
        encoder = encoder.with_pooling(pooling).with_dimension(stated.dimension if dimension is None else dimension)
        return encoder.with_prompt(prompt, prompt_name)

    @property
    def pooling(self) -> str:
        """mean, max, cls, …: a name in `training.models.pooling.POOLINGS`, or several joined by +."""
        return self.model_format.pooling or "mean"

    @property
    def normalizes(self) -> bool:
        """Whether the model's own output is scaled to length 1: its last module is a Normalize."""
        return self.model_format.normalizes

    @property
    def max_length(self) -> int:
        """Longest input in tokens, special tokens included; longer sentences are truncated."""
        return self.model_format.max_length or DEFAULT_MAX_LENGTH

    @property
    def full_dimension(self) -> int:
        """The length of a sentence vector before truncation to ``dimension``."""
        return self._full_dimension

    @property
    def vocabulary_size(self) -> int:
        """The number of different tokens."""
        return int(self.backbone.get_input_embeddings().num_embeddings)  # type: ignore[operator]

    @property
    def dimension(self) -> int:
        """D, the length of a sentence vector."""
        return min(self.model_format.dimension or self._full_dimension, self._full_dimension)

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
        return next(self.backbone.parameters()).device

    @property
    def settings(self) -> str:
        """What its vectors depend on beside the weights, as one line."""
        form = self.model_format
        return f"{self.pooling} {self.max_length} {self.dimension} {form.include_prompt} {self.prompt!r}"

    def with_pooling(self, pooling: str | None) -> Encoder:
        """The same weights (shared, not copied) under another pooling. InputError if the modules after it forbid it."""
        check_pooling(pooling)
        if pooling is None or pooling == self.pooling:
            return self
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

    def with_dimension(self, dimension: int | None) -> Encoder:
        """The same weights, keeping only the first ``dimension`` numbers of each vector; None changes nothing."""
        if dimension is None or dimension == self.dimension:
            return self
        if not 1 <= dimension <= self.full_dimension:
            raise InputError(f"{self.name} has {self.full_dimension} dimensions; keep 1 to {self.full_dimension}")
        return self._with_settings({"dimension": dimension}, dimension=dimension)

    def with_prompt(self, prompt: str | None = None, name: str | None = None) -> Encoder:
        """The same weights with a text before every sentence, given itself or by its name in the model's folder.

        ``""`` is no prompt; None and None change nothing. InputError if there is no prompt of that name, or both are
        given.
        """
        if prompt is None and name is None:
            return self
        prompts, default = named_prompt(self.model_format, prompt, name, self.name)
        stated = {"prompt": prompt, "prompt_name": name}
        return self._with_settings(stated, prompts=prompts, default_prompt=default)

    def for_role(self, role: str) -> Encoder:
        """The same weights with the prompt that the model's folder has for a ``query`` or a ``document``, if any."""
        name = role_prompt(self.model_format.prompts, role)
        encoder = copy.copy(self) if name is None else self.with_prompt(name=name)
        encoder._advised = True
        return encoder

    def with_runner(self, runner: InferenceRunner[Sequence[int]]) -> Encoder:
        """The same weights, computed by ``runner`` in ``encode`` and ``token_vectors``."""
        encoder = copy.copy(self)
        encoder._runner = runner
        return encoder

    def train(self) -> Encoder:
        """Dropout on, for training. Discards the copy that ``encode`` uses, as the weights are about to change."""
        self.backbone.train()
        self.head.train()
        self._runner = None
        return self

    def eval(self) -> Encoder:
        """Dropout off, for encoding."""
        self.backbone.eval()
        self.head.eval()
        return self

    def encode(
        self,
        sentences: Sequence[str],
        normalize: bool | None = True,
        on_progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
        report: EncodeReport | None = None,
    ) -> np.ndarray:
        """Sentences -> float32 (N, D), in the caller's order.

        Args:
            sentences: any text, also empty; truncated at ``max_length`` tokens, which is counted and logged.
            normalize: True scales to length 1 (cosine = dot product); False leaves out the last Normalize, if the
                model has one; None does what the model's folder says.
            on_progress: called with (done, all) after each batch.
            should_stop: asked before each batch; if it says yes, ``Stopped`` is raised.
            report: filled with counts.
        """
        vectors = np.empty((len(sentences), self.dimension), dtype=np.float32)
        progress = None if on_progress is None else lambda done, _: on_progress(done, len(sentences))
        start = 0
        for part in self.encode_stream(sentences, CHUNK, normalize, progress, should_stop, report):
            vectors[start : start + len(part)] = part
            start += len(part)
        return vectors

    def encode_stream(
        self,
        sentences: Iterable[str],
        chunk: int = CHUNK,
        normalize: bool | None = True,
        on_progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
        report: EncodeReport | None = None,
    ) -> Iterator[np.ndarray]:
        """Like ``encode`` for any iterable: yields float32 (n, D) for ``chunk`` sentences at a time.

        Memory stays flat however many there are. A sentence that occurs twice in a chunk is encoded once.
        """
        report = EncodeReport() if report is None else report
        if isinstance(sentences, str):
            raise InputError("a list of sentences is needed; put the one string into a list")
        started, remaining, before, done = time.perf_counter(), iter(sentences), report.truncated, 0
        while part := texts(islice(remaining, chunk), done):
            progress = None if on_progress is None else lambda n, before=done: on_progress(before + n, None)
            yield self._encode_chunk(part, normalize, progress, should_stop, report)
            done += len(part)
            report.sentences += len(part)
            report.seconds = time.perf_counter() - started
        if report.truncated > before:
            cut = report.truncated - before
            what = "sentence was" if cut == 1 else "sentences were"
            log.warning("%d %s cut at %d tokens", cut, what, self.max_length)

    def encode_query(self, sentences: Sequence[str], normalize: bool | None = True) -> np.ndarray:
        """Like ``encode``, with the prompt that the model's folder has for queries."""
        return self.for_role("query").encode(sentences, normalize)

    def encode_document(self, sentences: Sequence[str], normalize: bool | None = True) -> np.ndarray:
        """Like ``encode``, with the prompt that the model's folder has for documents."""
        return self.for_role("document").encode(sentences, normalize)

    def tokenize(self, sentences: Sequence[str], report: EncodeReport | None = None) -> list[list[int]]:
        """Token ids with special tokens, truncated at ``max_length``, not padded."""
        ids, truncated = self._text_tokenizer.ids(sentences)
        if report is not None:
            report.truncated += truncated
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

    def token_vectors(self, sentences: Sequence[str]) -> list[TokenVectors]:
        """The output of the transformer for each token of each sentence, before pooling."""
        encodings = self._text_tokenizer.encodings(sentences)
        ids = [encoding.ids or [self._text_tokenizer.pad_id] for encoding in encodings]
        hidden: list[np.ndarray] = [np.empty(0)] * len(ids)
        if self._is_static:
            table = self.backbone.get_input_embeddings().weight.detach()  # type: ignore[operator]
            hidden = [table[encoding.ids].cpu().numpy() for encoding in encodings]
        else:
            for rows, states in self.inference.map(ids, lambda states, _: states.float().cpu()):
                for i, state in zip(rows, states, strict=True):
                    hidden[i] = state[: len(encodings[i].ids)].numpy()
        return [
            TokenVectors(encoding.tokens, encoding.word_ids, encoding.offsets, states, self.prompt, self.skipped_tokens)
            for encoding, states in zip(encodings, hidden, strict=True)
        ]

    def save(self, folder: str | Path) -> None:
        """Write a folder that sentence-transformers opens too. Replaces a model, but no other files."""
        target = Path(folder).expanduser().absolute()
        check_replaceable(target)
        with replace_folder(target) as fresh:
            if isinstance(self.backbone, WordBackbone):
                self.backbone.input_module.write(fresh)
            else:
                self.backbone.save_pretrained(fresh)  # type: ignore[operator]
                self.tokenizer.model_max_length = self.max_length  # type: ignore[union-attr]
                self.tokenizer.save_pretrained(fresh)  # type: ignore[union-attr]
            before: list[Any] = list(self._token_modules)
            kinds = [[type(module).__name__ for module in modules] for modules in (before, self.head)]
            folders = write_model_format(fresh, self.model_format, self._hidden_dimension, *kinds)
            for module, place in zip([*before, *self.head], folders, strict=True):
                module.write(place)

    @property
    def inference(self) -> InferenceRunner[Sequence[int]]:
        """The copy of the weights that ``encode`` computes with, made when first needed and after each training."""
        if self.backbone.training:
            raise RuntimeError("the encoder is in training mode; call eval() before it encodes")
        with _building:
            if self._runner is None:
                if self._is_static:
                    self._runner = StaticRunner(self.backbone.get_input_embeddings())  # type: ignore[operator]
                else:
                    self._runner = build_runner(self.backbone, self.dtype, self._text_tokenizer.pad_id)
            return self._runner

    @property
    def _token_modules(self) -> Iterable[nn.Module]:
        """The modules between the first one and the pooling."""
        return self.backbone.layers if isinstance(self.backbone, WordBackbone) else ()

    @property
    def _is_static(self) -> bool:
        """Whether a sentence vector is the mean of rows of a table."""
        return isinstance(self.backbone, WordBackbone) and self.backbone.is_static and self.pooling == "mean"

    @property
    def _hidden_dimension(self) -> int:
        """H, the length of a token vector."""
        return int(self.backbone.config.hidden_size)  # type: ignore[union-attr, arg-type]

    def _with_settings(self, stated: dict[str, Any] | None = None, /, **changes: Any) -> Encoder:
        """A copy with changes of the model format; what is ``stated`` becomes part of its name."""
        encoder = copy.copy(self)
        encoder.name = str(parse_reference(self.name)._replace(**(stated or {})))
        if "pooling" in changes and self._is_static:  # its runner can do nothing else
            encoder._runner = None
        encoder.model_format = replace(self.model_format, **changes)
        encoder._text_tokenizer = self._text_tokenizer.with_prompt(encoder.prompt)
        encoder._apply_settings()
        return encoder

    def _apply_settings(self) -> None:
        """What follows from ``model_format``: the pooling function, the dimension. InputError if they do not fit."""
        model_format, tokenizer = self.model_format, self._text_tokenizer
        pooled = len(parse_pooling(self.pooling)) * self._hidden_dimension
        head: Iterable[Any] = self.head
        self._full_dimension = int(reduce(lambda size, module: module.output_dimension(size), head, pooled))
        if model_format.dimension is not None and model_format.dimension > self._full_dimension:
            raise InputError(f"{self.name} keeps {model_format.dimension} dimensions of {self._full_dimension}")
        skipped = 0 if model_format.include_prompt or not self.prompt else tokenizer.prompt_length()
        self._pool = pooling_function(self.pooling, skipped)
        self.skipped_tokens = skipped
        self._advice = advice(self.name, model_format)

    def _encode_chunk(
        self,
        sentences: list[str],
        normalize: bool | None,
        on_progress: Callable[[int], None] | None,
        should_stop: Callable[[], bool] | None,
        report: EncodeReport,
    ) -> np.ndarray:
        positions: dict[str, int] = {}
        inverse = [positions.setdefault(sentence, len(positions)) for sentence in sentences]
        ids = self.tokenize(list(positions), report)
        if not self._advised and self.prompt_advice:
            self._advised = True
            log.warning(self.prompt_advice)
        dimension, to_unit = self.dimension, self.normalizes if normalize is None else normalize
        # Truncation comes after the model's own Normalize, as in sentence-transformers.
        truncates, is_unit_before = dimension < self.full_dimension, normalize is None and self.normalizes
        vectors = np.empty((len(ids), dimension), dtype=np.float32)
        done = 0

        def to_vectors(hidden: Tensor, mask: Tensor | None) -> np.ndarray:
            found = self.pool(hidden, mask)
            if truncates:
                found = (F.normalize(found, dim=1) if is_unit_before else found)[:, :dimension]
            if to_unit and not (truncates and is_unit_before):
                found = F.normalize(found, dim=1)
            return found.cpu().numpy()

        for rows, batch in self.inference.map(ids, to_vectors, should_stop):
            vectors[rows] = batch
            done += len(rows)
            if on_progress is not None:
                on_progress(round(len(sentences) * done / len(ids)))
        report.unique += len(ids)
        report.tokens += sum(map(len, ids))
        return vectors[inverse] if len(ids) < len(sentences) else vectors


def _longest_input(model_format: ModelFormat, tokenizer: Any, backbone: nn.Module) -> int | None:
    """The most tokens of an input; None of a static embedding, which truncates nothing."""
    if isinstance(backbone, WordBackbone):
        return getattr(backbone.input_module, "max_length", None)
    longest = max_input_length(tokenizer, backbone)
    return min(model_format.max_length or longest, longest)
