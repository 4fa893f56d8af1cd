// The kinds of picture a chart is made of. Each takes plain numbers and returns one <svg>, drawn at its real size.

// The axes of a picture over steps, or over places with names, and the scales that go with them.
function frame({ width, height, title, first, count, names, domain, inset, xLabel, yLabel, label }) {
  const left = yLabel ? 46 : 34;
  const [top, bottom, right] = [title ? 24 : 10, xLabel ? 36 : 22, 10];
  const svg = canvas(width, height, label);
  const x = scale([first, first + count - 1], [left + inset + 2, width - right - inset]);
  const y = scale(domain, [height - bottom, top]);
  if (title) svg.append(words(fits(title, width - left), left, 14, { class: "heading" }, hint(title)));
  for (const at of ticks(...domain)) {
    svg.append(draw("path", { d: `M${left} ${y(at)}H${width - right}`, class: at === 0 ? "axis" : "grid" }));
    svg.append(words(tickText(at), left - 5, y(at) + 3.5, { class: "tick", "text-anchor": "end" }));
  }
  const every = Math.ceil(count / Math.max(2, Math.floor((width - left - right) / 26)));
  for (let step = first; step < first + count; step += every) {
    const text = names ? names[step - first] : step;
    svg.append(words(text, x(step), height - bottom + 14, { class: "tick", "text-anchor": "middle" }));
  }
  if (xLabel)
    svg.append(words(xLabel, (left + width - right) / 2, height - 4, { class: "label", "text-anchor": "middle" }));
  if (yLabel) {
    const middle = (top + height - bottom) / 2;
    svg.append(
      words(yLabel, 11, middle, { class: "label", "text-anchor": "middle", transform: `rotate(-90 11 ${middle})` }),
    );
  }
  return { svg, x, y, left, right, top, bottom };
}

// Lines over steps: series [{slot, name, values, low, high, marks}], rules [{slot, name, value}], bands [[from, to]].
// Where the places are no steps, names say what they are.
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
    const path = draw("path", { d: `M${left} ${y(rule.value)}H${width - right}`, class: `rule ${look(rule.slot)}` });
    path.append(hint(`${rule.name}: ${shown(rule.value)}`));
    svg.append(path);
  }
  const place = (step) => (names ? `at ${names[step - first]}` : `step ${step}`);
  for (const one of series) svg.append(oneLine({ ...one, place }, first, x, y));
  return svg;
}

// Dots with whiskers over places with names, side by side at each place; floor is a dotted line below them.
function whiskerPanel({ width, height = 270, names, series, floor, ...rest }) {
  const inset = (width - 60) / names.length / 2 - 2;
  const { svg, x, y } = frame({ width, height, first: 0, count: names.length, names, inset, ...rest });
  const room = (2 * inset * 0.82) / series.length;
  const path = (values, shift) =>
    values
      .map((value, i) => (known(value) ? `${x(i) + shift} ${y(value)}` : null))
      .filter(Boolean)
      .join("L");
  if (floor) svg.append(draw("path", { d: `M${path(floor, 0)}`, class: "rule control" }, hint("noise floor")));
  series.forEach((one, place) => {
    const shift = (place - (series.length - 1) / 2) * room;
    const group = draw("g", { class: "series", "data-slot": one.slot });
    one.values.forEach(([mean, low, high], i) => {
      if (!known(mean)) return;
      const at = x(i) + shift;
      if (known(low)) group.append(draw("path", { d: `M${at} ${y(low)}V${y(high)}`, class: `line ${look(one.slot)}` }));
      const dot = marker(one.slot, at, y(mean), Math.min(3.6, Math.max(2, room * 0.42)));
      dot.append(hint(`${one.name}, ${names[i]}: ${shown(mean, 4)} [${shown(low, 4)}, ${shown(high, 4)}]`));
      group.append(dot);
    });
    svg.append(group);
  });
  return svg;
}

