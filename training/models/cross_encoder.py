"""CrossEncoder: two sentences pass through the transformer together and get one score (section 1 of the paper).

More accurate than a bi-encoder, because the words of each sentence attend to those of the other, and far slower for
many sentences, because each pair is a pass of its own: 10,000 sentences make 49,995,000 pairs.

Three kinds of names:
- ``minilm-stsb``, the default, ships as an adapter (a few MB) of the default encoder's weights;
- ``mpnet-stsb``, more accurate, is an adapter of all-mpnet-base-v2, which is fetched on demand;
- any Hub id or folder of a sequence-classification model with one output, such as
  ``cross-encoder/stsb-roberta-base``, or of a language model that answers yes or no, such as Qwen3-Reranker; its scores
  are those of sentence-transformers' CrossEncoder;
- a run that trained a cross-encoder, of either kind.

An adapter's folder holds LoRA factors as peft writes them, head.safetensors (see `joint_pair_model`) and card.json:
what it was trained on and its figures, to be shown beside its score. That of a run has the whole transformer.
"""

import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from training.atomic import replace_folder
from training.catalogue import plain_sentences
from training.device import pick_device, pick_dtype, to_host
from training.errors import InputError, first_line
from training.inference.runner import InferenceRunner, check_int8
from training.models.encoder import Encoder
from training.models.files import check_replaceable, read_object, read_tensors
from training.models.folder import (
    CROSS_ENCODER,
    JOINT_HEAD,
    SENTENCE_TRANSFORMER,
    TRANSFORMER,
    ModelFolder,
    ModelFormat,
)
from training.models.joint_pair_model import JointPairModel, LogitScorer, Scorer, SequenceClassifier, build_pair_runner
from training.models.loading import CAUSAL_MODEL, CLASSIFIER, max_input_length, merge_adapter, open_transformer
from training.models.model import Model, Pair, check_pairs
from training.models.modules.sentence import activation_named
from training.models.pairs import PROBES, PairRow, PairTokenizer
from training.models.settings import ChatFormat, checked
from training.models.texts import CHUNK, Chunk, Forward, ReadReport, compute_chunks, numbered, texts
from training.names import ModelName
from training.progress import Progress, ShouldStop, progress_bar

log = logging.getLogger("sbert_lab.cross_encoder")

LOGIT_SCORE = "LogitScore"  # the module of a language model that answers in words
# The tokens of such answers, where a folder names none.
ANSWERS = {"true": "yes", "false": "no"}
MODEL_FILES = ("*.json", "*.txt", "*.model", "*.safetensors", "**/*.jinja", f"*_{LOGIT_SCORE}/*.json")


