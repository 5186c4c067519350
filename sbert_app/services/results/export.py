"""A table as text to paste: Markdown, LaTeX, CSV. Best in bold; the paper's rows below, marked as the paper's."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from math import isnan

from sbert_app.services.results.eval_result import SIMILARITIES, STATISTICS, Estimate
from sbert_app.services.results.paper import SOURCE
from sbert_app.services.results.table import MARK, ResultTable, TableRow

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_FORMULA = re.compile(r"^[=+\-@\t\r]")  # a spreadsheet would run it


def markdown(table: ResultTable) -> str:
    """A GitHub table, with the measure and the intervals."""
    heads = [_plain(column.label) for column in table.columns]
    lines = [f"| {_measure(table)} | {' | '.join(heads)} | sentences/s |", "|---" + "|---:" * (len(heads) + 1) + "|"]
    for row, is_paper in _rows(table):
        cells = [_with_interval(row, name, table, "**{}**", " ({:.1f}–{:.1f})") for name in _names(table)]
        label = _plain(row.label) + (f" *({SOURCE})*" if is_paper else "")
        lines.append(f"| {label} | {' | '.join(cells)} | {_speed(row)} |")
    return "\n".join(lines)


def latex(table: ResultTable) -> str:
    """A booktabs tabular."""
    heads = " & ".join(_tex(column.label) for column in table.columns)
    lines = [
        f"% {_measure(table)}; in brackets the 95% interval",
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}r}}",
    ]
    lines += [r"\toprule", rf"Model & {heads} & sentences/s \\", r"\midrule"]
    marked = False
    for row, is_paper in _rows(table):
        if is_paper and not marked:
            lines += [r"\midrule", rf"\multicolumn{{{len(table.columns) + 2}}}{{l}}{{\emph{{{_tex(SOURCE)}}}}} \\"]
            marked = True
        cells = [
            _with_interval(row, name, table, r"\textbf{{{}}}", r" {{\small [{:.1f}, {:.1f}]}}")
            for name in _names(table)
        ]
        lines.append(rf"{_tex(row.label)} & {' & '.join(cells)} & {_speed(row).replace(',', '{,}')} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def as_csv(table: ResultTable) -> str:
    """A line for each model; value, low and high of each data set in columns of their own."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    parts = [part for column in table.columns for part in (column.label, f"{column.label} low", f"{column.label} high")]
    writer.writerow(["model", "source", *parts, "sentences per second"])
    for row, is_paper in _rows(table):
        figures = [row.estimates.get(name) or Estimate(*[float("nan")] * 3) for name in _names(table)]
        numbers = ["" if isnan(number) else f"{number:.2f}" for figure in figures for number in figure]
        label = f"'{row.label}" if _FORMULA.match(row.label) else row.label
        speed = "" if row.speed is None else f"{row.speed:.0f}"
        writer.writerow([label, SOURCE if is_paper else "measured", *numbers, speed])
    return out.getvalue().rstrip("\n")


FORMATS: dict[str, Callable[[ResultTable], str]] = {"Markdown": markdown, "LaTeX": latex, "CSV": as_csv}


def _rows(table: ResultTable) -> list[tuple[TableRow, bool]]:
    return [*((row, False) for row in table.rows), *((row, True) for row in table.paper_rows)]


def _names(table: ResultTable) -> list[str]:
    return [column.name for column in table.columns]


def _measure(table: ResultTable) -> str:
    return f"{STATISTICS[table.metric.statistic]} ×100, {SIMILARITIES[table.metric.similarity]}"


def _with_interval(row: TableRow, name: str, table: ResultTable, bold: str, bounds: str) -> str:
    figure = row.estimates.get(name)
    if figure is None or isnan(figure.value):
        return "–"
    value = f"{figure.value:.2f}"
    value += MARK if name in row.seen else ""
    value = bold.format(value) if row.model in table.best[name] and row in table.rows else value
    return value if isnan(figure.low) else value + bounds.format(figure.low, figure.high)


def _speed(row: TableRow) -> str:
    return "–" if row.speed is None else f"{row.speed:,.0f}"


def _plain(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("\n", " ")


def _tex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text).replace("–", "--").replace("ρ", r"$\rho$")
