"""Pictures of whether learners keep deciding for the same reasons, as in the figures of the SHAPC paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from perdure.audits import MEASURES, Audit, ShapcResult
from perdure.audits.shapc.maps import KeptSample
from perdure.base.errors import InputError
from perdure.figures.attributions import CLIPPED, overlay, show_image
from perdure.figures.style import colour, shortened

BARS = ("average_accuracy", "forgetting", "shapc_mean", "shapc_var")


def _results(audit: Audit) -> dict[str, list[ShapcResult]]:
    """Return the results of each learner, in the audit's order."""
    found: dict[str, list[ShapcResult]] = {}
    for entry in audit.learners:
        own = [result for result in audit.stability if result.run in entry.runs]
        if own:
            found[entry.title] = own
    if not found:
        raise InputError("the audit holds no SHAPC; make it with stability=True or perdure audit --shapc")
    return found


def attribution_strip(samples: Mapping[str, KeptSample], class_names: Sequence[str] = (), title: str = "") -> Figure:
    """One sample's attributions through the tasks, a row for each learner (Figure 1, upper part).

    ``samples`` maps learners to the same sample as each of them kept it. Every row has a colour scale of its own, common to
    its steps; below each map is what the learner decided.
    """
    first = next(iter(samples.values()))
    steps = sorted(first.maps)
    figure = Figure(figsize=(1.45 * (len(steps) + 1) + 0.5, 1.7 * len(samples) + 0.5), layout="constrained")
    panels = figure.subplots(len(samples), len(steps) + 1, squeeze=False)
    for row, (learner, kept) in enumerate(samples.items()):
        if kept.sample != first.sample or kept.step != first.step:
            raise InputError(
                f"{learner}: expected sample {first.sample + 1} of step {first.step + 1} for every learner"
            )
        show_image(panels[row, 0], kept.picture, learner)
        limit = float(np.quantile(np.abs(np.stack(list(kept.maps.values()))), CLIPPED)) or 1.0
        for column, step in enumerate(steps, start=1):
            overlay(panels[row, column], kept.picture.mean(axis=0) / 255, kept.maps[step].astype(np.float64), limit)
            right = kept.predicted[step] == kept.label
            panels[row, column].set_xlabel(
                ("✓ " if right else "✗ ") + _name(kept.predicted[step], class_names), fontsize=7
            )
            if row == 0:
                panels[row, column].set_title(f"after task {step + 1}", fontsize=8)
    panels[0, 0].set_title(title or _name(first.label, class_names), fontsize=8)
    return figure


def _name(unit: int, names: Sequence[str]) -> str:
    return names[unit] if unit < len(names) else f"class {unit + 1}"


def stability_lines(audit: Audit, task: int = 0) -> Figure:
    """Accuracy, forgetting and SHAPC of one task after each later step (Figure 1, lower left)."""
    figure = Figure(figsize=(8.4, 2.7), layout="constrained")
    panels = figure.subplots(1, 3, sharex=True)
    for index, (learner, results) in enumerate(_results(audit).items()):
        entry = next(one for one in audit.learners if one.title == learner)
        tau = entry.curriculum.index(task)
        column = entry.table[tau:, task]
        steps = np.arange(tau + 1, len(entry.table) + 1)
        best = np.maximum.accumulate(column)
        style = {"color": colour(index), "linewidth": 1.6, "marker": "o", "markersize": 3}
        panels[0].plot(steps, column, label=learner, **style)
        panels[1].plot(steps, best - column, **style)
        rows = np.array([one.matrices["shapc"][tau, tau + 1 :] for one in results])
        panels[2].plot(steps[1:], rows.mean(axis=0), **style)
        for row in rows if len(rows) > 1 else ():
            panels[2].plot(steps[1:], row, color=colour(index), linewidth=0.6, alpha=0.5)
    for panel, name in zip(panels, ("accuracy", "forgetting", "SHAPC"), strict=True):
        panel.set_title(f"{name}, task {task + 1}", fontsize=9)
        panel.set_ylim(-0.04, 1.04)
        panel.tick_params(labelsize=8)
    figure.supxlabel("after step", fontsize=9)
    figure.legend(loc="outside upper center", ncols=6, frameon=False, fontsize=9)
    return figure


