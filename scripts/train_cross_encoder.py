"""Train the adapters in assets/cross-encoder: LoRA over a sentence encoder, on the STS benchmark.

    python -m scripts.train_cross_encoder assets/cross-encoder/mpnet-stsb --base all-mpnet-base-v2 --rank 8 --lr 4e-4
    python -m scripts.train_cross_encoder assets/cross-encoder/minilm-stsb --epochs 2 --teacher mpnet-stsb --pairs FILE
    python -m scripts.train_cross_encoder assets/cross-encoder/minilm-stsb --measure

Training data is STSb train; the best epoch (of an exponential moving average of the weights) is selected on STSb dev,
and STSb test is evaluated once, at the end. With ``--teacher`` (augmented SBERT, Thakur et al. 2021) a stronger
cross-encoder first labels additional pairs, made of neighbouring sentences of STSb train and read from the files given
by ``--pairs``, and the student learns those scores too. Pairs with a sentence of STSb dev or test are excluded. Do not
give STS12 to STS16: they contain STSb's test pairs.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.atomic import replace_folder
from training.data.load import load_data
from training.evaluation.metrics import spearman
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder
from training.models.files import write_json
from training.models.joint_pair_model import JointPairModel
from training.models.pairs import PairRow, PairTokenizer, pad_pairs

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Settings:
    """The hyperparameters, which are written into the adapter's card."""

    base: str = "all-MiniLM-L6-v2"
    rank: int = 32
    epochs: int = 3
    batch_size: int = 32
    lr: float = 5e-4  # of the LoRA factors
    lr_head: float = 2e-3
    lr_cross: float = 2e-2  # of the cross biases, scale and shift: a few hundred parameters that need large steps
    warmup: float = 0.06
    weight_decay: float = 0.01
    correlation: float = 0.3  # weight of (1 - Pearson's r within the batch), added to the cross-entropy
    average: float = 0.99  # decay of the moving average of the weights
    teacher: str = ""
    taught: int = 10_000  # the maximum number of pairs labelled by the teacher
    seed: int = 0


class Example(NamedTuple):
    """A pair with its score in 0..1."""

    row: PairRow
    score: float


class LoRACrossEncoder:
    """A JointPairModel whose transformer is frozen, with trainable LoRA factors."""

    def __init__(self, settings: Settings) -> None:
        from peft import LoraConfig, get_peft_model

        encoder = Encoder.load(settings.base, dtype="float32", device="cpu")
        self.tokenizer = PairTokenizer(encoder.tokenizer, encoder.max_length, separately=True)
        transformer: Any = encoder.backbone.requires_grad_(False)
        linear = [name for name, module in transformer.encoder.named_modules() if isinstance(module, nn.Linear)]
        for name in linear:  # frozen weights are cast once instead of in every step
            transformer.encoder.get_submodule(name).to(torch.bfloat16)
        targets = [f"encoder.{name}" for name in linear]
        lora = LoraConfig(r=settings.rank, lora_alpha=2 * settings.rank, target_modules=targets)
        self.peft = get_peft_model(transformer, lora)
        self.scorer = JointPairModel(transformer)
        self.trained = {name: p for name, p in self.scorer.named_parameters() if p.requires_grad}

    def logits(self, rows: Sequence[PairRow]) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.scorer(pad_pairs(rows, self.tokenizer.pad_id, CPU)).float()

    @torch.no_grad()
    def spearman(self, examples: Sequence[Example]) -> float:
        """Spearman ×100 on ``examples``."""
        self.scorer.eval()
        scores = np.empty(len(examples))
        order = sorted(range(len(examples)), key=lambda i: len(examples[i].row.ids))
        for start in range(0, len(order), 64):
            part = order[start : start + 64]
            scores[part] = self.logits([examples[i].row for i in part]).numpy()
        self.scorer.train()
        return 100 * spearman(scores, np.array([example.score for example in examples]))

    def save(self, folder: Path, settings: Settings) -> None:
        """Write the files that ``CrossEncoder.load`` reads, except the card. The LoRA factors are in float16."""
        from safetensors.torch import load_file, save_file

        self.peft.peft_config["default"].base_model_name_or_path = settings.base
        self.peft.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        factors = load_file(folder / "adapter_model.safetensors")
        save_file({k: v.half() for k, v in factors.items()}, folder / "adapter_model.safetensors")
        save_file({k: v.clone() for k, v in self.scorer.head_tensors().items()}, folder / "head.safetensors")


