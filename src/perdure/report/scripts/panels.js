// The panels of charts. Each function takes numbers and returns one <svg> in its final size.

// Draw the axes over steps, or over named positions, and return the scales.
function frame({ width, height, title, first, count, names, domain, inset, xLabel, yLabel, label }) {
  const left = yLabel ? 46 : 34;
  const [top, bottom, right] = [title ? 24 : 10, xLabel ? 36 : 22, 10];
  const svg = canvas(width, height, label);
  const x = scale([first, first + count - 1], [left + inset + 2, width - right - inset]);
  const y = scale(domain, [height - bottom, top]);
  if (title) svg.append(textAt(fitText(title, width - left), left, 14, { class: "heading" }, tooltip(title)));
  for (const at of ticks(...domain)) {
    svg.append(draw("path", { d: `M${left} ${y(at)}H${width - right}`, class: at === 0 ? "axis" : "grid" }));
    svg.append(textAt(tickText(at), left - 5, y(at) + 3.5, { class: "tick", "text-anchor": "end" }));
  }
  const every = Math.ceil(count / Math.max(2, Math.floor((width - left - right) / 26)));
  for (let step = first; step < first + count; step += every) {
    const text = names ? names[step - first] : step;
    svg.append(textAt(text, x(step), height - bottom + 14, { class: "tick", "text-anchor": "middle" }));
  }
  if (xLabel)
    svg.append(textAt(xLabel, (left + width - right) / 2, height - 4, { class: "label", "text-anchor": "middle" }));
  if (yLabel) {
    const middle = (top + height - bottom) / 2;
    svg.append(
      textAt(yLabel, 11, middle, { class: "label", "text-anchor": "middle", transform: `rotate(-90 11 ${middle})` }),
    );
  }
  return { svg, x, y, left, right, top, bottom };
}

// Lines over steps: series [{slot, name, values, low, high, marks}], rules [{slot, name, value}], bands [[from, to]].
// `names` labels the positions if they are not steps.
function linePanel({ width, height = 170, first = 1, count, series, rules = [], bands = [], names, ...rest }) {
  const { svg, x, y, left, right, top, bottom } = frame({ width, height, first, count, names, inset: 6, ...rest });
  for (const [from, to] of bands) {
    svg.append(
      draw("rect", {
        x: x(from),
        y: top,
        width: Math.max(2, x(to) - x(from)),
        height: height - bottom - top,
        class: "band",
      }),
    );
  }
  for (const rule of rules) {
    const path = draw("path", { d: `M${left} ${y(rule.value)}H${width - right}`, class: `rule ${colorClass(rule.slot)}` });
    path.append(tooltip(`${rule.name}: ${formatNumber(rule.value)}`));
    svg.append(path);
  }
  const positionName = (step) => (names ? `at ${names[step - first]}` : `step ${step}`);
  for (const line of series) svg.append(seriesGroup({ ...line, positionName }, first, x, y));
  return svg;
}

// Dots with whiskers over named positions, next to each other at each position; `floor` is a dotted line.
function whiskerPanel({ width, height = 270, names, series, floor, ...rest }) {
  const inset = (width - 60) / names.length / 2 - 2;
  const { svg, x, y } = frame({ width, height, first: 0, count: names.length, names, inset, ...rest });
  const spacing = (2 * inset * 0.82) / series.length;
  const path = (values, shift) =>
    values
      .map((value, i) => (known(value) ? `${x(i) + shift} ${y(value)}` : null))
      .filter(Boolean)
      .join("L");
  if (floor) svg.append(draw("path", { d: `M${path(floor, 0)}`, class: "rule control" }, tooltip("noise floor")));
  series.forEach((entry, index) => {
    const shift = (index - (series.length - 1) / 2) * spacing;
    const group = draw("g", { class: "series", "data-slot": entry.slot });
    entry.values.forEach(([mean, low, high], i) => {
      if (!known(mean)) return;
      const at = x(i) + shift;
      if (known(low)) group.append(draw("path", { d: `M${at} ${y(low)}V${y(high)}`, class: `line ${colorClass(entry.slot)}` }));
      const dot = marker(entry.slot, at, y(mean), Math.min(3.6, Math.max(2, spacing * 0.42)));
      dot.append(tooltip(`${entry.name}, ${names[i]}: ${formatNumber(mean, 4)} [${formatNumber(low, 4)}, ${formatNumber(high, 4)}]`));
      group.append(dot);
    });
    svg.append(group);
  });
  return svg;
}

