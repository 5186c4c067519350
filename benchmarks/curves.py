"""Draw results: python -m benchmarks.curves writes results/scaling.svg from results/{scaling,bulk-million}.json.

Three panels: seconds against the number of sentences, and microseconds per token against the length of the text, both
with logarithmic axes (proportional: slope 1; constant: horizontal); and the memory while scoring a million rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.__main__ import RESULTS

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 330, 260, 58, 40, 44, 14
INK, MUTED, LINE, GROUND = "#1f2937", "#6b7280", "#4f46e5", "#ffffff"


@dataclass(frozen=True)
class Panel:
    """A curve; ``logarithmic`` applies to both axes."""

    title: str
    x_label: str
    points: Sequence[tuple[float, float]]
    logarithmic: bool = True

    def svg(self, left: float) -> str:
        """A group of SVG elements, ``left`` units from the left edge."""
        scale: Callable[[float], float] = math.log10 if self.logarithmic else float
        x_ticks, y_ticks = (_ticks(values, self.logarithmic) for values in zip(*self.points, strict=True))

        def position(value: float, ticks: list[float], start: float, end: float) -> float:
            low, high = scale(ticks[0]), scale(ticks[-1])
            return start + (scale(value) - low) / (high - low) * (end - start)

        def x(value: float) -> float:
            return round(position(value, x_ticks, LEFT, WIDTH - RIGHT), 1)

        def y(value: float) -> float:
            return round(position(value, y_ticks, HEIGHT - BOTTOM, TOP), 1)

        parts = [_text(LEFT, 20, self.title, INK, "start", 13), _text(x(x_ticks[-1]), HEIGHT - 8, self.x_label)]
        for tick in y_ticks:
            parts.append(f'<path d="M{LEFT} {y(tick)}H{WIDTH - RIGHT}" stroke="#e5e7eb"/>')
            parts.append(_text(LEFT - 6, y(tick) + 4, _short(tick)))
        parts += [_text(x(tick), HEIGHT - BOTTOM + 16, _short(tick), anchor="middle") for tick in x_ticks]
        path = "L".join(f"{x(a)} {y(b)}" for a, b in self.points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{LINE}" stroke-width="2"/>')
        if len(self.points) < 20:
            parts += [f'<circle cx="{x(a)}" cy="{y(b)}" r="3" fill="{LINE}"/>' for a, b in self.points]
        return f'<g transform="translate({left} 0)">{"".join(parts)}</g>'


def draw(panels: Sequence[Panel]) -> str:
    """The panels in one row, as SVG."""
    size = f'viewBox="0 0 {WIDTH * len(panels)} {HEIGHT}" width="{WIDTH * len(panels)}" height="{HEIGHT}"'
    ground = f'<rect width="100%" height="100%" fill="{GROUND}"/>'
    body = "".join(panel.svg(WIDTH * number) for number, panel in enumerate(panels))
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">{ground}{body}</svg>\n'


def _ticks(values: Sequence[float], logarithmic: bool) -> list[float]:
    """Round numbers that enclose all values: powers of ten, or five steps from zero."""
    low, high = min(values), max(values)
    if logarithmic:
        return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    step = next(s for s in (m * 10.0**p for p in range(-3, 9) for m in (1, 2, 2.5, 5)) if 5 * s >= high)
    return [step * number for number in range(6)]


def _short(number: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def _text(x: float, y: float, what: str, colour: str = MUTED, anchor: str = "end", size: int = 11) -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}" font-size="{size}">{what}</text>'


def main() -> None:
    """Read the results and write the SVG."""
    scaling, bulk = (json.loads((RESULTS / f"{name}.json").read_text()) for name in ("scaling", "bulk-million"))
    panels = [
        Panel("seconds to encode", "sentences", [(row["sentences"], row["seconds"]) for row in scaling["by_count"]]),
        Panel(
            "microseconds per token",
            "tokens per sentence",
            [(row["tokens_each"], row["microseconds_per_token"]) for row in scaling["by_length"]],
        ),
        Panel("memory while scoring, MB", "rows", [(row["row"], row["memory_mb"]) for row in bulk["memory"]], False),
    ]
    (RESULTS / "scaling.svg").write_text(draw(panels), encoding="utf-8")


if __name__ == "__main__":
    main()
