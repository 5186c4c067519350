// The list of runs: a name opens a run, a tick overlays it. When the list is rendered anew, the focus returns to its element.
let focused = null;
element.addEventListener("focusin", (event) => { focused = event.target.dataset.key || null; });
element.addEventListener("click", (event) => {
  const name = event.target.closest("[data-open]"), group = event.target.closest("[data-group]");
  if (name) trigger("open_run", {run: name.dataset.open});
  if (group) trigger("open_group", {name: group.dataset.group});
});
element.addEventListener("change", (event) => {
  const tick = event.target.dataset.overlay;
  if (tick) trigger("overlay_run", {run: tick, on: event.target.checked});
});
watch("value", () => {
  if (focused && document.activeElement === document.body)
    element.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({preventScroll: true});
});
