"""What a run is made of, from its config: the model that is trained, its batches, and what evaluates it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from training.catalogue import WORD_ENCODERS
from training.data.dataset import Dataset
from training.data.load import load_data
from training.data.overlap import overlap
from training.errors import InputError
from training.models.encoder import Encoder
from training.models.scorer import default_encode
from training.objectives import training_data
from training.objectives.base import LABELS, OwnObjective
from training.trainer.batches import TokenizedBatches
from training.trainer.config import RunConfig
from training.trainer.cross_encoder import PairEvaluator, TrainableCrossEncoder
from training.trainer.evaluator import Evaluator
from training.trainer.negatives import MinedNegatives, MinedTriplet, mine_negatives
from training.trainer.own import Own
from training.trainer.replica import has_dropout
from training.trainer.teacher import Examples, Teacher, own_targets
from training.trainer.training_model import TrainingModel, default_micro_batches

if TYPE_CHECKING:
    from accelerate import Accelerator


@dataclass(frozen=True)
class Parts:
    """What the training loop needs."""

    model: TrainingModel
    batches: TokenizedBatches
    evaluator: Evaluator | PairEvaluator
    data: Dataset  # the rows that are learned from
    negatives: Sequence[MinedTriplet]  # examples of mined ones
    saved_dimension: int | None  # of the vectors of the saved model; None = all


@dataclass(frozen=True)
class Preparation:
    """Makes the `Parts` of a run. Arguments as in `training.trainer.train.train`."""

    config: RunConfig
    accelerator: Accelerator
    should_stop: Callable[[], bool]
    folder: Path | None
    home: str | Path | None
    own: Own

    def parts(self, micro_batches: int = 0) -> Parts:
        """Load base and data, mine negatives and compute the targets.

        Args:
            micro_batches: of a batch, as in the part of the run that is resumed; 0 chooses by the number of cores.

        Raises:
            InputError: data, base or teacher cannot be used.
            Stopped: ``should_stop`` returned true.
        """
        config = self.config
        torch.manual_seed(config.seed)
        objective = config.objective_class
        data, evaluation = self._load_data()
        encoder, dimension = self._load_cross_encoder() if objective.scores_pairs else self._load_encoder(data)
        if config.base in WORD_ENCODERS:
            data = data.with_note(f"{config.base} has {encoder.source}")
        if evaluation is not None:
            encode = default_encode(self.home, str(self.accelerator.device))
            data = data.with_note(str(overlap(evaluation, [data], encode)))
        mined = self._mine_negatives(encoder, data) if config.mine_negatives else None
        training, loss = self._with_targets(encoder, data if mined is None else mined.data, evaluation)
        evaluator: Any = PairEvaluator(loss)
        if not objective.scores_pairs:
            evaluator = Evaluator(
                training.data, evaluation, loss, config.batch_size, config.matryoshka_dims, config.seed
            )
        batches = TokenizedBatches(
            training,
            encoder,
            config.batch_size,
            config.seed,
            getattr(self.own.objective, "uses_batch", objective.uses_batch),
            self.accelerator.num_processes,
            self.should_stop,
        )
        model = self._model(encoder, training.data, batches, micro_batches)
        return Parts(model, batches, evaluator, training.data, () if mined is None else mined.examples(), dimension)

    def _load_data(self) -> tuple[Dataset, Dataset | None]:
        """The training data in the form that the objective needs, and the evaluation data as it is."""
        config, own = self.config, self.own
        if own.train_data is None:
            data = training_data(config.train_data, config.objective, config.seed, self.home)
        else:
            data = config.objective_class.transform(own.train_data, config.seed)
        for part in ("optimizer", "schedule"):
            if part in own.listed():
                data = data.with_note(f"the {part} is {own.listed()[part]}")
        if own.eval_data is not None or config.eval_data is None:
            return data, own.eval_data
        return data, load_data(config.eval_data, self.home, split="dev")

    def _load_encoder(self, data: Dataset) -> tuple[Encoder, int | None]:
        """The base, with all dimensions of its vectors, and the number of those that its folder keeps."""
        config = self.config
        known = chain.from_iterable(data.columns)
        device = str(self.accelerator.device)
        encoder = Encoder.load(
            config.base, config.pooling, config.dtype, device, self.home, config.seed, vocabulary_of=known
        )
        longest = config.max_length or encoder.max_length
        if longest > encoder.max_length:
            raise InputError(f"max_length is {longest}, but {config.base} takes {encoder.max_length} tokens at most")
        drops = has_dropout(encoder.backbone) or has_dropout(encoder.head)
        if config.objective_class.needs_dropout and not drops:
            raise InputError(
                f"{config.base} has no dropout, by which the two vectors of a sentence differ in {config.objective}; "
                "choose another base"
            )
        layout = replace(encoder.model_format, max_length=longest, dimension=None)
        whole = Encoder(
            encoder.name, encoder.backbone, encoder.tokenizer, layout, encoder.dtype, encoder.source, encoder.head
        )
        return whole, encoder.model_format.dimension

    def _load_cross_encoder(self) -> tuple[Any, None]:
        return TrainableCrossEncoder.load(self.config, str(self.accelerator.device), self.home), None

    def _mine_negatives(self, encoder: Encoder, data: Dataset) -> MinedNegatives:
        """Triplets with mined negatives; of a resumed run those of its folder."""
        mined = None if self.folder is None else MinedNegatives.read(self.folder, data)
        if mined is None:
            mined = mine_negatives(encoder, data, self.config.negative_margin, self.config.seed, self.should_stop)
            if self.folder is not None and self.accelerator.is_main_process:
                mined.write(self.folder)
        return mined

    def _with_targets(
        self, encoder: Encoder, data: Dataset, evaluation: Dataset | None
    ) -> tuple[Examples, Examples | None]:
        """The training data with its targets, and that of the loss on the evaluation data."""
        config, target = self.config, self.config.objective_class.target
        label: Callable[[Dataset], Examples] = partial(own_targets, target=target)
        if config.teacher is not None:
            similarity, dtype = config.margin_similarity, config.dtype
            teacher = Teacher(config.teacher, encoder, target, similarity, dtype, self.home, self.should_stop)
            label = teacher.label
        training, form = label(data), self._loss_data(data, evaluation)
        return training, None if form is None else label(form)

    def _loss_data(self, training: Dataset, evaluation: Dataset | None) -> Dataset | None:
        """The evaluation data in the form that the objective needs; None if its loss there is not comparable."""
        objective = self.config.objective_class
        if evaluation is None or objective.needs_dropout:
            return None
        try:
            transformed = objective.transform(evaluation, self.config.seed)
        except InputError:
            if objective.scores_pairs:  # nothing else could be measured
                raise
            return None
        if objective is OwnObjective and (evaluation.kind, evaluation.label_names) != (
            training.kind,
            training.label_names,
        ):
            return None
        if objective.target in (LABELS, None) and transformed.label_names != training.label_names:
            return None
        return transformed if len(transformed.columns) == len(training.columns) else None

    def _model(self, encoder: Encoder, data: Dataset, batches: TokenizedBatches, micro_batches: int) -> TrainingModel:
        config, accelerator = self.config, self.accelerator
        rows = min(config.batch_size, config.mini_batch_size or config.batch_size)
        return TrainingModel(
            encoder,
            OwnObjective(self.own.objective)
            if self.own.objective
            else config.objective_class.build(config, encoder.full_dimension, len(data.label_names)),
            None if config.weight_decay else batches.used,
            seed=1_000 * (config.seed * accelerator.num_processes + accelerator.process_index),
            rank=config.lora_rank,
            num_micro_batches=micro_batches or default_micro_batches(encoder.device, rows * len(batches.columns)),
            mini_batch_size=config.mini_batch_size,
            matryoshka_dims=config.matryoshka_dims,
        )
