// Charts of SHAPC: does the learner keep deciding for the same reasons?

const QUANTITIES = {
  calibrated: "calibrated: 0 chance, 1 noise ceiling",
  shapc: "SHAPC",
  independent: "SHAPC of independent draws",
  ceiling: "noise ceiling",
  floor: "chance floor",
};

const chosenIn = (figure, name) => figure.querySelector(`select[name="${name}"]`)?.value;
const slotBy = (learners, one) => learners.find((entry) => entry.name === one.learner).slot;

// The audited runs of the learners shown, of the seed chosen.
function audited({ data, shown: learners, benchmark, names, figure }) {
  const seed = chosenIn(figure, "seed");
  return data.stability
    .filter((one) => one.benchmark === benchmark && names.has(one.learner) && one.seed === seed)
    .map((one) => ({ ...one, slot: slotBy(learners, one) }));
}

// (tau, t) of a matrix of steps x steps where t is after tau.
const laterPairs = (matrix) =>
  matrix.flatMap((row, tau) => row.flatMap((value, t) => (t > tau && known(value) ? [[tau, t, value]] : [])));

Object.assign(CHARTS, {
  // Mean over runs with single runs as dots: calibrated, plain, and spread.
  reasons({ shown: learners, data }) {
    const kinds = ["shapc_calibrated", "shapc_mean", "shapc_var"];
    const used = learners.filter((one) => known(ends(one.measures.shapc_mean)[0]));
    if (!used.length) return null;
    const rowsOf = (kind) =>
      used.map((one) => {
        const [mean, low, high] = ends(one.measures[kind]);
        return {
          slot: one.slot,
          name: one.title,
          mean,
          low,
          high,
          points: (one.values[kind] ?? []).map((value, i) => ({ value, name: `${one.runs[i]}: ${shown(value)}` })),
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
          label: `${label}: ${rows.map((row) => `${row.name} ${shown(row.mean, 2)}`).join(", ")}.`,
        });
      });
    return {
      least: 260,
      count: kinds.length,
      panels,
      legend: [],
      note: "Large mark: mean with its 95 % interval over runs (over samples when there is one run). Small dots: single runs.",
      header: ["learner", "measure", "mean", "low", "high"],
      rows: kinds.flatMap((kind) =>
        used.map((one) => [one.title, data.measures[kind].label, ...ends(one.measures[kind])]),
      ),
    };
  },

  // The (tau, t) matrix of each learner.
  pairs(context) {
    const { figure } = context;
    const name = chosenIn(figure, "quantity");
    const runs = audited(context);
    if (!runs.length) return null;
    const panels = (width) =>
      runs.map((one) => {
        const matrix = one.matrices[name];
        const values = matrix.slice(0, -1).map((row, tau) => row.map((value, t) => (t > tau ? value : null)).slice(1));
        const rows = values.map((_, tau) => String(tau + 1));
        const columns = matrix.slice(1).map((_, t) => String(t + 2));
        return heatPanel({
          width,
          title: one.learner,
          rows,
          columns,
          values,
          colour: inViridis,
          xLabel: "later step t",
          yLabel: "own step τ",
          label: `${QUANTITIES[name]} of ${one.learner}: ${laterPairs(matrix)
            .map(([tau, t, value]) => `${tau + 1} to ${t + 1} ${shown(value, 2)}`)
            .join(", ")}.`,
        });
      });
    return {
      least: 210,
      count: runs.length,
      panels,
      ramp: { colour: inViridis, from: 0, to: 1, name: QUANTITIES[name] },
      header: ["learner", "seed", "own step", "later step", ...Object.keys(QUANTITIES)],
      rows: runs.flatMap((one) =>
        laterPairs(one.matrices.shapc).map(([tau, t]) => [
          one.learner,
          one.seed,
          tau + 1,
          t + 1,
          ...Object.keys(QUANTITIES).map((kind) => one.matrices[kind][tau][t]),
        ]),
      ),
    };
  },

  // Between floor and ceiling: one picture for each own step, a line over the later steps, its band from chance to noise.
  between(context) {
    const runs = audited(context);
    if (!runs.length) return null;
    const steps = Math.max(...runs.map((one) => one.matrices.shapc.length));
    const own = [...Array(steps - 1).keys()].filter((tau) =>
      runs.some((one) => one.matrices.independent[tau]?.some(known)),
    );
    const panels = (width) =>
      own.map((tau) => {
        const of = (one, kind) => one.matrices[kind][tau].slice(tau + 1);
        const series = runs
          .filter((one) => one.matrices.independent[tau]?.some(known))
          .map((one) => ({
            slot: one.slot,
            name: one.learner,
            values: of(one, "independent"),
            low: of(one, "floor"),
            high: of(one, "ceiling"),
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
          label: `SHAPC of independent draws, ${title}. At the last step: ${series.map((one) => `${one.name} ${shown(one.values.at(-1), 2)}`).join(", ")}.`,
        });
      });
    return {
      least: 190,
      count: own.length,
      panels,
      legend: runs.map((one) => ({ slot: one.slot, name: one.learner, line: true })),
      note: "Line: independent draws of the maps. Band: from the floor (shuffled maps) to the ceiling (two draws of one network).",
      header: ["learner", "own step", "later step", "independent", "floor", "ceiling"],
      rows: runs.flatMap((one) =>
        laterPairs(one.matrices.independent).map(([tau, t, value]) => [
          one.learner,
          tau + 1,
          t + 1,
          value,
          one.matrices.floor[tau][t],
          one.matrices.ceiling[tau][t],
        ]),
      ),
    };
  },

  // Every sample a dot, at the last step.
  spread(context) {
    const runs = audited(context);
    if (!runs.length) return null;
    const own = [...new Set(runs.flatMap((one) => Object.keys(one.values)))].filter((tau) =>
      runs.some((one) => one.values[tau]?.some((row) => row.some(known))),
    );
    const rowsOf = (tau) =>
      runs
        .filter((one) => one.values[tau])
        .map((one) => {
          const last = one.values[tau].map((row) => row.at(-1)).filter(known);
          return {
            slot: one.slot,
            name: one.learner,
            mean: one.matrices.shapc[tau - 1].at(-1),
            points: last.map((value, i) => ({ value, name: `sample ${i + 1}: ${shown(value)}` })),
          };
        });
    const panels = (width) =>
      own.map((tau) =>
        dotPanel({
          width,
          title: `task of step ${tau}`,
          rows: rowsOf(tau),
          domain: [0, 1],
          xLabel: "SHAPC of a sample at the last step",
          label: `Distribution over samples, task of step ${tau}: mean ${rowsOf(tau)
            .map((row) => `${row.name} ${shown(row.mean, 2)}`)
            .join(", ")}.`,
        }),
      );
    return {
      least: 250,
      count: own.length,
      panels,
      legend: [],
      note: "Small dots: samples. Large mark: their mean.",
      header: ["learner", "own step", "later step", "sample", "SHAPC"],
      rows: runs.flatMap((one) =>
        Object.entries(one.values).flatMap(([tau, rows]) =>
          rows.flatMap((row, i) => row.map((value, k) => [one.learner, tau, Number(tau) + 1 + k, i + 1, value])),
        ),
      ),
    };
  },

  // Samples still right against forgotten ones.
  outcomes(context) {
    const runs = audited(context);
    if (!runs.length) return null;
    const kinds = Object.keys(runs[0].outcomes);
    const rowsOf = (kind) =>
      runs.map((one) => {
        const [mean, low, high, n] = one.outcomes[kind];
        return { slot: one.slot, name: one.learner, mean, low, high, n };
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
            .map((row) => `${row.name} ${shown(row.mean, 2)}`)
            .join(", ")}.`,
        }),
      );
    return {
      least: 260,
      count: kinds.length,
      panels,
      legend: [],
      note: "Whiskers: 95 % over samples. No mark: no such sample.",
      header: ["learner", "outcome", "mean", "low", "high", "pairs"],
      rows: kinds.flatMap((kind) => rowsOf(kind).map((row) => [row.name, kind, row.mean, row.low, row.high, row.n])),
    };
  },
});
