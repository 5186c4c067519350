"""Compare training runs of equal length with sentence-transformers' trainer by Spearman's ρ ×100 on STSb dev.

    python -m scripts.measure_parity --seeds 10 --steps 120

Regression on STSb train from all-MiniLM-L6-v2 in float32, batches of 16, dropout on, the same
schedule. Ours runs twice, with batches of similar length, as always, and with batches at random, as
the other trainer draws them. Every model is measured by the same code.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from training.catalogue import DEFAULT_MODEL
from training.data.load import load_data
from training.evaluation.scoring import evaluate
from training.models.encoder import Encoder
from training.sources.resolve import model_folder
from training.trainer import batches
from training.trainer.config import RunConfig
from training.trainer.train import train

BATCH_SIZE = 16
RATE = 2e-5
WARMUP = 0.1


def ours(steps: int, seed: int, folder: str, pool: int) -> None:
    """A run whose sentences are sorted by length within ``pool`` batches. With one batch, their order is random."""
    batches.POOL = pool
    # More steps than the run has.
    never = 10 * steps
    config = RunConfig(
        "regression", max_steps=steps, seed=seed, eval_every=never, dtype="float32", warmup=WARMUP
    )
    train(config, on_event=lambda _: None, folder=folder)


def theirs(steps: int, seed: int, folder: str) -> None:
    """The same by SentenceTransformerTrainer, which draws batches at random."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    data = load_data("stsb:train")
    columns = {"sentence1": list(data.columns[0]), "sentence2": list(data.columns[1])}
    rows = Dataset.from_dict({**columns, "score": [score / 5 for score in data.scores or ()]})
    model = SentenceTransformer(
        str(model_folder(DEFAULT_MODEL).path), local_files_only=True, device="cpu"
    )
    arguments = Arguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=RATE,
        warmup_steps=round(WARMUP * steps),
        seed=seed,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    SentenceTransformerTrainer(
        model, arguments, train_dataset=rows, loss=CosineSimilarityLoss(model)
    ).train()
    model.save_pretrained(f"{folder}/model")


TRAINERS: dict[str, Callable[[int, int, str], None]] = {
    "ours": lambda steps, seed, folder: ours(steps, seed, folder, 100),
    "ours, batches at random": lambda steps, seed, folder: ours(steps, seed, folder, 1),
    "sentence-transformers": theirs,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints ρ ×100 of each trainer and seed, then the means with their standard deviations."""
    parser = argparse.ArgumentParser(
        prog="scripts.measure_parity", description="Compare whole training runs."
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args(arguments)
    for name, trainer in TRAINERS.items():
        values = []
        for seed in range(args.seeds):
            with TemporaryDirectory() as folder:
                trainer(args.steps, seed, folder)
                weights = min(Path(folder).rglob("model.safetensors"))
                encoder = Encoder.load(str(weights.parent), dtype="float32")
                values.append(100 * evaluate(encoder, "stsb:dev")["spearman"]["cosine"])
            print(f"{name}, seed {seed}: {values[-1]:.2f}", flush=True)
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{name}: {statistics.fmean(values):.2f} ± {deviation:.2f}", flush=True)


if __name__ == "__main__":
    main()
