"""What the Bulk page shows, as HTML. Pure functions; every text from a file is escaped here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from sbert_app.formats import format_estimate
from sbert_app.services.files.report import Agreement, Disagreement
from sbert_app.services.files.summary import ScoreSummary
from sbert_app.services.files.writers import cell_text
from sbert_app.services.tasks import TaskProgress
from training.data.tables.columns import normalize_name
from training.data.tables.table import PairColumns, Table

LONGEST_TITLE = 500  # characters of a cell that its tooltip shows
SHOWN_COLUMNS = 12


def limits(megabytes: int) -> str:
    """What may be uploaded, and what to do with more."""
    return (
        f'<p class="note">CSV, TSV, JSON Lines, Parquet or XLSX with two columns of sentences, up to {megabytes:,} MB. '
        "Larger files, any size: <code>python -m sbert_app score IN OUT</code></p>"
    )


def file_line(table: Table, is_example: bool) -> str:
    """How a file was understood."""
    what = "an example, many of its pairs hard on purpose · " if is_example else ""
    columns = "1 column" if len(table.columns) == 1 else f"{len(table.columns):,} columns"
    remarks = "".join(f'<p class="note">{escape(remark)}</p>' for remark in table.remarks)
    return (
        f'<h2 class="file">{escape(table.path.name)}</h2><p class="note">{what}{escape(table.description)} · '
        f"{_rows(table.row_estimate)} · {columns}</p>{remarks}"
    )


def preview(table: Table, picked: PairColumns | None) -> str:
    """The first ten rows as they stand in the file."""
    rows = {name: list(map(cell_text, cells)) for name, cells in table.preview(10).rows.items()}
    return _rows_table("The first rows", rows, picked, ())


def scored_rows(summary: ScoreSummary) -> str:
    """The first ten rows with their scores."""
    added = [name for name in summary.added.values() if any(summary.head[name])]
    spare = set(summary.added.values()).difference(added)
    rows = {name: cells for name, cells in summary.head.items() if name not in spare}
    for name in rows.keys() & {summary.added["cosine"], summary.added.get("cross_encoder")}:
        rows[name] = [cell and f"{float(cell):.3f}" for cell in rows[name]]
    return _rows_table("The first rows, scored", rows, summary.columns, added)


def progress(now: TaskProgress) -> str:
    """A bar with the rate and the time left; what is being done before the first row."""
    if not now.done:
        return f'<div aria-live="polite"><p class="lead">{escape(now.description)}</p>{_bar(0)}</div>'
    left = "" if now.seconds_left is None else f" · {format_estimate(now.seconds_left)} left"
    return (
        f'<div><p class="lead">{round(now.done):,} of {_rows(round(now.total))} · {now.rate:,.0f} rows/s{left}</p>'
        f"{_bar(now.fraction)}</div>"
    )


def outcome(summary: ScoreSummary, expected: int) -> str:
    """What became of the file, in sentences."""
    models = f"{summary.model}, {summary.pooling} pooling" + (
        f", and {summary.cross_encoder}" if summary.cross_encoder else ""
    )
    done = (
        f"<b>{summary.scored:,}</b> of {summary.rows:,} pairs scored in {spoken_seconds(summary.seconds)} "
        f"({summary.rows_per_second:,.0f} rows/s) by {escape(models)}."
    )
    lines = []
    if summary.stopped_at is not None:
        lines.append(f"Stopped at row {summary.rows:,} of {_rows(expected)}: the files hold the rows up to there.")
    counts = {
        "without text": summary.missing_text,
        "with a gold score that is no number": summary.bad_gold,
        "not well formed": summary.malformed,
    }
    marked = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    if marked:
        lines.append(f"Rows kept and marked in the column {summary.added['note']}: {marked}.")
    if summary.guarded:
        lines.append(
            f"{summary.guarded:,} cells that a spreadsheet would run as formulas have an apostrophe in front, "
            "in the CSV alone."
        )
    return (
        f'<div aria-live="polite"><p class="lead">{done}</p>'
        + "".join(f'<p class="note">{escape(line)}</p>' for line in lines)
        + _notes(summary)
        + "</div>"
    )


def agreements(summary: ScoreSummary) -> str:
    """Cards with the correlations that the file allows; empty where it has neither gold nor cross-encoder scores."""
    report = summary.report
    if report is None:
        return ""
    cross, cards = summary.cross_encoder or "", []
    if report.cosine_gold:
        cards += [make("Cosine and gold score", report.cosine_gold) for make in (_spearman, _pearson)]
    if report.cross_gold:
        cards.append(_spearman(f"{cross} and gold score", report.cross_gold))
    if report.cosine_cross:
        cards.append(_spearman(f"Cosine and {cross}", report.cosine_cross))
    sampled = '<p class="note">Computed on a uniform sample of 1,000,000 rows.</p>' if report.sampled else ""
    return f'<div class="cards">{"".join(cards)}</div>{sampled}' if cards else ""


def disagreements(summary: ScoreSummary) -> str:
    """The rows that two scores rank most differently."""
    report = summary.report
    if report is None:
        return ""
    tables = []
    if report.gold_disagreements:
        tables.append(_worst("Where cosine and gold score disagree most", "gold", report.gold_disagreements))
    if report.cross_disagreements:
        tables.append(
            _worst("Where cosine and cross-encoder disagree most", "cross-encoder", report.cross_disagreements)
        )
    return "".join(tables)


def spoken_seconds(seconds: float) -> str:
    """ "0.4 s", "12 s", "3 min 20 s", "2 h 5 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _bar(share: float) -> str:
    return (
        f'<div class="bar" role="progressbar" aria-label="rows scored" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{share * 100:.0f}"><i style="width:{share * 100:.1f}%"></i></div>'
    )


