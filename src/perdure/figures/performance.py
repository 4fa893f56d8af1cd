"""Figures of accuracy, forgetting and the seven criteria."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits import CRITERIA, MEASURES, Audit, LearnerAudit
from perdure.base.errors import InputError
from perdure.figures.style import Figure, series_color

FloatArray = NDArray[np.float64]
_BOUNDS = ("mean", "low", "high")


def accuracy_lines(audit: Audit) -> Figure:
    """Accuracy on each task after each step: one panel per task, one line per learner, a dot where the task is trained.

    Examples
    --------
    >>> import perdure
    >>> from perdure import figures
    >>> audit = perdure.Audit.load("demo/audit.json")  # of ``make demo``
    >>> figure = figures.accuracy_lines(audit)
    >>> len(figure.axes)  # one panel per task
    5
    """
    tasks = audit.learners[0].tasks
    columns = min(5, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    figure = Figure(figsize=(2.3 * columns, 1.9 * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for task, name in enumerate(tasks):
        panel = panels.flat[task]
        for index, entry in enumerate(audit.learners):
            if task < entry.table.shape[1]:
                (_draw_reference if entry.is_reference else _draw_learner)(panel, entry, task, series_color(index))
        panel.set_title(f"task {task + 1}: {name}" if name != str(task + 1) else f"task {name}", fontsize=9)
        panel.set_ylim(-0.04, 1.04)
        panel.tick_params(labelsize=8)
    for panel in panels.flat[len(tasks) :]:
        panel.set_axis_off()
    figure.supxlabel("after step", fontsize=9)
    figure.supylabel("accuracy", fontsize=9)
    _legend(figure, panels.flat[0])
    return figure


def _draw_learner(panel: Any, entry: LearnerAudit, task: int, shade: str) -> None:
    steps = np.arange(1, len(entry.table) + 1)
    panel.plot(steps, entry.table[:, task], color=shade, linewidth=1.6, label=entry.learner)
    trained_at = [step for step, trained in enumerate(entry.curriculum) if trained == task]
    panel.plot([step + 1 for step in trained_at], entry.table[trained_at, task], "o", color=shade, markersize=4)


def _draw_reference(panel: Any, entry: LearnerAudit, task: int, shade: str) -> None:
    """Draw the accuracy of joint training as a horizontal line: it has no sequence of steps."""
    panel.axhline(
        entry.table[-1, task], color=shade, linewidth=1.4, linestyle=":", label=f"{entry.learner} (reference)"
    )


def performance_progress_lines(audit: Audit) -> Figure:
    """Average accuracy and forgetting of the tasks trained so far after each step, with 95 % intervals over runs."""
    figure = Figure(figsize=(7.6, 3.1), layout="constrained")
    panels = figure.subplots(1, 2)
    titles = {"average_accuracy": "average accuracy", "forgetting": "forgetting"}
    for panel, (name, title) in zip(panels, titles.items(), strict=True):
        for index, entry in enumerate(audit.learners):
            if entry.progress:
                _draw_band(panel, entry, name, series_color(index))
            elif name == "average_accuracy":
                level, label = entry.measures[name].mean, f"{entry.learner} (reference)"
                panel.axhline(level, color=series_color(index), linewidth=1.4, linestyle=":", label=label)
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("after step", fontsize=9)
        panel.tick_params(labelsize=8)
        panel.grid(axis="y", alpha=0.3)
        panel.xaxis.get_major_locator().set_params(integer=True)
    panels[0].set_ylim(0, 1.02)
    _legend(figure, panels[0])
    return figure


def _draw_band(panel: Any, entry: LearnerAudit, name: str, shade: str) -> None:
    steps = np.arange(1, len(entry.table) + 1)
    means, low, high = (np.array([getattr(value, bound) for value in entry.progress[name]]) for bound in _BOUNDS)
    panel.plot(steps, means, color=shade, linewidth=1.6, marker="o", markersize=3, label=entry.learner)
    panel.fill_between(steps, low, high, color=shade, alpha=0.15, linewidth=0)


def _legend(figure: Figure, panel: Any) -> None:
    handles, labels = panel.get_legend_handles_labels()
    if labels:
        columns = min(6, len(labels))
        figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False, fontsize=9)


def accuracy_matrices(audit: Audit) -> Figure:
    """The accuracy matrix of each learner as a heat map; up to 144 cells are labeled with their values."""
    count = len(audit.learners)
    columns = min(3, count)
    rows = math.ceil(count / columns)
    tasks = len(audit.learners[0].tasks)
    side = max(2.6, 0.42 * tasks)
    figure = Figure(figsize=(side * columns + 0.8, side * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    image = None
    for index, entry in enumerate(audit.learners):
        panel = panels.flat[index]
        image = panel.imshow(
            entry.table, vmin=0, vmax=1, cmap="viridis", aspect="equal" if entry.is_reference else "auto"
        )
        panel.set_title(f"{entry.learner} (reference)" if entry.is_reference else entry.learner, fontsize=10)
        panel.set_xticks(range(len(entry.tasks)), [str(i + 1) for i in range(len(entry.tasks))], fontsize=8)
        steps = ["all"] if entry.is_reference else [str(i + 1) for i in range(len(entry.table))]
        panel.set_yticks(range(len(entry.table)), steps, fontsize=8)
        panel.set_xlabel("task", fontsize=9)
        panel.set_ylabel("after step", fontsize=9)
        _label_cells(panel, entry.table)
    for panel in panels.flat[count:]:
        panel.set_axis_off()
    if image is not None:
        figure.colorbar(image, ax=panels, label="accuracy", shrink=0.8)
    return figure


def accuracy_differences_to(audit: Audit, reference: str = "cumulative") -> Figure:
    """The accuracy of one learner, and of every other learner minus it, as heat maps of steps and tasks.

    Red cells: less accurate than the reference; blue cells: more accurate.
    """
    first = next((entry for entry in audit.learners if entry.learner == reference), None)
    if first is None:
        raise InputError(
            f"reference: {reference!r} is not in the audit, only {', '.join(e.learner for e in audit.learners)}"
        )
    others = [e for e in audit.learners if e is not first and e.table.shape == first.table.shape]
    columns = min(3, 1 + len(others))
    rows = math.ceil((1 + len(others)) / columns)
    side = max(2.4, 0.36 * len(first.tasks))
    figure = Figure(figsize=(side * columns + 1.6, side * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    accuracy = panels.flat[0].imshow(first.table, vmin=0, vmax=1, cmap="viridis")
    panels.flat[0].set_title(f"{reference}: accuracy", fontsize=10)
    _label_cells(panels.flat[0], first.table)
    differences = [entry.table - first.table for entry in others]
    largest = max([0.1, *(float(np.nanmax(np.abs(values))) for values in differences)])
    gap = None
    for panel, entry, difference in zip(panels.flat[1:], others, differences, strict=False):
        gap = panel.imshow(difference, vmin=-largest, vmax=largest, cmap="RdBu")
        panel.set_title(f"{entry.learner} − {reference}", fontsize=10)
        panel.tick_params(labelbottom=True)
        _label_cells(panel, difference, dark=lambda value: abs(value) > 0.6 * largest, form="+.2f")
    for panel in panels.flat[1 + len(others) :]:
        panel.set_axis_off()
    names = [str(i + 1) for i in range(len(first.tasks))]
    panels.flat[0].set_xticks(range(len(names)), names, fontsize=8)
    panels.flat[0].set_yticks(range(len(first.table)), [str(i + 1) for i in range(len(first.table))], fontsize=8)
    figure.supxlabel("task", fontsize=9)
    figure.supylabel("after step", fontsize=9)
    figure.colorbar(accuracy, ax=panels, label=f"accuracy of {reference}", shrink=0.7)
    if gap is not None:
        figure.colorbar(gap, ax=panels, label="difference", shrink=0.7)
    return figure


def _label_cells(
    panel: Any, values: FloatArray, dark: Callable[[float], bool] = lambda value: value <= 0.6, form: str = ".2f"
) -> None:
    """Write the values into the cells of a heat map with at most 144 cells; ``dark`` says which cells need white text."""
    if values.size > 144:
        return
    for step, task in np.ndindex(*values.shape):
        value = float(values[step, task])
        if not math.isnan(value):
            shade = "white" if dark(value) else "black"
            panel.text(task, step, format(value, form), ha="center", va="center", color=shade, fontsize=7)


def performance_criteria_dots(audit: Audit) -> Figure:
    """The seven criteria and the CL_scores of each learner with their intervals; missing values are left out."""
    names = list(CRITERIA)
    labels = [MEASURES[name].label for name in names] + [f"CL_score {name}" for name in audit.learners[0].scores]
    figure = Figure(figsize=(7.2, 0.42 * len(labels) + 1.1), layout="constrained")
    panel = figure.subplots()
    spread = 0.6 / max(1, len(audit.learners))
    for index, entry in enumerate(audit.learners):
        values = [entry.measures[name] for name in names] + list(entry.scores.values())
        height = np.arange(len(values)) + spread * (index - (len(audit.learners) - 1) / 2)
        known = [i for i, value in enumerate(values) if not math.isnan(value.mean)]
        means = np.array([values[i].mean for i in known])
        low = np.array([values[i].low for i in known])
        high = np.array([values[i].high for i in known])
        error = np.nan_to_num(np.stack([means - low, high - means]), nan=0.0)
        panel.errorbar(
            means, height[known], xerr=error, fmt="o", color=series_color(index), label=entry.learner, capsize=2
        )
    panel.set_yticks(range(len(labels)), labels, fontsize=9)
    panel.invert_yaxis()
    panel.set_xlim(-0.03, 1.03)
    panel.grid(axis="x", alpha=0.3)
    panel.set_xlabel("higher is better", fontsize=9)
    figure.legend(loc="outside upper center", ncols=min(6, len(audit.learners)), frameon=False, fontsize=9)
    return figure


def performance_criteria_lines(audit: Audit) -> Figure:
    """The seven criteria as parallel coordinates: one axis per criterion, one line per learner, bars for 95 % intervals."""
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    panel = figure.subplots()
    positions = np.arange(len(CRITERIA))
    for index, entry in enumerate(audit.learners):
        values = [entry.measures[name] for name in CRITERIA]
        means, low, high = (np.array([getattr(value, bound) for value in values]) for bound in _BOUNDS)
        if np.isnan(means).all():
            continue
        panel.plot(
            positions, means, color=series_color(index), marker="o", markersize=4, linewidth=1.5, label=entry.learner
        )
        panel.vlines(positions, low, high, color=series_color(index), alpha=0.35, linewidth=4)
    panel.set_xticks(positions, CRITERIA)
    panel.set_ylim(-0.03, 1.03)
    panel.grid(axis="x", alpha=0.6)
    panel.set_ylabel("higher is better", fontsize=9)
    panel.tick_params(labelsize=9)
    _legend(figure, panel)
    return figure
