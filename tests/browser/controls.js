// How many controls a visitor sees at first, without the navigation.
() => [...document.querySelectorAll("button, input, select, textarea, a[href], summary")].filter((each) => {
  const box = each.getBoundingClientRect();
  return !each.closest(".site-nav") && box.width > 1 && box.height > 1 && box.top < innerHeight && box.bottom > 0 &&
    each.checkVisibility({opacityProperty: true, visibilityProperty: true});
}).map((each) => `${each.closest("[id]")?.id || ""} ${each.tagName} ${each.getAttribute("aria-label") || each.innerText || ""}`)
