"""A table as text: Markdown, LaTeX, CSV. The best in bold; systems and the paper's rows below, with their source."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from math import isnan

from sbert_app.services.files.writers import without_formula
from sbert_app.services.results.eval_result import STATISTICS, Estimate
from sbert_app.services.results.paper import SOURCE
from sbert_app.services.results.table import MARK, ResultTable, TableRow
from training.evaluation.metrics import SIMILARITIES

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
}


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
        cells = [
            _with_interval(row, name, table, r"\textbf{{{}}}", r" {{\small [{:.1f}, {:.1f}]}}")
            for name in _names(table)
        ]
        lines.append(rf"{_tex(row.label)} & {' & '.join(cells)} & {_speed(row).replace(',', '{,}')} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def as_csv(table: ResultTable) -> str:
    """A line for each model; three columns for each data set: value, low, high."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    labels = [
        label for column in table.columns for label in (column.label, f"{column.label} low", f"{column.label} high")
    ]
    writer.writerow(["model", "source", *map(without_formula, labels), "sentences per second"])
    for row, source in _rows(table):
        estimates = [row.estimates.get(name) or Estimate(*[float("nan")] * 3) for name in _names(table)]
        numbers = ["" if isnan(number) else f"{number:.2f}" for estimate in estimates for number in estimate]
        speed = "" if row.speed is None else f"{row.speed:.0f}"
        writer.writerow([without_formula(row.label), source or "measured", *numbers, speed])
    return out.getvalue().rstrip("\n")


FORMATS: dict[str, Callable[[ResultTable], str]] = {"Markdown": markdown, "LaTeX": latex, "CSV": as_csv}


def _rows(table: ResultTable) -> list[tuple[TableRow, str]]:
    """Every row, and what it is from; "" for those that were measured."""
    return [
        *((row, "") for row in table.rows),
        *((row, f"SBERT Lab, trained on {row.made_of}") for row in table.system_rows),
        *((row, SOURCE) for row in table.paper_rows),
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
    value += MARK if name in row.seen else ""
    value = bold.format(value) if row.model in table.best[name] and row in table.rows else value
    return value if isnan(estimate.low) else value + bounds.format(estimate.low, estimate.high)


def _speed(row: TableRow) -> str:
    return "–" if row.speed is None else f"{row.speed:,.0f}"


def _plain(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("\n", " ")


def _tex(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text).replace("–", "--").replace("ρ", r"$\rho$")
