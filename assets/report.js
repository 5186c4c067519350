// In the file of a report: draws its figures, follows the reader's theme, and fits everything to the paper for printing.
(() => {
  const PAPER = 680; // pixels: the width of a page of A4 between its margins
  const isDark = matchMedia("(prefers-color-scheme: dark)");
  let isPrinting = false;
  const applyTheme = () => document.body.classList.toggle("dark", isDark.matches && !isPrinting);

  function draw(source) {
    const {data, layout} = JSON.parse(source.textContent);
    const figure = document.createElement("div");
    source.replaceWith(figure);
    delete layout.width;
    window.Plotly.newPlot(figure, data, {...layout, autosize: true}, {responsive: true, displaylogo: false});
    const titles = [layout.title, layout.xaxis?.title, layout.yaxis?.title].map((title) => title?.text || "");
    const text = (layout.meta?.alt || titles.filter(Boolean).join(", ") || "Figure").replace(/<[^>]+>/g, "");
    if (layout.meta?.every) {
      const note = Object.assign(document.createElement("p"), {className: "note"});
      note.textContent = `Every ${layout.meta.every}th point is drawn, to keep this file small.`;
      figure.after(note);
    }
    figure.setAttribute("role", "group");
    figure.setAttribute("aria-label", text);
  }

  function print(starts) {
    isPrinting = starts;
    applyTheme();
    for (const figure of document.querySelectorAll(".js-plotly-plot"))
      window.Plotly.relayout(figure, starts ? {autosize: false, width: PAPER} : {autosize: true, width: null});
  }

  applyTheme();
  isDark.addEventListener("change", applyTheme);
  document.querySelectorAll("script.plot").forEach(draw);
  document.querySelectorAll("details").forEach((each) => { each.open = true; });
  for (const each of document.querySelectorAll(".part, .scroll, .tablewrap, .runs"))
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0; // the keyboard scrolls it
  if (!document.querySelector("base"))
    for (const link of document.querySelectorAll(".part a[href]"))
      if (!/^https?:/.test(link.getAttribute("href"))) link.removeAttribute("href"); // to a page of the app
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
})();
