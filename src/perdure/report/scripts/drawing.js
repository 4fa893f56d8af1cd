// Helpers that build HTML and SVG elements. Text is only inserted as text nodes, so markup in names is never interpreted.
const SVG = "http://www.w3.org/2000/svg";
const FONT = 11;

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (name === "style") element.style.cssText = value; // the page's content security policy forbids style attributes
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const tag = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const draw = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
const textAt = (text, x, y, attributes = {}, ...more) => draw("text", { x, y, ...attributes }, ...more, String(text));
const tooltip = (text) => draw("title", {}, text);

const known = (value) => value !== null && value !== undefined;
const formatNumber = (value, digits = 3) => (known(value) ? value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1") : "–");
const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const fitText = (text, width) => shorten(text, Math.max(3, Math.floor(width / (FONT * 0.56))));

function scale([low, high], [from, to]) {
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

// Colors of values from 0 to 1: viridis, perceptually uniform and safe for color-blind readers.
const VIRIDIS = ["440154", "482878", "3e4a89", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"];
// Colors of values from -1 to 1: orange is negative, blue positive.
const SIGNED = ["a63603", "e6550d", "fdae6b", "fee6ce", "f7f7f7", "d1e5f0", "92c5de", "4393c3", "2166ac"];

function interpolateColor(stops, share) {
  const at = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const left = Math.min(stops.length - 2, Math.floor(at));
  const parts = [0, 2, 4].map((index) => {
    const [a, b] = [stops[left], stops[left + 1]].map((stop) => parseInt(stop.slice(index, index + 2), 16));
    return Math.round(a + (b - a) * (at - left));
  });
  const light = 0.2126 * (parts[0] / 255) ** 2.2 + 0.7152 * (parts[1] / 255) ** 2.2 + 0.0722 * (parts[2] / 255) ** 2.2;
  return { fill: `rgb(${parts.join(",")})`, ink: light > 0.18 ? "#111" : "#fff" };
}

const viridisColor = (value) => interpolateColor(VIRIDIS, value);
const signedColor = (value) => interpolateColor(SIGNED, (value + 1) / 2);

// A learner has the same color, marker and dashes in all charts.
const DASHES = [null, "6 3", "2 3", "8 3 2 3"];
// The slot of a control is its name instead of a number; controls are gray and dashed and have separate markers.
const isControl = (slot) => typeof slot === "string";
const colorClass = (slot) => (isControl(slot) ? "control" : `slot-${slot % 8}`);
const dashes = (slot) => (isControl(slot) ? "5 4" : DASHES[Math.floor(slot / 8) % DASHES.length]);

function marker(slot, x, y, size = 4, attributes = {}) {
  const all = { class: `mark ${colorClass(slot)}`, ...attributes };
  const s = size;
  if (slot === "random")
    return draw("path", {
      d: `M${x - s} ${y - s}L${x + s} ${y + s}M${x - s} ${y + s}L${x + s} ${y - s}`,
      ...all,
      class: "line control",
    });
  if (slot === "constant")
    return draw("rect", {
      x: x - s * 0.9,
      y: y - s * 0.9,
      width: s * 1.8,
      height: s * 1.8,
      ...all,
      class: "mark hollow control",
    });
  switch (slot % 4) {
    case 0:
      return draw("circle", { cx: x, cy: y, r: s, ...all });
    case 1:
      return draw("rect", { x: x - s * 0.9, y: y - s * 0.9, width: s * 1.8, height: s * 1.8, ...all });
    case 2:
      return draw("path", { d: `M${x} ${y - s * 1.2}L${x + s * 1.1} ${y + s * 0.8}H${x - s * 1.1}Z`, ...all });
    default:
      return draw("path", {
        d: `M${x} ${y - s * 1.25}L${x + s * 1.25} ${y}L${x} ${y + s * 1.25}L${x - s * 1.25} ${y}Z`,
        ...all,
      });
  }
}

function legendKey(slot, line = true) {
  return draw(
    "svg",
    { width: 26, height: 12, viewBox: "0 0 26 12", "aria-hidden": "true" },
    line ? draw("path", { d: "M1 6H25", class: `line ${colorClass(slot)}`, "stroke-dasharray": dashes(slot) }) : null,
    marker(slot, 13, 6),
  );
}

function canvas(width, height, label) {
  return draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

// Return about `count` round numbers between two bounds.
function ticks(low, high, count = 4) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const values = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9; at += step)
    values.push(Math.round(at / step) * step);
  return values;
}

const tickText = (value) => String(Number(value.toPrecision(6)));
