"""The HTML of the Explore page: values computed here, rendered by templates. Functions without state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from sbert_app.formats import format_count, format_duration
from sbert_app.pages.components.templates import render
from sbert_app.services.clusters.clustering import HDBSCAN, HIERARCHICAL, K_MEANS
from sbert_app.services.clusters.subset import Subset
from sbert_app.services.clusters.summary import Cluster
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.index import MAX_EXACT
from sbert_app.services.corpus.search import Hit, SearchResult
from sbert_app.services.corpus.similar import NearDuplicates, SimilarPairs
from sbert_app.services.handover import MAX_PAIRED
from sbert_app.services.maps.corpus_map import MapResult, PairDistances

TEMPLATES = "explore/templates"
NEAREST = 10  # sentences listed for a clicked point
BEFORE_AFTER = ("before", "after")
MAX_CHARACTERS = 400  # of a sentence
MAX_PAIRS_SHOWN = 200  # the file has all
MAX_CLUSTERS_SHOWN = 30
MAX_LISTED = 100  # sentences of a cluster; all are in the file

COSINE_IS_DOT_PRODUCT = (
    "All embeddings have length 1, so their dot product is their cosine: FAISS searches for the largest dot products "
    "(IndexFlatIP) and finds the nearest sentences."
)
EXACT = "Every sentence is compared: the result is exact."
APPROXIMATE = (
    f"Above {MAX_EXACT:,} sentences an index of rounded embeddings, or a graph of neighbours (HNSW), finds candidates: "
    "the cosines are exact, and the result is nearly."
)
CLUSTERING_NOTES = {
    HDBSCAN: (
        "HDBSCAN looks for dense groups in a 5-dimensional map of the embeddings (UMAP): in the model's hundreds of "
        "dimensions hardly anything is dense. Sentences between the groups belong to none."
    ),
    K_MEANS: (
        "Mini-batch k-means divides all sentences into the given number of clusters, each around its centre. No "
        "sentence is left out, also where nothing is dense."
    ),
    HIERARCHICAL: (
        "Average linkage on the cosines of all pairs: the two most similar groups are merged, again and again. With "
        "BERT this took 65 hours for 10,000 sentences (the paper's conclusion). The tree is kept: cutting it "
        "elsewhere takes no time."
    ),
}


def corpus_summary(embedded: EmbeddedCorpus, is_example: bool) -> Markup:
    """The open corpus: its size, what else is known of its sentences, how long the encoding took."""
    corpus = embedded.corpus
    return render(
        f"{TEMPLATES}/corpus.html",
        name=corpus.name,
        is_example=is_example,
        sentences=len(corpus),
        columns=list(corpus.columns),
        gold_pairs=0 if corpus.gold is None else len(corpus.gold.gold),
        seconds=embedded.seconds,
        model=embedded.model,
        pooling=embedded.pooling,
        notes=corpus.notes,
    )


def map_status(result: MapResult, pairs: PairDistances | None, run: dict[str, object] | None) -> Markup:
    """What the map shows and how long it took; ``run``: name, base and is_base of the run on the second map."""
    count, dimensions = result.maps[0].shape
    titles = "; ".join(map_titles(result)) + "." if len(result.maps) == 2 else ""
    return render(
        f"{TEMPLATES}/map_status.html",
        sentences=count,
        total=result.total if result.rows is not None else 0,
        dimensions=dimensions,
        from_cache=result.from_cache,
        seconds=result.seconds,
        titles=titles[:1].upper() + titles[1:],
        pairs=pairs,
        run=run,
    )


def map_titles(result: MapResult) -> list[str]:
    """The title of each map, such as "before: all-MiniLM-L6-v2, mean"."""
    return [
        f"{when}: {embedded.model}, {embedded.pooling}"
        for when, embedded in zip(BEFORE_AFTER, result.embedded, strict=False)
    ]


def nearest(embedded: Sequence[EmbeddedCorpus], row: int) -> Markup:
    """The clicked sentence and its nearest sentences, under each model."""
    return render(
        f"{TEMPLATES}/nearest.html",
        sentence=_shorten(embedded[0].corpus.sentences[row]),
        rows=[row, *_nearest_places(embedded[0], row)],
        lists=[
            {
                "caption": f"Nearest under {each.model}, {each.pooling}" if len(embedded) > 1 else "Nearest, by cosine",
                "rows": _nearest_rows(each, row),
            }
            for each in embedded
        ],
    )


def selected_summary(subset: Subset, group: str, most: int) -> Markup:
    """How many sentences are selected, how alike they are, and what they are about."""
    return render(
        f"{TEMPLATES}/selected_summary.html",
        group=group,
        count=len(subset),
        shown=min(most, len(subset)),
        cosine=subset.cosine,
        keywords=subset.keywords,
    )


def selected_table(subset: Subset, corpus: Corpus, most: int) -> dict[str, Any]:
    """The first selected sentences as the value of a ``gr.Dataframe``, with the columns of the corpus."""
    rows = subset.rows[:most].tolist()
    cosines = [None if cosine != cosine else round(cosine, 3) for cosine in subset.cosines[:most].tolist()]
    own = [[values[row] for row in rows] for values in corpus.columns.values()]
    sentences = [_shorten(corpus.sentences[row]) for row in rows]
    return {
        "headers": ["row", "cosine", "sentence", *corpus.columns],
        "data": [list(cells) for cells in zip([row + 1 for row in rows], cosines, sentences, *own, strict=True)],
    }


def selected_links(sentences: Sequence[str], token: str) -> Markup:
    """Links to the pages that can take the selected sentences, which are kept under ``token``."""
    count = len(sentences)
    remark = ""
    if count > MAX_PAIRED:
        remark = f"Compare and Bulk take up to {MAX_PAIRED} sentences, with every pair of them."
    elif count == 1:
        remark = "Compare and Bulk take two sentences or more."
    fits = 2 <= count <= MAX_PAIRED
    return render(
        f"{TEMPLATES}/selected_links.html",
        token=token,
        comparable=fits,
        pairs=count * (count - 1) // 2 if fits else 0,
        remark=remark,
    )


def search_status(result: SearchResult) -> Markup:
    """How long each step of the search took, and whether it is exact."""
    explanation = f"{COSINE_IS_DOT_PRODUCT} {EXACT if result.exact else APPROXIMATE}"
    return render(f"{TEMPLATES}/search_status.html", result=result, explanation=explanation)


def hits(result: SearchResult) -> Markup:
    """The nearest sentences by cosine; beside them, with a cross-encoder, its order of the candidates."""
    return render(
        f"{TEMPLATES}/hits.html",
        by_cosine=[{"score": hit.cosine, "sentence": _shorten(hit.sentence), "moved": ""} for hit in result.by_cosine],
        by_cross=[_reranked(hit, rank) for rank, hit in enumerate(result.by_cross, start=1)],
        cross_encoder=result.cross_encoder,
        candidates=result.candidates,
        rows=[hit.row for hit in result.by_cosine],
    )


def pairs_cards(found: SimilarPairs, embedded: EmbeddedCorpus) -> Markup:
    """How long comparing all pairs took here, beside the paper's hours."""
    encoding = f"encoding took {format_duration(embedded.seconds)}" if embedded.seconds else "embeddings from the cache"
    parts = [
        f"{format_count(found.compared, 'sentence')}, {format_count(found.combinations, 'pair')}, exactly",
        encoding,
    ]
    if found.same_text:
        parts.append(f"{format_count(found.same_text, 'sentence')} with the text of an earlier one left out")
    return render(f"{TEMPLATES}/pairs_cards.html", pairs=found, foot=" · ".join(parts))


