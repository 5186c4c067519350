"""What the Evaluate page shows, as HTML. Pure functions; every text that can be a user's is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import isnan

from sbert_app.services.results.error_analysis import Slice
from sbert_app.services.results.eval_result import SIMILARITIES, STATISTICS, Estimate, Metric
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.results.paper import SOURCE
from sbert_app.services.results.precomputed import PrecomputedResults
from sbert_app.services.results.results import AVERAGE, DEVELOPMENT_SETS, Results, data_label
from sbert_app.services.results.table import MARK, ResultTable, TableColumn, TableRow
from sbert_app.services.tasks import TaskProgress

CAUTION = (
    "Pearson r measures how straight the line is, not how right the order: it moves when a similarity is merely bent. "
    "Reimers et al. (2016) show that it is badly suited to judge STS; the paper (section 4) reports Spearman ρ."
)
SEEN = (
    f"{MARK} STSb was drawn from the SemEval sets of 2012 to 2017: the built-in cross-encoders, trained on it, have "
    "seen about a third of STS12 and half of STS14. Judge them, and runs trained on STSb, by STSb."
)
SPEED = "Different sentences a second, over all data sets of the row, measured in the same run"


def shipped_line(measured: PrecomputedResults) -> str:
    """Where the table that ships comes from."""
    machine = measured.values["machine"]
    return (
        '<p class="note" id="origin"><b>Shipped with the app</b>, not measured here: '
        f"{escape(machine['device'])}, {escape(machine['dtype'])}, torch {escape(machine['torch'])}, "
        f"{escape(measured.values['measured'])}; sentences/s on STSb, the fastest of {escape(machine['rounds'])} "
        f"rounds. <code>{escape(measured.values['command'])}</code></p>"
    )


def measured_line(remembered: int, done: int, total: int) -> str:
    """What the table shows once it is measured here."""
    known = f"; {remembered} of them were known from before, with the speed of then" if remembered else ""
    return f'<p class="note" id="origin"><b>Measured here</b>: {done} of {total} cells{known}.</p>'


def wanted() -> str:
    """What a file must hold, before there is anything else to say."""
    return (
        '<p class="note">Files: CSV, TSV, JSON Lines, Parquet or XLSX with the columns sentence1, sentence2 and score '
        "(0–5; other ranges are stretched). What was measured before, by the same model on the same pairs, comes at "
        "once.</p>"
    )


def progress(step: TaskProgress) -> str:
    """Which cell is being measured, and how far it is."""
    left = f" · about {step.seconds_left:,.0f} s left for this one" if step.seconds_left is not None else ""
    return (
        f'<div aria-live="polite"><p class="lead">{escape(step.description)}{left}</p>'
        f'<div class="bar" role="progressbar" aria-label="this cell" '
        f'aria-valuenow="{100 * step.fraction:.0f}" aria-valuemin="0" aria-valuemax="100">'
        f'<i style="width:{100 * step.fraction:.1f}%"></i></div></div>'
    )


def table(shown: ResultTable) -> str:
    """Models down, data sets across; the paper's rows below."""
    heads = "".join(_head(column) for column in shown.columns)
    body = "".join(_row(row, shown, is_paper=False) for row in shown.rows)
    width = len(shown.columns) + 2
    if shown.paper_rows:
        body += (
            f'<tr class="divider"><th colspan="{width}">The paper: {SOURCE}. Sentences/s from its Table 7, '
            "on another machine.</th></tr>" + "".join(_row(row, shown, is_paper=True) for row in shown.paper_rows)
        )
    statistic, similarity = STATISTICS[shown.metric.statistic], SIMILARITIES[shown.metric.similarity]
    return (
        f'<div class="runs scores"><table class="plain"><caption>{statistic} ×100 between gold and {similarity}, small '
        f"the 95% interval (bootstrap over pairs); best of a column in bold</caption><thead><tr><th></th>{heads}"
        f'<th class="number" title="{SPEED}">sentences/s</th></tr></thead><tbody>{body}</tbody></table></div>'
        f"{_notes(shown)}{_reasons(shown)}"
    )


def differences(results: Results, a: str | None, b: str | None, measure: Metric) -> str:
    """One sentence for each data set that both models have."""
    if not a or not b:
        return ""
    if a == b:
        return '<p class="note">Choose two different models.</p>'
    names = [*results.data, AVERAGE]
    first, second = (escape(ModelSpec.parse(model).label) for model in (a, b))
    lines = [
        found.describe(first, second, f"on {escape(data_label(name))}" if name != AVERAGE else "on average")
        for name in names
        if (found := results.difference(a, b, name, measure))
    ]
    if not lines:
        return (
            '<p class="note">The shipped table holds tests of Spearman ρ under the cosine only, and a test needs both '
            "models measured on the same pairs: press <b>Measure</b>.</p>"
        )
    items = "".join(f"<li>{line}.</li>" for line in lines)
    return (
        f'<ul class="findings">{items}</ul><p class="note">±: half the 95% interval of the difference. p: how often '
        "the luck of which pairs were drawn would do as much. Each test stands alone.</p>"
    )


