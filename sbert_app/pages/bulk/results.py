"""What the Bulk page shows, as HTML: plain values for the templates in ``templates/``. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from sbert_app.formats import format_count, format_estimate, format_number
from sbert_app.pages.components.templates import macro, render
from sbert_app.services.background.tasks import TaskProgress
from sbert_app.services.files.report import Correlation, ScoreSummary
from sbert_app.services.files.writers import cell_text
from sbert_app.services.results.results import STATISTICS
from training.data.tables.columns import PairColumns, normalize_name
from training.data.tables.rows import OpenedTable

LONGEST_TEXT = 500  # characters of a cell that are shown
LONGEST_NOTE = 300
SHOWN_ROWS = 10
SHOWN_COLUMNS = 12


def file_line(table: OpenedTable, is_example: bool) -> Markup:
    facts = [table.description, format_count(table.row_estimate, "row"), format_count(len(table.columns), "column")]
    if is_example:
        facts.insert(0, "an example that ships scored, with pairs that are hard on purpose")
    return macro("bulk/file_line")(name=table.path.name, facts=facts, remarks=table.remarks)


def preview(table: OpenedTable, picked: PairColumns | None) -> Markup:
    rows = {name: list(map(cell_text, cells)) for name, cells in table.preview(SHOWN_ROWS).rows.items()}
    return _rows_table(f"The first {SHOWN_ROWS} rows of the file", rows, picked, ())


def scored_rows(summary: ScoreSummary) -> Markup:
    """The first rows with their scores; an added column without any value is left out."""
    added = [name for name in summary.added.values() if any(summary.head[name])]
    empty = set(summary.added.values()).difference(added)
    rows = {name: cells for name, cells in summary.head.items() if name not in empty}
    for name in rows.keys() & {summary.added["cosine"], summary.added.get("cross_encoder")}:
        rows[name] = [cell and format_number(float(cell), 3) for cell in rows[name]]
    caption = f"The first {SHOWN_ROWS} of {summary.rows:,} rows, scored; the downloads have all"
    return _rows_table(caption, rows, summary.columns, added)


def progress(event: TaskProgress, job: str = "") -> Markup:
    """A bar with the rate and the time left; before the first row, what is being done. ``job``: for the address."""
    if not event.done:
        return of_job(macro("progress")(event.description, 0, label="rows scored"), job)
    parts = [f"{round(event.done):,} of {format_count(round(event.total), 'row')}", f"{event.rate:,.0f} rows/s"]
    if event.seconds_left is not None:
        parts.append(f"{format_estimate(event.seconds_left)} left")
    return of_job(macro("progress")(" · ".join(parts), event.fraction, label="rows scored", live=False), job)


def of_job(html: Markup, job: str) -> Markup:
    """``html`` with the id of the job that it is of, which the page puts into its address; "" for the example."""
    return macro("bulk/of_job")(html=html, job=job)


def outcome(summary: ScoreSummary, expected_rows: int, job: str = "") -> Markup:
    """What became of the file, in sentences."""
    models = f"{summary.model}, {summary.pooling} pooling"
    if summary.cross_encoder:
        models += f", and {summary.cross_encoder}"
    html = macro("bulk/outcome")(
        summary=summary, models=models, remarks=_remarks(summary, expected_rows), longest_note=LONGEST_NOTE
    )
    return of_job(html, job)


def agreements(summary: ScoreSummary) -> Markup:
    """Cards with the correlations that the file allows; empty where it has neither gold nor cross-encoder scores."""
    report = summary.report
    if report is None:
        return Markup()
    cards = []
    if report.cosine_gold:
        cards += [_card("Cosine and gold score", report.cosine_gold, statistic) for statistic in STATISTICS]
    if report.cross_gold:
        cards.append(_card(f"{summary.cross_encoder} and gold score", report.cross_gold))
    if report.cosine_cross:
        cards.append(_card(f"Cosine and {summary.cross_encoder}", report.cosine_cross))
    return macro("bulk/agreements")(cards=cards, sampled=report.sampled) if cards else Markup()


def disagreements(summary: ScoreSummary) -> Markup:
    """The rows that two scores rank most differently."""
    report = summary.report
    if report is None:
        return Markup()
    tables = [  # (title, the score beside the cosine, pairs)
        ("Where cosine and gold score disagree most", "gold", report.gold_disagreements),
        ("Where cosine and cross-encoder disagree most", "cross-encoder", report.cross_disagreements),
    ]
    return render("bulk/templates/disagreements.html", tables=tables, longest_text=LONGEST_TEXT)


def _remarks(summary: ScoreSummary, expected_rows: int) -> list[str]:
    """What the user should know about the rows: where scoring stopped, which are marked, which are guarded."""
    remarks = []
    if summary.language:
        remarks.append(
            f"The first rows look like {summary.language}; {summary.model} was trained on another language, so its "
            "scores say little here."
        )
    if summary.stopped_at is not None:
        expected = format_count(expected_rows, "row")
        remarks.append(f"Stopped at row {summary.rows:,} of {expected}: the files hold the rows up to there.")
    if summary.marked:
        remarks.append(f"Rows kept and marked in the column {summary.added['note']}: {summary.marked}.")
    if summary.guarded:
        has = "has" if summary.guarded == 1 else "have"
        remarks.append(
            f"{format_count(summary.guarded, 'cell')} that a spreadsheet would run as a formula {has} an apostrophe "
            "in front, in the CSV only."
        )
    return remarks


def _rows_table(
    caption: str, rows: Mapping[str, Sequence[Any]], picked: PairColumns | None, added: Sequence[str]
) -> Markup:
    """Rows of a file: the added columns first, then the sentences and the gold score, then the other columns."""
    roles = {picked.sentence1: "sentence 1", picked.sentence2: "sentence 2", picked.score: "gold"} if picked else {}
    used = [name for name in roles if name]
    in_file = [*used, *(name for name in rows if name not in (*added, *used))]
    names = [*added, *in_file[:SHOWN_COLUMNS]]
    columns = [{"name": name, "role": _role(name, roles), "added": name in added} for name in names]
    cells = [[text[:LONGEST_TEXT] for text in row] for row in zip(*(rows[name] for name in names), strict=True)]
    hidden = max(0, len(in_file) - SHOWN_COLUMNS)
    return render("bulk/templates/rows.html", caption=caption, columns=columns, rows=cells, hidden_columns=hidden)


def _role(name: str, roles: Mapping[str | None, str]) -> str:
    """What a column is used for, unless its name says it."""
    role = roles.get(name, "")
    return "" if normalize_name(name) == normalize_name(role) else role


def _card(title: str, correlation: Correlation, statistic: str = "spearman") -> tuple[str, str, str, str]:
    is_spearman = statistic == "spearman"
    value = correlation.spearman if is_spearman else correlation.pearson
    low, high = correlation.spearman_interval if is_spearman else correlation.pearson_interval
    interval = f"95% interval {format_number(low * 100, 1)} to {format_number(high * 100, 1)}"
    foot = f"{interval} · {format_count(correlation.n, 'row')} · {correlation.interval_method}"
    return title, format_number(value * 100, 1), f"{STATISTICS[statistic]} ×100", foot
