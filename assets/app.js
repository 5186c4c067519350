// What every page needs of the browser and Gradio does not offer: a link that skips the navigation, a theme that outlives
// a link, radio buttons, tabs and chips that the arrow keys move between, figures as wide as their frames with a text
// alternative, tables that open to all their rows, a word to the app on leaving.
(() => {
  const THEME = "sbert-lab-theme";
  const asked = new URLSearchParams(location.search).get("__theme");
  if (asked === "dark" || asked === "light") localStorage.setItem(THEME, asked);

  function applyTheme() {
    const theme = localStorage.getItem(THEME) || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    if (document.body.classList.contains("dark") !== (theme === "dark"))
      document.body.classList.toggle("dark", theme === "dark");
  }

  function switchTheme() {
    localStorage.setItem(THEME, document.body.classList.contains("dark") ? "light" : "dark");
    applyTheme();
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

  // Of the tabs in a row, of the chips in one, of the tools of a figure a single one is a stop of the Tab key: the one
  // with the focus, else the chosen one, else the first. The arrow keys move among them, and choose a tab.
  const TOOLBARS = {"#rail": "Lessons", ".chips:not(#rail .chips)": "Examples", ".modebar": "Figure"}; // and their names
  const ROWS = ["[role=tablist]", ...Object.keys(TOOLBARS)].join(), ITEMS = "[role=tab], .chip, .modebar-btn";
  const CHOSEN = "[aria-selected=true], .primary";
  const itemsOf = (row) => [...row.querySelectorAll(ITEMS)].filter((item) => !item.disabled && item.checkVisibility());
  function rove() {
    for (const row of document.querySelectorAll(ROWS)) {
      const ariaLabel = Object.entries(TOOLBARS).find(([kind]) => row.matches(kind))?.[1];
      if (ariaLabel && row.ariaLabel !== ariaLabel) Object.assign(row, {role: "toolbar", ariaLabel});
      const items = itemsOf(row), chosen = items.find((item) => item.matches(CHOSEN)) || (row.role === "toolbar" && items[0]);
      bringIntoSight(row, chosen);
      const stop = items.includes(document.activeElement) ? document.activeElement : chosen;
      for (const item of items) {
        const index = item === stop ? 0 : -1;
        if (item.tabIndex !== index) item.tabIndex = index;
      }
    }
  }
  // In a row that scrolls, the chosen item is in sight.
  function bringIntoSight(row, chosen) {
    if (!row || !chosen || row.dataset.seen === chosen.innerText) return;
    row.dataset.seen = chosen.innerText;
    const start = chosen.offsetLeft - row.offsetLeft;
    const isInSight = start >= row.scrollLeft && start + chosen.offsetWidth <= row.scrollLeft + row.clientWidth;
    if (!isInSight) row.scrollLeft = start - (row.clientWidth - chosen.offsetWidth) / 2;
  }
  const ITEM_AT = {
    ArrowRight: (at, count) => (at + 1) % count,
    ArrowLeft: (at, count) => (at + count - 1) % count,
    Home: () => 0,
    End: (at, count) => count - 1,
  };
  function moveInRow(event) {
    const item = event.target.closest?.(ITEMS), row = item?.closest(ROWS), move = ITEM_AT[event.key];
    if (!row || !move) return;
    const items = itemsOf(row), next = items[move(items.indexOf(item), items.length)];
    event.preventDefault();
    if (next.matches("[role=tab]")) next.click();
    next.focus();
    next.scrollIntoView({block: "nearest", inline: "nearest"});
    rove();
  }

  // A figure has the size of its frame. Plotly draws one that is hidden, as in a tab that is not open, as wide as it
  // likes, and looks again when the window changes alone; the frame also changes with a tab, a fold, a panel beside it.
  function resizeFigure(plot) {
    const drawn = plot.querySelector("svg")?.getBoundingClientRect();
    const isOff = (a, b) => Math.abs(a - b) > 1;
    if (drawn && (isOff(drawn.width, plot.clientWidth) || (!plot.layout.height && isOff(drawn.height, plot.clientHeight))))
      window.Plotly.Plots.resize(plot);
  }
  const frames = new ResizeObserver((entries) => {
    for (const {target: plot} of entries) {
      if (!plot.isConnected) frames.unobserve(plot);
      else if (plot.clientWidth > 0 && plot.layout) resizeFigure(plot);
    }
  });
  const framed = new WeakSet();
  function frameFigures() {
    for (const plot of document.querySelectorAll(".js-plotly-plot")) {
      if (framed.has(plot)) continue;
      framed.add(plot);
      frames.observe(plot);
    }
  }

  // What scrolls is scrolled by keyboard too.
  function reachScrollers() {
    for (const code of document.querySelectorAll(".cm-scroller[tabindex='-1']")) code.tabIndex = 0;
  }

  // A table that is cut at the height of its box says how many rows there are, and shows them.
  function offerRest() {
    for (const box of document.querySelectorAll(".scroll")) {
      const isCut = box.scrollHeight > box.clientHeight + 2, has = box.nextElementSibling?.classList.contains("show-all");
      if (!isCut || has || box.clientHeight === 0) continue;
      const rows = box.querySelectorAll("tbody tr").length;
      const button = Object.assign(document.createElement("button"), {type: "button", className: "show-all"});
      button.textContent = rows > 0 ? `Show all ${rows.toLocaleString("en")} rows` : "Show all";
      button.addEventListener("click", () => { box.classList.add("whole"); button.remove(); });
      box.after(button);
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
      plot.setAttribute("role", "figure"); // not "img": its toolbar can be pressed
      plot.setAttribute("aria-label", label);
      for (const drawn of plot.querySelectorAll(".main-svg")) drawn.setAttribute("aria-hidden", "true");
    }
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
  const LONGEST_VALUE = 4000; // in characters; the server refuses an address that is much longer
  window.rememberControls = (ids, silent, values) => {
    if (!isRestored) return;
    const url = new URL(location.href), same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
    ids.forEach((id, n) => {
      url.searchParams.delete(id);
      if (silent[n].some((value) => same(value, values[n]))) return;
      const text = `${values[n]}`;
      if (text.startsWith("/") || text.length > LONGEST_VALUE) return; // an upload by its path on the server opens nothing
      for (const each of [values[n]].flat()) url.searchParams.append(id, each ?? "");
    });
    window.showAddress(url);
  };
  // An empty value is not named.
  window.nameInAddress = (names, values, isStep = false) => {
    const url = new URL(location.href);
    names.forEach((name, n) => (values[n] ? url.searchParams.set(name, values[n]) : url.searchParams.delete(name)));
    window.showAddress(url, isStep);
  };
  // A tab that is pressed before the address is restored stays open, and so do values that are entered before.
  const pressedTabs = []; // their titles, of the page and of rows of tabs within its tabs
  document.addEventListener("click", ({target}) => pressedTabs.push(target.closest?.("[role=tab]")?.textContent.trim()), true);
  window.rememberTab = (tab, title) => {
    // The first tab of an inner row is said to be selected late, when another one may be open.
    const isOpen = [...document.querySelectorAll("[role=tab][aria-selected=true]")].some(
      (open) => open.textContent.trim() === title,
    );
    if (isRestored && isOpen) window.nameInAddress(["tab"], [tab], true);
  };
  const UNCHANGED = {__type__: "update"}, touched = {};
  window.openTab = (tabs) => { // [title, id, ids of the tabs within] of each
    const pressed = pressedTabs.map((pressedTitle) => tabs.find(([title]) => title === pressedTitle)?.[1]).findLast(Boolean);
    if (pressed !== undefined) window.nameInAddress(["tab"], [pressed === tabs[0][1] ? "" : pressed], true);
    const tab = pressed ?? new URLSearchParams(location.search).get("tab");
    const opened = tabs.find(([, id, within]) => id === tab || within.includes(tab));
    return opened ? {...UNCHANGED, selected: opened[1]} : UNCHANGED;
  };
  window.noteTouched = (group, initial, values) => {
    touched[group] = values.map((value, n) => (JSON.stringify(value) === JSON.stringify(initial[n]) ? UNCHANGED : value));
  };
  const typed = new Map(); // field -> its text
  document.addEventListener("input", ({target}) => isRestored || typed.set(target, target.value), true);
  window.keepTouched = (group, texts) => {
    const values = texts.map((id, n) => {
      const box = id && document.getElementById(id), field = box && [...typed.keys()].find((each) => box.contains(each));
      return field ? typed.get(field) : (touched[group]?.[n] ?? UNCHANGED);
    });
    return values.length === 1 ? values[0] : values;
  };
  // A number that is typed passes through others, such as the 0 of 0.8. The server would refuse one outside of its range:
  // it is not sent, and the nearest one takes its place where the field is left.
  const sliderOf = (field) => field.closest(".block")?.querySelector("input[type=range]");
  const nearestValue = (field) => {
    if (field.type !== "number") return null;
    if (field.validity.rangeUnderflow) return field.min;
    if (field.validity.rangeOverflow) return field.max;
    return field.value === "" ? sliderOf(field)?.value : null;
  };
  document.addEventListener("input", (event) => nearestValue(event.target) && event.stopPropagation(), true);
  document.addEventListener("change", ({target}) => {
    const value = nearestValue(target);
    if (!value) return;
    target.value = value;
    target.dispatchEvent(new Event("input", {bubbles: true}));
  }, true);
  addEventListener("popstate", () => location.search !== shown && location.reload());
  // Escape closes the explanation of a term, which is open while the term has the focus.
  addEventListener("keydown", ({key}) => key === "Escape" && document.activeElement?.closest(".term")?.blur());

  // A page is open when it no longer changes, and no visible part waits for its first answer. Parts that wait may come
  // late, as Gradio loads the script of each kind of component. A page that follows a run always changes a little, so it
  // is open MOST_MS after its heading at the latest.
  const STILL_MS = 400, LATE_MS = 2000, MOST_MS = 5000;
  let opening = 0, latest = 0, hasWaited = false;
  function noteOpened() {
    const main = document.querySelector("main h1");
    const waiting = [...document.querySelectorAll("main .waiting")];
    // A lesson, whose measurement may take minutes, can be left meanwhile.
    const isWaiting = waiting.some((part) => part.checkVisibility() && !part.closest(".demo"));
    hasWaited ||= isWaiting;
    clearTimeout(opening);
    if (!main || isWaiting) return;
    latest ||= performance.now() + MOST_MS;
    const delay = Math.min(hasWaited ? STILL_MS : LATE_MS, latest - performance.now());
    opening = setTimeout(() => document.body.classList.add("opened"), delay);
  }

  let due = 0;
  function complete() {
    if (due) return;
    due = setTimeout(() => {
      due = 0;
      applyTheme();
      noteOpened();
      bringIntoSight(document.querySelector(".site-nav nav"), document.querySelector(".site-nav [aria-current]"));
      nameRadioGroups();
      rove();
      frameFigures();
      describePlots();
      offerRest();
      reachScrollers();
    }, 60);
  }

  function start() {
    document.addEventListener("click", (event) => {
      if (event.target.closest("#theme-switch")) switchTheme();
      if (event.target.closest(".skip")) {
        // The address names what is chosen: a fragment is no part of it.
        event.preventDefault();
        document.getElementById("content").focus();
      }
    });
    document.addEventListener("keydown", moveInRow);
    document.addEventListener("focusout", complete);
    applyTheme();
    const options = {childList: true, subtree: true, attributes: true, attributeFilter: ["class", "aria-selected"]};
    new MutationObserver(complete).observe(document.body, options);
    new MutationObserver(complete).observe(document.head, {childList: true, subtree: true, characterData: true});
    complete();
  }

  // Gradio adds this script to the page after the page has loaded.
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
