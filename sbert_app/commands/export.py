"""export IN OUT: a file of sentences with vectors, map and clusters, as embedding-atlas opens it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sbert_app.commands import options
from sbert_app.commands.parts import local_path
from sbert_app.terminal import ProgressBar, clean_stdout, print_result


@options.grouped
def export(
    source: Annotated[
        str,
        typer.Argument(metavar="IN", help="Sentences: .txt (one a line), .csv, .tsv, .jsonl, .parquet, .xlsx; or -."),
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
    """Write sentences, vectors, map and clusters for embedding-atlas.

    After an interruption the same command goes on from the vectors that are there.
    """
    from sbert_app.services.atlas import export_file
    from sbert_app.services.background.watch import Watch
    from sbert_app.services.clusters.clustering import HDBSCAN, K_MEANS, ClusterSettings
    from sbert_app.services.corpus.corpus import CorpusLimits
    from sbert_app.services.files.encode import open_sentences
    from sbert_app.services.files.writers import PARQUET, check_output

    place, (source, file) = computing.prepare(), file.of(source)
    clustering = ClusterSettings(K_MEANS, num_clusters=clusters) if clusters else ClusterSettings(HDBSCAN)
    limits = CorpusLimits(map_points=map_points, clustered=map_points)
    with options.received(source, lines=file.columns is None) as given, clean_stdout(), ProgressBar("preparing") as bar:
        path = local_path(given)
        table, chosen = open_sentences(path, file.columns, file.encoding)  # errors come before the model is loaded
        check_output(output, PARQUET, path)
        encoder = options.load_encoder(model, computing)
        summary = export_file(
            table, chosen, output, encoder, place, neighbors, clustering, watch=Watch(bar.stage), limits=limits
        )
    print_result(asdict(summary) | {"command": summary.command}, computing.as_json, summary.sentence)
