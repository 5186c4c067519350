"""The tabs Pairs and duplicates, and Hubs and outliers: each sentence compared with all others."""

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
from sbert_app.pages.explore.open_corpus import (
    OpenCorpus,
    Shared,
    kept_choice,
    require_open,
    shorten,
)
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.corpus import search
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.neighbours import Unusual, find_unusual
from sbert_app.services.corpus.search import (
    MAX_PAIRS,
    NEAR,
    NearDuplicates,
    Nearest,
    SimilarPairs,
    save_like_file,
    save_pairs,
    save_rows,
)
from sbert_app.services.files.layout import suffix_like

# The number of pairs in a table; the file has all of them.
MAX_PAIRS_SHOWN = 200
THIS_CORPUS = ("this corpus: near-duplicates of an earlier sentence", "")
# The number of sentences that are listed of a group of duplicates.
MOST_OF_GROUP = 5
# The number of hubs and outliers in the tables, and of the remotest sentences, which are listed
# when none is an outlier.
MAX_UNUSUAL = 200
MOST_REMOTE = 10
PRESS_PAIRS = messages.note("Press the button to compare each sentence with all others.")
PRESS_UNUSUAL = messages.lead("Press the button to compare each sentence with its nearest ones.")


def build(services: Services, shared: Shared) -> None:
    """Builds the tab Pairs and duplicates inside the open gr.Tab."""
    _PairsTab(services, shared).wire()


