// Start: theme, pickers, and everything that is drawn from the audit's numbers.

const MOST_SHOWN = 8; // lines in one chart; the reader can choose others

function startTheme() {
  const button = document.getElementById("theme");
  const dark = () =>
    getComputedStyle(document.documentElement).colorScheme.trim() === "dark" ||
    (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const name = () => button.setAttribute("aria-label", dark() ? "Change to light" : "Change to dark");
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    name();
  });
  name();
}

const whenIdle = (work) =>
  window.requestIdleCallback ? requestIdleCallback(work, { timeout: 200 }) : setTimeout(work, 1);
const widthOf = (figure) =>
  Math.floor(figure.querySelector(".panels").clientWidth || figure.parentNode.clientWidth - 40);

const PAPER = 770; // what a sheet has room for inside a chart's frame, at the scale of the style for print

function isNear(figure) {
  const { top, bottom } = figure.getBoundingClientRect();
  return bottom > -innerHeight && top < 2 * innerHeight;
}

function start() {
  const data = JSON.parse(document.getElementById("audit-data").textContent);
  const figures = [...document.querySelectorAll("figure.chart")];
  const state = { benchmark: data.learners[0].benchmark, off: new Set() };
  const rank = startRanking(data, state);
  const here = () => data.learners.filter((one) => one.benchmark === state.benchmark);

  const stale = new Set();

  const drawSome = (some, onPaper = false) => {
    const learners = here().filter((one) => !state.off.has(one.slot));
    const names = new Set(learners.map((one) => one.name));
    const context = { data, shown: learners, benchmark: state.benchmark, names };
    // All widths first: reading one after drawing another would lay out the whole page each time.
    const widths = some.map(onPaper ? () => PAPER : widthOf);
    some.forEach((figure, place) => {
      render(figure, context, widths[place]);
      stale.delete(figure);
    });
    document.documentElement.toggleAttribute("data-drawn", !stale.size);
  };

  const drawRest = () => {
    if (!stale.size) return;
    drawSome([...stale].slice(0, 1));
    whenIdle(drawRest);
  };

  // What is near the screen at once, the rest when nothing else is to be done.
  const redraw = () => {
    for (const figure of figures) stale.add(figure);
    drawSome(figures.filter(isNear));
    whenIdle(drawRest);
  };

  const pick = () => {
    const some = here();
    state.off = new Set(some.slice(MOST_SHOWN).map((one) => one.slot));
    const boxes = some.map((one) => {
      const box = tag("input", { type: "checkbox" });
      box.checked = !state.off.has(one.slot);
      box.addEventListener("change", () => {
        state.off[box.checked ? "delete" : "add"](one.slot);
        redraw();
      });
      return tag("label", {}, box, sample(one.slot), one.title);
    });
    document.getElementById("learners").replaceChildren(...boxes);
  };

  const benchmark = document.getElementById("benchmark");
  benchmark?.addEventListener("change", () => {
    state.benchmark = benchmark.value;
    pick();
    redraw();
    rank();
  });
  for (const figure of figures) {
    for (const button of figure.querySelectorAll("button[data-save]"))
      button.addEventListener("click", () => download(figure, button.dataset.save));
    for (const choice of figure.querySelectorAll("select")) choice.addEventListener("change", redraw);
    const details = figure.querySelector("details");
    details.addEventListener("toggle", () => details.open && showNumbers(details, figure.chart));
  }

  startTheme();
  startTables();
  pick();
  redraw();
  rank();
  whenIdle(startViewer);
  addEventListener("beforeprint", () => drawSome(figures, true));
  addEventListener("afterprint", redraw);
  let wide = innerWidth;
  let waiting;
  addEventListener("resize", () => {
    if (innerWidth === wide) return; // a phone's address bar only changes the height
    wide = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 120);
  });
}

start();
