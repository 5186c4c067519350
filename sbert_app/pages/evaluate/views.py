"""The HTML of the tabs Sentence similarity and Error analysis: values computed here, rendered by templates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import isnan
from typing import NamedTuple

from markupsafe import Markup

from sbert_app.formats import format_count
from sbert_app.pages.components.templates import render
from sbert_app.services.results.error_analysis import RankedError, Slice
from sbert_app.services.results.eval_result import SIMILARITIES, STATISTICS, Estimate, Metric
from sbert_app.services.results.grid import ResultGrid
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.results.paper import SOURCE
from sbert_app.services.results.precomputed import PrecomputedResults
from sbert_app.services.results.results import AVERAGE, DEVELOPMENT_SETS, Results, data_label
from sbert_app.services.results.systems import shipped as shipped_systems
from sbert_app.services.results.table import MARK, ResultTable, TableRow

TEMPLATES = "evaluate/templates"
FILE_HINT = (
    "Files: CSV, TSV, JSON Lines, Parquet or XLSX with the columns sentence1, sentence2 and score (0–5; other ranges "
    "are rescaled). Cells that were measured before, with the same model on the same pairs, come from the cache."
)
PEARSON_CAUTION = (
    "Pearson r measures how linear the relation is, not how well the order is kept: it changes when a similarity is "
    "transformed monotonically. Reimers et al. (2016) show that it is poorly suited to evaluating STS; the paper "
    "(section 4) reports Spearman ρ."
)
CROSS_ENCODER_NOTE = "A cross-encoder has no embeddings: its one score stands under every similarity."
AVERAGE_NOTE = "The average excludes STSb train and dev, which serve for model selection."
SEEN_NOTE = (
    f"{MARK} STSb was drawn from the SemEval sets of 2012 to 2017: the built-in cross-encoders, trained on it, have "
    "seen about a third of STS12 and half of STS14. Judge them, and runs trained on STSb, by STSb."
)
SPEED_TOOLTIP = "Distinct sentences per second over all data sets of the row, measured in the same run"
UNDEFINED_TOOLTIP = "all scores are equal: the correlation is undefined"
MISSING, FAILED = "–", "✕"


class _Cell(NamedTuple):
    """A cell of the table of scores."""

    text: str
    interval: str = ""
    tooltip: str = ""
    is_best: bool = False
    mark: str = ""


def score_table(results: Results, table: ResultTable) -> Markup:
    """The table, where its figures come from, and notes on how to read them."""
    return render(
        f"{TEMPLATES}/score_table.html",
        **_origin(results),
        statistic=STATISTICS[table.metric.statistic],
        similarity=SIMILARITIES[table.metric.similarity],
        columns=table.columns,
        rows=[_row(row, table, is_reference=False) for row in table.rows],
        system_rows=[_row(row, table, is_reference=True) for row in table.system_rows],
        paper_rows=[_row(row, table, is_reference=True) for row in table.paper_rows],
        paper_source=SOURCE,
        speed_tooltip=SPEED_TOOLTIP,
        notes=_notes(table),
        failures=_failures(table),
    )


def differences(results: Results, a: str | None, b: str | None, metric: Metric) -> Markup:
    """For each data set that both models have: is one better than the other?"""
    if not a or not b:
        return Markup()
    first, second = (ModelSpec.parse(model).label for model in (a, b))
    sentences = [
        difference.describe(first, second, f"on {data_label(name)}" if name != AVERAGE else "on average")
        for name in [*results.data, AVERAGE]
        if (difference := results.difference(a, b, name, metric))
    ]
    return render(f"{TEMPLATES}/differences.html", same_model=a == b, sentences=sentences)


def errors_summary(model: str, data: str, rho: Estimate, pairs: int) -> Markup:
    """What the lists of errors are of: the model, the data set and ρ."""
    return render(f"{TEMPLATES}/errors_summary.html", model=model, data=data_label(data), rho=rho, pairs=pairs)


def error_pair(pair: RankedError, map_note: Markup) -> Markup:
    """The chosen pair, its gold score and the model's, and how to read the word map below."""
    return render(
        f"{TEMPLATES}/error_pair.html",
        **{name: getattr(pair, name) for name in ("first", "second", "gold", "score")},
        map_note=map_note,
    )


def slices(found: Sequence[Slice]) -> Markup:
    """ρ of each slice, grouped by property."""
    groups = [(prop, list(group)) for prop, group in groupby(found, key=lambda each: each.by)]
    return render(f"{TEMPLATES}/slices.html", groups=groups)


def _origin(results: Results) -> dict[str, dict[str, object] | None]:
    """Where the figures come from: shipped with the app, or measured here."""
    if isinstance(results, ResultGrid):
        cells = list(results.results.values())  # a copy: the grid may be growing
        total = len(results.models) * len(results.data)
        cached = sum(cell.from_cache for cell in cells)
        return {"precomputed": None, "measured": {"done": len(cells), "total": total, "cached": cached}}
    if isinstance(results, PrecomputedResults):
        values = results.values
        shipped = {**values["machine"], "date": values["measured"], "command": values["command"]}
        return {"precomputed": shipped, "measured": None}
    raise TypeError(f"no origin is known for {type(results).__name__}")


def _systems_note(table: ResultTable) -> str:
    """What the rows between those measured and the paper's are."""
    seeds = {system.label: system.seeds for system in shipped_systems().systems}
    trained = [f"{row.label}, {row.made_of}, {format_count(seeds[row.label], 'seed')}" for row in table.system_rows]
    return f"Made with this app, trained on: {'; '.join(trained)}. Their figures ship, not their models."


def _row(row: TableRow, table: ResultTable, is_reference: bool) -> dict[str, object]:
    cells = [_cell(row, column.name, table, is_reference) for column in table.columns]
    return {"label": row.label, "cells": cells, "speed": row.speed}


def _cell(row: TableRow, name: str, table: ResultTable, is_reference: bool) -> _Cell:
    estimate = row.estimates.get(name)
    if estimate is None:
        reason = row.failures.get(name, "")
        return _Cell(FAILED if reason else MISSING, tooltip=reason)
    if isnan(estimate.value):
        return _Cell("none", tooltip=UNDEFINED_TOOLTIP)
    value = f"{estimate.value:.2f}"
    if is_reference:
        deviation = row.deviations.get(name, row.std)
        return _Cell(value if deviation is None else f"{value} ± {deviation:.2f}")
    return _Cell(
        value,
        interval=f"{estimate.low:.1f}–{estimate.high:.1f}",
        is_best=row.model in table.best[name],
        mark=MARK if name in row.seen else "",
    )


def _notes(table: ResultTable) -> list[str]:
    notes = {
        PEARSON_CAUTION: table.metric.statistic == "pearson",
        CROSS_ENCODER_NOTE: table.metric.similarity != "cosine",
        AVERAGE_NOTE: table.has_average and any(column.name in DEVELOPMENT_SETS for column in table.columns),
        SEEN_NOTE: any(row.seen for row in table.rows),
        _systems_note(table): bool(table.system_rows),
    }
    return [note for note, applies in notes.items() if applies]


def _failures(table: ResultTable) -> list[dict[str, str]]:
    """Each reason once, with the cells that it leaves empty."""
    by_reason: dict[str, list[str]] = {}
    for row in table.rows:
        for name, reason in row.failures.items():
            by_reason.setdefault(reason, []).append(f"{row.label} on {data_label(name)}")
    return [
        {"cells": cells[0] + (f" and {len(cells) - 1} more" if len(cells) > 1 else ""), "reason": reason}
        for reason, cells in by_reason.items()
    ]
