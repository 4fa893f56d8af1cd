// A figure on the page: panels in rows that fit the screen, a legend, a data table, and downloads.

const GAP = 12; // between panels, as in the style sheet
const FULL_WIDTH = 3000; // minimum panel width of charts with one panel per row

function render(figure, context, width) {
  const container = figure.querySelector(".panels");
  const chart = CHARTS[figure.dataset.chart]({ ...context, figure });
  figure.hidden = !chart;
  if (!chart) return;
  const across = Math.max(1, Math.min(chart.count ?? 1, Math.floor((width + GAP) / (chart.minWidth + GAP))));
  const panels = chart.panels(Math.floor((width - GAP * (across - 1)) / across));
  container.replaceChildren(...panels);
  figure.querySelector(".legend").replaceChildren(...legend(chart, container));
  figure.querySelector(".note").textContent = chart.note ?? "";
  figure.chart = chart;
  const details = figure.querySelector("details");
  if (details.open) showNumbers(details, chart);
}

function legend(chart, container) {
  if (chart.ramp) return [ramp(chart.ramp)];
  return (chart.legend ?? []).map((entry) => {
    const key = entry.rule
      ? draw(
          "svg",
          { width: 26, height: 12, "aria-hidden": "true" },
          draw("path", { d: "M1 6H25", class: `rule ${colorClass(entry.slot)}` }),
        )
      : legendKey(entry.slot, entry.line);
    const item = tag(
      "li",
      {},
      tag("button", { type: "button", "aria-pressed": "false", class: "key" }, key, entry.name),
    );
    const button = item.firstChild;
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      for (const other of item.parentNode.querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", String(on));
      container.classList.toggle("picked", on);
      for (const group of container.querySelectorAll(".series"))
        group.classList.toggle("chosen", on && group.dataset.slot === String(entry.slot));
    });
    return item;
  });
}

function ramp({ color, from, to, name }) {
  const svg = draw("svg", { width: 132, height: 12, "aria-hidden": "true" });
  for (let i = 0; i < 22; i += 1) {
    svg.append(
      draw("rect", {
        x: i * 6,
        y: 1,
        width: 6.5,
        height: 10,
        style: `fill:${color(from + ((to - from) * i) / 21).fill}`,
      }),
    );
  }
  return tag("li", { class: "ramp" }, tag("span", {}, String(from)), svg, tag("span", {}, `${to} ${name}`));
}

function showNumbers(details, chart) {
  const head = tag("tr", {}, ...chart.header.map((name) => tag("th", { scope: "col" }, String(name))));
  const body = chart.rows.map((row) => tag("tr", {}, ...row.map((cell) => tag("td", {}, cellText(cell)))));
  const table = tag("table", {}, tag("thead", {}, head), tag("tbody", {}, ...body));
  details.querySelector(".scroll").replaceChildren(table);
}

const cellText = (cell) =>
  typeof cell === "number" && !Number.isInteger(cell) ? cell.toFixed(4) : String(cell ?? "–");

// Downloads. The files are created in the page; nothing is sent over the network.

function save(name, type, content) {
  const link = tag("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function csvText(rows) {
  const quoted = (cell) => (/[",\n\r]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  // Spreadsheets compute texts that begin like a formula; an apostrophe prevents it.
  const inert = (cell) => (/^[=+\-@\t\r]/.test(cell) && !Number.isFinite(Number(cell)) ? `'${cell}` : cell);
  return rows.map((row) => row.map((cell) => quoted(inert(String(cell ?? "")))).join(",")).join("\n") + "\n";
}

const COPIED_STYLES = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-opacity",
  "opacity",
  "font-size",
  "font-family",
  "font-weight",
  "text-anchor",
];

function withStyles(source) {
  const copy = source.cloneNode(true);
  const [from, to] = [source, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  from.forEach((element, container) => {
    const style = getComputedStyle(element);
    for (const name of COPIED_STYLES) to[container].style.setProperty(name, style.getPropertyValue(name));
  });
  return copy;
}

// The chart as one SVG: title, legend, and the panels at their positions on the page.
function combinedSvg(figure) {
  const container = figure.querySelector(".panels");
  const origin = container.getBoundingClientRect();
  const ink = getComputedStyle(figure).color;
  const keys = (figure.chart.legend ?? []).map((entry) => entry.name);
  const perRow = Math.max(1, Math.floor(origin.width / 150));
  const top = 30 + Math.ceil(keys.length / perRow) * 18;
  const all = draw("svg", { xmlns: SVG, width: Math.ceil(origin.width), height: Math.ceil(origin.height) + top });
  all.append(draw("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor }));
  all.append(
    textAt(figure.dataset.title, 4, 18, { fill: ink, "font-size": 15, "font-weight": 600, "font-family": "sans-serif" }),
  );
  [...figure.querySelectorAll(".legend svg")].forEach((key, i) => {
    const [x, y] = [4 + (i % perRow) * 150, 26 + Math.floor(i / perRow) * 18];
    const copy = withStyles(key);
    copy.setAttribute("x", x);
    copy.setAttribute("y", y);
    all.append(copy);
    if (keys[i])
      all.append(
        textAt(shorten(keys[i], 18), x + 30, y + 10, { fill: ink, "font-size": 11, "font-family": "sans-serif" }),
      );
  });
  for (const panel of container.children) {
    const box = panel.getBoundingClientRect();
    const copy = withStyles(panel);
    copy.setAttribute("x", box.left - origin.left);
    copy.setAttribute("y", box.top - origin.top + top);
    all.append(copy);
  }
  return all;
}

const svgText = (figure) => new XMLSerializer().serializeToString(combinedSvg(figure));

function savePng(figure, name) {
  const image = new Image();
  image.onload = () => {
    const canvas = tag("canvas", { width: image.width * 2, height: image.height * 2 });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(`${name}.png`, "image/png", blob));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(figure))}`;
}

function download(figure, kind) {
  const name = figure.id;
  if (kind === "csv") save(`${name}.csv`, "text/csv", csvText([figure.chart.header, ...figure.chart.rows]));
  if (kind === "svg") save(`${name}.svg`, "image/svg+xml", svgText(figure));
  if (kind === "png") savePng(figure, name);
}
