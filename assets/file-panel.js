// The panel of a file: a menu above a column and a button of a question give a column its role. What depends on the file
// (HELD) is off from the first byte of an upload (UPLOAD) on until the panel has read it.
const box = document.getElementById(UPLOAD);
let version = "", lastColumn = "";

// One choice after another: each is made of the roles that the last one has left.
const setDisabled = (isDisabled) => element.querySelectorAll("select, .question button").forEach((control) => { control.disabled = isDisabled; });
function choose(column, role) {
  setDisabled(true);
  setTimeout(setDisabled, 10000, false);
  trigger("role", {column, role});
}
element.addEventListener("change", ({target}) => {
  if (target.dataset.column === undefined) return;
  lastColumn = target.dataset.column;
  choose(lastColumn, target.value);
});
element.addEventListener("click", ({target}) => {
  const button = target.closest(".question button");
  if (button) choose(button.dataset.column, button.dataset.role);
});

function wait(isReading) {
  for (const part of HELD.map((id) => document.getElementById(id)).filter(Boolean)) {
    part.inert = isReading;
    part.classList.toggle("reading", isReading);
  }
}

// Gradio shows an error and says nothing more when an upload fails: without a sign of one, nothing is waited for.
const isUploading = () => box?.querySelector(".progress, [data-testid=upload-progress]") !== null;
let looks = 0;
function begin() {
  wait(true);
  clearInterval(looks);
  let idle = 0;
  looks = setInterval(() => {
    idle = isUploading() ? 0 : idle + 1;
    if (idle >= 20) end();
  }, 500);
}
function end() {
  clearInterval(looks);
  wait(false);
}
box?.addEventListener("change", ({target}) => target.type === "file" && begin(), true);
box?.addEventListener("drop", begin, true);

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
