"""What the tabs of the Evaluate page offer to choose from: models known by name, runs, data sets."""

from __future__ import annotations

from sbert_app.evaluation.choice import ModelChoice
from sbert_app.evaluation.results import AVERAGE, DATA_LABELS
from sbert_app.services import Services

MODELS = (
    *("all-MiniLM-L6-v2", "all-MiniLM-L6-v2:max", "all-MiniLM-L6-v2:cls", "all-mpnet-base-v2", "tfidf", "glove"),
    *("minilm-stsb", "mpnet-stsb", "bert-base-uncased:mean", "bert-base-uncased:cls"),
)
KNOWN_MODELS = [(ModelChoice.parse(name).label, name) for name in MODELS]
DATA = [(label, name) for name, label in DATA_LABELS.items() if name != AVERAGE]


def model_choices(services: Services) -> list[tuple[str, str]]:
    """(label, name) of what may be evaluated: what is known by name, and the runs that have a model."""
    runs = [(f"run: {run.name}", f"run:{run.id}") for run in services.jobs.store.list() if run.has_model]
    return KNOWN_MODELS + runs
