// The card of a pair. Keys: 0-5 judge, arrows turn, u or Backspace takes back. While the server saves, presses are ignored.
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
  else if (name === "undo") send("take_back", {pair});
  else if (name === "next" || name === "previous") send("turn", {pair, step: name === "next" ? 1 : -1});
  else return false;
  return true;
};
const KEYS = {ArrowRight: "next", ArrowLeft: "previous", u: "undo", U: "undo", Backspace: "undo"};
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act]");
  if (button) act(button.dataset.act);
});
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.altKey || event.metaKey || event.ctrlKey || !element.isConnected) return;
  if (event.target.closest("input, textarea, select, [contenteditable], [role=listbox]")) return;
  if (act(KEYS[event.key] || event.key)) event.preventDefault();
});
watch("value", () => { saving = 0; });
