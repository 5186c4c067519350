// Events of the Map tab that Gradio's Plot does not have: a click on a point, a lasso, and the slider between two maps.
// Each point's customdata is [row], of two maps [row, x before, y before, (z before,) x after, y after(, z after)]; see
// figures/map.py.
const plot = () => document.querySelector("#map-plot .js-plotly-plot");
const isReady = (figure) => figure && window.Plotly && figure._fullData?.length;
const layerOf = (trace) => trace.meta?.layer;

const listen = () => {
  const figure = plot();
  if (!figure || !figure.on || figure.listening === figure.on) return; // another one: Plotly has begun it anew
  if (!figure.listening) { highlight(figure); dragPicture(figure); }
  figure.listening = figure.on;
  figure.on("plotly_click", (event) => {
    const row = event.points.map((point) => point.customdata?.[0]).find((candidate) => candidate >= 0);
    if (row !== undefined) trigger("click", { row });
  });
  // Plotly reports a selection also when it draws a figure anew: only one that a person has drawn counts.
  let isDrawn = false;
  figure.on("plotly_selecting", () => { isDrawn = true; });
  figure.on("plotly_selected", (event) => {
    if (!event || !isDrawn) return;
    isDrawn = false;
    const rows = event.points.map((point) => point.customdata?.[0]).filter((row) => row >= 0);
    // Plotly dims by the number of trace and point, which change with the colours: what is selected is drawn as a layer.
    window.Plotly.update(figure, { selectedpoints: [null] }, { selections: [] });
    // A selection takes the rings of the last click away.
    found.delete("marked");
    document.querySelector("#map-nearest [data-rows]")?.removeAttribute("data-rows");
    trigger("select", { rows: [...new Set(rows)], add: isShiftDown });
  });
  figure.withNames = (layout) => writeNames(figure, layout);
  figure.on("plotly_hover", ({ points: [point] }) => { showTwin(figure, point); lightRow(point.customdata?.[0]); });
  figure.on("plotly_unhover", () => { takeRings(figure); lightRow(); });
  for (const event of ["plotly_relayouting", "plotly_relayout", "plotly_afterplot"]) figure.on(event, () => placeNames(figure));
  // A map that was drawn in a hidden tab has its sizes when it is seen.
  new ResizeObserver(() => placeNames(figure)).observe(figure);
  placeNames(figure);
  figure.on("plotly_doubleclick", () => {
    if (["lasso", "select"].includes(figure._fullLayout.dragmode)) trigger("select", { rows: [], add: false });
  });
};