def stability_distributions(audit: Audit) -> Figure:
    """How SHAPC is distributed over the samples of each task at the last step, means dashed (Figure 2)."""
    results = _results(audit)
    taus = sorted(next(iter(results.values()))[0].table)
    columns = min(4, len(taus))
    rows = math.ceil(len(taus) / columns)
    figure = Figure(figsize=(2.6 * columns, 2.2 * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, squeeze=False)
    edges = np.linspace(0, 1, 21)
    for place, tau in enumerate(taus):
        panel = panels.flat[place]
        for index, (learner, own) in enumerate(results.items()):
            values = np.concatenate([one.table[tau][:, -1] for one in own])
            values = values[~np.isnan(values)]
            panel.hist(values, edges, density=True, histtype="step", color=colour(index), linewidth=1.4, label=learner)
            if len(values):
                panel.axvline(values.mean(), color=colour(index), linestyle="--", linewidth=1)
        panel.set_title(f"task {tau + 1}", fontsize=9)
        panel.set_yticks([])
        panel.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        panel.tick_params(labelsize=8)
    for panel in panels.flat[len(taus) :]:
        panel.set_axis_off()
    figure.supxlabel("SHAPC at the last step", fontsize=9)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=6, frameon=False, fontsize=9)
    return figure


def stability_bars(audit: Audit) -> Figure:
    """Average accuracy, forgetting, SHAPC-Mean and SHAPC-Var of each learner with their intervals (Figure 3)."""
    names = list(_results(audit))
    entries = [entry for entry in audit.learners if entry.title in names]
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    panels = figure.subplots(1, len(BARS))
    for panel, measure in zip(panels, BARS, strict=True):
        for index, entry in enumerate(entries):
            value = entry.measures[measure]
            panel.bar(index, value.mean, color=colour(index), width=0.7)
            if not math.isnan(value.low):
                panel.errorbar(
                    index, value.mean, [[value.mean - value.low], [value.high - value.mean]], color="#444", capsize=3
                )
        arrow = "↑" if MEASURES[measure].higher_is_better else "↓"
        panel.set_title(f"{MEASURES[measure].label} {arrow}", fontsize=9)
        names = [shortened(entry.title) for entry in entries]
        panel.set_xticks(range(len(entries)), names, rotation=40, ha="right", fontsize=8)
        panel.set_ylim(bottom=0)
        panel.tick_params(axis="y", labelsize=8)
    return figure


def stability_boxes(audit: Audit, task: int = 0) -> Figure:
    """SHAPC of one task's samples through training: quartiles, median, whiskers to 1.5 times their range (Figure 4)."""
    results = _results(audit)
    first = next(iter(results.values()))[0]
    tau = first.curriculum.index(task)
    later = first.table[tau].shape[1]
    figure = Figure(figsize=(max(4.5, 1.1 * later + 1), 2.9), layout="constrained")
    panel = figure.subplots()
    width = 0.8 / len(results)
    for index, own in enumerate(results.values()):
        values = np.concatenate([one.table[tau] for one in own])
        places = np.arange(later) + (index - (len(results) - 1) / 2) * width
        drawn: Any = panel.boxplot(
            [column[~np.isnan(column)] for column in values.T],
            positions=places,
            widths=0.85 * width,
            patch_artist=True,
            manage_ticks=False,
            flierprops={"markersize": 2, "markeredgecolor": colour(index)},
            medianprops={"color": "black"},
        )
        for box in drawn["boxes"]:
            box.set(facecolor=colour(index), alpha=0.75)
    panel.set_xticks(range(later), [str(tau + 2 + k) for k in range(later)], fontsize=8)
    panel.set_xlabel("after step", fontsize=9)
    panel.set_ylabel(f"SHAPC, samples of task {task + 1}", fontsize=9)
    panel.set_ylim(-0.02, 1.02)
    panel.tick_params(labelsize=8)
    handles = [Patch(color=colour(index), label=learner) for index, learner in enumerate(results)]
    figure.legend(handles=handles, loc="outside upper center", ncols=6, frameon=False, fontsize=9)
    return figure


