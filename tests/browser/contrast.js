// Texts of the page whose contrast is below WCAG 2.2 AA (4.5:1; 3:1 from 24 px, or from 18.66 px in bold), as
// "ratio text", and the placeholders of empty fields. Texts on gradients without a colour below them and in
// figures are left out. Also texts smaller
// than 13 pixels, which no projector shows, as "size text".
() => {
  const parse = (colour) => {
    const numbers = (colour.match(/[\d.]+/g) || []).map(Number);
    const scale = colour.startsWith("color(") ? 255 : 1;
    return [...numbers.slice(0, 3).map((value) => value * scale), numbers[3] ?? 1];
  };
  const over = (front, back) => [0, 1, 2].map((i) => front[i] * front[3] + back[i] * (1 - front[3])).concat(1);
  const linear = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const ratio = (a, b) => (Math.max(luminance(a), luminance(b)) + 0.05) / (Math.min(luminance(a), luminance(b)) + 0.05);
  const background = (element) => {
    const layers = [];
    for (let node = element; node; node = node.parentElement) {
      const style = getComputedStyle(node), colour = parse(style.backgroundColor);
      if (style.backgroundImage !== "none" && colour[3] < 1) return null;
      layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const opacity = (element) => {
    let product = 1;
    for (let node = element; node; node = node.parentElement) product *= Number(getComputedStyle(node).opacity);
    return product;
  };
  const low = [];
  const check = (element, style, text) => {
    const back = background(element), [red, green, blue, alpha] = parse(style.color), visible = opacity(element);
    if (!back || visible < 0.05) return;
    const size = parseFloat(style.fontSize);
    if (size < 13 && !element.closest("sup, sub")) low.push(`${size} px ${text.trim().slice(0, 60)}`);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const found = ratio(over([red, green, blue, alpha * visible], back), back);
    if (found < (isLarge ? 3 : 4.5)) low.push(`${found.toFixed(2)} ${text.trim().slice(0, 60)}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, style = getComputedStyle(element);
    if (!walker.currentNode.textContent.trim() || !element.getClientRects().length || style.visibility !== "visible") continue;
    if (element.closest("script, style, svg, [disabled], [aria-disabled=true]")) continue;
    check(element, style, walker.currentNode.textContent);
  }
  for (const field of document.querySelectorAll("input[placeholder], textarea[placeholder]"))
    if (field.getClientRects().length && field.placeholder && !field.disabled)
      check(field, getComputedStyle(field, "::placeholder"), field.placeholder);
  return low;
}
