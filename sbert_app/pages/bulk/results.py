"""The results of the Bulk page: texts and tables as HTML, and the section of matches and duplicates."""

from collections.abc import Mapping, Sequence
from math import ceil, isnan
from typing import Any
from urllib.parse import urlencode

import gradio as gr
from markupsafe import Markup

from sbert_app.figures.evaluation import precision_recall
from sbert_app.formats import format_count, format_estimate, format_number, model_label
from sbert_app.pages.components import messages
from sbert_app.pages.components.decisions import MEANING, criterion_labels, decision_table
from sbert_app.pages.components.events import Update, event_options, run_js
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.templates import macro, render
from sbert_app.services.background.tasks import TaskProgress
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.files.report import Correlation, ScoreReport, ScoreSummary
from sbert_app.services.models.function_words import MULTILINGUAL
from sbert_app.services.results.decisions import safest
from training.catalogue import read_asset
from training.data.tables.cells import parse_number
from training.data.tables.columns import PairColumns, normalize_name
from training.errors import InputError

# The maximum length of a cell and of a note on the page, in characters.
LONGEST_TEXT = 500
LONGEST_NOTE = 300
SHOWN_ROWS = 5
SHOWN_COLUMNS = 12
# The threshold of a file without gold scores.
USUAL_THRESHOLD = 0.8
REMEMBER = "(threshold) => window.nameInAddress(['bulk-threshold'], [threshold])"
INTRO = (
    "A row matches if its cosine is at least the threshold. Sentences that are connected by matches form a group of "
    "duplicates. Of each group the first sentence is kept."
)
DOWNLOADS = {
    "matched-csv": "All rows with a match column",
    "matched-parquet": "All rows, Parquet",
    "groups": "Groups",
    "deduplicated": "Deduplicated rows",
}


def scored_rows(summary: ScoreSummary) -> Markup:
    """Renders the first rows with their scores. An added column without any value is left out."""
    # ``summary.added`` has the names that the new columns have in the file, by their kind, and
    # ``summary.head`` the first cells of each column, as texts.
    added = [name for name in summary.added.values() if any(summary.head[name])]
    empty = set(summary.added.values()).difference(added)
    scores = (summary.added["cosine"], summary.added.get("cross_encoder"))
    rows = {}
    for name, cells in summary.head.items():
        if name in empty:
            continue
        rows[name] = cells[:SHOWN_ROWS]
        if name in scores:
            # A row without a score has an empty cell.
            rows[name] = [format_number(float(cell), 3) if cell else "" for cell in rows[name]]
    caption = f"The first {SHOWN_ROWS} of {summary.rows:,} rows, scored; the downloads have all"
    return _rows_table(caption, rows, summary.columns, added)


def progress(event: TaskProgress, job: str = "") -> Markup:
    """Renders a bar with the rate and the time left; before the first row is scored, with the current step.

    ``job`` is the id of the job for the address of the page; "" for the example.
    """
    if not event.done:
        bar = macro("progress")(f"{event.description} …", 0, label="rows scored")
    else:
        total = format_count(round(event.total), "row")
        parts = [f"{round(event.done):,} of {total}", f"{event.rate:,.0f} rows/s"]
        if event.seconds_left is not None:
            parts.append(f"{format_estimate(event.seconds_left)} left")
        # Screen readers do not read out every new count.
        bar = macro("progress")(" · ".join(parts), event.fraction, label="rows scored", live=False)
    return with_job_id(bar, job)


def with_job_id(html: Markup, job: str) -> Markup:
    """Adds the id of a job to ``html``, from which the browser puts it into the address; "" for the example."""
    return macro("bulk/of_job")(html=html, job=job)


def outcome(summary: ScoreSummary, expected_rows: int, job: str = "") -> Markup:
    """Renders a summary of the scored file, in sentences. The file has about ``expected_rows``.

    ``job`` is the id of the job for the address of the page; "" for the example.
    """
    models = f"{model_label(summary.model)}, {summary.pooling} pooling"
    if summary.cross_encoder:
        models += f", and {model_label(summary.cross_encoder)}"
    remarks = _remarks(summary, expected_rows)
    return with_job_id(macro("bulk/outcome")(LONGEST_NOTE, models, remarks, summary), job)


def agreements(summary: ScoreSummary) -> Markup:
    """Renders cards with the correlations of the file; "" without gold scores and cross-encoder scores."""
    report = summary.report
    if report is None:
        return Markup()
    cards = []
    # Scores on a scale may have a decision, too, but they get the card of their correlation. Only
    # labels are counted in ``by_label``.
    if report.decision and report.by_label:
        decision = report.decision.decision
        share = decision.average_precision
        title = "Average precision"
        rows = format_count(decision.n, "row")
        interval = (share.low, share.high)
        cards.append(_card(title, "cosine and label ×100", share.value, interval, rows))
    elif report.cosine_gold:
        cards.append(_correlation_card("Cosine and gold score", report.cosine_gold))
    if report.cross_gold:
        title = f"{summary.cross_encoder} and gold score"
        cards.append(_correlation_card(title, report.cross_gold))
    if report.cosine_cross:
        cards.append(_correlation_card(f"Cosine and {summary.cross_encoder}", report.cosine_cross))
    if not cards:
        return Markup()
    return macro("bulk/agreements")(cards=cards, sampled=report.sampled)


