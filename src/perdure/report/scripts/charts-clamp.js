// Charts of the CLAMP fit of the benchmark that is shown.

const latentOf = (data, benchmark) => data.latent.filter((part) => part.benchmark === benchmark);
const slotOf = (data, part, name) =>
  data.learners.find((one) => one.name === name && one.benchmark === part.benchmark)?.slot ??
  part.algorithms.indexOf(name);
const finite = (value) => (Number.isFinite(value) ? value : null);

Object.assign(CHARTS, {
  // Measured curves with marks, the model's dashed; where a task is trained the ground is tinted.
  curves({ data, benchmark, names }) {
    const blocks = latentOf(data, benchmark).flatMap((part) => part.curves.map((block) => ({ part, block })));
    if (!blocks.length) return null;
    const chosen = (part, block) =>
      block.algorithms
        .map((place, row) => ({ name: part.algorithms[place], row }))
        .filter((one) => names.has(one.name));
    const panels = (width) =>
      blocks.flatMap(({ part, block }) =>
        part.tasks.map((task, place) => {
          const series = chosen(part, block).flatMap(({ name, row }) => {
            const slot = slotOf(data, part, name);
            return [
              { slot, name: `${name}, measured`, values: block.measured[row][place] },
              { slot, name: `${name}, model`, values: block.fitted[row][place], dash: "4 3", every: false },
            ];
          });
          const bands = block.curriculum.flatMap((trained, i) => (trained === place + 1 ? [[i, i + 1]] : []));
          const flat = series.flatMap((one) => one.values).filter(known);
          const label = `Task ${task}: measured performance of ${chosen(part, block).length} learners and the model's curves.`;
          return linePanel({
            width,
            title: `on ${task}`,
            first: 0,
            count: block.curriculum.length + 1,
            domain: [Math.min(0, ...flat), 1],
            series,
            bands,
            label,
            xLabel: "step",
          });
        }),
      );
    const rows = blocks.flatMap(({ part, block }) =>
      chosen(part, block).flatMap(({ name, row }) =>
        part.tasks.flatMap((task, place) =>
          block.measured[row][place].map((value, step) => [name, task, step, value, block.fitted[row][place][step]]),
        ),
      ),
    );
    const legend = [
      ...new Map(
        blocks.flatMap(({ part, block }) =>
          chosen(part, block).map(({ name }) => [name, { slot: slotOf(data, part, name), name, line: true }]),
        ),
      ).values(),
    ];
    return {
      least: 190,
      count: blocks.reduce((sum, { part }) => sum + part.tasks.length, 0),
      panels,
      legend,
      note: "Solid with marks: measured. Dashed: the model. Tinted: the step that trains the task.",
      header: ["learner", "task", "step", "measured", "model"],
      rows,
    };
  },

  transfer({ data, benchmark }) {
    const parts = latentOf(data, benchmark);
    if (!parts.length) return null;
    const panels = (width) =>
      parts.map((part) => {
        const { transfer } = part.estimates;
        const label = `Transfer between ${part.tasks.length} tasks; the numbers are in the table below.`;
        return heatPanel({
          width: Math.min(width, 560),
          rows: part.tasks,
          columns: part.tasks,
          values: transfer,
          colour: inSigned,
          mark: (row, column) => !part.supported.transfer[row][column],
          xLabel: "evaluated",
          yLabel: "trained",
          label,
          most: 60,
        });
      });
    const rows = parts.flatMap((part) =>
      part.tasks.flatMap((from, i) =>
        part.tasks.map((to, j) => [
          from,
          to,
          part.estimates.transfer[i][j],
          ...part.intervals.transfer[i][j].map(finite),
          part.supported.transfer[i][j] ? "yes" : "no",
        ]),
      ),
    );
    return {
      least: WHOLE,
      count: parts.length,
      panels,
      ramp: { colour: inSigned, from: -1, to: 1, name: "transfer, own task = 1" },
      note: "°: not determined by the data alone. Grey: never trained.",
      header: ["trained", "evaluated", "transfer", "low", "high", "determined"],
      rows,
    };
  },

  properties({ data, benchmark, names }) {
    const parts = latentOf(data, benchmark);
    if (!parts.length) return null;
    const kinds = {
      efficiency: "efficiency, 1 = the mean learner",
      retention: "retention of a step",
      translation: "translation, in mean efficiencies",
    };
    const rowsOf = (part, kind) =>
      part.algorithms
        .map((name, place) => ({
          name,
          slot: slotOf(data, part, name),
          mean: part.estimates[kind][place],
          low: finite(part.intervals[kind][place][0]),
          high: part.intervals[kind][place][1] === "inf" ? Infinity : finite(part.intervals[kind][place][1]),
          hollow: !part.supported[kind][place],
        }))
        .filter((row) => names.has(row.name));
    const panels = (width) =>
      parts.flatMap((part) =>
        Object.entries(kinds).map(([kind, words]) => {
          const rows = rowsOf(part, kind);
          const top = Math.max(
            1,
            ...rows.flatMap((row) => [
              row.mean,
              Number.isFinite(row.high) ? Math.min(row.high, 3 * Math.max(1, row.mean)) : 0,
            ]),
          );
          return dotPanel({
            width,
            title: kind,
            rows,
            domain: [0, kind === "retention" ? Math.min(1.2, top) : top],
            xLabel: words,
            label: `${kind}: ${rows.map((row) => `${row.name} ${shown(row.mean, 2)}`).join(", ")}.`,
          });
        }),
      );
    const rows = parts.flatMap((part) =>
      Object.keys(kinds).flatMap((kind) =>
        rowsOf(part, kind).map((row) => [
          row.name,
          kind,
          row.mean,
          row.low,
          finite(row.high),
          row.hollow ? "no" : "yes",
        ]),
      ),
    );
    return {
      least: 260,
      count: 3 * parts.length,
      panels,
      legend: [],
      note: "Hollow: not determined by the data alone. Whiskers: 95 % intervals, cut at the edge.",
      header: ["learner", "property", "estimate", "low", "high", "determined"],
      rows,
    };
  },
});
