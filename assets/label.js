// The card of a pair. Keys: 0-5 judge, x says that one cannot, arrows go to another pair, u or Backspace undoes. While the server
// saves, presses are ignored. The table of differences below sends the pair to open, and the score that was agreed on.
let saving = 0;
const send = (name, data) => {
  if (Date.now() - saving < 10000) return;
  saving = Date.now();
  element.querySelector("[data-pair]")?.classList.add("saving");
  trigger(name, data);
};
const act = (name) => {
  const card = element.querySelector("[data-pair]");
  if (!card) return false;
  const pair = Number(card.dataset.pair);
  if (/^[0-5]$/.test(name)) send("judge", {pair, score: Number(name)});
  else if (name === "cannot") send("judge", {pair, score: "none"});
  else if (name === "undo") send("take_back", {pair});
  else if (name === "next" || name === "previous") send("turn", {pair, step: name === "next" ? 1 : -1});
  else return false;
  return true;
};
const KEYS = {ArrowRight: "next", ArrowLeft: "previous", u: "undo", U: "undo", x: "cannot", X: "cannot", Backspace: "undo"};
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act]");
  if (button) act(button.dataset.act);
});
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.altKey || event.metaKey || event.ctrlKey || !element.isConnected) return;
  if (event.target.closest("input, textarea, select, [contenteditable], [role=listbox]")) return;
  if (act(KEYS[event.key] || event.key)) event.preventDefault();
});
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-jump]");
  if (!button) return;
  send("turn", {pair: Number(button.dataset.jump), step: 0});
  element.scrollIntoView({block: "start"});
});
document.addEventListener("change", (event) => {
  const {agree} = event.target.dataset || {};
  if (agree === undefined) return;
  const score = event.target.value;
  send("agree", {pair: Number(agree), score: score === "none" ? score : Number(score)});
});
// Another project brings its card into view: the form of a new one stands below it.
let project;
const followProject = () => {
  const now = element.querySelector("[data-pair]")?.dataset.project || "";
  if (project !== undefined && now && now !== project) element.scrollIntoView({block: "center"});
  project = now;
};
watch("value", () => { saving = 0; requestAnimationFrame(followProject); });
