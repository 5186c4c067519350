"""Encoder: the bi-encoder of Sentence-BERT. Tokenizer + transformer + pooling: sentences in, vectors out.

Both sentences of a pair pass through the same weights (a siamese network, section 3 of the paper), so there is
one ``Encoder`` and pairs are compared by the cosine of its vectors.

The weights in ``backbone`` are float32 and are the truth: they are trained and saved. ``encode`` computes with
a copy of them prepared for inference (see inference.py), in bfloat16 where the hardware does that natively.
"""

from __future__ import annotations

import copy
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.batching import Batch, pad, plan
from training.checkpoint import Layout, read_layout, replacing, write_layout
from training.device import pick_device, pick_dtype
from training.errors import InputError, Stopped
from training.inference import HiddenStates, inference_copy
from training.pooling import POOLINGS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

log = logging.getLogger("sbert_lab.encoder")

Progress = Callable[[int, int | None], None]  # (sentences done, sentences in all if known)

TOKEN_BUDGET = {"cpu": 1_000, "mps": 8_192, "cuda": 32_768}  # tokens a batch
CHUNK = 8_192  # sentences that are tokenised and sorted together
SCRATCH = re.compile(r"scratch:(\d{1,2})x(\d{1,4})")
_POSITION_OFFSET = {"roberta", "xlm-roberta", "camembert", "mpnet"}  # positions start after the padding index


class TokenVectors(NamedTuple):
    """One sentence after the transformer, before pooling."""

    tokens: list[str]  # T sub-words, special tokens included
    words: list[int | None]  # T, the word that each belongs to; None for special tokens
    offsets: list[tuple[int, int]]  # T, where each stands in the text
    hidden: np.ndarray  # (T, D) float32


@dataclass
class EncodeReport:
    """What happened in a call of ``encode``; pass an empty one to have it filled."""

    sentences: int = 0
    unique: int = 0  # encoded once within a chunk
    tokens: int = 0
    truncated: int = 0  # unique sentences cut at max_length
    seconds: float = 0.0


