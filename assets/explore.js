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
new MutationObserver(listen).observe(document.body, { childList: true, subtree: true });
listen();

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
