"""Table: rows of models, columns of data sets, the paper's rows below. Plain values, for the page and for export."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import NamedTuple

from sbert_app.evaluation import paper
from sbert_app.evaluation.cell import Figure, Measure
from sbert_app.evaluation.choice import ModelChoice
from sbert_app.evaluation.results import AVERAGE, Results, averaged, data_label


class Column(NamedTuple):
    """A data set, or the average."""

    name: str
    label: str
    pairs: int | None


@dataclass(frozen=True)
class Row:
    """A model's figures; None where there is none (yet), with the reason if there is one."""

    model: str
    label: str
    figures: dict[str, Figure | None]
    reasons: dict[str, str]
    speed: float | None
    spread: float | None = None  # the paper's standard deviation over seeds, of its one figure


@dataclass(frozen=True)
class Table:
    """``best``: for each column the models with the highest figure as it is printed."""

    measure: Measure
    columns: list[Column]
    rows: list[Row]
    paper_rows: list[Row]
    best: dict[str, set[str]]

    @property
    def has_average(self) -> bool:
        """Whether the last column is the average."""
        return self.columns[-1].name == AVERAGE


def tabulate(results: Results, measure: Measure, papers: str = paper.FIRST) -> Table:
    """The table of some results under one measure. The paper's rows belong to Spearman and cosine alone."""
    names = [*results.data, *([AVERAGE] if averaged(results.data) else [])]
    columns = [Column(name, data_label(name), results.size(name)) for name in names]
    rows = [_row(results, model, names, measure) for model in results.models]
    best = {name: _best(rows, name) for name in names}
    return Table(measure, columns, rows, _paper_rows(results, papers) if measure == Measure() else [], best)


def _row(results: Results, model: str, names: list[str], measure: Measure) -> Row:
    return Row(
        model,
        ModelChoice.parse(model).label,
        {name: results.figure(model, name, measure) for name in names},
        {name: reason for name in names if (reason := results.reason(model, name))},
        results.speed(model),
    )


def _best(rows: list[Row], name: str) -> set[str]:
    values = {
        row.model: round(figure.value, 2) for row in rows if (figure := row.figures[name]) and not isnan(figure[0])
    }
    return {model for model, value in values.items() if value == max(values.values())} if len(values) > 1 else set()


def _paper_rows(results: Results, papers: str) -> list[Row]:
    """The paper's figures under our columns; its average only where it covers all that ours does."""
    theirs = {name: column for name in results.data if (column := paper.column_of(name, results.size(name)))}
    over = averaged(results.data)
    found = []
    for row in paper.rows(papers, list(theirs.values())):
        values = {name: row.figures[column] for name, column in theirs.items() if column in row.figures}
        if over and all(name in values for name in over):
            values[AVERAGE] = sum(values[name] for name in over) / len(over)
        figures = {name: Figure(value, float("nan"), float("nan")) for name, value in values.items()}
        found.append(Row(row.model, row.model, dict(figures), {}, row.speed, row.spread))
    return found
