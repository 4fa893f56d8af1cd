// The viewer: one example with the attribution maps and predictions of every learner and step.

const imageUrl = (png) => `url(data:image/png;base64,${png})`;
const isCorrect = (example, row, column) => example.predictions[row][column] === example.label;

// Whether some learner predicted the example correctly at an earlier step and wrongly at the last one.
function isForgotten(example) {
  return example.predictions.some((line) => {
    const correct = line.filter((prediction) => prediction !== null).map((prediction) => prediction === example.label);
    return correct.length > 1 && correct.slice(0, -1).includes(true) && !correct.at(-1);
  });
}

function startViewer() {
  const root = document.getElementById("viewer");
  if (!root) return;
  const view = JSON.parse(document.getElementById("viewer-data").textContent);
  const strip = root.querySelector(".strip");
  const task = root.querySelector("#viewer-task");
  const outcome = root.querySelector("#viewer-outcome");
  const under = root.querySelector("#viewer-under");
  under.closest("label").hidden = view.examples.every((example) => example.names);
  root.querySelector(".signed i").style.background = `linear-gradient(90deg, ${view.colors.join(", ")})`;
  let listed = [];
  let selected = 0;

  for (const number of [...new Set(view.examples.map((example) => example.task))].sort((a, b) => a - b)) {
    task.append(tag("option", { value: number }, `task ${number}`));
  }

  const show = (index, focus = false, byHand = true) => {
    selected = Math.max(0, Math.min(listed.length - 1, index));
    [...strip.children].forEach((button, i) => {
      button.setAttribute("aria-pressed", String(i === selected));
      button.tabIndex = i === selected ? 0 : -1;
      if (i === selected && focus) button.focus();
    });
    const current = strip.children[selected];
    if (current && byHand) strip.scrollTo({ left: current.offsetLeft - strip.clientWidth / 2 });
    root
      .querySelector(".grid")
      .replaceChildren(...(listed.length ? [mapGrid(view, listed[selected], under.checked)] : []));
    const example = listed[selected];
    root.querySelector(".viewed").textContent = example
      ? `Example ${selected + 1} of ${listed.length}: ${example.label}, task ${example.task}`
      : "No example matches the selection.";
    root.querySelector(".scale-low").textContent = example ? `−${example.limit.toPrecision(2)}` : "";
    root.querySelector(".scale-high").textContent = example ? `+${example.limit.toPrecision(2)}` : "";
  };

  const list = () => {
    listed = view.examples.filter(
      (example) =>
        (task.value === "" || example.task === Number(task.value)) &&
        (outcome.value === "" || isForgotten(example) === (outcome.value === "forgotten")),
    );
    strip.replaceChildren(
      ...listed.map((example, i) => {
        const name = `example ${i + 1}: ${example.label}, task ${example.task}`;
        const attributes = { type: "button", title: name, "aria-label": name };
        const button = example.names
          ? tag("button", { ...attributes, class: "words" }, String(i + 1))
          : tag("button", { ...attributes, style: `background-image:${imageUrl(example.image)}` });
        button.addEventListener("click", () => show(i));
        return button;
      }),
    );
    show(0, false, false);
  };

  strip.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: selected + 1, ArrowLeft: selected - 1, Home: 0, End: listed.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    show(moves[event.key], true);
  });
  root.querySelector(".earlier").addEventListener("click", () => show(selected - 1));
  root.querySelector(".later").addEventListener("click", () => show(selected + 1));
  for (const control of [task, outcome]) control.addEventListener("change", list);
  under.addEventListener("change", () => show(selected));
  list();
}

function mapGrid(view, example, under) {
  const head = tag(
    "tr",
    {},
    tag("th", { scope: "col" }, "learner"),
    ...view.steps.map((step) => tag("th", { scope: "col" }, `after step ${step}`)),
  );
  const body = view.learners.map((learner, row) =>
    tag(
      "tr",
      {},
      tag("th", { scope: "row" }, learner),
      ...view.steps.map((step, column) => mapCell(view, example, row, column, under)),
    ),
  );
  return tag(
    "table",
    { class: "maps" },
    tag("caption", {}, `Attribution maps for ${example.label}, for every learner and step on one color scale`),
    tag("thead", {}, head),
    tag("tbody", {}, ...body),
  );
}

function mapCell(view, example, row, column, under) {
  if (!example.present[row][column]) return tag("td", {}, tag("span", { class: "soft" }, "–"));
  const prediction = example.predictions[row][column];
  const correct = isCorrect(example, row, column);
  const text = prediction === null ? "–" : `${correct ? "✓" : "✗"} ${prediction}`;
  const verdict = tag("span", { class: correct ? "correct" : "wrong" }, text);
  if (example.names) {
    const draw = example.kind === "text" ? coloredWords : featureBars;
    return tag("td", { class: "named" }, draw(view, example, example.levels[row][column]), verdict);
  }
  const at = (index, count) => (count > 1 ? (100 * index) / (count - 1) : 0);
  const [width, height] = example.size;
  const map = tag("div", {
    class: "map",
    role: "img",
    "aria-label": `map of ${view.learners[row]} after step ${view.steps[column]}`,
    style:
      `aspect-ratio:${width}/${height * (example.kind === "series" ? 3 : 1)};background-image:${imageUrl(example.sheet)};` +
      `background-size:${100 * view.steps.length}% ${100 * view.learners.length}%;` +
      `background-position:${at(column, view.steps.length)}% ${at(row, view.learners.length)}%`,
  });
  const ground = tag("div", { class: "ground", style: under ? `background-image:${imageUrl(example.image)}` : "" }, map);
  const frame = tag("div", { class: `frame ${under ? "under" : ""} ${example.kind}` }, ground);
  return tag("td", {}, frame, verdict);
}

// The words of a text on the color of their attribution; the number is in the tooltip.
function coloredWords(view, example, levels) {
  const spoken = example.names.map((word, i) => [word, i]).filter(([word]) => word !== ""); // padding has no text
  const words = spoken.map(([word, i]) =>
    tag(
      "span",
      {
        class: "word",
        title: `${word}: ${((levels[i] / 100) * example.limit).toPrecision(2)}`,
        style: `background:${levelColor(view, levels[i])};color:${Math.abs(levels[i]) > 60 ? "#fff" : "#111"}`,
      },
      word,
    ),
  );
  return tag("p", { class: "text" }, ...words.flatMap((word) => [word, " "]));
}

// The features of a row as bars, the largest magnitudes first.
function featureBars(view, example, levels) {
  const order = levels.map((level, i) => i).sort((a, b) => Math.abs(levels[b]) - Math.abs(levels[a]));
  const bars = order.slice(0, 12).map((i) => {
    const share = Math.abs(levels[i]) / 2;
    const value = `${((levels[i] / 100) * example.limit).toPrecision(2)}`;
    const bar = tag("i", {
      style: `width:${share}%;margin-left:${levels[i] < 0 ? 50 - share : 50}%;background:${levelColor(view, Math.sign(levels[i]) * 100)}`,
    });
    return tag("li", { title: `${example.names[i]}: ${value}` }, tag("span", {}, example.names[i]), tag("b", {}, bar));
  });
  const hidden = order.length - bars.length;
  return tag("ul", { class: "bars" }, ...bars, ...(hidden > 0 ? [tag("li", { class: "soft" }, `${hidden} smaller`)] : []));
}

// A color between white and the ends of the scale.
function levelColor(view, level) {
  const end = view.colors[level < 0 ? 0 : 2];
  return `color-mix(in srgb, ${end} ${Math.abs(level)}%, white)`;
}
