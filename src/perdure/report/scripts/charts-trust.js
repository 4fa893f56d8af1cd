// The charts on trust and retraining.

const selectedFindings = ({ data, figure }, part) => data.trust.runs[Number(selectedValue(figure, "run"))]?.[part] ?? null;
const controlNote = "Gray: uninformative controls.";
const RETRAINED = { mege: "MeGe ↑", reco_rate: "ReCo, rates ↑", reco_precision: "ReCo, precisions ↑" };

Object.assign(CHARTS, {
  // One panel per side: the bias of every explainer with its interval at each share.
  bias(context) {
    const { data } = context;
    const findings = selectedFindings(context, "bias");
    if (!findings) return null;
    const { shares, sides } = findings;
    // Explainers measured at a hidden layer have different players and are not comparable; they appear in the table only.
    const explainers = findings.explainers.filter((explainer) => explainer.layer === null);
    const layered = findings.explainers.filter((explainer) => explainer.layer !== null);
    if (!explainers.length) return null;
    const all = explainers.flatMap((explainer) => [...explainer.cells.flat(2), ...explainer.floor.flat()]).filter(known);
    const domain = [Math.min(0, ...all), Math.max(...all)];
    const floorOf = (side) => explainers[0].floor.map((row) => row[side]);
    const panels = (width) =>
      sides.map((side, j) =>
        whiskerPanel({
          width,
          title: `${side} of the ranking`,
          names: shares.map((share) => `${share} %`),
          domain,
          series: explainers.map((explainer) => ({
            slot: data.trust.slots[explainer.name],
            name: explainer.name,
            values: explainer.cells.map((row) => row[j]),
          })),
          floor: floorOf(j),
          xLabel: "share of the variables",
          yLabel: "bias",
          label: `Bias, ${side} ${shares[0]} % of the variables: ${explainers.map((explainer) => `${explainer.name} ${formatNumber(explainer.cells[0][j][0], 4)}`).join(", ")}.`,
        }),
      );
    return {
      minWidth: 310,
      count: sides.length,
      panels,
      legend: [
        ...explainers.map((explainer) => ({ slot: data.trust.slots[explainer.name], name: explainer.name, line: false })),
        { slot: "floor", name: "noise floor", rule: true },
      ],
      note: `${controlNote} Dotted: score of an unbiased map, caused by the sampling noise of the Shapley values. Whiskers: 95 % intervals over examples.${layered.map((explainer) => ` Not drawn: ${explainer.name}, measured at layer ${explainer.layer}, where the players are different.`).join("")}`,
      header: ["explainer", "side", "share, %", "bias", "low", "high", "corrected", "noise floor"],
      rows: findings.explainers.flatMap((explainer) =>
        sides.flatMap((side, j) =>
          shares.map((share, i) => [explainer.name, side, share, ...explainer.cells[i][j], explainer.corrected[i][j], explainer.floor[i][j]]),
        ),
      ),
    };
  },

  // MeGe, ReCo and the accuracy against noise; the levels are evenly spaced.
  retraining(context) {
    const { data, figure } = context;
    const findings = selectedFindings(context, "retraining");
    const distance = selectedValue(figure, "distance");
    if (!findings?.levels[0].scores[findings.methods[0]][distance]) return null;
    const { levels, methods } = findings;
    const names = levels.map((level) => level.name);
    const of = (method, kind) => levels.map((level) => level.scores[method][distance][kind]);
    const drawn = (kind) =>
      methods.map((name) => {
        const [values, low, high] = [0, 1, 2].map((end) => of(name, kind).map((value) => value[end]));
        const slot = data.trust.slots[name];
        return isControl(slot) ? { slot, name, values } : { slot, name, values, low, high };
      });
    const accuracy = levels.map((level) => level.accuracy.reduce((sum, explainer) => sum + explainer, 0) / level.accuracy.length);
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
                .flatMap((explainer) => [...explainer.values, ...(explainer.low ?? [])])
                .filter(known),
            ),
            1,
          ],
          series: drawn(kind),
          label: `${title} without noise: ${methods.map((name) => `${name} ${formatNumber(of(name, kind)[0][0], 2)}`).join(", ")}.`,
        }),
      ),
      linePanel({
        ...basis,
        width,
        title: "accuracy, held-out folds",
        domain: [0, 1],
        series: [{ slot: 7, name: "mean accuracy", values: accuracy }],
        label: `Mean accuracy by noise: ${accuracy.map((value, i) => `${names[i]} % ${formatNumber(value, 2)}`).join(", ")}.`,
      }),
    ];
    return {
      minWidth: 180,
      count: 4,
      panels,
      legend: methods.map((name) => ({ slot: data.trust.slots[name], name, line: true })),
      note: `${controlNote} Bands: 95 % intervals over examples. Distance: ${distance}.`,
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

  // The run's checkpoints and retrained networks.
  checkpoints(context) {
    const { data, figure } = context;
    const findings = selectedFindings(context, "checkpoints");
    const distance = selectedValue(figure, "distance");
    if (!findings?.scores[findings.methods[0]][distance]) return null;
    const retrained = selectedFindings(context, "retraining")?.levels[0].scores ?? {};
    const kinds = { mege: "MeGe ↑", reco_rate: "ReCo, rates ↑" };
    const row = (name, value, hollow) => {
      const [mean, low, high] = intervalOf(value);
      return { slot: data.trust.slots[name], name: hollow ? "retrained" : name, mean, low, high, hollow };
    };
    const rowsOf = (kind) =>
      findings.methods.flatMap((name) => {
        const other = retrained[name]?.[distance]?.[kind];
        return [row(name, findings.scores[name][distance][kind], false), ...(other ? [row(name, other, true)] : [])];
      });
    const panels = (width) => [
      ...Object.entries(kinds).map(([kind, title]) =>
        dotPanel({
          width,
          title,
          rows: rowsOf(kind),
          domain: [0, 1],
          xLabel: "higher is better",
          label: `${title} between checkpoints: ${findings.methods.map((name) => `${name} ${formatNumber(findings.scores[name][distance][kind][0], 2)}, retrained ${formatNumber(retrained[name]?.[distance]?.[kind][0], 2)}`).join("; ")}.`,
        }),
      ),
      dotPanel({
        width,
        title: "SHAPC of the same maps ↑",
        rows: findings.methods.map((name) => row(name, [findings.shapc[name], null, null], false)),
        domain: [0, 1],
        xLabel: "higher is more similar",
        label: `SHAPC between checkpoints: ${findings.methods.map((name) => `${name} ${formatNumber(findings.shapc[name], 2)}`).join(", ")}.`,
      }),
    ];
    return {
      minWidth: 280,
      count: 3,
      panels,
      legend: [],
      note: `${controlNote} Filled: between checkpoints; hollow, "retrained": between folds. Whiskers: 95 % intervals over examples. Distance: ${distance}.`,
      header: ["explainer", "between", "score", "mean", "low", "high"],
      rows: findings.methods.flatMap((name) => [
        ...Object.keys(kinds).map((kind) => [name, "checkpoints", kinds[kind], ...findings.scores[name][distance][kind]]),
        ...Object.keys(kinds).flatMap((kind) =>
          retrained[name]?.[distance]
            ? [[name, "retrained networks", kinds[kind], ...retrained[name][distance][kind]]]
            : [],
        ),
        [name, "checkpoints", "SHAPC", findings.shapc[name], null, null],
      ]),
    };
  },
});
