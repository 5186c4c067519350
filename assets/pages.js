// What single pages need of the browser: their addresses name what is shown, and a few elements are pressed or shown.
(() => {
  const addressOf = (parameter, value) => location.pathname + (value ? `?${parameter}=${encodeURIComponent(value)}` : "");

  // Bulk and Train: a state has no value in the browser, so an element has the id of what is shown.
  window.rememberJob = () => {
    const status = document.querySelector("#status [data-job]");
    if (status) window.showAddress(addressOf("job", status.dataset.job));
  };
  window.rememberRun = () => {
    window.showAddress(addressOf("run", document.querySelector("#run-status [data-run]")?.dataset.run));
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
  window.showLive = () => {
    const live = document.getElementById("live");
    if (live && window.innerWidth < 900) live.scrollIntoView({behavior: "smooth"});
  };

  // Label
  window.rememberRating = (project, rater) => {
    const url = new URL(location.href);
    for (const [name, value] of [["project", project], ["rater", rater]])
      if (value) url.searchParams.set(name, value); else url.searchParams.delete(name);
    window.showAddress(url);
  };

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
    const url = new URL(location.href);
    const isStep = url.searchParams.has("lesson");
    url.searchParams.set("lesson", n);  // beside the parameters of a class
    window.showAddress(url, isStep);
    document.getElementById("go-" + n)?.scrollIntoView({inline: "center", block: "nearest"});
  };
  window.copyClassLink = () => {
    const link = document.querySelector("#class-links a[data-class]");
    if (link) navigator.clipboard.writeText(link.href);
  };
})();