// The names of the regions, written over a map in 2-D: layout.meta.names has those of each panel, [[x, y], text, depth],
// the largest region first. Depth 1 appears when the map is zoomed in; where two would overlap, the first stays.
const ZOOMED = 2.2;
const placeNames = (figure) => {
  if (!figure.clientWidth || !figure._fullLayout) return;
  // Beside a narrow map there is no room for a legend.
  if (figure.clientWidth < 560 && figure.layout.legend?.orientation === "v")
    window.Plotly.relayout(figure, { "legend.orientation": "h", "legend.x": 0, "legend.y": -0.02 });
  const { meta, xaxis } = figure._fullLayout, panels = meta?.names || [];
  let over = figure.querySelector(".map-names");
  if (!panels.some((names) => names.length) || !xaxis) { over?.remove(); return; }
  if (!over || over.names !== panels) {
    over?.remove();
    over = Object.assign(document.createElement("div"), { className: "map-names", names: panels });
    over.setAttribute("aria-hidden", "true");
    over.labels = panels.flatMap((names, panel) => names.map(([at, text, depth]) => {
      const label = document.createElement("span");
      label.textContent = text;
      if (depth) label.className = "fine";
      over.append(label);
      return { at, depth, label, panel };
    }));
    figure.append(over);
    for (const each of over.labels) [each.width, each.height] = [each.label.offsetWidth, each.label.offsetHeight];
    over.home = xaxis.range[1] - xaxis.range[0];
  }
  const taken = [], zoom = over.home / (xaxis.range[1] - xaxis.range[0]);
  for (const { at, depth, label, panel, width, height } of over.labels) {
    const x = panel ? figure._fullLayout.xaxis2 : figure._fullLayout.xaxis, y = panel ? figure._fullLayout.yaxis2 : figure._fullLayout.yaxis;
    const left = x._offset + x.l2p(at[0]) - width / 2, top = y._offset + y.l2p(at[1]) - height / 2;
    const isInside = left > x._offset - width / 2 && left < x._offset + x._length - width / 2 && top > y._offset && top < y._offset + y._length - height;
    const isFree = !taken.some(([l, t, w, h]) => left < l + w && l < left + width && top < t + h && t < top + height);
    const isShown = isInside && isFree && (!depth || zoom >= ZOOMED);
    if (isShown) taken.push([left - 4, top - 2, width + 8, height + 4]);
    label.style.transform = `translate(${left}px, ${top}px)`;
    label.style.visibility = isShown ? "visible" : "hidden";
  }
};
const ring = (figure, isRight, x, y) => {
  const { xaxis, yaxis, xaxis2, yaxis2 } = figure._fullLayout, [across, up] = isRight ? [xaxis2, yaxis2] : [xaxis, yaxis];
  const twin = Object.assign(document.createElement("div"), { className: "twin" });
  twin.style.left = `${across._offset + across.l2p(x)}px`;
  twin.style.top = `${up._offset + up.l2p(y)}px`;
  figure.append(twin);
};
const takeRings = (figure) => figure.querySelectorAll(".twin").forEach((twin) => twin.remove());
// Of two maps the point under the pointer is circled on the other one, too.
const showTwin = (figure, point) => {
  takeRings(figure);
  const isRight = point.data.xaxis === "x2", at = isRight ? 1 : 3;
  if (!figure._fullLayout.xaxis2 || !(point.customdata?.[0] >= 0)) return;
  ring(figure, !isRight, point.customdata[at], point.customdata[at + 1]);
};
// The row under the pointer in the table below is circled on the map, and the point under it lights up its row.
const rowOf = (line) => Number(line.querySelector("[data-col='0']")?.innerText.replace(/\D/g, "")) - 1;
const lightRow = (row) => {
  for (const line of document.querySelectorAll("#selected-table .virtual-row")) line.classList.toggle("hovered", rowOf(line) === row);
};
let pointedLine = null;
document.addEventListener("pointerover", ({ target }) => {
  const line = target.closest?.("#selected-table .virtual-row") || null, figure = plot();
  if (line === pointedLine || !isReady(figure) || !figure._fullLayout.xaxis) return;
  pointedLine = line;
  takeRings(figure);
  const row = line && rowOf(line);
  for (const trace of line ? figure._fullData.filter(isPoints) : []) {
    const at = Array.from(trace.customdata).findIndex((custom) => custom[0] === row);
    if (at >= 0) ring(figure, trace.xaxis === "x2", trace.x[at], trace.y[at]);
  }
});
// An image that is downloaded has the names that are seen.
const writeNames = (figure, layout) => {
  const seen = figure.querySelector(".map-names")?.labels?.filter(({ label }) => label.style.visibility === "visible") || [];
  const notes = seen.map(({ at, label, panel }) => ({ x: at[0], y: at[1], xref: panel ? "x2" : "x", yref: panel ? "y2" : "y",
    text: label.textContent.replace(/[&<>]/g, (c) => `&#${c.charCodeAt(0)};`), showarrow: false,
    font: { size: 12, color: "white" }, bgcolor: "rgba(31,41,51,0.78)", borderpad: 2 }));
  return { ...layout, annotations: [...(layout.annotations || []), ...notes] };
};

