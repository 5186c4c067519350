"""The drawing of the benchmarks' results."""

from __future__ import annotations

from itertools import pairwise
from xml.etree.ElementTree import Element, fromstring

from benchmarks.curves import Panel, draw

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*panels: Panel) -> Element:
    return fromstring(draw(panels))  # noqa: S314 - our own text


def test_a_power_law_is_a_straight_line() -> None:
    drawing = drawn(Panel("t", "n", [(10**k, 2 * 10.0 ** (k - 3)) for k in range(3, 7)]))
    dots = [(float(dot.get("cx", "")), float(dot.get("cy", ""))) for dot in drawing.iter(f"{SVG}circle")]
    steps = {(round(b[0] - a[0]), round(b[1] - a[1])) for a, b in pairwise(dots)}
    assert len(dots) == 4
    assert len(steps) == 1


def test_every_point_lies_within_its_panel() -> None:
    points = [(row * 25_000, 700 + row % 3) for row in range(41)]
    group = next(drawn(Panel("t", "rows", points, logarithmic=False)).iter(f"{SVG}g"))
    curve = max((path.get("d", "") for path in group.iter(f"{SVG}path")), key=len)
    for place in curve.removeprefix("M").split("L"):
        x, y = map(float, place.split())
        assert 58 <= x <= 316
        assert 40 <= y <= 216


def test_panels_stand_side_by_side() -> None:
    panel = Panel("seconds", "sentences", [(1_000, 0.5), (1_000_000, 500)])
    drawing = drawn(panel, panel)
    assert [group.get("transform") for group in drawing.iter(f"{SVG}g")] == ["translate(0 0)", "translate(330 0)"]
    assert {"1k", "1M"} <= {text.text for text in drawing.iter(f"{SVG}text")}
