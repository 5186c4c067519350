"""Encoder: the bi-encoder of Sentence-BERT. Tokenizer, transformer and pooling: from sentences to vectors.

Both sentences of a pair pass through the same weights (a siamese network, section 3 of the paper), so there is
one ``Encoder``, and pairs are compared by the cosine of its vectors.

The float32 weights in ``backbone`` are the ones that are trained and saved. ``encode`` computes with a copy of them
prepared for inference (`training.inference.runner`), in bfloat16 where the hardware does that natively.
"""

from __future__ import annotations

import copy
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.atomic import replace_folder
from training.device import pick_device, pick_dtype
from training.errors import InputError
from training.inference.batching import pad
from training.inference.runner import InferenceRunner, build_runner
from training.models.loading import (
    DEFAULT_MAX_LENGTH,
    max_input_length,
    open_backbone,
    open_tokenizer,
    random_backbone,
)
from training.models.model_format import ModelFormat, check_replaceable, read_model_format, write_model_format
from training.models.pooling import POOLINGS, check_pooling
from training.models.tokenization import TextTokenizer, TokenVectors, texts
from training.registry import DEFAULT_MODEL
from training.sources.resolve import model_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

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
        tokenizer: PreTrainedTokenizerFast,
        model_format: ModelFormat,
        dtype: torch.dtype,
        source: str = "",
    ) -> None:
        self.name = name
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.model_format = model_format
        self.dtype = dtype
        self.source = source
        self._runner: InferenceRunner[Sequence[int]] | None = None
        self._text_tokenizer = TextTokenizer(tokenizer, model_format)

    @classmethod
    def load(
        cls,
        name: str,
        pooling: str | None = None,
        dtype: str = "auto",
        device: str = "auto",
        home: str | Path | None = None,
        seed: int = 0,
    ) -> Encoder:
        """Load by name: a short name, Hub id, local folder, ``run:<id>`` or ``scratch:<layers>x<dim>``.

        Args:
            name: see above.
            pooling: mean, max or cls; None takes the one that the folder names, else mean.
            dtype: of inference: auto, float32 or bfloat16. ``backbone`` stays float32.
            device: auto, cpu, cuda, cuda:1, mps.
            home: the home folder; None = $SBERT_HOME or the platform's.
            seed: of the random weights of ``scratch:``.

        Raises:
            InputError: the model cannot be found or opened, or the pooling is unknown.
        """
        check_pooling(pooling)
        torch_device = pick_device(device)
        torch_dtype = pick_dtype(dtype, torch_device)
        scratch = SCRATCH.fullmatch(name)
        resolved = model_folder(DEFAULT_MODEL if scratch else name, home)  # random weights borrow its tokenizer
        model_format = read_model_format(resolved.path)
        tokenizer = open_tokenizer(model_format.transformer)
        if scratch:
            backbone = random_backbone(int(scratch[1]), int(scratch[2]), len(tokenizer), seed)
            model_format = replace(model_format, pooling="mean", normalizes=False)
        else:
            backbone = open_backbone(model_format.transformer)
        longest = max_input_length(tokenizer, backbone)
        model_format = replace(
            model_format,
            pooling=pooling or model_format.pooling or "mean",
            max_length=min(model_format.max_length or longest, longest),
        )
        backbone.to(torch_device).eval()
        source = "random weights" if scratch else resolved.source
        return cls(name, backbone, tokenizer, model_format, torch_dtype, source)

    @property
    def pooling(self) -> str:
        """mean, max or cls."""
        return self.model_format.pooling or "mean"

    @property
    def normalizes(self) -> bool:
        """Whether the model's own output is scaled to length 1: its folder has a Normalize module."""
        return self.model_format.normalizes

    @property
    def max_length(self) -> int:
        """Longest input in tokens, special tokens included; longer sentences are truncated."""
        return self.model_format.max_length or DEFAULT_MAX_LENGTH

    @property
    def dimension(self) -> int:
        """D, the length of a sentence vector."""
        return int(self.backbone.config.hidden_size)  # type: ignore[union-attr, arg-type]

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.backbone.parameters()).device

    def with_pooling(self, pooling: str | None) -> Encoder:
        """The same weights (shared, not copied) under another pooling."""
        check_pooling(pooling)
        if pooling is None or pooling == self.pooling:
            return self
        encoder = self.with_runner(self.inference)
        encoder.model_format = replace(self.model_format, pooling=pooling)
        return encoder

    def with_runner(self, runner: InferenceRunner[Sequence[int]]) -> Encoder:
        """The same weights, computed by ``runner`` in ``encode`` and ``token_vectors``."""
        encoder = copy.copy(self)
        encoder._runner = runner
        return encoder

    def train(self) -> Encoder:
        """Dropout on, for training. Discards the copy that ``encode`` uses, as the weights are about to change."""
        self.backbone.train()
        self._runner = None
        return self

    def eval(self) -> Encoder:
        """Dropout off, for encoding."""
        self.backbone.eval()
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
            normalize: True scales to length 1 (cosine = dot product); False returns the pooled vectors; None does
                what the model's folder says.
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
            log.warning("%d sentences were cut at %d tokens", report.truncated - before, self.max_length)

    def tokenize(self, sentences: Sequence[str], report: EncodeReport | None = None) -> list[list[int]]:
        """Token ids with special tokens, truncated at ``max_length``, not padded."""
        ids, truncated = self._text_tokenizer.ids(sentences)
        if report is not None:
            report.truncated += truncated
        return ids

    def embed(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Token ids -> pooled vectors (B, D) float32, differentiable, not normalised."""
        batch, device = pad(ids, self._text_tokenizer.pad_id), self.device
        mask = None if batch.mask is None else batch.mask.to(device, non_blocking=True)
        attention_mask = None if mask is None else mask.long()
        hidden = self.backbone(batch.ids.to(device, non_blocking=True), attention_mask=attention_mask).last_hidden_state
        return POOLINGS[self.pooling](hidden, mask)

    def token_vectors(self, sentences: Sequence[str]) -> list[TokenVectors]:
        """The output of the transformer for each token of each sentence, before pooling."""
        encodings = self._text_tokenizer.encodings(sentences)
        ids = [encoding.ids or [self._text_tokenizer.pad_id] for encoding in encodings]
        hidden: list[np.ndarray] = [np.empty(0)] * len(ids)
        for rows, states in self.inference.map(ids, lambda states, _: states.float().cpu()):
            for i, state in zip(rows, states, strict=True):
                hidden[i] = state[: len(encodings[i].ids)].numpy()
        return [
            TokenVectors(encoding.tokens, encoding.word_ids, encoding.offsets, states)
            for encoding, states in zip(encodings, hidden, strict=True)
        ]

    def save(self, folder: str | Path) -> None:
        """Write a folder that sentence-transformers opens too. Replaces a model, but no other files."""
        target = Path(folder).expanduser().absolute()
        check_replaceable(target)
        with replace_folder(target) as fresh:
            self.backbone.save_pretrained(fresh)  # type: ignore[operator]
            self.tokenizer.model_max_length = self.max_length
            self.tokenizer.save_pretrained(fresh)
            write_model_format(fresh, self.model_format, self.dimension)

    @property
    def inference(self) -> InferenceRunner[Sequence[int]]:
        """The copy of the weights that ``encode`` computes with, made when first needed and after each training."""
        if self.backbone.training:
            raise RuntimeError("the encoder is in training mode; call eval() before it encodes")
        with _building:
            if self._runner is None:
                self._runner = build_runner(self.backbone, self.dtype, self._text_tokenizer.pad_id)
            return self._runner

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
        pool, to_unit = POOLINGS[self.pooling], self.normalizes if normalize is None else normalize
        vectors = np.empty((len(ids), self.dimension), dtype=np.float32)
        done = 0

        def reduce(hidden: Tensor, mask: Tensor | None) -> np.ndarray:
            pooled = pool(hidden, mask)
            return (F.normalize(pooled, dim=1) if to_unit else pooled).cpu().numpy()

        for rows, batch in self.inference.map(ids, reduce, should_stop):
            vectors[rows] = batch
            done += len(rows)
            if on_progress is not None:
                on_progress(round(len(sentences) * done / len(ids)))
        report.unique += len(ids)
        report.tokens += sum(map(len, ids))
        return vectors[inverse] if len(ids) < len(sentences) else vectors
