// The threshold of a scored file. Its slider and its number are one: they move the line of the histograms of labels, and what
// is above it is counted at once. A button of the table of thresholds sets it too. Every press of a button looks for matches.
const cutter = () => document.querySelector("#cut .cutter");
const numberOf = (box) => box.querySelector("input[type=number]");
element.addEventListener("click", ({target}) => {
  const button = target.closest("button.use"), box = cutter();
  if (!button || !box) return;
  if (button.dataset.use) set(box, Number(button.dataset.use));
  trigger("use", {threshold: Number(numberOf(box).value)});
});
const share = (part, whole) => (whole ? `${Math.round((100 * part) / whole)}%` : "–");
function set(box, at) {
  box.querySelector("input[type=range]").value = at;
  numberOf(box).value = at;
  count(box);
}
function count(box) {
  const at = Number(numberOf(box).value), steps = (at + 1) * 100;
  const plot = document.querySelector("#histogram .js-plotly-plot");
  if (plot?.layout?.shapes?.length) window.Plotly.relayout(plot, {"shapes[0].x0": at, "shapes[0].x1": at});
  const note = box.querySelector("p");
  note.textContent = "";
  // The scores are counted by hundredths: between two of them the table below says more.
  if (!box.dataset.matches || Math.abs(steps - Math.round(steps)) > 1e-6) return;
  const sum = (counts) => JSON.parse(counts).slice(Math.round(steps)).reduce((total, each) => total + each, 0);
  const hits = sum(box.dataset.matches), wrong = sum(box.dataset.others);
  const all = JSON.parse(box.dataset.matches).reduce((total, each) => total + each, 0);
  note.textContent = `Above it lie ${hits} of ${all} matches (recall ${share(hits, all)}) `
    + `and ${wrong} ${wrong === 1 ? "other pair" : "other pairs"} (precision ${share(hits, hits + wrong)}).`;
}
element.addEventListener("input", ({target}) => {
  const box = target.closest(".cutter");
  if (!box) return;
  if (target.type === "range") numberOf(box).value = target.value;
  else box.querySelector("input[type=range]").value = target.value;
  count(box);
});
let last = null;
function show() {
  const box = element.querySelector(".cutter");
  if (!box || box === last) return;
  last = box;
  count(box);
}
new MutationObserver(show).observe(element, {childList: true, subtree: true});
show();
