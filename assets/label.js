// The card of a pair. A key on a button presses it; the arrows go to another pair, u and Backspace undo. The card has the next
// pairs with it: a rating shows the next one at once, and ratings are sent one after another, as each is saved before the next.
// When these are used up, presses wait for the next card. The table of differences below sends the pair to open, and the score that was agreed on.
const LATEST_MS = 10000; // from then on an answer is no longer waited for
const queue = []; // [event, data]
const presses = []; // functions: what was pressed while the page waits for a card
let sentAt = 0, isHeld = false, version, project;
let judged = null; // the pair whose rating the page waits for
let pair = null, ahead = []; // the pair on the page while its card is on the way, and those after it
const card = () => element.querySelector("[data-pair]");
const isWaiting = () => Date.now() - sentAt < LATEST_MS;
const send = () => {
  if (!queue.length || isWaiting()) return;
  sentAt = Date.now();
  trigger(...queue.shift());
};
const show = () => {
  card().dataset.pair = pair.at;
  card().querySelectorAll("blockquote").forEach((quote, n) => { quote.textContent = n ? pair.second : pair.first; });
  for (const [name, text] of Object.entries({ place: pair.at + 1, judged: pair.judged, reason: pair.reason, agreed: "" }))
    card().querySelector(`[data-text=${name}]`).textContent = text;
  for (const button of card().querySelectorAll("[aria-pressed]")) button.ariaPressed = "false";
};
// What changes the card in other ways is answered before the next key.
const ask = (name, data) => {
  isHeld = true;
  judged = name === "judge" ? data.pair : null;
  card()?.classList.add("saving");
  queue.push([name, data]);
  send();
};
const act = (...more) => {
  presses.push(...more);
  while (presses.length && !(isHeld && isWaiting())) presses.shift()();
};
const judge = (score) => {
  const at = Number(card().dataset.pair), data = { pair: at, score, project: card().dataset.project, rater: card().dataset.rater };
  if (!ahead.length || isHeld) return ask("judge", data);
  const count = Number(card().querySelector("[data-text=judged]").textContent) + (card().querySelector("[aria-pressed=true]") ? 0 : 1);
  queue.push(["judge", data]);
  pair = { ...ahead.shift(), judged: count };
  show();
  send();
};
const press = ({ dataset: { act: name, score } }) => act(() => {
  const at = { pair: Number(card().dataset.pair) };
  if (score) judge(score === "none" ? score : Number(score));
  else if (name === "undo") ask("take_back", at);
  else ask("turn", { ...at, step: name === "next" ? 1 : -1 });
});
const KEYS = { arrowright: "next", arrowleft: "previous", u: "undo", x: "cannot", backspace: "undo" };
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act]");
  if (button) press(button);
});
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.altKey || event.metaKey || event.ctrlKey || !element.isConnected) return;
  if (event.target.closest("input, textarea, select, [contenteditable], [role=listbox]")) return;
  const key = event.key.toLowerCase(), button = card()?.querySelector(`[data-act="${CSS.escape(KEYS[key] || key)}"]`);
  if (!button) return;
  event.preventDefault();
  press(button);
});
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-jump]");
  if (!button) return;
  act(() => ask("turn", { pair: Number(button.dataset.jump), step: 0 }));
  element.scrollIntoView({ block: "start" });
});
document.addEventListener("change", ({ target }) => {
  const { agree } = target.dataset || {};
  const score = target.value === "none" ? "none" : Number(target.value);
  if (agree !== undefined) act(() => ask("agree", { pair: Number(agree), score }));
});
window.addEventListener("beforeunload", (event) => { if (queue.length || presses.length) event.preventDefault(); });

// A card has come. While ratings are on the way the page shows the pair that it showed before.
const follow = () => {
  const now = element.querySelector("[data-version]")?.dataset.version;
  if (now === undefined || now === version) return;
  [version, sentAt] = [now, 0];
  const next = JSON.parse(card()?.dataset.ahead || "[]"), name = card()?.dataset.project || "";
  if (project !== undefined && name && name !== project) {
    // Another project brings its card into view: the form of a new one stands below it.
    requestAnimationFrame(() => element.scrollIntoView({ block: "center" }));
    queue.length = presses.length = 0;
  }
  project = name;
  if (queue.length && pair && card()) {
    const at = next.findIndex((one) => one.at === pair.at);
    if (at >= 0) ahead = next.slice(at + 1);
    show();
    card().classList.toggle("saving", isHeld);
    send();
  } else {
    // All pairs are judged, or the rating was refused: no press that waits was for the pair that stays.
    if (!queue.length && Number(card()?.dataset.pair) === judged) presses.length = 0;
    [pair, ahead, isHeld] = [null, next, queue.length > 0];
    send();
    act();
  }
};
new MutationObserver(follow).observe(element, { childList: true, subtree: true, attributeFilter: ["data-version"] });
follow();
