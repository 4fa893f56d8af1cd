"""Compute the pictures of the concept pages, and compare the numbers in their captions with the computed ones.

    python tools/concept_pictures.py docs

The pictures are in docs/images/concepts; they are made by the build and not committed. All networks are trained here, on the
digits of scikit-learn; CLAMP's curves are exact. The caption of a picture is the paragraph below it in docs/concepts. The
build stops if a caption differs from the computed one; numbers may differ a little between machines.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn

import perdure
from perdure import audits, explain, figures, learners, metrics, surrogate, tasks
from perdure.metrics.shapc import TOP
from perdure.runs import load_run

BLUE, ORANGE = "#0072B2", "#D55E00"
RUNS = ("naive", "rehearsal", "cumulative")
TRAINING = learners.Training(epochs=8)
NUMBER = r"[-+]?\d*\.?\d+"
Picture = tuple[Figure, str]


def train_runs(folder: Path) -> Path:
    """Train three learners on Split Digits, one seed each, and return the folder of their records."""
    benchmark = tasks.load("split-digits")
    for name in RUNS:
        run = learners.Run(benchmark, learners.get(name), network="small-conv", training=TRAINING)
        learners.execute(run, folder / name)
    return folder


def performance_picture(runs: Path) -> Picture:
    """The accuracy matrices of three learners."""
    figure = Figure(figsize=(6.8, 2.6), layout="constrained")
    captions = []
    for panel, name in zip(figure.subplots(1, 3, sharey=True), RUNS, strict=True):
        table = perdure.Record.open(runs / name).table
        panel.imshow(table, vmin=0, vmax=1, cmap="Blues")
        for (i, j), value in np.ndenumerate(table):
            color = "white" if value > 0.6 else "black"
            panel.text(j, i, f"{100 * value:.0f}", ha="center", va="center", fontsize=9, color=color)
        for step in range(len(table)):
            panel.add_patch(_frame(step, step, ORANGE, 2))
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("accuracy (%) on task")
        panel.set_xticks(range(len(table)), [str(task + 1) for task in range(len(table))])
        panel.set_yticks(range(len(table)), [str(step + 1) for step in range(len(table))])
        captions.append(f"{name} {metrics.average_accuracy(table):.2f} and {metrics.average_forgetting(table):.2f}")
        if name == RUNS[0]:
            panel.set_ylabel("after training on task")
    return figure, f"Average accuracy and forgetting: {', '.join(captions)}."


def reasons_picture(runs: Path) -> Picture:
    """The map of one test image right after its task, at the end under two learners, and under an untrained network."""
    names = RUNS[1:]
    audit = perdure.audit([runs / name for name in names], shapc=True, examples=8)
    calibrated = {result.learner: result.calibrated.mean for result in audit.shapc}
    first, second = (load_run(runs / name) for name in names)
    x, target = first.data.inputs(0, np.array([0])), torch.as_tensor(first.data.labels(0)[:1])
    networks = {
        "right after task 1": first.network(0),
        **{f"{name},\nafter task 5": run.network(4) for name, run in zip(names, (first, second), strict=True)},
        "untrained": first.initial_network(1).eval(),
    }
    background = first.data.background(0, 100, 0)
    maps = [explain.attribute(network, x, target, background=background, samples=400) for network in networks.values()]
    if not torch.equal(_weights(first.network(0)), _weights(second.network(0))):
        raise ValueError("both learners must begin with the same network after task 1: they share the seed")
    scores = [float(metrics.shapc(maps[0], later)[0]) for later in maps[1:]]
    figure = Figure(figsize=(6.4, 1.9), layout="constrained")
    panels = figure.subplots(1, 1 + len(maps))
    _draw_image(panels[0], x[0, 0].numpy(), "gray_r")
    panels[0].set_title("test image", fontsize=9)
    labels = ["", *(f"SHAPC {score:.2f}" for score in scores)]
    for panel, title, values, label in zip(panels[1:], networks, maps, labels, strict=True):
        _draw_image(panel, values[0, 0].numpy(), "RdBu_r", important=True)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel(label, fontsize=9)
    accuracies = {entry.learner: entry.measures["average_accuracy"].mean for entry in audit.learners}
    parts = [f"{name} {calibrated[name]:.2f} and {accuracies[name]:.2f}" for name in names]
    image = ", ".join(f"{score:.2f}" for score in scores)
    return figure, (
        f"SHAPC of this image: {image}. Calibrated SHAPC and average accuracy of the learners: {', '.join(parts)}."
    )


def _weights(network: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(network.parameters())


def _draw_image(panel: Axes, values: NDArray[Any], colors: str, important: bool = False) -> None:
    """Draw an image or a map; with ``important``, also a frame around each value of the important region."""
    limit = float(np.abs(values).max())
    panel.imshow(values, cmap=colors, vmin=0 if colors == "gray_r" else -limit, vmax=limit)
    panel.set_xticks([])
    panel.set_yticks([])
    if important:
        count = max(1, int(TOP * values.size + 1e-9))
        for y, x in np.argwhere(values >= np.sort(values, axis=None)[-count]):
            panel.add_patch(_frame(int(x), int(y), "black", 1))


def _frame(x: int, y: int, color: str, width: float) -> Rectangle:
    return Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor=color, linewidth=width)


CAUSES = {
    "forgets, tasks do not interfere": {"transfer": [[1, 0], [0, 1]], "retention": 0.3},
    "remembers, task 2 harms task 1": {"transfer": [[1, 0], [-0.6, 1]], "retention": 0.9},
}
"""Two explanations of the same drop: they give the same curves as long as each task is visited once."""


def causes_curves(name: str, curriculum: list[int]) -> NDArray[np.float64]:
    """The exact curves of one explanation, (1, tasks, steps + 1)."""
    explanation = CAUSES[name]
    return surrogate.simulate(curriculum, explanation["transfer"], [0.5, 0.5], [0.8], [explanation["retention"]], [0.0])


def causes_picture() -> Picture:
    """Two explanations with the same curves in one curriculum and different curves in another."""
    figure = Figure(figsize=(6.8, 2.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True, width_ratios=(2, 3))
    estimates = []
    for panel, curriculum in zip(panels, ([0, 1], [0, 1, 0, 1]), strict=True):
        for (name, explanation), color, line in zip(CAUSES.items(), (ORANGE, BLUE), ("-", "--"), strict=True):
            curves = causes_curves(name, curriculum)
            panel.plot(curves[0, 0], line, marker="o", color=color, label=name)
            fit = surrogate.fit(curves, curriculum, examples=500, forecast=False)
            low, high = fit.intervals["retention"][0]
            estimates.append(f"{explanation['retention']:.1f} as {fit.retention[0]:.2f} [{low:.2f}, {high:.2f}]")
        panel.set_xticks(range(len(curriculum) + 1), ["start", *(f"task {task + 1}" for task in curriculum)])
        panel.set_xlabel("after training on")
    panels[0].set_ylabel("performance on task 1")
    panels[0].set_title("each task once: the same curves", fontsize=10)
    panels[1].set_title("tasks revisited: different curves", fontsize=10)
    panels[1].legend(fontsize=9, loc="lower right")
    return figure, (
        f"CLAMP estimates a retention of {estimates[0]} and of {estimates[1]} with each task once; "
        f"of {estimates[2]} and of {estimates[3]} with both tasks revisited."
    )


def small_network(shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A network with one hidden layer for the digits."""
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 32), nn.ReLU(), nn.Linear(32, outputs))


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """The digits of scikit-learn, (n, 1, 8, 8) from 0 to 1, and their labels."""
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images.reshape(-1, 1, 8, 8) / 16, dtype=torch.float32), torch.tensor(labels)


