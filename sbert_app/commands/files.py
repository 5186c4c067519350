"""encode and score: compute the vectors of the sentences in a file, and the scores of sentence pairs.

The result of many files is a folder of parts, which `PartsOptions` computes here or on Ray.
"""

import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from sbert_app.commands import options
from sbert_app.commands.options import Computing, ModelOptions, check_engine
from sbert_app.formats import format_count, json_values
from sbert_app.services.background.watch import Watch
from sbert_app.services.files.blocks import ShardJob
from sbert_app.services.files.encode import encode_file, open_sentences
from sbert_app.services.files.layout import Layout
from sbert_app.services.files.matches import (
    MatchOutputs,
    MatchSummary,
    apply_threshold,
    threshold_of,
)
from sbert_app.services.files.report import ScoreReport, ScoreSummary
from sbert_app.services.files.score import score_file
from sbert_app.services.files.writers import VECTORS, WRITERS, check_output
from sbert_app.terminal import ProgressBar, clean_stdout, print_result, stop_on_signal
from training.data.tables.columns import PairColumns, split_names
from training.data.tables.reading import requested_columns
from training.data.tables.rows import OpenedTable
from training.data.tables.table import SUFFIXES, open_table
from training.errors import InputError, StoppedError
from training.evaluation.thresholds import CRITERIA, FIXED, Criterion

if TYPE_CHECKING:
    from sbert_app.services.files.shards import Engine

# The parts of a report that --json prints.
FIGURES = ("mean", "sampled", "cosine_gold", "cross_gold", "cosine_cross", "decision")
FILE_SUFFIXES = (*SUFFIXES, ".npy")


@dataclass(frozen=True)
class PartsOptions:
    """Options of `score` and `encode` for many files, whose result is a folder of parts."""

    engine: Annotated[
        str | None, Option(metavar="local|ray", help="What computes a folder of parts. [local]")
    ] = None
    address: Annotated[
        str | None, Option(metavar="ADDRESS", help="Ray: auto, ray://host:10001 or local. [local]")
    ] = None
    concurrency: Annotated[
        int | None, Option(min=1, metavar="N", help="Ray: workers. [as many as fit]")
    ] = None
    gpus_per_worker: Annotated[float, Option(min=0, metavar="N", help="Ray: GPUs of a worker.")] = 0
    cpus_per_worker: Annotated[float, Option(min=0, metavar="N", help="Ray: CPUs of a worker.")] = 1
    block_rows: Annotated[int, Option(min=1, metavar="N", help="Rows of a part.")] = 65_536

    def are_meant(self, source: str, output: str) -> bool:
        """Whether the output is a folder of parts.

        This is so if an engine is named, if OUT is a folder or ends with a slash, or if IN is
        several files and OUT has no ending.
        """
        if self.engine is not None or output.endswith("/"):
            return True
        if Path(output).is_dir():
            # A folder that is named like a file, such as out.csv, is not used as a folder of parts.
            return not output.lower().endswith(FILE_SUFFIXES)
        return _is_several(source) and not Path(output).suffix

    def run(
        self,
        kind: str,
        source: str,
        output: str,
        model: ModelOptions,
        computing: Computing,
        **job: Any,
    ) -> None:
        """Runs a `ShardJob` with these options and the fields ``job``, shows a bar, and prints the result."""
        # Imported here because it imports pyarrow, which takes time.
        from sbert_app.services.files.shards import RayEngine, compute_here, run_job

        if output.lower().endswith(FILE_SUFFIXES):
            raise InputError(
                f"{output} is the name of a file; an engine writes a folder of parts: name a folder"
            )
        engine: Engine = compute_here
        check_engine(self.engine)
        if self.engine == "ray":
            engine = RayEngine(
                self.address or "local",
                self.concurrency,
                self.gpus_per_worker,
                self.cpus_per_worker,
            )
        elif self.address or self.concurrency:
            raise InputError("--address and --concurrency are options of --engine ray")
        shard_job = ShardJob(
            kind,
            output,
            model.name,
            pooling=model.pooling,
            home=str(computing.prepare()),
            block_rows=self.block_rows,
            dtype=computing.dtype,
            device=computing.device,
            offline=computing.offline,
            **job,
        )
        description = "scoring" if kind == "score" else "encoding"
        with (
            clean_stdout(),
            ProgressBar(description, "rows") as bar,
            stop_on_signal() as should_stop,
        ):
            try:
                result = run_job(shard_job, source, engine, Watch.of(bar, should_stop))
            except StoppedError:
                raise StoppedError(
                    f"the parts that are finished stay in {output}; the same command goes on"
                ) from None
        print_result(asdict(result), computing.as_json, result.sentence)