function seriesGroup({ slot, name, values, low, high, marks, dash, every = true, positionName }, first, x, y) {
  const group = draw("g", { class: "series", "data-slot": slot });
  if (low && high) {
    const ends = values.map((value, i) => [i + first, low[i], high[i]]).filter(([, a, b]) => known(a) && known(b));
    if (ends.length > 1) {
      const up = ends.map(([at, , b]) => `${x(at)} ${y(b)}`);
      const down = ends.map(([at, a]) => `${x(at)} ${y(a)}`).reverse();
      group.append(draw("path", { d: `M${[...up, ...down].join("L")}Z`, class: `cloud ${colorClass(slot)}` }));
    }
  }
  let pen = "M";
  let path = "";
  values.forEach((value, i) => {
    if (known(value)) path += `${pen}${x(i + first)} ${y(value)}`;
    pen = known(value) ? "L" : "M";
  });
  group.append(
    draw("path", { d: path || "M0 0", class: `line ${colorClass(slot)}`, "stroke-dasharray": dash ?? dashes(slot) }),
  );
  values.forEach((value, i) => {
    if (!known(value) || !(every || (marks ?? []).includes(i + first))) return;
    const dot = marker(slot, x(i + first), y(value), (marks ?? []).includes(i + first) ? 4.5 : 2.6);
    dot.append(tooltip(`${name}, ${positionName(i + first)}: ${formatNumber(value)}`));
    group.append(dot);
  });
  return group;
}

// A matrix as colored cells with numbers: rows and columns are names, values[row][column] is a number or null.
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
  const cell = Math.max(9, Math.min(most, (width - left - 6) / columns.length));
  const slanted = columns.some((name) => name.length * FONT * 0.6 > cell);
  const top = title ? 26 : 8;
  const bottom =
    (slanted ? 18 + Math.min(70, Math.max(...columns.map((name) => name.length)) * 4.6) : 18) + (xLabel ? 16 : 0);
  const high = Math.min(cell, 34);
  const svg = canvas(width, top + high * rows.length + bottom, label);
  if (title) svg.append(textAt(fitText(title, width - 8), 2, 14, { class: "heading" }, tooltip(title)));
  rows.forEach((name, row) => {
    const y = top + row * high;
    svg.append(
      textAt(fitText(name, left - (yLabel ? 20 : 8)), left - 6, y + high / 2 + 4, { class: "tick", "text-anchor": "end" }),
    );
    columns.forEach((column, index) => {
      const value = values[row][index];
      const paint = known(value) ? color(value) : null;
      const box = draw("rect", {
        x: left + index * cell,
        y,
        width: cell - 1,
        height: high - 1,
        class: paint ? "cell" : "cell empty",
        style: paint ? `fill:${paint.fill}` : null,
      });
      box.append(tooltip(cellLabel ? cellLabel(row, index) : `${name}, ${column}: ${formatNumber(value)}`));
      svg.append(box);
      if (paint && cell >= 27) {
        const text = formatNumber(value, digits) + (mark && mark(row, index) ? "°" : "");
        const at = [left + index * cell + cell / 2 - 0.5, y + high / 2 + 3.5];
        svg.append(textAt(text, ...at, { class: "number", "text-anchor": "middle", style: `fill:${paint.ink}` }));
      }
    });
  });
  const under = top + high * rows.length + 14;
  columns.forEach((name, index) => {
    const x = left + index * cell + cell / 2;
    const turn = slanted
      ? { "text-anchor": "end", transform: `rotate(-38 ${x} ${under})` }
      : { "text-anchor": "middle" };
    svg.append(textAt(shorten(name, 16), x, under, { class: "tick", ...turn }));
  });
  if (xLabel) {
    const middle = left + (cell * columns.length) / 2;
    svg.append(
      textAt(xLabel, middle, top + high * rows.length + bottom - 3, { class: "label", "text-anchor": "middle" }),
    );
  }
  if (yLabel) {
    const middle = top + (high * rows.length) / 2;
    svg.append(
      textAt(yLabel, 10, middle, { class: "label", "text-anchor": "middle", transform: `rotate(-90 10 ${middle})` }),
    );
  }
  return svg;
}

