// The three panel functions of panels.js, drawn with Observable Plot. Arguments and results are the same: one <svg>.
import { areaY, axisX, axisY, cell, dot, gridX, gridY, line, link, plot, rectX, ruleY, text } from "@observablehq/plot";

const SYMBOLS = ["circle", "square", "triangle", "diamond"];

// Plot puts the class on the group of a mark. The legend of the page also needs the learner's slot there.
const series = (slot, kind) => ({
  className: `series ${kind} ${colorClass(slot)}`,
  render: (index, scales, values, dimensions, context, next) => {
    const group = next(index, scales, values, dimensions, context);
    group.dataset.slot = slot;
    return group;
  },
});
const symbolOf = (slot, r) => ({ symbol: SYMBOLS[slot % 4], r });

function finish(svg, label) {
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  return svg;
}

const heading = (title, width, dx = 0) =>
  title
    ? [
        text([title], {
          frameAnchor: "top-left",
          dy: -18,
          dx,
          className: "title",
          text: () => fitText(title, width),
          title: () => title,
        }),
      ]
    : [];

function linePanel({
  width,
  height = 170,
  first = 1,
  count,
  series: lines,
  rules = [],
  bands = [],
  names,
  title,
  domain,
  xLabel,
  yLabel,
  label,
}) {
  const left = yLabel ? 46 : 34;
  const every = Math.ceil(count / Math.max(2, Math.floor((width - left - 10) / 26)));
  const steps = Array.from({ length: count }, (_, i) => first + i).filter((_, i) => i % every === 0);
  const nameOf = (step) => (names ? `at ${names[step - first]}` : `step ${step}`);
  const marks = [
    gridY(ticks(...domain), { className: "grid", strokeOpacity: 1 }),
    axisY(ticks(...domain), {
      tickSize: 0,
      tickFormat: tickText,
      label: yLabel ?? null,
      labelAnchor: "center",
      labelArrow: "none",
    }),
    axisX(steps, {
      tickSize: 0,
      tickFormat: (step) => (names ? names[step - first] : String(step)),
      label: xLabel ?? null,
      labelAnchor: "center",
      labelArrow: "none",
    }),
    ...heading(title, width - left),
    rectX(bands, { x1: "0", x2: "1", className: "band" }),
    ...rules.map((rule) =>
      ruleY([rule.value], {
        className: `rule ${colorClass(rule.slot)}`,
        title: () => `${rule.name}: ${formatNumber(rule.value)}`,
      }),
    ),
  ];
  for (const { slot, name, values, low, high, marks: trained = [], dash, every: all = true } of lines) {
    const points = values.map((value, i) => ({ step: i + first, value, low: low?.[i], high: high?.[i] }));
    const ends = points.filter((point) => known(point.low) && known(point.high));
    if (ends.length > 1) marks.push(areaY(ends, { x: "step", y1: "low", y2: "high", ...series(slot, "cloud") }));
    marks.push(line(points, { x: "step", y: "value", strokeDasharray: dash ?? dashes(slot), ...series(slot, "line") }));
    for (const large of [false, true]) {
      const chosen = points.filter(
        (point) => known(point.value) && trained.includes(point.step) === large && (large || all),
      );
      const label = (point) => `${name}, ${nameOf(point.step)}: ${formatNumber(point.value)}`;
      if (chosen.length)
        marks.push(
          dot(chosen, {
            x: "step",
            y: "value",
            title: label,
            ...symbolOf(slot, large ? 4.5 : 2.6),
            ...series(slot, "mark"),
          }),
        );
    }
  }
  const svg = plot({
    width,
    height,
    marginLeft: left,
    marginRight: 10,
    marginTop: title ? 24 : 10,
    marginBottom: xLabel ? 36 : 22,
    x: { domain: [first, first + count - 1], inset: 6 },
    y: { domain },
    marks,
  });
  return finish(svg, label);
}

