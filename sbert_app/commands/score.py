"""score IN OUT: adds the cosine of each sentence pair to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sbert_app.commands import options
from sbert_app.terminal import ProgressBar, clean_stdout, print_result, stop_on_signal
from training.errors import Stopped
from training.registry import DEFAULT_MODEL

if TYPE_CHECKING:
    from sbert_app.services.files.summary import ScoreSummary


def score(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Pairs: .csv, .tsv, .jsonl, .parquet or .xlsx.")],
    output: Annotated[
        Path, typer.Argument(metavar="OUT", help="IN with scores: .csv, .tsv or .parquet, rows in input order.")
    ],
    model: options.Model = DEFAULT_MODEL,
    pooling: options.Pooling = None,
    dimension: options.Dimension = None,
    prompt: options.Prompt = None,
    prompt_name: options.PromptName = None,
    cross_encoder: Annotated[
        str | None, typer.Option("--cross-encoder", metavar="NAME", help="Score with this one too: minilm-stsb, …")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="A,B", help="The two columns, a third with gold scores. [sentence1, …]"),
    ] = None,
    encoding: options.Encoding = None,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    home: options.Home = None,
    offline: options.Offline = False,
    as_json: options.Json = False,
) -> None:
    """Score a file of sentence pairs. Adds the columns cosine, cross_encoder and note. Ctrl-C keeps what is scored."""
    place = options.prepare(home, offline)
    model = options.with_settings(model, dimension, prompt, prompt_name)
    from sbert_app.services.files.score import score_file
    from training.data.tables.table import open_table, pick_columns

    with clean_stdout(), ProgressBar("scoring", "rows") as bar, stop_on_signal() as should_stop:
        table = open_table(source, encoding)  # reports errors before the model is loaded
        picked = pick_columns(table, _names(columns, table.columns))
        encoder = options.load_encoder(model, pooling, dtype, device, place)
        cross_encoder_model = None
        if cross_encoder:
            from training.models.cross_encoder import CrossEncoder

            cross_encoder_model = CrossEncoder.load(cross_encoder, dtype, device, place)
        if should_stop():
            raise Stopped
        summary = score_file(
            table,
            [output],
            encoder,
            cross_encoder_model,
            picked,
            on_progress=bar,
            should_stop=should_stop,
        )
    if summary.stopped_at is not None:
        raise Stopped(f"the {summary.stopped_at:,} rows before are scored in {output}")
    print_result(_figures(summary), as_json, _text(summary))


def _figures(summary: ScoreSummary) -> dict[str, Any]:
    """The summary without the data of figures."""
    figures = summary.to_dict()
    del figures["head"]
    if figures["report"] is not None:
        del figures["report"]["scatter"]
    return figures


def _text(summary: ScoreSummary) -> str:
    """The summary, and the agreement of the scores with the gold scores and with each other."""
    lines, report = [*summary.remarks, summary.sentence], summary.report
    pairs = ("cosine_gold", "cosine and gold"), ("cross_gold", "cross-encoder and gold"), ("cosine_cross", "both")
    for field, what in pairs:
        if (agreement := getattr(report, field, None)) is not None:
            low, high = agreement.spearman_interval
            lines.append(
                f"{what}: Spearman ρ ×100 {100 * agreement.spearman:.2f} (95% {100 * low:.2f} to {100 * high:.2f}), "
                f"Pearson ×100 {100 * agreement.pearson:.2f}, {agreement.n:,} rows"
            )
    return "\n".join(lines)


def _names(columns: str | None, existing: tuple[str, ...]) -> list[str] | None:
    """ "a,b" -> ["a", "b"]; the name of a column may itself hold a comma, written \\, in the option."""
    if columns is None:
        return None
    if columns in existing:
        return [columns]
    return [name.strip().replace("\0", ",") for name in columns.replace("\\,", "\0").split(",")]