// One row per learner: a dot with its interval, and small dots for single runs. rows [{slot, name, mean, low, high, points}].
function dotPanel({ width, title, rows, domain, xLabel, label, spans = [] }) {
  const left = Math.min(width * 0.34, 14 + Math.max(...rows.map((row) => row.name.length)) * FONT * 0.6);
  const [top, high, bottom] = [title ? 26 : 8, 26, 36];
  const height = top + rows.length * high + bottom;
  const svg = canvas(width, height, label);
  const x = scale(domain, [left + 6, width - 12]);
  if (title) svg.append(textAt(fitText(title, width - left), left, 14, { class: "heading" }));
  for (const at of ticks(...domain)) {
    svg.append(draw("path", { d: `M${x(at)} ${top}V${height - bottom}`, class: at === 0 ? "axis" : "grid" }));
    svg.append(textAt(tickText(at), x(at), height - bottom + 14, { class: "tick", "text-anchor": "middle" }));
  }
  if (xLabel)
    svg.append(textAt(fitText(xLabel, width - 8), width / 2, height - 4, { class: "label", "text-anchor": "middle" }));
  rows.forEach((row, index) => {
    const y = top + index * high + high / 2;
    svg.append(
      textAt(fitText(row.name, left - 6), left - 4, y + 4, { class: "tick strong", "text-anchor": "end" }, tooltip(row.name)),
    );
    const group = draw("g", { class: "series", "data-slot": row.slot });
    if (spans[index]) {
      const [from, to] = spans[index];
      group.append(
        draw("rect", { x: x(from), y: y - 6, width: Math.max(1, x(to) - x(from)), height: 12, rx: 3, class: "band" }),
      );
    }
    if (known(row.low) && known(row.high)) {
      const ends = [Math.max(domain[0], row.low), Math.min(domain[1], row.high)].map(x);
      group.append(
        draw("path", {
          d: `M${ends[0]} ${y}H${ends[1]}M${ends[0]} ${y - 4}v8M${ends[1]} ${y - 4}v8`,
          class: `line ${colorClass(row.slot)}`,
        }),
      );
    }
    for (const point of row.points ?? []) {
      if (known(point.value))
        group.append(
          draw("circle", { cx: x(point.value), cy: y + 8, r: 2.4, class: `run ${colorClass(row.slot)}` }, tooltip(point.name)),
        );
    }
    if (known(row.mean)) {
      const dot = marker(row.slot, x(row.mean), y, 5, row.hollow ? { class: `mark hollow ${colorClass(row.slot)}` } : {});
      dot.append(tooltip(`${row.name}: ${formatNumber(row.mean)} [${formatNumber(row.low)}, ${formatNumber(row.high)}]`));
      group.append(dot);
    }
    svg.append(group);
  });
  return svg;
}

// Parallel coordinates: one axis per criterion, one line per learner; the axes are horizontal on narrow screens.
function parallelPanel({ width, axes, series, label }) {
  const upright = width >= 520;
  const long = upright ? 250 : axes.length * 46;
  const [left, top] = upright ? [34, 34] : [58, 26];
  const svg = canvas(width, upright ? long + 62 : long + 34, label);
  const along = scale([0, axes.length - 1], upright ? [left + 14, width - 34] : [top + 14, top + long - 18]);
  const across = scale([0, 1], upright ? [top + long, top] : [left + 8, width - 16]);
  const at = (index, value) => (upright ? [along(index), across(value)] : [across(value), along(index)]);
  axes.forEach((axis, index) => {
    const [a, b] = [at(index, 0), at(index, 1)];
    svg.append(draw("path", { d: `M${a.join(" ")}L${b.join(" ")}`, class: "axis" }));
    const spot = upright ? [along(index), top + long + 18] : [left - 2, along(index) + 4];
    svg.append(textAt(axis, ...spot, { class: "heading", "text-anchor": upright ? "middle" : "end" }));
  });
  for (const value of [0, 0.5, 1]) {
    const spot = upright ? [left - 2, across(value) + 4] : [across(value), top - 6];
    svg.append(textAt(value, ...spot, { class: "tick", "text-anchor": upright ? "end" : "middle" }));
    const line = upright
      ? `M${left + 14} ${across(value)}H${width - 34}`
      : `M${across(value)} ${top + 14}V${top + long - 18}`;
    svg.append(draw("path", { d: line, class: "grid" }));
  }
  for (const entry of series) {
    const group = draw("g", { class: "series", "data-slot": entry.slot });
    const points = entry.values.map(([mean], index) => (known(mean) ? at(index, mean) : null));
    const path = points
      .map((point, i) => (point ? `${i && points[i - 1] ? "L" : "M"}${point.join(" ")}` : ""))
      .join("");
    group.append(
      draw("path", { d: path || "M0 0", class: `line ${colorClass(entry.slot)}`, "stroke-dasharray": dashes(entry.slot) }),
    );
    entry.values.forEach(([mean, low, high], index) => {
      if (!known(mean)) return;
      if (known(low)) {
        const ends = [at(index, low), at(index, high)];
        group.append(
          draw("path", { d: `M${ends[0].join(" ")}L${ends[1].join(" ")}`, class: `whisker ${colorClass(entry.slot)}` }),
        );
      }
      const dot = marker(entry.slot, ...at(index, mean), 4.5);
      dot.append(tooltip(`${entry.name}, ${axes[index]}: ${formatNumber(mean)} [${formatNumber(low)}, ${formatNumber(high)}]`));
      group.append(dot);
    });
    svg.append(group);
  }
  return svg;
}
