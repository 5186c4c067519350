"""score IN OUT: adds the cosine of each sentence pair to a file."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sbert_app.commands import matching, options, sharded
from sbert_app.formats import json_values
from sbert_app.terminal import ProgressBar, clean_stdout, print_result, stop_on_signal
from training.errors import InputError, Stopped
from training.registry import DEFAULT_MODEL

if TYPE_CHECKING:
    from sbert_app.services.files.summary import ScoreSummary


def score(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="Pairs: .csv, .tsv, .jsonl, .parquet or .xlsx; or a folder, glob or URL of them."
        ),
    ],
    output: Annotated[
        str,
        typer.Argument(
            metavar="OUT", help="IN with scores: .csv, .tsv or .parquet; or a folder, for Parquet in parts."
        ),
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
    threshold: options.Threshold = None,
    groups: Annotated[
        Path | None,
        typer.Option("--groups", metavar="FILE", help="Write the groups of duplicates, the largest first, here too."),
    ] = None,
    deduplicated: Annotated[
        Path | None,
        typer.Option("--deduplicated", metavar="FILE", help="Write the sentences without duplicates here too."),
    ] = None,
    encoding: options.Encoding = None,
    engine: sharded.EngineName = None,
    address: sharded.Address = None,
    concurrency: sharded.Concurrency = None,
    gpus_per_worker: sharded.GpusPerWorker = 0,
    cpus_per_worker: sharded.CpusPerWorker = 1,
    block_rows: sharded.BlockRows = 65_536,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    home: options.Home = None,
    offline: options.Offline = False,
    as_json: options.Json = False,
) -> None:
    """Score sentence pairs. Adds the columns cosine, cross_encoder and note. Ctrl-C keeps what is scored.

    With --threshold a column match is added: whether the cosine reaches the threshold, which is a number or is chosen
    by the gold scores or labels of the file. Into a folder, many files are scored in parts; the same command after an
    interruption does what is missing.
    """
    applied = matching.Matching.of(threshold, Path(output), groups, deduplicated)
    place = options.prepare(home, offline)
    model = options.with_settings(model, dimension, prompt, prompt_name)
    if sharded.is_sharded(source, output, engine):
        if applied:
            raise InputError("--threshold is for one file and not for a folder of parts; leave it out")
        from sbert_app.services.shards.job import ShardJob

        job = ShardJob(
            "score",
            output,
            model,
            pooling,
            cross_encoder,
            sharded.names_of(columns),
            dtype=dtype,
            device=device,
            home=str(place),
            offline=offline,
            block_rows=block_rows,
            encoding=encoding,
        )
        sharded.run(job, source, engine, address, concurrency, gpus_per_worker, cpus_per_worker, as_json)
        return
    from sbert_app.services.files.score import score_file
    from training.data.tables.table import open_table, pick_columns
    from training.evaluation.thresholds import CRITERIA

    with clean_stdout(), ProgressBar("scoring", "rows") as bar, stop_on_signal() as should_stop:
        table = open_table(sharded.local_path(source), encoding)  # reports errors before the model is loaded
        picked = pick_columns(table, _names(columns, table.columns))
        if applied:
            applied.check(table, picked)
        encoder = options.load_encoder(model, pooling, dtype, device, place)
        cross_encoder_model = None
        if cross_encoder:
            from training.models.cross_encoder import CrossEncoder

            cross_encoder_model = CrossEncoder.load(cross_encoder, dtype, device, place)
        if should_stop():
            raise Stopped
        with applied.temporary() if applied else nullcontext() as copy:
            summary = score_file(
                table,
                [Path(output), *([copy] if copy else [])],
                encoder,
                cross_encoder_model,
                picked,
                on_progress=bar,
                should_stop=should_stop,
                criteria=applied.criteria if applied else CRITERIA,
            )
            if summary.stopped_at is not None:
                raise Stopped(f"the {summary.stopped_at:,} rows before are scored in {output}")
            matches = applied.apply(copy, summary) if applied and copy else None
    summary.outputs = summary.outputs[:1] if matches is None else matches.outputs
    figures = _figures(summary) | ({} if matches is None else {"matches": json_values(asdict(matches))})
    print_result(figures, as_json, "\n".join([_text(summary), *([] if matches is None else [matching.text(matches)])]))


def _figures(summary: ScoreSummary) -> dict[str, Any]:
    """The summary without the data of figures."""
    figures = summary.to_dict()
    del figures["head"]
    if figures["report"] is not None:
        del figures["report"]["scatter"]
    return figures


def _text(summary: ScoreSummary) -> str:
    """The summary, and the agreement of the scores with the gold scores and with each other."""
    return "\n".join([*summary.remarks, summary.sentence, *sharded.agreements(summary.report)])


def _names(columns: str | None, existing: tuple[str, ...]) -> list[str] | None:
    """The names in the option; a single column may have a comma in its name."""
    if columns is None:
        return None
    return [columns] if columns in existing else list(sharded.names_of(columns))