def pairs_table(found: SimilarPairs, corpus: Corpus, threshold: float) -> Markup:
    """The most similar pairs, best first, or why there are none."""
    too_few = found.compared < 2
    return render(
        f"{TEMPLATES}/pairs_table.html",
        total=len(found.pairs),
        rows=[
            (_shorten(corpus.sentences[i]), _shorten(corpus.sentences[j]), cosine)
            for i, j, cosine in found.pairs[:MAX_PAIRS_SHOWN]
        ],
        points=list(dict.fromkeys(row for i, j, _ in found.pairs[:MAX_PAIRS_SHOWN] for row in (i, j))),
        reason="one sentence makes no pair" if too_few else f"no pair has a cosine of {threshold:.2f} or more",
    )


def near_duplicates(found: NearDuplicates, corpus: Corpus) -> Markup:
    """How many sentences are near-duplicates of an earlier one."""
    kept = len(found.kept)
    return render(
        f"{TEMPLATES}/near_duplicates.html",
        sentences=len(corpus),
        kept=kept,
        dropped=len(corpus) - kept,
        threshold=found.threshold,
        seconds=found.seconds,
        points=_duplicate_rows(found),
    )


def clusters_status(groups: Sequence[Cluster], embedded: EmbeddedCorpus, method: str, seconds: float) -> Markup:
    """How many clusters there are, what is in none, and how they were found."""
    clusters = [group for group in groups if group.number]
    return render(
        f"{TEMPLATES}/clusters_status.html",
        clusters=len(clusters),
        sentences=len(embedded),
        unclustered=_unclustered(groups),
        singletons=sum(len(group.rows) == 1 for group in clusters),
        seconds=seconds,
        method=CLUSTERING_NOTES[method],
    )


