"""Frames a second while a map is dragged, in Chromium with its software renderer: by Plotly alone, and on the page.

The figures are those of the Explore page, of random points in 60 groups; what moves their picture is cut out of
assets/explore.js. A drag of five seconds; frames are those that the browser composes.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import plotly
from playwright.sync_api import sync_playwright

from benchmarks import machine
from sbert_app.figures.map import MapData, make_labels, names_at, single_map
from scripts.chromium import FLAGS, chromium_path
from training.catalogue import read_asset

POINTS = (20_000, 200_000)
SECONDS = 5.0
RENDERER = """() => { const gl = document.createElement("canvas").getContext("webgl");
  return gl.getParameter(gl.getExtension("WEBGL_debug_renderer_info").UNMASKED_RENDERER_WEBGL); }"""
COUNT = """() => { window.frames_seen = [];
  const next = (now) => { window.frames_seen.push(now); requestAnimationFrame(next); };
  requestAnimationFrame(next); }"""
AS_THE_PAGE = """(code) => { const figure = document.getElementById("map"); eval(code + "; dragPicture(figure)");
  return Plotly.relayout(figure, {dragmode: false}); }"""


def run() -> dict[str, Any]:
    script = read_asset("explore.js")
    moving = script[script.index("const dragPicture") : script.index("let isShiftDown")]
    library = (Path(plotly.__file__).parent / "package_data/plotly.min.js").read_text()
    measured = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        for count in POINTS:
            figure = _figure(count)
            for how in ("plotly", "page"):
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                page.set_content("<div id=map style='width:800px'></div>")
                page.add_script_tag(content=library)
                started = time.perf_counter()
                page.evaluate(
                    "(text) => { const f = JSON.parse(text); return Plotly.newPlot('map', f.data, f.layout); }", figure
                )
                drawn = time.perf_counter() - started
                if how == "page":
                    page.evaluate(AS_THE_PAGE, moving)
                frames = _drag(page)
                facts = {"points": count, "how": how, "megabytes": len(figure) / 1e6, "first_draw_seconds": drawn}
                measured.append({**facts, "frames_per_second": frames, "renderer": page.evaluate(RENDERER)})
                print(f"{count:>9,} points, {how:<6} {frames:6.1f} frames/s, first drawn in {drawn:.1f} s", flush=True)
                page.close()
        browser.close()
    return {"machine": machine.describe(), "measured": measured}


def _figure(count: int) -> str:
    random = np.random.default_rng(0)
    groups = random.integers(0, 60, count)
    points = (6 * random.standard_normal((60, 2))[groups] + random.standard_normal((count, 2))).astype(np.float32)
    labels = make_labels("topic", [f"topic {group % 14}" for group in groups])
    sentences = [f"sentence number {row} of the corpus" for row in range(count)]
    return str(single_map(MapData([points], ["map"], sentences, labels, names=[names_at(points, labels)])).to_json())


def _drag(page: Any) -> float:
    """Frames a second of a drag."""
    box = page.locator("#map .nsewdrag").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.evaluate(COUNT)
    started, step = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        step += 1
        page.mouse.move(x + 120 * np.sin(step / 10), y + 80 * np.cos(step / 10))
    seconds = time.perf_counter() - started
    frames = page.evaluate("() => window.frames_seen.length")
    page.mouse.up()
    return frames / seconds
