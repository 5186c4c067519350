// The table of thresholds: a button applies the one of its row.
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-use]");
  if (button) trigger("use", {threshold: Number(button.dataset.use)});
});