function heatPanel({
  width,
  title,
  rows,
  columns,
  values,
  color,
  mark,
  xLabel,
  yLabel,
  label,
  digits = 2,
  most = 46,
  cellLabel,
}) {
  const longest = Math.max(...rows.map((name) => name.length));
  const left = Math.min(width * 0.32, 22 + longest * FONT * 0.58) + (yLabel ? 12 : 0);
  const size = Math.max(9, Math.min(most, (width - left - 6) / columns.length));
  const slanted = columns.some((name) => name.length * FONT * 0.6 > size);
  const top = title ? 26 : 8;
  const bottom =
    (slanted ? 18 + Math.min(70, Math.max(...columns.map((name) => name.length)) * 4.6) : 18) + (xLabel ? 16 : 0);
  const high = Math.min(size, 34);
  const cells = values.flatMap((row, i) =>
    row.map((value, j) => ({
      row: rows[i],
      column: columns[j],
      value,
      paint: known(value) ? color(value) : null,
      name: cellLabel ? cellLabel(i, j) : `${rows[i]}, ${columns[j]}: ${formatNumber(value)}`,
      text: formatNumber(value, digits) + (mark && mark(i, j) ? "°" : ""),
    })),
  );
  const [full, empty] = [cells.filter((entry) => entry.paint), cells.filter((entry) => !entry.paint)];
  const place = { x: "column", y: "row" };
  const svg = plot({
    width,
    height: top + high * rows.length + bottom,
    marginLeft: left,
    marginRight: width - left - size * columns.length,
    marginTop: top,
    marginBottom: bottom,
    padding: 0,
    x: { domain: columns },
    y: { domain: rows },
    marks: [
      axisX({
        tickSize: 0,
        label: xLabel || null,
        labelAnchor: "center",
        labelArrow: "none",
        tickRotate: slanted ? -38 : 0,
        tickFormat: (name) => shorten(name, 16),
      }),
      axisY({
        tickSize: 0,
        label: yLabel || null,
        labelAnchor: "center",
        labelArrow: "none",
        tickFormat: (name) => fitText(name, left - (yLabel ? 20 : 8)),
      }),
      ...heading(title, width - 8, 2 - left),
      cell(full, { ...place, fill: (entry) => entry.paint.fill, title: "name", insetRight: 1, insetBottom: 1 }),
      cell(empty, { ...place, className: "cell empty", title: "name", insetRight: 1, insetBottom: 1 }),
      // The style sheet of the page sets the color of texts, so each of the two inks needs a class.
      ...(size >= 27 ? ["#111", "#fff"] : []).map((ink) =>
        text(
          full.filter((entry) => entry.paint.ink === ink),
          { ...place, text: "text", className: `number ${ink === "#fff" ? "white" : "black"}` },
        ),
      ),
    ],
  });
  return finish(svg, label);
}

function dotPanel({ width, title, rows, domain, xLabel, label, spans = [] }) {
  const left = Math.min(width * 0.34, 14 + Math.max(...rows.map((row) => row.name.length)) * FONT * 0.6);
  const [top, high, bottom] = [title ? 26 : 8, 26, 36];
  const marks = [
    gridX(ticks(...domain), { className: "grid", strokeOpacity: 1 }),
    axisX(ticks(...domain), {
      tickSize: 0,
      tickFormat: tickText,
      label: xLabel ? fitText(xLabel, width - 8) : null,
      labelAnchor: "center",
      labelArrow: "none",
    }),
    axisY([...rows.keys()], {
      tickSize: 0,
      label: null,
      tickFormat: (i) => fitText(rows[i].name, left - 6),
      className: "strong",
      title: (i) => rows[i].name,
    }),
    ...heading(title, width - left),
  ];
  rows.forEach((row, index) => {
    const [at, slot] = [[index], row.slot];
    const y = () => index;
    if (spans[index])
      marks.push(
        rectX(at, {
          x1: () => spans[index][0],
          x2: () => spans[index][1],
          y,
          insetTop: 7,
          insetBottom: 7,
          rx: 3,
          ...series(slot, "band"),
        }),
      );
    if (known(row.low) && known(row.high)) {
      const [from, to] = [Math.max(domain[0], row.low), Math.min(domain[1], row.high)];
      const whisker = { y1: y, y2: y, ...series(slot, "line") };
      marks.push(link(at, { x1: () => from, x2: () => to, ...whisker }));
      for (const end of [from, to]) marks.push(text(at, { x: () => end, y, text: () => "|", ...series(slot, "cap") }));
    }
    const points = (row.points ?? []).filter((point) => known(point.value));
    marks.push(dot(points, { x: "value", y, dy: 8, r: 2.4, stroke: "none", title: "name", ...series(slot, "run") }));
    const words = `${row.name}: ${formatNumber(row.mean)} [${formatNumber(row.low)}, ${formatNumber(row.high)}]`;
    if (known(row.mean))
      marks.push(
        dot(at, {
          x: () => row.mean,
          y,
          title: () => words,
          ...symbolOf(slot, 5),
          ...series(slot, row.hollow ? "mark hollow" : "mark"),
        }),
      );
  });
  const svg = plot({
    width,
    height: top + rows.length * high + bottom,
    marginLeft: left,
    marginRight: 12,
    marginTop: top,
    marginBottom: bottom,
    x: { domain, insetLeft: 6 },
    y: { type: "point", domain: [...rows.keys()], padding: 0.5 },
    marks,
  });
  return finish(svg, label);
}
