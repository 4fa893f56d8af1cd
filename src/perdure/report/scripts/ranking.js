// CL_score with the reader's weights: the only computation in the page, with the formula of metrics.cl_score.

// The sum of weight x criterion. If a criterion with positive weight is missing, so is the score; with `leaveOut`, missing
// criteria are ignored and the other weights scaled to sum to 1.
function clScore(criteria, weights, leaveOut) {
  const names = Object.keys(weights);
  const absent = names.filter((name) => weights[name] > 0 && !known(criteria[name]));
  if (absent.length && !leaveOut) return { score: null, absent };
  const present = names.filter((name) => known(criteria[name]));
  const total = present.reduce((sum, name) => sum + weights[name], 0);
  if (total === 0) return { score: null, absent };
  const score = present.reduce((sum, name) => sum + weights[name] * criteria[name], 0);
  return { score: absent.length ? score / total : score, absent };
}

function startRanking(data, state) {
  const root = document.getElementById("ranking");
  if (!root) return () => {};
  const sliders = [...root.querySelectorAll("input[type=range]")];
  const leaveOut = root.querySelector("#leave-out");
  const list = root.querySelector("ol");
  let exact = data.weights.W1;

  const read = () => {
    const raw = Object.fromEntries(sliders.map((slider) => [slider.name, Number(slider.value)]));
    const sum = Object.values(raw).reduce((a, b) => a + b, 0);
    return Object.fromEntries(Object.entries(raw).map(([name, value]) => [name, sum ? value / sum : 0]));
  };

  const update = () => {
    const weights = exact ?? read();
    for (const slider of sliders) {
      const share = `${(100 * weights[slider.name]).toFixed(1)} %`;
      slider.setAttribute("aria-valuetext", share);
      root.querySelector(`output[for="${slider.id}"]`).textContent = share;
    }
    for (const button of root.querySelectorAll("button[data-weights]")) {
      button.setAttribute("aria-pressed", String(exact === data.weights[button.dataset.weights]));
    }
    const scored = data.learners
      .filter((learner) => learner.benchmark === state.benchmark && !learner.reference)
      .map((learner) => {
        const criteria = Object.fromEntries(data.criteria.map((name) => [name, intervalOf(learner.measures[name])[0]]));
        return { learner, ...clScore(criteria, weights, leaveOut.checked) };
      });
    const ranked = scored.filter((entry) => known(entry.score)).sort((a, b) => b.score - a.score);
    const unknown = scored.filter((entry) => !known(entry.score));
    list.replaceChildren(
      ...ranked.map((entry, index) => rankedItem(entry, index + 1, data)),
      ...unknown.map((entry) => unrankedItem(entry)),
    );
    const first = ranked.slice(0, 3).map(({ learner, score }) => `${learner.title} ${score.toFixed(3)}`);
    root.querySelector(".status").textContent = first.length
      ? `Highest: ${first.join(", ")}.`
      : "No learner has a score with these weights.";
  };

  for (const slider of sliders) {
    slider.addEventListener("input", () => {
      exact = null;
      update();
    });
  }
  for (const button of root.querySelectorAll("button[data-weights]")) {
    button.addEventListener("click", () => {
      exact = data.weights[button.dataset.weights];
      for (const slider of sliders) slider.value = 100 * (exact[slider.name] ?? 0);
      update();
    });
  }
  leaveOut.checked = data.partial;
  leaveOut.addEventListener("change", update);
  return update;
}

function rankedItem({ learner, score, absent }, index, data) {
  const share = data.first_places[learner.name];
  const note = [
    absent.length ? `without ${absent.join(", ")}` : "",
    known(share) ? `ranked first for ${(100 * share).toFixed(share < 0.1 ? 1 : 0)} % of all weightings` : "",
  ].filter(Boolean);
  const bar = tag("span", { class: `bar ${colorClass(learner.slot)}`, style: `width:${(100 * score).toFixed(2)}%` });
  return tag(
    "li",
    { "data-learner": learner.name, "data-score": score },
    tag("span", { class: "rank", "aria-hidden": "true" }, String(index)),
    tag("span", { class: "who" }, learner.title),
    tag("span", { class: "score" }, score.toFixed(4)),
    tag("span", { class: "track", "aria-hidden": "true" }, bar),
    tag("span", { class: "soft" }, note.join("; ")),
  );
}

function unrankedItem({ learner, absent }) {
  const reason = absent.length ? `missing: ${absent.join(", ")}` : "all weights are 0";
  return tag(
    "li",
    { "data-learner": learner.name, class: "unranked" },
    tag("span", { class: "rank" }, "–"),
    tag("span", { class: "who" }, learner.title),
    tag("span", { class: "score" }, "–"),
    tag("span", {}),
    tag("span", { class: "soft" }, reason),
  );
}
