// Small helpers to build HTML and SVG. Text only ever becomes a text node: a name with markup in it stays text.
const SVG = "http://www.w3.org/2000/svg";
const FONT = 11;

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const tag = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const draw = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
const words = (text, x, y, attributes = {}, ...more) => draw("text", { x, y, ...attributes }, ...more, String(text));
const hint = (text) => draw("title", {}, text);

const known = (value) => value !== null && value !== undefined;
const shown = (value, digits = 3) => (known(value) ? value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1") : "–");
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const fits = (text, width) => short(text, Math.max(3, Math.floor(width / (FONT * 0.56))));

function scale([low, high], [from, to]) {
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

// Colours of a value between 0 and 1: viridis, even in lightness and safe for colour-blind readers.
const VIRIDIS = ["440154", "482878", "3e4a89", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"];
// Of a value between -1 and 1: orange takes away, blue adds.
const SIGNED = ["a63603", "e6550d", "fdae6b", "fee6ce", "f7f7f7", "d1e5f0", "92c5de", "4393c3", "2166ac"];

function mixed(stops, share) {
  const at = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const left = Math.min(stops.length - 2, Math.floor(at));
  const parts = [0, 2, 4].map((place) => {
    const [a, b] = [stops[left], stops[left + 1]].map((stop) => parseInt(stop.slice(place, place + 2), 16));
    return Math.round(a + (b - a) * (at - left));
  });
  const light = 0.2126 * (parts[0] / 255) ** 2.2 + 0.7152 * (parts[1] / 255) ** 2.2 + 0.0722 * (parts[2] / 255) ** 2.2;
  return { fill: `rgb(${parts.join(",")})`, ink: light > 0.18 ? "#111" : "#fff" };
}

const inViridis = (value) => mixed(VIRIDIS, value);
const inSigned = (value) => mixed(SIGNED, (value + 1) / 2);

// A learner keeps its colour, marker and dashes everywhere on the page.
const DASHES = [null, "6 3", "2 3", "8 3 2 3"];
// Controls have names instead of numbers: grey, broken lines, and marks of their own.
const isControl = (slot) => typeof slot === "string";
const look = (slot) => (isControl(slot) ? "control" : `slot-${slot % 8}`);
const dashes = (slot) => (isControl(slot) ? "5 4" : DASHES[Math.floor(slot / 8) % DASHES.length]);

function marker(slot, x, y, size = 4, attributes = {}) {
  const all = { class: `mark ${look(slot)}`, ...attributes };
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

function sample(slot, line = true) {
  return draw(
    "svg",
    { width: 26, height: 12, viewBox: "0 0 26 12", "aria-hidden": "true" },
    line ? draw("path", { d: "M1 6H25", class: `line ${look(slot)}`, "stroke-dasharray": dashes(slot) }) : null,
    marker(slot, 13, 6),
  );
}

function canvas(width, height, label) {
  return draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

// Round numbers between two ends, about `count` of them.
function ticks(low, high, count = 4) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9; at += step)
    found.push(Math.round(at / step) * step);
  return found;
}

const tickText = (value) => String(Number(value.toPrecision(6)));