def disagreements(summary: ScoreSummary) -> Markup:
    """Renders the rows that two scores rank most differently, or whose cosine contradicts the label."""
    report = summary.report
    if report is None:
        return Markup()
    # (title, name of the score beside the cosine, pairs). The first two are empty without labels.
    tables = [
        ("Labelled as no match: the highest cosines", "label", report.high_others),
        ("Labelled as a match: the lowest cosines", "label", report.low_matches),
        ("Where cosine and gold score disagree most", "gold", report.gold_disagreements),
        (
            "Where cosine and cross-encoder disagree most",
            "cross-encoder",
            report.cross_disagreements,
        ),
    ]
    tables = [(title, score, pairs) for title, score, pairs in tables if pairs]
    if not tables:
        return Markup()
    return render("bulk/templates/disagreements.html", tables=tables, longest_text=LONGEST_TEXT)


def _remarks(summary: ScoreSummary, expected_rows: int) -> list[str]:
    """Returns sentences on the language, the row where scoring stopped, rows with a note, and guarded cells."""
    remarks = []
    if summary.language:
        remarks.append(
            f"The first rows look like {summary.language}. {model_label(summary.model)} was trained on English, so do "
            f"not trust its scores; try a multilingual model, such as {MULTILINGUAL}."
        )
    if summary.stopped_at is not None:
        expected = format_count(expected_rows, "row")
        remarks.append(
            f"Stopped at row {summary.rows:,} of {expected}: the files hold the rows up to there."
        )
    if summary.marked:
        remarks.append(
            f"Rows kept and marked in the column {summary.added['note']}: {summary.marked}."
        )
    if summary.guarded:
        has = "has" if summary.guarded == 1 else "have"
        remarks.append(
            f"{format_count(summary.guarded, 'cell')} that a spreadsheet would run as a formula {has} an apostrophe "
            "in front, in the CSV only."
        )
    return remarks


def _rows_table(
    caption: str,
    rows: Mapping[str, Sequence[Any]],
    pair: PairColumns,
    added: Sequence[str],
) -> Markup:
    """Renders rows: the added columns first, then the sentences and the gold score, then the other columns.

    ``rows`` has the cells of each column.
    """
    roles = {pair.sentence1: "sentence 1", pair.sentence2: "sentence 2"}
    # A column of labels has no role here, and is one of the others.
    if pair.score:
        roles[pair.score] = "gold"
    others = [name for name in rows if name not in (*added, *roles)]
    in_file = [*roles, *others]
    names = [*added, *in_file[:SHOWN_COLUMNS]]
    columns = []
    for name in names:
        role = roles.get(name, "")
        # A column whose name is its role is not labelled again.
        if normalize_name(name) == normalize_name(role):
            role = ""
        columns.append({"name": name, "role": role, "added": name in added})
    cells = [[text[:LONGEST_TEXT] for text in rows[name]] for name in names]
    return render(
        "bulk/templates/rows.html",
        caption=caption,
        columns=columns,
        rows=zip(*cells, strict=True),
        hidden_columns=max(0, len(in_file) - SHOWN_COLUMNS),
        added=added,
    )


def _correlation_card(title: str, correlation: Correlation) -> tuple[str, str, str, str]:
    foot = f"{format_count(correlation.n, 'row')} · {correlation.interval_method}"
    return _card(
        title, "Spearman ρ ×100", correlation.spearman, correlation.spearman_interval, foot
    )


def _card(
    title: str, metric: str, value: float, interval: tuple[float, float], foot: str
) -> tuple[str, str, str, str]:
    """Returns the arguments of the macro ``card``. An undefined interval is left out."""
    if not isnan(interval[0]):
        low, high = (format_number(100 * bound, 1) for bound in interval)
        foot = f"95% interval {low} to {high} · {foot}"
    return title, format_number(100 * value, 1), metric, foot


def suggested(report: ScoreReport | None) -> float:
    """Returns the threshold that the gold scores of a file suggest, or the usual one."""
    if report is None or report.decision is None:
        return USUAL_THRESHOLD
    choice = safest(report.decision.decision.choices)
    if not choice.exists:
        return USUAL_THRESHOLD
    # Rounded up to the next step of the slider. `round` removes the error of floating point: 100 *
    # 0.55 is a little more than 55, and would become 56.
    return ceil(round(100 * choice.threshold.value, 6)) / 100