function oneLine({ slot, name, values, low, high, marks, dash, every = true, place }, first, x, y) {
  const group = draw("g", { class: "series", "data-slot": slot });
  if (low && high) {
    const ends = values.map((value, i) => [i + first, low[i], high[i]]).filter(([, a, b]) => known(a) && known(b));
    if (ends.length > 1) {
      const up = ends.map(([at, , b]) => `${x(at)} ${y(b)}`);
      const down = ends.map(([at, a]) => `${x(at)} ${y(a)}`).reverse();
      group.append(draw("path", { d: `M${[...up, ...down].join("L")}Z`, class: `cloud ${look(slot)}` }));
    }
  }
  let pen = "M";
  let path = "";
  values.forEach((value, i) => {
    if (known(value)) path += `${pen}${x(i + first)} ${y(value)}`;
    pen = known(value) ? "L" : "M";
  });
  group.append(
    draw("path", { d: path || "M0 0", class: `line ${look(slot)}`, "stroke-dasharray": dash ?? dashes(slot) }),
  );
  values.forEach((value, i) => {
    if (!known(value) || !(every || (marks ?? []).includes(i + first))) return;
    const dot = marker(slot, x(i + first), y(value), (marks ?? []).includes(i + first) ? 4.5 : 2.6);
    dot.append(hint(`${name}, ${place(i + first)}: ${shown(value)}`));
    group.append(dot);
  });
  return group;
}

