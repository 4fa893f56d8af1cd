"""How the perspectives of the bias paper's Table 2 rank the same explainers: fidelity, sensitivity, sparsity, bias."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perdure import figures
from perdure.audits.bias.results import BiasResult
from perdure.metrics import Interval, KendallMatrix, kendall_matrix
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.experiments.table import BACKGROUND, BUDGET, lenet_bias
from perdure.reproduce.bias.measures.perspectives import PerspectivesResult, measure_perspectives
from perdure.reproduce.bias.table_text import SHORT

NAMES = ("bias", "infidelity", "sensitivity", "sparsity")


@dataclass(frozen=True)
class Settings:
    """Sizes of the comparison."""

    samples: int = 8
    removals: int = 300
    perturbations: int = 3
    radius: float = 0.02
    budget: int = BUDGET


SETTINGS = Settings()


def run(workspace: Workspace) -> str:
    """Measure all perspectives on the LeNet and return the section."""
    model, bias = lenet_bias(workspace)
    x, y = model.examples(SETTINGS.samples)
    found = measure_perspectives(
        model.network,
        x,
        y,
        background=model.background(BACKGROUND),
        methods=[entry.method for entry in bias.explainers if not entry.control],
        removals=SETTINGS.removals,
        radius=SETTINGS.radius,
        perturbations=SETTINGS.perturbations,
        budget=SETTINGS.budget,
        progress=lambda what, done, total: workspace.progress(f"perspectives: {what}", done, total),
    )
    return perspectives_section(bias, found, workspace)


def perspectives_section(bias: BiasResult, found: PerspectivesResult, workspace: Workspace) -> str:
    """Return the table, the agreement of the orders and the figure."""
    order = [name for name in SHORT if any(entry.method == name for entry in found.explainers)]
    values = {name: _values(name, order, bias, found) for name in NAMES}
    explainers = [index for index, name in enumerate(order) if name not in ("constant", "random")]
    # Sparsity is turned: the studies that ask for it call the sparser map the better one.
    ways = {
        name: (-1 if name == "sparsity" else 1) * np.array([values[name][i].mean for i in explainers]) for name in NAMES
    }
    agreement = kendall_matrix(ways)
    picture = "bias-perspectives.png"
    titles = [SHORT[order[i]] for i in explainers]
    figures.save(figures.rank_lines(titles, ways), workspace.pictures / picture)
    lines = [
        (
            f"The LeNet of the table above. Bias: all shares and sides, {bias.examples} images. The others: {found.samples} of "
            f"these images. Infidelity (Yeh et al. 2019): {found.removals} random squares removed, the map scaled best, as the "
            f"part of the drops it does not predict. Sensitivity: the largest relative change of the map under "
            f"{found.perturbations} draws of noise up to {found.radius:g} in units of the normalised input. Sparsity: the Gini "
            "index. Grad-CAM is the enlarged map here, so it has no bias at the pixels."
        ),
        "",
        "| explainer | bias ↓ | infidelity ↓ | sensitivity ↓ | sparsity (Gini) |",
        "|---|---|---|---|---|",
    ]
    for row, name in enumerate(order):
        cells = [_cell(values[one][row]) for one in NAMES]
        lines.append(f"| {SHORT[name]} | " + " | ".join(cells) + " |")
    lines += ["", *_agreements(agreement), "", _firsts(titles, ways), "", _controls(order, values), ""]
    lines += [f"Refused: `{name}` ({why})." for name, why in found.refused.items()]
    return "\n".join([*lines, f"![order of the explainers from each perspective]({picture})", ""])


def _values(name: str, order: list[str], bias: BiasResult, found: PerspectivesResult) -> list[Interval]:
    if name != "bias":
        return [getattr(found[method], name) for method in order]
    missing = Interval(math.nan, math.nan, math.nan, 0, "none")
    measured = {entry.method: entry for entry in bias.explainers if entry.layer is None}
    return [measured[method].overall if method in measured else missing for method in order]


def _cell(value: Interval) -> str:
    if math.isnan(value.mean):
        return "–"
    half = "" if math.isnan(value.low) else f" ± {(value.high - value.low) / 2:.3f}"
    return f"{value.mean:.4f}{half}"


def _agreements(found: KendallMatrix) -> list[str]:
    """Return Kendall's tau of every pair as a small table."""
    lines = ["| Kendall's τ | " + " | ".join(found.measures) + " |", "|" + "---|" * (len(found.measures) + 1)]
    for name, row in zip(found.measures, found.tau, strict=True):
        lines.append(f"| {name} | " + " | ".join("–" if math.isnan(tau) else f"{tau:+.2f}" for tau in row) + " |")
    others = {name: float(found.tau[0, i]) for i, name in enumerate(found.measures) if i}
    nearest = max(others, key=lambda name: -math.inf if math.isnan(others[name]) else others[name])
    against = [name for name, tau in others.items() if tau < 0]
    reading = f"The order by bias is nearest to that by {nearest} (τ {others[nearest]:+.2f})"
    reading += f"; {' and '.join(against)} order{'s' * (len(against) == 1)} rather the other way." if against else "."
    return [*lines, "", f"{reading} τ is over {int(found.counts[0, 1:].max())} explainers, without the controls."]


def _firsts(titles: list[str], ways: dict[str, np.ndarray]) -> str:
    firsts = {name: titles[int(np.nanargmin(values))] for name, values in ways.items()}
    said = ", ".join(f"{first} by {name}" for name, first in firsts.items())
    same = len(set(firsts.values())) == 1
    return f"First is {said}: " + (
        "all perspectives agree." if same else "the perspectives choose different explainers."
    )


def _controls(order: list[str], values: dict[str, list[Interval]]) -> str:
    """Say which explainers a meaningless map beats, perspective by perspective."""
    parts = []
    for name in NAMES:
        sign = -1 if name == "sparsity" else 1
        means = {method: sign * value.mean for method, value in zip(order, values[name], strict=True)}
        control = min(("constant", "random"), key=lambda method: means[method])
        beaten = [m for m, mean in means.items() if m not in ("constant", "random") and mean > means[control]]
        parts.append(f"{name} {len(beaten)} ({control})")
    return f"Explainers that do no better than the better control: {', '.join(parts)}."


EXPERIMENT = Experiment(
    name="bias-perspectives",
    title="Other perspectives on the same explainers",
    paper="Table 2",
    run=run,
)