def stsb_examples(model: LoRACrossEncoder, split: str) -> list[Example]:
    """A split of the STS benchmark, scores divided by 5."""
    data = load_data(f"stsb:{split}")
    rows = model.tokenizer(list(zip(*data.columns, strict=True)))
    return [Example(row, score / 5) for row, score in zip(rows, data.scores or [], strict=True)]


def batches(examples: Sequence[Example], size: int) -> Iterator[list[Example]]:
    """One epoch in batches of similar length: shuffle, sort within pools of 50 batches, shuffle the batches."""
    order = random.sample(range(len(examples)), len(examples))
    pools = [order[start : start + 50 * size] for start in range(0, len(order), 50 * size)]
    order = [i for pool in pools for i in sorted(pool, key=lambda i: len(examples[i].row.ids))]
    parts = [order[start : start + size] for start in range(0, len(order), size)]
    for part in random.sample(parts, len(parts)):
        yield [examples[i] for i in part]


def swapped(row: PairRow) -> PairRow:
    """The pair in reverse order. The model is symmetric, dropout is not."""
    return PairRow(row.ids[row.split :] + row.ids[: row.split], len(row.ids) - row.split, row.truncated)


class MovingAverage:
    """Exponential moving average of the trained weights; ``swap`` exchanges it with the weights."""

    def __init__(self, trained: dict[str, nn.Parameter], decay: float) -> None:
        self.trained, self.decay, self.steps = trained, decay, 0
        self.mean = {name: p.detach().clone() for name, p in trained.items()}

    @torch.no_grad()
    def update(self) -> None:
        self.steps += 1
        decay = min(self.decay, self.steps / (self.steps + 10))  # so that the initial weights are forgotten quickly
        for name, p in self.trained.items():
            self.mean[name].lerp_(p, 1 - decay)

    @torch.no_grad()
    def swap(self) -> None:
        for name, p in self.trained.items():
            kept = p.detach().clone()
            p.copy_(self.mean[name])
            self.mean[name] = kept


def optimiser(trained: dict[str, nn.Parameter], settings: Settings) -> torch.optim.AdamW:
    """AdamW with three parameter groups: LoRA factors; head weights; scale, shift and cross biases."""
    groups: dict[str, list[nn.Parameter]] = {"lora": [], "head": [], "few": []}
    for name, p in trained.items():
        groups["lora" if "lora_" in name else "head" if ".linear." in name else "few"].append(p)
    return torch.optim.AdamW(
        [
            {"params": groups["lora"], "lr": settings.lr, "weight_decay": settings.weight_decay},
            {"params": groups["head"], "lr": settings.lr_head, "weight_decay": settings.weight_decay},
            {"params": groups["few"], "lr": settings.lr_cross, "weight_decay": 0.0},
        ],
        betas=(0.9, 0.98),
    )


def loss_of(logits: Tensor, scores: Tensor, correlation: float) -> Tensor:
    """Cross-entropy against the score in 0..1, and 1 - Pearson's r of the batch."""
    r = torch.corrcoef(torch.stack([torch.sigmoid(logits), scores]))[0, 1]
    return F.binary_cross_entropy_with_logits(logits, scores) + correlation * (1 - r)


def fit(
    model: LoRACrossEncoder, examples: list[Example], dev: list[Example], settings: Settings, folder: Path
) -> list[float]:
    """Train and save the best epoch's average to ``folder``. Returns Spearman ×100 on dev, before and per epoch."""
    optimizer = optimiser(model.trained, settings)
    total = settings.epochs * math.ceil(len(examples) / settings.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / (settings.warmup * total)) * max(0.0, 1 - step / total)
    )
    average, history, started = (
        MovingAverage(model.trained, settings.average),
        [model.spearman(dev)],
        time.time(),
    )
    for epoch in range(1, settings.epochs + 1):
        for step, batch in enumerate(batches(examples, settings.batch_size)):
            rows = [swapped(x.row) if random.random() < 0.5 else x.row for x in batch]
            loss = loss_of(model.logits(rows), torch.tensor([x.score for x in batch]), settings.correlation)
            loss.backward()
            nn.utils.clip_grad_norm_(list(model.trained.values()), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            average.update()
            if step % 100 == 0:
                print(f"epoch {epoch} step {step}: loss {loss:.3f}, {time.time() - started:.0f} s", flush=True)
        average.swap()
        history.append(model.spearman(dev))
        if history[-1] == max(history[1:]):
            model.save(folder, settings)
        average.swap()
        print(f"epoch {epoch}: dev {history[-1]:.2f}, {time.time() - started:.0f} s", flush=True)
    return history


def held_out() -> set[str]:
    """The sentences of STSb dev and test, which no training pair may contain."""
    return {text for split in ("dev", "test") for column in load_data(f"stsb:{split}").columns for text in column}


def unlabelled_pairs(base: str, files: Sequence[Path], count: int) -> list[tuple[str, str]]:
    """Pairs for the teacher: each sentence of STSb train with its two nearest, and the pairs of the files."""
    first, second = load_data("stsb:train").columns
    sentences = list(dict.fromkeys(first + second))
    vectors = Encoder.load(base).encode(sentences)
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -1)
    near = np.argsort(-similarity, axis=1)[:, :2]
    pairs = {tuple(sorted((sentences[i], sentences[j]))) for i, row in enumerate(near) for j in row}
    pairs -= {tuple(sorted(pair)) for pair in zip(first, second, strict=True)}
    files_pairs = [pair for file in files for pair in zip(*load_data(str(file)).columns, strict=True)]
    forbidden = held_out()
    allowed = [pair for pair in sorted(pairs) + files_pairs if not forbidden & set(pair)]
    return random.Random(0).sample(allowed, min(count, len(allowed)))