// A matrix as coloured cells with its numbers: rows and columns are names, values[row][column] a number or null.
function heatPanel({
  width,
  title,
  rows,
  columns,
  values,
  colour,
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
  if (title) svg.append(words(fits(title, width - 8), 2, 14, { class: "heading" }, hint(title)));
  rows.forEach((name, row) => {
    const y = top + row * high;
    svg.append(
      words(fits(name, left - (yLabel ? 20 : 8)), left - 6, y + high / 2 + 4, { class: "tick", "text-anchor": "end" }),
    );
    columns.forEach((column, place) => {
      const value = values[row][place];
      const paint = known(value) ? colour(value) : null;
      const box = draw("rect", {
        x: left + place * cell,
        y,
        width: cell - 1,
        height: high - 1,
        class: paint ? "cell" : "cell empty",
        style: paint ? `fill:${paint.fill}` : null,
      });
      box.append(hint(cellLabel ? cellLabel(row, place) : `${name}, ${column}: ${shown(value)}`));
      svg.append(box);
      if (paint && cell >= 27) {
        const text = shown(value, digits) + (mark && mark(row, place) ? "°" : "");
        const at = [left + place * cell + cell / 2 - 0.5, y + high / 2 + 3.5];
        svg.append(words(text, ...at, { class: "number", "text-anchor": "middle", style: `fill:${paint.ink}` }));
      }
    });
  });
  const under = top + high * rows.length + 14;
  columns.forEach((name, place) => {
    const x = left + place * cell + cell / 2;
    const turn = slanted
      ? { "text-anchor": "end", transform: `rotate(-38 ${x} ${under})` }
      : { "text-anchor": "middle" };
    svg.append(words(short(name, 16), x, under, { class: "tick", ...turn }));
  });
  if (xLabel) {
    const middle = left + (cell * columns.length) / 2;
    svg.append(
      words(xLabel, middle, top + high * rows.length + bottom - 3, { class: "label", "text-anchor": "middle" }),
    );
  }
  if (yLabel) {
    const middle = top + (high * rows.length) / 2;
    svg.append(
      words(yLabel, 10, middle, { class: "label", "text-anchor": "middle", transform: `rotate(-90 10 ${middle})` }),
    );
  }
  return svg;
}

// One row for each learner: a dot with its interval, and small dots for single runs. rows [{slot, name, mean, low, high, points}].
function dotPanel({ width, title, rows, domain, xLabel, label, spans = [] }) {
  const left = Math.min(width * 0.34, 14 + Math.max(...rows.map((row) => row.name.length)) * FONT * 0.6);
  const [top, high, bottom] = [title ? 26 : 8, 26, 36];
  const height = top + rows.length * high + bottom;
  const svg = canvas(width, height, label);
  const x = scale(domain, [left + 6, width - 12]);
  if (title) svg.append(words(fits(title, width - left), left, 14, { class: "heading" }));
  for (const at of ticks(...domain)) {
    svg.append(draw("path", { d: `M${x(at)} ${top}V${height - bottom}`, class: at === 0 ? "axis" : "grid" }));
    svg.append(words(tickText(at), x(at), height - bottom + 14, { class: "tick", "text-anchor": "middle" }));
  }
  if (xLabel)
    svg.append(words(fits(xLabel, width - 8), width / 2, height - 4, { class: "label", "text-anchor": "middle" }));
  rows.forEach((row, place) => {
    const y = top + place * high + high / 2;
    svg.append(
      words(fits(row.name, left - 6), left - 4, y + 4, { class: "tick strong", "text-anchor": "end" }, hint(row.name)),
    );
    const group = draw("g", { class: "series", "data-slot": row.slot });
    if (spans[place]) {
      const [from, to] = spans[place];
      group.append(
        draw("rect", { x: x(from), y: y - 6, width: Math.max(1, x(to) - x(from)), height: 12, rx: 3, class: "band" }),
      );
    }
    if (known(row.low) && known(row.high)) {
      const ends = [Math.max(domain[0], row.low), Math.min(domain[1], row.high)].map(x);
      group.append(
        draw("path", {
          d: `M${ends[0]} ${y}H${ends[1]}M${ends[0]} ${y - 4}v8M${ends[1]} ${y - 4}v8`,
          class: `line ${look(row.slot)}`,
        }),
      );
    }
    for (const point of row.points ?? []) {
      if (known(point.value))
        group.append(
          draw("circle", { cx: x(point.value), cy: y + 8, r: 2.4, class: `run ${look(row.slot)}` }, hint(point.name)),
        );
    }
    if (known(row.mean)) {
      const dot = marker(row.slot, x(row.mean), y, 5, row.hollow ? { class: `mark hollow ${look(row.slot)}` } : {});
      dot.append(hint(`${row.name}: ${shown(row.mean)} [${shown(row.low)}, ${shown(row.high)}]`));
      group.append(dot);
    }
    svg.append(group);
  });
  return svg;
}

// One axis for each criterion, one line for each learner; on a narrow screen the axes lie on their sides.
function parallelPanel({ width, axes, series, label }) {
  const upright = width >= 520;
  const long = upright ? 250 : axes.length * 46;
  const [left, top] = upright ? [34, 34] : [58, 26];
  const svg = canvas(width, upright ? long + 62 : long + 34, label);
  const along = scale([0, axes.length - 1], upright ? [left + 14, width - 34] : [top + 14, top + long - 18]);
  const across = scale([0, 1], upright ? [top + long, top] : [left + 8, width - 16]);
  const at = (place, value) => (upright ? [along(place), across(value)] : [across(value), along(place)]);
  axes.forEach((axis, place) => {
    const [a, b] = [at(place, 0), at(place, 1)];
    svg.append(draw("path", { d: `M${a.join(" ")}L${b.join(" ")}`, class: "axis" }));
    const spot = upright ? [along(place), top + long + 18] : [left - 2, along(place) + 4];
    svg.append(words(axis, ...spot, { class: "heading", "text-anchor": upright ? "middle" : "end" }));
  });
  for (const value of [0, 0.5, 1]) {
    const spot = upright ? [left - 2, across(value) + 4] : [across(value), top - 6];
    svg.append(words(value, ...spot, { class: "tick", "text-anchor": upright ? "end" : "middle" }));
    const line = upright
      ? `M${left + 14} ${across(value)}H${width - 34}`
      : `M${across(value)} ${top + 14}V${top + long - 18}`;
    svg.append(draw("path", { d: line, class: "grid" }));
  }
  for (const one of series) {
    const group = draw("g", { class: "series", "data-slot": one.slot });
    const points = one.values.map(([mean], place) => (known(mean) ? at(place, mean) : null));
    const path = points
      .map((point, i) => (point ? `${i && points[i - 1] ? "L" : "M"}${point.join(" ")}` : ""))
      .join("");
    group.append(
      draw("path", { d: path || "M0 0", class: `line ${look(one.slot)}`, "stroke-dasharray": dashes(one.slot) }),
    );
    one.values.forEach(([mean, low, high], place) => {
      if (!known(mean)) return;
      if (known(low)) {
        const ends = [at(place, low), at(place, high)];
        group.append(
          draw("path", { d: `M${ends[0].join(" ")}L${ends[1].join(" ")}`, class: `whisker ${look(one.slot)}` }),
        );
      }
      const dot = marker(one.slot, ...at(place, mean), 4.5);
      dot.append(hint(`${one.name}, ${axes[place]}: ${shown(mean)} [${shown(low)}, ${shown(high)}]`));
      group.append(dot);
    });
    svg.append(group);
  }
  return svg;
}
