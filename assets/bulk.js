// The table of thresholds: a button applies the one of its row.
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-use]");
  if (button) trigger("use", {threshold: Number(button.dataset.use)});
});
// The slider below the histograms of labels: it moves their line, and what is above it is counted at once.
const share = (part, whole) => (whole ? `${Math.round((100 * part) / whole)}%` : "–");
function count() {
  const box = element.querySelector(".cutter"), slider = box?.querySelector("input");
  if (!box || box.dataset.at === slider.value) return;
  const isFirst = !box.dataset.at, at = Number(slider.value), first = Math.ceil((at + 1) * 100 - 1e-6);
  box.dataset.at = slider.value;
  const [matches, others] = [box.dataset.matches, box.dataset.others].map((counts) => JSON.parse(counts));
  const sum = (counts) => counts.reduce((total, each) => total + each, 0);
  const [hits, all, wrong] = [sum(matches.slice(first)), sum(matches), sum(others.slice(first))];
  box.querySelector("output").textContent = at.toFixed(2);
  box.querySelector("p").textContent = `Above it lie ${hits} of ${all} matches (recall ${share(hits, all)}) `
    + `and ${wrong} ${wrong === 1 ? "other pair" : "other pairs"} (precision ${share(hits, hits + wrong)}).`;
  if (isFirst) return;
  box.querySelector("button").dataset.use = at;
  const plot = document.querySelector("#histogram .js-plotly-plot");
  if (plot) window.Plotly.relayout(plot, {"shapes[0].x0": at, "shapes[0].x1": at});
}
element.addEventListener("input", count);
new MutationObserver(count).observe(element, {childList: true, subtree: true});
count();
