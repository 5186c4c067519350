// What single pages need of the browser: their addresses name what is shown, and a few elements are pressed or shown.
(() => {
  // A button that can be pressed when nothing is missing, and says what is.
  window.enableWhen = ([label, ...missing], values) => {
    const at = values.findIndex((value) => !(value || "").trim());
    return {__type__: "update", value: at < 0 ? label : `${label}: ${missing[at]}`, interactive: at < 0};
  };

  // Compare: lines that are too long for the address stay until the window is closed, for each link that has sent some.
  const linesKey = () => `sbert-lab-lines ${new URLSearchParams(location.search).get("sentences") || ""}`;
  window.keepLines = (text) => sessionStorage.setItem(linesKey(), text);
  window.keptLines = () => {
    const isInAddress = new URLSearchParams(location.search).has("lines");
    return (!isInAddress && sessionStorage.getItem(linesKey())) || {__type__: "update"};
  };

  // Bulk and Train: a state has no value in the browser, so an element has the id of what is shown. What was chosen for
  // a file holds for no other; the models stay.
  const OF_FILE = ["sentences", "file", "bulk-columns-1", "bulk-columns-2", "bulk-columns-target", "bulk-columns-read-as", "bulk-threshold"];
  window.rememberJob = () => {
    const status = document.querySelector("#status [data-job]");
    const shown = new URLSearchParams(location.search).get("job") || "";
    if (status && status.dataset.job !== shown) window.nameInAddress([...OF_FILE, "job"], [...OF_FILE.map(() => ""), status.dataset.job]);
  };
  // Gradio runs this some frames before it has drawn the update of the previous event, and a busy browser draws later
  // still. So the run on the page is read again for two seconds.
  window.rememberRun = (looks = 20) => {
    window.nameInAddress(["run"], [document.querySelector("#run-status [data-run]")?.dataset.run]);
    if (looks > 0) setTimeout(window.rememberRun, 100, looks - 1);
  };
  // Train: the zip is offered as a download button; it is clicked for the user as soon as it is ready.
  window.clickDownload = () => {
    let tries = 100;
    const press = () => {
      const button = document.querySelector("#download-run");
      if (button?.innerText.includes("MB")) button.click();
      else if (tries-- > 0) setTimeout(press, 100);
    };
    press();
  };
  // A report: what is hidden is no part of it, and of a figure with very many points every so many-th is.
  const MOST_CHARACTERS = 1000000; // of a figure
  const ARRAYS = {f4: Float32Array, f8: Float64Array, i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array};
  const unpacked = (value) => (value?.bdata && !value.shape ? [...new ARRAYS[value.dtype](Uint8Array.from(atob(value.bdata), (c) => c.charCodeAt(0)).buffer)] : value);
  function thin(trace, points, step) {
    for (const [key, value] of Object.entries(trace)) {
      const values = unpacked(value);
      if (Array.isArray(values)) {
        if (values.length === points) trace[key] = values.filter((_, n) => n % step === 0);
      } else if (value && typeof value === "object" && !value.bdata) thin(value, points, step);
    }
  }
  function thinned(plot) {
    const step = Math.ceil(plot.length / MOST_CHARACTERS);
    if (step < 2) return plot;
    const figure = JSON.parse(plot);
    for (const trace of figure.data) if (/^scatter/.test(trace.type || "scatter")) thin(trace, unpacked(trace.x)?.length, step);
    figure.layout.meta = {...figure.layout.meta, every: step};
    return JSON.stringify(figure);
  }
  window.presentValues = (ids, values) => ids.map((id, n) => {
    if (id && !document.getElementById(id)) return null;
    return values[n]?.plot ? {...values[n], plot: thinned(values[n].plot)} : values[n];
  });
  window.saveFile = ({url, orig_name: name}) => Object.assign(document.createElement("a"), {href: url, download: name || ""}).click();
  window.showLive = () => {
    const live = document.getElementById("live");
    if (live && window.innerWidth < 900) live.scrollIntoView({behavior: "smooth"});
  };

  // Results are dimmed from the first change of what they were made from on, until there are new ones.
  window.dim = (ids, isStale) => ids.forEach((id) => document.getElementById(id)?.classList.toggle("stale", isStale));

  // Compare: the answer names its sentences. It is dimmed while others stand in the fields, or other models.
  const ANSWER = ["answer"];
  let otherModels = false;
  function followQuestion() {
    const answer = document.querySelector("#answer .answer");
    const typed = ["#sentence-a", "#sentence-b"].map((id) => document.querySelector(`${id} textarea`)?.value);
    window.dim(ANSWER, Boolean(answer) && (otherModels || typed[0] !== answer.dataset.a || typed[1] !== answer.dataset.b));
    for (const chip of document.querySelectorAll("#examples .chip")) chip.ariaPressed = String(chip.textContent.trim() === answer?.dataset.example);
  }
  document.addEventListener("input", (event) => {
    otherModels ||= Boolean(event.target.closest?.("#compare-models"));
    if (event.target.closest?.("#compare-models, #sentence-a, #sentence-b")) followQuestion();
  });
  document.addEventListener("click", (event) => event.target.closest?.(".chip") && [50, 400].forEach((delay) => setTimeout(followQuestion, delay)));

  // Compare: folds that are open stay open, and what was copied is marked, when another answer takes the place of the last one.
  const openFolds = new Set();
  let copied;
  function keepMarks() {
    for (const fold of document.querySelectorAll("[data-fold]")) if (openFolds.has(fold.dataset.fold)) fold.open = true;
    for (const button of document.querySelectorAll("[data-copy]")) {
      if (button.dataset.copy === copied && button.textContent !== "Copied") button.textContent = "Copied";
    }
  }
  document.addEventListener("toggle", ({target}) => {
    const name = target.dataset?.fold;
    if (name && target.isConnected) openFolds[target.open ? "add" : "delete"](name);
  }, true);
  document.addEventListener("click", async ({target}) => {
    if (target.dataset?.copy === undefined) return;
    await navigator.clipboard.writeText(target.dataset.copy);
    copied = target.dataset.copy;
    keepMarks();
  });
  new MutationObserver(keepMarks).observe(document.body, {childList: true, subtree: true});

  // Compare: what is typed in one go is one step of the history; so is each example.
  let check = 0;
  window.rememberPair = (longest, a, b, model, pooling, cross, second) => {
    otherModels = false;
    [0, 100, 500].forEach((delay) => setTimeout(followQuestion, delay));
    // An older question of the opening page may arrive after a newer one, which is not answered then.
    clearTimeout(check);
    check = setTimeout(() => document.querySelector("#answer.stale") && window.askAgain?.(), 1500);
    const url = new URL(location.href), query = url.searchParams;
    if (query.get("tab") === "many" && !query.has("a")) return; // a link to the other tab carries no pair
    const isStep = query.has("a") && Date.now() - (window.answeredAt || 0) > 3000;
    window.answeredAt = Date.now();
    query.delete("second");
    const inputs = {a, b, model: model || "", pooling: pooling || "", cross: cross || "", ...(second ? {second} : {})};
    for (const [name, value] of Object.entries(inputs)) query.set(name, value);
    if (query.toString().length > longest) { query.delete("a"); query.delete("b"); }
    window.showAddress(url, isStep);
  };
  document.addEventListener("click", (event) => { if (event.target.closest?.(".chip")) window.answeredAt = 0; }, true);

  // Learn: the lesson that the address asks for, else the last one. Marks the lessons whose answers were opened.
  const LESSONS = "sbert-lab-lessons", stored = () => JSON.parse(localStorage.getItem(LESSONS) || '{"done": []}');
  window.requestedLesson = () => {
    const mark = () => stored().done.forEach((n) => document.getElementById("go-" + n)?.setAttribute("data-done", ""));
    document.addEventListener("toggle", (event) => {
      const n = event.target.dataset?.lesson;
      if (!n || !event.target.open) return;
      localStorage.setItem(LESSONS, JSON.stringify({...stored(), done: [...new Set([...stored().done, n])]}));
      mark();
    }, true);
    mark();
    return new URLSearchParams(location.search).get("lesson") || String(stored().last || 1);
  };
  // Keeps the open lesson in the browser's storage and in the address.
  window.rememberLesson = () => {
    const n = document.querySelector(".lesson-page")?.id.split("-").pop();
    if (!n) return;
    localStorage.setItem(LESSONS, JSON.stringify({...stored(), last: n}));
    document.querySelectorAll("#rail .chip").forEach((chip) => chip.setAttribute("aria-current", chip.id === "go-" + n));
    const url = new URL(location.href);
    const isStep = url.searchParams.has("lesson");
    url.searchParams.set("lesson", n);  // beside the parameters of a class
    window.showAddress(url, isStep);
  };
  window.copyClassLink = () => {
    const link = document.querySelector("#class-links a[data-class]");
    if (link) navigator.clipboard.writeText(link.href);
  };
})();