def cluster_choice(cluster: Cluster) -> str:
    """A cluster in a list: its number, its name or keywords, its size."""
    title = f" {cluster.title}" if cluster.title else ""
    return f"{cluster.number}:{title} ({len(cluster.rows):,})"


def clusters(groups: Sequence[Cluster], corpus: Corpus) -> Markup:
    """A card for each cluster: its size, keywords and the sentences nearest to its centre."""
    found = [group for group in groups if group.number]
    return render(
        f"{TEMPLATES}/clusters.html",
        clusters=[
            {
                "number": group.number,
                "name": group.name,
                "size": len(group.rows),
                "cosine": group.cosine,
                "keywords": group.keywords,
                "sentences": [_shorten(corpus.sentences[row]) for row in group.representatives],
                "all": [_shorten(corpus.sentences[row]) for row in group.rows[:MAX_LISTED].tolist()],
            }
            for group in found[:MAX_CLUSTERS_SHOWN]
        ],
        more=max(0, len(found) - MAX_CLUSTERS_SHOWN),
        unclustered=_unclustered(groups),
    )


def _duplicate_rows(found: NearDuplicates) -> list[int]:
    """The near-duplicates and the sentences that they duplicate."""
    repeated = np.flatnonzero(found.original != np.arange(len(found.original)))
    return np.union1d(repeated, found.original[repeated]).tolist()


def _nearest_places(embedded: EmbeddedCorpus, row: int) -> list[int]:
    """The rows of the sentences nearest to one of the corpus, without itself."""
    rows = embedded.index.nearest(embedded.vectors[row : row + 1], min(NEAREST + 1, len(embedded)))[1][0]
    return [int(at) for at in rows if at not in (row, -1)][:NEAREST]


def _nearest_rows(embedded: EmbeddedCorpus, row: int) -> list[tuple[float, str]]:
    """(cosine, sentence) of the sentences nearest to one of the corpus, without itself."""
    k = min(NEAREST + 1, len(embedded))
    cosines, rows = embedded.index.nearest(embedded.vectors[row : row + 1], k)
    others = [(cosine, at) for cosine, at in zip(cosines[0], rows[0], strict=True) if at not in (row, -1)]
    return [(cosine, _shorten(embedded.corpus.sentences[at])) for cosine, at in others[:NEAREST]]


def _reranked(hit: Hit, rank: int) -> dict[str, object]:
    """A hit in the cross-encoder's order, and whether it moved up or down from its rank by cosine."""
    moved = "" if hit.rank == rank else "up" if hit.rank > rank else "down"
    return {"score": hit.cross_score, "sentence": _shorten(hit.sentence), "moved": moved, "rank": hit.rank}


def _unclustered(groups: Sequence[Cluster]) -> int:
    return sum(len(group.rows) for group in groups if not group.number)


def _shorten(sentence: str) -> str:
    return sentence if len(sentence) <= MAX_CHARACTERS else sentence[:MAX_CHARACTERS] + " …"
