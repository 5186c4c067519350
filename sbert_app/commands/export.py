"""export IN OUT: a file of sentences with vectors, map and clusters, as embedding-atlas opens it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sbert_app.commands import options
from sbert_app.terminal import ProgressBar, clean_stdout, print_result
from training.registry import DEFAULT_MODEL


def export(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help="Sentences: .txt (one a line), .csv, .tsv, .jsonl, .parquet or .xlsx."),
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="A .parquet file for Apple's embedding-atlas.")],
    model: options.Model = DEFAULT_MODEL,
    pooling: options.Pooling = None,
    dimension: options.Dimension = None,
    prompt: options.Prompt = None,
    prompt_name: options.PromptName = None,
    column: options.Column = None,
    encoding: options.Encoding = None,
    clusters: Annotated[
        int, typer.Option("--clusters", min=0, metavar="N", help="So many by k-means; 0: by density (HDBSCAN).")
    ] = 0,
    neighbors: Annotated[
        int, typer.Option("--neighbors", min=0, max=100, metavar="N", help="Nearest sentences to list of each. [none]")
    ] = 0,
    map_points: Annotated[
        int, typer.Option(min=100, max=1_000_000, metavar="N", help="Sentences that UMAP draws; others are placed.")
    ] = 50_000,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    home: options.Home = None,
    offline: options.Offline = False,
    as_json: options.Json = False,
) -> None:
    """Write sentences with their vectors, map and clusters as Parquet for embedding-atlas.

    After an interruption the same command goes on from the vectors that are there.
    """
    from sbert_app.services.atlas.export import export_file
    from sbert_app.services.clusters.clustering import HDBSCAN, K_MEANS, ClusterSettings
    from sbert_app.services.corpus.limits import CorpusLimits
    from sbert_app.services.files.encode import check_export, open_sentences

    place = options.prepare(home, offline)
    table, chosen = open_sentences(source, column, encoding)  # reports errors before the model is loaded
    check_export(output, source)
    model = options.with_settings(model, dimension, prompt, prompt_name)
    clustering = ClusterSettings(K_MEANS, num_clusters=clusters) if clusters else ClusterSettings(HDBSCAN)
    limits = CorpusLimits(map_points=map_points, clustered=map_points)
    with clean_stdout(), _Stages() as stages:
        encoder = options.load_encoder(model, pooling, dtype, device, place)
        summary = export_file(
            table,
            chosen,
            output,
            encoder,
            place,
            neighbors,
            clustering,
            report_progress=stages.report,
            limits=limits,
        )
    print_result(asdict(summary) | {"command": summary.command}, as_json, summary.sentence)


class _Stages:
    """A progress bar on stderr for each stage."""

    def __init__(self) -> None:
        self._bar = ProgressBar("preparing", "%")

    def __enter__(self) -> _Stages:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.__exit__(None, None, None)

    def report(self, done: float, description: str | None = None, total: float = 1.0, /) -> None:
        """Show how far a stage is; another description begins another one."""
        if description is not None and description != self._bar.description:
            self._bar.__exit__(None, None, None)
            self._bar = ProgressBar(description, "%")
        self._bar(100 * done / (total or 1), 100)
