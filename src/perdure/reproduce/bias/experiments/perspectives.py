"""Rankings of the same explainers by bias, infidelity, sensitivity, sparsity and robustness (the bias paper's Table 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perdure import figures
from perdure.audits.bias.measure import BiasSettings
from perdure.audits.bias.results import BiasResult
from perdure.metrics import Interval, KendallMatrix, kendall_matrix
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.experiments.table import BACKGROUND, SAMPLES, table_lenet_bias
from perdure.reproduce.bias.measures.perspectives import PerspectivesResult, measure_perspectives
from perdure.reproduce.bias.table_text import SHORT

NAMES = ("bias", "infidelity", "sensitivity", "sparsity", "robustness")
"""The paper's perspectives; it calls the one of its own metric objectiveness."""
HIGHER_IS_BETTER = ("sparsity", "robustness")
"""Studies that measure sparsity consider sparser maps better."""


@dataclass(frozen=True)
class Settings:
    """Sizes of the comparison."""

    examples: int = 8
    removals: int = 300
    perturbations: int = 3
    radius: float = 0.02
    attack_radius: float = 0.1
    attempts: int = 20
    samples: int = SAMPLES


SETTINGS = Settings()


def run(workspace: Workspace) -> str:
    """Measure all perspectives on the LeNet, save the figure, and return the section."""
    model, bias = table_lenet_bias(workspace)
    x, y = model.examples(SETTINGS.examples)
    methods = [entry.method for entry in bias.explainers if not entry.control]
    result = measure_perspectives(
        model.network,
        x,
        y,
        background=model.background(BACKGROUND),
        removals=SETTINGS.removals,
        radius=SETTINGS.radius,
        perturbations=SETTINGS.perturbations,
        attack_radius=SETTINGS.attack_radius,
        attempts=SETTINGS.attempts,
        settings=BiasSettings(methods=methods, samples=SETTINGS.samples),
        progress=lambda activity, done, total: workspace.progress(f"perspectives: {activity}", done, total),
    )
    return perspectives_section(bias, result, workspace)


def perspectives_section(bias: BiasResult, result: PerspectivesResult, workspace: Workspace) -> str:
    """Return the section: the table, the agreement of the rankings and the figure."""
    order = [name for name in SHORT if any(entry.method == name for entry in result.explainers)]
    values = {name: _values(name, order, bias, result) for name in NAMES}
    explainers = [index for index, name in enumerate(order) if name not in ("constant", "random")]
    lower_is_better = {name: _sign(name) * np.array([values[name][i].mean for i in explainers]) for name in NAMES}
    agreement = kendall_matrix(lower_is_better)
    picture = "bias-perspectives.png"
    titles = [SHORT[order[i]] for i in explainers]
    figures.save(figures.explainer_rank_lines(titles, lower_is_better), workspace.pictures / picture)
    lines = [
        (
            f"{bias.subject or 'The network'}. Bias: all shares and sides, {bias.examples} images; the other measures: "
            f"{result.examples} of these images. Infidelity (Yeh et al. 2019): the share of the drops under "
            f"{result.removals} random "
            "removed squares that the optimally scaled map does not predict. Sensitivity: the largest relative "
            "change of the map "
            f"under {result.perturbations} draws of noise up to {result.radius:g} in units of the normalized "
            "input. Sparsity: the "
            "Gini index. Robustness (Ghorbani et al. 2019): the share of the 10 % most important pixels that are still "
            "among them after an attack on the map, a random search over "
            f"{result.attempts} perturbations by {result.attack_radius:g} that keep the predicted class. "
            "Grad-CAM's map is upsampled to the image here, so it has no bias at the pixels."
        ),
        "",
        "| explainer | bias ↓ | infidelity ↓ | sensitivity ↓ | sparsity (Gini) | robustness ↑ |",
        "|---|---|---|---|---|---|",
    ]
    for row, name in enumerate(order):
        cells = [_cell(values[measure][row]) for measure in NAMES]
        lines.append(f"| {SHORT[name]} | " + " | ".join(cells) + " |")
    lines += ["", *_agreements(agreement), "", _first_ranked(titles, lower_is_better), "", _controls(order, values), ""]
    lines += [f"Refused: `{name}` ({reason})." for name, reason in result.refused.items()]
    return "\n".join([*lines, f"![ranking of the explainers by each measure]({picture})", ""])


def _values(name: str, order: list[str], bias: BiasResult, result: PerspectivesResult) -> list[Interval]:
    if name != "bias":
        return [getattr(result[method], name) for method in order]
    missing = Interval(math.nan, math.nan, math.nan, 0, "none")
    measured = {entry.method: entry for entry in bias.explainers if entry.layer is None}
    return [measured[method].overall if method in measured else missing for method in order]


def _sign(name: str) -> int:
    return -1 if name in HIGHER_IS_BETTER else 1


def _cell(value: Interval) -> str:
    if math.isnan(value.mean):
        return "–"
    half = "" if math.isnan(value.low) else f" ± {(value.high - value.low) / 2:.3f}"
    return f"{value.mean:.4f}{half}"


def _agreements(agreement: KendallMatrix) -> list[str]:
    """Return a table of Kendall's tau for every pair of measures, and its reading."""
    lines = ["| Kendall's τ | " + " | ".join(agreement.measures) + " |", "|" + "---|" * (len(agreement.measures) + 1)]
    for name, row in zip(agreement.measures, agreement.tau, strict=True):
        lines.append(f"| {name} | " + " | ".join("–" if math.isnan(tau) else f"{tau:+.2f}" for tau in row) + " |")
    others = {name: float(agreement.tau[0, i]) for i, name in enumerate(agreement.measures) if i}
    nearest = max(others, key=lambda name: -math.inf if math.isnan(others[name]) else others[name])
    negative = [name for name, tau in others.items() if tau < 0]
    reading = f"The ranking by bias agrees most with that by {nearest} (τ {others[nearest]:+.2f})"
    reading += f"; it is negatively correlated with {' and '.join(negative)}." if negative else "."
    count = int(agreement.counts[0, 1:].max())
    return [*lines, "", f"{reading} τ is computed over {count} explainers, without the controls."]


def _first_ranked(titles: list[str], lower_is_better: dict[str, np.ndarray]) -> str:
    first_by_measure = {name: titles[int(np.nanargmin(values))] for name, values in lower_is_better.items()}
    listing = ", ".join(f"{first} by {name}" for name, first in first_by_measure.items())
    same = len(set(first_by_measure.values())) == 1
    return f"Ranked first: {listing}. " + (
        "All measures agree." if same else "The measures rank different explainers first."
    )


def _controls(order: list[str], values: dict[str, list[Interval]]) -> str:
    """Return the number of explainers that score no better than a control, for each measure."""
    parts = []
    for name in NAMES:
        means = {method: _sign(name) * value.mean for method, value in zip(order, values[name], strict=True)}
        control = min(("constant", "random"), key=lambda method: means[method])
        beaten = [m for m, mean in means.items() if m not in ("constant", "random") and mean > means[control]]
        parts.append(f"{name} {len(beaten)} ({control})")
    return (
        f"Number of explainers that score worse than the better control: {', '.join(parts)}. A constant map is perfectly "
        "robust and insensitive, so these two perspectives alone do not show that a map is informative."
    )


EXPERIMENT = Experiment(
    name="bias-perspectives",
    title="Other perspectives on the same explainers",
    paper="Table 2",
    run=run,
)
