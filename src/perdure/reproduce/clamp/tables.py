"""The paper's tables: estimates with intervals next to the printed values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perdure import surrogate
from perdure.reproduce.clamp import published
from perdure.reproduce.clamp.curves import PublishedCurves
from perdure.reproduce.formatting import format_markdown_table
from perdure.surrogate.diagnostics.intervals import interval_property_arrays, parameter_draws
from perdure.surrogate.result import BASELINES

REPLICATES, DRAWS = 400, 4000
_LEVELS = {"Naive_Rehearsal_1100": "Naive_Rehearsal_Low", "Naive_Rehearsal_1400": "Naive_Rehearsal_Low"}
_LEVELS |= {"Naive_Rehearsal_4400": "Naive_Rehearsal_High", "Naive_Rehearsal_5600": "Naive_Rehearsal_High"}
Array = NDArray[np.float64]


@dataclass(frozen=True)
class PublishedFits:
    """Fits of a data set: the default one, the exact one, and the authors' Adam."""

    data: PublishedCurves
    fit: surrogate.Fit
    exact: surrogate.Fit
    adam: surrogate.Fit
    drawn: dict[str, Array]
    """Properties of draws around the best explanation, with a leading axis."""
    competing: dict[str, Array]
    """Properties of all competing explanations, with a leading axis."""


def fit_published_curves(data: PublishedCurves) -> PublishedFits:
    """Return the three fits of a data set."""
    fit = surrogate.bootstrap(
        surrogate.fit(data.values, data.curriculum, algorithms=data.algorithms, tasks=data.tasks), REPLICATES
    )
    exact = surrogate.fit(data.values, data.curriculum, "least-squares", algorithms=data.algorithms, explanations=False)
    adam = surrogate.fit(data.values, data.curriculum, "adam", starts=1, forecast=False, algorithms=data.algorithms)
    points = parameter_draws(fit, DRAWS, np.random.default_rng(0))
    explanations = np.stack([fit.point, *(explanation.point for explanation in fit.explanations)])
    drawn, competing = (interval_property_arrays(fit.coordinates, batch) for batch in (points, explanations))
    return PublishedFits(data, fit, exact, adam, drawn, competing)


def format_estimate(fit: surrogate.Fit, name: str, index: int | tuple[int, int]) -> str:
    """Return a value with its interval; ° marks values not determined by the data alone."""
    value = getattr(fit, name)[index]
    low, high = fit.intervals[name][index]
    mark = "" if fit.diagnostics.supported[name][index] else "°"
    if np.isnan(value):
        return "–"
    return f"{value:.2f}" if low == high else f"{value:.2f}{mark} [{low:.2f}, {high:.2f}]"


def algorithm_table(fits: PublishedFits, paper: dict[str, tuple[float, float, float]]) -> str:
    """Return the table of algorithms; gamma and lambda of the paper are divided by their mean gamma, as in our fits."""
    mean = np.mean([values[0] for values in paper.values()])
    rows = []
    for index, name in enumerate(fits.data.algorithms):
        gamma, retention, translation = paper.get(name, (np.nan, np.nan, np.nan))
        in_paper = [
            f"{value:.2f}" if np.isfinite(value) else "–" for value in (gamma / mean, retention, translation / mean)
        ]
        cells = [format_estimate(fits.fit, key, index) for key in ("efficiency", "retention", "translation")]
        rows.append([name, cells[0], in_paper[0], cells[1], in_paper[1], cells[2], in_paper[2]])
    header = [
        "approach",
        "efficiency",
        "paper's γ / mean",
        "retention",
        "paper's h",
        "translation",
        "paper's λ / mean γ",
    ]
    return format_markdown_table(header, rows)


def transfer_table(fits: PublishedFits, paper: Sequence[Sequence[float]]) -> str:
    """Return the transfer matrix; columns of the paper are divided by their diagonal entry, as in our fits."""
    scaled = np.array(paper) / np.abs(np.diagonal(np.array(paper)))
    rows = []
    for trained, name in enumerate(fits.data.tasks):
        cells = [
            "1"
            if evaluated == trained
            else f"{format_estimate(fits.fit, 'transfer', (trained, evaluated))}; paper {scaled[trained, evaluated]:.2f}"
            for evaluated in range(len(fits.data.tasks))
        ]
        rows.append([f"**{name}**", *cells])
    return format_markdown_table(["trained \\ evaluated", *fits.data.tasks], rows)


def difficulty_table(fits: PublishedFits, paper: Sequence[float]) -> str:
    """Return the difficulties; their unit is arbitrary, so those of the paper are scaled to our median."""
    ours = [format_estimate(fits.fit, "difficulty", task) for task in range(len(paper))]
    unit = float(np.median(fits.fit.difficulty) / np.median(paper))
    return format_markdown_table(
        ["task", *fits.data.tasks],
        [["difficulty", *ours], ["paper's, in our unit", *(f"{unit * value:.2f}" for value in paper)]],
    )


def loss_table(studies: Sequence[PublishedFits]) -> str:
    """Return mean squared errors over all cells including t = 0."""
    rows = [
        [
            fits.data.name,
            published.LOSSES[fits.data.name],
            f"{fits.adam.loss:.5f}",
            f"{fits.exact.loss:.5f}",
            f"{fits.fit.loss:.5f}",
            f"{fits.exact.translation.max():.0f}",
            f"{fits.fit.translation.max():.1f}",
        ]
        for fits in studies
    ]
    header = ["data", "printed", "authors' Adam, one start", "exact", "with the weak prior"]
    return format_markdown_table([*header, "largest translation, exact", "with the prior"], rows)


def forecast_table(studies: Sequence[PublishedFits]) -> str:
    """Return held-out errors of the default fit, the exact fit and the simple predictors."""
    rows = [
        [
            fits.data.name,
            default.steps,
            default.cells,
            f"{default.model:.4f}",
            f"{exact.model:.4f}",
            *(f"{getattr(default, name):.4f}" for name in BASELINES),
            "yes" if default.beats_trivial else "**no**",
        ]
        for fits in studies
        for default, exact in zip(fits.fit.held_out, fits.exact.held_out, strict=True)
    ]
    header = [
        "data",
        "steps known",
        "cells",
        "with the prior",
        "exact",
        *(name.replace("_", " ") for name in BASELINES),
        "better than all",
    ]
    return format_markdown_table(header, rows)


def with_rehearsal_levels(fits: PublishedFits) -> surrogate.Fit:
    """Return the fit with rehearsal sizes renamed to low and high, so that data sets share names."""
    names = tuple(_LEVELS.get(name, name) for name in fits.fit.problem.algorithms)
    return replace(fits.fit, problem=replace(fits.fit.problem, algorithms=names))


def rank_table(ranks: surrogate.RankComparison) -> str:
    """Return Table 8 by rank."""
    paper = {
        name: [1 + sum(competitor[side] > values[side] for competitor in published.ACROSS.values()) for side in (0, 1)]
        for name, values in published.ACROSS.items()
    }
    rows = [
        [
            name,
            *(
                f"{ranks.ranks[side, index]:.0f} [{ranks.rank_low[side, index]:.0f}, {ranks.rank_high[side, index]:.0f}]"
                for side in (0, 1)
            ),
            *paper[name],
        ]
        for index, name in enumerate(ranks.algorithms)
    ]
    return format_markdown_table(
        ["algorithm", "MNIST rank", "CIFAR-100 rank", "paper, MNIST", "paper, CIFAR-100"], rows
    )
