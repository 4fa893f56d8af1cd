// The charts by kind. Each function returns its panels, the minimum width of a panel, a legend, and the data as rows.

const intervalOf = (value) => value ?? [null, null, null];
const legendOf = (learners) => learners.map((learner) => ({ slot: learner.slot, name: learner.title, line: true }));
const listed = (learners, value) => learners.map((learner) => `${learner.title} ${formatNumber(value(learner))}`).join(", ");

const CHARTS = {
  // Average accuracy or forgetting after each step, with the interval over runs as a band.
  progress({ shown: learners, figure }) {
    const measure = figure.dataset.measure;
    const used = learners.filter((learner) => learner.progress[measure]);
    if (!used.length) return null;
    const count = Math.max(...used.map((learner) => learner.table.length));
    const all = used.flatMap((learner) => learner.progress[measure].flat()).filter(known);
    const domain = [Math.min(0, ...all), measure === "forgetting" ? Math.max(0.2, ...all) : 1];
    const last = (learner) => intervalOf(learner.progress[measure].at(-1))[0];
    const series = used.map((learner) => {
      const [values, low, high] = [0, 1, 2].map((end) => learner.progress[measure].map((value) => value[end]));
      return { slot: learner.slot, name: learner.title, values, low, high };
    });
    const rules =
      measure === "forgetting"
        ? []
        : references(learners).map((learner) => ({
            slot: learner.slot,
            name: learner.title,
            value: learner.measures.average_accuracy[0],
          }));
    const label = `${figure.dataset.title}. After the last step: ${listed(used, last)}.`;
    return {
      minWidth: 300,
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
      rows: used.flatMap((learner) => learner.progress[measure].map((value, i) => [learner.title, i + 1, ...value])),
    };
  },

  // One panel per task; the steps that trained it are marked.
  tasks({ shown: learners }) {
    const used = learners.filter((learner) => !learner.reference);
    if (!used.length) return null;
    const tasks = used.reduce((most, learner) => (learner.tasks.length > most.length ? learner.tasks : most), []);
    const count = Math.max(...used.map((learner) => learner.table.length));
    const panels = (width) =>
      tasks.map((name, task) => {
        const evaluated = used.filter((learner) => task < learner.tasks.length);
        const series = evaluated.map((learner) => ({
          slot: learner.slot,
          name: learner.title,
          values: learner.table.map((row) => row[task]),
          marks: learner.curriculum.flatMap((trained, i) => (trained === task + 1 ? [i + 1] : [])),
          every: false,
        }));
        const rules = references(learners)
          .map((learner) => ({ slot: learner.slot, name: learner.title, value: learner.table.at(-1)[task] }))
          .filter((rule) => known(rule.value));
        const title = name === String(task + 1) ? `task ${name}` : `task ${task + 1}: ${name}`;
        const label = `Accuracy on ${title}. After the last step: ${listed(evaluated, (learner) => learner.table.at(-1)[task])}.`;
        return linePanel({ width, title, count, domain: [0, 1], series, rules, label, xLabel: "after step" });
      });
    return {
      minWidth: 190,
      count: tasks.length,
      panels,
      legend: [
        ...legendOf(used),
        ...references(learners).map((learner) => ({ slot: learner.slot, name: `${learner.title} (reference)`, rule: true })),
      ],
      header: ["learner", "after step", "task", "accuracy"],
      rows: learners.flatMap((learner) =>
        learner.table.flatMap((row, i) =>
          row.map((value, task) => [learner.title, learner.reference ? "all tasks" : i + 1, learner.tasks[task], value]),
        ),
      ),
    };
  },

  // The accuracy matrix of each learner; a reference has one row.
  matrices({ shown: learners }) {
    if (!learners.length) return null;
    const panels = (width) =>
      learners.map((learner) => {
        const columns = learner.tasks.map((_, task) => String(task + 1));
        const rows = learner.reference ? ["all"] : learner.table.map((_, step) => String(step + 1));
        const label = `Accuracy matrix of ${learner.title}: ${rows.length} steps, ${columns.length} tasks. Last row: ${learner.table
          .at(-1)
          .map((value) => formatNumber(value, 2))
          .join(", ")}.`;
        const cellLabel = (row, task) =>
          `${learner.title}, after ${learner.reference ? "all tasks" : `step ${row + 1}`}, on task ${learner.tasks[task]}: ${formatNumber(learner.table[row][task])}`;
        return heatPanel({
          width,
          title: learner.title,
          rows,
          columns,
          values: learner.table,
          color: viridisColor,
          xLabel: "task",
          yLabel: learner.reference ? "" : "after step",
          label,
          cellLabel,
        });
      });
    return {
      minWidth: 230,
      count: learners.length,
      panels,
      ramp: { color: viridisColor, from: 0, to: 1, name: "accuracy" },
      header: ["learner", "after step", "task", "accuracy"],
      rows: learners.flatMap((learner) =>
        learner.table.flatMap((row, i) =>
          row.map((value, task) => [learner.title, learner.reference ? "all tasks" : i + 1, learner.tasks[task], value]),
        ),
      ),
    };
  },

  // All seven criteria of every learner.
  parallel({ shown: learners, data }) {
    const used = learners.filter((learner) => data.criteria.some((name) => known(intervalOf(learner.measures[name])[0])));
    if (!used.length) return null;
    const series = used.map((learner) => ({
      slot: learner.slot,
      name: learner.title,
      values: data.criteria.map((name) => intervalOf(learner.measures[name])),
    }));
    const label = `The seven criteria. ${used.map((learner) => `${learner.title}: ${data.criteria.map((name) => `${name} ${formatNumber(intervalOf(learner.measures[name])[0], 2)}`).join(", ")}`).join("; ")}.`;
    return {
      minWidth: FULL_WIDTH,
      panels: (width) => [parallelPanel({ width, axes: data.criteria, series, label })],
      legend: legendOf(used),
      header: ["learner", "criterion", "mean", "low", "high"],
      rows: used.flatMap((learner) => data.criteria.map((name) => [learner.title, name, ...intervalOf(learner.measures[name])])),
    };
  },

  // One measure: a small dot per run, and the mean over runs with its interval.
  seeds({ shown: learners, data, figure }) {
    const measure = figure.querySelector("select").value;
    const used = learners.filter((learner) => known(intervalOf(learner.measures[measure])[0]));
    if (!used.length) return null;
    const rows = used.map((learner) => {
      const [mean, low, high] = learner.measures[measure];
      const points = (learner.values[measure] ?? []).map((value, i) => ({
        value,
        name: `${learner.runs[i]}: ${formatNumber(value)}`,
      }));
      return { slot: learner.slot, name: learner.title, mean, low, high, points };
    });
    const all = rows
      .flatMap((row) => [row.low, row.high, row.mean, ...row.points.map((point) => point.value)])
      .filter(known);
    const { label: name, meaning, higher } = data.measures[measure];
    return {
      minWidth: FULL_WIDTH,
      panels: (width) => [
        dotPanel({
          width,
          rows,
          domain: [Math.min(0, ...all), Math.max(1, ...all)],
          xLabel: `${name} (${higher ? "higher" : "lower"} is better)`,
          label: `${name}, ${meaning}: ${listed(used, (learner) => learner.measures[measure][0])}.`,
        }),
      ],
      legend: [],
      note: "Large mark: mean over runs with its 95 % interval. Small dots: runs.",
      header: ["learner", "run", name],
      rows: used.flatMap((learner) => (learner.values[measure] ?? []).map((value, i) => [learner.title, learner.runs[i], value])),
    };
  },

  // Rank correlation of the criteria.
  correlation({ data }) {
    const names = Object.keys(data.correlation);
    if (!names.length) return null;
    const values = names.map((row) => names.map((column) => data.correlation[row][column]));
    return {
      minWidth: FULL_WIDTH,
      panels: (width) => [
        heatPanel({
          width: Math.min(width, 460),
          rows: names,
          columns: names,
          values,
          color: signedColor,
          label: "Rank correlation of the criteria; the values are in the table below.",
          most: 54,
        }),
      ],
      ramp: { color: signedColor, from: -1, to: 1, name: "rank correlation" },
      note: values.flat().some((value) => !known(value)) ? "Empty: the criterion is the same for all learners." : "",
      header: ["", ...names],
      rows: names.map((name, i) => [name, ...values[i]]),
    };
  },
};

const references = (learners) =>
  learners.filter((learner) => learner.reference && known(intervalOf(learner.measures.average_accuracy)[0]));
