"""compare, search, cluster and export: compare sentences, search and group them, and write them for other tools."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
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
        reranker = None
        if cross_encoder != "none":
            reranker = options.load_cross_encoder(cross_encoder, computing)
        comparison = measure(encoder, reranker, first, second)
    label = ModelName.parse(model.name).label
    lines = [f"cosine         {comparison.cosine:.4f}   {label}, {comparison.pooling} pooling"]
    if comparison.cross_encoder is not None:
        cross_score = format_number(comparison.cross_score, 4)
        lines.append(f"cross-encoder  {cross_score}   {comparison.cross_encoder}")
    if comparison.attribution is not None:
        word_map = comparison.attribution
        lines.append(_word_line("A", word_map.words_a, word_map.matrix.sum(axis=1)))
        lines.append(_word_line("B", word_map.words_b, word_map.matrix.sum(axis=0)))
    cut = []
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        if side.truncated:
            cut.append(name)
    if cut:
        lines.append(f"{' and '.join(cut)} is cut: the model reads {encoder.max_length:,} tokens")
    lines += comparison.warnings
    if comparison.advice:
        lines.append(comparison.advice)
    print_result(comparison.to_json(), computing.as_json, "\n".join(lines))


def _word_line(name: str, words: Sequence[str], shares: np.ndarray) -> str:
    """Returns the words of a sentence with their shares of the cosine."""
    line = f"words of {name}   "
    for word, share in zip(words, shares, strict=True):
        line += f"  {word} {share:+.3f}"
    return line


@options.grouped
def search(
    source: options.Sentences,
    query: Annotated[str, Argument(metavar="QUERY", help="A sentence, a question, a few words.")],
    *,
    k: Annotated[
        int, Option("-k", "--top-k", metavar="N", help="How many sentences, 1 to 100.")
    ] = 10,
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
    home_path = computing.prepare()
    # Checked first, so that a mistake is reported before the model is loaded.
    check_query(query, k)
    with (
        options.input_file(source, lines=True) as path,
        clean_stdout(),
        ProgressBar("encoding", "sentences") as bar,
    ):
        corpus = options.open_corpus(path, file, home_path)
        encoder = options.load_encoder(model, computing)
        # The model's folder may have a prompt for documents, and another one for queries.
        embedded = options.embed(corpus, encoder.for_role("document"), home_path, bar)
        reranker = options.load_cross_encoder(cross_encoder, computing)
        result = find(embedded, query, encoder.for_role("query"), k, reranker, keep_unknown)
    lines = [f"{format_count(result.searched, 'sentence')} of {corpus.name}"]
    head = "cosine       row  sentence"
    if reranker:
        head = f"score   {head}"
    lines.append(head)
    for hit in result.hits:
        line = f"{hit.cosine:.4f}  {hit.row + 1:>8,}  {hit.sentence}"
        if reranker:
            line = f"{hit.cross_score:.4f}  {line}"
        lines.append(line)
    lines += [*corpus.notes, *result.warnings]
    values = {"model": embedded.model, "data": corpus.name, **result.to_json()}
    print_result(values, computing.as_json, "\n".join(lines))


@options.grouped
def cluster(
    source: options.Sentences,
    output: Annotated[
        Path | None,
        Argument(
            metavar="OUT", help="Each sentence with its cluster: .csv, .tsv, .jsonl or .parquet."
        ),
    ] = None,
    *,
    method: Annotated[
        str,
        Option(metavar="hdbscan|k-means|hierarchical", help="By density, around N means, a tree."),
    ] = "hdbscan",
    clusters: Annotated[
        int | None, Option(min=1, metavar="N", help="How many, of k-means (20) and hierarchical.")
    ] = None,
    smallest: Annotated[
        int,
        Option("--min-size", metavar="N", help="The fewest sentences of a cluster, of hdbscan."),
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
    home_path = computing.prepare()
    settings = ClusterSettings(method, smallest, min_cosine, clusters)
    with (
        options.input_file(source, lines=True) as path,
        clean_stdout(),
        ProgressBar("encoding", "sentences") as bar,
    ):
        if output is not None:
            check_output(output, WRITERS, Path(path))
        corpus = options.open_corpus(path, file, home_path)
        embedded = options.embed(corpus, options.load_encoder(model, computing), home_path, bar)
        # The next stages do not count sentences, so the bar shows only the share that is done.
        bar.unit = ""
        cache = DiskCache(home_path / "cache")
        labels = group(
            embedded, settings, cache, home_path, Watch(bar.stage), keep_unknown=keep_unknown
        )
        summaries = describe_clusters(embedded, labels)
        if output is not None:
            save_table(output, label_columns(corpus, summaries))
    # Number 0 has the sentences that belong to no cluster.
    count = format_count(sum(summary.number > 0 for summary in summaries), "cluster")
    lines = [f"{format_count(len(corpus), 'sentence')} of {corpus.name} in {count} by {method}"]
    lines.append("cluster  sentences  keywords")
    rows = []
    for summary in summaries:
        typical = [corpus.sentences[row] for row in summary.representatives]
        rows.append(
            {
                "cluster": summary.number,
                "sentences": len(summary.rows),
                "cosine": summary.cosine,
                "keywords": summary.keywords,
                "typical": typical,
            }
        )
        words = ", ".join(summary.keywords[:4])
        example = typical[0] if typical else ""
        lines.append(
            f"{summary.number or 'none':>7}  {len(summary.rows):>9,}  {words:40}  {example}".rstrip()
        )
    if output:
        lines.append(f"{output}: each sentence with its cluster")
    lines += [*corpus.notes, *embedded.warnings]
    result = {
        "model": embedded.model,
        "data": corpus.name,
        "method": method,
        "clusters": rows,
        "output": output and str(output),
        "warnings": embedded.warnings,
    }
    print_result(result, computing.as_json, "\n".join(lines))


@options.grouped
def export(
    source: Annotated[
        str,
        Argument(
            metavar="IN",
            help="Sentences: .txt (one a line), .csv, .tsv, .jsonl, .parquet, .xlsx; or -.",
        ),
    ],
    output: Annotated[
        Path, Argument(metavar="OUT", help="A .parquet file for Apple's embedding-atlas.")
    ],
    *,
    model: options.ModelOptions,
    file: options.FileOptions,
    clusters: Annotated[
        int,
        Option(min=0, metavar="N", help="Clusters of k-means; 0 finds them by density (HDBSCAN)."),
    ] = 0,
    map_points: Annotated[
        int,
        Option(
            min=100,
            max=1_000_000,
            metavar="N",
            help="Sentences that UMAP draws; others are placed.",
        ),
    ] = 50_000,
    computing: options.Computing,
) -> None:
    """Write sentences with map and clusters for embedding-atlas.

    After an interruption the same command goes on from the vectors that are there.
    """
    # Imported here because it imports pyarrow, which takes time.
    from sbert_app.services.clusters.atlas import OPTIONS, export_atlas

    home = computing.prepare()
    source, file = file.parse(source)
    clustering = ClusterSettings(HDBSCAN)
    if clusters:
        clustering = ClusterSettings(K_MEANS, num_clusters=clusters)
    # If there are more sentences, both UMAP and HDBSCAN get a sample of this size. The other
    # sentences are placed by their neighbours and join the clusters of the sample.
    limits = CorpusLimits(map_points=map_points, clustered=map_points)
    cache = DiskCache(home / "cache")
    with (
        options.input_file(source, lines=file.columns is None) as path,
        clean_stdout(),
        ProgressBar("preparing") as bar,
    ):
        check_output(output, PARQUET, local_path(path))
        corpus = Corpus.from_file(path, file.columns, file.encoding, sheet=file.sheet)
        watch = Watch(bar.stage)
        encoder = options.load_encoder(model, computing)
        # The vectors are a file in this folder. After an interruption only missing ones are computed.
        embedded = encode(corpus, encoder, watch=watch.stage("Encoding"), folder=home / "vectors")
        labels = group(embedded, clustering, cache, home, watch, limits)
        groups = describe_clusters(embedded, labels)
        num_drawn = export_atlas(
            embedded, groups, output, MapSettings(), cache, home, limits, watch
        )
    command = f"embedding-atlas {shlex.quote(str(output))} {OPTIONS}"
    rows = format_count(len(corpus), "row")
    if num_drawn < len(corpus):
        rows += f", {len(corpus) - num_drawn:,} of them placed by their neighbours"
    text = f"{rows} -> {output}. Open it with: {command}"
    result = {"output": str(output), "rows": len(corpus), "drawn": num_drawn, "command": command}
    print_result(result, computing.as_json, "\n".join([text, *corpus.notes]))
