// The map's script: a click on a point tells the app its row; the slider moves the points from one map to the other.
// Each point's customdata is [row, x before, y before, (z before,) x after, y after(, z after)]; see figures/map.py.
const plot = () => document.querySelector("#map-plot .js-plotly-plot");

const listen = () => {
  const figure = plot();
  if (!figure || !figure.on || figure.listening) return;
  figure.listening = true;
  figure.on("plotly_click", (event) => {
    const row = event.points.map((point) => point.customdata?.[0]).find((found) => found >= 0);
    if (row !== undefined) trigger("click", { row });
  });
};
new MutationObserver(listen).observe(document.body, { childList: true, subtree: true });
listen();

const moveTo = (share) => {
  const figure = plot();
  if (!figure || !window.Plotly || !figure._fullData?.length) return;
  const traces = figure._fullData;
  const axes = traces[0].type === "scatter3d" ? ["x", "y", "z"] : ["x", "y"];
  const update = {};
  axes.forEach((axis, at) => {
    update[axis] = traces.map((trace) => Array.from(trace.customdata, (point) =>
      point[1 + at] + share * (point[1 + axes.length + at] - point[1 + at])));
  });
  window.Plotly.restyle(figure, update);
};

const slider = () => element.querySelector("input[type=range]");
let waiting = false;
element.addEventListener("input", () => {
  if (waiting) return; // one frame at a time, always the latest place
  waiting = true;
  requestAnimationFrame(() => { waiting = false; moveTo(slider().value / 100); });
});

const SECONDS = 2.5;
element.addEventListener("click", (event) => {
  if (!event.target.closest("button")) return;
  const from = Number(slider().value) >= 100 ? 0 : Number(slider().value) / 100;
  const show = (share) => { slider().value = 100 * share; moveTo(share); };
  if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) return show(1);
  const started = performance.now();
  const frame = (now) => {
    const share = Math.min(1, from + Math.max(0, now - started) / (1000 * SECONDS));
    show(share);
    if (share < 1 && slider()) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
});