def _notes(summary: ScoreSummary) -> str:
    """The first marked rows, folded away."""
    if not summary.notes:
        return ""
    items = "".join(f"<li>row {row:,}: {escape(note[:300])}</li>" for row, note in summary.notes)
    return f'<details class="note"><summary>Which rows?</summary><ul>{items}</ul></details>'


def _rows_table(
    caption: str, rows: Mapping[str, Sequence[Any]], picked: PairColumns | None, added: Sequence[str]
) -> str:
    """Rows of a file: what scoring added first, then the sentences and the gold score, then the rest."""
    chosen = [name for name in (picked.sentence1, picked.sentence2, picked.score) if name] if picked else []
    own = [*chosen, *(name for name in rows if name not in (*added, *chosen))]
    names = [*added, *own[:SHOWN_COLUMNS]]
    roles = {picked.sentence1: "sentence 1", picked.sentence2: "sentence 2", picked.score: "gold"} if picked else {}
    head = "".join(
        f"<th{' class=added' if name in added else ''}>{escape(name)}"
        + (
            f' <span class="role">{roles[name]}</span>'
            if name in roles and normalize_name(name) != normalize_name(roles[name])
            else ""
        )
        + "</th>"
        for name in names
    )
    count = max(map(len, rows.values()), default=0)
    body = "".join(
        f'<tr><th scope="row">{at + 1}</th>{"".join(_cell(rows[name][at], name in added) for name in names)}</tr>'
        for at in range(count)
    )
    more = (
        f'<p class="note">{len(own) - SHOWN_COLUMNS} more columns are not shown.</p>'
        if len(own) > SHOWN_COLUMNS
        else ""
    )
    return (
        f'<div class="wide"><table class="plain rows"><caption>{escape(caption)}</caption><thead><tr><th>row</th>'
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"
    )


def _cell(text: str, added: bool) -> str:
    kind = ' class="added"' if added else ""
    return f'<td{kind} title="{escape(text[:LONGEST_TITLE])}">{escape(text[:LONGEST_TITLE])}</td>'


def _spearman(title: str, found: Agreement) -> str:
    return _card(title, "Spearman ρ ×100", found.spearman, found.spearman_interval, found)


def _pearson(title: str, found: Agreement) -> str:
    return _card(title, "Pearson ×100", found.pearson, found.pearson_interval, found)


def _card(title: str, unit: str, value: float, interval: tuple[float, float], found: Agreement) -> str:
    low, high = interval
    return (
        f'<section class="card"><h3>{escape(title)}</h3>'
        f'<p class="score"><b>{value * 100:.1f}</b><span>{unit}</span></p><p class="foot">'
        f"95% interval {low * 100:.1f} to {high * 100:.1f} · {_rows(found.n)} · "
        f"{escape(found.interval_method)}</p></section>"
    )


def _worst(title: str, other: str, found: Sequence[Disagreement]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{worst.row:,}</th>'
        f'<td class="number">{worst.cosine:.2f} <small>{worst.cosine_rank * 100:.0f}</small></td>'
        f'<td class="number">{worst.other:.2f} <small>{worst.other_rank * 100:.0f}</small></td>'
        f"<td>{escape(worst.sentence1[:LONGEST_TITLE])}</td><td>{escape(worst.sentence2[:LONGEST_TITLE])}</td></tr>"
        for worst in found
    )
    return (
        f'<h3 class="worst">{title}</h3><p class="note">Small numbers are ranks in this file: 0 the least similar '
        'pair, 100 the most similar.</p><div class="scroll"><table class="plain worst"><thead><tr><th>row</th>'
        f"<th>cosine</th><th>{other}</th><th>sentence 1</th><th>sentence 2</th></tr></thead><tbody>{rows}</tbody>"
        "</table></div>"
    )
