"""The model that a run of the objective mlm trains, and its evaluation.

The model is a transformer with the language-modelling head of transformers
(`AutoModelForMaskedLM`). The head computes only the logits of the masked tokens, a sixth of all: a
hook on the transformer passes it no others, as the product with the vocabulary is expensive.

The evaluation always masks the same tokens of the eval data, so that the points of a curve can be
compared:

    loss              the objective's loss
    perplexity        exp(loss)
    masked_accuracy   the fraction of the masked tokens that get the highest logit
    spearman …        measured with the mean of the token vectors, as for any encoder (`training.trainer.evaluator`)
"""

import copy
import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
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
from training.models.loading import (
    DEFAULT_MAX_LENGTH,
    LANGUAGE_MODEL,
    max_input_length,
    open_backbone,
)
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

# The file of the tokenizer that was trained for a run, in its folder.
VOCABULARY = "vocabulary.json"
# Tokens in a batch of the evaluation, padding included.
EVALUATION_TOKENS = 4_096
_thread = threading.local()


class TrainableLanguageModel:
    """A masked language model in training, with float32 weights. It has the interface of `Encoder` that a run uses."""

    pooling = "mean"
    normalizes = False
    # No objective of a language model depends on the dimension of its vectors.
    full_dimension = 1

    def __init__(self, encoder: Encoder, model: Any) -> None:
        """``model`` is trained and saved with its head. ``encoder`` gives vectors of the same transformer."""
        self.encoder = encoder
        self.backbone = model
        self.name = encoder.name
        self.tokenizer = encoder.tokenizer
        self.dtype = encoder.dtype
        self.source = encoder.source
        self.device = encoder.device
        self.tokenize = encoder.tokenize
        # The modules after the pooling: none, as the logits are not pooled.
        self.head = nn.Sequential()

    @classmethod
    def load(
        cls,
        config: RunConfig,
        data: Sequence[Dataset],
        device: str,
        home: str | Path | None,
        folder: Path | None,
    ) -> Self:
        """Loads the model that a run starts from. InputError if the base cannot predict masked tokens.

        For random weights the vocabulary is trained on the sentences of ``data``. A resumed run
        reads it from its ``folder``.
        """
        base = config.base
        name = ModelName.parse(base)
        encoder = Encoder.load(
            name.weights, dtype=config.dtype, device=device, home=home, seed=config.seed
        )
        # The name has settings besides the weights.
        if name != name.weights:
            raise InputError(
                f"{base} states a pooling, dimensions or a prompt, which mlm does not use; leave them out"
            )
        # As a sentence encoder, the trained model has only mean pooling, whatever the base has.
        layout = replace(
            encoder.model_format,
            pooling="mean",
            normalizes=False,
            dimension=None,
            sentence_modules=(),
            prompts={},
        )
        if name.scratch_shape:
            # A transformer with its own vocabulary takes the place of the one in ``encoder``.
            layers, dimension = name.scratch_shape
            tokenizer = _vocabulary(config, data, folder)
            length = config.max_length or DEFAULT_MAX_LENGTH
            model = random_backbone(
                layers, dimension, len(tokenizer), config.seed, length, predicts=True
            )
            # The new transformer has its own limit.
            layout = replace(layout, max_length=None)
        else:
            tokenizer = encoder.tokenizer
            mask_id = getattr(tokenizer, "mask_token_id", None)
            if isinstance(encoder.backbone, WordBackbone) or mask_id is None:
                raise InputError(
                    f"{base} has no token [MASK] to predict others by; choose BERT or one of its kin"
                )
            # If the base has no language-modelling head, the head gets random weights.
            torch.manual_seed(config.seed)
            base_folder = ModelFolder.read(encoder.model_format.transformer)
            model = open_backbone(base_folder, LANGUAGE_MODEL)
        transformer = _transformer_of(model)
        longest = max_input_length(tokenizer, transformer)
        limit = config.max_length or layout.max_length or longest
        if limit > longest:
            raise InputError(f"max_length is {limit}, but {base} takes {longest} tokens at most")
        layout = replace(layout, max_length=limit)
        parts = EncoderParts(transformer, tokenizer, layout, encoder.source, nn.Sequential())
        return cls(Encoder(encoder.name, parts, encoder.dtype), model.to(encoder.device))

    def train(self) -> Self:
        self.encoder.train()
        self.backbone.train()
        return self

    def eval(self) -> Self:
        # `backbone` may have become a copy with merged adapters.
        self.encoder.backbone = _transformer_of(self.backbone)
        self.encoder.eval()
        self.backbone.eval()
        return self

    def save(self, folder: str | Path) -> None:
        """Writes a folder that transformers opens with its head, and sentence-transformers as a sentence encoder."""
        whole = copy.copy(self.encoder)
        whole.backbone = self.backbone
        whole.save(folder)


def _vocabulary(config: RunConfig, data: Sequence[Dataset], folder: Path | None) -> Any:
    """Returns the tokenizer of a run from random weights. It is trained once and kept in the run's folder."""
    file = None if folder is None else folder / VOCABULARY
    if file is not None and file.is_file():
        tokenizer = Tokenizer.from_file(str(file))
    else:
        columns = chain.from_iterable(part.columns for part in data)
        tokenizer = train_vocabulary(chain.from_iterable(columns), config.vocabulary_size)
        if file is not None:
            write_text(file, tokenizer.to_str())
    return as_bert_tokenizer(tokenizer, config.max_length or DEFAULT_MAX_LENGTH)