@dataclass(frozen=True)
class CrossEncoder(Model):
    """A cross-encoder. ``CrossEncoder.load`` opens one."""

    kind, has_dtype = "cross-encoder", True

    name: str
    scorer: Scorer = field(repr=False)
    inference: InferenceRunner[PairRow] = field(repr=False)  # computes the scorer
    tokenizer: PairTokenizer = field(repr=False)
    activation: Callable[[Tensor], Tensor] = field(repr=False)
    folder: Path
    source: str
    dtype: torch.dtype  # of the transformer in ``predict``
    card: dict[str, Any] | None = None  # data, settings, Spearman ×100 on STSb dev and test; None if not known

    @classmethod
    def load(
        cls,
        name: str | ModelName,
        dtype: str = "auto",
        device: str = "auto",
        home: str | Path | None = None,
        folder: ModelFolder | None = None,
    ) -> Self:
        """Load by name: ``minilm-stsb``, ``mpnet-stsb``, a Hub id, or a folder of either kind.

        The dtype and a prompt can be part of the name: ``minilm-stsb?dtype=int8``. The arguments are those of
        `Encoder.load`. InputError if it cannot be found, has no safetensors weights, or does not give one score.
        """
        parsed = ModelName.parse(name)
        cls.check_settings(parsed)
        torch_device = pick_device(device)
        torch_dtype = pick_dtype(parsed.dtype or dtype, torch_device)
        folder = folder or ModelFolder.of(parsed.name, home)
        opened = _open_joint(folder, home) if folder.has_joint_head else _open_scorer(parsed.name, folder)
        scorer, tokenizer, activation, source = opened
        scorer.requires_grad_(False).eval().to(torch_device)
        samples = tokenizer(PROBES)
        if torch_dtype == torch.int8:
            # The weights stay float32, and are rounded in the copy for inference.
            check_int8(parsed.name, scorer.transformer.base_model)
            samples = tokenizer(list(pairwise(plain_sentences())))
        else:
            scorer.transformer.to(torch_dtype)
        runner = build_pair_runner(scorer, torch_dtype, tokenizer.pad_id, samples)
        card = read_object(folder.path / "card.json") if folder.has_joint_head and folder.adapter else None
        name = str(parsed.weights)
        model = cls(name, scorer, runner, tokenizer, activation, folder.path, source, torch_dtype, card)
        return model.with_settings(parsed)

    @classmethod
    def check_settings(cls, name: ModelName) -> None:
        """InputError if the name states a setting that cross-encoders do not have; they have prompts."""
        super().check_settings(replace(name, prompt=None, prompt_name=None))

    def with_settings(self, name: ModelName) -> Self:
        """The same weights with the prompt that the name states. InputError for another setting, or if it has none."""
        self.check_settings(name)
        if not name.states_prompt:
            return self
        if self.tokenizer.separately:
            raise InputError(f"{name.name} reads no prompt; leave it out")
        tokenizer = self.tokenizer.with_prompt(name.prompt, name.prompt_name, self.name)
        settings = replace(ModelName.parse(self.name), prompt=name.prompt, prompt_name=name.prompt_name)
        return replace(self, name=str(settings), tokenizer=tokenizer)

    def __repr__(self) -> str:
        precision = str(self.dtype).removeprefix("torch.")
        return f"CrossEncoder({self.name!r}, {self.max_length} tokens, {precision}, {self.device})"

    @property
    def max_length(self) -> int:
        """Longest input in tokens: of one sentence for an adapter, of both together for other models."""
        return self.tokenizer.max_length

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.scorer.parameters()).device

    def with_runner(self, inference: InferenceRunner[PairRow]) -> Self:
        """The same weights, computed by another runner."""
        return replace(self, inference=inference)

    def predict(
        self,
        pairs: Sequence[Pair],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
        report: ReadReport | None = None,
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
    ) -> np.ndarray:
        """Pairs of sentences -> float32 (N,), in the caller's order.

        From 0 (nothing in common) to 1 (the same meaning). A model whose configuration names the identity as its
        activation returns bare logits, as in sentence-transformers.

        Args:
            pairs: any two texts each, also empty; truncated at ``max_length``, which is counted and logged.
            batch_size: pairs computed at a time, at most, to save memory; None = as many as is fast here.
        """
        report, scores = report or ReadReport(), [np.empty(0, dtype=np.float32)]
        runner = self.inference if batch_size is None else self.inference.with_batch_size(batch_size)

        def compute(rows: Sequence[PairRow], forward: Forward) -> np.ndarray:
            return runner.collect(rows, lambda logits, _: to_host(self.activation(logits)), (), should_stop, forward)

        parts, before = (self._read(pairs, start) for start in range(0, len(pairs), CHUNK)), report.truncated
        with progress_bar(show_progress_bar, "Scoring", on_progress) as progress:
            scores += compute_chunks(parts, compute, report, progress, len(pairs))
        if cut := report.truncated - before:
            log.warning("%d %s cut at %d tokens", cut, "pair was" if cut == 1 else "pairs were", self.max_length)
        return np.concatenate(scores)

    score = predict

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        return self.tokenizer.is_unknown(sentences)

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """The documents by their score with a query, best first: ``corpus_id`` (row), ``score`` and perhaps ``text``.

        Args:
            top_k: how many to return; None = all.
            return_documents: put the documents into the result too, as ``text``.
            options: of ``predict``.
        """
        listed = texts(documents)
        scores = self.predict([(query, document) for document in listed], **options)
        best = np.argsort(-scores, kind="stable")[:top_k].tolist()
        text = (lambda row: {"text": listed[row]}) if return_documents else lambda _: {}
        return [{"corpus_id": row, "score": float(scores[row]), **text(row)} for row in best]

    def save(self, folder: str | Path) -> None:
        """Write a folder that ``load`` opens, and sentence-transformers too unless this is an adapter.

        Replaces a model, but no other files.
        """
        with replace_folder(check_replaceable(folder)) as fresh:
            for file in (file for pattern in MODEL_FILES for file in self.folder.glob(pattern)):
                copied = fresh / file.relative_to(self.folder)
                copied.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, copied)

    def _read(self, pairs: Sequence[Pair], start: int) -> Chunk:
        """A chunk of the pairs as token ids. InputError if one is not two texts."""
        part = pairs[start : start + CHUNK]
        check_pairs(part, start)
        distinct, inverse = numbered((first, second) for first, second in part)
        rows = self.tokenizer(distinct)
        cut = [pair for pair, row in zip(distinct, rows, strict=True) if row.truncated]
        return Chunk(rows, inverse, cut, sum(map(len, rows)))


# The scorer, the tokenizer, the activation and the source of a ``CrossEncoder``.
Opened: TypeAlias = tuple[Scorer, PairTokenizer, Callable[[Tensor], Tensor], str]