BIAS_METHODS = ("integrated_gradients", "grad", "lrp")


def trust_picture() -> Picture:
    """The maps of three explainers and a control next to Shapley values, with the bias over twenty images."""
    x, y = digits()
    torch.manual_seed(0)
    network = small_network((1, 8, 8), 10)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[:1200]), y[:1200]).backward()
        optimizer.step()
    network.eval()
    settings = audits.BiasSettings(methods=list(BIAS_METHODS), permutations=100)
    result = audits.measure_bias(network, x[1200:1220], y[1200:1220], background=x[:100], settings=settings)
    example = {"background": x[:100], "reduce": "pixels"}
    maps = {"Shapley values": explain.attribute(network, x[1200:1201], y[1200:1201], "shapley", samples=100, **example)}
    for method in BIAS_METHODS:
        options = {"baseline": "mean"} if method == "integrated_gradients" else {}
        maps[method] = explain.attribute(network, x[1200:1201], y[1200:1201], method, **example, **options)
    maps["random"] = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 8, 8)))
    figure = Figure(figsize=(6.8, 1.9), layout="constrained")
    panels = figure.subplots(1, len(maps) + 1)
    _draw_image(panels[0], x[1200, 0].numpy(), "gray_r")
    panels[0].set_title("test image", fontsize=9)
    for panel, (name, values) in zip(panels[1:], maps.items(), strict=True):
        _draw_image(panel, values[0].numpy(), "RdBu_r")
        panel.set_title(name.replace("_", "\n"), fontsize=9)
        panel.set_xlabel(
            "reference" if name == "Shapley values" else f"bias {result[name].overall.mean:.4f}", fontsize=9
        )
    parts = [f"{name} {result[name].overall.mean:.4f}" for name in (*BIAS_METHODS, "constant", "random")]
    return figure, f"Mean attribution bias over 20 images: {', '.join(parts)}."


