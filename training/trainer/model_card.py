"""The model card of a run, the README.md of an exported model: data, settings and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training.data.load import Dataset
from training.objectives import OBJECTIVES
from training.trainer.config import RunConfig

Figures = Mapping[str, Any]

NAMES = {
    "spearman": "Spearman ρ ×100 (cosine)",
    "accuracy": "Triplet accuracy",
    "loss": "Loss",
    "random_cosine": "Mean cosine of random pairs of the training data",
    "plain_cosine": "Mean cosine of random pairs of plain sentences",
    "alignment": "Alignment",
    "uniformity": "Uniformity",
    "effective_rank": "Effective rank",
}


def model_card(config: RunConfig, training: Dataset, before: Figures, best: Figures, pooling: str) -> str:
    """Markdown with the YAML header that the Hub reads. ``before`` and ``best`` are figures of `Evaluator.measure`."""
    entry = OBJECTIVES[config.objective]
    settings = {
        "base": config.base,
        "pooling": pooling,
        "objective": f"{config.objective}: {entry.formula}",
        **({"concatenation": config.concatenation} if config.objective == "classification" else {}),
        **({"teacher": config.teacher} if config.teacher else {}),
        **({"Matryoshka dimensions": ", ".join(map(str, config.matryoshka_dims))} if config.matryoshka_dims else {}),
        "training data": f"{training.name}, {len(training):,} {training.kind}",
        "evaluation data": config.eval_data or "none",
        "steps": best["step"],
        "batch size": config.batch_size,
        "learning rate": f"{config.learning_rate:g}, linear warm-up over {config.warmup:.0%}, linear decay",
        "LoRA": f"rank {config.lora_rank}, merged" if config.lora_rank else "no, all weights",
        "seed": config.seed,
    }
    lines = [
        "---",
        "library_name: sentence-transformers",
        "pipeline_tag: sentence-similarity",
        "tags: [sentence-transformers, sentence-similarity, sbert-lab]",
        "---",
        f"# {config.name or 'A sentence encoder'}",
        "",
        "Fine-tuned with SBERT Lab, after Sentence-BERT (Reimers & Gurevych 2019). It maps sentences to vectors",
        "that are compared by their cosine.",
        "",
        "```python",
        "from sentence_transformers import SentenceTransformer",
        'vectors = SentenceTransformer("path/to/this/folder").encode(["A sentence.", "Another one."])',
        "```",
        "",
        "| setting | value |",
        "| --- | --- |",
        *(f"| {key} | {_cell(value)} |" for key, value in settings.items()),
        "",
        *(f"- {_cell(note)}" for note in training.notes),
        "",
        "| figure | before | after |",
        "| --- | --- | --- |",
        *(
            f"| {label} | {_figure(key, before)} | {_figure(key, best)} |"
            for key, label in NAMES.items()
            if key in best
        ),
        *_by_dimension(before, best),
        "",
    ]
    if best.get("collapsed"):
        lines += [f"**Warning:** {best['collapsed']}.", ""]
    return "\n".join(lines)


def _by_dimension(before: Figures, best: Figures) -> list[str]:
    """A row for each shorter dimension that was trained too."""
    name = "spearman" if "spearman" in best else "accuracy"
    return [
        f"| … with the first {dim} dimensions | {_figure(name, {name: before.get('by_dimension', {}).get(dim)})} | "
        f"{_figure(name, {name: value})} |"
        for dim, value in best.get("by_dimension", {}).items()
    ]


def _figure(key: str, figures: Figures) -> str:
    value = figures.get(key)
    if value is None:
        return "–"
    return f"{100 * value:.2f}" if key == "spearman" else f"{value:.4f}"


def _cell(value: object) -> str:
    """Text escaped such that it stays inside its table cell or its line."""
    return str(value).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
