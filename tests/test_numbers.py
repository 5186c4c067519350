"""A number stands once: what the docs say of measurements is what the result files have."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from paths import ROOT


def result(name: str) -> dict[str, Any]:
    return json.loads((ROOT / f"benchmarks/results/{name}.json").read_text(encoding="utf-8"))


def rates(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Sentences a second by the name of the side, as the docs write them."""
    return {row["side"]: f"{row['sentences_per_second']:,}" for row in rows}


def maps() -> list[str]:
    row = result("maps")["rows"][-1]
    plane, space, aligned = (row[f"{name}_seconds"] for name in ("map", "map_3d", "two_aligned"))
    cached = f"{1000 * row['from_cache_seconds']:.0f}"
    return [f"{plane:.1f} s in 2-D, {space:.1f} s in 3-D, {aligned:.1f} s as two aligned maps, and {cached.strip()} ms"]


def corpus() -> list[str]:
    found = result("explore")
    seconds = {row["step"]: row["seconds"] for row in found["rows"]}
    steps = ("encode", "near duplicates", "HDBSCAN of a sample", "map, all placed")
    total = sum(round(seconds[step]) for step in steps)
    return [f"take {total} seconds on two cores, and at most {found['peak_mb'] / 1000:.1f} GB"]


def explore() -> list[str]:
    found = result("explore")
    seconds = {row["step"]: row["seconds"] for row in found["rows"]}
    return [
        f"| Encode, to a file | {seconds['encode']:.1f} |",
        f"(then {found['search_ms']} ms a query) | {seconds['index']:.1f} |",
        f"| Near duplicates | {seconds['near duplicates']:.0f} |",
        f"| k-means, 50 clusters | {seconds['k-means, 50 clusters']:.1f} |",
        f"the others assigned | {seconds['HDBSCAN of a sample']:.0f} |",
        f"the others placed | {seconds['map, all placed']:.0f} |",
        f"at most {found['peak_mb'] / 1000:.1f} GB",
    ]


def users() -> list[str]:
    found = {(row["users"], row["training"]): row for row in result("users")["rows"]}
    one, many, training = found[1, False], found[32, False], found[32, True]
    return [
        f"one user | {one['p50_ms']:.0f} ms (p95 {one['p95_ms']:.0f}) |",
        f"| {many['p50_ms']:.0f} ms (p95 {many['p95_ms']:.0f}); during a training run {training['p50_ms']:.0f} ms",
    ]


def soak() -> list[str]:
    found = result("soak")
    endpoints = sum(count for name, count in found["answers"].items() if name not in ("bulk", "run", "page"))
    memory = [found[name] / 1000 for name in ("settled_mb", "end_mb")]
    return [f"{memory[0]:.2f} GB after 5 minutes, {memory[1]:.2f} GB after 30; none of {endpoints:,} requests failed"]


def serving() -> list[str]:
    ours, float32, bfloat16 = result("serving")["rows"]
    rate = "sentences_per_second"
    slower = f"{bfloat16[rate]} in bfloat16 ({bfloat16['times_ours']} × the time)"
    return [f"{ours[rate]:,} sentences/s; infinity-emb 0.0.78 {slower}, {float32[rate]} in float32"]


def encode() -> list[str]:
    found = {(row["side"], row["dtype"]): row["sentences_per_second"] for row in result("encode")["rows"]}
    lab, other = "SBERT Lab", "sentence-transformers"
    return [
        f"| SBERT Lab, bfloat16 (default) | **{found[lab, 'bfloat16']:,}** |",
        f"| sentence-transformers, bfloat16 | {found[other, 'bfloat16']} |",
        f"| SBERT Lab, float32 | {found[lab, 'float32']:,} |",
        f"| sentence-transformers, float32 (default) | {found[other, 'float32']} |",
    ]


def peers() -> list[str]:
    found, avx2 = rates(result("peers")["rows"]), rates(result("peers")["rows_avx2"])
    ours = [found[f"SBERT Lab, {dtype}"] for dtype in ("int8", "bfloat16", "float32")]
    openvino = [found[f"OpenVINO, {dtype}"] for dtype in ("int8", "default", "float32")]
    return [
        f"| SBERT Lab | **{ours[0]}** (81.90) | **{ours[1]}** | **{ours[2]}** |",
        f"| {openvino[0]} (82.07) | {openvino[1]} (82.04) | {openvino[2]} |",
        f"| {found['ONNX Runtime, int8']} (81.76) | – | {found['ONNX Runtime, float32']} |",
        f"| CTranslate2 | {found['CTranslate2, int8']} (81.79) | – | {found['CTranslate2, float32']} |",
        f"SBERT Lab | {avx2['SBERT Lab, int8']} (82.08) | – | {avx2['SBERT Lab, float32']} |",
    ]


