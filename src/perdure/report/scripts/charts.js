// From the audit's numbers to charts. Each kind returns its panels, the smallest width of one, a legend and the numbers as rows.

const ends = (value) => value ?? [null, null, null];
const legendOf = (learners) => learners.map((one) => ({ slot: one.slot, name: one.title, line: true }));
const listed = (learners, value) => learners.map((one) => `${one.title} ${shown(value(one))}`).join(", ");

const CHARTS = {
  // Average accuracy or forgetting after each step, with the interval over runs as a band.
  progress({ shown: learners, figure }) {
    const measure = figure.dataset.measure;
    const used = learners.filter((one) => one.progress[measure]);
    if (!used.length) return null;
    const count = Math.max(...used.map((one) => one.table.length));
    const all = used.flatMap((one) => one.progress[measure].flat()).filter(known);
    const domain = [Math.min(0, ...all), measure === "forgetting" ? Math.max(0.2, ...all) : 1];
    const last = (one) => ends(one.progress[measure].at(-1))[0];
    const series = used.map((one) => {
      const [values, low, high] = [0, 1, 2].map((end) => one.progress[measure].map((value) => value[end]));
      return { slot: one.slot, name: one.title, values, low, high };
    });
    const rules =
      measure === "forgetting"
        ? []
        : references(learners).map((one) => ({
            slot: one.slot,
            name: one.title,
            value: one.measures.average_accuracy[0],
          }));
    const label = `${figure.dataset.title}. After the last step: ${listed(used, last)}.`;
    return {
      least: 300,
      panels: (width) => [
        linePanel({
          width,
          height: 250,
          count,
          domain,
          series,
          rules,
          label,
          xLabel: "after step",
          yLabel: figure.dataset.units,
        }),
      ],
      legend: [
        ...legendOf(used),
        ...rules.map((rule) => ({ slot: rule.slot, name: `${rule.name} (reference)`, rule: true })),
      ],
      header: ["learner", "after step", "mean", "low", "high"],
      rows: used.flatMap((one) => one.progress[measure].map((value, i) => [one.title, i + 1, ...value])),
    };
  },

  // One small picture for each task; the step that trained it is marked.
  tasks({ shown: learners }) {
    const used = learners.filter((one) => !one.reference);
    if (!used.length) return null;
    const tasks = used.reduce((most, one) => (one.tasks.length > most.length ? one.tasks : most), []);
    const count = Math.max(...used.map((one) => one.table.length));
    const panels = (width) =>
      tasks.map((name, task) => {
        const own = used.filter((one) => task < one.tasks.length);
        const series = own.map((one) => ({
          slot: one.slot,
          name: one.title,
          values: one.table.map((row) => row[task]),
          marks: one.curriculum.flatMap((trained, i) => (trained === task + 1 ? [i + 1] : [])),
          every: false,
        }));
        const rules = references(learners)
          .map((one) => ({ slot: one.slot, name: one.title, value: one.table.at(-1)[task] }))
          .filter((rule) => known(rule.value));
        const title = name === String(task + 1) ? `task ${name}` : `task ${task + 1}: ${name}`;
        const label = `Accuracy on ${title}. After the last step: ${listed(own, (one) => one.table.at(-1)[task])}.`;
        return linePanel({ width, title, count, domain: [0, 1], series, rules, label, xLabel: "after step" });
      });
    return {
      least: 190,
      count: tasks.length,
      panels,
      legend: [
        ...legendOf(used),
        ...references(learners).map((one) => ({ slot: one.slot, name: `${one.title} (reference)`, rule: true })),
      ],
      header: ["learner", "after step", "task", "accuracy"],
      rows: learners.flatMap((one) =>
        one.table.flatMap((row, i) =>
          row.map((value, task) => [one.title, one.reference ? "all tasks" : i + 1, one.tasks[task], value]),
        ),
      ),
    };
  },

  // The whole accuracy matrix of each learner; a reference has one row.
  matrices({ shown: learners }) {
    if (!learners.length) return null;
    const panels = (width) =>
      learners.map((one) => {
        const columns = one.tasks.map((_, task) => String(task + 1));
        const rows = one.reference ? ["all"] : one.table.map((_, step) => String(step + 1));
        const label = `Accuracy matrix of ${one.title}: ${rows.length} steps, ${columns.length} tasks. Last row: ${one.table
          .at(-1)
          .map((value) => shown(value, 2))
          .join(", ")}.`;
        const cellLabel = (row, task) =>
          `${one.title}, after ${one.reference ? "all tasks" : `step ${row + 1}`}, on task ${one.tasks[task]}: ${shown(one.table[row][task])}`;
        return heatPanel({
          width,
          title: one.title,
          rows,
          columns,
          values: one.table,
          colour: inViridis,
          xLabel: "task",
          yLabel: one.reference ? "" : "after step",
          label,
          cellLabel,
        });
      });
    return {
      least: 230,
      count: learners.length,
      panels,
      ramp: { colour: inViridis, from: 0, to: 1, name: "accuracy" },
      header: ["learner", "after step", "task", "accuracy"],
      rows: learners.flatMap((one) =>
        one.table.flatMap((row, i) =>
          row.map((value, task) => [one.title, one.reference ? "all tasks" : i + 1, one.tasks[task], value]),
        ),
      ),
    };
  },

  // All seven criteria of every learner.
  parallel({ shown: learners, data }) {
    const used = learners.filter((one) => data.criteria.some((name) => known(ends(one.measures[name])[0])));
    if (!used.length) return null;
    const series = used.map((one) => ({
      slot: one.slot,
      name: one.title,
      values: data.criteria.map((name) => ends(one.measures[name])),
    }));
    const label = `The seven criteria. ${used.map((one) => `${one.title}: ${data.criteria.map((name) => `${name} ${shown(ends(one.measures[name])[0], 2)}`).join(", ")}`).join("; ")}.`;
    return {
      least: WHOLE,
      panels: (width) => [parallelPanel({ width, axes: data.criteria, series, label })],
      legend: legendOf(used),
      header: ["learner", "criterion", "mean", "low", "high"],
      rows: used.flatMap((one) => data.criteria.map((name) => [one.title, name, ...ends(one.measures[name])])),
    };
  },

  // One measure: every run as a small dot, the mean and its interval over them.
  seeds({ shown: learners, data, figure }) {
    const measure = figure.querySelector("select").value;
    const used = learners.filter((one) => known(ends(one.measures[measure])[0]));
    if (!used.length) return null;
    const rows = used.map((one) => {
      const [mean, low, high] = one.measures[measure];
      const points = (one.values[measure] ?? []).map((value, i) => ({
        value,
        name: `${one.runs[i]}: ${shown(value)}`,
      }));
      return { slot: one.slot, name: one.title, mean, low, high, points };
    });
    const all = rows
      .flatMap((row) => [row.low, row.high, row.mean, ...row.points.map((point) => point.value)])
      .filter(known);
    const { label: name, meaning, higher } = data.measures[measure];
    return {
      least: WHOLE,
      panels: (width) => [
        dotPanel({
          width,
          rows,
          domain: [Math.min(0, ...all), Math.max(1, ...all)],
          xLabel: `${name} (${higher ? "higher" : "lower"} is better)`,
          label: `${name}, ${meaning}: ${listed(used, (one) => one.measures[measure][0])}.`,
        }),
      ],
      legend: [],
      note: "Large mark: mean over runs with its 95 % interval. Small dots: single runs.",
      header: ["learner", "run", name],
      rows: used.flatMap((one) => (one.values[measure] ?? []).map((value, i) => [one.title, one.runs[i], value])),
    };
  },

  // Which criteria say the same.
  correlation({ data }) {
    const names = Object.keys(data.correlation);
    if (!names.length) return null;
    const values = names.map((row) => names.map((column) => data.correlation[row][column]));
    return {
      least: WHOLE,
      panels: (width) => [
        heatPanel({
          width: Math.min(width, 460),
          rows: names,
          columns: names,
          values,
          colour: inSigned,
          label: "Rank correlation of the criteria; the numbers are in the table below.",
          most: 54,
        }),
      ],
      ramp: { colour: inSigned, from: -1, to: 1, name: "rank correlation" },
      note: values.flat().some((value) => !known(value)) ? "Empty: the criterion is the same for all learners." : "",
      header: ["", ...names],
      rows: names.map((name, i) => [name, ...values[i]]),
    };
  },
};

const references = (learners) =>
  learners.filter((one) => one.reference && known(ends(one.measures.average_accuracy)[0]));
