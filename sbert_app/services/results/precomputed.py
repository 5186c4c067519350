"""The precomputed table that ships in ``assets/evaluation.json``: reading it, and the text to write.

    {"machine": {…}, "command", "measured": "2026-11-21", "data": {name: pairs}, "speeds": {model: sentences/s},
     "figures": {model: {data: {statistic: {similarity: [value, low, high]}}}},
     "differences": {data: {first: {second: [points, ci_half_width, p_value, resamples]}}}}

Correlations are ×100. Differences are of Spearman ρ under the cosine, each pair of models once, in table order.
`scripts/measure_evaluation.py` writes the file from a `ResultGrid`, so it holds what the page would measure.
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
        """Raises InputError if the file is not such a table."""
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            values["machine"], values["command"], values["measured"]
            values["data"], values["speeds"], values["figures"], values["differences"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{file} is not a table of results: {error}") from error
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
        """The stored estimate."""
        estimates = self.values["figures"].get(model, {}).get(data)
        return Estimate(*estimates[metric.statistic][metric.similarity]) if estimates else None

    def failure(self, model: str, data: str) -> str:
        """Always "": no failures are stored."""
        return ""

    def speed(self, model: str) -> float | None:
        """Distinct sentences of STSb test per second."""
        return self.values["speeds"].get(model)

    def difference(self, a: str, b: str, data: str, metric: Metric) -> Difference | None:
        """Stored for Spearman ρ under the cosine only."""
        if metric != Metric():
            return None
        stored = self.values["differences"].get(data, {})
        if b in stored.get(a, {}):
            return Difference(*stored[a][b])
        reverse = stored.get(b, {}).get(a)
        return Difference(-reverse[0], *reverse[1:]) if reverse else None


def to_dict(results: Results) -> dict[str, Any]:
    """The data sets, estimates and differences of any results, in the format of the file."""
    columns = [*results.data, *([AVERAGE] if averaged_of(results) else [])]
    return {
        "data": {name: results.size(name) for name in results.data},
        "figures": {model: {name: _estimates(results, model, name) for name in columns} for model in results.models},
        "differences": {name: dict(_differences(results, name)) for name in columns},
    }


def as_text(values: dict[str, Any]) -> str:
    """JSON with a line for each estimate."""
    text = json.dumps(values, ensure_ascii=False, indent=1)
    return re.sub(r"\[[^\[\]{}]*\]", lambda match: " ".join(match[0].split()), text) + "\n"


def _estimates(results: Results, model: str, data: str) -> dict[str, dict[str, list[float]]] | None:
    estimates = {
        statistic: {
            similarity: [round(number, 3) for number in estimate]
            for similarity in SIMILARITIES
            if (estimate := results.estimate(model, data, Metric(similarity, statistic)))
        }
        for statistic in STATISTICS
    }
    return estimates if estimates["spearman"] else None


def _differences(results: Results, data: str) -> Iterator[tuple[str, dict[str, list[float]]]]:
    for i, a in enumerate(results.models):
        differences = {b: results.difference(a, b, data, Metric()) for b in results.models[i + 1 :]}
        yield a, {b: [*(round(number, 4) for number in each)] for b, each in differences.items() if each}
