"""Train an adapter for assets/cross-encoder: LoRA over a sentence encoder, on the STS benchmark.

    python -m scripts.train_cross_encoder assets/cross-encoder/mpnet-stsb --base all-mpnet-base-v2 --rank 8 --lr 4e-4
    python -m scripts.train_cross_encoder assets/cross-encoder/minilm-stsb --teacher mpnet-stsb --pairs FILE
    python -m scripts.train_cross_encoder assets/cross-encoder/minilm-stsb --measure

It is a run of the product's trainer, on STSb train; STSb dev chooses the checkpoint, and STSb test
is evaluated once, at the end. The run trains the joint head and LoRA factors, and its model has
them merged into the transformer. The adapter is what the run has added to each weight, which has
the rank of its factors.

With ``--teacher`` (augmented SBERT, Thakur et al. 2021) a stronger cross-encoder first labels
additional pairs, made of neighbouring sentences of STSb train and read from the files given by
``--pairs``, and the run learns those scores too. Pairs with a sentence of STSb dev or test are
excluded. Do not give STS12 to STS16: they contain STSb's test pairs.
"""

import argparse
import csv
import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.atomic import replace_folder
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.metrics import spearman
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder
from training.models.files import write_json
from training.search import semantic_search
from training.trainer.config import RunConfig
from training.trainer.train import RunResult, train

TRAIN, DEV, TEST = "stsb:train", "stsb:dev", "stsb:test"
# The cross biases, the scale and the shift of the head are a few hundred parameters, which need
# large steps.
FEW, RATE_OF_FEW = 500, 2e-2


def optimiser(groups: Sequence[dict[str, Any]], rate: float) -> torch.optim.AdamW:
    """AdamW with one learning rate for the LoRA factors and the head, and another for the few parameters."""
    weights = [weight for group in groups for weight in group["params"]]
    few = {
        "params": [weight for weight in weights if weight.numel() < FEW],
        "lr": RATE_OF_FEW,
        "weight_decay": 0.0,
    }
    many = {
        "params": [weight for weight in weights if weight.numel() >= FEW],
        "lr": rate,
        "weight_decay": 0.01,
    }
    return torch.optim.AdamW([many, few], betas=(0.9, 0.98))


def unlabelled_pairs(base: str, files: Sequence[Path], count: int) -> list[tuple[str, str]]:
    """Pairs for the teacher: each sentence of STSb train with its two nearest, and the pairs of the files."""
    first, second = load_data(TRAIN).columns
    sentences = list(dict.fromkeys(first + second))
    vectors = Encoder.load(base).encode(sentences)
    # The nearest of all is mostly the sentence itself.
    near = [
        [hit["corpus_id"] for hit in hits] for hits in semantic_search(vectors, vectors, top_k=3)
    ]
    pairs = {
        tuple(sorted((sentences[i], sentences[j])))
        for i, rows in enumerate(near)
        for j in [row for row in rows if row != i][:2]
    }
    pairs -= {tuple(sorted(pair)) for pair in zip(first, second, strict=True)}
    of_files = [pair for file in files for pair in zip(*load_data(str(file)).columns, strict=True)]
    held_out = {
        text for name in (DEV, TEST) for column in load_data(name).columns for text in column
    }
    allowed = [pair for pair in sorted(pairs) + of_files if not held_out & set(pair)]
    return random.Random(0).sample(allowed, min(count, len(allowed)))


def write_taught(file: Path, teacher: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Pairs with the teacher's scores, on the scale of gold scores, as a file to train on."""
    scores = CrossEncoder.load(teacher).predict(pairs, show_progress_bar=True)
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened)
        writer.writerow(["sentence1", "sentence2", "score"])
        writer.writerows(
            (*pair, f"{5 * score:.4f}") for pair, score in zip(pairs, scores.tolist(), strict=True)
        )


