"""Train an adapter for assets/cross-encoder: LoRA over a sentence encoder, on the STS benchmark.

    python -m scripts.train_cross_encoder assets/cross-encoder/mpnet-stsb --base all-mpnet-base-v2 --rank 8 --lr 4e-4
    python -m scripts.train_cross_encoder assets/cross-encoder/minilm-stsb --teacher mpnet-stsb --pairs FILE
    python -m scripts.train_cross_encoder assets/cross-encoder/minilm-stsb --measure

It is a run of the product's trainer, on STSb train; STSb dev chooses the checkpoint, and STSb test
is evaluated once, at the end. The run trains the joint head and LoRA factors, and its model has
them merged into the transformer. The factors of the adapter are computed from the difference of each
weight from the base, which has the rank of the LoRA factors.

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

TRAIN = "stsb:train"
DEV = "stsb:dev"
TEST = "stsb:test"
# Weights with fewer elements are the cross biases, the scale and the shift of the head, which need
# large steps.
FEW = 500
RATE_OF_FEW = 2e-2


def optimiser(groups: Sequence[dict[str, Any]], rate: float) -> torch.optim.AdamW:
    """AdamW with the learning rate ``rate``, except for weights of few elements."""
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
    neighbour_pairs: set[tuple[str, str]] = set()
    # The nearest of the three is mostly the sentence itself.
    for number, hits in enumerate(semantic_search(vectors, vectors, top_k=3)):
        neighbours = [hit["corpus_id"] for hit in hits if hit["corpus_id"] != number]
        for neighbour in neighbours[:2]:
            a, b = sorted((sentences[number], sentences[neighbour]))
            neighbour_pairs.add((a, b))
    # The pairs of STSb train have gold scores.
    neighbour_pairs -= {tuple(sorted(pair)) for pair in zip(first, second, strict=True)}
    pairs = sorted(neighbour_pairs)
    for file in files:
        pairs += zip(*load_data(str(file)).columns, strict=True)
    held_out: set[str] = set()
    for name in (DEV, TEST):
        held_out.update(*load_data(name).columns)
    allowed = [pair for pair in pairs if held_out.isdisjoint(pair)]
    return random.Random(0).sample(allowed, min(count, len(allowed)))


def write_labelled(path: Path, teacher: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Writes a file to train on: pairs with the teacher's scores, on the scale of gold scores."""
    scores = CrossEncoder.load(teacher).predict(pairs, show_progress_bar=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["sentence1", "sentence2", "score"])
        for pair, score in zip(pairs, scores.tolist(), strict=True):
            writer.writerow((*pair, f"{5 * score:.4f}"))


@torch.no_grad()
def write_adapter(folder: Path, model: str, base: str, rank: int) -> None:
    """Writes the files of an adapter, except the card, from the model of a run. LoRA factors are in float16."""
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
        change = scorer.transformer.get_submodule(name).weight - before.get_submodule(name).weight
        # peft multiplies the product of the factors by this number.
        scale = lora.lora_alpha / rank
        up, values, down = torch.linalg.svd(change / scale, full_matrices=False)
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


def make(folder: Path, config: RunConfig, teacher: str, files: Sequence[Path], count: int) -> None:
    """Trains an adapter into ``folder``, and writes its card, with Spearman on dev.

    A ``teacher`` labels at most ``count`` further pairs; "" stands for none.
    """
    with TemporaryDirectory() as temporary:
        more = ""
        if teacher:
            pairs = unlabelled_pairs(config.base, files, count)
            labelled = Path(temporary) / "taught.csv"
            write_labelled(labelled, teacher, pairs)
            more = f"; {len(pairs):,} more pairs scored by {teacher}"
            config = config.replace(train_data=f"{config.train_data}+{labelled}")
        run = Path(temporary) / "run"
        result = train(
            config, folder=run, optimizer=lambda groups: optimiser(groups, config.learning_rate)
        )
        if result.status != "finished" or result.path is None:
            raise InputError(f"the run {result.status}: {result.reason}")
        with replace_folder(folder) as fresh:
            write_adapter(fresh, result.path, config.base, config.lora_rank)
            names = [file.name for file in files]
            write_json(fresh / "card.json", card(folder.name, config, result, more, names))
    measure(folder, DEV)


def card(
    name: str, config: RunConfig, result: RunResult, more: str, files: Sequence[str]
) -> dict[str, Any]:
    """The adapter's card, which the app shows with its scores. ``more`` are words on further pairs."""
    settings = {
        "base": config.base,
        "rank": config.lora_rank,
        "epochs": config.epochs,
        "batch_size": config.batch_size,
        "lr": config.learning_rate,
        "lr_cross": RATE_OF_FEW,
        "warmup": config.warmup,
        "seed": config.seed,
    }
    rho_by_step = {}
    for evaluation in result.evaluations:
        rho_by_step[evaluation["step"]] = round(100 * evaluation["spearman"], 2)
    return {
        "name": name,
        "base": config.base,
        "data": f"STS benchmark train, 5,749 pairs{more}",
        "pairs_from": [TRAIN, *files],
        "chosen_on": f"{DEV}, best evaluation",
        "spearman": {},
        "dev_by_step": rho_by_step,
        "settings": settings,
        "licence": "CC BY-SA 4.0 (training data); base Apache-2.0",
    }


def measure(folder: Path, name: str) -> None:
    """Writes Spearman ×100 on a split into the card, measured with ``CrossEncoder.predict``."""
    data = load_data(name)
    model = CrossEncoder.load(str(folder))
    scores = model.predict(list(zip(*data.columns, strict=True)))
    rho = round(100 * spearman(scores, np.array(data.scores)), 2)
    split = name.rpartition(":")[2]
    about = dict(model.card or {})
    about["spearman"] = {**about["spearman"], split: rho}
    write_json(folder / "card.json", about)
    print(f"{folder.name}: {split} {rho}")


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