def local_path(source: str) -> Path:
    """Returns the path of a single file. Raises InputError for a glob, a folder or a URL."""
    if _is_several(source):
        raise InputError(
            f"{source} is not a file on this machine: for a folder, glob or URL name a folder as OUT"
        )
    return Path(source)


def _is_several(source: str) -> bool:
    path = Path(source)
    is_glob = any(sign in source for sign in "*?[") and not path.exists()
    return is_glob or "://" in source or path.is_dir()


@options.grouped
def encode(
    source: Annotated[
        str,
        Argument(
            metavar="IN",
            help=f"Sentences: .txt (one a line), {options.TABLES}; a folder, glob or URL; or -.",
        ),
    ],
    output: Annotated[
        str,
        Argument(
            metavar="OUT",
            help="Vectors: .npy, .jsonl or .parquet; a folder, for IN with vectors in parts; or -.",
        ),
    ],
    *,
    model: options.ModelOptions,
    file: options.FileOptions,
    normalize: Annotated[bool, Option(help="Scale each vector to length 1.")] = True,
    pipe: options.Pipe,
    parts: PartsOptions,
    computing: options.Computing,
) -> None:
    """Encode sentences to vectors, rows in input order.

    Into a folder, many files are encoded in parts; the same command after an interruption does what
    is missing.
    """
    source, file = file.parse(source)
    if parts.are_meant(source, output):
        if file.sheet:
            raise InputError("--sheet is for one file, not for parts; leave it out")
        # The name of one column, which may contain commas.
        columns = (file.columns,) if file.columns else ()
        parts.run(
            "encode",
            source,
            output,
            model,
            computing,
            normalize=normalize,
            columns=columns,
            encoding=file.encoding,
        )
        return
    # Without columns, plain text on standard input has one sentence per line.
    has_lines = file.columns is None
    with pipe.files(source, output, computing.as_json, has_lines) as (input_path, output_path):
        with clean_stdout(), ProgressBar("encoding", "sentences") as bar:
            path = local_path(input_path)
            target = Path(output_path)
            # Errors of the file are reported before the model is loaded.
            table, column = open_sentences(path, file.columns, file.encoding, file.sheet)
            # `sentences` are the columns that have sentences: two for pairs, three for triplets.
            if file.columns is None and len(table.reading.sentences) > 1:
                note = f"{source} has several columns of sentences: {column} alone is encoded"
                print(f"{note}; --columns names another column", file=sys.stderr)
            check_output(target, VECTORS, path)
            encoder = options.load_encoder(model, computing)
            summary = encode_file(table, column, target, encoder, normalize, Watch.of(bar))
        # For OUT -, the output is a temporary file, whose name says nothing.
        sentence = summary.sentence.replace(output_path, output)
        print_result(asdict(summary), computing.as_json, sentence)


def _criterion_of(threshold: str | None, outputs: MatchOutputs) -> Criterion | None:
    """Returns the criterion of a threshold, or None without a threshold.

    Raises InputError if the threshold is malformed, if the outputs need one, or if two of them are
    the same file.
    """
    if threshold is None:
        if outputs.groups or outputs.deduplicated:
            raise InputError(
                "--groups and --deduplicated need --threshold: from which cosine on are rows matches?"
            )
        return None
    paths = [path.resolve() for path in _paths(outputs)]
    if len(set(paths)) < len(paths):
        raise InputError("two of OUT, --groups and --deduplicated are the same file; name three")
    return Criterion.parse(threshold)


