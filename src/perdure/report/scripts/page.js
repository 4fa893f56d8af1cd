// Start-up: theme, menus and charts.

const MAX_SHOWN = 8; // learners in the charts at first; the reader can select others

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

// Mark the section that is being read in the table of contents, and keep its entry in view.
function startContents() {
  const links = [...document.querySelectorAll("nav a")];
  const sections = links.map((link) => document.getElementById(link.hash.slice(1)));
  const list = document.querySelector("nav ul");
  let current;
  const mark = () => {
    const line = innerHeight / 3;
    let index = sections.findLastIndex((section) => section.getBoundingClientRect().top <= line);
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
    if (atEnd && scrollY > 0) index = links.length - 1;
    const link = links[Math.max(index, 0)];
    if (link === current) return;
    current?.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
    current = link;
    list.scrollLeft = link.offsetLeft - list.offsetLeft - (list.clientWidth - link.offsetWidth) / 2;
  };
  let waiting = false;
  addEventListener(
    "scroll",
    () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        mark();
      });
    },
    { passive: true },
  );
  mark();
}

// Long tables show their first rows until the reader asks for all.
function startRows() {
  const button = document.getElementById("all-rows");
  if (!button) return;
  const table = document.querySelector("table.summary");
  const label = button.textContent;
  const toggle = (all) => {
    table.classList.toggle("short", !all);
    button.setAttribute("aria-expanded", String(all));
    button.textContent = all ? "Show fewer learners" : label;
  };
  button.addEventListener("click", () => toggle(button.getAttribute("aria-expanded") !== "true"));
  toggle(false);
}

function startCards() {
  const cards = [...document.querySelectorAll("details.card")];
  const button = document.getElementById("open-cards");
  button?.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") !== "true";
    for (const card of cards) card.open = open;
    button.setAttribute("aria-expanded", String(open));
    button.textContent = open ? "Close all" : "Open all";
  });
}

const whenIdle = (work) =>
  window.requestIdleCallback ? requestIdleCallback(work, { timeout: 200 }) : setTimeout(work, 1);
const widthOf = (figure) =>
  Math.floor(figure.querySelector(".panels").clientWidth || figure.parentNode.clientWidth - 40);

const PRINT_WIDTH = 770; // width inside a chart's frame on paper, at the scale of the print style

function isNear(figure) {
  const { top, bottom } = figure.getBoundingClientRect();
  return bottom > -innerHeight && top < 2 * innerHeight;
}

function start() {
  const data = JSON.parse(document.getElementById("audit-data").textContent);
  const figures = [...document.querySelectorAll("figure.chart")];
  const state = { benchmark: data.learners[0].benchmark, off: new Set() };
  const rank = startRanking(data, state);
  const benchmarkLearners = () => data.learners.filter((learner) => learner.benchmark === state.benchmark);

  const stale = new Set();
  const waitingTables = [...document.querySelectorAll(".tall")];
  const showDrawn = () => document.documentElement.toggleAttribute("data-drawn", !stale.size && !waitingTables.length);

  const drawFigures = (subset, forPrint = false) => {
    const learners = benchmarkLearners().filter((learner) => !state.off.has(learner.slot));
    const names = new Set(learners.map((learner) => learner.name));
    const context = { data, shown: learners, benchmark: state.benchmark, names };
    // Read all widths first: reading a width after drawing forces a new layout of the page each time.
    const widths = subset.map(forPrint ? () => PRINT_WIDTH : widthOf);
    subset.forEach((figure, index) => {
      render(figure, context, widths[index]);
      stale.delete(figure);
    });
    showDrawn();
  };

  // One chart or one long table at a time. Without the layout of all tables, a picture of the whole page has blank regions.
  const drawRest = () => {
    if (stale.size) drawFigures([...stale].slice(0, 1));
    else if (waitingTables.length) waitingTables.shift().classList.add("laid-out");
    else return;
    showDrawn();
    whenIdle(drawRest);
  };

  // Draw charts near the screen immediately, the others when the browser is idle.
  const redraw = () => {
    for (const figure of figures) stale.add(figure);
    drawFigures(figures.filter(isNear));
    whenIdle(drawRest);
  };

  const pick = () => {
    const subset = benchmarkLearners();
    state.off = new Set(subset.slice(MAX_SHOWN).map((learner) => learner.slot));
    const boxes = subset.map((learner) => {
      const box = tag("input", { type: "checkbox" });
      box.checked = !state.off.has(learner.slot);
      box.addEventListener("change", () => {
        state.off[box.checked ? "delete" : "add"](learner.slot);
        redraw();
      });
      return tag("label", {}, box, legendKey(learner.slot), learner.title);
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

  document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  startTheme();
  startContents();
  startRows();
  startCards();
  startTables();
  pick();
  redraw();
  rank();
  whenIdle(startViewer);
  addEventListener("beforeprint", () => drawFigures(figures, true));
  addEventListener("afterprint", redraw);
  let lastWidth = innerWidth;
  let waiting;
  addEventListener("resize", () => {
    if (innerWidth === lastWidth) return; // on phones, the address bar only changes the height
    lastWidth = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 120);
  });
}

start();