def mistakes_lead(label: str, data: str, figure: Estimate, n: int) -> str:
    """What the lists below are of."""
    return (
        f'<p class="lead"><b>{escape(label)}</b> on <b>{escape(data_label(data))}</b>: {n:,} pairs, ρ ×100 '
        f"<b>{figure.value:.2f}</b> ({figure.low:.1f} to {figure.high:.1f})</p>"
        '<p class="note">A rank runs from 0, the least similar pair of the set, to 1, the most. Choose a row to see '
        "which words make its cosine.</p>"
    )


def slices(found: Sequence[Slice]) -> str:
    """ρ of the pairs that have something in common."""
    body, last = "", ""
    for each in found:
        by = escape(each.by) if each.by != last else ""
        last = each.by
        rho = "too few, or all alike" if each.rho is None else f"<b>{each.rho.value:.1f}</b>"
        interval = "" if each.rho is None else f"{each.rho.low:.1f} to {each.rho.high:.1f}"
        bar = (
            "" if each.rho is None else f'<div class="bar"><i style="width:{max(0.0, each.rho.value):.1f}%"></i></div>'
        )
        body += (
            f'<tr><th scope="row">{by}</th><td>{escape(each.name)}</td><td class="number">{each.n:,}</td>'
            f'<td class="number">{rho}</td><td class="number wide">{interval}</td><td class="barcell">{bar}</td></tr>'
        )
    return (
        '<div class="runs slices"><table class="plain"><thead><tr><th></th><th></th><th class="number">pairs</th>'
        '<th class="number">ρ ×100</th>'
        f'<th class="number wide">95% interval</th><th></th></tr></thead><tbody>{body}</tbody></table></div>'
        '<p class="note">ρ within a slice is lower wherever its gold scores vary less: compare models on a slice '
        "rather than slices.</p>"
    )


def pair(first: str, second: str, gold: float, score: float) -> str:
    """The pair that was chosen."""
    return (
        f'<p class="lead">“{escape(first)}”<br>“{escape(second)}”</p>'
        f'<p class="note">gold {gold:.2f} of 5, score {score:.3f}</p>'
    )


def _head(column: TableColumn) -> str:
    pairs = f"<small>{column.pairs:,} pairs</small>" if column.pairs is not None else ""
    return f'<th class="number">{escape(column.label)}{pairs}</th>'


def _row(row: TableRow, shown: ResultTable, is_paper: bool) -> str:
    cells = "".join(_cell(row, column.name, shown, is_paper) for column in shown.columns)
    speed = "–" if row.speed is None else f"{row.speed:,.0f}"
    kind = ' class="paper-row"' if is_paper else ""
    return f'<tr{kind}><th scope="row">{escape(row.label)}</th>{cells}<td class="number">{speed}</td></tr>'


def _cell(row: TableRow, name: str, shown: ResultTable, is_paper: bool) -> str:
    figure = row.estimates.get(name)
    if figure is None:
        why = row.failures.get(name, "")
        return f'<td class="number" title="{escape(why)}">{"✕" if why else "–"}</td>'
    if isnan(figure.value):
        return '<td class="number" title="all scores are equal: there is no order to compare">none</td>'
    value = f"{figure.value:.2f}"
    if is_paper:
        spread = f" ± {row.std:.2f}" if row.std is not None else ""
        return f'<td class="number">{value}{spread}</td>'
    value = f"<b>{value}</b>" if row.model in shown.best[name] else value
    value += f"<sup>{MARK}</sup>" if name in row.seen else ""
    return f'<td class="number">{value}<small>{figure.low:.1f}–{figure.high:.1f}</small></td>'


def _notes(shown: ResultTable) -> str:
    notes = []
    if shown.metric.statistic == "pearson":
        notes.append(CAUTION)
    if shown.metric.similarity != "cosine":
        notes.append("A cross-encoder has no vectors: its one score stands under every similarity.")
    if shown.has_average and any(column.name in DEVELOPMENT_SETS for column in shown.columns):
        notes.append("The average leaves STSb train and dev out: they are for choosing a model.")
    if any(row.seen for row in shown.rows):
        notes.append(SEEN)
    return "".join(f'<p class="note">{note}</p>' for note in notes)


def _reasons(shown: ResultTable) -> str:
    """Each reason once, with the cells that it keeps empty."""
    by_reason: dict[str, list[str]] = {}
    for row in shown.rows:
        for name, reason in row.failures.items():
            by_reason.setdefault(reason, []).append(f"{row.label} on {data_label(name)}")
    return "".join(
        f'<div class="problem" role="alert"><b>{escape(_some(cells))}</b>: {escape(reason)}</div>'
        for reason, cells in by_reason.items()
    )


def _some(cells: list[str]) -> str:
    return cells[0] + (f" and {len(cells) - 1} more" if len(cells) > 1 else "")
