// What every page needs of the browser and Gradio does not offer: a title of its own, a theme switch that outlives a
// link, radio buttons that the arrow keys move between, a text alternative for each plot, a word to the app on leaving.
(() => {
  const THEME = "sbert-lab-theme";
  const asked = new URLSearchParams(location.search).get("__theme");
  if (asked === "dark" || asked === "light") localStorage.setItem(THEME, asked);

  function applyTheme() {
    const theme = localStorage.getItem(THEME);
    if (theme && document.body.classList.contains("dark") !== (theme === "dark"))
      document.body.classList.toggle("dark", theme === "dark");
  }

  function switchTheme() {
    localStorage.setItem(THEME, document.body.classList.contains("dark") ? "light" : "dark");
    applyTheme();
    labelSwitch();
  }

  function labelSwitch() {
    const button = document.getElementById("theme-switch");
    if (!button) return;
    const label = document.body.classList.contains("dark") ? "Light" : "Dark";
    if (button.textContent === label) return;
    button.textContent = label;
    button.setAttribute("aria-label", `Switch to the ${label.toLowerCase()} theme`);
  }

  function completeNavigation() {
    const holder = document.querySelector(".nav-holder");
    if (!holder) return;
    for (const link of holder.querySelectorAll("a")) {
      if (link.classList.contains("active")) {
        if (link.getAttribute("aria-current") !== "page") link.setAttribute("aria-current", "page");
        const title = `${link.textContent.trim()} · SBERT Lab`;
        if (document.title !== title) document.title = title;
      } else link.removeAttribute("aria-current");
    }
    if (!document.getElementById("theme-switch")) {
      const button = document.createElement("button");
      button.id = "theme-switch";
      button.type = "button";
      button.addEventListener("click", switchTheme);
      holder.append(button);
    }
    labelSwitch();
  }

  // Radio buttons of one group must share a name, or the arrow keys do not move between them.
  let groups = 0;
  function nameRadioGroups() {
    for (const group of document.querySelectorAll("fieldset")) {
      const radios = group.querySelectorAll("input[type=radio]");
      if (radios.length === 0) continue;
      group.dataset.radios ||= `radio-group-${++groups}`;
      for (const radio of radios) if (radio.name !== group.dataset.radios) radio.name = group.dataset.radios;
    }
  }

  // A figure describes itself in layout.meta.alt; the titles of one that does not are read out.
  function describePlots() {
    for (const plot of document.querySelectorAll(".js-plotly-plot")) {
      const layout = plot.layout || {};
      const titles = [layout.title, layout.xaxis && layout.xaxis.title, layout.yaxis && layout.yaxis.title];
      const text = (layout.meta && layout.meta.alt) || titles.map((t) => (t && t.text) || "").filter(Boolean).join(", ");
      const label = (text || "Plot").replace(/<[^>]+>/g, "");
      if (plot.getAttribute("aria-label") === label) continue;
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", label);
    }
  }

  // Gradio's list of endpoints opens by its own button alone, which its footer hides from view.
  let wantsApi = location.hash === "#api";
  function openApi() {
    const button = document.querySelector("footer .show-api");
    if (!wantsApi || !button) return;
    wantsApi = false;
    button.click();
  }

  // The app stops what it computes for a page that is left. The address of the page's session is that of its heartbeat.
  let heartbeat = "";
  new PerformanceObserver((list) => {
    for (const {name} of list.getEntries()) if (name.includes("/gradio_api/heartbeat/")) heartbeat = name;
  }).observe({type: "resource", buffered: true});
  addEventListener("pagehide", () => heartbeat && navigator.sendBeacon(heartbeat));

  // The address names what is chosen on a page. A step can be undone by Back: the page then opens as the address says.
  let shown = location.search;
  window.showAddress = (address, isStep = false) => {
    const url = new URL(address, location.href);
    if (url.href === location.href) return;
    history[isStep ? "pushState" : "replaceState"](null, "", url);
    shown = location.search;
  };
  // Gradio selects the first tab before it asks what the address says.
  let isRestored = false;
  window.addressIsRestored = () => { isRestored = true; };
  window.rememberControls = (ids, silent, values) => {
    if (!isRestored) return;
    const url = new URL(location.href), same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
    ids.forEach((id, n) => {
      url.searchParams.delete(id);
      if (silent[n].some((value) => same(value, values[n]))) return;
      for (const each of [values[n]].flat()) url.searchParams.append(id, each ?? "");
    });
    window.showAddress(url);
  };
  window.rememberTab = (tab) => {
    if (!isRestored) return;
    const url = new URL(location.href);
    if (tab) url.searchParams.set("tab", tab);
    else url.searchParams.delete("tab");
    window.showAddress(url, true);
  };
  addEventListener("popstate", () => location.search !== shown && location.reload());

  let due = 0;
  function complete() {
    if (due) return;
    due = setTimeout(() => {
      due = 0;
      applyTheme();
      completeNavigation();
      nameRadioGroups();
      describePlots();
      openApi();
    }, 60);
  }

  function start() {
    document.addEventListener("click", (event) => {
      const link = event.target.closest && event.target.closest(".page-footer a");
      if (!link || new URL(link.href).pathname !== location.pathname) return;
      event.preventDefault();
      wantsApi = true;
      openApi();
    });
    applyTheme();
    const options = {childList: true, subtree: true, attributes: true, attributeFilter: ["class"]};
    new MutationObserver(complete).observe(document.body, options);
    new MutationObserver(complete).observe(document.head, {childList: true, subtree: true, characterData: true});
    complete();
  }

  // Gradio adds this script to the page after the page has loaded.
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
