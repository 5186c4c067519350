"""The model that a run of the objective mlm trains, and its evaluation.

The model is a transformer with the language-modelling head of transformers (`AutoModelForMaskedLM`). The head computes
the logits of the masked tokens alone: a hook on the transformer hands it no others, so that the product with the
vocabulary, at a sixth of the tokens, costs little.

The evaluation masks the sentences of the eval data once and for all, so that the points of a curve compare:

    loss              the objective's
    perplexity        exp(loss)
    masked_accuracy   the fraction of the masked tokens that get the highest logit
    spearman …        of the mean of the token vectors, as of any encoder (`training.trainer.evaluator`)
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from training import parallel
from training.atomic import write_text
from training.data.dataset import Dataset
from training.errors import InputError, StoppedError
from training.inference.batching import pad, plan
from training.models.encoder import Encoder
from training.models.folder import ModelFolder
from training.models.loading import DEFAULT_MAX_LENGTH, LANGUAGE_MODEL, max_input_length, open_backbone
from training.models.modules import EncoderParts
from training.models.random_weights import as_bert_tokenizer, random_backbone, train_vocabulary
from training.models.word_networks import WordBackbone
from training.names import ModelName
from training.objectives.tokens import mask_tokens
from training.progress import ShouldStop
from training.trainer.config import RunConfig
from training.trainer.evaluator import Evaluator
from training.trainer.replica import ForwardOutput, MicroBatch, Replica, TokenIds, use_generator
from training.trainer.run_metrics import Figures

# The tokenizer that was trained for a run, in its folder.
VOCABULARY = "vocabulary.json"
# Tokens of a batch of the evaluation, padding included.
EVALUATION_TOKENS = 4_096
_thread = threading.local()


class TrainableLanguageModel:
    """A masked language model in training, its weights float32: what a run needs of an `Encoder`."""

    pooling, normalizes, full_dimension = "mean", False, 1

    def __init__(self, encoder: Encoder, model: Any) -> None:
        """``model`` has the head, and is trained and saved; ``encoder`` has its transformer."""
        self.encoder, self.backbone = encoder, model
        self.name, self.tokenizer = encoder.name, encoder.tokenizer
        self.dtype, self.source = encoder.dtype, encoder.source
        self.head = nn.Sequential()

    @classmethod
    def load(
        cls, config: RunConfig, data: Sequence[Dataset], device: str, home: str | Path | None, folder: Path | None
    ) -> Self:
        """The model that a run starts from. InputError if the base is no transformer that predicts masked tokens.

        From random weights its vocabulary is trained on the sentences of ``data``, or taken from the run's ``folder``
        when the run is resumed.
        """
        base, name = config.base, ModelName.parse(config.base)
        encoder = Encoder.load(name.weights, None, config.dtype, device, home, config.seed)
        layout = replace(
            encoder.model_format, pooling="mean", normalizes=False, dimension=None, sentence_modules=(), prompts={}
        )
        if name != name.weights:
            raise InputError(f"{base} states a pooling, dimensions or a prompt, which mlm does not use; leave them out")
        if shape := name.scratch_shape:
            tokenizer = _vocabulary(config, data, folder)
            model = random_backbone(*shape, len(tokenizer), config.seed, config.max_length or DEFAULT_MAX_LENGTH, True)
            layout = replace(layout, max_length=None)
        else:
            tokenizer = encoder.tokenizer
            if isinstance(encoder.backbone, WordBackbone) or getattr(tokenizer, "mask_token_id", None) is None:
                raise InputError(f"{base} has no token [MASK] to predict others by; choose BERT or one of its kin")
            torch.manual_seed(config.seed)
            model = open_backbone(ModelFolder.read(encoder.model_format.transformer), LANGUAGE_MODEL)
        longest = max_input_length(tokenizer, _transformer_of(model))
        limit = config.max_length or layout.max_length or longest
        if limit > longest:
            raise InputError(f"max_length is {limit}, but {base} takes {longest} tokens at most")
        layout = replace(layout, max_length=limit)
        parts = EncoderParts(_transformer_of(model), tokenizer, layout, encoder.source, nn.Sequential())
        own = Encoder(encoder.name, parts, encoder.dtype)
        return cls(own, model.to(encoder.device))

    @property
    def device(self) -> torch.device:
        return next(self.backbone.parameters()).device

    def tokenize(self, sentences: Sequence[str]) -> list[list[int]]:
        return self.encoder.tokenize(sentences)

    def train(self) -> Self:
        self.encoder.train()
        self.backbone.train()
        return self

    def eval(self) -> Self:
        # Adapters may have been merged into a copy of it.
        self.encoder.backbone = _transformer_of(self.backbone)
        self.encoder.eval()
        self.backbone.eval()
        return self

    def save(self, folder: str | Path) -> None:
        """Writes a folder that transformers opens with its head, and sentence-transformers as a sentence encoder."""
        whole = self.encoder.with_pooling(None)
        transformer = whole.backbone
        try:
            whole.backbone = self.backbone
            whole.save(folder)
        finally:
            whole.backbone = transformer


def _vocabulary(config: RunConfig, data: Sequence[Dataset], folder: Path | None) -> Any:
    """The tokenizer of a run from random weights: trained once, and kept in the run's folder."""
    file = None if folder is None else folder / VOCABULARY
    if file is not None and file.is_file():
        tokenizer = Tokenizer.from_file(str(file))
    else:
        sentences = (sentence for part in data for column in part.columns for sentence in column)
        tokenizer = train_vocabulary(sentences, config.vocabulary_size)
        if file is not None:
            write_text(file, tokenizer.to_str())
    return as_bert_tokenizer(tokenizer, config.max_length or DEFAULT_MAX_LENGTH)


