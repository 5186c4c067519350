"""What the tabs Search, Similar pairs and Clusters show, as HTML. Pure functions; every text is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from sbert_app.pages.components.messages import spoken_seconds
from sbert_app.services.clusters.clustering import HIERARCHICAL
from sbert_app.services.clusters.summary import Cluster
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.search import Hit, SearchResult
from sbert_app.services.corpus.similar import NearDuplicates, SimilarPairs

LONGEST = 400  # characters of a sentence
MOST_ROWS = 200  # of pairs in the table; the file has all
MOST_GROUPS = 30

COSINE_IS_DOT = (
    "All vectors have length 1, so their dot product is their cosine: FAISS looks for the largest dot products "
    "(IndexFlatIP) and finds the nearest sentences."
)
EXACT = "Every sentence is compared: the answer is exact."
BY_GRAPH = "Above 200,000 sentences a graph of neighbours is followed (HNSW): the answer is nearly exact."
PAPER = (
    '<section class="card"><h3>The paper, 10,000 sentences</h3><p class="score"><b>65 h</b>'
    '<span>with BERT reading each pair</span></p><p class="foot">about 5 s with SBERT on a V100: 49,995,000 pairs in '
    "both cases, but 10,000 sentences to encode (section 1)</p></section>"
)


def search_line(found: SearchResult, space: EmbeddedCorpus) -> str:
    """What was done for a query, and how long each step took."""
    steps = [
        f"<b>{found.search_ms:.1f} ms</b> to search {_count(found.searched, 'sentence')}",
        f"{found.encode_ms:.1f} ms to encode the query",
    ]
    if found.cross_ms is not None:
        steps.append(
            f"{found.cross_ms:.0f} ms for {escape(found.cross_encoder or '')} to read {found.candidates} pairs"
        )
    return (
        f'<p class="lead" aria-live="polite">{" · ".join(steps)}</p>'
        f'<p class="note">{COSINE_IS_DOT} {EXACT if found.exact else BY_GRAPH}</p>'
    )


def hits(found: SearchResult) -> str:
    """The nearest sentences; beside them, where a cross-encoder read them, its own order."""
    ours = _hits_table("By cosine of the bi-encoder", "cosine", found.by_cosine, crossed=False)
    if not found.cross_encoder:
        return f'<div class="orders one">{ours}</div>'
    title = f"Re-ranked by {found.cross_encoder}, from the {found.candidates} nearest"
    theirs = _hits_table(title, "score", found.by_cross, crossed=True)
    return f'<div class="orders">{ours}{theirs}</div>'


def pairs_cards(found: SimilarPairs, space: EmbeddedCorpus) -> str:
    """How long it took here, beside the paper's hours."""
    encoded = f"encoding them took {spoken_seconds(space.seconds)}" if space.seconds else "they were encoded before"
    same = (
        f" · {_count(found.same_text, 'sentence')} left out, as the same words came before" if found.same_text else ""
    )
    return (
        '<div class="cards"><section class="card first"><h3>This corpus, here</h3>'
        f'<p class="score"><b>{_duration(found.seconds)}</b><span>to compare each with each</span></p>'
        f'<p class="foot">{_count(found.compared, "sentence")}, {_count(found.combinations, "pair")}, exactly · '
        f"{encoded}{same}</p></section>{PAPER}</div>"
    )