class _PairsTab:
    """The components of the tab and their event handlers.

    Attributes:
        against: the picker of the corpus in which duplicates are looked for.
        duplicates: finds the duplicates, with Start and Stop.
        pairs: finds the most similar pairs, with Start and Stop.
        table: the table of the most similar pairs.
        download: the button that downloads these pairs.
    """

    def __init__(self, services: Services, shared: Shared) -> None:
        self.services = services
        self.open_corpus = shared.open_corpus
        self.corpus_ids = shared.corpus_ids
        self.counts = shared.counts
        gr.HTML(messages.section("Duplicates, within this corpus or of another one"))
        with gr.Row(elem_classes="explore-controls"):
            hint = "One of your corpora, or a named data set such as stsb:train"
            self.against = open_dropdown(
                "Look for each sentence in", [THIS_CORPUS], hint, elem_id="repeats-against"
            )
            self.duplicate_threshold = gr.Slider(
                0.5,
                1,
                NEAR,
                step=0.01,
                label="Minimum cosine of a duplicate",
                min_width=240,
                elem_id="repeats-threshold",
            )
        ids = ("repeats-go", "repeats-stop", "repeats-status")
        self.duplicates = MeasureTab.build(services, "near-duplicates", "Find duplicates", ids)
        with self.duplicates.buttons:
            self.download_kept = gr.DownloadButton(
                "Download without duplicates", visible=False, elem_id="repeats-csv"
            )
            self.download_all = gr.DownloadButton(
                "Download all rows with groups", visible=False, elem_id="groups-csv"
            )
            self.download_shared = gr.DownloadButton(
                "Download the duplicates", visible=False, elem_id="shared-csv"
            )
        gr.HTML(messages.section("The most similar pairs"))
        with gr.Row(elem_classes="explore-controls"):
            self.k = gr.Slider(
                1, MAX_PAIRS, 20, step=1, label="Number of pairs", elem_id="pairs-k", min_width=240
            )
            self.threshold = gr.Slider(
                0,
                1,
                0.5,
                step=0.01,
                label="Minimum cosine",
                min_width=240,
                elem_id="pairs-threshold",
            )
            self.hide_identical = gr.Checkbox(
                True,
                label="Hide identical text",
                info="Pairs that differ only in case, spaces or punctuation",
                container=True,
                min_width=240,
                elem_id="pairs-hide",
            )
        ids = ("pairs-go", "pairs-stop", "pairs-status")
        find = "Find the most similar pairs"
        self.pairs = MeasureTab.build(
            services, "pairs", find, ids, PRESS_PAIRS, variant="secondary"
        )
        with self.pairs.buttons:
            self.download = gr.DownloadButton("Download CSV", visible=False, elem_id="pairs-csv")
        self.table = gr.HTML(elem_id="pairs-table")
        # The two corpora that were compared. A new `duplicate_threshold` is applied to them at once.
        self.compared = gr.State(None)

    def wire(self) -> None:
        """Connects the components. The results are cleared when another corpus is opened."""
        inputs = [self.open_corpus, self.k, self.threshold, self.hide_identical]
        no_pairs = {self.table: "", self.download: hidden()}
        downloads = (self.download_kept, self.download_all, self.download_shared)
        no_duplicates = {**dict.fromkeys(downloads, hidden()), self.compared: None, self.counts: ""}
        cleared = {
            **no_pairs,
            **no_duplicates,
            self.pairs.status: PRESS_PAIRS,
            self.duplicates.status: "",
        }
        self.open_corpus.change(lambda: cleared, None, list(cleared), **event_options())
        edits = [
            self.pairs.start.click,
            self.k.release,
            self.threshold.release,
            self.hide_identical.input,
        ]
        self.pairs.on(edits, self.pairs.handler(self.find_pairs, no_pairs), inputs, no_pairs)
        options = [self.open_corpus, self.against, self.duplicate_threshold]
        self.duplicates.wire(self.find_duplicates, options, no_duplicates)
        # The cosines of two corpora that were compared are in the cache, so a new threshold is
        # applied at once. Other questions wait for the button.
        apply_threshold = self.duplicates.handler(
            lambda watch, _compared, *values: self.find_duplicates(watch, *values),
            no_duplicates,
            unless=lambda compared, open_corpus, against, _: compared != (open_corpus, against),
        )
        self.duplicates.on(
            self.duplicate_threshold.release,
            apply_threshold,
            [self.compared, *options],
            no_duplicates,
        )
        self.against.focus(
            self.own_choices,
            self.corpus_ids,
            self.against,
            **event_options(queue=False),
        )

    def own_choices(self, corpus_ids: list[str]) -> gr.Dropdown:
        """Offers this corpus and the corpora of this browser."""
        records = self.services.corpora.list(corpus_ids)
        choices = [kept_choice(key, record) for key, record in records.items()]
        return gr.Dropdown([THIS_CORPUS, *choices])

    def find_pairs(
        self,
        watch: Watch,
        open_corpus: OpenCorpus | None,
        k: int,
        threshold: float,
        hide_identical: bool,
    ) -> Update:
        """Shows the ``k`` most similar pairs of the corpus whose cosine is at least ``threshold``."""
        embedded = require_open(open_corpus).embed(self.services.embeddings)
        comparing = watch.stage(f"Comparing {len(embedded):,} sentences, each with each")
        pairs = search.similar_pairs(embedded, int(k), threshold, hide_identical, comparing)
        path = save_pairs(pairs, embedded.corpus, self.services.temp.new_folder("explore"))
        return {
            self.pairs.status: pairs_note(pairs),
            self.table: pairs_table(pairs, embedded.corpus, threshold),
            self.download: visible(path if pairs.pairs else None),
        }

    def find_duplicates(
        self, watch: Watch, open_corpus: OpenCorpus | None, against: str | None, threshold: float
    ) -> Update:
        """Finds the sentences of the open corpus that repeat an earlier one.

        If ``against`` names another corpus, finds the sentences that are also in the other corpus.
        """
        embeddings = self.services.embeddings
        folder = self.services.temp.new_folder("explore")
        embedded = require_open(open_corpus).embed(embeddings)
        corpus = embedded.corpus
        if not against:
            reading = watch.stage(f"Reading {len(embedded):,} sentences in order")
            duplicates = search.find_near_duplicates(embedded, threshold, reading)
            status = near_duplicates(duplicates, corpus)
            for warning in embedded.warnings:
                status += messages.note(warning)
            return {
                self.duplicates.status: status,
                self.counts: count_of_corpus(corpus, duplicates),
                # The file of an earlier comparison with another corpus.
                self.download_shared: hidden(),
                **self._files(corpus, duplicates, folder),
            }
        other = self._other(against, require_open(open_corpus), watch)
        looking = watch.stage(f"Looking for {len(embedded):,} sentences in {other.corpus.name}")
        nearest = search.nearest_in(embedded, other, embeddings.cache, looking)
        # Positions in the open corpus. `nearest.rows` has the positions in the other one.
        rows = nearest.matches(threshold)
        update: Update = {
            self.duplicates.status: shared_sentences(
                nearest, rows, corpus, other.corpus, threshold
            ),
            self.download_kept: hidden(),
            # The groups of an earlier search within the corpus.
            self.download_all: hidden(),
            self.download_shared: hidden(),
            self.compared: (open_corpus, against),
        }
        if len(rows):
            matched = nearest.rows[rows]
            file = save_rows(
                corpus,
                rows,
                folder,
                "duplicates.csv",
                cosine=nearest.cosines[rows],
                match=[other.corpus.sentences[row] for row in matched.tolist()],
                match_row=(matched + 1).tolist(),
            )
            update[self.download_shared] = visible(str(file))
        # The sentences that are not in the other corpus.
        new = np.setdiff1d(np.arange(len(embedded)), rows)
        if len(new):
            update[self.download_kept] = visible(str(save_rows(corpus, new, folder, "new.csv")))
        return update

    def _files(self, corpus: Corpus, duplicates: NearDuplicates, folder: Path) -> Update:
        """The updates of two download buttons: the rows without duplicates, and all rows with their groups.

        The rows of a file are saved in its format. The sentences of a corpus without a file are saved
        as CSV, and without groups.
        """
        if corpus.table is None:
            # `download_all` has been hidden since the corpus was opened.
            file = save_rows(corpus, duplicates.originals, folder, "without-duplicates.csv")
            return {self.download_kept: visible(str(file))}
        stem = corpus.table.path.stem
        suffix = suffix_like(corpus.table)
        remaining = save_like_file(
            corpus, duplicates, folder / f"{stem}-without-duplicates{suffix}", kept_only=True
        )
        groups = save_like_file(
            corpus, duplicates, folder / f"{stem}-groups{suffix}", kept_only=False
        )
        return {
            self.download_kept: visible(str(remaining)),
            self.download_all: visible(str(groups)),
        }

    def _other(self, against: str, open_corpus: OpenCorpus, watch: Watch) -> EmbeddedCorpus:
        """The corpus in which duplicates are found, embedded with the model of the open one.

        ``against`` is the id of one of the visitor's corpora, or the name of a data set.
        """
        embeddings = self.services.embeddings
        # `list` leaves out ids that do not exist, such as the name of a data set.
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
        parts.append(
            f"{format_count(pairs.unknown, 'sentence')} without a token that the model knows left out"
        )
    return messages.note(" · ".join(parts))


