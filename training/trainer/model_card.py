"""The model card of a run, the README.md of an exported model: data, settings and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from training.data.dataset import Dataset
from training.names import DataName
from training.trainer.config import RunConfig

Figures = Mapping[str, Any]

NAMES = {
    "spearman": "Spearman ρ ×100 (cosine)",
    "average_precision": "Average precision",
    "accuracy": "Triplet accuracy",
    "loss": "Loss",
    "random_cosine": "Mean cosine of random pairs of the training data",
    "plain_cosine": "Mean cosine of random pairs of plain sentences",
    "alignment": "Alignment",
    "uniformity": "Uniformity",
    "effective_rank": "Effective rank",
}

# How the folder is opened: by sentence-transformers, or where that library has no module for it by SBERT Lab.
_USES = {
    "sentence-transformers": [
        "from sentence_transformers import SentenceTransformer",
        'vectors = SentenceTransformer("path/to/this/folder").encode(["A sentence.", "Another one."])',
    ],
    "sentence-transformers cross-encoder": [
        "from sentence_transformers import CrossEncoder",
        'scores = CrossEncoder("path/to/this/folder").predict([("A sentence.", "Another one.")])',
    ],
    "sbert-lab cross-encoder": [
        "from training import CrossEncoder",
        'scores = CrossEncoder.load("path/to/this/folder").predict([("A sentence.", "Another one.")])',
    ],
    "sbert-lab": [
        "from training import Encoder",
        'vectors = Encoder.load("path/to/this/folder").encode(["A sentence.", "Another one."])',
    ],
}

# Our figures -> the Hub's task type, its name, metric type, its name; those that sentence-transformers' cards use
_METRICS = {
    "spearman": ("semantic-similarity", "Semantic Similarity", "spearman_cosine", "Spearman Cosine"),
    "accuracy": ("triplet", "Triplet", "cosine_accuracy", "Cosine Accuracy"),
}
_PAIR_METRICS = {
    "spearman": ("cross-encoder-correlation", "Cross Encoder Correlation", "spearman", "Spearman"),
    "average_precision": (
        *("cross-encoder-binary-classification", "Cross Encoder Binary Classification"),
        *("average_precision", "Average Precision"),
    ),
}


def with_model_index(card: str, config: RunConfig, best: Figures, name: str, test: Figures | None = None) -> str:
    """The card with the figures of the best evaluation in its header, as the Hub's model-index; once.

    ``test`` has the figures of the test split beside them, if there are any.
    """
    dev, metrics = _data_name(config.eval_data), _PAIR_METRICS if config.objective_class.scores_pairs else _METRICS
    measured = [(f"{dev} (chose the checkpoint)", dev, best), *([(test["data"], test["data"], test)] if test else [])]
    results = [
        {
            "task": {"type": task, "name": task_name},
            "dataset": {"name": data_name, "type": data},
            "metrics": [{"type": metric, "value": round(float(figures[key]), 6), "name": metric_name}],
        }
        for data_name, data, figures in measured
        for key, (task, task_name, metric, metric_name) in metrics.items()
        if config.eval_data and figures.get(key) is not None
    ]
    header, body = "", card
    if card.startswith("---\n") and "\n---\n" in card:
        header, _, body = card.removeprefix("---\n").partition("\n---\n")
        header += "\n"
    if not results or "model-index:" in header:
        return card
    index = json.dumps([{"name": name, "results": results}], ensure_ascii=False)  # JSON is YAML
    return f"---\n{header}model-index: {index}\n---\n{body}"


def _data_name(name: str | None) -> str:
    """A data set by name, a file without its folders: a card may be published."""
    return name or "" if DataName.parse(name or "").is_set else PurePath(name or "").name


def model_card(
    config: RunConfig,
    training: Sequence[Dataset],
    notes: Sequence[str],
    before: Figures,
    best: Figures,
    test: Figures,
    pooling: str | None,
    library: str = "sentence-transformers",
) -> str:
    """Markdown with the YAML header that the Hub reads; ``before`` and ``best`` are figures of `Evaluator.measure`.

    ``training`` has the rows of each part of the config, and ``notes`` say what was done to them.
    ``test`` are those of the test split: data, spearman; empty if there are none.
    """
    objective, parts, name = config.objective_class, config.parts, "spearman" if "spearman" in best else "accuracy"
    settings = {
        "base": config.base,
        **({"pooling": pooling} if pooling else {}),
        "objective": "; ".join(f"{part.objective}: {part.facts.equation}" for part in parts),
        **({"mixing": config.mix} if len(parts) > 1 else {}),
        **({"concatenation": config.concatenation} if any("concatenation" in p.facts.fields for p in parts) else {}),
        **({"teacher": config.teacher} if config.teacher else {}),
        **({"Matryoshka dimensions": ", ".join(map(str, config.matryoshka_dims))} if config.matryoshka_dims else {}),
        "training data": "; ".join(f"{data.name}, {len(data):,} {data.kind}" for data in training),
        "evaluation data": _data_name(config.eval_data) if config.eval_data else "none",
        "steps": best["step"],
        "batch size": config.batch_size,
        "learning rate": f"{config.learning_rate:g}, linear warm-up over {config.warmup:.0%}, linear decay",
        "LoRA": f"rank {config.lora_rank}, merged" if config.lora_rank else "no, all weights",
        "seed": config.seed,
    }
    is_cross = objective.scores_pairs
    tag = "cross-encoder" if is_cross else "sentence-similarity"
    lines = [
        "---",
        f"library_name: {library}",
        f"pipeline_tag: {'text-ranking' if is_cross else tag}",
        f"tags: [{', '.join(dict.fromkeys((library, tag, 'sbert-lab')))}]",
        "---",
        f"# {config.name or ('A cross-encoder' if is_cross else 'A sentence encoder')}",
        "",
        "Fine-tuned with SBERT Lab, after Sentence-BERT (Reimers & Gurevych 2019).",
        "It reads two sentences together and gives them a score, 0 to 1."
        if is_cross
        else "It maps sentences to vectors that are compared by their cosine.",
        "",
        "```python",
        *_USES[library + " cross-encoder" * is_cross],
        "```",
        "",
        "| setting | value |",
        "| --- | --- |",
        *(f"| {key} | {_cell(value)} |" for key, value in settings.items()),
        "",
        *(f"- {_cell(note)}" for note in notes),
        "",
        "| figure | before | after |",
        "| --- | --- | --- |",
        *(
            f"| {label} | {_figure(key, before)} | {_figure(key, best)} |"
            for key, label in NAMES.items()
            if key in best
        ),
        *(
            f"| … with the first {dim} dimensions | {_figure(name, {name: before.get('by_dimension', {}).get(dim)})} | "
            f"{_figure(name, {name: value})} |"
            for dim, value in best.get("by_dimension", {}).items()
        ),
        *([f"| {NAMES['spearman']} on {test['data']} | – | {_figure('spearman', test)} |"] if test else []),
        "",
    ]
    if config.eval_data:
        chosen = (
            f"The figures after training are of the checkpoint that was best on {_cell(_data_name(config.eval_data))}"
        )
        lines += [f"{chosen}: data that chose it flatter it.", ""]
    if best.get("collapsed"):
        lines += [f"**Warning:** {best['collapsed']}.", ""]
    return "\n".join(lines)


def _figure(key: str, figures: Figures) -> str:
    value = figures.get(key)
    if value is None:
        return "–"
    return f"{100 * value:.2f}" if key == "spearman" else f"{value:.4f}"


def _cell(value: object) -> str:
    """Text escaped such that it stays inside its table cell or its line."""
    return str(value).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