class Encoder:
    """A bi-encoder. Make one with ``Encoder.load``."""

    def __init__(
        self,
        name: str,
        backbone: nn.Module,
        tokenizer: PreTrainedTokenizerFast,
        layout: Layout,
        dtype: torch.dtype,
        origin: str = "",
    ) -> None:
        self.name = name
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.layout = layout
        self.dtype = dtype
        self.origin = origin
        self._inference: HiddenStates | None = None
        self._rust = copy.deepcopy(tokenizer.backend_tokenizer)
        self._rust.no_padding()
        self._rust.enable_truncation(self.max_length)

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
            name: see DESIGN, "Model names".
            pooling: mean, max or cls; None takes the folder's own, or mean where it has none.
            dtype: of inference: auto, float32 or bfloat16. The weights stay float32.
            device: auto, cpu, cuda, cuda:1, mps.
            home: the home folder; None = $SBERT_HOME or the platform's.
            seed: of the random weights of ``scratch:``.

        Raises:
            InputError: the model cannot be found or opened, or the pooling is unknown.
        """
        from training.sources import model_folder

        if pooling is not None and pooling not in POOLINGS:
            raise InputError(f"pooling {pooling!r} is unknown; choose {', '.join(POOLINGS)}")
        place = pick_device(device)
        scratch = SCRATCH.fullmatch(name)
        located = model_folder("all-MiniLM-L6-v2" if scratch else name, home)
        layout = read_layout(located.path)
        tokenizer = _load_tokenizer(layout.transformer)
        if scratch:
            backbone = _random_backbone(int(scratch[1]), int(scratch[2]), len(tokenizer), seed)
            layout = replace(layout, pooling="mean", normalizes=False)
        else:
            backbone = _load_backbone(layout.transformer)
        longest = _longest_input(tokenizer, backbone)
        layout = replace(
            layout,
            pooling=pooling or layout.pooling or "mean",
            max_length=min(layout.max_length or longest, longest),
        )
        backbone.to(place).eval()
        origin = "random weights" if scratch else located.origin
        return cls(name, backbone, tokenizer, layout, pick_dtype(dtype, place), origin)

    @property
    def pooling(self) -> str:
        """mean, max or cls."""
        return self.layout.pooling or "mean"

    @property
    def normalizes(self) -> bool:
        """Whether the model's own output has length 1 (its folder has a Normalize module)."""
        return self.layout.normalizes

    @property
    def max_length(self) -> int:
        """Longest input in tokens, special tokens included; what is longer is cut."""
        return self.layout.max_length or 512

    @property
    def dimension(self) -> int:
        """D, the length of a sentence vector."""
        return int(self.backbone.config.hidden_size)  # type: ignore[union-attr, arg-type]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.backbone.parameters()).device

    def with_pooling(self, pooling: str | None) -> Encoder:
        """The same weights (shared, not copied) under another pooling."""
        if pooling is None or pooling == self.pooling:
            return self
        if pooling not in POOLINGS:
            raise InputError(f"pooling {pooling!r} is unknown; choose {', '.join(POOLINGS)}")
        twin = copy.copy(self)
        twin.layout = replace(self.layout, pooling=pooling)
        twin._inference = self._infer
        return twin

    def train(self) -> Encoder:
        """Dropout on, for training. The copy that encode uses is dropped: the weights are about to change."""
        self.backbone.train()
        self._inference = None
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
            sentences: any text, also empty; what is longer than ``max_length`` tokens is cut and reported.
            normalize: True scales to length 1 (cosine = dot product); False gives the pooled vectors; None does
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
        started, source, before = time.perf_counter(), iter(sentences), report.truncated
        while part := list(islice(source, chunk)):
            yield self._encode_chunk(part, normalize, on_progress, should_stop, report)
            report.sentences += len(part)
            report.seconds = time.perf_counter() - started
        if report.truncated > before:
            log.warning("%d sentences were cut at %d tokens", report.truncated - before, self.max_length)

    def tokenize(self, sentences: Sequence[str], report: EncodeReport | None = None) -> list[list[int]]:
        """Token ids with special tokens, cut at ``max_length``, not padded."""
        encodings = self._rust.encode_batch_fast(self._prepare(sentences))
        if report is not None:
            report.truncated += sum(1 for encoding in encodings if encoding.overflowing)
        return [encoding.ids for encoding in encodings]

    def embed(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Token ids -> pooled vectors (B, D) float32, differentiable, not normalised. What training uses."""
        batch = self._to_device(pad(ids, self._pad_id))
        mask = None if batch.mask is None else batch.mask.long()
        hidden = self.backbone(input_ids=batch.ids, attention_mask=mask).last_hidden_state
        return POOLINGS[self.pooling](hidden, batch.mask)

    @torch.inference_mode()
    def token_vectors(self, sentences: Sequence[str]) -> list[TokenVectors]:
        """The transformer's output for each token, before pooling, in one batch of its own per length."""
        encodings = self._rust.encode_batch(self._prepare(sentences))
        ids = [encoding.ids for encoding in encodings]
        hidden: list[np.ndarray] = [np.empty(0)] * len(ids)
        for rows in plan([len(row) for row in ids], TOKEN_BUDGET[self.device.type]):
            states = self._infer(self._to_device(pad([ids[i] for i in rows], self._pad_id))).float().cpu()
            for i, state in zip(rows, states, strict=True):
                hidden[i] = state[: len(ids[i])].numpy()
        return [
            TokenVectors(encoding.tokens, encoding.word_ids, encoding.offsets, states)
            for encoding, states in zip(encodings, hidden, strict=True)
        ]

    def save(self, folder: str | Path) -> None:
        """Write a folder that sentence-transformers, and ``load``, open. Replaces what is there, at once."""
        with replacing(Path(folder)) as fresh:
            self.backbone.save_pretrained(fresh)  # type: ignore[operator]
            self.tokenizer.model_max_length = self.max_length
            self.tokenizer.save_pretrained(fresh)
            write_layout(fresh, self.layout, self.dimension)

    @property
    def _infer(self) -> HiddenStates:
        if self._inference is None:
            self._inference = inference_copy(self.backbone, self.dtype)
        return self._inference

    @property
    def _pad_id(self) -> int:
        return int(self.tokenizer.pad_token_id or 0)

    def _prepare(self, sentences: Sequence[str]) -> list[str]:
        for row, sentence in enumerate(sentences):
            if not isinstance(sentence, str):
                raise InputError(f"sentence {row + 1} is {type(sentence).__name__}, not text")
        texts = [self.layout.prompt + s for s in sentences] if self.layout.prompt else list(sentences)
        if self.layout.lowercase:
            texts = [text.lower() for text in texts]
        # A lone surrogate (half of a character, from broken UTF-16) cannot be encoded; it becomes "?".
        return [t if t.isascii() else t.encode("utf-8", "replace").decode("utf-8") for t in texts]

    def _to_device(self, batch: Batch) -> Batch:
        mask = None if batch.mask is None else batch.mask.to(self.device, non_blocking=True)
        return Batch(batch.ids.to(self.device, non_blocking=True), mask)

    @torch.inference_mode()
    def _encode_chunk(
        self,
        sentences: list[str],
        normalize: bool | None,
        on_progress: Progress | None,
        should_stop: Callable[[], bool] | None,
        report: EncodeReport,
    ) -> np.ndarray:
        positions: dict[str, int] = {}
        inverse = [positions.setdefault(sentence, len(positions)) for sentence in sentences]
        ids = self.tokenize(list(positions), report)
        pool, unit = POOLINGS[self.pooling], self.normalizes if normalize is None else normalize
        vectors = torch.empty((len(ids), self.dimension), dtype=torch.float32)
        done = 0
        for rows in plan([len(row) for row in ids], TOKEN_BUDGET[self.device.type]):
            if should_stop is not None and should_stop():
                raise Stopped
            batch = self._to_device(pad([ids[i] for i in rows], self._pad_id))
            pooled = pool(self._infer(batch), batch.mask)
            vectors[torch.from_numpy(rows)] = (F.normalize(pooled, dim=1) if unit else pooled).cpu()
            done += len(rows)
            report.tokens += batch.ids.numel()
            if on_progress is not None:
                on_progress(report.sentences + round(len(sentences) * done / len(ids)), None)
        report.unique += len(ids)
        return vectors.numpy()[inverse] if len(ids) < len(sentences) else vectors.numpy()


def _load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, use_fast=True, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder} has no tokenizer that can be opened: {_first_line(error)}") from error


def _load_backbone(folder: Path) -> nn.Module:
    from transformers import AutoModel

    try:
        return AutoModel.from_pretrained(
            folder,
            dtype=torch.float32,  # attention: PyTorch's fused one wherever the architecture has it (MPNet has not)
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(f"{folder} cannot be opened as a transformer: {_first_line(error)}") from error


def _random_backbone(layers: int, dimension: int, vocabulary: int, seed: int) -> nn.Module:
    """A BERT of the given shape with random weights; heads of 32 or 64 dimensions, as in MiniLM and BERT."""
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


def _longest_input(tokenizer: PreTrainedTokenizerFast, backbone: nn.Module) -> int:
    config = backbone.config
    positions = getattr(config, "max_position_embeddings", None) or 512
    if config.model_type in _POSITION_OFFSET:  # type: ignore[union-attr]
        positions -= config.pad_token_id + 1  # type: ignore[union-attr, operator]
    return min(int(positions), int(min(tokenizer.model_max_length, 1_000_000)))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
