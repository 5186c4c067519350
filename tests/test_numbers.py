"""A number stands once: what the docs say of measurements is what the result files have."""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT


def result(name: str) -> dict[str, Any]:
    return json.loads((ROOT / f"benchmarks/results/{name}.json").read_text(encoding="utf-8"))


def asset(name: str) -> dict[str, Any]:
    return json.loads((ROOT / f"assets/{name}.json").read_text(encoding="utf-8"))


def rates(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Sentences a second by the name of the side, as the docs write them."""
    return {row["side"]: f"{row['sentences_per_second']:,}" for row in rows}


def maps() -> list[str]:
    row = result("maps")["rows"][-1]
    plane, space, aligned = (row[f"{name}_seconds"] for name in ("map", "map_3d", "two_aligned"))
    cached = f"{1000 * row['from_cache_seconds']:.0f}"
    return [
        f"{plane:.1f} s in 2-D, {space:.1f} s in 3-D, {aligned:.1f} s as two aligned maps, and {cached.strip()} ms"
    ]


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


def class_of_32() -> list[str]:
    [row] = [row for row in result("users")["rows"] if row["users"] == 32 and not row["training"]]
    return [f"two cores answer in {row['p50_ms'] / 1000:.1f} s (median)"]


def start_up() -> list[str]:
    found = result("start-up")
    seconds = found["start_seconds"]["SBERT Lab"]
    before = found["start_seconds"]["2e06b2b1"]
    bare = found["start_seconds"]["bare Gradio"]
    return [
        f"(`python -m benchmarks start-up`) | {seconds['page']:.1f} s; {seconds['answer']:.1f} s |",
        f"| {before['page']:.1f} s; {before['answer']:.1f} s; {bare['page']:.1f} s |",
        f"| {seconds['first_event_cpu_ms']:.0f} ms of processor time; {seconds['session_mb']:.2f} MB",
        f"both models loaded | {found['idle_memory_mb']} MB |",
    ]


def pages() -> list[str]:
    rows = [row for row in result("pages")["rows"] if row["tree"] == "this"]
    interactive = [row["interactive"] for row in rows]
    server = [row["server_seconds"] for row in rows]
    return [
        f"interactive after {min(interactive):.1f} to {max(interactive):.1f} s; "
        f"{min(server):.1f} to {max(server):.1f} s of the app's processor time"
    ]


def versions() -> list[str]:
    return [
        f"| {row['work']} | {row['this']:.3f} s | {row['before']:.3f} s | {row['ratio']:.2f} |"
        for row in result("versions")["rows"]
    ]


def scaling() -> list[str]:
    found = result("scaling")
    milliseconds = [1000 * row["seconds"] / row["sentences"] for row in found["by_count"]]
    memory = [row["peak_memory_mb"] / 1000 for row in found["by_count"]]
    tokens = [f"{row['microseconds_per_token']:.0f}" for row in found["by_length"][3:]]
    rates = [f"{row['sentences_per_second']:,}" for row in found["smart_batching"]]
    return [
        f"| {min(milliseconds):.2f} to {max(milliseconds):.2f} ms; {min(memory):.2f} to {max(memory):.2f} GB |",
        f"| {', '.join(tokens)} µs |",
        f"| {', '.join(rates)} sentences/s |",
    ]


def bulk() -> list[str]:
    found = result("bulk-million")
    [settled] = [row["memory_mb"] for row in found["memory"] if 225_000 < row["row"] < 250_000]
    end = found["memory"][-1]["memory_mb"]
    return [
        f"| {found['score_rows_per_second']} rows/s; {settled / 1000:.2f} GB after 225,000 rows, {end / 1000:.2f} GB at"
    ]


def cluster() -> list[str]:
    found = result("cluster")
    seconds = {(row["model"], row["engine"]): row["seconds"] for row in found["overhead"]}
    starts = {(row["model"], row["engine"]): row["first_part_seconds"] for row in found["overhead"]}
    ray = seconds["all-MiniLM-L6-v2", "ray"]
    local = seconds["all-MiniLM-L6-v2", "local"]
    workers = found["workers_settled_mb"] / 1000
    runs = result("runs")
    return [
        f"{ray:.0f} s on Ray, {local:.0f} s without (**+{100 * (ray / local - 1):.1f}%**)",
        f"{seconds['static', 'ray']:.1f} s and {seconds['static', 'local']:.1f} s, of which Ray takes "
        f"{starts['static', 'ray'] - starts['static', 'local']:.0f} s to start",
        f"eight simulated nodes | {found['weak_scaling'][-1]['efficiency']:.2f} |",
        f"driver {found['driver_settled_mb']} MB, two workers {workers:.1f} GB",
        f"(`python -m benchmarks runs`) | {runs['efficiency']:.2f} |",
    ]


def users() -> list[str]:
    found = {(row["users"], row["training"]): row for row in result("users")["rows"]}
    one = found[1, False]
    many = found[32, False]
    training = found[32, True]
    return [
        f"one user | {one['p50_ms']:.0f} ms (p95 {one['p95_ms']:.0f}) |",
        f"| {many['p50_ms']:.0f} ms (p95 {many['p95_ms']:.0f}); during a training run {training['p50_ms']:.0f} ms",
    ]


def soak() -> list[str]:
    found = result("soak")
    endpoints = sum(
        count for name, count in found["answers"].items() if name not in ("bulk", "run", "page")
    )
    memory = [found[name] / 1000 for name in ("settled_mb", "end_mb")]
    return [
        f"{memory[0]:.2f} GB after 5 minutes, {memory[1]:.2f} GB after 30; none of {endpoints:,} requests failed"
    ]


def serving() -> list[str]:
    ours, float32, bfloat16 = result("serving")["rows"]
    rate = "sentences_per_second"
    slower = f"{bfloat16[rate]} in bfloat16 ({bfloat16['times_ours']} × the time)"
    return [f"{ours[rate]:,} sentences/s; infinity-emb 0.0.78 {slower}, {float32[rate]} in float32"]


def encode() -> list[str]:
    found = {
        (row["side"], row["dtype"]): row["sentences_per_second"] for row in result("encode")["rows"]
    }
    lab = "SBERT Lab"
    other = "sentence-transformers"
    return [
        f"| SBERT Lab, bfloat16 (default) | **{found[lab, 'bfloat16']:,}** |",
        f"| sentence-transformers, bfloat16 | {found[other, 'bfloat16']} |",
        f"| SBERT Lab, float32 | {found[lab, 'float32']:,} |",
        f"| sentence-transformers, float32 (default) | {found[other, 'float32']} |",
    ]


def front() -> list[str]:
    found = {
        (row["side"], row["dtype"]): row["sentences_per_second"] for row in result("encode")["rows"]
    }
    ours = {dtype: found["SBERT Lab", dtype] for dtype in ("bfloat16", "float32")}
    other = found["sentence-transformers", "float32"]
    return [
        f"to {ours['float32'] / other:.1f} times as fast as sentence-transformers",
        f"to {ours['bfloat16'] / other:.0f} times",
    ]


def peers() -> list[str]:
    found = rates(result("peers")["rows"])
    avx2 = rates(result("peers")["rows_avx2"])
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
        f"{agreement['float32']:.0e}".replace("e-0", "e-")
        + f" in float32 and {agreement['bfloat16']} in bfloat16",
    ]


def train() -> list[str]:
    found = {row["side"]: row["seconds_per_step"] for row in result("train")["rows"]}
    ours = found["SBERT Lab, auto"]
    ours32 = found["SBERT Lab, float32"]
    default = found["sentence-transformers, default"]
    bf16 = found["sentence-transformers, bf16"]
    slower = f"{bf16:.2f} ({bf16 / ours:.1f} × slower)"
    ratios = f"{default / ours32:.1f} ×; {default / ours:.1f} × as default"
    return [f"| SBERT Lab | {ours:.3f} | {ours32:.2f} |", f"| {slower} | {default:.2f} ({ratios}"]


def pairs() -> list[str]:
    found = {
        (row["side"], row["dtype"]): f"{row['seconds']:.1f} s" for row in result("pairs")["rows"]
    }
    other = "sentence-transformers"
    return [
        f"{found['SBERT Lab', 'bfloat16']}; {other} {found[other, 'float32']} in float32, "
        f"{found[other, 'bfloat16']} in bfloat16"
    ]


def search() -> list[str]:
    flat, byte, bit, _ = result("search")["indexes"]
    quotes = [
        f"| {row['build_seconds']:.1f} s | {row['memory_mb']:,} MB |" for row in (flat, byte, bit)
    ]
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


def gpu() -> list[str]:
    found = result("gpu")
    pairs = {row["side"]: row["pairs_per_second"] for row in found["cross"]}
    steps = {row["side"]: 1000 * row["seconds_per_step"] for row in found["train"]}
    others = [rate for side, rate in pairs.items() if side != "SBERT Lab"]
    difference = max(row["largest_difference_from_float32"] for row in found["check"])
    trainer = steps["sentence-transformers, trainer, bfloat16"]
    return [
        f"| **{pairs['SBERT Lab']:,}** | {max(others):,}, its better batch size |",
        f"| **{steps['SBERT Lab']:.0f} ms** | {trainer:.0f} ms |",
        f"| {found['pairs'][0]['seconds']:.2f} s |",
        f"by at most {difference:.3f}",
        f"{found['check'][0]['peak_tflops']:.0f} TFLOP/s",
    ]


def evaluation() -> list[str]:
    """The table of models and data. Figures of the cross-encoders on sets that they were trained on are in brackets."""
    found = asset("evaluation")
    names = {
        "tfidf": "TF-IDF, fitted on the set it scores",
        "glove": "average GloVe 6B, 50 dimensions",
        "all-MiniLM-L6-v2": "all-MiniLM-L6-v2 (mean, bfloat16)",
        "all-MiniLM-L6-v2:max": "… max pooling",
        "all-MiniLM-L6-v2:cls": "… CLS pooling",
        "all-mpnet-base-v2": "all-mpnet-base-v2",
        "minilm-stsb": "minilm-stsb (cross-encoder)",
        "mpnet-stsb": "mpnet-stsb (cross-encoder)",
    }
    rows = []
    for model, name in names.items():
        cells = [
            f"{found['figures'][model][data]['spearman']['cosine'][0]:.2f}"
            for data in found["data"]
        ]
        if "cross-encoder" in name:
            cells = [f"({cell})" for cell in cells[:3]] + cells[3:]
        speed = f"{found['speeds'][model]:,.0f}"
        rows.append(f"| {' | '.join([name, *cells, speed])} |")
    return rows


def ablation() -> list[str]:
    runs = asset("ablation/pooling")["runs"]
    rows = []
    for variant, name in (("mean", "mean"), ("cls", "CLS"), ("max", "max")):
        own = [run for run in runs if run["variant"] == variant]
        before = 100 * statistics.mean(run["before"] for run in own)
        after = [100 * run["after"] for run in own]
        mean = f"{statistics.mean(after):.2f}"
        mean = f"**{mean}**" if variant == "mean" else mean
        paper = asset("ablations")["pooling"]["variants"][variant]["paper"]
        rows.append(f"| {name} | {before:.2f} | {mean} ± {statistics.stdev(after):.2f} | {paper} |")
    return rows


def networks() -> list[str]:
    """The networks over word vectors: mean and standard deviation of their seeds."""
    rows = []
    for system in asset("systems")["systems"][:2]:
        dev, test = (system["figures"][data] for data in ("stsb:dev", "stsb:test"))
        figures = (
            f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"
            for values in (dev, test)
        )
        rows.append(f"| {' | '.join(figures)} |")
    return rows


def built_in() -> list[str]:
    """The figures of the built-in models on STSb test."""
    figures = asset("evaluation")["figures"]
    names = ("minilm-stsb", "mpnet-stsb", "all-MiniLM-L6-v2")
    small, large, encoder = (
        f"{figures[name]['stsb:test']['spearman']['cosine'][0]:.1f}" for name in names
    )
    return [
        f"ρ ×100 on STSb test is {small} and {large}, and {encoder} for the bi-encoder all-MiniLM-L6-v2"
    ]


def raw_card() -> list[str]:
    before = 100 * result("gpu")["language_model"][0]["spearman"]
    return [f"with random weights, the mean had {before:.1f} on STSb dev"]


def lesson() -> list[str]:
    rho = [100 * step["spearman"] for step in result("gpu")["language_model"]]
    return [f"a ρ ×100 of {rho[0]:.1f} on all of STSb dev, and {rho[-1]:.1f} after training"]


BENCHMARKS = "benchmarks/README.md"
MEASUREMENTS = "docs/measurements.md"
OF_BENCHMARKS = (
    maps,
    explore,
    users,
    soak,
    serving,
    start_up,
    pages,
    versions,
    scaling,
    bulk,
    cluster,
    language_model,
    networks,
    peers,
    gpu,
)
OF_MEASUREMENTS = (encode, cross, train, pairs, search, evaluation, ablation)
QUOTES = [
    *((BENCHMARKS, quote) for quote in OF_BENCHMARKS),
    *((MEASUREMENTS, quote) for quote in OF_MEASUREMENTS),
    ("README.md", front),
    ("docs/explore.md", corpus),
    ("docs/lesson-plan.md", class_of_32),
    ("docs/models.md", built_in),
    ("assets/raw-bert-mini/README.md", raw_card),
    ("assets/lessons/1.json", lesson),
]


@pytest.mark.parametrize(
    ("document", "quotes"), QUOTES, ids=lambda value: getattr(value, "__name__", None)
)
def test_figures_in_the_docs_are_those_of_the_result_files(
    document: str, quotes: Callable[[], list[str]]
):
    text = " ".join((ROOT / document).read_text(encoding="utf-8").split())
    for quote in quotes():
        assert quote in text


def test_every_result_file_is_quoted():
    """``bulk`` has the rate of encoding alone beside it, which the docs do not state."""
    source = Path(__file__).read_text(encoding="utf-8")
    files = {file.stem for file in (ROOT / "benchmarks/results").glob("*.json")}
    assert {name for name in files if f'result("{name}")' not in source} == {"bulk"}
