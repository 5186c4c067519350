"""Measured: the table that ships in ``assets/evaluation.json``, and how it is written.

    {"machine": {…}, "command", "measured": "2026-11-21", "data": {name: pairs}, "speeds": {model: sentences a second},
     "figures": {model: {data: {statistic: {similarity: [value, low, high]}}}},
     "differences": {data: {first: {second: [points, reach, p, draws]}}}}

Figures are ×100. Differences are those of Spearman under the cosine, each pair of models once, in the order of models.
`scripts/measure_evaluation.py` writes it from a `Board`, so that what ships is what the page would measure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbert_app.services.results.difference import Difference
from sbert_app.services.results.eval_result import SIMILARITIES, STATISTICS, Estimate, Metric
from sbert_app.services.results.results import AVERAGE, Results, averaged_of
from training.assets import asset
from training.errors import InputError

SHIPPED = asset("evaluation.json")


@dataclass(frozen=True)
class PrecomputedResults:
    """`Results` read from a file."""

    values: dict[str, Any]

    @classmethod
    def read(cls, file: Path = SHIPPED) -> PrecomputedResults:
        """InputError if the file is not such a table."""
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            values["machine"], values["command"], values["measured"]
            values["data"], values["speeds"], values["figures"], values["differences"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{file} is no measured table: {error}") from error
        return cls(values)

    @property
    def models(self) -> list[str]:
        """In the order of the rows."""
        return list(self.values["figures"])

    @property
    def data(self) -> list[str]:
        """In the order of the columns."""
        return list(self.values["data"])

    def size(self, data: str) -> int | None:
        """The number of pairs."""
        return self.values["data"].get(data)

    def estimate(self, model: str, data: str, metric: Metric) -> Estimate | None:
        """As it was measured."""
        cell = self.values["figures"].get(model, {}).get(data)
        return Estimate(*cell[metric.statistic][metric.similarity]) if cell else None

    def failure(self, model: str, data: str) -> str:
        """What ships has no failures."""
        return ""

    def speed(self, model: str) -> float | None:
        """Different sentences of STSb test a second."""
        return self.values["speeds"].get(model)

    def difference(self, a: str, b: str, data: str, metric: Metric) -> Difference | None:
        """Known for Spearman under the cosine only."""
        found = self.values["differences"].get(data, {})
        if metric != Metric():
            return None
        if b in found.get(a, {}):
            return Difference(*found[a][b])
        turned = found.get(b, {}).get(a)
        return Difference(-turned[0], *turned[1:]) if turned else None


def to_dict(results: Results) -> dict[str, Any]:
    """The figures and differences of any results, as the file keeps them."""
    columns = [*results.data, *([AVERAGE] if averaged_of(results) else [])]
    return {
        "data": {name: results.size(name) for name in results.data},
        "figures": {model: {name: _cell(results, model, name) for name in columns} for model in results.models},
        "differences": {name: dict(_differences(results, name)) for name in columns},
    }


def as_text(values: dict[str, Any]) -> str:
    """JSON with a line for each figure."""
    text = json.dumps(values, ensure_ascii=False, indent=1)
    return re.sub(r"\[[^\[\]{}]*\]", lambda found: " ".join(found[0].split()), text) + "\n"


def _cell(results: Results, model: str, data: str) -> dict[str, dict[str, list[float]]] | None:
    found = {
        statistic: {
            similarity: [round(number, 3) for number in figure]
            for similarity in SIMILARITIES
            if (figure := results.estimate(model, data, Metric(similarity, statistic)))
        }
        for statistic in STATISTICS
    }
    return found if found["spearman"] else None


def _differences(results: Results, data: str) -> Iterator[tuple[str, dict[str, list[float]]]]:
    for at, a in enumerate(results.models):
        found = {b: results.difference(a, b, data, Metric()) for b in results.models[at + 1 :]}
        yield a, {b: [*(round(number, 4) for number in each)] for b, each in found.items() if each}
