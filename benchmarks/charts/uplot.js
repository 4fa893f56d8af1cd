// linePanel and dotPanel of panels.js, drawn with uPlot. They return one <div> with a canvas. uPlot has no heat map.
import uPlot from "uplot";

// A canvas cannot use CSS classes: colors are read from the style sheet once. A change of theme has to clear them and redraw.
const colors = new Map();
function colorOf(className, variable, opacity = 1) {
  const key = `${className} ${variable} ${opacity}`;
  if (!colors.has(key)) {
    const probe = tag("i", { class: className });
    document.body.append(probe);
    probe.style.color = `color-mix(in srgb, var(--${variable}) ${100 * opacity}%, transparent)`;
    colors.set(key, getComputedStyle(probe).color);
    probe.remove();
  }
  return colors.get(key);
}
const slotColor = (slot, opacity) => colorOf(colorClass(slot), "slot", opacity);
const pageColor = (name) => () => colorOf("", name);

function markerPath(slot, x, y, s) {
  const path = new Path2D();
  const corners = (points) => points.forEach(([dx, dy], i) => path[i ? "lineTo" : "moveTo"](x + dx * s, y + dy * s));
  if (slot % 4 === 0) path.arc(x, y, s, 0, 2 * Math.PI);
  if (slot % 4 === 1) path.rect(x - s * 0.9, y - s * 0.9, s * 1.8, s * 1.8);
  if (slot % 4 === 2)
    corners([
      [0, -1.2],
      [1.1, 0.8],
      [-1.1, 0.8],
    ]);
  if (slot % 4 === 3)
    corners([
      [0, -1.25],
      [1.25, 0],
      [0, 1.25],
      [-1.25, 0],
    ]);
  path.closePath();
  return path;
}

function paintMarker(context, slot, x, y, size, hollow) {
  const [path, color, sheet] = [markerPath(slot, x, y, size * uPlot.pxRatio), slotColor(slot), pageColor("sheet")()];
  Object.assign(context, { fillStyle: hollow ? sheet : color, strokeStyle: hollow ? color : sheet });
  context.lineWidth = (hollow ? 1.8 : 0.8) * uPlot.pxRatio;
  context.setLineDash([]);
  context.fill(path);
  context.stroke(path);
}

const axis = (options) => ({
  stroke: pageColor("soft"),
  font: "11px system-ui, sans-serif",
  labelFont: "11px system-ui, sans-serif",
  labelSize: 14,
  ticks: { show: false },
  grid: { stroke: pageColor("grid"), width: 1 },
  ...options,
});

function finish(options, data, label) {
  const chart = new uPlot({ legend: { show: false }, cursor: { show: false }, ...options }, data);
  chart.root.setAttribute("role", "img");
  chart.root.setAttribute("aria-label", label);
  chart.root.destroy = () => chart.destroy();
  return chart.root;
}

const dashOf = (slot) => dashes(slot)?.split(" ").map(Number);
const hidden = { show: true, stroke: "transparent", width: 0, points: { show: false } };