def taught_examples(model: LoRACrossEncoder, settings: Settings, files: Sequence[Path], kept: Path) -> list[Example]:
    """The unlabelled pairs with the teacher's scores, saved to ``kept`` as they come, so that a new run resumes."""
    pairs = unlabelled_pairs(settings.base, files, settings.taught)
    scores = [float(line) for line in kept.read_text().split()] if kept.exists() else []
    teacher = CrossEncoder.load(settings.teacher)
    for start in range(len(scores), len(pairs), 1_000):
        scores += teacher.predict(pairs[start : start + 1_000]).tolist()
        kept.write_text("\n".join(map(str, scores)))
        print(f"{settings.teacher}: {len(scores):,} of {len(pairs):,} pairs", flush=True)
    rows = model.tokenizer(pairs)
    return [Example(row, score) for row, score in zip(rows, scores, strict=True)]


def card(name: str, settings: Settings, files: Sequence[Path], taught: int, history: list[float]) -> dict[str, Any]:
    """The adapter's card, which the app shows with its scores."""
    teacher = f"; {taught:,} more pairs scored by {settings.teacher}" if taught else ""
    return {
        "name": name,
        "base": settings.base,
        "data": f"STS benchmark train, 5,749 pairs{teacher}",
        "pairs_from": ["stsb:train", *(file.name for file in files)],
        "chosen_on": "stsb:dev, best epoch",
        "spearman": {},
        "dev_by_epoch": [round(value, 2) for value in history],
        "settings": asdict(settings),
        "licence": "CC BY-SA 4.0 (training data); base Apache-2.0",
    }


def train(folder: Path, settings: Settings, files: Sequence[Path]) -> None:
    """Train an adapter into ``folder`` and write its card, with Spearman on dev."""
    torch.manual_seed(settings.seed)
    random.seed(settings.seed)
    model = LoRACrossEncoder(settings)
    gold, dev = stsb_examples(model, "train"), stsb_examples(model, "dev")
    kept = folder.with_suffix(".scores")
    taught = taught_examples(model, settings, files, kept) if settings.teacher else []
    with replace_folder(folder) as fresh:
        history = fit(model, gold + taught, dev, settings, fresh)
        write_json(fresh / "card.json", card(folder.name, settings, files, len(taught), history))
    kept.unlink(missing_ok=True)
    measure(folder, "dev")


def measure(folder: Path, split: str) -> None:
    """Write Spearman ×100 on a split into the card, measured with ``CrossEncoder.predict``."""
    data, model = load_data(f"stsb:{split}"), CrossEncoder.load(str(folder))
    scores = model.predict(list(zip(*data.columns, strict=True)))
    about = dict(model.card or {})
    about["spearman"] = {**about["spearman"], split: round(100 * spearman(scores, np.array(data.scores)), 2)}
    write_json(folder / "card.json", about)
    print(f"{folder.name}: {split} {about['spearman'][split]}")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line: train, or evaluate on STSb test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the adapter's folder")
    parser.add_argument("--measure", action="store_true", help="do not train, evaluate on STSb test")
    parser.add_argument("--pairs", nargs="*", type=Path, default=[], help="files of pairs for the teacher")
    for field, default in asdict(Settings()).items():
        parser.add_argument(f"--{field.replace('_', '-')}", type=type(default), default=default)
    options = vars(parser.parse_args(arguments))
    folder, files = options.pop("folder"), options.pop("pairs")
    if options.pop("measure"):
        measure(folder, "test")
    else:
        train(folder, Settings(**options), files)


if __name__ == "__main__":
    main()