def pairs_table(found: SimilarPairs, corpus: Corpus, threshold: float) -> str:
    """The pairs, best first."""
    if not found.pairs:
        why = "one sentence makes no pair" if found.compared < 2 else f"no pair has a cosine of {threshold:.2f} or more"
        return f'<p class="lead">Nothing to show: {why}.</p>'
    rows = "".join(
        f'<tr><td class="number">{cosine:.3f}</td><td>{_text(corpus.sentences[i])}</td>'
        f"<td>{_text(corpus.sentences[j])}</td></tr>"
        for i, j, cosine in found.pairs[:MOST_ROWS]
    )
    more = f"; the first {MOST_ROWS} are shown" if len(found.pairs) > MOST_ROWS else ""
    return (
        f'<div class="found"><table class="plain"><caption>{_count(len(found.pairs), "pair")}, most similar first{more}'
        "</caption><thead><tr><th>cosine</th><th>sentence 1</th><th>sentence 2</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def repeats_line(found: NearDuplicates, corpus: Corpus) -> str:
    """How many sentences repeat an earlier one."""
    kept = len(found.kept)
    dropped = len(corpus) - kept
    if not dropped:
        return (
            f'<p class="lead">No sentence has a cosine of {found.threshold:.2f} or more with an earlier one '
            f"({_duration(found.seconds)}).</p>"
        )
    verb = "repeats" if dropped == 1 else "repeat"
    return (
        f'<p class="lead"><b>{dropped:,}</b> of {_count(len(corpus), "sentence")} {verb} an earlier one; {kept:,} are '
        f'kept ({_duration(found.seconds)}).</p><p class="note">Read in order, a sentence is kept unless it has a '
        f"cosine of {found.threshold:.2f} or more with one that is kept.</p>"
    )


def clusters_line(found: Sequence[Cluster], space: EmbeddedCorpus, method: str, seconds: float) -> str:
    """How many clusters there are, and by which way."""
    clusters = [group for group in found if group.number]
    single = sum(len(group.rows) == 1 for group in clusters)
    outside = sum(len(group.rows) for group in found if not group.number)
    parts = [f"<b>{_count(len(clusters), 'cluster')}</b> of {_count(len(space), 'sentence')}"]
    if outside:
        parts.append(f"{outside:,} in none ({100 * outside / len(space):.0f}%)")
    if single:
        parts.append(f"{single:,} of one sentence alone")
    return (
        f'<p class="lead" aria-live="polite">{" · ".join(parts)} · {_duration(seconds)}</p>'
        f'<p class="note">{WAYS[method]}</p>'
    )


WAYS = {
    "hdbscan": (
        "HDBSCAN looks for dense groups, on a map of the vectors in 5 dimensions (UMAP): in the model's hundreds of "
        "dimensions hardly anything is dense. What lies between the groups is in none."
    ),
    HIERARCHICAL: (
        "Average linkage on the cosines of all pairs: the two most similar groups are joined, again and again. This "
        "is what took 65 hours with BERT for 10,000 sentences (the paper's conclusion). The tree is kept: cutting it "
        "elsewhere takes no time."
    ),
}


def clusters_table(found: Sequence[Cluster], corpus: Corpus) -> str:
    """Each cluster with its keywords and the sentences nearest to its centre."""
    clusters = [group for group in found if group.number]
    if not clusters:
        return '<p class="lead">No group is dense enough. Allow smaller clusters, or choose the hierarchical way.</p>'
    cards = "".join(_group_card(group, corpus, len(clusters[0].rows)) for group in clusters[:MOST_GROUPS])
    rest = len(clusters) - MOST_GROUPS
    more = f" {rest:,} smaller ones are in the file." if rest > 0 else ""
    return (
        '<p class="note">Largest first. The words are those that set a cluster apart (class-based TF-IDF), the '
        f'sentences those nearest to its centre, the cosine the mean over its pairs.{more}</p><div class="groups">'
        f"{cards}{''.join(map(_outside_card, found))}</div>"
    )


def _outside_card(group: Cluster) -> str:
    """What is in no cluster; nothing for a cluster."""
    if group.number:
        return ""
    size = _count(len(group.rows), "sentence")
    return f'<section class="card group outside"><h3><b>In none</b> {size}, between the dense groups</h3></section>'


def _group_card(group: Cluster, corpus: Corpus, largest: int) -> str:
    size = len(group.rows)
    within = "" if group.cosine is None else f" · cosine {group.cosine:.2f}"
    chips = "".join(f"<span>{escape(word)}</span>" for word in group.keywords)
    sentences = "".join(f"<li>{_text(corpus.sentences[row])}</li>" for row in group.representatives)
    return (
        f'<section class="card group"><h3><b>{group.number:,}</b> {_count(size, "sentence")}{within}</h3>'
        f'<div class="bar"><i style="width:{100 * size / largest:.1f}%"></i></div><div class="words">{chips}</div>'
        f"<ul>{sentences}</ul></section>"
    )


def _hits_table(title: str, score: str, found: Sequence[Hit], crossed: bool) -> str:
    rows = "".join(
        f'<tr><th scope="row">{place}</th><td class="number">{hit.cross_score if crossed else hit.cosine:.3f}</td>'
        f"<td>{_text(hit.sentence)}{_moved(hit, place) if crossed else ''}</td></tr>"
        for place, hit in enumerate(found, start=1)
    )
    return (
        f'<table class="plain hits"><caption>{escape(title)}</caption><thead><tr><th>#</th><th>{score}</th>'
        f"<th>sentence</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _moved(hit: Hit, place: int) -> str:
    """Where the cosine had it."""
    if hit.rank == place:
        return ""
    kind, arrow = ("up", "↑") if hit.rank > place else ("down", "↓")
    return f' <small class="{kind}">{arrow} from {hit.rank}</small>'


def _text(sentence: str) -> str:
    return escape(sentence if len(sentence) <= LONGEST else sentence[:LONGEST] + " …")


def _count(n: int, what: str) -> str:
    return f"1 {what}" if n == 1 else f"{n:,} {what}s"


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else spoken_seconds(seconds)
