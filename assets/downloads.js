// Every figure downloads as PNG and SVG and every table as CSV, on every page, by buttons that the keyboard reaches.
(() => {
  const SCALE = 2; // pixels of the PNG for one on the screen
  const MAX_VECTOR_POINTS = 20000; // WebGL points up to which the SVG draws each of them as a shape

  const slug = (text) => text.toLowerCase().normalize("NFKD").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60);

  function save(name, blob) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  function button(label, description, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "download";
    made.dataset.label = label; // written by the style sheet, so that it is no part of a table's caption
    made.title = description;
    made.setAttribute("aria-label", description);
    made.addEventListener("click", act);
    return made;
  }

  // ---------------------------------------------------------------- figures

  // On white, with dark text, whatever the theme: for papers and slides.
  function printed(plot, format) {
    const layout = { ...plot.layout, paper_bgcolor: "#fff", plot_bgcolor: "#fff", font: { ...plot.layout.font, color: "#1f2933" } };
    layout.width = plot.clientWidth;
    layout.height = plot.clientHeight;
    // Maps alone have many points, and say how many; see figures/map.py.
    const isVector = format === "svg" && (plot.layout.meta?.points ?? 0) <= MAX_VECTOR_POINTS;
    const data = plot.data.map((trace) => (isVector && trace.type === "scattergl" ? { ...trace, type: "scatter" } : trace));
    return { data, layout, config: { staticPlot: true } };
  }

  function figureName(plot) {
    const id = plot.closest("[id]:not(.js-plotly-plot)")?.id || "figure";
    return slug(`sbert-lab ${id}`);
  }

  async function saveFigure(plot, format) {
    const { clientWidth: width, clientHeight: height } = plot;
    const url = await window.Plotly.toImage(printed(plot, format), { format, width, height, scale: format === "png" ? SCALE : 1 });
    save(`${figureName(plot)}.${format}`, await (await fetch(url)).blob());
  }

  function offerFigures() {
    for (const plot of document.querySelectorAll(".js-plotly-plot")) {
      if (plot.nextElementSibling?.classList.contains("downloads")) continue;
      const bar = document.createElement("div");
      bar.className = "downloads";
      for (const format of ["png", "svg"])
        bar.append(button(format.toUpperCase(), `Download the figure as ${format.toUpperCase()}`, () => saveFigure(plot, format)));
      plot.after(bar);
    }
  }

  // ---------------------------------------------------------------- tables

  const NUMBER = /^[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?$/;
  const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/; // what a spreadsheet would execute; see services/files/writers.py

  function cellText(cell) {
    const copy = cell.cloneNode(true);
    for (const each of copy.querySelectorAll("button.download, .sr, sup")) each.remove();
    for (const each of copy.querySelectorAll("small")) each.replaceWith(` (${each.textContent.trim()})`);
    let text = cell.dataset.csv ?? copy.textContent.replace(/\s+/g, " ").trim();
    if (/^[−+-]?\d{1,3}(,\d{3})*(\.\d+)?$/.test(text)) text = text.replace("−", "-").replaceAll(",", "");
    if (FORMULA.test(text) && !NUMBER.test(text)) text = `'${text}`;
    return /["\r\n,]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  // A cell over several columns is followed by empty ones.
  const csvRow = (row) => [...row.cells].flatMap((cell) => [cellText(cell), ...Array(cell.colSpan - 1).fill("")]).join(",");
  const csvOf = (table) => [...table.rows].map(csvRow).join("\n") + "\n";

  function tableName(table) {
    const caption = table.caption?.cloneNode(true);
    caption?.querySelector("button.download")?.remove();
    const id = table.closest("[id]")?.id || "table";
    return slug(`sbert-lab ${id} ${caption?.textContent || ""}`);
  }

  function offerTables() {
    for (const table of document.querySelectorAll("table.plain, table.poolings")) {
      if (table.rows.length < 2 || table.closest("[data-no-csv]") || table.querySelector("button.download")) continue;
      // In the caption: it goes when the table does.
      const caption = table.caption || table.createCaption();
      caption.classList.toggle("bare", !caption.textContent.trim());
      caption.append(button("CSV", "Download the table as CSV", () => {
        save(`${tableName(table)}.csv`, new Blob([csvOf(table)], { type: "text/csv;charset=utf-8" }));
      }));
    }
  }

  function offer() {
    offerFigures();
    offerTables();
  }

  // At once, which is before the next frame: what stands below would move twice whenever something is drawn again.
  function start() {
    new MutationObserver(offer).observe(document.body, { childList: true, subtree: true });
    offer();
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
