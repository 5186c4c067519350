"""score IN OUT: adds the cosine of each sentence pair to a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sbert_app.commands import options
from sbert_app.commands.parts import PartsOptions, local_path
from sbert_app.formats import format_count, json_values
from sbert_app.terminal import ProgressBar, clean_stdout, print_result, stop_on_signal
from training.data.tables.columns import split_names
from training.errors import InputError, Stopped

if TYPE_CHECKING:
    from sbert_app.services.files.matches import MatchOutputs, MatchSummary
    from sbert_app.services.files.report import ScoreReport, ScoreSummary
    from training.data.tables.columns import PairColumns
    from training.data.tables.rows import OpenedTable
    from training.evaluation.thresholds import Criterion


@dataclass(frozen=True)
class _Matching:
    """The options --threshold, --groups and --deduplicated."""

    criterion: Criterion
    outputs: MatchOutputs

    @classmethod
    def of(
        cls, threshold: str | None, output: Path, groups: Path | None, deduplicated: Path | None
    ) -> _Matching | None:
        """None without a threshold. InputError if it is none, or is missing where the others need it."""
        if threshold is None:
            if groups or deduplicated:
                raise InputError("--groups and --deduplicated need --threshold: from which cosine on are rows matches?")
            return None
        from sbert_app.services.files.matches import MatchOutputs
        from training.evaluation.thresholds import Criterion

        paths = [path.resolve() for path in (output, groups, deduplicated) if path]
        if len(set(paths)) < len(paths):
            raise InputError("two of OUT, --groups and --deduplicated are the same file; name three")
        return cls(Criterion.parse(threshold), MatchOutputs([output], groups, deduplicated))

    def check(self, table: OpenedTable, columns: PairColumns) -> None:
        """InputError, before anything is scored, if a threshold cannot be chosen or a file not be written."""
        from sbert_app.services.files.writers import WRITERS, check_output
        from training.data.gold import LOOKED_AT, GoldColumn
        from training.evaluation.thresholds import FIXED

        for path in filter(None, (self.outputs.groups, self.outputs.deduplicated)):
            check_output(path, WRITERS)
        if self.criterion.kind != FIXED and GoldColumn.of(table.preview(LOOKED_AT), columns) is None:
            raise InputError(
                f"{table.path.name} has no column of gold scores or labels to choose a threshold by; give a number, "
                "such as --threshold 0.8"
            )

    @contextmanager
    def temporary(self) -> Iterator[Path]:
        """Where the scores are put meanwhile: with the types that they have, beside the output."""
        from sbert_app.services.files.writers import WRITERS, check_output

        [output] = self.outputs.matched
        check_output(output, WRITERS)
        with tempfile.TemporaryDirectory(prefix=".sbert-lab-", dir=output.absolute().parent) as inside:
            yield Path(inside) / "scored.parquet"

    def apply(self, scored: Path, summary: ScoreSummary) -> MatchSummary:
        """Write the outputs. InputError if no threshold fulfils the criterion; the scores are kept."""
        from sbert_app.services.files.matches import apply_threshold, threshold_of

        try:
            threshold = threshold_of(summary, self.criterion)
        except InputError as error:
            [output] = self.outputs.matched
            raise InputError(f"{error}; the scores without a column match are in {output}") from error
        return apply_threshold(scored, summary.columns, summary.added["cosine"], threshold, self.outputs)


@options.grouped
def score(
    source: Annotated[
        str,
        typer.Argument(metavar="IN", help=f"Pairs: {options.TABLES}; a folder, glob or URL of them; or -."),
    ],
    output: Annotated[
        str,
        typer.Argument(
            metavar="OUT", help="IN with scores: .csv, .tsv, .jsonl or .parquet; a folder, for Parquet in parts; or -."
        ),
    ],
    *,
    model: options.ModelOptions,
    cross_encoder: Annotated[
        str | None, typer.Option("--cross-encoder", metavar="NAME", help="Score with this one too: minilm-stsb, …")
    ] = None,
    file: options.FileOptions,
    threshold: options.Threshold = None,
    groups: Annotated[
        Path | None,
        typer.Option("--groups", metavar="FILE", help="Write the groups of duplicates, the largest first, here too."),
    ] = None,
    deduplicated: Annotated[
        Path | None,
        typer.Option("--deduplicated", metavar="FILE", help="Write the sentences without duplicates here too."),
    ] = None,
    pipe: options.Pipe,
    parts: PartsOptions,
    computing: options.Computing,
) -> None:
    """Score sentence pairs. Adds the columns cosine, cross_encoder and note. Ctrl-C keeps what is scored.

    With --threshold a column match is added: whether the cosine reaches the threshold, which is a number or is chosen
    by the gold scores or labels of the file. Into a folder, many files are scored in parts; the same command after an
    interruption does what is missing.
    """
    computing.prepare()
    source, file = file.of(source)
    if parts.are_meant(source, output):
        if threshold is not None:
            raise InputError("--threshold is for one file and not for a folder of parts; leave it out")
        parts.run(
            "score",
            source,
            output,
            model,
            computing,
            cross_encoder=cross_encoder,
            columns=split_names(file.columns),
            encoding=file.encoding,
        )
        return
    with pipe.files(source, output, computing.as_json) as (input_path, output_path):
        applied = _Matching.of(threshold, Path(output_path), groups, deduplicated)
        _score(local_path(input_path), Path(output_path), model, cross_encoder, file, applied, computing)


def _score(
    source: Path,
    output: Path,
    model: options.ModelOptions,
    cross_encoder: str | None,
    file: options.FileOptions,
    applied: _Matching | None,
    computing: options.Computing,
) -> None:
    from sbert_app.services.background.watch import Watch
    from sbert_app.services.files.score import score_file
    from training.data.tables.columns import pick_columns
    from training.data.tables.table import open_table
    from training.evaluation.thresholds import CRITERIA

    with clean_stdout(), ProgressBar("scoring", "rows") as bar:
        table = open_table(source, file.encoding)  # reports errors before the model is loaded
        picked = pick_columns(table, split_names(file.columns, table.columns) or None)
        if applied:
            applied.check(table, picked)
        from training.models.cross_encoder import CrossEncoder

        encoder = options.load_encoder(model, computing)
        cross = cross_encoder and CrossEncoder.load(
            cross_encoder, computing.dtype, computing.device, computing.prepare()
        )
        with applied.temporary() if applied else nullcontext() as copy, stop_on_signal() as should_stop:
            summary = score_file(
                table,
                [output, *([copy] if copy else [])],
                encoder,
                cross or None,
                picked,
                Watch.of(bar, should_stop),
                criteria=(str(applied.criterion),) if applied else CRITERIA,
            )
            if summary.stopped_at is not None:
                raise Stopped(f"the {summary.stopped_at:,} rows before are scored in {output}")
            matches = applied.apply(copy, summary) if applied and copy else None
    summary.outputs = summary.outputs[:1] if matches is None else matches.outputs
    values = summary.to_dict()
    # This and the next are for figures.
    del values["head"]
    if values["report"] is not None:
        del values["report"]["scatter"]
    lines = [*summary.remarks, summary.sentence, *_agreements(summary.report)]
    if matches is not None:
        values["matches"] = json_values(asdict(matches))
        lines.append(_matches_text(matches))
    print_result(values, computing.as_json, "\n".join(lines))


def _matches_text(matches: MatchSummary) -> str:
    groups = format_count(matches.groups, "group")
    return (
        f"{matches.matches:,} of {format_count(matches.pairs, 'pair')} match, from {matches.score} "
        f"{matches.threshold:.4f} on; {groups} of duplicates among {format_count(matches.sentences, 'sentence')}, "
        f"{matches.remaining:,} without them."
    )


def _agreements(report: ScoreReport | None) -> list[str]:
    """A line for each pair of scores that a report compares."""
    pairs = ("cosine_gold", "cosine and gold"), ("cross_gold", "cross-encoder and gold"), ("cosine_cross", "both")
    lines = []
    for field, what in pairs:
        if (agreement := getattr(report, field, None)) is not None:
            low, high = agreement.spearman_interval
            interval = f"95% {100 * low:.2f} to {100 * high:.2f}" if low == low else "too few rows for an interval"
            lines.append(
                f"{what}: Spearman ρ ×100 {100 * agreement.spearman:.2f} ({interval}), "
                f"Pearson ×100 {100 * agreement.pearson:.2f}, {agreement.n:,} rows"
            )
    return lines