def retraining_picture(folder: Path) -> Picture:
    """Shares of distances up to each threshold: of pairs that are both right, and of pairs of which one is right."""
    x, y = digits()
    methods = ("expected_gradients", "random")
    result = audits.retrain(
        (x[:400], y[:400]),
        network=small_network,
        training=learners.Training(epochs=12, lr=0.05),
        methods=methods[0],
        noise=(),
        examples=60,
        settings=audits.MapSettings(samples=50),
        out=folder / "retraining",
    )
    figure = Figure(figsize=(6.8, 2.9), layout="constrained")
    captions = []
    for panel, name in zip(figure.subplots(1, 2, sharex=True, sharey=True), methods, strict=True):
        pairs, scores = result.stages[0].pairs[name], result.scores(name, "l2-unit")
        distances = pairs.distances["l2-unit"]
        for rows, label, color in ((pairs.both_right, "both right", BLUE), (pairs.one_right, "one right", ORANGE)):
            known = np.sort(distances[rows & ~np.isnan(distances)])
            panel.plot(
                known, np.arange(1, len(known) + 1) / len(known), color=color, label=f"{label} ({len(known)} pairs)"
            )
        gamma = scores.plain.rate_threshold
        shares = [float((distances[rows] <= gamma).mean()) for rows in (pairs.one_right, pairs.both_right)]
        panel.plot([gamma, gamma], shares, color="black", linewidth=2)
        panel.text(gamma, shares[1] + 0.02, f"ReCo {scores.reco_rate.mean:.2f}", ha="right", fontsize=9)
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("distance of the two maps")
        captions.append(f"{name} {scores.mege.mean:.2f} and {scores.reco_rate.mean:.2f} (p = {scores.p_value:.3f})")
        if name == methods[0]:
            panel.set_ylabel("share of pairs up to this distance")
            panel.legend(fontsize=9, loc="lower right")
    constant = result.scores("constant", "l2-unit")
    captions.append(f"constant {constant.mege.mean:.2f} and {constant.reco_rate.mean:.2f}")
    return figure, f"MeGe and ReCo of rates: {', '.join(captions)}."


def similar_captions(first: str, second: str) -> bool:
    """Return whether two captions have the same words and similar numbers.

    Numbers with fewer than two decimals must be equal. Others may differ by a fifth, and by five units of the last decimal.
    """
    texts = [" ".join(text.replace("*", "").split()) for text in (first, second)]
    words = [re.sub(NUMBER, "#", text) for text in texts]
    return words[0] == words[1] and all(map(_similar, *(re.findall(NUMBER, text) for text in texts)))


def _similar(first: str, second: str) -> bool:
    decimals = len(first.partition(".")[2])
    allowed = 5.5 * 10.0**-decimals + 0.2 * abs(float(first)) if decimals >= 2 else 0.0
    return abs(float(first) - float(second)) <= allowed


def page_caption(page: str, name: str) -> str:
    """Return the paragraph below a picture of a page."""
    found = re.search(rf"^!\[[^\]]*\]\([^)]*images/concepts/{name}\.png\)\n\n(.*?)\n\n", page, re.DOTALL | re.MULTILINE)
    return "" if found is None else found[1]


def compute_pictures(folder: Path) -> dict[str, Picture]:
    """Return every picture with its caption; ``folder`` is for records."""
    runs = train_runs(folder / "runs")
    return {
        "performance": performance_picture(runs),
        "reasons": reasons_picture(runs),
        "causes": causes_picture(),
        "trust": trust_picture(),
        "retraining": retraining_picture(folder),
    }


def main(docs: Path) -> int:
    """Write all pictures; return 1 if a caption differs."""
    torch.set_num_threads(1)
    code = 0
    with TemporaryDirectory() as folder:
        pictures = compute_pictures(Path(folder))
    (docs / "images" / "concepts").mkdir(parents=True, exist_ok=True)
    for name, (figure, caption) in pictures.items():
        figures.save(figure, docs / "images" / "concepts" / f"{name}.png")
        sys.stdout.write(f"{name}: {caption}\n")
        page = docs / "concepts" / f"{name}.md"
        if not similar_captions(page_caption(page.read_text(encoding="utf-8"), name), caption):
            sys.stderr.write(f"{page}: the caption of the picture differs from the computed one\n")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