def _transformer_of(model: Any) -> Any:
    """The transformer below the head, adapters included."""
    whole = model.get_base_model() if hasattr(model, "peft_config") else model
    return whole.base_model


class MaskedReplica(Replica):
    """A masked language model in training mode, whose vectors are the logits of the masked tokens."""

    def __init__(self, model: nn.Module, tokenizer: Any, dtype: torch.dtype) -> None:
        super().__init__(model, None, dtype)
        self.mask_id, self.vocabulary_size = int(tokenizer.mask_token_id), len(tokenizer)
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self.special_ids = sorted(set(tokenizer.all_special_ids))
        _transformer_of(self.module).register_forward_hook(_keep_masked)

    def collate(self, ids: TokenIds, generator: np.random.Generator) -> MicroBatch:
        """Pads the token ids of B sentences, and hides tokens of them as ``generator`` says."""
        batch = pad(ids, self.pad_id)
        tokens = batch.ids.numpy()
        can_be_masked = ~np.isin(tokens, self.special_ids)
        inputs, positions = mask_tokens(tokens, can_be_masked, self.mask_id, self.vocabulary_size, generator)
        mask = None if batch.mask is None else batch.mask.to(self.device, non_blocking=True)
        return MicroBatch(
            torch.from_numpy(inputs).to(self.device, non_blocking=True),
            mask,
            generator,
            masked=torch.from_numpy(positions).to(self.device, non_blocking=True),
            targets=torch.from_numpy(tokens.flatten()[positions]).to(self.device, non_blocking=True),
        )

    def forward(self, batch: MicroBatch) -> ForwardOutput:
        """The logits (M, V) float32 of the M masked tokens of a micro-batch."""
        mask = None if batch.mask is None else batch.mask.long()
        _thread.masked = batch.masked
        with use_generator(batch.generator):
            logits = self.module(input_ids=batch.rows, attention_mask=mask).logits[0]
        return ForwardOutput(logits.float(), logits.new_empty(0))


def _keep_masked(_: nn.Module, __: Any, output: Any) -> Any:
    """A transformer's output with the hidden states (1, M, D) of the masked tokens of this thread's batch alone."""
    output.last_hidden_state = output.last_hidden_state.flatten(0, 1)[_thread.masked][None]
    return output


class LanguageModelEvaluator:
    """Measures a language model, always on the same masked tokens. Without eval data only its vectors are measured."""

    def __init__(self, vectors: Evaluator, data: Dataset | None, seed: int) -> None:
        self.vectors, self.seed = vectors, seed
        columns = () if data is None else data.columns
        self.sentences = list(dict.fromkeys(sentence for column in columns for sentence in column))

    @torch.no_grad()
    def measure(self, model: TrainableLanguageModel, objective: nn.Module, should_stop: ShouldStop | None) -> Figures:
        """The figures listed above. Raises StoppedError if ``should_stop`` returns true meanwhile."""
        figures = self.vectors.measure(model.encoder, objective, should_stop)
        if not self.sentences:
            return figures
        replica = MaskedReplica(model.backbone, model.tokenizer, model.dtype)
        replica.module.eval()
        ids = model.tokenize(self.sentences)

        def measure_batch(rows: np.ndarray) -> tuple[float, int, int]:
            if should_stop is not None and should_stop():
                raise StoppedError
            batch = replica.collate([ids[row] for row in rows], np.random.default_rng([self.seed, int(rows[0])]))
            with torch.no_grad():
                logits, targets = replica.forward(batch).vectors, masked_targets([batch])
                loss = float(objective([logits], targets))
            return loss * len(logits), int((logits.argmax(1) == targets).sum()), len(logits)

        batches = parallel.imap(measure_batch, plan([len(sentence) for sentence in ids], EVALUATION_TOKENS))
        losses, hits, counts = np.sum(list(batches), axis=0).tolist()
        loss = losses / counts
        measured = {"loss": loss, "perplexity": math.exp(min(loss, 700)), "masked_accuracy": hits / counts}
        return {**measured, **figures}


def masked_targets(batches: Sequence[MicroBatch]) -> Tensor:
    """The ids of the masked tokens of all micro-batches, int64 (M,)."""
    return torch.cat([batch.targets for batch in batches if batch.targets is not None])
