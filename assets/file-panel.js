// The panel of a file: a menu above a column and a button of a question give a column its role, and a button beside the
// labels that say neither yes nor no gives them their value. What depends on the file
// (HELD) is off from the first byte of an upload (UPLOAD) on until the panel has read it.
let version = "", lastColumn = "";

// One choice after another: each is made of the roles that the last one has left. What depends on them waits.
const setDisabled = (isDisabled) => element.querySelectorAll("select, button").forEach((control) => { control.disabled = isDisabled; });
function choose(choice) {
  setDisabled(true);
  wait(true);
  setTimeout(() => { setDisabled(false); wait(isReading); }, 10000);
  trigger("role", {column: "", role: "", labels: "", ...choice});
}
element.addEventListener("change", ({target}) => {
  if (target.dataset.column === undefined) return;
  lastColumn = target.dataset.column;
  choose({column: lastColumn, role: target.value});
});
element.addEventListener("click", ({target}) => {
  const button = target.closest("button[data-role], button[data-labels]");
  if (button) choose({...button.dataset});
});

function wait(isReading) {
  for (const part of HELD.map((id) => document.getElementById(id)).filter(Boolean)) {
    part.inert = isReading;
    part.classList.toggle("reading", isReading);
  }
}

// An upload that fails is not followed by a panel: its request says so. Reading a large file takes its time.
const LONGEST_MS = 120000;
let limit = 0, isReading = false;
function begin() {
  isReading = true;
  wait(true);
}
function end() {
  clearTimeout(limit);
  isReading = false;
  wait(false);
}
new PerformanceObserver((list) => {
  const request = list.getEntries().find(({name}) => name.includes("/gradio_api/upload?"));
  if (!request || !isReading) return;
  if (request.responseStatus >= 400) end();
  else limit = setTimeout(end, LONGEST_MS);
}).observe({type: "resource"});
// An upload button stands beside its field, any other upload around it.
const isOfUpload = (target) => target.closest?.(`#${UPLOAD}`) || target.parentElement?.querySelector(`#${UPLOAD}`);
document.addEventListener("change", ({target}) => target.type === "file" && isOfUpload(target) && begin(), true);
document.addEventListener("drop", ({target}) => target.closest?.(`#${UPLOAD}`) && begin(), true);

function show() {
  const now = element.querySelector("[data-version]")?.dataset.version ?? "";
  if (now === version) return;
  version = now;
  end();
  if (lastColumn) element.querySelector(`select[data-column="${CSS.escape(lastColumn)}"]`)?.focus();
  lastColumn = "";
}
new MutationObserver(show).observe(element, {childList: true, subtree: true, attributeFilter: ["data-version"]});
show();