// While the pointer is on an entry of the legend, the points of all others fade.
const highlight = (figure) => {
  const fade = (kept) => {
    const base = figure.data.flatMap((trace, i) => (isPoints(figure._fullData[i]) ? [i] : []));
    const group = kept && figure._fullData[kept.trace.index]?.legendgroup;
    const full = figure.data.some((trace) => layerOf(trace) === "selected") ? FADED : 0.8;
    window.Plotly.restyle(figure, { "marker.opacity": base.map((i) => (!kept || figure._fullData[i].legendgroup === group ? full : 0.06)) }, base);
  };
  let wanted = null, shownFor = null, due = 0;
  const soon = () => {
    clearTimeout(due);
    due = setTimeout(() => { if (wanted !== shownFor) { shownFor = wanted; fade(wanted); } }, 80);
  };
  figure.addEventListener("mouseover", (event) => {
    const entry = event.target.closest?.(".legend .traces");
    wanted = entry ? entry.__data__?.[0] || null : null;
    soon();
  });
  figure.addEventListener("mouseleave", () => { wanted = null; soon(); });
};

// Many points take longer to draw than a frame: while such a map is dragged its picture is moved, and it is drawn again on
// release. Plotly's own dragging is off then; clicks and hover texts stay.
const MANY = 20000;
const isMany = (figure) => !figure._fullLayout.xaxis2 && !figure._fullLayout.scene
  && figure._fullData.reduce((count, trace) => count + (isPoints(trace) ? trace.x.length : 0), 0) > MANY;
const dragPicture = (figure) => figure.addEventListener("pointerdown", (down) => {
  const { dragmode, xaxis, yaxis } = figure._fullLayout;
  if (down.button !== 0 || dragmode !== false || !down.target.closest?.(".nsewdrag")) return;
  const parts = () => figure.querySelectorAll(".gl-container, .map-names");
  let dx = 0, dy = 0;
  const move = (event) => {
    [dx, dy] = [event.clientX - down.clientX, event.clientY - down.clientY];
    for (const part of parts()) part.style.transform = `translate(${dx}px, ${dy}px)`;
  };
  const end = async () => {
    window.removeEventListener("pointermove", move, true);
    if (dx || dy) {
      const shift = ({ range: [low, high], _length: length }, pixels) => [low, high].map((each) => each + pixels * (high - low) / length);
      await window.Plotly.relayout(figure, { "xaxis.range": shift(xaxis, -dx), "yaxis.range": shift(yaxis, dy) });
    }
    for (const part of parts()) part.style.transform = "";
  };
  window.addEventListener("pointermove", move, true);
  window.addEventListener("pointerup", end, { capture: true, once: true });
});

let isShiftDown = false;
for (const kind of ["keydown", "keyup", "mousedown", "mousemove"])
  window.addEventListener(kind, (event) => { isShiftDown = event.shiftKey; }, true);

// What dragging does; the radio buttons write it to #map-plot. In 3-D it always turns the map.
const setDrag = () => {
  const figure = plot(), wanted = document.getElementById("map-plot")?.dataset.drag;
  if (!isReady(figure) || figure._fullLayout.scene) return;
  const dragmode = (wanted || "pan") === "pan" && isMany(figure) ? false : wanted || "pan";
  if (figure._fullLayout.dragmode !== dragmode) window.Plotly.relayout(figure, { dragmode });
};

// Layers over the points: each element with data-layer names the rows of one, the first row first.
//   marked      the clicked sentence and its nearest ones, circled
//   selected    what is selected, in its own colour, while the other points fade
//   others      what a tab has found, circled when its button "Show on the map" is pressed
const ALWAYS = ["marked", "selected"];
const RINGS = { "marked": null, "search results": "#d55e00", "similar pairs": "#cc79a7", "near-duplicates": "#e69f00", "duplicates": "#e69f00",
  "hubs": "#009e73", "outliers": "#cc79a7" };
