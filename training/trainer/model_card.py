"""The model card of a run, the README.md of an exported model: data, settings and figures.

Its text is the template ``assets/run-card.md``.
"""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from training.catalogue import read_asset
from training.names import DataName
from training.trainer.config import RunConfig
from training.trainer.run_metrics import RUN_METRICS, main_metric

# Task type, task name, metric type and metric name of each figure on the Hub, as in
# sentence-transformers' cards.
_METRICS = {
    "spearman": (
        "semantic-similarity",
        "Semantic Similarity",
        "spearman_cosine",
        "Spearman Cosine",
    ),
    "accuracy": ("triplet", "Triplet", "cosine_accuracy", "Cosine Accuracy"),
}
_PAIR_METRICS = {
    "spearman": ("cross-encoder-correlation", "Cross Encoder Correlation", "spearman", "Spearman"),
    "average_precision": (
        "cross-encoder-binary-classification",
        "Cross Encoder Binary Classification",
        "average_precision",
        "Average Precision",
    ),
}


def model_card(config: RunConfig, library: str, **facts: Any) -> str:
    """Writes the card, Markdown with the YAML header that the Hub reads, for a model that ``library`` opens.

    Args:
        config: the config of the run.
        library: sentence-transformers or sbert-lab.
        facts: values for the template: before and best, figures of `Evaluator.measure`; test, the
            data and spearman of the test split, or empty; training, the rows of each part of the
            config; notes on how they were prepared; and pooling.
    """
    is_cross_encoder = config.objective_class.scores_pairs
    tag = "cross-encoder" if is_cross_encoder else "sentence-similarity"
    task = "text-ranking" if is_cross_encoder else tag
    # The library may be sbert-lab itself.
    tags = list(dict.fromkeys((library, tag, "sbert-lab")))
    card = ModelCard.from_template(
        ModelCardData(library_name=library, pipeline_tag=task, tags=tags),
        template_str=read_asset("run-card.md"),
        config=config,
        dev=_data_name(config.eval_data),
        has_concatenation=any("concatenation" in part.facts.fields for part in config.parts),
        is_cross_encoder=is_cross_encoder,
        is_portable=library == "sentence-transformers",
        metrics=RUN_METRICS,
        main=main_metric(facts["best"]),
        **facts,
    )
    return str(card)


def with_model_index(
    card: str,
    config: RunConfig,
    best: Mapping[str, Any],
    name: str,
    test: Mapping[str, Any] | None = None,
) -> str:
    """Adds the figures of the best evaluation to the header of a card as the Hub's model-index, if it has none yet.

    ``test`` has the figures of the test split, if there are any.
    """
    dev = _data_name(config.eval_data)
    metrics = _PAIR_METRICS if config.objective_class.scores_pairs else _METRICS
    # The title of each data set, its name, and its figures.
    evaluations = []
    if config.eval_data:
        evaluations.append((f"{dev} (chose the checkpoint)", dev, best))
        if test:
            evaluations.append((test["data"], test["data"], test))
    results = []
    for title, data, figures in evaluations:
        for key, (task, task_name, metric, metric_name) in metrics.items():
            if figures.get(key) is None:
                continue
            result = EvalResult(
                task_type=task,
                task_name=task_name,
                dataset_name=title,
                dataset_type=data,
                metric_type=metric,
                metric_name=metric_name,
                metric_value=round(float(figures[key]), 6),
            )
            results.append(result)
    parsed = ModelCard(card)
    if not results or parsed.data.eval_results:
        return card
    parsed.data.model_name = name
    parsed.data.eval_results = results
    return str(parsed)


def _data_name(name: str | None) -> str:
    """Returns the name of a data set, or of a file without its folders, as cards are published."""
    name = name or ""
    return name if DataName.parse(name).is_set else PurePath(name).name
