"""One part of the GPU benchmark, in a process of its own: python -m benchmarks.gpu_parts PART --device cuda [--small]

Prints a line of JSON for each row as soon as it is measured. `benchmarks.gpu` says what the parts
are.

The sentences are taken from the STS benchmark. If there are too few, they are repeated with their
words in other orders: other strings with the same number of tokens. A rate is measured over whole
calls, from strings to arrays in the memory of the host, and is the median of the rounds.
"""

import argparse
import json
import logging
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import gpu_home, gpu_train, machine
from benchmarks.encode import flop_per_token
from training.catalogue import DEFAULT_MODEL
from training.evaluation.scoring import evaluate
from training.inference.layers import has_varlen
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import GPU_CHUNK, Encoder, ReadReport
from training.search import most_similar_pairs

Row = dict[str, Any]
Sentences = list[str]


@dataclass(frozen=True)
class Sizes:
    """The sizes of what is measured."""

    # A model of BERT-base's shape.
    base: str
    sentences: int
    # The model of BERT-base's shape encodes this fraction of the sentences: 4 stands for a quarter.
    base_share: int
    pairs: int
    # Batch sizes of sentence-transformers, of which the best counts; our batches hold
    # `TOKEN_BUDGET` tokens.
    batches: tuple[int, ...]
    rounds: int
    # Rows and columns of the matrices whose product is the peak.
    product: int
    # The number of models that are profiled.
    profiled: int
    # sentence-transformers takes longer, so it encodes a fraction of them, too.
    peer_share: int


FULL = Sizes("scratch:12x768", 65_536, 4, 20_000, (512, 2_048), 3, 8_192, 2, 8)
SMALL = Sizes("scratch:2x64", 96, 2, 40, (16, 32), 1, 256, 1, 1)


@dataclass(frozen=True)
class Bench:
    """The device, the sizes and the folder of every part."""

    device: torch.device
    sizes: Sizes
    # Parts write there.
    folder: Path

    @property
    def models(self) -> dict[str, str]:
        """The names for `Encoder.load` by the names of the models in the tables."""
        return {"MiniLM-L6": DEFAULT_MODEL, "BERT-base": self.sizes.base}

    def load(self, model: str, dtype: str = "auto") -> Encoder:
        return Encoder.load(model, dtype=dtype, device=str(self.device))

    def seconds(self, work: Callable[[], Any]) -> float:
        """The median time of a call, after one that is not counted."""
        work()
        return statistics.median(machine.time_call(work).wall for _ in range(self.sizes.rounds))


def check(bench: Bench) -> Iterator[Row]:
    """The abilities of this device, and the distance of its vectors from those of float32 on the CPU."""
    sentences = some_sentences(512 if bench.device.type == "cuda" else 64)
    for label, name in bench.models.items():
        encoder = bench.load(name)
        config = encoder.backbone.config
        head_size = config.hidden_size // config.num_attention_heads
        expected = Encoder.load(name, dtype="float32", device="cpu").encode(sentences)
        vectors = encoder.encode(sentences)
        yield {
            "model": label,
            "dtype": str(encoder.dtype).removeprefix("torch."),
            "unpadded": has_varlen(bench.device, encoder.dtype, head_size),
            "lowest_cosine_with_float32": round(float((vectors * expected).sum(1).min()), 5),
            "largest_difference_from_float32": float(np.abs(vectors - expected).max()),
            "peak_tflops": round(peak(bench) / 1e12, 3),
        }


def rho(bench: Bench) -> Iterator[Row]:
    """Spearman's ρ on the STS benchmark's test set, if it is in the home folder, in float32 and in this dtype."""
    if not gpu_home.has_stsb():
        return
    for dtype in ("float32", "auto"):
        encoder = bench.load(DEFAULT_MODEL, dtype)
        yield {
            "model": DEFAULT_MODEL,
            "dtype": str(encoder.dtype).removeprefix("torch."),
            "spearman": evaluate(encoder, "stsb:test")["spearman"]["cosine"],
        }


