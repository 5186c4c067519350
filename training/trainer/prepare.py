"""The parts of a run, made from its config: the model, its batches, and its evaluator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from training.catalogue import WORD_ENCODERS
from training.data.dataset import Dataset, join
from training.data.load import RetrievalData, load_data, load_one, load_retrieval
from training.data.overlap import overlap
from training.errors import InputError
from training.models.encoder import Encoder
from training.models.model import default_encode
from training.models.modules import EncoderParts
from training.names import DataName
from training.objectives.base import HELD_OUT, LABELS, Objective, OwnObjective, hold_out
from training.progress import ShouldStop
from training.trainer.batches import MixedBatches, TokenizedBatches
from training.trainer.config import RunConfig, names_of
from training.trainer.cross_encoder import PairEvaluator, TrainableCrossEncoder
from training.trainer.evaluator import Evaluator
from training.trainer.language_model import LanguageModelEvaluator, TrainableLanguageModel
from training.trainer.negatives import MinedNegatives, MinedTriplet, mine_negatives
from training.trainer.replica import has_dropout
from training.trainer.run_extras import UNNAMED, RunExtras
from training.trainer.teacher import Examples, Teacher, own_targets
from training.trainer.training_model import TrainingModel, default_micro_batches


@dataclass(frozen=True)
class Parts:
    """The parts that the training loop needs."""

    model: TrainingModel
    batches: MixedBatches
    evaluator: Evaluator | PairEvaluator | LanguageModelEvaluator
    # The training data of each part of the config, as it is learned from.
    data: Sequence[Dataset]
    # Sentences on how the data was prepared.
    notes: Sequence[str]
    # Examples of triplets with mined negatives; empty if none are mined.
    negatives: Sequence[MinedTriplet]
    # The number of dimensions that the saved model keeps, None for all.
    saved_dimension: int | None


@dataclass(frozen=True)
class Preparation:
    """Makes the `Parts` of a run from the arguments of `training.trainer.train.train`."""

    config: RunConfig
    accelerator: Accelerator
    should_stop: ShouldStop
    folder: Path | None
    home: str | Path | None
    extras: RunExtras

    def parts(self, micro_batches: int = 0, cosines: list[float] | None = None) -> Parts:
        """Loads base and data, mines negatives and computes the targets. InputError if one of them cannot be used.

        A resumed run passes the number of micro-batches in a batch, and the cosines of the eval
        pairs at its first evaluation. ``micro_batches=0`` chooses by the number of cores.
        """
        config = self.config
        extras = self.extras
        # For the random weights of objectives and adapters, and for dropout on a GPU.
        torch.manual_seed(config.seed)
        data, dev = self._load_data()
        # None for retrieval data too: the overlap and the loss need rows like the training data's.
        dev_rows = dev if isinstance(dev, Dataset) else None
        learner = config.objective_class
        if learner.predicts_tokens and len(data) == 1:
            # Each set of the only part was transformed alone, so two sets may share sentences.
            # Transforming the joined sets leaves each sentence once. Several parts have one set
            # each.
            data = [learner.transform(data[0], config.seed)]
        device = str(self.accelerator.device)
        encoder, saved_dimension = self._load_encoder(data, device)
        notes = []
        # The config already names some of the caller's objects. It does not name the optimizer and
        # the schedule, so notes do.
        for name, words in extras.listed().items():
            if name in UNNAMED:
                notes.append(f"the {name} is {words}")
        # The source tells which word vectors there are: GloVe, or random ones.
        if config.base in WORD_ENCODERS:
            notes.append(f"{config.base} has {encoder.source}")
        if dev_rows is not None:
            # The default model finds rows of the dev data that nearly repeat training data.
            encode = default_encode(self.home, device, self.should_stop)
            notes.append(str(overlap(dev_rows, data, encode)))

        negatives: Sequence[MinedTriplet] = ()
        if config.mine_negatives:
            # The config allows negatives to be mined for a single part only.
            mined = self._mine_negatives(encoder, data[0])
            negatives = mined.examples()
            data = [mined.data]
        training, loss_examples = self._with_targets(encoder, data, dev_rows)
        # The same rows, with the note that a teacher adds.
        data = [examples.data for examples in training]

        tokenized = []
        for examples in training:
            objective: Any = config.parts[examples.part].facts
            # A function or module of the caller may have the attribute ``uses_batch`` too.
            if objective is OwnObjective:
                objective = extras.objective
            uses_batch = getattr(objective, "uses_batch", False)
            processes = self.accelerator.num_processes
            tokenized.append(
                TokenizedBatches(examples, encoder, config, uses_batch, processes, self.should_stop)
            )
        batches = MixedBatches(tokenized, config)

        evaluator: Any
        if learner.scores_pairs:
            evaluator = PairEvaluator(loss_examples)
        else:
            evaluator = Evaluator(data, dev, loss_examples, config, cosines)
        if learner.predicts_tokens:
            evaluator = LanguageModelEvaluator(evaluator, dev_rows, config.seed)

        data_notes = [*data[0].notes]
        # With several parts there is one note for each, which names the part.
        if len(data) > 1:
            data_notes = []
            for rows, part, steps in zip(data, config.parts, batches.steps, strict=True):
                facts_of_part = "; ".join([f"{steps:,} batches in an epoch", *rows.notes])
                data_notes.append(f"{rows.name}, by {part.objective}: {facts_of_part}")
        model = self._model(encoder, data, batches, micro_batches)
        return Parts(
            model, batches, evaluator, data, (*data_notes, *notes), negatives, saved_dimension
        )

    def _load_data(self) -> tuple[list[Dataset], Dataset | RetrievalData | None]:
        """Loads the parts of the training data in the form that their objectives need, and the evaluation data."""
        config = self.config
        own_data = self.extras.train_data
        dev = self.extras.eval_data
        data = []
        for number, part in enumerate(config.parts):
            if own_data is not None:
                sets = [own_data]
            else:
                sets = [load_one(name, self.home) for name in names_of(part.data)]
            # A tenth of the first set judges the run.
            if number == 0 and config.eval_data == HELD_OUT:
                sets[0], dev = hold_out(sets[0], part.objective, config.seed)
            # The class of the objective brings the rows into the form that it needs.
            transformed = [part.facts.transform(rows, config.seed) for rows in sets]
            data.append(join(transformed))
        # `hold_out` returns None if a tenth of the data cannot judge the run.
        if dev is not None or config.eval_data in (None, HELD_OUT):
            return data, dev
        if DataName.parse(config.eval_data).is_retrieval:
            return data, load_retrieval(config.eval_data, self.home)
        return data, load_data(config.eval_data, self.home, split="dev")

    def _load_encoder(self, data: Sequence[Dataset], device: str) -> tuple[Any, int | None]:
        """Loads the base with all dimensions of its vectors.

        Also returns the number of dimensions to which its folder truncates vectors, None if it
        does not.
        """
        config = self.config
        base = config.base
        if config.objective_class.scores_pairs:
            return TrainableCrossEncoder.load(config, device, self.home), None
        if config.objective_class.predicts_tokens:
            return TrainableLanguageModel.load(config, data, device, self.home, self.folder), None
        # A network over word vectors with random weights gets the words of the training data.
        columns = chain.from_iterable(part.columns for part in data)
        encoder = Encoder.load(
            base,
            config.pooling,
            config.dtype,
            device,
            self.home,
            config.seed,
            vocabulary_of=chain.from_iterable(columns),
        )
        longest = config.max_length or encoder.max_length
        if longest > encoder.max_length:
            raise InputError(
                f"max_length is {longest}, but {base} takes {encoder.max_length} tokens at most"
            )
        drops_out = has_dropout(encoder.backbone) or has_dropout(encoder.head)
        for part in config.parts:
            if part.facts.needs_dropout and not drops_out:
                raise InputError(
                    f"{base} has no dropout, by which the two vectors of a sentence differ in {part.objective}; "
                    "choose another base"
                )
        prompts = dict(encoder.prompts)
        if config.query_prompt is not None:
            prompts["query"] = config.query_prompt
        if config.document_prompt is not None:
            prompts["document"] = config.document_prompt
        # Columns have roles if the config has a prompt. Their prompts may differ in length, but in
        # training all columns are pooled by one function, which skips one number of tokens.
        if config.role(0) and not encoder.model_format.include_prompt:
            raise InputError(
                f"{base} leaves its prompt out of the pooling; train it with one prompt, as ?prompt=…"
            )
        layout = replace(encoder.model_format, max_length=longest, dimension=None, prompts=prompts)
        parts = EncoderParts(
            encoder.backbone, encoder.tokenizer, layout, encoder.source, encoder.head
        )
        return Encoder(encoder.name, parts, encoder.dtype), encoder.model_format.dimension

    def _mine_negatives(self, encoder: Encoder, data: Dataset) -> MinedNegatives:
        """Mines triplets with hard negatives and writes them to the run's folder. A resumed run reads them there."""
        mined = None if self.folder is None else MinedNegatives.read(self.folder, data)
        if mined is None:
            mined = mine_negatives(
                encoder,
                data,
                self.config.negative_margin,
                self.config.seed,
                should_stop=self.should_stop,
            )
            if self.folder is not None and self.accelerator.is_main_process:
                mined.write(self.folder)
        return mined

    def _with_targets(
        self, encoder: Encoder, data: Sequence[Dataset], dev_rows: Dataset | None
    ) -> tuple[list[Examples], Examples | None]:
        """Adds targets to the training data, and to the evaluation data in the form of the first part that it fits."""
        config = self.config
        training: list[Examples] = []
        loss_examples: Examples | None = None
        for number, (part, rows) in enumerate(zip(config.parts, data, strict=True)):
            target = part.facts.target
            label: Callable[[Dataset], Examples] = partial(own_targets, target=target)
            if part.facts.needs_teacher():
                label = Teacher(config, encoder, target, self.home, self.should_stop).label
            # The training data comes first, as a teacher fits its PCA in the first call.
            training.append(replace(label(rows), part=number))
            if loss_examples is None:
                loss_data = self._loss_data(part.facts, rows, dev_rows)
                if loss_data is not None:
                    loss_examples = replace(label(loss_data), part=number)
        return training, loss_examples

    def _loss_data(
        self, objective: type[Objective], training: Dataset, dev_rows: Dataset | None
    ) -> Dataset | None:
        """Returns the evaluation data in the form that the objective needs.

        None if the loss on this data cannot be computed, or not compared with the loss in training.
        """
        if dev_rows is None or objective.needs_dropout or objective.predicts_tokens:
            return None
        try:
            transformed = objective.transform(dev_rows, self.config.seed)
        except InputError:
            # For a cross-encoder nothing else could be measured.
            if objective.scores_pairs:
                raise
            return None
        has_same_labels = dev_rows.label_names == training.label_names
        is_alike = has_same_labels and dev_rows.kind == training.kind
        # The caller's objective is only known to take the form of the training data.
        if objective is OwnObjective and not is_alike:
            return None
        # The number of a label must mean the same in both. An objective of the caller, whose target
        # is not declared, may get labels too.
        if objective.target in (LABELS, None) and transformed.label_names != training.label_names:
            return None
        # With fewer or more columns, such as without negatives, it is another loss.
        if len(transformed.columns) != len(training.columns):
            return None
        return transformed

    def _model(
        self, encoder: Encoder, data: list[Dataset], batches: MixedBatches, micro_batches: int
    ) -> TrainingModel:
        """Makes the model of the training loop, with an objective for each part of the data."""
        config = self.config
        accelerator = self.accelerator
        objectives: list[Objective] = []
        for part, rows in zip(config.parts, data, strict=True):
            if self.extras.objective and part.facts is OwnObjective:
                objectives.append(OwnObjective(self.extras.objective))
            else:
                objectives.append(
                    part.facts.build(config, encoder.full_dimension, len(rows.label_names))
                )
        if not micro_batches:
            num_rows = min(config.batch_size, config.mini_batch_size or config.batch_size)
            # The sentences that are computed at a time.
            micro_batches = default_micro_batches(encoder.device, num_rows * batches.columns)
        return TrainingModel(
            encoder,
            objectives,
            # The token ids whose embeddings are trained. With weight decay they are all trained
            # (None), as it also changes the embeddings of tokens that do not occur.
            None if config.weight_decay else batches.used,
            # Each process needs a seed of its own, so that it drops different units. The factor
            # 1,000 is arbitrary.
            seed=1_000 * (config.seed * accelerator.num_processes + accelerator.process_index),
            rank=config.lora_rank,
            num_micro_batches=micro_batches,
            mini_batch_size=config.mini_batch_size,
            max_tokens=config.max_tokens,
            matryoshka_dims=config.matryoshka_dims,
        )
