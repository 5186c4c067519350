"""Training: seconds per optimiser step, compared with SentenceTransformerTrainer on the same data and machine.

Both fine-tune the same base by regression on the STS benchmark (batches of 16, 2e-5, 10% warm-up),
anew in every round. Time is measured from the end of the fifth step to the end of the last, so
loading and evaluation do not count. The mean loss over all steps is reported too: the order of the
batches differs, the curve should not.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from unittest.mock import patch

import torch

from benchmarks import machine
from training.data.load import load_data
from training.errors import InputError
from training.sources.resolve import model_folder
from training.trainer.config import RunConfig
from training.trainer.train import train
from training.trainer.trainer import Trainer

# The number of the first steps that are not timed.
WARM_UP = 5
# More steps between two evaluations than a run has.
NEVER = 10**7


@dataclass
class Curve:
    """The steps of one trainer in one round."""

    # The ends of the steps, in seconds of `time.perf_counter`.
    ends: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    # The number of steps in all.
    steps: int = 0
    # The numbers of the steps in ``ends``, counted from 1. An empty list stands for all steps.
    numbers: list[int] = field(default_factory=list)

    @property
    def seconds_per_step(self) -> float:
        numbers = self.numbers or list(range(1, len(self.ends) + 1))
        first = next(position for position, number in enumerate(numbers) if number >= WARM_UP)
        num_steps = numbers[-1] - numbers[first]
        return (self.ends[-1] - self.ends[first]) / num_steps


# Its arguments are the number of steps and the seed.
TrainFunction = Callable[[int, int], Curve]


def run(
    rounds: int = 3,
    against: str | None = "sentence-transformers",
    base: str = "all-MiniLM-L6-v2",
    steps: int = 45,
) -> dict[str, Any]:
    """Measure all trainers, alternating.

    Args:
        rounds: how often each trainer is measured; the median is reported.
        against: "sentence-transformers", or None to measure SBERT Lab alone.
        base: a model that both can open.
        steps: per round, of 16 pairs each.

    Returns:
        Plain JSON. ``rows`` is the table, SBERT Lab's default first; ``times_ours`` is the time
            relative to that.

    Raises:
        InputError: ``against`` is unknown or not installed.
    """
    if against not in (None, "sentence-transformers"):
        raise InputError(
            f"there is no comparison against {against!r}; choose sentence-transformers"
        )
    description = machine.describe()
    trainers = {
        "SBERT Lab, auto": sbert_lab(base, "auto"),
        "SBERT Lab, float32": sbert_lab(base, "float32"),
    }
    if against is not None:
        trainers[f"{against}, default"] = sentence_transformers(base, bf16=False)
        trainers[f"{against}, bf16"] = sentence_transformers(base, bf16=True)
    curves = measure(trainers, rounds, steps)
    language_models = {"SBERT Lab": sbert_lab(base, "auto", objective="mlm")}
    if against is not None:
        language_models["transformers, Trainer, bf16"] = transformers_trainer(base)
    mlm = measure(language_models, rounds, steps)
    return {
        "benchmark": "train",
        "base": base,
        "steps": steps,
        "rounds": rounds,
        # A batch has 16 pairs, or 16 sentences.
        "rows": table(curves, num_sentences=32),
        "mlm": table(mlm, num_sentences=16),
        "machine": description,
    }


def measure(trainers: dict[str, TrainFunction], rounds: int, steps: int) -> dict[str, list[Curve]]:
    """The curves of all trainers, which take turns."""
    curves: dict[str, list[Curve]] = {label: [] for label in trainers}
    for seed in range(rounds):
        for label, train_once in trainers.items():
            curves[label].append(train_once(steps, seed))
    return curves


def table(curves: dict[str, list[Curve]], num_sentences: int) -> list[dict[str, Any]]:
    """A row for each side, with medians over the rounds. ``num_sentences`` are the sentences of a step."""
    rows: list[dict[str, Any]] = []
    for label, curves_of_side in curves.items():
        seconds = statistics.median(curve.seconds_per_step for curve in curves_of_side)
        loss = statistics.mean(loss for curve in curves_of_side for loss in curve.losses)
        rows.append(
            {"side": label, "seconds_per_step": round(seconds, 4), "mean_loss": round(loss, 4)}
        )
    for row in rows:
        row["sentences_per_second"] = round(num_sentences / row["seconds_per_step"])
        row["times_ours"] = round(row["seconds_per_step"] / rows[0]["seconds_per_step"], 2)
    return rows


def sbert_lab(
    base: str,
    dtype: str,
    batch_size: int = 16,
    data: str = "stsb:train",
    objective: str = "regression",
) -> TrainFunction:
    """Our trainer, without evaluation. ``data`` is named as in a `RunConfig`."""

    def train_once(steps: int, seed: int) -> Curve:
        curve = Curve(steps=steps)

        def record(event: dict[str, Any]) -> None:
            if event["kind"] == "train":
                curve.ends.append(time.perf_counter())
                curve.losses.append(event["loss"])
                curve.numbers.append(event["step"])

        config = RunConfig(
            objective,
            base=base,
            train_data=data,
            batch_size=batch_size,
            eval_data=None,
            max_steps=steps,
            eval_every=NEVER,
            seed=seed,
            dtype=dtype,
        )
        # The first and the last step would be evaluated otherwise.
        with patch.object(Trainer, "_evaluate", _skip_evaluation):
            result = train(config, on_event=record, folder=None)
        if result.status != "finished" or curve.numbers[-1] != steps:
            raise RuntimeError(
                f"the run {result.status} after {curve.numbers} of {steps} steps: {result.reason}"
            )
        return curve

    return train_once


def _skip_evaluation(trainer: Trainer) -> None:
    trainer.progress.evaluated = trainer.progress.step


def sentence_transformers(
    base: str, bf16: bool, batch_size: int = 16, data: str = "stsb:train"
) -> TrainFunction:
    """SentenceTransformerTrainer on scored pairs. InputError if it is not installed with what it needs."""
    try:
        from accelerate.state import AcceleratorState
        from datasets import Dataset
        from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
        from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
        from transformers import PrinterCallback
    except ImportError as error:
        raise InputError(
            "sentence-transformers is not installed: pip install sentence-transformers"
        ) from error
    loaded = load_data(data)
    assert loaded.scores is not None
    columns = {"sentence1": list(loaded.columns[0]), "sentence2": list(loaded.columns[1])}
    pairs = Dataset.from_dict({**columns, "score": [score / 5 for score in loaded.scores]})
    folder = str(model_folder(base).path)

    def train_once(steps: int, seed: int) -> Curve:
        curve = Curve(steps=steps)
        model = SentenceTransformer(folder, local_files_only=True)
        # The state keeps the precision of the last trainer, which is another one.
        AcceleratorState._reset_state(reset_partial_state=True)
        with tempfile.TemporaryDirectory() as out:
            options = trainer_options(steps, batch_size, seed)
            arguments = Arguments(output_dir=out, learning_rate=2e-5, bf16=bf16, **options)
            trainer = SentenceTransformerTrainer(
                model,
                arguments,
                train_dataset=pairs,
                loss=CosineSimilarityLoss(model),
                callbacks=[recorder(curve)],
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        AcceleratorState._reset_state(reset_partial_state=True)
        return curve

    return train_once


def transformers_trainer(
    base: str, batch_size: int = 16, data: str = "stsb:train"
) -> TrainFunction:
    """Masked language modelling of the different sentences by the Trainer of transformers, in bfloat16."""
    from accelerate.state import AcceleratorState
    from datasets import Dataset
    from transformers import (
        AutoModelForMaskedLM,
        AutoTokenizer,
        DataCollatorForLanguageModeling,
        PrinterCallback,
        TrainingArguments,
    )
    from transformers import Trainer as Theirs

    folder = str(model_folder(base).path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sentences = list(dict.fromkeys(chain.from_iterable(load_data(data).columns)))
    ids_of_sentences = tokenizer(sentences, truncation=True)["input_ids"]
    rows = Dataset.from_dict({"input_ids": ids_of_sentences})

    def train_once(steps: int, seed: int) -> Curve:
        curve = Curve(steps=steps)
        AcceleratorState._reset_state(reset_partial_state=True)
        with tempfile.TemporaryDirectory() as out:
            options = trainer_options(steps, batch_size, seed)
            arguments = TrainingArguments(output_dir=out, learning_rate=1e-4, bf16=True, **options)
            trainer = Theirs(
                AutoModelForMaskedLM.from_pretrained(folder),
                arguments,
                data_collator=DataCollatorForLanguageModeling(tokenizer),
                train_dataset=rows,
                callbacks=[recorder(curve)],
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        AcceleratorState._reset_state(reset_partial_state=True)
        return curve

    return train_once


def trainer_options(steps: int, batch_size: int, seed: int) -> dict[str, Any]:
    """Options of the trainers of other libraries, which log each step and write nothing else."""
    return {
        "max_steps": steps,
        "per_device_train_batch_size": batch_size,
        "warmup_steps": round(0.1 * steps),
        "seed": seed,
        "use_cpu": not torch.cuda.is_available(),
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def recorder(curve: Curve) -> Any:
    """A callback of the transformers library that records the end and the loss of each step."""
    from transformers import TrainerCallback

    class StepRecorder(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            curve.ends.append(time.perf_counter())

        def on_log(
            self, _: Any, __: Any, ___: Any, logs: dict[str, float] | None = None, **____: Any
        ) -> None:
            if logs and "loss" in logs:
                curve.losses.append(float(logs["loss"]))

    return StepRecorder()