const shown = new Set();
const found = new Map(); // layer -> rows; kept while the tab that found them is closed
const PLACES = { "marked": "#map-nearest", "selected": "#selected-rows", "search results": "#search-hits",
  "similar pairs": "#pairs-table", "near-duplicates": "#repeats-status",
  "duplicates": "#repeats-status", "hubs": "#unusual-tables", "outliers": "#unusual-tables" };
let corpus = "";

const wantedLayers = () => {
  const open = document.querySelector("#selected-rows [data-layer]")?.dataset.corpus ?? corpus;
  // The first corpus clears nothing: a tab may have asked for its layer before the map was drawn.
  if (open !== corpus && corpus) { found.clear(); shown.clear(); }
  corpus = open;
  for (const [layer, place] of Object.entries(PLACES)) {
    const holder = document.querySelector(place);
    if (holder) found.set(layer, holder.querySelector(`[data-layer="${layer}"]`)?.dataset.rows || "");
  }
  return [...found].filter(([layer, rows]) => rows && (ALWAYS.includes(layer) || shown.has(layer)));
};

const panelOf = (trace) => ({ xaxis: trace.xaxis, yaxis: trace.yaxis, scene: trace.scene });
const isPoints = (trace) => trace.customdata && !layerOf(trace) && (trace.mode || "").includes("markers");

// The points of a trace whose rows are wanted, as the beginning of a trace.
const pointsOf = (trace, rows, layer) => {
  const at = [];
  Array.from(trace.customdata).forEach((custom, i) => { if (rows.has(custom[0])) at.push(i); });
  const take = (values) => at.map((i) => values[i]);
  return {
    ...Object.fromEntries(Object.entries(panelOf(trace)).filter(([, value]) => value)),
    at, type: trace.type, mode: "markers", name: layer, meta: { layer }, showlegend: false,
    x: take(trace.x), y: take(trace.y), ...(trace.z ? { z: take(trace.z) } : {}),
    customdata: take(trace.customdata),
  };
};

const rings = (traces, layer, order, ink) => traces.map((trace) => {
  const { at, ...points } = pointsOf(trace, order, layer);
  const colour = RINGS[layer] || ink;
  const size = points.customdata.map((custom) => (layer === "marked" && order.get(custom[0]) === 0 ? 20 : 14));
  return { ...points, hoverinfo: "skip", marker: { symbol: "circle-open", color: colour, size, line: { width: 3, color: colour } } };
}).filter((trace) => trace.x.length > 0);

const copies = (traces, layer, order, ink) => traces.map((trace) => {
  const { at, ...points } = pointsOf(trace, order, layer);
  const { color, colorscale, cmin, cmax, symbol, size } = trace.marker;
  const isScale = color !== null && typeof color === "object";
  return {
    ...points, text: at.map((i) => trace.text[i]), hovertemplate: trace.hovertemplate, visible: trace.visible,
    legendgroup: trace.legendgroup,
    marker: { size: size + 2, symbol, opacity: 1, line: { width: 1, color: ink }, color: isScale ? at.map((i) => color[i]) : color,
      ...(isScale ? { colorscale, cmin, cmax } : {}) },
  };
}).filter((trace) => trace.x.length > 0);

