"""export IN OUT: a file of sentences with its map, its clusters and its neighbours, as embedding-atlas opens it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from sbert_app.commands import options
from sbert_app.commands.parts import local_path
from sbert_app.formats import format_count
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
    map_points: Annotated[
        int, typer.Option(min=100, max=1_000_000, metavar="N", help="Sentences that UMAP draws; others are placed.")
    ] = 50_000,
    computing: options.Computing,
) -> None:
    """Write sentences, map, clusters and nearest neighbours for embedding-atlas.

    After an interruption the same command goes on from the vectors that are there.
    """
    from sbert_app.services.background.watch import Watch
    from sbert_app.services.clusters.atlas import OPTIONS, export_atlas
    from sbert_app.services.clusters.clustering import HDBSCAN, K_MEANS, ClusterSettings, cluster
    from sbert_app.services.clusters.summary import describe_clusters
    from sbert_app.services.corpus.corpus import Corpus, CorpusLimits
    from sbert_app.services.corpus.embedded import encode
    from sbert_app.services.files.writers import PARQUET, check_output
    from sbert_app.services.maps.projection import MapSettings
    from sbert_app.services.store.cache import DiskCache

    home, (source, file) = computing.prepare(), file.of(source)
    clustering = ClusterSettings(K_MEANS, num_clusters=clusters) if clusters else ClusterSettings(HDBSCAN)
    limits, cache = CorpusLimits(map_points=map_points, clustered=map_points), DiskCache(home / "cache")
    with options.received(source, lines=file.columns is None) as path, clean_stdout(), ProgressBar("preparing") as bar:
        check_output(output, PARQUET, local_path(path))
        corpus, watch = Corpus.from_file(path, file.columns, file.encoding), Watch(bar.stage)
        encoder = options.load_encoder(model, computing)
        embedded = encode(corpus, encoder, None, watch.stage("Encoding"), home / "vectors")
        labels = cluster(embedded, clustering, cache, home, watch, limits)
        groups = describe_clusters(embedded, labels)
        by_umap = export_atlas(embedded, groups, output, MapSettings(), cache, home, limits, watch)
    opened = f"embedding-atlas {shlex.quote(str(output))} {OPTIONS}"
    placed = f", {len(corpus) - by_umap:,} of them placed by their neighbours" if by_umap < len(corpus) else ""
    text = f"{format_count(len(corpus), 'row')}{placed} -> {output}. Open it with: {opened}"
    value = {"output": str(output), "rows": len(corpus), "drawn": by_umap, "command": opened}
    print_result(value, computing.as_json, "\n".join([text, *corpus.notes]))