@torch.no_grad()
def write_adapter(folder: Path, model: str, base: str, rank: int) -> None:
    """The files that `CrossEncoder.load` reads, except the card, of a run's model. LoRA factors are in float16."""
    from peft import LoraConfig
    from safetensors.torch import save_file

    scorer: Any = CrossEncoder.load(model, "float32", "cpu").scorer
    before: Any = Encoder.load(base, dtype="float32", device="cpu").backbone
    linear = [
        name
        for name, module in before.encoder.named_modules(prefix="encoder")
        if isinstance(module, nn.Linear)
    ]
    lora = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=linear, inference_mode=True)
    lora.base_model_name_or_path = base
    factors: dict[str, Tensor] = {}
    for name in linear:
        added = scorer.transformer.get_submodule(name).weight - before.get_submodule(name).weight
        up, values, down = torch.linalg.svd(added / (lora.lora_alpha / rank), full_matrices=False)
        roots = values[:rank].sqrt()
        factors[f"base_model.model.{name}.lora_A.weight"] = roots[:, None] * down[:rank]
        factors[f"base_model.model.{name}.lora_B.weight"] = up[:, :rank] * roots
    lora.save_pretrained(folder)
    tensors = {name: factor.half().contiguous() for name, factor in factors.items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    save_file(
        {name: tensor.clone() for name, tensor in scorer.head_tensors().items()},
        folder / "head.safetensors",
    )


def make(folder: Path, config: RunConfig, teacher: str, files: Sequence[Path], taught: int) -> None:
    """Train an adapter into ``folder`` and write its card, with Spearman on dev."""
    with TemporaryDirectory() as place:
        more = ""
        if teacher:
            pairs = unlabelled_pairs(config.base, files, taught)
            write_taught(Path(place) / "taught.csv", teacher, pairs)
            more = f"; {len(pairs):,} more pairs scored by {teacher}"
            config = config.replace(train_data=f"{config.train_data}+{place}/taught.csv")
        run = Path(place) / "run"
        result = train(
            config, folder=run, optimizer=lambda groups: optimiser(groups, config.learning_rate)
        )
        if result.status != "finished" or result.path is None:
            raise InputError(f"the run {result.status}: {result.reason}")
        with replace_folder(folder) as fresh:
            write_adapter(fresh, result.path, config.base, config.lora_rank)
            write_json(
                fresh / "card.json",
                card(folder.name, config, result, more, [file.name for file in files]),
            )
    measure(folder, DEV)


def card(
    name: str, config: RunConfig, result: RunResult, more: str, files: Sequence[str]
) -> dict[str, Any]:
    """The adapter's card, which the app shows with its scores."""
    settings = {
        "base": config.base,
        "rank": config.lora_rank,
        "epochs": config.epochs,
        "batch_size": config.batch_size,
    }
    settings |= {
        "lr": config.learning_rate,
        "lr_cross": RATE_OF_FEW,
        "warmup": config.warmup,
        "seed": config.seed,
    }
    return {
        "name": name,
        "base": config.base,
        "data": f"STS benchmark train, 5,749 pairs{more}",
        "pairs_from": [TRAIN, *files],
        "chosen_on": f"{DEV}, best evaluation",
        "spearman": {},
        "dev_by_step": {
            evaluation["step"]: round(100 * evaluation["spearman"], 2)
            for evaluation in result.evaluations
        },
        "settings": settings,
        "licence": "CC BY-SA 4.0 (training data); base Apache-2.0",
    }


def measure(folder: Path, name: str) -> None:
    """Write Spearman ×100 on a split into the card, measured with ``CrossEncoder.predict``."""
    data, model, split = load_data(name), CrossEncoder.load(str(folder)), name.rpartition(":")[2]
    scores = model.predict(list(zip(*data.columns, strict=True)))
    about = dict(model.card or {})
    about["spearman"] = {
        **about["spearman"],
        split: round(100 * spearman(scores, np.array(data.scores)), 2),
    }
    write_json(folder / "card.json", about)
    print(f"{folder.name}: {split} {about['spearman'][split]}")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line: train, or evaluate on STSb test."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the adapter's folder")
    parser.add_argument(
        "--measure", action="store_true", help="do not train, evaluate on STSb test"
    )
    parser.add_argument("--base", default="all-MiniLM-L6-v2")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-4, help="of the LoRA factors and the head")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--teacher", default="", help="a cross-encoder that labels more pairs")
    parser.add_argument(
        "--taught", type=int, default=10_000, help="the most pairs that the teacher labels"
    )
    parser.add_argument(
        "--pairs", nargs="*", type=Path, default=[], help="files of pairs for the teacher"
    )
    options = parser.parse_args(arguments)
    if options.measure:
        measure(options.folder, TEST)
        return
    config = RunConfig(
        "cross-encoder",
        base=options.base,
        head="joint",
        train_data=TRAIN,
        eval_data=DEV,
        lora_rank=options.rank,
        epochs=options.epochs,
        max_steps=options.max_steps,
        batch_size=options.batch_size,
        learning_rate=options.lr,
        warmup=0.06,
        seed=options.seed,
    )
    make(options.folder.absolute(), config, options.teacher, options.pairs, options.taught)


if __name__ == "__main__":
    main()
