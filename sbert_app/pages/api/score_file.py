"""The HTTP endpoint ``score_file``: a file in, its statistics and the scored file out.

(No postponed annotations here: Gradio reads the types of the endpoint from them.)
"""

from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

from gradio.data_classes import FileData

from sbert_app.pages.api.arguments import register
from sbert_app.pages.api.endpoint import MOST_AT_ONCE, endpoint
from sbert_app.services.container import Services
from sbert_app.services.files.score_tasks import ScoreRequest
from sbert_app.services.files.summary import ScoreSummary
from training.errors import InputError
from training.registry import DEFAULT_MODEL


def build(services: Services) -> None:
    """Register the endpoint in the open Blocks."""
    tasks, uploads = services.scoring, services.settings.temp_folder.resolve()

    @endpoint(at_once=MOST_AT_ONCE)
    def score_file(
        file: FileData,
        columns: str = "",
        model: str = DEFAULT_MODEL,
        pooling: str = "",
        cross_encoder: str = "none",
        format: Literal["csv", "parquet"] = "csv",
    ) -> tuple[dict[str, Any], FileData]:
        """Score every sentence pair of a file: adds cosine (and cross_encoder) and note, keeps rows and columns.

        Args:
            file: an uploaded CSV, TSV, JSON Lines, Parquet or XLSX file.
            columns: "first,second" or "first,second,gold"; empty = detected by name (sentence1, sentence2, score).
            model: a bi-encoder: short name, Hub id, run:<id>.
            pooling: mean, max or cls; empty = the model's own.
            cross_encoder: a cross-encoder's name, or "none".
            format: of the scored file: csv or parquet.
        """
        path = Path(file.path).resolve()
        if not path.is_relative_to(uploads):  # a path on this machine that nobody uploaded
            raise InputError("upload the file first: POST it to /gradio_api/upload")
        task = ScoreRequest(
            source=path,
            columns=[name.strip() for name in columns.split(",")] if columns.strip() else None,
            model=model or DEFAULT_MODEL,
            pooling=pooling or None,
            cross_encoder=cross_encoder if cross_encoder not in ("", "none") else None,
            formats=(f".{format}",),
        )
        owner = f"api {token_hex(8)}"  # plain requests share a session, and two may send the same file
        summary = next(event for event in tasks.run(owner, task) if isinstance(event, ScoreSummary))
        scored = Path(summary.outputs[0])
        return summary.to_dict(), FileData(path=str(scored), orig_name=scored.name)

    register(score_file, concurrency_limit=2)
