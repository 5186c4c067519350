"""The table: a row for each model, a column for each data set, followed by our own systems and the rows of the paper.

The table is shown on the page, and can be copied as Markdown or LaTeX. The best values are bold,
and rows from elsewhere state their source.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import NamedTuple

from sbert_app.services.results.grid import ResultGrid
from sbert_app.services.results.precomputed import (
    DEFAULT_PAPERS,
    PAPER,
    PAPER_TABLES,
    PrecomputedResults,
    System,
    paper_column,
    shipped_systems,
)
from sbert_app.services.results.results import (
    AVERAGE,
    STATISTICS,
    Metric,
    Ranking,
    averaged,
    data_label,
    rank,
)
from training.catalogue import CROSS_ENCODERS
from training.evaluation.bootstrap import Estimate
from training.names import ModelName
from training.similarities import SIMILARITIES

SEMEVAL = ("sts12", "sts13", "sts14", "sts15", "sts16")
# Marks an estimate on pairs from the model's training data.
MARK = "†"
Results = ResultGrid | PrecomputedResults


class TableColumn(NamedTuple):
    """A data set or `AVERAGE`. ``pairs`` is the number of its pairs, None for the average."""

    name: str
    label: str
    pairs: int | None


@dataclass(frozen=True)
class TableRow:
    """The estimates and failures of a model by column.

    Attributes:
        trained_on: the columns with pairs from the model's training data.
        deviations: the standard deviation over seeds, by column.
        made_of: the training data of one of our own systems.
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

    Attributes:
        rows: the models, measured by the app.
        system_rows: our own systems, measured beforehand.
        paper_rows: the models of the paper, with its figures.
        best: for each column, the models with the highest printed value among ``rows``, except
            models that were trained on the column.
        overlaps: sentences on the data that models were trained on.
    """

    metric: Metric
    columns: list[TableColumn]
    rows: list[TableRow]
    system_rows: list[TableRow]
    paper_rows: list[TableRow]
    best: dict[str, set[str]]
    overlaps: list[str]


def tabulate(results: Results, metric: Metric, papers: str = DEFAULT_PAPERS) -> ResultTable:
    """The table of results under one metric.

    For Spearman ρ of the cosine it includes our own systems and the rows of ``papers``, a key of
    `PAPER_TABLES`; neither if that table is empty.
    """
    names = [*results.data]
    if averaged_of(results):
        names.append(AVERAGE)
    columns = [TableColumn(name, data_label(name), results.sizes.get(name)) for name in names]
    rows = []
    for model in results.models:
        estimates = {}
        failures = {}
        trained_on = set()
        for name in names:
            estimates[name] = results.estimate(model, name, metric)
            if (model, name) in results.failures:
                failures[name] = results.failures[model, name]
            if _was_trained_on(results, model, name):
                trained_on.add(name)
        row = TableRow(
            model,
            ModelName.parse(model).label,
            estimates,
            failures,
            results.speed(model),
            frozenset(trained_on),
        )
        rows.append(row)
    best: dict[str, set[str]] = {name: set() for name in names}
    # The only model of a table is not called its best.
    if len(rows) > 1:
        for name in names:
            values = {}
            # The cells show results on all pairs; the best is judged by the pairs that no model was
            # trained on.
            for row in rows:
                estimate = results.estimate(row.model, name, metric, unread=True)
                if name not in row.trained_on and estimate and not isnan(estimate.value):
                    values[row.model] = round(estimate.value, 2)
            highest = max(values.values(), default=nan)
            best[name] = {model for model, value in values.items() if value == highest}
    overlaps = []
    for (model, _), overlap in list(results.overlaps.items()):
        if overlap.shared or overlap.near:
            overlaps.append(f"{ModelName.parse(model).label}: {overlap}")
    system_rows = []
    paper_rows = []
    paper = PAPER_TABLES[papers]
    if metric == Metric() and paper:
        system_rows = _reported_rows(results, shipped_systems())
        paper_rows = _reported_rows(results, paper)
    return ResultTable(metric, columns, rows, system_rows, paper_rows, best, overlaps)


def _was_trained_on(results: Results, model: str, name: str) -> bool:
    """Whether column ``name`` has pairs that the model was trained on.

    STSb was drawn from the SemEval sets of 2012 to 2017, and the built-in cross-encoders were
    trained on STSb.
    """
    if model not in CROSS_ENCODERS:
        return False
    sets = averaged_of(results) if name == AVERAGE else [name]
    return any(paper_column(data, results.sizes.get(data)) in SEMEVAL for data in sets)


def _reported_rows(results: Results, systems: Sequence[System]) -> list[TableRow]:
    """The rows of systems that were measured elsewhere. They have an average only if they have all data sets."""
    # The keys of ``figures``, by the names of the data sets.
    keys = {name: paper_column(name, results.sizes.get(name)) or name for name in results.data}
    names = averaged_of(results)
    rows = []
    for system in systems:
        # A column is the mean over one data set, or over several.
        columns = {name: [key] for name, key in keys.items() if key in system.figures}
        if names and all(name in columns for name in names):
            columns[AVERAGE] = [keys[name] for name in names]
        estimates = {}
        deviations = {}
        for name, sets in columns.items():
            estimates[name] = Estimate(system.mean(sets), nan, nan)
            deviations[name] = system.deviation(sets)
        if columns:
            row = TableRow(
                system.label,
                system.label,
                estimates,
                failures={},
                speed=system.speed,
                deviations=deviations,
                made_of=system.made_of,
            )
            rows.append(row)
    return rows


def averaged_of(results: Results) -> list[str]:
    """The data sets of ``results`` that enter the average. A data set that could not be read does not."""
    return averaged([name for name in results.data if name in results.sizes])


def rank_models(
    results: Results, data: str, metric: Metric, models: Sequence[str] | None = None
) -> Ranking:
    """The ranking of models on a data set or `AVERAGE`, by the paired bootstrap.

    It uses the pairs that no model was trained on. By default all models are ranked.
    """
    values = {}
    for model in models or results.models:
        estimate = results.estimate(model, data, metric, unread=True)
        if estimate and not isnan(estimate.value):
            values[model] = estimate.value

    def compare(a: str, b: str) -> tuple[float, float] | None:
        difference = results.difference(a, b, data, metric)
        if difference is None:
            return None
        return difference.points, difference.p_value

    return rank(sorted(values, key=lambda name: -values[name]), compare)


_MARKDOWN = str.maketrans({"\\": "\\\\", "|": "\\|", "<": "&lt;", "*": "\\*", "\n": " "})
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "–": "--",
        "ρ": r"$\rho$",
    }
    | {char: f"\\{char}" for char in "&%$#_{}"}
)


def markdown(table: ResultTable) -> str:
    """The table in the Markdown of GitHub, with the metric and the intervals."""
    heads = [column.label.translate(_MARKDOWN) for column in table.columns]
    lines = [
        f"| {_metric(table)} | {' | '.join(heads)} | sentences/s |",
        "|---" + "|---:" * (len(heads) + 1) + "|",
    ]
    for row, source in _rows(table):
        cells = _cells(row, table, "**{}**", " ({:.1f}–{:.1f})")
        label = row.label.translate(_MARKDOWN)
        if source:
            label += f" *({source.translate(_MARKDOWN)})*"
        lines.append(f"| {label} | {' | '.join(cells)} | {_speed(row)} |")
    return "\n".join(lines)


def latex(table: ResultTable) -> str:
    """The table in LaTeX, a tabular with the rules of booktabs, and the intervals."""
    heads = " & ".join(column.label.translate(_LATEX) for column in table.columns)
    lines = [
        f"% {_metric(table)}; in brackets the 95% interval",
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}r}}",
        r"\toprule",
        rf"Model & {heads} & sentences/s \\",
        r"\midrule",
    ]
    bold = r"\textbf{{{}}}"
    bounds = r" {{\small [{:.1f}, {:.1f}]}}"
    last_source = ""
    for row, source in _rows(table):
        if source != last_source:
            title = rf"\emph{{{source.translate(_LATEX)}}}"
            width = len(table.columns) + 2
            lines += [r"\midrule", rf"\multicolumn{{{width}}}{{l}}{{{title}}} \\"]
            last_source = source
        cells = _cells(row, table, bold, bounds)
        label = row.label.translate(_LATEX)
        lines.append(rf"{label} & {' & '.join(cells)} & {_speed(row)} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


FORMATS: dict[str, Callable[[ResultTable], str]] = {"Markdown": markdown, "LaTeX": latex}


def _rows(table: ResultTable) -> list[tuple[TableRow, str]]:
    """Every row and its source; "" for rows that were measured."""
    rows = [(row, "") for row in table.rows]
    rows += [(row, f"SBERT Lab, trained on {row.made_of}") for row in table.system_rows]
    rows += [(row, PAPER) for row in table.paper_rows]
    return rows


def _metric(table: ResultTable) -> str:
    metric = table.metric
    return f"{STATISTICS[metric.statistic]} ×100, {SIMILARITIES[metric.similarity].label}"


def _cells(row: TableRow, table: ResultTable, bold: str, bounds: str) -> list[str]:
    """The figures of a row with their intervals; ``bold`` and ``bounds`` are the formats of best values and bounds."""
    cells = []
    for column in table.columns:
        name = column.name
        estimate = row.estimates.get(name)
        if estimate is None or isnan(estimate.value):
            cells.append("–")
            continue
        value = f"{estimate.value:.2f}"
        if name in row.trained_on:
            value += MARK
        # Systems and the rows of the paper are not compared.
        if row.model in table.best[name] and row in table.rows:
            value = bold.format(value)
        if not isnan(estimate.low):
            value += bounds.format(estimate.low, estimate.high)
        cells.append(value)
    return cells


def _speed(row: TableRow) -> str:
    return "–" if row.speed is None else f"{row.speed:,.0f}"
