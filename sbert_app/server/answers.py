"""The answers of the endpoints. ``/openapi.json`` describes them, so that clients can be generated."""

from dataclasses import dataclass
from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, SkipValidation

from sbert_app.services.corpus.search import Hit
from sbert_app.services.files.report import ScoreSummary
from sbert_app.services.runs.record import RunProgress, RunRecord

Json = dict[str, Any]
Figures = dict[str, float | None]
# Checking each number would take seconds, as there may be millions, and they were computed here.
Vectors = SkipValidation[list[list[float]]]


class Tokens(BaseModel):
    """The tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class Compared(BaseModel):
    cosine: float
    cross_encoder: float | None
    model: str
    pooling: str
    cross_encoder_model: str | None
    by_pooling: dict[str, float]
    words_a: list[str]
    words_b: list[str]
    matrix: list[list[float]] | None
    truncated: list[bool]
    usage: Tokens
    dimension: int
    prompts: list[str]
    remark: str
    warnings: list[str]
    milliseconds: Figures
    words: list[Json] | None = None
    second: Json | None = None


class Read(BaseModel):
    """The fields that all answers about texts read by one model have in common."""

    model: str
    pooling: str
    usage: Tokens
    truncated: list[int]


class Encoded(Read):
    dimension: int
    embeddings: Vectors
    warnings: list[str]


class Evaluation(BaseModel):
    """The figures of scored pairs or of retrieval. Other data and thresholds add figures of their own."""

    model_config = ConfigDict(extra="allow")
    model: str
    data: str
    pooling: str | None = None
    n: int | None = None
    spearman: Figures | None = None
    pearson: Figures | None = None
    interval: Json | None = None
    queries: int | None = None
    documents: int | None = None
    intervals: Json | None = None
    notes: list[str] | None = None
    seconds: float | None = None
    usage: Tokens | None = None
    truncated: list[int] | None = None


class ThresholdAnswer(BaseModel):
    """The thresholds of a model on labelled pairs.

    ``carried`` and ``sentence`` say what becomes of the threshold of an earlier model.
    """

    model: str
    data: str
    similarity: str
    match: str
    n: int
    matches: int
    average_precision: Json
    choices: list[Json]
    interval_method: str
    was: Json | None
    carried: Json | None
    sentence: str
    notes: list[str]


@dataclass(kw_only=True)
class ScoredFile(ScoreSummary):
    """The summary of a scored file, and the file itself; ``file.url`` is its address.

    The dataclasses of the summary are JSON objects here.
    """

    columns: Json  # type: ignore[assignment]
    report: Json | None  # type: ignore[assignment]
    gold: Json | None  # type: ignore[assignment]
    file: gr.FileData
    matches: Json | None = None


@dataclass(frozen=True, kw_only=True)
class RunState(RunProgress, RunRecord):
    id: str
    name: str
    model: str | None
    config: Json


@dataclass(frozen=True, kw_only=True)
class RunStatus(RunState):
    events: list[Json]
    events_seen: int


class Projection(Read):
    seconds: float
    from_cache: bool
    points: Vectors


class SearchHits(Read):
    data: str
    query: str
    searched: int
    exact: bool
    cross_encoder: str | None
    candidates: int
    milliseconds: Figures
    hits: list[Hit]
    warnings: list[str]
