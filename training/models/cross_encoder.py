"""CrossEncoder: two sentences in one pass through the transformer, one score out (section 1 of the paper).

More accurate than a bi-encoder, because each word of one sentence sees each word of the other, and far slower
for many sentences, because each pair is a pass of its own: 10,000 sentences make 49,995,000 pairs.

Three kinds of names:
- ``minilm-stsb``, the default, ships as an adapter (a few MB) over the default encoder's weights;
- ``mpnet-stsb``, the strong one, likewise over all-mpnet-base-v2, which is fetched on demand;
- any Hub id or folder of a sequence-classification model with one output, such as
  ``cross-encoder/stsb-roberta-base``; its scores are those of sentence-transformers' CrossEncoder.

An adapter's folder holds LoRA factors as peft writes them, head.safetensors (see twin_scorer.py) and card.json:
what it was trained on and how well it does, to be shown beside its score.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from training.assets import asset
from training.atomic import replace_folder
from training.device import pick_device, pick_dtype
from training.errors import InputError
from training.inference.runner import InferenceRunner
from training.models.encoder import Encoder
from training.models.joint_pair_model import JointPairModel, merge_lora
from training.models.loading import importing
from training.models.model_format import check_replaceable, read_json
from training.models.pair_runner import prepare_pairs
from training.models.pair_tokenization import Pair, PairRow, PairTokenizer
from training.models.sequence_classifier import SequenceClassifier
from training.registry import CROSS_ENCODERS

log = logging.getLogger("sbert_lab.cross_encoder")

Progress = Callable[[int, int], None]  # (pairs done, pairs in all)

ADAPTERS_FOLDER = asset("cross-encoder")
CHUNK = 8_192  # pairs that are tokenised and sorted together
MODEL_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
POSITIONS_AFTER_PADDING = {"roberta", "xlm-roberta", "camembert", "mpnet"}

# What sentence-transformers writes in a model's config -> what turns its logit into a score.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "torch.nn.modules.activation.Sigmoid": torch.sigmoid,
    "torch.nn.modules.linear.Identity": lambda logits: logits,
}


@dataclass
class PredictReport:
    """What happened in a call of ``predict``; pass an empty one to have it filled."""

    pairs: int = 0
    unique: int = 0  # scored once within a chunk
    tokens: int = 0
    truncated: int = 0  # unique pairs that lost the end of a sentence
    seconds: float = 0.0


@dataclass(frozen=True)
class CrossEncoder:
    """A cross-encoder. Make one with ``CrossEncoder.load``."""

    name: str
    scorer: SequenceClassifier | JointPairModel = field(repr=False)
    inference: InferenceRunner[PairRow] = field(repr=False)  # the scorer, as it computes
    tokenizer: PairTokenizer = field(repr=False)
    activation: Callable[[Tensor], Tensor] = field(repr=False)
    folder: Path
    source: str
    card: dict[str, Any] | None = None  # data, settings, Spearman ×100 on STSb dev and test; None if not known

    @classmethod
    def load(cls, name: str, dtype: str = "auto", device: str = "auto", home: str | Path | None = None) -> CrossEncoder:
        """Load by name: ``minilm-stsb``, ``mpnet-stsb``, a Hub id, or a folder of either kind.

        Args:
            name: see above.
            dtype: auto, float32 or bfloat16; auto is bfloat16 where the hardware does that natively.
            device: auto, cpu, cuda, cuda:1, mps.
            home: the home folder; None = $SBERT_HOME or the platform's.

        Raises:
            InputError: it cannot be found, has no safetensors weights, or does not give one score.
        """
        from training.sources.resolve import model_folder

        place = pick_device(device)
        folder = ADAPTERS_FOLDER / name if name in CROSS_ENCODERS else Path(name).expanduser()
        if (folder / "adapter_config.json").exists():
            found = _open_adapter(folder, home)
        else:
            located = model_folder(name, home)
            found = _open_plain(name, located.path, located.source)
        precision = pick_dtype(dtype, place)
        found.scorer.requires_grad_(False).eval().to(place)
        found.scorer.transformer.to(precision)
        inference = prepare_pairs(found.scorer, precision, found.tokenizer.pad_id)
        return cls(name, inference=inference, **found._asdict())

    @property
    def max_length(self) -> int:
        """Longest input in tokens: of one sentence for an adapter, of both together for other models."""
        return self.tokenizer.max_length

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.scorer.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Of the transformer's weights."""
        return self.scorer.transformer.dtype

    def predict(
        self,
        pairs: Sequence[Pair],
        on_progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
        report: PredictReport | None = None,
    ) -> np.ndarray:
        """Pairs of sentences -> float32 (N,), in the caller's order.

        From 0 (nothing in common) to 1 (the same meaning); only a model whose own configuration says that it
        ends without a sigmoid gives its bare logits, as in sentence-transformers.

        Args:
            pairs: any two texts each, also empty; what is longer than ``max_length`` is cut and reported.
            on_progress: called with (done, all) after each batch.
            should_stop: asked before each batch; if it says yes, ``Stopped`` is raised.
            report: filled with counts.
        """
        report = PredictReport() if report is None else report
        started, before = time.perf_counter(), report.truncated
        scores = np.empty(len(pairs), dtype=np.float32)
        for start in range(0, len(pairs), CHUNK):
            part = [_checked(pair, start + i) for i, pair in enumerate(pairs[start : start + CHUNK])]
            progress = _shifted(on_progress, start, len(part), len(pairs))
            scores[start : start + len(part)] = self._predict_chunk(part, progress, should_stop, report)
        report.pairs += len(pairs)
        report.seconds += time.perf_counter() - started
        if report.truncated > before:
            log.warning("%d pairs were cut at %d tokens", report.truncated - before, self.max_length)
        return scores

    def save(self, folder: str | Path) -> None:
        """Write a folder that ``load`` opens, and sentence-transformers too unless this is an adapter.

        Replaces a model, refuses to replace anything else.
        """
        target = Path(folder).expanduser().absolute()
        check_replaceable(target)
        with replace_folder(target) as fresh:
            for file in (file for pattern in MODEL_FILES for file in self.folder.glob(pattern)):
                shutil.copyfile(file, fresh / file.name)

    def _predict_chunk(
        self,
        pairs: list[Pair],
        on_progress: Callable[[float], None],
        should_stop: Callable[[], bool] | None,
        report: PredictReport,
    ) -> np.ndarray:
        positions: dict[Pair, int] = {}
        inverse = [positions.setdefault(pair, len(positions)) for pair in pairs]
        rows = self.tokenizer(list(positions))
        scores, done = np.empty(len(rows), dtype=np.float32), 0

        def finish(logits: Tensor, _: Tensor | None) -> np.ndarray:
            return self.activation(logits).cpu().numpy()

        for group, batch in self.inference.map(rows, finish, should_stop):
            scores[group] = batch
            done += len(group)
            on_progress(done / len(rows))
        report.unique += len(rows)
        report.tokens += sum(map(len, rows))
        report.truncated += sum(row.cut for row in rows)
        return scores[inverse]


