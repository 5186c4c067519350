"""The HTTP endpoint ``score_file``: a file in, its statistics and the scored file out.

(No postponed annotations here: Gradio reads the types of the endpoint from them.)
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import gradio as gr
from gradio.data_classes import FileData

from sbert_app.formats import json_values
from sbert_app.pages.api.arguments import register
from sbert_app.pages.api.endpoint import MOST_AT_ONCE, endpoint, visitor_of
from sbert_app.services.container import Services
from sbert_app.services.files.jobs import ScoreRequest
from sbert_app.services.files.matches import threshold_of
from training.data.tables.table import open_table
from training.errors import InputError
from training.evaluation.thresholds import CRITERIA, Criterion
from training.registry import DEFAULT_MODEL


def build(services: Services) -> None:
    """Register the endpoint in the open Blocks."""
    jobs, uploads = services.scoring, services.settings.temp_folder.resolve()

    @endpoint(at_once=MOST_AT_ONCE)
    def score_file(
        file: FileData,
        columns: str = "",
        model: str = DEFAULT_MODEL,
        pooling: str = "",
        cross_encoder: str = "none",
        format: Literal["csv", "parquet"] = "csv",
        encoding: str = "",
        threshold: str = "",
        request: gr.Request = None,
    ) -> tuple[dict[str, Any], FileData]:
        """Score every sentence pair of a file: adds cosine (and cross_encoder) and note, keeps rows and columns.

        Args:
            file: an uploaded CSV, TSV, JSON Lines, Parquet or XLSX file.
            columns: "first,second" or "first,second,gold"; empty = detected by name (sentence1, sentence2, score).
            model: a bi-encoder: short name, Hub id, run:<id>.
            pooling: mean, max or cls; empty = the model's own.
            cross_encoder: a cross-encoder's name, or "none".
            format: of the scored file: csv or parquet.
            encoding: of a text file: windows-1251, shift_jis, …; empty = found out.
            threshold: adds a column match: 0.8, best-f1, precision=0.95; the last two need gold scores or labels.
        """
        criterion = Criterion.parse(threshold) if threshold.strip() else None
        path = Path(file.path).resolve()
        if not path.is_relative_to(uploads):  # a path on this machine that nobody uploaded
            raise InputError("upload the file first: POST it to /gradio_api/upload")
        task = ScoreRequest(
            source=open_table(path, encoding or None),
            columns=[name.strip() for name in columns.split(",")] if columns.strip() else None,
            model=model or DEFAULT_MODEL,
            pooling=pooling or None,
            cross_encoder=cross_encoder if cross_encoder not in ("", "none") else None,
            formats=(f".{format}", ".parquet") if criterion and format != "parquet" else (f".{format}",),
            criteria=(str(criterion),) if criterion else CRITERIA,
        )
        job, summary = jobs.run(task, visitor_of(request))
        answer, scored = summary.to_dict(), Path(summary.outputs[0])
        if criterion:
            found = jobs.apply_threshold(job.id, threshold_of(summary, criterion))
            scored = next(path for path in map(Path, found.outputs) if path.suffix == f".{format}")
            answer["matches"] = json_values(asdict(found) | {"outputs": [Path(path).name for path in found.outputs]})
        return answer, FileData(path=str(scored), orig_name=scored.name)

    register(score_file, concurrency_limit=2)