def _check_matching(
    criterion: Criterion, outputs: MatchOutputs, table: OpenedTable, columns: PairColumns
) -> None:
    """Raises InputError if a threshold cannot be chosen or a file cannot be written. Called before scoring."""
    for path in _paths(outputs):
        check_output(path, WRITERS)
    has_judgements = bool(columns.score or columns.label or columns.ratings)
    if criterion.kind != FIXED and not has_judgements:
        raise InputError(
            f"{table.path.name} has no column of gold scores or labels to choose a threshold by; give a number, such "
            "as --threshold 0.8"
        )


def _paths(outputs: MatchOutputs) -> list[Path]:
    paths = [*outputs.matched, outputs.groups, outputs.deduplicated]
    return [path for path in paths if path]


@options.grouped
def score(
    source: Annotated[
        str,
        Argument(
            metavar="IN", help=f"Pairs: {options.TABLES}; a folder, glob or URL of them; or -."
        ),
    ],
    output: Annotated[
        str,
        Argument(
            metavar="OUT",
            help="IN with scores: .csv, .tsv, .jsonl, .parquet or .xlsx; a folder, for Parquet in parts; or -.",
        ),
    ],
    *,
    model: options.ModelOptions,
    cross_encoder: Annotated[
        str | None, Option(metavar="NAME", help="Score with this one too: minilm-stsb, …")
    ] = None,
    file: options.PairFileOptions,
    threshold: options.Threshold = None,
    groups: Annotated[
        Path | None,
        Option(metavar="FILE", help="Write the groups of duplicates, the largest first, here too."),
    ] = None,
    deduplicated: Annotated[
        Path | None,
        Option(metavar="FILE", help="Write the rows of the sentences without duplicates here too."),
    ] = None,
    keep_unknown: options.KeepUnknown = False,
    pipe: options.Pipe,
    parts: PartsOptions,
    computing: options.Computing,
) -> None:
    """Score sentence pairs. Adds the columns cosine, cross_encoder and note. Ctrl-C keeps what is scored.

    With --threshold a column match is added: whether the cosine reaches the threshold, which is a
    number or is chosen by the gold scores or labels of the file. Into a folder, many files are
    scored in parts; the same command after an interruption does what is missing.
    """
    # An unusable --home is reported before anything else.
    computing.prepare()
    source, file = file.parse(source)
    if parts.are_meant(source, output):
        settings = (file.scale, file.labels, file.raters, file.sheet)
        if threshold or groups or deduplicated or any(settings):
            raise InputError(
                "--threshold, --groups, --deduplicated, --scale, --labels, --raters and --sheet are for one file, "
                "not for parts; leave them out"
            )
        parts.run(
            "score",
            source,
            output,
            model,
            computing,
            cross_encoder=cross_encoder,
            columns=split_names(file.columns),
            encoding=file.encoding,
            keep_unknown=keep_unknown,
        )
        return
    with pipe.files(source, output, computing.as_json) as (input_path, output_path):
        target = Path(output_path)
        matches = None
        outputs = MatchOutputs([target], groups, deduplicated)
        criterion = _criterion_of(threshold, outputs)
        with clean_stdout(), ProgressBar("scoring", "rows") as bar:
            # Errors of the file are reported before the model is loaded.
            table = open_table(local_path(input_path), file.encoding, file.sheet)
            requested = requested_columns(file.columns, table.reading)
            columns = table.reading.with_columns(requested).pair()
            if criterion is not None:
                _check_matching(criterion, outputs, table, columns)
            encoder = options.load_encoder(model, computing)
            reranker = options.load_cross_encoder(cross_encoder, computing)
            with stop_on_signal() as should_stop, ExitStack() as stack:
                files = [target]
                # The thresholds in the report of a file with gold scores or labels.
                criteria: tuple[str, ...] = CRITERIA
                if criterion is not None:
                    criteria = (str(criterion),)
                    # The threshold is applied to a second file, whose columns have types.
                    temporary = tempfile.TemporaryDirectory(
                        prefix=".sbert-lab-", dir=target.absolute().parent
                    )
                    typed_file = Path(stack.enter_context(temporary), "scored.parquet")
                    files.append(typed_file)
                summary = score_file(
                    table,
                    files,
                    encoder,
                    reranker,
                    columns,
                    Watch.of(bar, should_stop),
                    criteria=criteria,
                    scale=file.scale,
                    labels=file.labels,
                    keep_unknown=keep_unknown,
                    raters=file.raters,
                )
                if summary.stopped_at is not None:
                    raise StoppedError(
                        f"the {summary.stopped_at:,} rows before are scored in {target}"
                    )
                if criterion is not None:
                    try:
                        limit = threshold_of(summary, criterion)
                    except InputError as error:
                        raise InputError(
                            f"{error}; the scores without a column match are in {target}"
                        ) from error
                    # Outputs that are text files have the layout of the input, which the typed file
                    # does not have.
                    outputs = replace(outputs, layout=Layout.of(table))
                    # The name of the new column of cosines.
                    cosine = summary.added["cosine"]
                    matches = apply_threshold(
                        typed_file, summary.columns, cosine, limit, outputs, gold=summary.gold
                    )
                    # `summary.outputs` names the typed file, too, which is deleted with its folder.
                    summary.outputs = matches.outputs
        _print_scores(summary, matches, computing.as_json)