const FADED = 0.15;
let isDrawing = false;
const drawLayers = async () => {
  const figure = plot();
  if (isDrawing || !isReady(figure)) return;
  const layers = wantedLayers();
  const isDark = document.body.classList.contains("dark");
  const signature = JSON.stringify([isDark, layers]);
  const old = figure.data.flatMap((trace, i) => (layerOf(trace) ? [i] : []));
  if (figure.layers === signature && old.length === figure.layersDrawn) return;
  isDrawing = true;
  try {
    if (old.length > 0) await window.Plotly.deleteTraces(figure, old);
    const ink = getComputedStyle(document.body).getPropertyValue("--body-text-color");
    const traces = figure._fullData.filter(isPoints);
    const overlays = layers.flatMap(([layer, rows]) => {
      const order = new Map(rows.split(",").map((row, place) => [Number(row), place]));
      if (layer === "selected") return copies(traces, layer, order, ink);
      const byPanel = new Map();
      for (const trace of rings(traces, layer, order, ink)) {
        const key = JSON.stringify(panelOf(trace)), same = byPanel.get(key);
        if (!same) { byPanel.set(key, trace); continue; }
        for (const field of ["x", "y", ...(trace.z ? ["z"] : []), "customdata"]) same[field].push(...trace[field]);
        same.marker.size.push(...trace.marker.size);
      }
      return [...byPanel.values()];
    });
    const fades = layers.some(([layer]) => layer === "selected");
    const base = figure.data.flatMap((trace, i) => (isPoints(figure._fullData[i]) ? [i] : []));
    const opacity = fades ? FADED : 0.8;
    if (base.some((i) => figure.data[i].marker.opacity !== opacity))
      await window.Plotly.restyle(figure, { "marker.opacity": opacity }, base);
    if (overlays.length > 0) await window.Plotly.addTraces(figure, overlays);
    figure.layers = signature;
    figure.layersDrawn = overlays.length;
  } finally { isDrawing = false; }
  listLayers();
};

// The names of the layers that a tab has put onto the map, each a button that takes it off again.
const listLayers = () => {
  const place = document.querySelector("#map-layers .map-layers");
  if (!place) return;
  const names = [...shown].filter((layer) => found.get(layer));
  if (place.dataset.names === names.join()) return;
  place.dataset.names = names.join();
  place.replaceChildren(...names.map((layer) => {
    const button = document.createElement("button");
    button.type = "button";
    button.style.setProperty("--ring", RINGS[layer]);
    button.textContent = `${layer} (${found.get(layer).split(",").length}) ✕`;
    button.setAttribute("aria-label", `Take ${layer} off the map`);
    button.addEventListener("click", () => { shown.delete(layer); update(); });
    return button;
  }));
};

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-show-layer]");
  if (!button) return;
  shown.add(button.dataset.showLayer);
  document.querySelector("#explore-tabs [role=tab]").click(); // the map is the first tab
  update();
});

const update = () => { listen(); setDrag(); listLayers(); drawLayers(); };
let isDue = false;
const updateSoon = () => {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => { isDue = false; update(); });
};
new MutationObserver(updateSoon).observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-drag", "data-rows", "class"] });
update();

// Draw the points at `fraction` (0–1) of their way from the first map to the second.
const interpolate = (fraction) => {
  const figure = plot();
  if (!isReady(figure)) return;
  const traces = figure._fullData;
  figure.querySelector(".map-names")?.classList.toggle("moving", fraction > 0);
  const axes = traces[0].type === "scatter3d" ? ["x", "y", "z"] : ["x", "y"];
  const moved = {};
  axes.forEach((axis, i) => {
    moved[axis] = traces.map((trace) => Array.from(trace.customdata, (point) =>
      point[1 + i] + fraction * (point[1 + axes.length + i] - point[1 + i])));
  });
  window.Plotly.restyle(figure, moved);
};

const slider = () => element.querySelector("input[type=range]");
let isScheduled = false;
element.addEventListener("input", () => {
  if (isScheduled) return; // at most one redraw a frame, with the latest value
  isScheduled = true;
  requestAnimationFrame(() => { isScheduled = false; interpolate(slider().value / 100); });
});

const ANIMATION_SECONDS = 2.5;
element.addEventListener("click", (event) => {
  if (!event.target.closest(".mover button")) return;
  const from = Number(slider().value) >= 100 ? 0 : Number(slider().value) / 100;
  const show = (fraction) => { slider().value = 100 * fraction; interpolate(fraction); };
  if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) return show(1);
  const started = performance.now();
  const frame = (now) => {
    const fraction = Math.min(1, from + Math.max(0, now - started) / (1000 * ANIMATION_SECONDS));
    show(fraction);
    if (fraction < 1 && slider()) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
});
