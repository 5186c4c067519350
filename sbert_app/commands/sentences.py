"""compare, search, cluster and export: sentences under a model, by their similarity."""

import shlex
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from sbert_app.commands import options
from sbert_app.commands.files import local_path
from sbert_app.formats import format_count, format_number
from sbert_app.services.background.watch import Watch
from sbert_app.services.clusters.clustering import HDBSCAN, K_MEANS, ClusterSettings
from sbert_app.services.clusters.clustering import cluster as group
from sbert_app.services.clusters.summary import describe_clusters, label_columns
from sbert_app.services.compare.comparison import compare as measure
from sbert_app.services.corpus.corpus import Corpus, CorpusLimits
from sbert_app.services.corpus.embedded import encode
from sbert_app.services.corpus.search import check_query
from sbert_app.services.corpus.search import search as find
from sbert_app.services.files.writers import PARQUET, WRITERS, check_output, save_table
from sbert_app.services.maps.projection import MapSettings
from sbert_app.services.store.cache import DiskCache
from sbert_app.terminal import ProgressBar, clean_stdout, print_result
from training.catalogue import DEFAULT_CROSS_ENCODER
from training.names import ModelName


@options.grouped
def compare(
    first: Annotated[str, Argument(metavar="A", help="The first sentence.")],
    second: Annotated[str, Argument(metavar="B", help="The second sentence.")],
    *,
    model: options.ModelOptions,
    cross_encoder: Annotated[
        str, Option(metavar="NAME", help="Reads both at once; none for no such score.")
    ] = DEFAULT_CROSS_ENCODER,
    computing: options.Computing,
) -> None:
    """Compare two sentences: the cosine, and a cross-encoder's score.

    Prints also what each word adds to the cosine.
    """
    with clean_stdout():
        encoder = options.load_encoder(model, computing)
        crosser = options.load_cross_encoder(cross_encoder if cross_encoder != "none" else None, computing)
        comparison = measure(encoder, crosser, first, second)
    lines = [
        f"cosine         {comparison.cosine:.4f}   {ModelName.parse(model.name).label}, {comparison.pooling} pooling"
    ]
    if comparison.cross_encoder is not None:
        lines.append(f"cross-encoder  {format_number(comparison.cross_score, 4)}   {comparison.cross_encoder}")
    if comparison.attribution is not None:
        for name, words, shares in (
            ("A", comparison.attribution.words_a, comparison.attribution.matrix.sum(axis=1)),
            ("B", comparison.attribution.words_b, comparison.attribution.matrix.sum(axis=0)),
        ):
            lines.append(
                f"words of {name}     " + "  ".join(f"{w} {x:+.3f}" for w, x in zip(words, shares, strict=True))
            )
    cut = " and ".join(name for name, side in (("A", comparison.a), ("B", comparison.b)) if side.truncated)
    lines += [f"{cut} is cut: the model reads {encoder.max_length:,} tokens"] if cut else []
    lines += [*comparison.warnings, *filter(None, [comparison.advice])]
    print_result(comparison.to_json(), computing.as_json, "\n".join(lines))


@options.grouped
def search(
    source: options.Sentences,
    query: Annotated[str, Argument(metavar="QUERY", help="A sentence, a question, a few words.")],
    *,
    k: Annotated[int, Option("-k", "--top-k", metavar="N", help="How many sentences, 1 to 100.")] = 10,
    model: options.ModelOptions,
    cross_encoder: Annotated[
        str | None, Option(metavar="NAME", help="Ranks the 4k nearest again: minilm-stsb, …")
    ] = None,
    keep_unknown: options.KeepUnknown = False,
    file: options.FileOptions,
    computing: options.Computing,
) -> None:
    """Search sentences by meaning: the nearest to the query first.

    Vectors are kept in the home folder: the next search of the same sentences is quick.
    """
    place = computing.prepare()
    # This reports what is wrong before the model is loaded.
    check_query(query, k)
    with options.received(source, lines=True) as path, clean_stdout(), ProgressBar("encoding", "sentences") as bar:
        corpus = options.open_corpus(path, file, place)
        encoder = options.load_encoder(model, computing)
        space = options.embed(corpus, encoder.for_role("document"), place, bar)
        crosser = options.load_cross_encoder(cross_encoder, computing)
        result = find(space, query, encoder.for_role("query"), k, crosser, keep_unknown)
    lines = [f"{hit.cosine:.4f}  {hit.row + 1:>8,}  {hit.sentence}" for hit in result.hits]
    if crosser:
        lines = [f"{hit.cross_score:.4f}  {line}" for hit, line in zip(result.hits, lines, strict=True)]
    head = ("score   " if crosser else "") + "cosine       row  sentence"
    lines = [f"{format_count(result.searched, 'sentence')} of {corpus.name}", head, *lines]
    lines += [*corpus.notes, *result.warnings]
    print_result({"model": space.model, "data": corpus.name, **result.to_json()}, computing.as_json, "\n".join(lines))