def encode(bench: Bench) -> Iterator[Row]:
    """Sentences a second, ours and sentence-transformers' in float32 and in its fastest 16-bit dtype, in turn.

    Each side of sentence-transformers has the batch size that is fastest on a sample. Its attention
    is PyTorch's SDPA, which takes FlashAttention where a batch needs no mask.
    """
    all_sentences = some_sentences(bench.sizes.sentences)
    peak_flops = peak(bench)
    for label, name in bench.models.items():
        count = len(all_sentences)
        if name == bench.sizes.base:
            count //= bench.sizes.base_share
        sentences = all_sentences[:count]
        encoder = bench.load(name)
        report = ReadReport()
        encoder.encode(sentences, report=report)
        flop = report.tokens * flop_per_token(encoder.backbone)
        layout = "unpadded" if is_unpadded(encoder) else "packed rows"
        ours = f"SBERT Lab, {layout}, {batch_of(encoder, sentences)}"
        sides: dict[str, Callable[[], Any]] = {ours: partial(encoder.encode, sentences)}
        if is_unpadded(encoder):
            packed = bench.load(name)
            packed.inference.unpadded = False  # type: ignore[attr-defined]
            sides["SBERT Lab, packed rows"] = partial(packed.encode, sentences)
        sides["tokenising alone"] = partial(encoder.tokenize, sentences)
        folder = bench.folder / label
        encoder.save(folder)
        few = sentences[: len(sentences) // bench.sizes.peer_share]
        # float16 is fast on GPUs only.
        half_precisions = ["bfloat16"]
        if bench.device.type == "cuda":
            half_precisions.append("float16")
        for dtypes in (["float32"], half_precisions):
            side, theirs = best_peer(bench, folder, few, dtypes)
            sides[side] = partial(theirs, few)
        memory = {side: peak_memory(bench, work) for side, work in sides.items()}
        for side, times in machine.alternate(sides, bench.sizes.rounds).items():
            seconds = statistics.median(time.wall for time in times)
            # The share of the sentences that the side has encoded.
            share = 1.0
            if side.startswith("sentence-transformers"):
                share = len(few) / len(sentences)
            yield {
                "model": label,
                "side": side,
                "sentences_per_second": round(share * len(sentences) / seconds),
                "share_of_peak": share * flop / seconds / peak_flops,
                "memory_gb": memory[side],
            }


def cross(bench: Bench) -> Iterator[Row]:
    """Pairs a second of a cross-encoder of BERT-base's shape."""
    from sentence_transformers import CrossEncoder as Theirs
    from transformers import AutoConfig, AutoModelForSequenceClassification

    bench.load(bench.sizes.base).save(bench.folder)
    config = AutoConfig.from_pretrained(bench.folder, num_labels=1)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(bench.folder)
    sentences = some_sentences(2 * bench.sizes.pairs)
    pairs = list(zip(sentences[::2], sentences[1::2], strict=True))
    ours = CrossEncoder.load(str(bench.folder), device=str(bench.device))
    yield {
        "side": "SBERT Lab",
        "pairs_per_second": round(len(pairs) / bench.seconds(lambda: ours.predict(pairs))),
    }
    theirs = Theirs(str(bench.folder), device=str(bench.device), model_kwargs={"dtype": "bfloat16"})
    for size in bench.sizes.batches:
        seconds = bench.seconds(
            partial(theirs.predict, pairs, batch_size=size, show_progress_bar=False)
        )
        side = f"sentence-transformers, bfloat16, batches of {size}"
        yield {"side": side, "pairs_per_second": round(len(pairs) / seconds)}


def pairs(bench: Bench) -> Iterator[Row]:
    """The most similar pair of 10,000 sentences, from strings, exactly."""
    sentences = some_sentences(min(10_000, bench.sizes.sentences))
    encoder = bench.load(DEFAULT_MODEL)
    vectors = encoder.encode(sentences)
    encoding = bench.seconds(lambda: encoder.encode(sentences))
    comparing = bench.seconds(lambda: most_similar_pairs(vectors, 10))
    yield {
        "sentences": len(sentences),
        "seconds": encoding + comparing,
        "encoding": encoding,
        "comparing": comparing,
    }


def profile(bench: Bench) -> Iterator[Row]:
    """The kernels that encoding spends most of the device's time on."""
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    sentences = some_sentences(bench.sizes.sentences // 4)
    models = list(bench.models.items())[: bench.sizes.profiled]
    on_gpu = bench.device.type == "cuda"
    activities = [ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]
    for label, name in models:
        encoder = bench.load(name)
        encoder.encode(sentences)
        every_thread = _ExperimentalConfig(profile_all_threads=True)
        with profiled(activities=activities, experimental_config=every_thread) as profiler:
            encoder.encode(sentences)
        times = {}
        for kernel in profiler.key_averages():
            times[kernel.key] = (
                kernel.self_device_time_total if on_gpu else kernel.self_cpu_time_total
            )
        total = max(1, sum(times.values()))
        for key in sorted(times, key=lambda key: -times[key])[:12]:
            yield {"model": label, "what": key[:80], "share": round(times[key] / total, 3)}


def compiled(bench: Bench) -> Iterator[Row]:
    """Sentences a second when PyTorch compiles each layer."""
    sentences = some_sentences(bench.sizes.sentences)
    # On a CPU, a backend that compiles nothing shows that the benchmark works.
    backend = "inductor" if bench.device.type == "cuda" else "eager"
    for label, name in list(bench.models.items())[: bench.sizes.profiled]:
        encoder = bench.load(name)
        transformer: Any = encoder.inference.transformer  # type: ignore[attr-defined]
        transformer.layers = [
            torch.compile(layer.__call__, dynamic=True, backend=backend)
            for layer in transformer.layers
        ]
        rate = round(len(sentences) / bench.seconds(partial(encoder.encode, sentences)))
        yield {"model": label, "what": f"compiled by {backend}", "sentences_per_second": rate}


def some_sentences(count: int) -> Sentences:
    """Returns ``count`` different strings."""
    originals = gpu_home.sentences()
    draw = random.Random(0)
    sentences = dict.fromkeys(originals[:count])
    while len(sentences) < count:
        words = draw.choice(originals).split()
        draw.shuffle(words)
        sentences[" ".join(words)] = None
    return list(sentences)


def peak(bench: Bench) -> float:
    """FLOP/s of a large product in bfloat16: the best of ten."""
    size = bench.sizes.product
    a, b = torch.randn(2, size, size, device=bench.device, dtype=torch.bfloat16)

    def product() -> None:
        for _ in range(5):
            torch.mm(a, b)
        if bench.device.type == "cuda":
            torch.cuda.synchronize(bench.device)

    # The first call warms up.
    product()
    seconds = min(machine.time_call(product).wall for _ in range(10))
    # Each of the five products multiplies and adds size³ times.
    return 5 * 2 * size**3 / seconds


def is_unpadded(encoder: Encoder) -> bool:
    """Whether an encoder computes unpadded batches."""
    return bool(getattr(encoder.inference, "unpadded", False))


def batch_of(encoder: Encoder, sentences: Sentences) -> str:
    """The number of sentences that an encoder computes at a time, in words."""
    lengths = [len(ids) for ids in encoder.tokenize(sentences[:GPU_CHUNK])]
    num_batches = sum(1 for _ in encoder.inference.plan(lengths))
    return f"batches of {len(lengths) / num_batches:,.0f}"


def best_peer(
    bench: Bench, folder: Path, sentences: Sentences, dtypes: Sequence[str]
) -> tuple[str, Callable[[Sentences], np.ndarray]]:
    """The dtype and batch size with which sentence-transformers is fastest on a sample, in words, and its encode."""
    from sentence_transformers import SentenceTransformer

    sample = sentences[: len(sentences) // 4]
    trials: list[tuple[float, str, Callable[[Sentences], np.ndarray]]] = []
    for dtype in dtypes:
        model = SentenceTransformer(
            str(folder), device=str(bench.device), model_kwargs={"dtype": dtype}
        )
        for size in bench.sizes.batches:
            theirs = partial(
                model.encode, batch_size=size, normalize_embeddings=True, show_progress_bar=False
            )
            # The first call warms up.
            theirs(sample[:64])
            seconds = machine.time_call(partial(theirs, sample)).wall
            trials.append((seconds, f"sentence-transformers, {dtype}, batches of {size}", theirs))
    _, label, encode = min(trials, key=lambda trial: trial[0])
    return label, encode


def peak_memory(bench: Bench, work: Callable[[], Any]) -> float | None:
    """Gigabytes of the device's memory that a call held at most, beyond what was held before it; None on a CPU."""
    if bench.device.type != "cuda":
        work()
        return None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    return (torch.cuda.max_memory_allocated() - before) / 1e9


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "check": check,
    "rho": rho,
    "encode": encode,
    "train": lambda bench: gpu_train.rows(
        bench.device, bench.sizes.base, bench.folder, bench.sizes is SMALL
    ),
    "cross": cross,
    "pairs": pairs,
    "profile": profile,
    "compiled": compiled,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--device", required=True)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(
            torch.device(arguments.device), SMALL if arguments.small else FULL, Path(folder)
        )
        for row in PARTS[arguments.part](bench):
            for key, value in row.items():
                if isinstance(value, float):
                    row[key] = float(f"{value:.4g}")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
