// Charts of trust: bias of the explainers, and whether explanations survive retraining.

const trusted = ({ data, figure }, part) => data.trust.runs[Number(chosenIn(figure, "run"))]?.[part] ?? null;
const controlNote = "Grey: the controls, which say nothing.";
const RETRAINED = { mege: "MeGe ↑", reco_rate: "ReCo, rates ↑", reco_precision: "ReCo, precisions ↑" };

Object.assign(CHARTS, {
  // One picture for each side: every explainer's bias with its interval at each share.
  bias(context) {
    const { data } = context;
    const found = trusted(context, "bias");
    if (!found) return null;
    const { shares, sides } = found;
    // What was judged at a layer has other players: it is in the table, beside the rest it would mislead.
    const explainers = found.explainers.filter((one) => one.layer === null);
    const layered = found.explainers.filter((one) => one.layer !== null);
    if (!explainers.length) return null;
    const all = explainers.flatMap((one) => [...one.cells.flat(2), ...one.floor.flat()]).filter(known);
    const domain = [Math.min(0, ...all), Math.max(...all)];
    const floorOf = (side) => explainers[0].floor.map((row) => row[side]);
    const panels = (width) =>
      sides.map((side, j) =>
        whiskerPanel({
          width,
          title: `${side} of the ranking`,
          names: shares.map((share) => `${share} %`),
          domain,
          series: explainers.map((one) => ({
            slot: data.trust.slots[one.name],
            name: one.name,
            values: one.cells.map((row) => row[j]),
          })),
          floor: floorOf(j),
          xLabel: "share of the variables",
          yLabel: "bias",
          label: `Bias, ${side} ${shares[0]} % of the variables: ${explainers.map((one) => `${one.name} ${shown(one.cells[0][j][0], 4)}`).join(", ")}.`,
        }),
      );
    return {
      least: 310,
      count: sides.length,
      panels,
      legend: [
        ...explainers.map((one) => ({ slot: data.trust.slots[one.name], name: one.name, line: false })),
        { slot: "floor", name: "noise floor", rule: true },
      ],
      note: `${controlNote} Dotted: what a map without bias would score at the sampling noise of the Shapley values. Whiskers: 95 % over samples.${layered.map((one) => ` Not drawn: ${one.name}, judged at layer ${one.layer}, whose players are others.`).join("")}`,
      header: ["explainer", "side", "share, %", "bias", "low", "high", "corrected", "noise floor"],
      rows: found.explainers.flatMap((one) =>
        sides.flatMap((side, j) =>
          shares.map((share, i) => [one.name, side, share, ...one.cells[i][j], one.corrected[i][j], one.floor[i][j]]),
        ),
      ),
    };
  },

  // Both metrics and the accuracy against noise; the levels are drawn at even distances.
  retraining(context) {
    const { data, figure } = context;
    const found = trusted(context, "retraining");
    const distance = chosenIn(figure, "distance");
    if (!found?.levels[0].scores[found.methods[0]][distance]) return null;
    const { levels, methods } = found;
    const names = levels.map((level) => level.name);
    const of = (method, kind) => levels.map((level) => level.scores[method][distance][kind]);
    const drawn = (kind) =>
      methods.map((name) => {
        const [values, low, high] = [0, 1, 2].map((end) => of(name, kind).map((value) => value[end]));
        const slot = data.trust.slots[name];
        return isControl(slot) ? { slot, name, values } : { slot, name, values, low, high };
      });
    const accuracy = levels.map((level) => level.accuracy.reduce((sum, one) => sum + one, 0) / level.accuracy.length);
    const basis = { first: 0, count: levels.length, names, xLabel: "noise, %", height: 210 };
    const panels = (width) => [
      ...Object.entries(RETRAINED).map(([kind, title]) =>
        linePanel({
          ...basis,
          width,
          title,
          domain: [
            Math.min(
              0,
              ...drawn(kind)
                .flatMap((one) => [...one.values, ...(one.low ?? [])])
                .filter(known),
            ),
            1,
          ],
          series: drawn(kind),
          label: `${title} without noise: ${methods.map((name) => `${name} ${shown(of(name, kind)[0][0], 2)}`).join(", ")}.`,
        }),
      ),
      linePanel({
        ...basis,
        width,
        title: "accuracy, held-out folds",
        domain: [0, 1],
        series: [{ slot: 7, name: "mean accuracy", values: accuracy }],
        label: `Mean accuracy by noise: ${accuracy.map((value, i) => `${names[i]} % ${shown(value, 2)}`).join(", ")}.`,
      }),
    ];
    return {
      least: 180,
      count: 4,
      panels,
      legend: methods.map((name) => ({ slot: data.trust.slots[name], name, line: true })),
      note: `${controlNote} Bands: 95 % over samples. Distance: ${distance}.`,
      header: [
        "noise, %",
        "accuracy",
        "explainer",
        "score",
        "mean",
        "low",
        "high",
        "p of rates",
        "p (Holm)",
        "S=",
        "S≠",
      ],
      rows: levels.flatMap((level, i) =>
        methods.flatMap((name) => {
          const scores = level.scores[name][distance];
          return Object.keys(RETRAINED).map((kind) => [
            level.name,
            accuracy[i],
            name,
            RETRAINED[kind],
            ...scores[kind],
            scores.p,
            scores.holm,
            scores.same,
            scores.different,
          ]);
        }),
      ),
    };
  },

  // The run's own checkpoints beside networks trained again.
  checkpoints(context) {
    const { data, figure } = context;
    const found = trusted(context, "checkpoints");
    const distance = chosenIn(figure, "distance");
    if (!found?.scores[found.methods[0]][distance]) return null;
    const again = trusted(context, "retraining")?.levels[0].scores ?? {};
    const kinds = { mege: "MeGe ↑", reco_rate: "ReCo, rates ↑" };
    const row = (name, value, hollow) => {
      const [mean, low, high] = ends(value);
      return { slot: data.trust.slots[name], name: hollow ? "trained again" : name, mean, low, high, hollow };
    };
    const rowsOf = (kind) =>
      found.methods.flatMap((name) => {
        const other = again[name]?.[distance]?.[kind];
        return [row(name, found.scores[name][distance][kind], false), ...(other ? [row(name, other, true)] : [])];
      });
    const panels = (width) => [
      ...Object.entries(kinds).map(([kind, title]) =>
        dotPanel({
          width,
          title,
          rows: rowsOf(kind),
          domain: [0, 1],
          xLabel: "higher is better",
          label: `${title} between checkpoints: ${found.methods.map((name) => `${name} ${shown(found.scores[name][distance][kind][0], 2)}, trained again ${shown(again[name]?.[distance]?.[kind][0], 2)}`).join("; ")}.`,
        }),
      ),
      dotPanel({
        width,
        title: "SHAPC of the same maps ↑",
        rows: found.methods.map((name) => row(name, [found.shapc[name], null, null], false)),
        domain: [0, 1],
        xLabel: "higher is more alike",
        label: `SHAPC between checkpoints: ${found.methods.map((name) => `${name} ${shown(found.shapc[name], 2)}`).join(", ")}.`,
      }),
    ];
    return {
      least: 280,
      count: 3,
      panels,
      legend: [],
      note: `${controlNote} Filled: between checkpoints; hollow, "trained again": between folds. Whiskers: 95 % over samples. Distance: ${distance}.`,
      header: ["explainer", "between", "score", "mean", "low", "high"],
      rows: found.methods.flatMap((name) => [
        ...Object.keys(kinds).map((kind) => [name, "checkpoints", kinds[kind], ...found.scores[name][distance][kind]]),
        ...Object.keys(kinds).flatMap((kind) =>
          again[name]?.[distance]
            ? [[name, "networks trained again", kinds[kind], ...again[name][distance][kind]]]
            : [],
        ),
        [name, "checkpoints", "SHAPC", found.shapc[name], null, null],
      ]),
    };
  },
});