def _print_scores(summary: ScoreSummary, matches: MatchSummary | None, as_json: bool) -> None:
    """Prints the summary of a scored file, and the matches if there is a threshold."""
    values = summary.to_dict()
    # Only pages need the rows, the histograms and the words for a missing score.
    del values["head"]
    if summary.report is not None:
        values["report"] = {key: values["report"][key] for key in FIGURES}
    if summary.gold is not None:
        del values["gold"]["missing"]
    lines = [*summary.remarks, summary.sentence, *_agreements(summary.report)]
    if matches is not None:
        values["matches"] = json_values(asdict(matches))
        lines.append(
            f"{matches.matches:,} of {format_count(matches.pairs, 'pair')} match, from {matches.score} "
            f"{matches.threshold:.4f} on; {format_count(matches.groups, 'group')} of duplicates among "
            f"{format_count(matches.sentences, 'sentence')}, {matches.remaining:,} without them."
        )
    print_result(values, as_json, "\n".join(lines))


def _agreements(report: ScoreReport | None) -> list[str]:
    """Returns lines on the agreement of the scores with labels, with gold scores, and with each other."""
    if report is None:
        return []
    lines = []
    if report.decision:
        average = report.decision.decision.average_precision.value
        lines.append(
            f"cosine and matches: average precision ×100 {100 * average:.2f}; {report.decision.meaning}"
        )
    agreements = {
        "cosine and gold": report.cosine_gold,
        "cross-encoder and gold": report.cross_gold,
        "both": report.cosine_cross,
    }
    for title, agreement in agreements.items():
        if agreement is None:
            continue
        if isnan(agreement.spearman):
            # Without a correlation, `interval_method` says why it is undefined.
            lines.append(f"{title}: {agreement.interval_method}, {agreement.n:,} rows")
            continue
        low, high = agreement.spearman_interval
        interval = "too few rows for an interval"
        if not isnan(low):
            interval = f"95% {100 * low:.2f} to {100 * high:.2f}"
        lines.append(
            f"{title}: Spearman ρ ×100 {100 * agreement.spearman:.2f} ({interval}), "
            f"Pearson ×100 {100 * agreement.pearson:.2f}, {agreement.n:,} rows"
        )
    return lines
