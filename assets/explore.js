// The events of the Map tab that Gradio's Plot does not have, by Plotly's documented functions and events: a click on a
// point, a lasso, the names that have room, and layers of points that are circled or selected. The customdata of a point
// is its row in the corpus; figures/map.py makes the figure.
const plot = () => document.querySelector("#map-plot .js-plotly-plot");
const isReady = (figure) => figure?.on && window.Plotly && figure.data?.length;
const isDark = () => document.body.classList.contains("dark");

// Python's arrays arrive as base64.
const ARRAYS = { f4: Float32Array, f8: Float64Array, i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array };
const decoded = (values) => values?.bdata
  ? new ARRAYS[values.dtype](Uint8Array.from(atob(values.bdata), (character) => character.charCodeAt(0)).buffer) : values;

// ---------------------------------------------------------------- events

let hasShift = false;
for (const kind of ["pointerdown", "pointerup"]) addEventListener(kind, (event) => { hasShift = event.shiftKey; }, true);

const rowsOf = (event) => event.points.map((point) => point.customdata).filter((row) => row >= 0);
let listening = null;
const listen = (figure) => {
  if (listening === figure.on) return; // a figure that Plotly has drawn anew has another `on`, and no listeners yet
  listening = figure.on;
  figure.on("plotly_click", (event) => {
    const [row] = rowsOf(event);
    if (row !== undefined) trigger("click", { row });
  });
  // Plotly also reports a selection when it draws a figure anew. Only a selection that a person has drawn counts.
  let isDrawn = false;
  figure.on("plotly_selecting", () => { isDrawn = true; });
  figure.on("plotly_selected", (event) => {
    if (!event || !isDrawn) return;
    isDrawn = false;
    const rows = rowsOf(event);
    // Plotly remembers a selection by trace and point, which change with the colours, so a layer shows it instead.
    window.Plotly.update(figure, { selectedpoints: [null] }, { selections: [] });
    found.delete("marked");
    document.querySelector("#map-nearest [data-rows]")?.removeAttribute("data-rows");
    trigger("select", { rows: [...new Set(rows)], add: hasShift });
  });
  figure.on("plotly_deselect", () => trigger("select", { rows: [], add: false }));
  figure.on("plotly_relayout", () => placeNames(figure));
  frame.disconnect();
  frame.observe(figure);
};

// What dragging does; the radio buttons write it to #map-plot. In 3-D it always turns the map.
const setDrag = (figure) => {
  const dragmode = document.getElementById("map-plot").dataset.drag || "pan";
  if (!figure.layout.scene && figure.layout.dragmode !== dragmode) window.Plotly.relayout(figure, { dragmode });
};

// ---------------------------------------------------------------- names and legend

// Beside a narrow map there is no room for a legend.
const NARROW = 560;
const BELOW = { "legend.orientation": "h", "legend.x": 0, "legend.y": -0.02, "legend.maxheight": 100, "margin.r": 8, "margin.b": 116 };
const placeLegend = (figure) => {
  const isBeside = figure.layout.showlegend && figure.layout.legend.orientation === "v";
  if (isBeside && figure.clientWidth > 0 && figure.clientWidth < NARROW) window.Plotly.relayout(figure, BELOW);
};

// A name is visible if it overlaps no earlier name, and the name of a fine region only after zooming in. Near an edge of
// the map a name moves inwards. The names of the largest regions come first.
const ZOOMED = 2.2, CHARACTER = 6.6, PADDING = 10, HEIGHT = 22;
const placeNames = (figure) => {
  const { annotations = [], margin, meta } = figure.layout;
  const width = figure.clientWidth - margin.l - margin.r, height = figure.clientHeight - margin.t - margin.b;
  if (!meta?.span || figure.clientWidth === 0) return;
  const taken = [], changes = {};
  annotations.forEach(({ name, text, x, y, xref, yref, visible = true, xshift = 0 }, index) => {
    if (!name) return; // the title of a map
    const across = figure.layout[xref.replace("x", "xaxis")], up = figure.layout[yref.replace("y", "yaxis")];
    const [left, right] = across.range, [bottom, top] = up.range, [start, end] = across.domain;
    const at = (start + (end - start) * (x - left) / (right - left)) * width, level = height * (y - bottom) / (top - bottom);
    const half = (CHARACTER * text.replace(/&\w+;/g, "&").length + PADDING) / 2;
    const middle = Math.min(Math.max(at, start * width + half), end * width - half);
    const isInside = at >= start * width && at <= end * width && level >= 0 && level <= height;
    const isFree = !taken.some((other) => Math.abs(other.middle - middle) < other.half + half && Math.abs(other.level - level) < HEIGHT);
    const isVisible = isInside && isFree && (name === "coarse" || ZOOMED * (right - left) <= meta.span);
    if (isVisible) taken.push({ middle, level, half });
    if (isVisible !== visible) changes[`annotations[${index}].visible`] = isVisible;
    if (isVisible && Math.abs(middle - at - xshift) > 1) changes[`annotations[${index}].xshift`] = middle - at;
  });
  if (Object.keys(changes).length > 0) window.Plotly.relayout(figure, changes);
};
// A map that was drawn in a hidden tab has no size until the tab is open.
const frame = new ResizeObserver(([{ target }]) => { placeLegend(target); placeNames(target); });

// ---------------------------------------------------------------- layers

// An element with data-layer has the rows of a layer. "marked" is the clicked sentence and its nearest ones; "selected" is
// drawn in its own colours while the other points fade; the others are circled when "Show on the map" is pressed.
const RINGS = { "search results": "#d55e00", "similar pairs": "#cc79a7", "near-duplicates": "#e69f00", "duplicates": "#e69f00",
  "hubs": "#009e73", "outliers": "#cc79a7" };
