// The viewer: one sample, its attribution map under every learner and step, and what each predicted.

const picture = (png) => `url(data:image/png;base64,${png})`;
const isRight = (sample, row, column) => sample.predictions[row][column] === sample.label;

// Forgotten: some learner was right about the sample at one step and is wrong at the last.
function isForgotten(sample) {
  return sample.predictions.some((line) => {
    const right = line.filter((word) => word !== null).map((word) => word === sample.label);
    return right.length > 1 && right.slice(0, -1).includes(true) && !right.at(-1);
  });
}

function startViewer() {
  const room = document.getElementById("viewer");
  if (!room) return;
  const view = JSON.parse(document.getElementById("viewer-data").textContent);
  const strip = room.querySelector(".strip");
  const task = room.querySelector("#viewer-task");
  const outcome = room.querySelector("#viewer-outcome");
  const under = room.querySelector("#viewer-under");
  let listed = [];
  let chosen = 0;

  for (const number of [...new Set(view.samples.map((sample) => sample.task))].sort((a, b) => a - b)) {
    task.append(tag("option", { value: number }, `task ${number}`));
  }

  const show = (place, focus = false, byHand = true) => {
    chosen = Math.max(0, Math.min(listed.length - 1, place));
    [...strip.children].forEach((button, i) => {
      button.setAttribute("aria-pressed", String(i === chosen));
      button.tabIndex = i === chosen ? 0 : -1;
      if (i === chosen && focus) button.focus();
    });
    const current = strip.children[chosen];
    if (current && byHand) strip.scrollTo({ left: current.offsetLeft - strip.clientWidth / 2 });
    room
      .querySelector(".grid")
      .replaceChildren(...(listed.length ? [mapGrid(view, listed[chosen], under.checked)] : []));
    const sample = listed[chosen];
    room.querySelector(".about").textContent = sample
      ? `Sample ${chosen + 1} of ${listed.length}: ${sample.label}, task ${sample.task}`
      : "No sample is like that.";
    room.querySelector(".scale-low").textContent = sample ? `−${sample.limit.toPrecision(2)}` : "";
    room.querySelector(".scale-high").textContent = sample ? `+${sample.limit.toPrecision(2)}` : "";
  };

  const list = () => {
    listed = view.samples.filter(
      (sample) =>
        (task.value === "" || sample.task === Number(task.value)) &&
        (outcome.value === "" || isForgotten(sample) === (outcome.value === "forgotten")),
    );
    strip.replaceChildren(
      ...listed.map((sample, i) => {
        const name = `sample ${i + 1}: ${sample.label}, task ${sample.task}`;
        const button = tag("button", {
          type: "button",
          title: name,
          "aria-label": name,
          style: `background-image:${picture(sample.image)}`,
        });
        button.addEventListener("click", () => show(i));
        return button;
      }),
    );
    show(0, false, false);
  };

  strip.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: chosen + 1, ArrowLeft: chosen - 1, Home: 0, End: listed.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    show(moves[event.key], true);
  });
  room.querySelector(".earlier").addEventListener("click", () => show(chosen - 1));
  room.querySelector(".later").addEventListener("click", () => show(chosen + 1));
  for (const control of [task, outcome]) control.addEventListener("change", list);
  under.addEventListener("change", () => show(chosen));
  list();
}

function mapGrid(view, sample, under) {
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
      ...view.steps.map((step, column) => mapCell(view, sample, row, column, under)),
    ),
  );
  return tag(
    "table",
    { class: "maps" },
    tag("caption", {}, `Attribution to ${sample.label} under every learner and step, one colour scale`),
    tag("thead", {}, head),
    tag("tbody", {}, ...body),
  );
}

function mapCell(view, sample, row, column, under) {
  if (!sample.present[row][column]) return tag("td", {}, tag("span", { class: "soft" }, "–"));
  const word = sample.predictions[row][column];
  const right = isRight(sample, row, column);
  const at = (place, count) => (count > 1 ? (100 * place) / (count - 1) : 0);
  const [width, height] = sample.size;
  const map = tag("div", {
    class: "map",
    role: "img",
    "aria-label": `map of ${view.learners[row]} after step ${view.steps[column]}`,
    style:
      `aspect-ratio:${width}/${height};background-image:${picture(sample.sheet)};` +
      `background-size:${100 * view.steps.length}% ${100 * view.learners.length}%;` +
      `background-position:${at(column, view.steps.length)}% ${at(row, view.learners.length)}%`,
  });
  const ground = tag("div", { class: "ground", style: under ? `background-image:${picture(sample.image)}` : "" }, map);
  const frame = tag("div", { class: under ? "frame under" : "frame" }, ground);
  const told = word === null ? "–" : `${right ? "✓" : "✗"} ${word}`;
  return tag("td", {}, frame, tag("span", { class: right ? "right" : "wrong" }, told));
}
