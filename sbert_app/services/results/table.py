"""The table: a row for each model, a column for each data set; below them systems made here, and the paper's rows.

For the page and for export.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan
from typing import NamedTuple

from sbert_app.services.results import paper
from sbert_app.services.results.eval_result import Estimate, Metric
from sbert_app.services.results.precomputed import shipped_systems
from sbert_app.services.results.results import AVERAGE, Results, averaged_of, data_label
from training.catalogue import CROSS_ENCODERS
from training.names import ModelName

SEMEVAL = ("sts12", "sts13", "sts14", "sts15", "sts16")
MARK = "†"  # after an estimate on pairs that were in the model's training data


class TableColumn(NamedTuple):
    """A data set, or the average."""

    name: str
    label: str
    pairs: int | None


@dataclass(frozen=True)
class TableRow:
    """A model's estimates; None where there is none (yet), with the failure if there was one."""

    model: str
    label: str
    estimates: dict[str, Estimate | None]
    failures: dict[str, str]
    speed: float | None
    std: float | None = None  # over seeds; the paper's Table 2 only
    seen: frozenset[str] = frozenset()  # columns with pairs from the model's training data
    deviations: dict[str, float] = field(default_factory=dict)  # over seeds, by column; of systems made here
    made_of: str = ""  # what such a system was trained on


@dataclass(frozen=True)
class ResultTable:
    """``best``: for each column the models with the highest printed value, without those that were trained on it.

    Neither the systems nor the paper's rows take part.
    """

    metric: Metric
    columns: list[TableColumn]
    rows: list[TableRow]
    system_rows: list[TableRow]
    paper_rows: list[TableRow]
    best: dict[str, set[str]]

    @property
    def has_average(self) -> bool:
        """Whether the last column is the average."""
        return self.columns[-1].name == AVERAGE


def tabulate(results: Results, metric: Metric, papers: str = paper.FIRST) -> ResultTable:
    """The table of results under one metric. The paper's rows and the systems are added for the paper's metric only.

    That is Spearman ρ of the cosine.
    """
    names = [*results.data, *([AVERAGE] if averaged_of(results) else [])]
    columns = [TableColumn(name, data_label(name), results.size(name)) for name in names]
    rows = [_row(results, model, names, metric) for model in results.models]
    best = {name: _best(rows, name) for name in names}
    if metric != Metric():
        return ResultTable(metric, columns, rows, [], [], best)
    system_rows = _system_rows(results) if paper.TABLES[papers] else []
    return ResultTable(metric, columns, rows, system_rows, _paper_rows(results, papers), best)


def _row(results: Results, model: str, names: list[str], metric: Metric) -> TableRow:
    return TableRow(
        model,
        ModelName.parse(model).label,
        {name: results.estimate(model, name, metric) for name in names},
        {name: reason for name in names if (reason := results.failure(model, name))},
        results.speed(model),
        seen=frozenset(name for name in names if _has_seen(results, model, name)),
    )


def _has_seen(results: Results, model: str, name: str) -> bool:
    """Whether column ``name`` has pairs that the model was trained on.

    STSb was drawn from the SemEval sets of 2012 to 2017, and the built-in cross-encoders were trained on STSb.
    """
    if model not in CROSS_ENCODERS:
        return False
    sets = averaged_of(results) if name == AVERAGE else [name]
    return any(paper.column_of(each, results.size(each)) in SEMEVAL for each in sets)


def _best(rows: list[TableRow], name: str) -> set[str]:
    estimates = {row.model: row.estimates[name] for row in rows if name not in row.seen}
    values = {model: round(each.value, 2) for model, each in estimates.items() if each and not isnan(each.value)}
    return {model for model, value in values.items() if len(rows) > 1 and value == max(values.values())}


def _system_rows(results: Results) -> list[TableRow]:
    """The systems that ship, under our columns; their average only if they have all data sets of ours."""
    names = {name: paper.column_of(name, results.size(name)) or name for name in results.data}
    rows = []
    for system in shipped_systems():
        columns = {name: [key] for name, key in names.items() if key in system.figures}
        averaged_names = averaged_of(results)
        if averaged_names and all(name in columns for name in averaged_names):
            columns[AVERAGE] = [names[name] for name in averaged_names]
        if not columns:
            continue
        means = {name: Estimate(system.mean(keys), float("nan"), float("nan")) for name, keys in columns.items()}
        spread = {name: system.deviation(keys) for name, keys in columns.items()}
        deviations = {name: value for name, value in spread.items() if value is not None}
        rows.append(
            TableRow(system.label, system.label, dict(means), {}, None, deviations=deviations, made_of=system.made_of)
        )
    return rows


def _paper_rows(results: Results, papers: str) -> list[TableRow]:
    """The paper's values under our columns; their average only if the paper has all data sets of ours."""
    columns = {name: column for name in results.data if (column := paper.column_of(name, results.size(name)))}
    averaged_names = averaged_of(results)
    rows = []
    for row in paper.rows(papers, list(columns.values())):
        values = {name: row.correlations[column] for name, column in columns.items() if column in row.correlations}
        if averaged_names and all(name in values for name in averaged_names):
            values[AVERAGE] = sum(values[name] for name in averaged_names) / len(averaged_names)
        estimates = {name: Estimate(value, float("nan"), float("nan")) for name, value in values.items()}
        rows.append(TableRow(row.model, row.model, dict(estimates), {}, row.speed, row.std))
    return rows
