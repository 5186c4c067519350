"""export IN OUT: a file of sentences with vectors, map and clusters, as embedding-atlas opens it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sbert_app.commands import options
from sbert_app.terminal import ProgressBar, clean_stdout, print_result


@options.grouped
def export(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="Sentences: .txt (one a line), .csv, .tsv, .jsonl, .parquet or .xlsx.")
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="A .parquet file for Apple's embedding-atlas.")],
    *,
    model: options.ModelOptions,
    file: options.FileOptions,
    clusters: Annotated[
        int, typer.Option("--clusters", min=0, metavar="N", help="So many by k-means; 0: by density (HDBSCAN).")
    ] = 0,
    neighbors: Annotated[
        int, typer.Option("--neighbors", min=0, max=100, metavar="N", help="Nearest sentences to list of each. [none]")
    ] = 0,
    map_points: Annotated[
        int, typer.Option(min=100, max=1_000_000, metavar="N", help="Sentences that UMAP draws; others are placed.")
    ] = 50_000,
    computing: options.Computing,
) -> None:
    """Write sentences with their vectors, map and clusters as Parquet for embedding-atlas.

    After an interruption the same command goes on from the vectors that are there.
    """
    from sbert_app.services.atlas import export_file
    from sbert_app.services.background.watch import Watch
    from sbert_app.services.clusters.clustering import HDBSCAN, K_MEANS, ClusterSettings
    from sbert_app.services.corpus.corpus import CorpusLimits
    from sbert_app.services.files.encode import open_sentences
    from sbert_app.services.files.writers import PARQUET, check_output

    place = computing.prepare()
    table, chosen = open_sentences(source, file.column, file.encoding)  # reports errors before the model is loaded
    check_output(output, PARQUET, source)
    clustering = ClusterSettings(K_MEANS, num_clusters=clusters) if clusters else ClusterSettings(HDBSCAN)
    limits = CorpusLimits(map_points=map_points, clustered=map_points)
    with clean_stdout(), _Stages() as stages:
        encoder = options.load_encoder(model, computing)
        summary = export_file(
            table, chosen, output, encoder, place, neighbors, clustering, watch=Watch(stages.report), limits=limits
        )
    print_result(asdict(summary) | {"command": summary.command}, computing.as_json, summary.sentence)


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
