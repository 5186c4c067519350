"""cluster IN [OUT]: groups of similar sentences, with their keywords."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sbert_app.commands import options
from sbert_app.formats import format_count
from sbert_app.terminal import ProgressBar, clean_stdout, print_result


@options.grouped
def cluster(
    source: options.Sentences,
    output: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", help="Each sentence with its cluster: .csv, .tsv, .jsonl or .parquet."),
    ] = None,
    *,
    method: Annotated[
        str,
        typer.Option("--method", metavar="hdbscan|k-means|hierarchical", help="By density, around N means, a tree."),
    ] = "hdbscan",
    clusters: Annotated[
        int | None, typer.Option("--clusters", min=1, metavar="N", help="How many, of k-means and hierarchical.")
    ] = None,
    smallest: Annotated[
        int, typer.Option("--min-size", metavar="N", help="The fewest sentences of a cluster, of hdbscan.")
    ] = 5,
    min_cosine: Annotated[
        float,
        typer.Option("--min-cosine", metavar="COSINE", help="Hierarchical: join no groups that are less similar."),
    ] = 0.3,
    model: options.ModelOptions,
    file: options.FileOptions,
    computing: options.Computing,
) -> None:
    """Cluster sentences by meaning. Prints the size, the keywords and a typical sentence of each cluster."""
    place = computing.prepare()
    from sbert_app.services.background.watch import Watch
    from sbert_app.services.clusters.clustering import ClusterSettings
    from sbert_app.services.clusters.clustering import cluster as group
    from sbert_app.services.clusters.summary import describe_clusters, label_columns
    from sbert_app.services.files.writers import WRITERS, check_output, save_table
    from sbert_app.services.store.cache import DiskCache

    settings = ClusterSettings(method, smallest, min_cosine, clusters)
    with options.received(source, lines=True) as given, clean_stdout(), ProgressBar("encoding", "sentences") as bar:
        if output is not None:
            check_output(output, WRITERS, Path(given))
        corpus = options.open_corpus(given, file, place)
        space = options.embed(corpus, options.load_encoder(model, computing), place, bar)
        bar.unit = ""
        labels = group(space, settings, DiskCache(place / "cache"), place, Watch(bar.stage))
        found = describe_clusters(space, labels)
        if output is not None:
            save_table(output, label_columns(corpus, found))
    rows: list[dict[str, Any]] = [
        {
            "cluster": each.number,
            "sentences": len(each.rows),
            "cosine": each.cosine,
            "keywords": each.keywords,
            "typical": [corpus.sentences[row] for row in each.representatives],
        }
        for each in found
    ]
    lines = []
    for row in rows:
        words, example = ", ".join(row["keywords"][:4]), "".join(row["typical"][:1])
        lines.append(f"{row['cluster'] or 'none':>7}  {row['sentences']:>9,}  {words:40}  {example}".rstrip())
    groups = format_count(sum(row["cluster"] > 0 for row in rows), "cluster")
    head = f"{format_count(len(corpus), 'sentence')} of {corpus.name} in {groups} by {method}"
    written = [f"{output}: each sentence with its cluster"] if output else []
    value = {
        "model": space.model,
        "data": corpus.name,
        "method": method,
        "clusters": rows,
        "output": output and str(output),
    }
    text = "\n".join([head, "cluster  sentences  keywords", *lines, *written, *corpus.notes])
    print_result(value, computing.as_json, text)
