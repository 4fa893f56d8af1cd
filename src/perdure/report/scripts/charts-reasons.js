// The charts of SHAPC.

const QUANTITIES = {
  calibrated: "calibrated (0: untrained network, 1: identical reasons)",
  shapc: "SHAPC",
  independent: "SHAPC between independent draws",
  ceiling: "noise ceiling",
  floor: "similarity to untrained networks",
};

const selectedValue = (figure, name) => figure.querySelector(`select[name="${name}"]`)?.value;
const slotBy = (learners, run) => learners.find((entry) => entry.name === run.learner).slot;

// The audited runs of the shown learners with the selected seed.
function selectedRuns({ data, shown: learners, benchmark, names, figure }) {
  const seed = selectedValue(figure, "seed");
  return data.shapc
    .filter((run) => run.benchmark === benchmark && names.has(run.learner) && run.seed === seed)
    .map((run) => ({ ...run, slot: slotBy(learners, run) }))
    .sort((a, b) => a.slot - b.slot); // slots are in ranked order
}

// (tau, t) of a matrix of steps x steps where t is after tau.
const laterPairs = (matrix) =>
  matrix.flatMap((row, tau) => row.flatMap((value, t) => (t > tau && known(value) ? [[tau, t, value]] : [])));

Object.assign(CHARTS, {
  // Calibrated SHAPC, SHAPC-Mean and SHAPC-Var: mean over runs, and runs as dots.
  reasons({ shown: learners, data }) {
    const kinds = ["shapc_calibrated", "shapc_mean", "shapc_var"];
    const used = learners.filter((run) => known(intervalOf(run.measures.shapc_mean)[0]));
    if (!used.length) return null;
    const rowsOf = (kind) =>
      used.map((run) => {
        const [mean, low, high] = intervalOf(run.measures[kind]);
        return {
          slot: run.slot,
          name: run.title,
          mean,
          low,
          high,
          points: (run.values[kind] ?? []).map((value, i) => ({ value, name: `${run.runs[i]}: ${formatNumber(value)}` })),
        };
      });
    const panels = (width) =>
      kinds.map((kind) => {
        const rows = rowsOf(kind);
        const top = Math.max(1, ...rows.flatMap((row) => [row.mean, row.high]).filter(known));
        const low = Math.min(0, ...rows.flatMap((row) => [row.mean, row.low]).filter(known));
        const { label, higher } = data.measures[kind];
        return dotPanel({
          width,
          title: label,
          rows,
          domain: [low, kind === "shapc_var" ? Math.max(0.5, ...rows.map((row) => row.high ?? row.mean)) : top],
          xLabel: `${higher ? "higher" : "lower"} is more stable`,
          label: `${label}: ${rows.map((row) => `${row.name} ${formatNumber(row.mean, 2)}`).join(", ")}.`,
        });
      });
    return {
      minWidth: 260,
      count: kinds.length,
      panels,
      legend: [],
      note: "Large mark: mean with its 95 % interval over runs (over examples if there is one run). Small dots: runs.",
      header: ["learner", "measure", "mean", "low", "high"],
      rows: kinds.flatMap((kind) =>
        used.map((run) => [run.title, data.measures[kind].label, ...intervalOf(run.measures[kind])]),
      ),
    };
  },

  // The (tau, t) matrix of each learner.
  pairs(context) {
    const { figure } = context;
    const name = selectedValue(figure, "quantity");
    const runs = selectedRuns(context);
    if (!runs.length) return null;
    const panels = (width) =>
      runs.map((run) => {
        const matrix = run.matrices[name];
        const values = matrix.slice(0, -1).map((row, tau) => row.map((value, t) => (t > tau ? value : null)).slice(1));
        const rows = values.map((_, tau) => String(tau + 1));
        const columns = matrix.slice(1).map((_, t) => String(t + 2));
        return heatPanel({
          width,
          title: run.learner,
          rows,
          columns,
          values,
          color: viridisColor,
          xLabel: "later step t",
          yLabel: "trained at step τ",
          label: `${QUANTITIES[name]} of ${run.learner}: ${laterPairs(matrix)
            .map(([tau, t, value]) => `${tau + 1} to ${t + 1} ${formatNumber(value, 2)}`)
            .join(", ")}.`,
        });
      });
    return {
      minWidth: 210,
      count: runs.length,
      panels,
      ramp: { color: viridisColor, from: 0, to: 1, name: QUANTITIES[name] },
      header: ["learner", "seed", "trained at step", "later step", ...Object.keys(QUANTITIES)],
      rows: runs.flatMap((run) =>
        laterPairs(run.matrices.shapc).map(([tau, t]) => [
          run.learner,
          run.seed,
          tau + 1,
          t + 1,
          ...Object.keys(QUANTITIES).map((kind) => run.matrices[kind][tau][t]),
        ]),
      ),
    };
  },

  // One panel per trained step: a line over the later steps, and a band from the untrained networks to the noise ceiling.
  between(context) {
    const runs = selectedRuns(context);
    if (!runs.length) return null;
    const steps = Math.max(...runs.map((run) => run.matrices.shapc.length));
    const trainedSteps = [...Array(steps - 1).keys()].filter((tau) =>
      runs.some((run) => run.matrices.independent[tau]?.some(known)),
    );
    const panels = (width) =>
      trainedSteps.map((tau) => {
        const of = (run, kind) => run.matrices[kind][tau].slice(tau + 1);
        const series = runs
          .filter((run) => run.matrices.independent[tau]?.some(known))
          .map((run) => ({
            slot: run.slot,
            name: run.learner,
            values: of(run, "independent"),
            low: of(run, "floor"),
            high: of(run, "ceiling"),
          }));
        const title = `task of step ${tau + 1}`;
        return linePanel({
          width,
          title,
          first: tau + 2,
          count: steps - tau - 1,
          domain: [0, 1],
          series,
          xLabel: "later step",
          label: `SHAPC between independent draws, ${title}. At the last step: ${series.map((run) => `${run.name} ${formatNumber(run.values.at(-1), 2)}`).join(", ")}.`,
        });
      });
    return {
      minWidth: 190,
      count: trainedSteps.length,
      panels,
      legend: runs.map((run) => ({ slot: run.slot, name: run.learner, line: true })),
      note: "Line: independent draws of the maps. Band: from the similarity to untrained networks to the noise ceiling (two draws for the same network).",
      header: ["learner", "trained at step", "later step", "independent", "floor", "ceiling"],
      rows: runs.flatMap((run) =>
        laterPairs(run.matrices.independent).map(([tau, t, value]) => [
          run.learner,
          tau + 1,
          t + 1,
          value,
          run.matrices.floor[tau][t],
          run.matrices.ceiling[tau][t],
        ]),
      ),
    };
  },

  // SHAPC of every example at the last step.
  spread(context) {
    const runs = selectedRuns(context);
    if (!runs.length) return null;
    const trainedSteps = [...new Set(runs.flatMap((run) => Object.keys(run.values)))].filter((tau) =>
      runs.some((run) => run.values[tau]?.some((row) => row.some(known))),
    );
    const rowsOf = (tau) =>
      runs
        .filter((run) => run.values[tau])
        .map((run) => {
          const last = run.values[tau].map((row) => row.at(-1)).filter(known);
          return {
            slot: run.slot,
            name: run.learner,
            mean: run.matrices.shapc[tau - 1].at(-1),
            points: last.map((value, i) => ({ value, name: `example ${i + 1}: ${formatNumber(value)}` })),
          };
        });
    const panels = (width) =>
      trainedSteps.map((tau) =>
        dotPanel({
          width,
          title: `task of step ${tau}`,
          rows: rowsOf(tau),
          domain: [0, 1],
          xLabel: "SHAPC of an example at the last step",
          label: `Distribution over examples, task of step ${tau}: mean ${rowsOf(tau)
            .map((row) => `${row.name} ${formatNumber(row.mean, 2)}`)
            .join(", ")}.`,
        }),
      );
    return {
      minWidth: 250,
      count: trainedSteps.length,
      panels,
      legend: [],
      note: "Small dots: examples. Large mark: their mean.",
      header: ["learner", "trained at step", "later step", "example", "SHAPC"],
      rows: runs.flatMap((run) =>
        Object.entries(run.values).flatMap(([tau, rows]) =>
          rows.flatMap((row, i) => row.map((value, k) => [run.learner, tau, Number(tau) + 1 + k, i + 1, value])),
        ),
      ),
    };
  },

  // Examples that are still correct, and forgotten ones.
  outcomes(context) {
    const runs = selectedRuns(context);
    if (!runs.length) return null;
    const kinds = Object.keys(runs[0].outcomes);
    const rowsOf = (kind) =>
      runs.map((run) => {
        const [mean, low, high, n] = run.outcomes[kind];
        return { slot: run.slot, name: run.learner, mean, low, high, n };
      });
    const panels = (width) =>
      kinds.map((kind) =>
        dotPanel({
          width,
          title: kind,
          rows: rowsOf(kind),
          domain: [0, 1],
          xLabel: "SHAPC-Mean",
          label: `SHAPC-Mean, ${kind}: ${rowsOf(kind)
            .map((row) => `${row.name} ${formatNumber(row.mean, 2)}`)
            .join(", ")}.`,
        }),
      );
    return {
      minWidth: 260,
      count: kinds.length,
      panels,
      legend: [],
      note: "Whiskers: 95 % intervals over examples. No mark: no such examples.",
      header: ["learner", "outcome", "mean", "low", "high", "pairs"],
      rows: kinds.flatMap((kind) => rowsOf(kind).map((row) => [row.name, kind, row.mean, row.low, row.high, row.n])),
    };
  },
});