class Opened(NamedTuple):
    """What a folder holds: the fields of a ``CrossEncoder`` that do not depend on where it runs."""

    scorer: SequenceClassifier | JointPairModel
    tokenizer: PairTokenizer
    activation: Callable[[Tensor], Tensor]
    folder: Path
    source: str
    card: dict[str, Any] | None = None


def _open_adapter(folder: Path, home: str | Path | None) -> Opened:
    from safetensors.torch import load_file

    config = read_json(folder / "adapter_config.json")
    base = Encoder.load(config["base_model_name_or_path"], dtype="float32", device="cpu", home=home)
    merge_lora(base.backbone, load_file(folder / "adapter_model.safetensors"), config["lora_alpha"] / config["r"])
    scorer = JointPairModel(base.backbone)
    scorer.load_own(load_file(folder / "head.safetensors"))
    tokenizer = PairTokenizer(base.tokenizer, base.max_length, apart=True)
    source = f"adapter over {base.name} ({base.source})"
    return Opened(scorer, tokenizer, torch.sigmoid, folder, source, read_json(folder / "card.json"))


def _open_plain(name: str, folder: Path, source: str) -> Opened:
    with importing:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, **local)
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, **local
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(f"{name} cannot be opened as a cross-encoder: {str(error).splitlines()[0]}") from error
    if model.config.num_labels != 1:
        raise InputError(
            f"{name} gives {model.config.num_labels} numbers for a pair; a cross-encoder for similarity gives one"
        )
    reader = PairTokenizer(tokenizer, _longest_pair(tokenizer, model.config), apart=False)
    scorer = SequenceClassifier(model, "token_type_ids" in tokenizer.model_input_names)
    return Opened(scorer, reader, _activation_of(name, model.config), folder, source)


def _activation_of(name: str, config: Any) -> Callable[[Tensor], Tensor]:
    """As sentence-transformers decides: what the configuration states (since version 4, or before), else sigmoid."""
    stated = (getattr(config, "sentence_transformers", None) or {}).get("activation_fn")
    stated = stated or getattr(config, "sbert_ce_default_activation_function", None)
    if stated is None:
        return torch.sigmoid
    if stated not in ACTIVATIONS:
        raise InputError(f"{name} ends in {stated}, which is not supported; choose a model that ends in a sigmoid")
    return ACTIVATIONS[stated]


def _longest_pair(tokenizer: Any, config: Any) -> int:
    """Tokens that fit: what the tokenizer says, but never more than the model has positions for."""
    positions = getattr(config, "max_position_embeddings", None) or 512
    if config.model_type in POSITIONS_AFTER_PADDING:
        positions -= config.pad_token_id + 1
    return min(int(positions), int(min(tokenizer.model_max_length, 1_000_000)))


def _checked(pair: Any, row: int) -> Pair:
    if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
        raise InputError(f"pair {row + 1} is not two texts: give pairs such as (sentence1, sentence2)")
    return pair[0], pair[1]


def _shifted(on_progress: Progress | None, start: int, size: int, total: int) -> Callable[[float], None]:
    """From the share done of a chunk to (pairs done, pairs in all)."""
    if on_progress is None:
        return lambda share: None
    return lambda share: on_progress(start + round(share * size), total)
