"""Table: rows of models, columns of data sets, the paper's rows below. Plain values, for the page and for export."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import NamedTuple

from sbert_app.services.results import paper
from sbert_app.services.results.eval_result import Estimate, Metric
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.results.results import AVERAGE, Results, averaged_of, data_label
from training.registry import CROSS_ENCODERS

SEMEVAL = ("sts12", "sts13", "sts14", "sts15", "sts16")
MARK = "†"  # behind a figure on pairs that the model was trained on


class TableColumn(NamedTuple):
    """A data set, or the average."""

    name: str
    label: str
    pairs: int | None


@dataclass(frozen=True)
class TableRow:
    """A model's figures; None where there is none (yet), with the reason if there is one."""

    model: str
    label: str
    estimates: dict[str, Estimate | None]
    failures: dict[str, str]
    speed: float | None
    std: float | None = None  # the paper's standard deviation over seeds, of its one figure
    seen: frozenset[str] = frozenset()  # columns with pairs that the model was trained on


@dataclass(frozen=True)
class ResultTable:
    """``best``: for each column the models with the highest figure as it is printed, of those that had not seen it."""

    metric: Metric
    columns: list[TableColumn]
    rows: list[TableRow]
    paper_rows: list[TableRow]
    best: dict[str, set[str]]

    @property
    def has_average(self) -> bool:
        """Whether the last column is the average."""
        return self.columns[-1].name == AVERAGE


def tabulate(results: Results, metric: Metric, papers: str = paper.FIRST) -> ResultTable:
    """The table of some results under one metric. The paper's rows belong to Spearman and cosine alone."""
    names = [*results.data, *([AVERAGE] if averaged_of(results) else [])]
    columns = [TableColumn(name, data_label(name), results.size(name)) for name in names]
    rows = [_row(results, model, names, metric) for model in results.models]
    best = {name: _best(rows, name) for name in names}
    return ResultTable(metric, columns, rows, _paper_rows(results, papers) if metric == Metric() else [], best)


def _row(results: Results, model: str, names: list[str], metric: Metric) -> TableRow:
    return TableRow(
        model,
        ModelSpec.parse(model).label,
        {name: results.estimate(model, name, metric) for name in names},
        {name: reason for name in names if (reason := results.failure(model, name))},
        results.speed(model),
        seen=frozenset(name for name in names if _has_seen(results, model, name)),
    )


def _has_seen(results: Results, model: str, name: str) -> bool:
    """STSb was drawn from the SemEval sets of 2012 to 2017, and the built-in cross-encoders were trained on it."""
    if model not in CROSS_ENCODERS:
        return False
    sets = averaged_of(results) if name == AVERAGE else [name]
    return any(paper.column_of(each, results.size(each)) in SEMEVAL for each in sets)


def _best(rows: list[TableRow], name: str) -> set[str]:
    figures = {row.model: row.estimates[name] for row in rows if name not in row.seen}
    values = {model: round(figure.value, 2) for model, figure in figures.items() if figure and not isnan(figure.value)}
    return {model for model, value in values.items() if len(rows) > 1 and value == max(values.values())}


def _paper_rows(results: Results, papers: str) -> list[TableRow]:
    """The paper's figures under our columns; its average only where it covers all that ours does."""
    theirs = {name: column for name in results.data if (column := paper.column_of(name, results.size(name)))}
    over = averaged_of(results)
    found = []
    for row in paper.rows(papers, list(theirs.values())):
        values = {name: row.figures[column] for name, column in theirs.items() if column in row.figures}
        if over and all(name in values for name in over):
            values[AVERAGE] = sum(values[name] for name in over) / len(over)
        figures = {name: Estimate(value, float("nan"), float("nan")) for name, value in values.items()}
        found.append(TableRow(row.model, row.model, dict(figures), {}, row.speed, row.std))
    return found