def pairs_table(pairs: SimilarPairs, corpus: Corpus, threshold: float) -> Markup:
    """A table of the most similar pairs, best first, or the reason why there are none."""
    reason = f"no pair has a cosine of {threshold:.2f} or more"
    if pairs.compared < 2:
        reason = "one sentence makes no pair"
    rows = []
    # The sentences to circle on the map.
    points: list[int] = []
    for first, second, cosine in pairs.pairs[:MAX_PAIRS_SHOWN]:
        rows.append((shorten(corpus.sentences[first]), shorten(corpus.sentences[second]), cosine))
        points += [first, second]
    return render(
        "explore/templates/pairs_table.html",
        total=len(pairs.pairs),
        rows=rows,
        points=list(dict.fromkeys(points)),
        reason=reason,
    )


def near_duplicates(duplicates: NearDuplicates, corpus: Corpus) -> Markup:
    """The number of sentences that are near-duplicates of an earlier one, and the largest groups of duplicates."""
    # A sentence that repeats no earlier one is its own original.
    repeated = np.flatnonzero(duplicates.original != np.arange(len(duplicates.original)))
    # The sentences to circle on the map.
    points = np.union1d(repeated, duplicates.original[repeated]).tolist()
    # The row of an original -> its duplicates
    groups: dict[int, list[str]] = {}
    for row in repeated.tolist():
        groups.setdefault(int(duplicates.original[row]), []).append(corpus.sentences[row])
    by_size = sorted(groups.items(), key=lambda group: len(group[1]), reverse=True)
    rows = []
    for original, others in by_size[:MAX_PAIRS_SHOWN]:
        listed = [shorten(sentence) for sentence in others[:MOST_OF_GROUP]]
        rows.append((shorten(corpus.sentences[original]), listed, len(others)))
    is_of_pairs = len(corpus.text_columns) > 1
    return macro("explore/near_duplicates")(
        duplicates, len(corpus), points, rows, len(groups), is_of_pairs
    )