function linePanel({
  width,
  height = 170,
  first = 1,
  count,
  series,
  rules = [],
  bands: shaded = [],
  names,
  title,
  domain,
  xLabel,
  yLabel,
  label,
}) {
  const steps = Array.from({ length: count }, (_, i) => first + i);
  const [data, lines, bands] = [[steps], [{}], []];
  const every = Math.ceil(count / Math.max(2, Math.floor((width - 44) / 26)));
  for (const rule of rules) {
    data.push(steps.map(() => rule.value));
    lines.push({ stroke: () => slotColor(rule.slot), width: 2.4, dash: [1, 4], cap: "round", points: { show: false } });
  }
  for (const { slot, values, low, high, dash } of series) {
    const pad = (numbers) => steps.map((_, i) => numbers[i] ?? null);
    if (low && high) {
      bands.push({ series: [data.length, data.length + 1], fill: () => slotColor(slot, 0.13) });
      data.push(pad(high), pad(low));
      lines.push(hidden, hidden);
    }
    data.push(pad(values));
    lines.push({
      stroke: () => slotColor(slot),
      width: 1.8,
      dash: dash?.split(" ").map(Number) ?? dashOf(slot),
      points: { show: false },
    });
  }
  const paintMarkers = (chart) => {
    for (const { slot, values, marks = [], every: all = true } of series)
      values.forEach((value, i) => {
        const large = marks.includes(i + first);
        if (!known(value) || !(all || large)) return;
        paintMarker(
          chart.ctx,
          slot,
          chart.valToPos(i + first, "x", true),
          chart.valToPos(value, "y", true),
          large ? 4.5 : 2.6,
        );
      });
  };
  const shade = (chart) => {
    chart.ctx.fillStyle = slotColor(0, 0.13);
    for (const [from, to] of shaded) {
      const [a, b] = [from, to].map((step) => chart.valToPos(step, "x", true));
      chart.ctx.fillRect(a, chart.bbox.top, Math.max(2, b - a), chart.bbox.height);
    }
  };
  return finish(
    {
      width,
      height: height - (title ? 24 : 0),
      title: title && fitText(title, width - 34),
      series: lines,
      bands,
      padding: [10, 10, 0, 0],
      scales: { x: { time: false, range: [first - 0.2, first + count - 0.8] }, y: { range: domain } },
      axes: [
        axis({
          label: xLabel,
          size: 22,
          splits: steps.filter((_, i) => i % every === 0),
          values: (_, at) => at.map((step) => names?.[step - first] ?? step),
          grid: { show: false },
        }),
        axis({ label: yLabel, size: 32, splits: ticks(...domain), values: (_, at) => at.map(tickText) }),
      ],
      hooks: { drawAxes: [shade], draw: [paintMarkers] },
    },
    data,
    label,
  );
}

function dotPanel({ width, title, rows, domain, xLabel, label, spans = [] }) {
  const left = Math.min(width * 0.34, 14 + Math.max(...rows.map((row) => row.name.length)) * FONT * 0.6);
  const positions = [...rows.keys()];
  // uPlot has no marks with intervals and no categories: axes and scales are its own, the marks are drawn here.
  const paintRows = (chart) => {
    const x = (value) => chart.valToPos(value, "y", true);
    rows.forEach((row, index) => {
      const [y, context, size] = [chart.valToPos(index, "x", true), chart.ctx, uPlot.pxRatio];
      if (spans[index]) {
        context.fillStyle = slotColor(row.slot, 0.13);
        context.fillRect(x(spans[index][0]), y - 6 * size, x(spans[index][1]) - x(spans[index][0]), 12 * size);
      }
      if (known(row.low) && known(row.high)) {
        const [from, to] = [Math.max(domain[0], row.low), Math.min(domain[1], row.high)].map(x);
        Object.assign(context, { strokeStyle: slotColor(row.slot), lineWidth: 1.8 * size });
        context.setLineDash([]);
        const h = 4 * size;
        context.stroke(new Path2D(`M${from} ${y}H${to}M${from} ${y - h}v${2 * h}M${to} ${y - h}v${2 * h}`));
      }
      context.fillStyle = slotColor(row.slot, 0.5);
      for (const point of row.points ?? []) {
        if (!known(point.value)) continue;
        const disk = new Path2D();
        disk.arc(x(point.value), y + 8 * size, 2.4 * size, 0, 2 * Math.PI);
        context.fill(disk);
      }
      if (known(row.mean)) paintMarker(context, row.slot, x(row.mean), y, 5, row.hollow);
    });
  };
  return finish(
    {
      width,
      height: rows.length * 26 + 44,
      title: title && fitText(title, width - left),
      series: [{}, { ...hidden }],
      scales: { x: { time: false, ori: 1, dir: -1, range: [-0.5, rows.length - 0.5] }, y: { ori: 0, range: domain } },
      axes: [
        axis({
          side: 3,
          size: left,
          splits: positions,
          values: () => rows.map((row) => fitText(row.name, left - 6)),
          grid: { show: false },
        }),
        axis({
          side: 2,
          size: 22,
          label: xLabel && fitText(xLabel, width - 8),
          splits: ticks(...domain),
          values: (_, at) => at.map(tickText),
        }),
      ],
      hooks: { draw: [paintRows] },
    },
    [positions, rows.map((row) => row.mean)],
    label,
  );
}
