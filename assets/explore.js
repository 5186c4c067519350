// Events of the Map tab that Gradio's Plot does not have: a click on a point, a lasso, and the slider between two maps.
// Each point's customdata is [row, x before, y before, (z before,) x after, y after(, z after)]; see figures/map.py.
const plot = () => document.querySelector("#map-plot .js-plotly-plot");
const isReady = (figure) => figure && window.Plotly && figure._fullData?.length;
const layerOf = (trace) => trace.meta?.layer;

const listen = () => {
  const figure = plot();
  if (!figure || !figure.on || figure.listening) return;
  figure.listening = true;
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
    trigger("select", { rows: [...new Set(rows)], add: isShiftDown });
  });
  figure.on("plotly_doubleclick", () => {
    if (["lasso", "select"].includes(figure._fullLayout.dragmode)) trigger("select", { rows: [], add: false });
  });
};

let isShiftDown = false;
for (const kind of ["keydown", "keyup", "mousedown", "mousemove"])
  window.addEventListener(kind, (event) => { isShiftDown = event.shiftKey; }, true);

// What dragging does; the radio buttons write it to #map-plot. In 3-D it always turns the map.
const setDrag = () => {
  const figure = plot(), wanted = document.getElementById("map-plot")?.dataset.drag;
  if (!isReady(figure) || !wanted || figure._fullLayout.scene || figure._fullLayout.dragmode === wanted) return;
  window.Plotly.relayout(figure, { dragmode: wanted });
};

// Layers over the points: each element with data-layer names the rows of one, the first row first.
//   marked      the clicked sentence and its nearest ones, circled
//   selected    what is selected, in its own colour, while the other points fade
//   others      what a tab has found, circled when its button "Show on the map" is pressed
const ALWAYS = ["marked", "selected"];
const RINGS = { "marked": null, "search results": "#d55e00", "similar pairs": "#cc79a7", "near-duplicates": "#e69f00" };
const shown = new Set();
const found = new Map(); // layer -> rows; kept while the tab that found them is closed
const PLACES = { "marked": "#map-nearest", "selected": "#selected-rows", "search results": "#search-hits",
  "similar pairs": "#pairs-table", "near-duplicates": "#repeats-status" };
let corpus = "";

const wantedLayers = () => {
  const open = document.querySelector("#selected-rows [data-layer]")?.dataset.corpus ?? corpus;
  if (open !== corpus) { found.clear(); shown.clear(); corpus = open; }
  for (const [layer, place] of Object.entries(PLACES)) {
    const holder = document.querySelector(place);
    if (holder) found.set(layer, holder.querySelector("[data-layer]")?.dataset.rows || "");
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
  document.querySelector("#explore-tabs [role=tab]")?.click(); // the map is the first tab
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
// The map makes room for the panel beside it.
let width = 0;
new ResizeObserver(() => {
  const figure = plot(), holder = document.getElementById("map-plot");
  if (!isReady(figure) || !holder || holder.clientWidth === width || holder.clientWidth === 0) return;
  width = holder.clientWidth;
  window.Plotly.Plots.resize(figure);
}).observe(element.closest(".column") || element);
update();

// Draw the points at `fraction` (0–1) of their way from the first map to the second.
const interpolate = (fraction) => {
  const figure = plot();
  if (!isReady(figure)) return;
  const traces = figure._fullData;
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
