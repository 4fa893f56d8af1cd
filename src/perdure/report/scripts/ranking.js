// CL_score under weights of the reader's own: the one thing the page computes, with the formula of metrics.cl_score.

// Sum of weight x criterion. A criterion with weight that is not known makes the score missing, unless it may be left out:
// then the other weights are scaled to sum to 1.
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
  const room = document.getElementById("ranking");
  if (!room) return () => {};
  const sliders = [...room.querySelectorAll("input[type=range]")];
  const leaveOut = room.querySelector("#leave-out");
  const list = room.querySelector("ol");
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
      room.querySelector(`output[for="${slider.id}"]`).textContent = share;
    }
    for (const button of room.querySelectorAll("button[data-weights]")) {
      button.setAttribute("aria-pressed", String(exact === data.weights[button.dataset.weights]));
    }
    const scored = data.learners
      .filter((one) => one.benchmark === state.benchmark && !one.reference)
      .map((one) => {
        const criteria = Object.fromEntries(data.criteria.map((name) => [name, ends(one.measures[name])[0]]));
        return { one, ...clScore(criteria, weights, leaveOut.checked) };
      });
    const ranked = scored.filter((entry) => known(entry.score)).sort((a, b) => b.score - a.score);
    const unknown = scored.filter((entry) => !known(entry.score));
    list.replaceChildren(
      ...ranked.map((entry, place) => ranking(entry, place + 1, data)),
      ...unknown.map((entry) => unranked(entry)),
    );
    const first = ranked.slice(0, 3).map(({ one, score }) => `${one.title} ${score.toFixed(3)}`);
    room.querySelector(".told").textContent = first.length
      ? `Highest: ${first.join(", ")}.`
      : "No learner has a score under these weights.";
  };

  for (const slider of sliders) {
    slider.addEventListener("input", () => {
      exact = null;
      update();
    });
  }
  for (const button of room.querySelectorAll("button[data-weights]")) {
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

function ranking({ one, score, absent }, place, data) {
  const share = data.first_places[one.name];
  const note = [
    absent.length ? `without ${absent.join(", ")}` : "",
    known(share) ? `first under ${(100 * share).toFixed(share < 0.1 ? 1 : 0)} % of all weightings` : "",
  ].filter(Boolean);
  const bar = tag("span", { class: `bar ${look(one.slot)}`, style: `width:${(100 * score).toFixed(2)}%` });
  return tag(
    "li",
    { "data-learner": one.name, "data-score": score },
    tag("span", { class: "place", "aria-hidden": "true" }, String(place)),
    tag("span", { class: "who" }, one.title),
    tag("span", { class: "score" }, score.toFixed(4)),
    tag("span", { class: "track", "aria-hidden": "true" }, bar),
    tag("span", { class: "soft" }, note.join("; ")),
  );
}

function unranked({ one, absent }) {
  const why = absent.length ? `${absent.join(", ")} not known` : "no criterion has weight";
  return tag(
    "li",
    { "data-learner": one.name, class: "unranked" },
    tag("span", { class: "place" }, "–"),
    tag("span", { class: "who" }, one.title),
    tag("span", { class: "score" }, "–"),
    tag("span", {}),
    tag("span", { class: "soft" }, why),
  );
}