def stability_matrices(audit: Audit) -> Figure:
    """Calibrated SHAPC of every pair (tau, t), 0 at chance and 1 at the noise ceiling, averaged over a learner's runs."""
    results = _results(audit)
    columns = min(4, len(results))
    rows = math.ceil(len(results) / columns)
    steps = len(next(iter(results.values()))[0].curriculum)
    side = max(2.3, 0.45 * steps)
    figure = Figure(figsize=(side * columns + 0.9, side * rows + 0.4), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    shown: Any = None
    for panel, (learner, own) in zip(panels.flat, results.items(), strict=False):
        matrix = np.mean([one.matrices["calibrated"] for one in own], axis=0)[:-1, 1:]
        shown = panel.imshow(matrix, vmin=0, vmax=1, cmap="cividis")
        for (tau, t), value in np.ndenumerate(matrix):
            if not math.isnan(value):
                panel.text(
                    t, tau, f"{value:.2f}", ha="center", va="center", fontsize=7, color="w" if value < 0.55 else "k"
                )
        panel.set_xticks(range(steps - 1), [str(t + 2) for t in range(steps - 1)], fontsize=8)
        panel.set_yticks(range(steps - 1), [str(tau + 1) for tau in range(steps - 1)], fontsize=8)
        panel.set_title(learner, fontsize=10)
    for panel in panels.flat[len(results) :]:
        panel.set_axis_off()
    figure.supxlabel("after step", fontsize=9)
    figure.supylabel("task of step", fontsize=9)
    figure.colorbar(shown, ax=panels, shrink=0.8, label="calibrated SHAPC").ax.tick_params(labelsize=8)
    return figure


def stability_bands(audit: Audit) -> Figure:
    """SHAPC of independent draws over the later steps, a panel for each own step; its band from floor to ceiling."""
    results = [one for own in _results(audit).values() for one in own]
    steps = max(len(result.curriculum) for result in results)
    columns = min(4, max(1, steps - 1))
    rows = math.ceil((steps - 1) / columns)
    figure = Figure(figsize=(2.3 * columns, 1.9 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    learners = list(dict.fromkeys(result.learner for result in results))
    for own in range(steps - 1):
        panel = panels.flat[own]
        for result in results:
            _between(panel, result, own, colour(learners.index(result.learner)))
        panel.set_title(f"task of step {own + 1}", fontsize=9)
        panel.set_ylim(0, 1)
        panel.tick_params(labelsize=8)
        panel.xaxis.get_major_locator().set_params(integer=True)
    for panel in panels.flat[steps - 1 :]:
        panel.set_axis_off()
    figure.supxlabel("later step (band: chance to noise ceiling)", fontsize=9)
    figure.supylabel("SHAPC", fontsize=9)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    figure.legend(
        named.values(), named.keys(), loc="outside upper center", ncols=min(6, len(named)), frameon=False, fontsize=9
    )
    return figure


def _between(panel: Any, result: Any, own: int, shade: str) -> None:
    later = np.arange(own + 1, len(result.curriculum))
    values, floor, ceiling = (result.matrices[name][own, later] for name in ("independent", "floor", "ceiling"))
    panel.plot(later + 1, values, color=shade, linewidth=1.4, marker="o", markersize=3, label=result.learner)
    panel.fill_between(later + 1, floor, ceiling, color=shade, alpha=0.05, linewidth=0)