def _transformer_of(model: Any) -> Any:
    """Returns the transformer below the head, with its adapters."""
    whole = model.get_base_model() if hasattr(model, "peft_config") else model
    return whole.base_model


class MaskedReplica(Replica):
    """A masked language model in training mode. Its vectors are the logits of the masked tokens."""

    def __init__(self, model: nn.Module, tokenizer: Any, dtype: torch.dtype) -> None:
        super().__init__(model, embeddings=None, dtype=dtype)
        self.mask_id = int(tokenizer.mask_token_id)
        self.vocabulary_size = len(tokenizer)
        self.pad_id = int(tokenizer.pad_token_id or 0)
        self.special_ids = sorted(set(tokenizer.all_special_ids))
        _transformer_of(self.module).register_forward_hook(_keep_masked)

    def collate(self, ids: TokenIds, generator: np.random.Generator) -> MicroBatch:
        """Pads the token ids of B sentences, and masks tokens that ``generator`` draws."""
        batch = pad(ids, self.pad_id)
        tokens = batch.ids.numpy()  # (B, T)
        can_be_masked = ~np.isin(tokens, self.special_ids)
        inputs, positions = mask_tokens(
            tokens, can_be_masked, self.mask_id, self.vocabulary_size, generator
        )

        def move(tensor: Tensor) -> Tensor:
            return tensor.to(self.device, non_blocking=True)

        # The rows are token ids, as the module looks up all word embeddings.
        return MicroBatch(
            move(torch.from_numpy(inputs)),
            None if batch.mask is None else move(batch.mask),
            generator,
            masked=move(torch.from_numpy(positions)),
            targets=move(torch.from_numpy(tokens.flatten()[positions])),
        )

    def forward(self, batch: MicroBatch) -> ForwardOutput:
        """Computes the logits (M, V) float32 of the M masked tokens of a micro-batch."""
        mask = None if batch.mask is None else batch.mask.long()
        # The hook `_keep_masked` reads the positions in this thread. It leaves the masked tokens
        # only, as a single row.
        _thread.masked = batch.masked
        with use_generator(batch.generator):
            logits = self.module(input_ids=batch.rows, attention_mask=mask).logits[0]
        # The inputs are empty, as the module itself looks up its word embeddings.
        return ForwardOutput(logits.float(), inputs=logits.new_empty(0))


def _keep_masked(_: nn.Module, __: Any, output: Any) -> Any:
    """A forward hook that keeps only the hidden states (1, M, D) of the masked tokens of this thread's batch."""
    output.last_hidden_state = output.last_hidden_state.flatten(0, 1)[_thread.masked][None]
    return output


class LanguageModelEvaluator:
    """Evaluates a language model, always on the same masked tokens. Without eval data it measures only the vectors."""

    def __init__(self, vector_evaluator: Evaluator, data: Dataset | None, seed: int) -> None:
        self.vector_evaluator = vector_evaluator
        self.seed = seed
        columns = () if data is None else data.columns
        self.sentences = list(dict.fromkeys(chain.from_iterable(columns)))

    @torch.no_grad()
    def measure(
        self, model: TrainableLanguageModel, objective: nn.Module, should_stop: ShouldStop | None
    ) -> Figures:
        """Returns the figures that the module's docstring lists.

        Raises StoppedError if ``should_stop`` returns true.
        """
        vector_figures = self.vector_evaluator.measure(model.encoder, objective, should_stop)
        # Without eval data there are no tokens to mask.
        if not self.sentences:
            return vector_figures
        replica = MaskedReplica(model.backbone, model.tokenizer, model.dtype)
        replica.module.eval()
        ids = model.tokenize(self.sentences)

        def measure_batch(rows: np.ndarray) -> tuple[float, int, int]:
            """Returns the sum of the losses, the number of hits, and the number of masked tokens."""
            if should_stop is not None and should_stop():
                raise StoppedError
            # The rows are the same in every evaluation, and so are the tokens that are masked.
            generator = np.random.default_rng([self.seed, int(rows[0])])
            batch = replica.collate([ids[row] for row in rows], generator)
            # Another thread runs this, and the mode is set for each thread.
            with torch.no_grad():
                # The vectors of a `MaskedReplica` are logits, (M, V).
                logits = replica.forward(batch).vectors
                targets = masked_targets([batch])
                loss = float(objective([logits], targets))
            hits = int((logits.argmax(1) == targets).sum())
            return loss * len(logits), hits, len(logits)

        plans = plan([len(sentence) for sentence in ids], EVALUATION_TOKENS)
        batches = list(parallel.imap(measure_batch, plans))
        losses, hits, count = np.sum(batches, axis=0).tolist()
        loss = losses / count
        # The figures of the vectors have no loss, as mlm computes none from vectors.
        figures = {
            "loss": loss,
            # exp overflows above 709.
            "perplexity": math.exp(min(loss, 700)),
            "masked_accuracy": hits / count,
        }
        return {**figures, **vector_figures}


def masked_targets(batches: Sequence[MicroBatch]) -> Tensor:
    """Returns the ids of the masked tokens of all micro-batches, int64 (M,)."""
    return torch.cat([batch.targets for batch in batches if batch.targets is not None])