@options.grouped
def cluster(
    source: options.Sentences,
    output: Annotated[
        Path | None, Argument(metavar="OUT", help="Each sentence with its cluster: .csv, .tsv, .jsonl or .parquet.")
    ] = None,
    *,
    method: Annotated[
        str, Option(metavar="hdbscan|k-means|hierarchical", help="By density, around N means, a tree.")
    ] = "hdbscan",
    clusters: Annotated[
        int | None, Option(min=1, metavar="N", help="How many, of k-means (20) and hierarchical.")
    ] = None,
    smallest: Annotated[
        int, Option("--min-size", metavar="N", help="The fewest sentences of a cluster, of hdbscan.")
    ] = 5,
    min_cosine: Annotated[
        float, Option(metavar="COSINE", help="Hierarchical: join no groups that are less similar.")
    ] = 0.3,
    keep_unknown: options.KeepUnknown = False,
    model: options.ModelOptions,
    file: options.FileOptions,
    computing: options.Computing,
) -> None:
    """Cluster sentences by meaning. Prints the size, the keywords and a typical sentence of each cluster."""
    place = computing.prepare()
    settings = ClusterSettings(method, smallest, min_cosine, clusters)
    with options.received(source, lines=True) as path, clean_stdout(), ProgressBar("encoding", "sentences") as bar:
        if output is not None:
            check_output(output, WRITERS, Path(path))
        corpus = options.open_corpus(path, file, place)
        space = options.embed(corpus, options.load_encoder(model, computing), place, bar)
        bar.unit = ""
        cache = DiskCache(place / "cache")
        labels = group(space, settings, cache, place, Watch(bar.stage), keep_unknown=keep_unknown)
        summaries = describe_clusters(space, labels)
        if output is not None:
            save_table(output, label_columns(corpus, summaries))
    rows: list[dict[str, Any]] = [
        {
            "cluster": cluster.number,
            "sentences": len(cluster.rows),
            "cosine": cluster.cosine,
            "keywords": cluster.keywords,
            "typical": [corpus.sentences[row] for row in cluster.representatives],
        }
        for cluster in summaries
    ]
    lines = []
    for row in rows:
        words = ", ".join(row["keywords"][:4])
        example = "".join(row["typical"][:1])
        lines.append(f"{row['cluster'] or 'none':>7}  {row['sentences']:>9,}  {words:40}  {example}".rstrip())
    count = format_count(sum(row["cluster"] > 0 for row in rows), "cluster")
    head = f"{format_count(len(corpus), 'sentence')} of {corpus.name} in {count} by {method}"
    written = [f"{output}: each sentence with its cluster"] if output else []
    value: dict[str, Any] = {"model": space.model, "data": corpus.name, "method": method, "clusters": rows}
    value |= {"output": output and str(output), "warnings": space.warnings}
    text = "\n".join([head, "cluster  sentences  keywords", *lines, *written, *corpus.notes, *space.warnings])
    print_result(value, computing.as_json, text)


@options.grouped
def export(
    source: Annotated[
        str,
        Argument(
            metavar="IN",
            help="Sentences: .txt (one a line), .csv, .tsv, .jsonl, .parquet, .xlsx; or -.",
        ),
    ],
    output: Annotated[Path, Argument(metavar="OUT", help="A .parquet file for Apple's embedding-atlas.")],
    *,
    model: options.ModelOptions,
    file: options.FileOptions,
    clusters: Annotated[int, Option(min=0, metavar="N", help="So many by k-means; 0: by density (HDBSCAN).")] = 0,
    map_points: Annotated[
        int, Option(min=100, max=1_000_000, metavar="N", help="Sentences that UMAP draws; others are placed.")
    ] = 50_000,
    computing: options.Computing,
) -> None:
    """Write sentences with map and clusters for embedding-atlas.

    After an interruption the same command goes on from the vectors that are there.
    """
    # It imports pyarrow.
    from sbert_app.services.clusters.atlas import OPTIONS, export_atlas

    home, (source, file) = computing.prepare(), file.of(source)
    clustering = ClusterSettings(K_MEANS, num_clusters=clusters) if clusters else ClusterSettings(HDBSCAN)
    limits = CorpusLimits(map_points=map_points, clustered=map_points)
    cache = DiskCache(home / "cache")
    with options.received(source, lines=file.columns is None) as path, clean_stdout(), ProgressBar("preparing") as bar:
        check_output(output, PARQUET, local_path(path))
        corpus = Corpus.from_file(path, file.columns, file.encoding, sheet=file.sheet)
        watch = Watch(bar.stage)
        encoder = options.load_encoder(model, computing)
        embedded = encode(corpus, encoder, None, watch.stage("Encoding"), home / "vectors")
        labels = group(embedded, clustering, cache, home, watch, limits)
        groups = describe_clusters(embedded, labels)
        by_umap = export_atlas(embedded, groups, output, MapSettings(), cache, home, limits, watch)
    opened = f"embedding-atlas {shlex.quote(str(output))} {OPTIONS}"
    placed = f", {len(corpus) - by_umap:,} of them placed by their neighbours" if by_umap < len(corpus) else ""
    text = f"{format_count(len(corpus), 'row')}{placed} -> {output}. Open it with: {opened}"
    value = {"output": str(output), "rows": len(corpus), "drawn": by_umap, "command": opened}
    print_result(value, computing.as_json, "\n".join([text, *corpus.notes]))