class Duplicates:
    """The section that finds matches and duplicates with a threshold. It is hidden until a file is scored.

    Attributes:
        job: the state with the id of the job on the page.
        decision: the table of thresholds.
        curve: the precision and the recall at every threshold.
        tab: applies a threshold, and shows the matches.
        downloads: the buttons of `DOWNLOADS`, in their order.
    """

    def __init__(self, services: Services, job: gr.State) -> None:
        self.services = services
        self.job = job
        # Set by the slider below the histograms and by the table of thresholds. It stands outside
        # of the section, because Gradio would show it with the section.
        self.threshold = gr.Textbox(
            str(USUAL_THRESHOLD), label="Threshold", visible="hidden", elem_id="bulk-threshold"
        )
        with gr.Column(visible=False, elem_id="duplicates") as self.section:
            gr.HTML(messages.section("Matches and duplicates"))
            gr.HTML(messages.note(INTRO))
            self.decision = gr.HTML(js_on_load=read_asset("bulk.js"), elem_id="decision")
            with gr.Accordion(
                "Precision and recall at every threshold", open=False, elem_id="bulk-curves"
            ):
                self.curve = gr.Plot(show_label=False, visible=False, elem_id="bulk-curve")
            stop = gr.Button("Stop", visible=False, elem_id="stop-threshold", min_width=120)
            # Without a Start button, as a threshold starts the work.
            self.tab = MeasureTab(services, "matches", gr.HTML(elem_id="matches"), None, stop)
            with gr.Row():
                self.downloads = [
                    gr.DownloadButton(label, visible=False, elem_id=elem_id, min_width=160)
                    for elem_id, label in DOWNLOADS.items()
                ]

    @property
    def outputs(self) -> list[Any]:
        """The components that change with the file on the page."""
        return [
            self.section,
            self.decision,
            self.curve,
            self.threshold,
            self.tab.status,
            *self.downloads,
        ]

    def hide(self) -> Update:
        """Returns the update that hides and empties the section."""
        return {self.section: gr.Column(visible=False), **self._empty()}

    def show(self, summary: ScoreSummary, threshold: float) -> Update:
        """Returns the update that shows the section for a scored file."""
        data = summary.report.decision if summary.report else None
        table = ""
        figure = None
        if data:
            table = decision_table("Cosine and gold", data, [MEANING])
            figure = precision_recall(data.decision, criterion_labels(data.decision))
        return {
            # Without a scored row there is nothing to compare with a threshold.
            self.section: gr.Column(visible=summary.scored > 0),
            self.decision: table,
            self.curve: visible(figure),
            self.threshold: f"{threshold:g}",
            **self._empty(),
        }

    def wire(self, cut: gr.HTML, visited: Any, address_threshold: gr.State) -> None:
        """Applies a threshold when it is chosen, and after the event ``visited`` the threshold in the address.

        Args:
            cut: the slider below the histograms. Like the table of thresholds it runs ``bulk.js``,
                which triggers the event ``use``.
            visited: the event after which the page shows the file or the job in its address.
            address_threshold: the threshold in the address, or None.
        """

        def has_nothing_to_apply(job: str | None, threshold: float | None) -> bool:
            """Whether the address has no threshold, or the file has no scores."""
            if threshold is None or not job:
                return True
            return self.services.scoring.get(job).summary is None

        inputs = [self.job, self.threshold]
        # The update after an error or a stop. Its keys are also the outputs of the events below.
        empty = dict.fromkeys(self.downloads, hidden())
        find_again = self.tab.handler(self.find, empty, unless=has_nothing_to_apply)
        self.tab.on(visited.success, find_again, [self.job, address_threshold], empty)
        for table in (self.decision, cut):
            used = table.use(self.threshold_of, None, self.threshold, **event_options(queue=False))
            run_js(used.success, REMEMBER, self.threshold)
            self.tab.on(used.success, self.tab.handler(self.find, empty), inputs, empty)

    def threshold_of(self, event: gr.EventData) -> str:
        """Returns the threshold of the slider, or of the row whose button was pressed."""
        return str(event.threshold)

    def find(self, watch: Watch, job_id: str | None, typed: str | float | None) -> Update:
        """Applies a threshold, and shows the matches and the downloads.

        ``typed`` is the text of the hidden field, or the number in the address.
        """
        threshold = parse_number(typed)
        if threshold is None:
            raise InputError("type a threshold, such as 0.8")
        watch.report(0, "Comparing with the threshold")
        matches = self.services.scoring.apply_threshold(job_id or "", threshold, watch)
        job = self.services.scoring.get(job_id or "")
        # Explore ignores a threshold that its slider does not have. The keys are element ids.
        query = {
            "tab": "pairs",
            "repeats-threshold": f"{threshold:.2f}",
            "corpus-model": job.model,
            "corpus-pooling": job.pooling or "",
        }
        html = render("bulk/templates/matches.html", found=matches, query=urlencode(query))
        update: Update = {self.tab.status: html}
        # The files are in the order of `DOWNLOADS`.
        for button, file in zip(self.downloads, matches.outputs, strict=True):
            update[button] = visible(file)
        return update

    def _empty(self) -> Update:
        return {self.tab.status: "", **dict.fromkeys(self.downloads, hidden())}