def _open_joint(folder: ModelFolder, home: str | Path | None) -> Opened:
    """A `JointPairModel`: that of an adapter, with the weights of its base, or that of a run."""
    path = folder.path
    if folder.adapter:
        base = Encoder.load(folder.base, dtype="float32", device="cpu", home=home)
        backbone, tokenizer, longest = merge_adapter(base.backbone, path)[0], base.tokenizer, base.max_length
        source = f"adapter over {base.name} ({base.source})"
    else:
        backbone, tokenizer = open_transformer(folder)
        longest = max_input_length(tokenizer, backbone)
        source = folder.source
    scorer = JointPairModel(backbone)
    scorer.load_head_tensors(read_tensors(path, JOINT_HEAD))
    return scorer, PairTokenizer(tokenizer, longest, separately=True), torch.sigmoid, source


def _open_scorer(name: str, folder: ModelFolder) -> Opened:
    """A model of sentence-transformers: a sequence classifier, or a language model that answers yes or no."""
    # Without the name of its class, the weights say whether it has a head.
    if not folder.is_cross_encoder and not folder.is_decoder and folder.config.get("architectures"):
        raise InputError(f"{name} is not a cross-encoder; choose one, such as minilm-stsb, or train one from it")
    modules = folder.checked_modules((TRANSFORMER, LOGIT_SCORE))
    places = [entry.folder for entry in modules if entry.kind == LOGIT_SCORE]
    if [entry.kind for entry in modules] not in ([], [TRANSFORMER], [TRANSFORMER, LOGIT_SCORE]):
        raise InputError(f"{name} is not made of a transformer and perhaps {LOGIT_SCORE}; choose another cross-encoder")
    is_causal = bool(places) or folder.is_decoder
    settings = folder.transformer_settings("text-generation" if is_causal else "sequence-classification")
    settings |= folder.general_settings((CROSS_ENCODER, SENTENCE_TRANSFORMER), ("activation_fn",))
    model, tokenizer = open_transformer(folder, CAUSAL_MODEL if is_causal else CLASSIFIER)
    if not folder.modules and tokenizer.chat_template:
        settings["chat"] = ChatFormat()
    form = ModelFormat(folder.first, **settings)
    longest = max_input_length(tokenizer, model.base_model, form.max_length)
    scorer: Scorer
    if is_causal:
        answers = {f"{answer}_token_id": tokenizer.get_vocab().get(word) for answer, word in ANSWERS.items()}
        scorer = _logit_scorer(name, model, read_object(places[0] / "config.json") if places else answers)
    elif model.config.num_labels != 1:
        raise InputError(
            f"{name} returns {model.config.num_labels} numbers for a pair; a cross-encoder for similarity returns one"
        )
    else:
        if model.config.pad_token_id is None:
            # The score is that of the last token, whatever that is; without any number a batch would be refused.
            model.config.pad_token_id = -1
        scorer = SequenceClassifier(model, "token_type_ids" in tokenizer.model_input_names)
    return scorer, PairTokenizer(tokenizer, longest, form=form), _activation_of(name, folder), folder.source


def _logit_scorer(name: str, model: Any, config: dict[str, Any]) -> LogitScorer:
    config = checked(name, LOGIT_SCORE, config, ("true_token_id", "false_token_id", "module_input_name"))
    yes, no = config.get("true_token_id"), config.get("false_token_id")
    size = int(model.get_output_embeddings().weight.shape[0])
    if not isinstance(yes, int) or not all(0 <= token < size for token in (yes, yes if no is None else no)):
        raise InputError(f"{name} answers with the tokens {yes!r} and {no!r}, but has the tokens 0 to {size - 1:,}")
    if config.get("module_input_name", "causal_logits") != "causal_logits":
        raise InputError(f"{name} scores {config['module_input_name']}, not the logits of a language model")
    return LogitScorer(model, yes, no)


def _activation_of(name: str, folder: ModelFolder) -> Callable[[Tensor], Tensor]:
    """Logits (B,) -> scores (B,), as sentence-transformers: by the activation that the folder names, else a sigmoid.

    It stands in config_sentence_transformers.json since version 5.4, before that in config.json.
    """
    older: Any = folder.config.get("sentence_transformers") or {}
    names = (
        folder.general.get("activation_fn"),
        older.get("activation_fn") if isinstance(older, dict) else older,
        folder.config.get("sbert_ce_default_activation_function"),
    )
    activation = str(next(filter(None, names), "torch.nn.modules.activation.Sigmoid"))
    try:
        function = activation_named(activation)
        is_of_one = function(torch.zeros(1, 1)).shape == (1, 1)
    except (InputError, RuntimeError) as error:
        raise InputError(f"{name} ends in {activation}, which is not supported: {first_line(error)}") from error
    if not is_of_one:
        raise InputError(f"{name} ends in {activation}, which is not supported; choose a model that ends in a sigmoid")
    return lambda logits: function(logits[:, None])[:, 0]
