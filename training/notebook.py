"""HTML for objects in a notebook, in which all text is escaped, and nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

# The blue of Okabe and Ito's palette, as on the pages.
ACCENT = "#0072B2"
# The size of a curve, in pixels.
WIDTH, HEIGHT, MARGIN = 420, 160, 28


def table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """An HTML table with a caption above it."""
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<p>{escape(caption)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def curve(points: Sequence[tuple[float, float]], label: str) -> str:
    """An SVG of a line through (x, y), with the ends of both axes; "" of fewer than two points."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    if len(points) < 2 or min(xs) == max(xs):
        return ""
    low, span = min(ys), (max(ys) - min(ys)) or 1.0
    across, up = (WIDTH - 2 * MARGIN) / (max(xs) - min(xs)), (HEIGHT - 2 * MARGIN) / span
    at = [(MARGIN + (x - min(xs)) * across, HEIGHT - MARGIN - (y - low) * up) for x, y in points]
    dots = "".join(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{ACCENT}'/>" for x, y in at)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    words = [
        (MARGIN, MARGIN - 10, f"{label}, {max(ys):.4g} at most"),
        (MARGIN, HEIGHT - 6, f"{min(xs):g}"),
        (WIDTH - MARGIN - 20, HEIGHT - 6, f"{max(xs):g} steps"),
    ]
    texts = "".join(f"<text x='{x}' y='{y}' font-size='11' fill='currentColor'>{escape(t)}</text>" for x, y, t in words)
    return (
        f"<svg width='{WIDTH}' height='{HEIGHT}' role='img' aria-label='{escape(label)}'>"
        f"<polyline points='{line}' fill='none' stroke='{ACCENT}' stroke-width='2'/>{dots}{texts}</svg>"
    )


def heat_map(rows: Sequence[str], columns: Sequence[str], values: Iterable[Sequence[float]], caption: str) -> str:
    """A table of numbers by row and column: the larger, the bluer; negative ones are orange."""
    values = [list(row) for row in values]
    most = max((abs(value) for row in values for value in row), default=0.0) or 1.0

    def cell(value: float) -> str:
        color = "0,114,178" if value > 0 else "230,159,0"
        return f"<td style='background:rgba({color},{abs(value) / most:.2f})'>{value:.3f}</td>"

    head = "".join(f"<th>{escape(word)}</th>" for word in columns)
    lines = zip(rows, values, strict=True)
    body = "".join(f"<tr><th>{escape(word)}</th>{''.join(map(cell, line))}</tr>" for word, line in lines)
    return f"<p>{escape(caption)}</p><table><tr><th></th>{head}</tr>{body}</table>"