def count_of_corpus(corpus: Corpus, duplicates: NearDuplicates | None) -> str:
    """How many rows a corpus has, and how many are empty or duplicates.

    Args:
        duplicates: None if near-duplicates have not been counted.
    """
    copies = len(corpus) - len(set(corpus.sentences))
    parts = []
    if corpus.empty:
        parts.append(f"{corpus.empty:,} empty")
    if copies:
        parts.append(format_count(copies, "exact duplicate"))
    remaining = ""
    if duplicates is not None:
        originals = len(duplicates.originals)
        remaining = f"; {originals:,} stay"
        # The distinct sentences that are not originals. The number is negative if rounding puts the
        # cosine of identical sentences below a threshold of 1.
        near = len(corpus) - copies - originals
        if near > 0:
            parts.append(
                f"{format_count(near, 'near-duplicate')} (cosine {duplicates.threshold:.2f} or more)"
            )
    # The length of a corpus does not include the empty rows of its file.
    total = format_count(len(corpus) + corpus.empty, "row" if corpus.empty else "sentence")
    return f"{total}: {', '.join(parts)}{remaining}" if parts else total


def shared_sentences(
    nearest: Nearest, rows: np.ndarray, corpus: Corpus, other: Corpus, threshold: float
) -> Markup:
    """The number of sentences of a corpus that are in another one, the number of new ones, and the similar pairs."""
    pairs = []
    for row in rows[:MAX_PAIRS_SHOWN].tolist():
        match = other.sentences[nearest.rows[row]]
        pairs.append((nearest.cosines[row], shorten(corpus.sentences[row]), shorten(match)))
    return render(
        "explore/templates/shared.html",
        shared=len(rows),
        pairs=pairs,
        points=rows.tolist(),
        sentences=len(corpus),
        names=(corpus.name, other.name),
        threshold=threshold,
    )


def build_unusual(services: Services, shared: Shared) -> None:
    """Builds the tab Hubs and outliers inside the open gr.Tab."""
    ids = ("unusual-go", "unusual-stop", "unusual-status")
    tab = MeasureTab.build(services, "unusual", "Find hubs and outliers", ids, PRESS_UNUSUAL)
    tables = gr.HTML(elem_id="unusual-tables")

    def find(watch: Watch, open_corpus: OpenCorpus | None) -> Update:
        embedded = require_open(open_corpus).embed(services.embeddings)
        comparing = watch.stage(f"Looking for the nearest of {len(embedded):,} sentences")
        unusual = find_unusual(embedded, services.embeddings.cache, comparing)
        return {tab.status: "", tables: unusual_tables(unusual, embedded.corpus)}

    tab.wire(find, [shared.open_corpus], {tables: ""})
    cleared = {tables: "", tab.status: PRESS_UNUSUAL}
    shared.open_corpus.change(lambda: cleared, None, list(cleared), **event_options())


def unusual_tables(unusual: Unusual, corpus: Corpus) -> Markup:
    """The numbers of hubs and outliers, and the first of each."""
    # Rows of the same text are listed once, by the first of them.
    rows_of: dict[str, list[int]] = {}
    for row in unusual.hubs.tolist():
        rows_of.setdefault(corpus.sentences[row], []).append(row)
    hubs = []
    listed_hubs = []
    for text, rows in list(rows_of.items())[:MAX_UNUSUAL]:
        hubs.append((int(unusual.found_by[rows[0]]), with_count(text, len(rows))))
        listed_hubs += rows
    # If no sentence is unusually far from the others, the remotest ones are listed.
    remote = unusual.outliers if len(unusual.outliers) else unusual.remotest[:MOST_REMOTE]
    listed = remote[:MAX_UNUSUAL].tolist()
    return render(
        "explore/templates/unusual.html",
        hubs=hubs,
        outliers=[
            (float(unusual.closeness[row]), shorten(corpus.sentences[row])) for row in listed
        ],
        # The sentences of both tables to circle on the map.
        rows=(listed_hubs, listed),
        texts=len(rows_of),
        k=unusual.k,
        sentences=len(corpus),
        counts=(len(unusual.hubs), len(unusual.outliers)),
    )


def with_count(text: str, count: int) -> Markup:
    """A text, escaped, and its number of occurrences if it has several."""
    html = escape(shorten(text))
    if count > 1:
        html += Markup(" <small>{} times</small>").format(count)
    return html