const OPACITY = 0.8, FADED = 0.15;
const shown = new Set(["marked", "selected"]);
const found = new Map(); // layer -> rows; kept while the tab that found them is closed
let corpus = "";

const wantedLayers = () => {
  const open = document.querySelector("#selected-rows [data-corpus]")?.dataset.corpus ?? corpus;
  if (open !== corpus && corpus) { // the first corpus clears nothing: a tab may have found rows before the map was drawn
    found.clear();
    for (const layer of Object.keys(RINGS)) shown.delete(layer);
  }
  corpus = open;
  for (const { dataset } of document.querySelectorAll("[data-layer]")) found.set(dataset.layer, dataset.rows || "");
  return [...found].filter(([layer, rows]) => rows && shown.has(layer));
};

const isPoints = (trace) => trace.customdata && !trace.meta?.layer;
const indicesOf = (figure, test) => figure.data.flatMap((trace, index) => (test(trace) ? [index] : []));

// A copy of a trace with only the points whose rows are in `order` (row -> place in the layer).
const pointsOf = (trace, order) => {
  const rows = Array.from(decoded(trace.customdata)), kept = rows.flatMap((row, index) => (order.has(row) ? [index] : []));
  const take = (values) => { const all = decoded(values); return all && kept.map((index) => all[index]); };
  const { color } = trace.marker;
  return { ...trace, x: take(trace.x), y: take(trace.y), ...(trace.z ? { z: take(trace.z) } : {}), text: take(trace.text), showlegend: false, selectedpoints: null,
    customdata: take(rows), marker: { ...trace.marker, color: typeof color === "string" ? color : take(color) } };
};
const overlay = (trace, layer, order, ink) => {
  const points = pointsOf(trace, order), { marker } = points;
  if (layer === "selected") return { ...points, marker: { ...marker, opacity: 1, size: marker.size + 2, line: { width: 1, color: ink } } };
  const color = RINGS[layer] || ink, size = points.customdata.map((row) => (layer === "marked" && order.get(row) === 0 ? 20 : 14));
  return { ...points, hovertemplate: "", hoverinfo: "skip", marker: { symbol: "circle-open", opacity: 1, color, size, line: { width: 3, color } } };
};

// In 2-D the points are marked as not selected, so they fade and keep their colour in the legend. In 3-D Plotly has no
// selections, so their opacity changes.
const fade = (figure, isFaded) => {
  const base = indicesOf(figure, isPoints), is3d = figure.layout.scene !== undefined;
  const points = figure.data.filter(isPoints);
  if (!points.some(({ marker, selectedpoints }) => (is3d ? marker.opacity === FADED : Boolean(selectedpoints)) !== isFaded)) return null;
  return window.Plotly.restyle(figure, is3d ? { "marker.opacity": isFaded ? FADED : OPACITY } : { selectedpoints: [isFaded ? [] : null] }, base);
};

let isDrawing = false;
const drawLayers = async (figure) => {
  if (isDrawing) return;
  const layers = wantedLayers(), signature = layers.length > 0 ? JSON.stringify([isDark(), layers]) : "";
  const old = indicesOf(figure, (trace) => trace.meta?.layer);
  if ((figure.data[old[0]]?.meta.signature ?? "") === signature) return;
  isDrawing = true;
  try {
    if (old.length > 0) await window.Plotly.deleteTraces(figure, old);
    const ink = getComputedStyle(document.body).getPropertyValue("--body-text-color");
    const overlays = layers.flatMap(([layer, rows]) => {
      const order = new Map(rows.split(",").map((row, place) => [Number(row), place]));
      const copies = figure.data.filter(isPoints).map((trace) => overlay(trace, layer, order, ink));
      return copies.map((trace) => ({ ...trace, name: layer, meta: { layer, signature } })).filter((trace) => trace.x.length > 0);
    });
    await fade(figure, layers.some(([layer]) => layer === "selected"));
    if (overlays.length > 0) await window.Plotly.addTraces(figure, overlays);
  } finally { isDrawing = false; }
};

// The layers that a tab has put onto the map, each a button that takes it off again.
const listLayers = () => {
  const place = document.querySelector("#map-layers .map-layers");
  const names = Object.keys(RINGS).filter((layer) => shown.has(layer) && found.get(layer));
  if (!place || place.dataset.names === names.join()) return;
  place.dataset.names = names.join();
  place.replaceChildren(...names.map((layer) => {
    const button = Object.assign(document.createElement("button"), { type: "button", ariaLabel: `Take ${layer} off the map` });
    button.style.setProperty("--ring", RINGS[layer]);
    button.textContent = `${layer} (${found.get(layer).split(",").length}) ✕`;
    button.addEventListener("click", () => { shown.delete(layer); update(); });
    return button;
  }));
};
document.addEventListener("click", ({ target }) => {
  const layer = target.closest?.("[data-show-layer]")?.dataset.showLayer;
  if (!layer) return;
  shown.add(layer);
  document.querySelector("#explore-tabs [role=tab]").click(); // the map is the first tab
  update();
});

const update = () => {
  const figure = plot();
  if (!isReady(figure)) return;
  listen(figure);
  setDrag(figure);
  placeLegend(figure);
  placeNames(figure);
  drawLayers(figure).then(listLayers);
};
let isDue = false;
new MutationObserver(() => {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => { isDue = false; update(); });
}).observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-drag", "data-rows", "class"] });
update();
