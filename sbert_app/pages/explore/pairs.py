"""The tabs Pairs and duplicates, and Hubs and outliers: each sentence compared with all others."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import gradio as gr
import numpy as np
from markupsafe import Markup, escape

from sbert_app.formats import format_count, format_duration
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update, event_options
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.pickers import open_dropdown
from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.explore.open_corpus import OpenCorpus, Shared, kept_choice, opened, shorten
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.corpus import search
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.neighbours import Unusual, find_unusual
from sbert_app.services.corpus.search import (
    MAX_PAIRS,
    NearDuplicates,
    Nearest,
    SimilarPairs,
    save_like_file,
    save_pairs,
    save_rows,
)
from sbert_app.services.files.layout import suffix_like

# The table shows so many pairs, the file all.
MAX_PAIRS_SHOWN = 200
THIS_CORPUS = ("this corpus: near-duplicates of an earlier sentence", "")
# The list shows so many sentences of a group of duplicates.
MOST_OF_GROUP = 5
# The tables show so many hubs and outliers.
MAX_UNUSUAL, MOST_REMOTE = 200, 10
PRESS_PAIRS = messages.note("Press the button to compare each sentence with all others.")
PRESS_UNUSUAL = messages.lead("Press the button to compare each sentence with its nearest ones.")


def build(services: Services, shared: Shared) -> None:
    """Builds the tab Pairs and duplicates inside the open gr.Tab."""
    _PairsTab(services, shared).wire()


class _PairsTab:
    def __init__(self, services: Services, shared: Shared) -> None:
        self.services, self.open_corpus, self.corpus_ids = services, shared.open_corpus, shared.corpus_ids
        gr.HTML(messages.section("Duplicates, within this corpus or of another one"))
        with gr.Row(elem_classes="explore-controls"):
            label, hint = "Look for each sentence in", "One of your corpora, or a named data set such as stsb:train"
            self.against = open_dropdown(label, [THIS_CORPUS], hint, elem_id="repeats-against")
            options = {"label": "Minimum cosine of a duplicate", "elem_id": "repeats-threshold", "min_width": 240}
            self.duplicate_threshold = gr.Slider(0.5, 1, 0.95, step=0.01, **options)
        ids = ("repeats-go", "repeats-stop", "repeats-status")
        self.duplicates = MeasureTab.build(services, "near-duplicates", "Find duplicates", ids, "")
        with self.duplicates.buttons:
            self.download_kept = gr.DownloadButton("Download without duplicates", visible=False, elem_id="repeats-csv")
            self.download_all = gr.DownloadButton("Download all rows with groups", visible=False, elem_id="groups-csv")
            self.download_shared = gr.DownloadButton("Download the duplicates", visible=False, elem_id="shared-csv")
        gr.HTML(messages.section("The most similar pairs"))
        with gr.Row(elem_classes="explore-controls"):
            self.k = gr.Slider(1, MAX_PAIRS, 20, step=1, label="Number of pairs", elem_id="pairs-k", min_width=240)
            options = {"label": "Minimum cosine", "elem_id": "pairs-threshold", "min_width": 240}
            self.threshold = gr.Slider(0, 1, 0.5, step=0.01, **options)
            label, hint = "Hide identical text", "Pairs that differ only in case, spaces or punctuation"
            self.hide = gr.Checkbox(True, label=label, info=hint, elem_id="pairs-hide", container=True, min_width=240)
        ids = ("pairs-go", "pairs-stop", "pairs-status")
        find = "Find the most similar pairs"
        self.pairs = MeasureTab.build(services, "pairs", find, ids, PRESS_PAIRS, variant="secondary")
        with self.pairs.buttons:
            self.download = gr.DownloadButton("Download CSV", visible=False, elem_id="pairs-csv")
        self.table = gr.HTML(elem_id="pairs-table")
        # The two corpora whose sentences were compared; a new threshold is applied to them at once.
        self.compared = gr.State(None)

    def wire(self) -> None:
        inputs = [self.open_corpus, self.k, self.threshold, self.hide]
        no_pairs = {self.table: "", self.download: hidden()}
        downloads = (self.download_kept, self.download_all, self.download_shared)
        no_duplicates = {**dict.fromkeys(downloads, hidden()), self.compared: None}
        cleared = {**no_pairs, **no_duplicates, self.pairs.status: PRESS_PAIRS, self.duplicates.status: ""}
        self.open_corpus.change(lambda: cleared, None, list(cleared), **event_options())
        edits = [self.pairs.start.click, self.k.release, self.threshold.release, self.hide.input]
        self.pairs.on(edits, self.pairs.handler(self.find_pairs, no_pairs), inputs, no_pairs)
        options = [self.open_corpus, self.against, self.duplicate_threshold]
        self.duplicates.wire(self.find_duplicates, options, no_duplicates)
        again = self.duplicates.handler(
            lambda watch, _, *values: self.find_duplicates(watch, *values),
            no_duplicates,
            unless=lambda compared, open_corpus, against, _: compared != (open_corpus, against),
        )
        self.duplicates.on(self.duplicate_threshold.release, again, [self.compared, *options], no_duplicates)
        self.against.focus(self.others, [self.corpus_ids, self.open_corpus], self.against, **event_options(queue=False))

    def others(self, corpus_ids: list[str], open_corpus: OpenCorpus | None) -> gr.Dropdown:
        """The corpora in which duplicates can be found."""
        records = self.services.corpora.list(corpus_ids)
        return gr.Dropdown([THIS_CORPUS, *(kept_choice(*item) for item in records.items())])

    def find_pairs(self, watch: Watch, open_corpus: OpenCorpus | None, k: int, threshold: float, hide: bool) -> Update:
        embedded = opened(open_corpus).embed(self.services.embeddings)
        comparing = watch.stage(f"Comparing {len(embedded):,} sentences, each with each")
        pairs = search.similar_pairs(embedded, int(k), float(threshold), hide, comparing)
        path = save_pairs(pairs, embedded.corpus, self.services.temp.new_folder("explore"))
        return {
            self.pairs.status: pairs_note(pairs),
            self.table: pairs_table(pairs, embedded.corpus, float(threshold)),
            self.download: visible(path if pairs.pairs else None),
        }

    def find_duplicates(
        self, watch: Watch, open_corpus: OpenCorpus | None, against: str | None, threshold: float
    ) -> Update:
        embeddings, folder = self.services.embeddings, self.services.temp.new_folder("explore")
        embedded = opened(open_corpus).embed(embeddings)
        if not against:
            reading = watch.stage(f"Reading {len(embedded):,} sentences in order")
            duplicates = search.find_near_duplicates(embedded, float(threshold), reading)
            notes = Markup("").join(map(messages.note, embedded.warnings))
            status = near_duplicates(duplicates, embedded.corpus) + notes
            return {self.duplicates.status: status, **self._files(embedded.corpus, duplicates, folder)}
        other = self._other(against, opened(open_corpus), watch)
        looking = watch.stage(f"Looking for {len(embedded):,} sentences in {other.corpus.name}")
        nearest = search.nearest_in(embedded, other, embeddings.cache, looking)
        rows = nearest.matches(float(threshold))
        new = np.setdiff1d(np.arange(len(embedded)), rows)
        match = [other.corpus.sentences[row] for row in nearest.rows[rows].tolist()]
        columns = {"cosine": nearest.cosines[rows], "match": match, "match_row": (nearest.rows[rows] + 1).tolist()}
        shared = save_rows(embedded.corpus, rows, folder, "duplicates.csv", **columns) if len(rows) else None
        remaining = save_rows(embedded.corpus, new, folder, "new.csv") if len(new) else None
        return {
            self.duplicates.status: shared_sentences(nearest, rows, embedded.corpus, other.corpus, float(threshold)),
            self.download_kept: visible(remaining and str(remaining)),
            self.download_shared: visible(shared and str(shared)),
            self.compared: (open_corpus, against),
        }

    def _files(self, corpus: Corpus, duplicates: NearDuplicates, folder: Path) -> Update:
        """The downloads: rows of a file as they came in, sentences of other corpora."""
        if corpus.table is None:
            file = save_rows(corpus, duplicates.originals, folder, "without-duplicates.csv")
            return {self.download_kept: visible(str(file))}
        stem, suffix = corpus.table.path.stem, suffix_like(corpus.table)
        names = {self.download_kept: f"{stem}-without-duplicates", self.download_all: f"{stem}-groups"}
        return {
            button: visible(
                str(save_like_file(corpus, duplicates, folder / (name + suffix), button is self.download_kept))
            )
            for button, name in names.items()
        }

    def _other(self, against: str, open_corpus: OpenCorpus, watch: Watch) -> EmbeddedCorpus:
        """The corpus in which duplicates are found, embedded with the model of the open one."""
        embeddings = self.services.embeddings
        if self.services.corpora.list([against]):
            corpus = self.services.corpora.read(against)
        else:
            data = self.services.access.check_data(against.strip())
            corpus = Corpus.from_data(data, embeddings.home, embeddings.limits.sentences)
        encoding = watch.stage(f"Encoding {corpus.name}")
        return embeddings.embed(embeddings.add(corpus), open_corpus.model, watch=encoding)


def pairs_note(pairs: SimilarPairs) -> Markup:
    """The number of pairs that were compared, and of sentences that were left out."""
    what = f"{format_count(pairs.compared, 'sentence')}, {format_count(pairs.combinations, 'pair')}"
    parts = [f"{what}, compared exactly in {format_duration(pairs.seconds)}"]
    if pairs.same_text:
        parts.append(f"{format_count(pairs.same_text, 'exact duplicate')} left out")
    if pairs.unknown:
        parts.append(f"{format_count(pairs.unknown, 'sentence')} without a token that the model knows left out")
    return messages.note(" · ".join(parts))


def pairs_table(pairs: SimilarPairs, corpus: Corpus, threshold: float) -> Markup:
    """A table of the most similar pairs, best first, or the reason why there are none."""
    too_few, first = pairs.compared < 2, pairs.pairs[:MAX_PAIRS_SHOWN]
    return render(
        "explore/templates/pairs_table.html",
        total=len(pairs.pairs),
        rows=[(shorten(corpus.sentences[i]), shorten(corpus.sentences[j]), cosine) for i, j, cosine in first],
        points=list(dict.fromkeys(row for i, j, _ in first for row in (i, j))),
        reason="one sentence makes no pair" if too_few else f"no pair has a cosine of {threshold:.2f} or more",
    )


def near_duplicates(duplicates: NearDuplicates, corpus: Corpus) -> Markup:
    """The number of sentences that are near-duplicates of an earlier one."""
    repeated = np.flatnonzero(duplicates.original != np.arange(len(duplicates.original)))
    points = np.union1d(repeated, duplicates.original[repeated]).tolist()
    groups: dict[int, list[str]] = {}
    for row in repeated.tolist():
        groups.setdefault(int(duplicates.original[row]), []).append(corpus.sentences[row])
    listed = sorted(groups.items(), key=lambda group: -len(group[1]))[:MAX_PAIRS_SHOWN]
    rows = [
        (shorten(corpus.sentences[first]), list(map(shorten, others[:MOST_OF_GROUP])), len(others))
        for first, others in listed
    ]
    return macro("explore/near_duplicates")(duplicates, len(corpus), points, rows, len(groups))


def shared_sentences(nearest: Nearest, rows: np.ndarray, corpus: Corpus, other: Corpus, threshold: float) -> Markup:
    """The numbers of sentences of a corpus that are in another one and that are new, and the most similar pairs."""
    pairs = [
        (nearest.cosines[row], shorten(corpus.sentences[row]), shorten(other.sentences[nearest.rows[row]]))
        for row in rows[:MAX_PAIRS_SHOWN].tolist()
    ]
    facts = {"sentences": len(corpus), "names": (corpus.name, other.name), "threshold": threshold}
    return render("explore/templates/shared.html", shared=len(rows), pairs=pairs, points=rows.tolist(), **facts)


def build_unusual(services: Services, shared: Shared) -> None:
    """Builds the tab Hubs and outliers inside the open gr.Tab."""
    ids = ("unusual-go", "unusual-stop", "unusual-status")
    tab = MeasureTab.build(services, "unusual", "Find hubs and outliers", ids, PRESS_UNUSUAL)
    tables = gr.HTML(elem_id="unusual-tables")

    def find(watch: Watch, open_corpus: OpenCorpus | None) -> Update:
        embedded = opened(open_corpus).embed(services.embeddings)
        comparing = watch.stage(f"Looking for the nearest of {len(embedded):,} sentences")
        unusual = find_unusual(embedded, services.embeddings.cache, comparing)
        return {tab.status: "", tables: unusual_tables(unusual, embedded.corpus)}

    tab.wire(find, [shared.open_corpus], {tables: ""})
    cleared = {tables: "", tab.status: PRESS_UNUSUAL}
    shared.open_corpus.change(lambda: cleared, None, list(cleared), **event_options())


def unusual_tables(unusual: Unusual, corpus: Corpus) -> Markup:
    """The numbers of hubs and outliers, and the first of each."""
    texts = Counter(corpus.sentences[row] for row in unusual.hubs.tolist())
    # Rows of the same text are listed once, by the first of them.
    first_rows: dict[str, int] = {}
    for row in unusual.hubs.tolist():
        first_rows.setdefault(corpus.sentences[row], row)
    hubs = list(first_rows.values())[:MAX_UNUSUAL]
    # Where none is unusually far, the most remote are listed all the same.
    remote = unusual.outliers if len(unusual.outliers) else unusual.remotest[:MOST_REMOTE]
    outliers = remote[:MAX_UNUSUAL].tolist()
    counts = {"k": unusual.k, "sentences": len(corpus), "counts": (len(unusual.hubs), len(unusual.outliers))}
    return render(
        "explore/templates/unusual.html",
        hubs=[(int(unusual.found_by[row]), times(corpus.sentences[row], texts)) for row in hubs],
        outliers=[(float(unusual.closeness[row]), shorten(corpus.sentences[row])) for row in outliers],
        rows=(unusual.hubs[:MAX_UNUSUAL].tolist(), outliers),
        texts=len(texts),
        **counts,
    )


def times(text: str, counts: Mapping[str, int]) -> Markup:
    """A text, escaped, and how often it occurs if that is more than once."""
    count = counts[text]
    often = Markup(" <small>{} times</small>").format(count) if count > 1 else ""
    return escape(shorten(text)) + often
