// The charts of the CLAMP fit of the selected benchmark.

const fitsOf = (data, benchmark) => data.clamp.filter((fit) => fit.benchmark === benchmark);
const slotOf = (data, fit, name) =>
  data.learners.find((entry) => entry.name === name && entry.benchmark === fit.benchmark)?.slot ??
  fit.algorithms.indexOf(name);
const finite = (value) => (Number.isFinite(value) ? value : null);

Object.assign(CHARTS, {
  // Measured curves with marks, fitted curves dashed; steps that train the task are shaded.
  curves({ data, benchmark, names }) {
    const blocks = fitsOf(data, benchmark).flatMap((fit) => fit.curves.map((block) => ({ fit, block })));
    if (!blocks.length) return null;
    const selectedLearners = (fit, block) =>
      block.algorithms
        .map((index, row) => ({ name: fit.algorithms[index], row }))
        .filter((entry) => names.has(entry.name))
        .sort((a, b) => slotOf(data, fit, a.name) - slotOf(data, fit, b.name)); // slots are in ranked order
    const panels = (width) =>
      blocks.flatMap(({ fit, block }) =>
        fit.tasks.map((task, index) => {
          const series = selectedLearners(fit, block).flatMap(({ name, row }) => {
            const slot = slotOf(data, fit, name);
            return [
              { slot, name: `${name}, measured`, values: block.measured[row][index] },
              { slot, name: `${name}, model`, values: block.fitted[row][index], dash: "4 3", every: false },
            ];
          });
          const bands = block.curriculum.flatMap((trained, i) => (trained === index + 1 ? [[i, i + 1]] : []));
          const flat = series.flatMap((entry) => entry.values).filter(known);
          const label = `Task ${task}: measured and fitted performance of ${selectedLearners(fit, block).length} learners.`;
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
    const rows = blocks.flatMap(({ fit, block }) =>
      selectedLearners(fit, block).flatMap(({ name, row }) =>
        fit.tasks.flatMap((task, index) =>
          block.measured[row][index].map((value, step) => [name, task, step, value, block.fitted[row][index][step]]),
        ),
      ),
    );
    const legend = [
      ...new Map(
        blocks.flatMap(({ fit, block }) =>
          selectedLearners(fit, block).map(({ name }) => [name, { slot: slotOf(data, fit, name), name, line: true }]),
        ),
      ).values(),
    ];
    return {
      minWidth: 190,
      count: blocks.reduce((sum, { fit }) => sum + fit.tasks.length, 0),
      panels,
      legend,
      note: "Solid with marks: measured. Dashed: fitted. Shaded: steps that train the task.",
      header: ["learner", "task", "step", "measured", "model"],
      rows,
    };
  },

  transfer({ data, benchmark }) {
    const fits = fitsOf(data, benchmark);
    if (!fits.length) return null;
    const panels = (width) =>
      fits.map((fit) => {
        const { transfer } = fit.estimates;
        const label = `Transfer between ${fit.tasks.length} tasks; the values are in the table below.`;
        return heatPanel({
          width: Math.min(width, 560),
          rows: fit.tasks,
          columns: fit.tasks,
          values: transfer,
          color: signedColor,
          mark: (row, column) => !fit.supported.transfer[row][column],
          xLabel: "evaluated",
          yLabel: "trained",
          label,
          most: 60,
        });
      });
    const rows = fits.flatMap((fit) =>
      fit.tasks.flatMap((from, i) =>
        fit.tasks.map((to, j) => [
          from,
          to,
          fit.estimates.transfer[i][j],
          ...fit.intervals.transfer[i][j].map(finite),
          fit.supported.transfer[i][j] ? "yes" : "no",
        ]),
      ),
    );
    return {
      minWidth: FULL_WIDTH,
      count: fits.length,
      panels,
      ramp: { color: signedColor, from: -1, to: 1, name: "transfer (task to itself = 1)" },
      note: "°: not determined by the data alone. Gray: never trained.",
      header: ["trained", "evaluated", "transfer", "low", "high", "determined"],
      rows,
    };
  },

  properties({ data, benchmark, names }) {
    const fits = fitsOf(data, benchmark);
    if (!fits.length) return null;
    const kinds = {
      efficiency: "efficiency (mean over learners = 1)",
      retention: "share retained per step",
      translation: "translation / mean efficiency",
    };
    const rowsOf = (fit, kind) =>
      fit.algorithms
        .map((name, index) => ({
          name,
          slot: slotOf(data, fit, name),
          mean: fit.estimates[kind][index],
          low: finite(fit.intervals[kind][index][0]),
          high: fit.intervals[kind][index][1] === "inf" ? Infinity : finite(fit.intervals[kind][index][1]),
          hollow: !fit.supported[kind][index],
        }))
        .filter((row) => names.has(row.name))
        .sort((a, b) => a.slot - b.slot);
    const panels = (width) =>
      fits.flatMap((fit) =>
        Object.entries(kinds).map(([kind, words]) => {
          const rows = rowsOf(fit, kind);
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
            label: `${kind}: ${rows.map((row) => `${row.name} ${formatNumber(row.mean, 2)}`).join(", ")}.`,
          });
        }),
      );
    const rows = fits.flatMap((fit) =>
      Object.keys(kinds).flatMap((kind) =>
        rowsOf(fit, kind).map((row) => [
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
      minWidth: 260,
      count: 3 * fits.length,
      panels,
      legend: [],
      note: "Hollow: not determined by the data alone. Whiskers: 95 % intervals, clipped at the edge.",
      header: ["learner", "property", "estimate", "low", "high", "determined"],
      rows,
    };
  },
});
