"""The table: a row for each model, a column for each data set; below them systems made here, and the paper's rows.

It is shown on the page, and a text to paste: Markdown or LaTeX. The best are in bold, and rows below them state
their source.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import NamedTuple

from sbert_app.services.results.grid import ResultGrid
from sbert_app.services.results.precomputed import (
    FIRST,
    PAPER,
    PAPER_TABLES,
    PrecomputedResults,
    System,
    paper_column,
    shipped_systems,
)
from sbert_app.services.results.results import AVERAGE, STATISTICS, Metric, Ranking, averaged, data_label, rank
from training.catalogue import CROSS_ENCODERS
from training.evaluation.bootstrap import Estimate
from training.names import ModelName
from training.similarities import SIMILARITIES

SEMEVAL = ("sts12", "sts13", "sts14", "sts15", "sts16")
# Stands after an estimate on pairs from the model's training data.
MARK = "†"
Results = ResultGrid | PrecomputedResults


class TableColumn(NamedTuple):
    name: str
    label: str
    pairs: int | None


@dataclass(frozen=True)
class TableRow:
    """The estimates and failures of a model by column.

    Attributes:
        trained_on: the columns with pairs from the model's training data.
        deviations: those over seeds, by column.
        made_of: the training data of a system of our own.
    """

    model: str
    label: str
    estimates: Mapping[str, Estimate | None]
    failures: dict[str, str]
    speed: float | None
    trained_on: frozenset[str] = frozenset()
    deviations: dict[str, float | None] = field(default_factory=dict)
    made_of: str = ""


@dataclass(frozen=True)
class ResultTable:
    """A table of results.

    ``best`` has the models with the highest printed value of each column, without those that were trained on it. The
    systems and the paper's rows take no part. ``overlaps`` are sentences on the data that models have read.
    """

    metric: Metric
    columns: list[TableColumn]
    rows: list[TableRow]
    system_rows: list[TableRow]
    paper_rows: list[TableRow]
    best: dict[str, set[str]]
    overlaps: list[str]


def tabulate(results: Results, metric: Metric, papers: str = FIRST) -> ResultTable:
    """The table of results under one metric; under Spearman ρ of the cosine also systems and the paper's rows."""
    names = [*results.data, *([AVERAGE] if averaged_of(results) else [])]
    columns = [TableColumn(name, data_label(name), results.sizes.get(name)) for name in names]
    rows = [
        TableRow(
            model,
            ModelName.parse(model).label,
            {name: results.estimate(model, name, metric) for name in names},
            {name: reason for name in names if (reason := results.failures.get((model, name)))},
            results.speed(model),
            trained_on=frozenset(name for name in names if _was_trained_on(results, model, name)),
        )
        for model in results.models
    ]
    best: dict[str, set[str]] = {}
    for name in names:
        unseen = [row.model for row in rows if name not in row.trained_on]
        estimates = ((model, results.estimate(model, name, metric, unread=True)) for model in unseen)
        values = {model: round(x.value, 2) for model, x in estimates if x and not isnan(x.value)}
        best[name] = {model for model, value in values.items() if len(rows) > 1 and value == max(values.values())}
    overlaps = [
        f"{ModelName.parse(model).label}: {overlap}"
        for (model, _), overlap in results.overlaps.items()
        if overlap.shared or overlap.near
    ]
    if metric != Metric():
        return ResultTable(metric, columns, rows, [], [], best, overlaps)
    paper = PAPER_TABLES[papers]
    systems = shipped_systems() if paper else []
    system_rows, paper_rows = (
        [row for system in part if (row := _reported_row(results, system)).estimates] for part in (systems, paper)
    )
    return ResultTable(metric, columns, rows, system_rows, paper_rows, best, overlaps)


def _was_trained_on(results: Results, model: str, name: str) -> bool:
    """Whether column ``name`` has pairs that the model was trained on.

    STSb was drawn from the SemEval sets of 2012 to 2017, and the built-in cross-encoders were trained on STSb.
    """
    if model not in CROSS_ENCODERS:
        return False
    sets = averaged_of(results) if name == AVERAGE else [name]
    return any(paper_column(data, results.sizes.get(data)) in SEMEVAL for data in sets)


