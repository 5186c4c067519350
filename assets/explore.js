// Events of the Map tab that Gradio's Plot does not have: a click on a point, and the slider between two maps.
// Each point's customdata is [row, x before, y before, (z before,) x after, y after(, z after)]; see figures/map.py.
const plot = () => document.querySelector("#map-plot .js-plotly-plot");

const listen = () => {
  const figure = plot();
  if (!figure || !figure.on || figure.listening) return;
  figure.listening = true;
  figure.on("plotly_click", (event) => {
    const row = event.points.map((point) => point.customdata?.[0]).find((candidate) => candidate >= 0);
    if (row !== undefined) trigger("click", { row });
  });
};

// Circle the clicked sentence and its nearest ones, whose rows the list beside the map names, on every panel.
const MARKED = "marked";
const mark = () => {
  const figure = plot();
  if (!figure || !window.Plotly || !figure._fullData?.length) return;
  const rows = document.querySelector("#map-nearest .nearest")?.dataset.rows || "";
  const old = figure.data.flatMap((trace, i) => (trace.name === MARKED ? [i] : []));
  if (figure.marked === rows && (old.length > 0) === (rows !== "")) return;
  figure.marked = rows;
  const wanted = rows === "" ? [] : rows.split(",").map(Number);
  const panels = new Map();
  for (const trace of figure._fullData) {
    if (trace.name === MARKED || !trace.customdata || !(trace.mode || "").includes("markers")) continue;
    const axes = { xaxis: trace.xaxis, yaxis: trace.yaxis, scene: trace.scene };
    const panel = panels.get(JSON.stringify(axes)) || { axes, type: trace.type, points: [] };
    panels.set(JSON.stringify(axes), panel);
    Array.from(trace.customdata).forEach((custom, i) => {
      const place = wanted.indexOf(custom[0]);
      if (place >= 0) panel.points.push({ place, custom, x: trace.x[i], y: trace.y[i], z: trace.z?.[i] });
    });
  }
  const ink = getComputedStyle(document.body).getPropertyValue("--body-text-color");
  const overlays = [...panels.values()].filter((panel) => panel.points.length > 0).map(({ axes, type, points }) => ({
    ...Object.fromEntries(Object.entries(axes).filter(([, value]) => value)),
    type, mode: "markers", name: MARKED, showlegend: false, hoverinfo: "skip",
    x: points.map((point) => point.x), y: points.map((point) => point.y),
    ...(type === "scatter3d" ? { z: points.map((point) => point.z) } : {}),
    customdata: points.map((point) => point.custom),
    marker: { symbol: "circle-open", color: ink, size: points.map((point) => (point.place === 0 ? 20 : 13)),
      line: { width: 2, color: ink } },
  }));
  if (old.length > 0) window.Plotly.deleteTraces(figure, old);
  if (overlays.length > 0) window.Plotly.addTraces(figure, overlays);
};

const update = () => { listen(); mark(); };
new MutationObserver(update).observe(document.body, { childList: true, subtree: true });
update();

// Draw the points at `fraction` (0–1) of their way from the first map to the second.
const interpolate = (fraction) => {
  const figure = plot();
  if (!figure || !window.Plotly || !figure._fullData?.length) return;
  const traces = figure._fullData;
  const axes = traces[0].type === "scatter3d" ? ["x", "y", "z"] : ["x", "y"];
  const update = {};
  axes.forEach((axis, i) => {
    update[axis] = traces.map((trace) => Array.from(trace.customdata, (point) =>
      point[1 + i] + fraction * (point[1 + axes.length + i] - point[1 + i])));
  });
  window.Plotly.restyle(figure, update);
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
  if (!event.target.closest("button")) return;
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