def cross() -> list[str]:
    found = {row["side"]: row for row in result("cross")["rows"]}
    agreement = result("cross")["agreement"]
    rate = {side: row["pairs_per_second"] for side, row in found.items()}
    other = found["sentence-transformers, bfloat16"]
    slower = f"{other['pairs_per_second']} ({other['times_ours']:.1f} × slower)"
    return [
        f"| SBERT Lab | **{rate['SBERT Lab, bfloat16']}** | {rate['SBERT Lab, float32']} |",
        f"| {slower} | {rate['sentence-transformers, float32']} (",
        f"{agreement['float32']:.0e}".replace("e-0", "e-") + f" in float32 and {agreement['bfloat16']} in bfloat16",
    ]


def train() -> list[str]:
    found = {row["side"]: row["seconds_per_step"] for row in result("train")["rows"]}
    ours, ours32 = found["SBERT Lab, auto"], found["SBERT Lab, float32"]
    default, bf16 = found["sentence-transformers, default"], found["sentence-transformers, bf16"]
    slower = f"{bf16:.2f} ({bf16 / ours:.1f} × slower)"
    ratios = f"{default / ours32:.1f} ×; {default / ours:.1f} × as default"
    return [f"| SBERT Lab | {ours:.3f} | {ours32:.2f} |", f"| {slower} | {default:.2f} ({ratios}"]


def pairs() -> list[str]:
    found = {(row["side"], row["dtype"]): f"{row['seconds']:.1f} s" for row in result("pairs")["rows"]}
    other = "sentence-transformers"
    return [
        f"{found['SBERT Lab', 'bfloat16']}; {other} {found[other, 'float32']} in float32, "
        f"{found[other, 'bfloat16']} in bfloat16"
    ]


def search() -> list[str]:
    flat, byte, bit, _ = result("search")["indexes"]
    quotes = [f"| {row['build_seconds']:.1f} s | {row['memory_mb']:,} MB |" for row in (flat, byte, bit)]
    return [
        f"{quotes[0]} 1 | {flat['ms']:.0f} ms |",
        f"{quotes[1]} {byte['recall_at_10']:.3f} | {byte['ms']:.0f} ms |",
        f"{quotes[2]} {bit['recall_at_10']:.3f} | **{bit['ms']:.1f} ms** |",
    ]


def language_model() -> list[str]:
    steps = result("gpu")["language_model"]
    rho = [100 * step["spearman"] for step in steps if "spearman" in step]
    return [
        f"Before its first step the network had a ρ of {rho[0]:.1f} on STSb dev, and of {rho[-1]:.1f} after "
        f"{steps[-1]['step']} steps ({min(rho):.1f} at its lowest)"
    ]


def raw_card() -> list[str]:
    before = 100 * result("gpu")["language_model"][0]["spearman"]
    return [f"with random weights, the mean had {before:.1f} on STSb dev"]


def lesson() -> list[str]:
    rho = [100 * step["spearman"] for step in result("gpu")["language_model"]]
    return [f"a ρ ×100 of {rho[0]:.1f} on STSb dev, and {rho[-1]:.1f} after training"]


MEASUREMENTS = "docs/measurements.md"
QUOTES = [
    ("benchmarks/README.md", maps),
    ("benchmarks/README.md", explore),
    ("benchmarks/README.md", users),
    ("benchmarks/README.md", soak),
    ("benchmarks/README.md", serving),
    ("docs/explore.md", corpus),
    *((MEASUREMENTS, quote) for quote in (encode, peers, cross, train, pairs, search, language_model)),
    ("assets/raw-bert-mini/README.md", raw_card),
    ("assets/lessons/1.json", lesson),
]


@pytest.mark.parametrize(("document", "quotes"), QUOTES, ids=lambda value: getattr(value, "__name__", None))
def test_figures_in_the_docs_are_those_of_the_result_files(document: str, quotes: Callable[[], list[str]]):
    text = " ".join((ROOT / document).read_text(encoding="utf-8").split())
    for quote in quotes():
        assert quote in text