def _reported_row(results: Results, system: System) -> TableRow:
    """A row of other measurements under our columns, with an average only if it has all data sets."""
    own = {name: paper_column(name, results.sizes.get(name)) or name for name in results.data}
    columns = {name: [key] for name, key in own.items() if key in system.figures}
    names = averaged_of(results)
    if names and all(name in columns for name in names):
        columns[AVERAGE] = [own[name] for name in names]
    deviations = {name: system.deviation(keys) for name, keys in columns.items()}
    estimates = {name: Estimate(system.mean(keys), nan, nan) for name, keys in columns.items()}
    label = system.label
    made_of = system.made_of
    return TableRow(label, label, estimates, {}, system.speed, deviations=deviations, made_of=made_of)


def averaged_of(results: Results) -> list[str]:
    """The data sets of ``results`` that enter the average: those that could be read."""
    return averaged([name for name in results.data if name in results.sizes])


def rank_models(results: Results, data: str, metric: Metric, models: Sequence[str] | None = None) -> Ranking:
    """The ranking of models on a data set, or on average, by the paired bootstrap on pairs that none was trained on."""
    estimates = {model: results.estimate(model, data, metric, unread=True) for model in models or results.models}
    values = {model: estimate.value for model, estimate in estimates.items() if estimate and not isnan(estimate.value)}

    def compare(a: str, b: str) -> tuple[float, float] | None:
        difference = results.difference(a, b, data, metric)
        return None if difference is None else (difference.points, difference.p_value)

    return rank(sorted(values, key=lambda name: -values[name]), compare)


_LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "ρ": r"$\rho$"}
    | {char: f"\\{char}" for char in "&%$#_{}"}
)


def markdown(table: ResultTable) -> str:
    """A GitHub table with the metric and the intervals."""
    heads = [_plain(column.label) for column in table.columns]
    lines = [f"| {_metric(table)} | {' | '.join(heads)} | sentences/s |", "|---" + "|---:" * (len(heads) + 1) + "|"]
    for row, source in _rows(table):
        cells = [_with_interval(row, name, table, "**{}**", " ({:.1f}–{:.1f})") for name in _names(table)]
        label = _plain(row.label) + (f" *({_plain(source)})*" if source else "")
        lines.append(f"| {label} | {' | '.join(cells)} | {_speed(row)} |")
    return "\n".join(lines)


def latex(table: ResultTable) -> str:
    """A booktabs tabular."""
    heads = " & ".join(_tex(column.label) for column in table.columns)
    lines = [f"% {_metric(table)}; in brackets the 95% interval", rf"\begin{{tabular}}{{l{'r' * len(table.columns)}r}}"]
    lines += [r"\toprule", rf"Model & {heads} & sentences/s \\", r"\midrule"]
    heading = ""
    for row, source in _rows(table):
        if source != heading:
            lines += [r"\midrule", rf"\multicolumn{{{len(table.columns) + 2}}}{{l}}{{\emph{{{_tex(source)}}}}} \\"]
            heading = source
        bold = r"\textbf{{{}}}"
        bounds = r" {{\small [{:.1f}, {:.1f}]}}"
        cells = [_with_interval(row, name, table, bold, bounds) for name in _names(table)]
        lines.append(rf"{_tex(row.label)} & {' & '.join(cells)} & {_speed(row).replace(',', '{,}')} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


FORMATS: dict[str, Callable[[ResultTable], str]] = {"Markdown": markdown, "LaTeX": latex}


def _rows(table: ResultTable) -> list[tuple[TableRow, str]]:
    """Every row and its source, which is "" for those that were measured."""
    return [
        *((row, "") for row in table.rows),
        *((row, f"SBERT Lab, trained on {row.made_of}") for row in table.system_rows),
        *((row, PAPER) for row in table.paper_rows),
    ]


def _names(table: ResultTable) -> list[str]:
    return [column.name for column in table.columns]


def _metric(table: ResultTable) -> str:
    return f"{STATISTICS[table.metric.statistic]} ×100, {SIMILARITIES[table.metric.similarity].label}"


def _with_interval(row: TableRow, name: str, table: ResultTable, bold: str, bounds: str) -> str:
    estimate = row.estimates.get(name)
    if estimate is None or isnan(estimate.value):
        return "–"
    value = f"{estimate.value:.2f}"
    value += MARK if name in row.trained_on else ""
    value = bold.format(value) if row.model in table.best[name] and row in table.rows else value
    return value if isnan(estimate.low) else value + bounds.format(estimate.low, estimate.high)


def _speed(row: TableRow) -> str:
    return "–" if row.speed is None else f"{row.speed:,.0f}"


def _plain(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("\n", " ")


def _tex(text: str) -> str:
    return text.translate(_LATEX)
