// Draws the four charts with all learners, and measures. The rest of the page (menus, ranking, viewer) is left out.
const data = JSON.parse(document.getElementById("audit-data").textContent);
const context = {
  data,
  shown: data.learners,
  benchmark: data.learners[0].benchmark,
  names: new Set(data.learners.map((entry) => entry.name)),
};
const figures = [...document.querySelectorAll("figure.chart")];

const renderChart = (figure) => render(figure, context, Math.floor(figure.querySelector(".panels").clientWidth));

function clearChart(figure) {
  const container = figure.querySelector(".panels");
  for (const panel of container.children) panel.destroy?.();
  container.replaceChildren();
}

// Milliseconds from the first statement of drawing until the browser has laid out and painted the frame.
window.timeDrawing = (id) => {
  const figure = document.getElementById(id);
  clearChart(figure);
  return new Promise((done) => {
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        const start = performance.now();
        renderChart(figure);
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => done(performance.now() - start);
        port2.postMessage(null);
      }),
    );
  });
};

for (const figure of figures) {
  renderChart(figure);
  for (const button of figure.querySelectorAll("button[data-save]"))
    button.addEventListener("click", () => download(figure, button.dataset.save));
  const details = figure.querySelector("details");
  details.addEventListener("toggle", () => details.open && showNumbers(details, figure.chart));
}
