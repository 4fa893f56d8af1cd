"""Figures of SHAPC over training, following the figures of the SHAPC paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.patches import Patch
from numpy.typing import NDArray

from perdure.audits import MEASURES, Audit, ShapcResult
from perdure.audits.shapc.maps import StoredExample
from perdure.base.errors import InputError
from perdure.figures.attributions import CLIP_QUANTILE, overlay, show_image
from perdure.figures.style import PALETTE, Figure, series_color, style_shortened_label

BARS = ("average_accuracy", "forgetting", "shapc_mean", "shapc_var")
MOST_OVERLAID = 4
"""The largest number of histograms that are drawn over each other; more are drawn in rows."""
HISTOGRAM_EDGES = np.linspace(0, 1, 21)


def _results(audit: Audit) -> dict[str, list[ShapcResult]]:
    """Return the SHAPC results of each learner, in the audit's order."""
    results: dict[str, list[ShapcResult]] = {}
    for entry in audit.learners:
        learner_results = [result for result in audit.shapc if result.run in entry.runs]
        if learner_results:
            results[entry.title] = learner_results
    if not results:
        raise InputError("the audit has no SHAPC results. Compute them with shapc=True or `perdure audit --shapc`.")
    return results


def shapc_attribution_strip(
    examples: Mapping[str, StoredExample], class_names: Sequence[str] = (), title: str = ""
) -> Figure:
    """The attributions of one example after each task, one row per learner (Figure 1, upper part).

    ``examples`` maps each learner to its stored maps of the same example. The steps of a row share one color scale; rows
    have different scales. The label below each map is the learner's prediction.
    """
    first = next(iter(examples.values()))
    steps = sorted(first.maps)
    figure = Figure(figsize=(1.45 * (len(steps) + 1) + 0.5, 1.7 * len(examples) + 0.5), layout="constrained")
    panels = figure.subplots(len(examples), len(steps) + 1, squeeze=False)
    for row, (learner, stored) in enumerate(examples.items()):
        _check_same_example(learner, stored, first)
        image = _image(stored, learner)
        show_image(panels[row, 0], image, learner)
        limit = _color_limit(*stored.maps.values())
        for column, step in enumerate(steps, start=1):
            _draw_map(panels[row, column], image, stored, step, limit, class_names)
            if row == 0:
                panels[row, column].set_title(f"after task {step + 1}", fontsize=8)
    panels[0, 0].set_title(title or _class_name(first.label, class_names), fontsize=8)
    return figure


def shapc_attribution_pairs(
    examples: Mapping[str, Sequence[StoredExample]],
    scores: Mapping[str, Sequence[float]],
    class_names: Sequence[str] = (),
) -> Figure:
    """The attributions of some examples after the first and the last step, one row per example (Figure 1, upper part).

    ``examples`` maps each learner to its stored maps of the same examples, ``scores`` to their SHAPC between the two steps.
    Every map has its own color scale, as SHAPC scales every map. The label below a map is the learner's prediction.
    """
    learners = list(examples)
    count = len(examples[learners[0]])
    figure = Figure(figsize=(1.5 * (2 * len(learners) + 1) + 0.3, 1.75 * count + 0.5), layout="constrained")
    panels = figure.subplots(count, 2 * len(learners) + 1, squeeze=False)
    for row in range(count):
        first = examples[learners[0]][row]
        image = _image(first, learners[0])
        show_image(panels[row, 0], image, _class_name(first.label, class_names))
        for column, learner in enumerate(learners):
            stored = examples[learner][row]
            _check_same_example(learner, stored, first)
            steps = (min(stored.maps), max(stored.maps))
            pair = panels[row, 1 + 2 * column : 3 + 2 * column]
            for panel, step in zip(pair, steps, strict=True):
                _draw_map(panel, image, stored, step, _color_limit(stored.maps[step]), class_names)
                if row == 0:
                    panel.set_title(f"{learner},\nafter task {step + 1}", fontsize=8)
            pair[1].set_xlabel(f"{pair[1].get_xlabel()}\nSHAPC {scores[learner][row]:.2f}", fontsize=7)
    return figure


def _check_same_example(learner: str, stored: StoredExample, first: StoredExample) -> None:
    if (stored.step, stored.example) != (first.step, first.example):
        raise InputError(
            f"{learner}: expected example {first.example + 1} of step {first.step + 1} as for the first learner, "
            f"got example {stored.example + 1} of step {stored.step + 1}"
        )


def _image(stored: StoredExample, learner: str) -> NDArray[np.uint8]:
    """Return the image of an example; other kinds of inputs are refused."""
    if stored.image is None:
        raise InputError(f"{learner}: the maps of a {stored.kind} are drawn by attribution_text and attribution_bars")
    return stored.image


def _color_limit(*maps: NDArray[np.float32]) -> float:
    return float(np.quantile(np.abs(np.stack(maps)), CLIP_QUANTILE)) or 1.0


def _draw_map(
    panel: Any, image: NDArray[np.uint8], stored: StoredExample, step: int, limit: float, class_names: Sequence[str]
) -> None:
    """Draw the map after a step over the image, with the prediction below it."""
    overlay(panel, image.mean(axis=0) / 255, stored.maps[step].astype(np.float64), limit)
    mark = "✓" if stored.predicted[step] == stored.label else "✗"
    panel.set_xlabel(f"{mark} {_class_name(stored.predicted[step], class_names)}", fontsize=7)


def _class_name(index: int, names: Sequence[str]) -> str:
    return names[index] if index < len(names) else f"class {index + 1}"


def shapc_lines(audit: Audit, task: int = 0) -> Figure:
    """Accuracy, forgetting and SHAPC of one task after each later step (Figure 1, lower left)."""
    figure = Figure(figsize=(8.4, 2.7), layout="constrained")
    panels = figure.subplots(1, 3, sharex=True)
    for index, (learner, results) in enumerate(_results(audit).items()):
        entry = next(entry for entry in audit.learners if entry.title == learner)
        tau = entry.curriculum.index(task)
        column = entry.table[tau:, task]
        steps = np.arange(tau + 1, len(entry.table) + 1)
        best = np.maximum.accumulate(column)
        style = {"color": series_color(index), "linewidth": 1.6, "marker": "o", "markersize": 3}
        panels[0].plot(steps, column, label=learner, **style)
        panels[1].plot(steps, best - column, **style)
        rows = np.array([result.matrices["shapc"][tau, tau + 1 :] for result in results])
        panels[2].plot(steps[1:], rows.mean(axis=0), **style)
        for row in rows if len(rows) > 1 else ():
            panels[2].plot(steps[1:], row, color=series_color(index), linewidth=0.6, alpha=0.5)
    for panel, name in zip(panels, ("accuracy", "forgetting", "SHAPC"), strict=True):
        panel.set_title(f"{name}, task {task + 1}", fontsize=9)
        panel.set_ylim(-0.04, 1.04)
        panel.tick_params(labelsize=8)
    figure.supxlabel("after step", fontsize=9)
    figure.legend(loc="outside upper center", ncols=6, frameon=False, fontsize=9)
    return figure


def shapc_distributions(audit: Audit) -> Figure:
    """Histograms of SHAPC over the examples of each task at the last step; dashed lines are means (Figure 2).

    The histograms of more than four learners would hide each other, so they are drawn in one row per learner.
    """
    results = _results(audit)
    taus = sorted(next(iter(results.values()))[0].table)
    in_rows = len(results) > MOST_OVERLAID
    columns = min(5 if in_rows else 4, len(taus))
    rows = math.ceil(len(taus) / columns)
    height = 0.32 * len(results) + 0.6 if in_rows else 2.2
    figure = Figure(figsize=(2.6 * columns, height * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for panel_index, tau in enumerate(taus):
        panel = panels.flat[panel_index]
        values = {
            learner: np.concatenate([result.table[tau][:, -1] for result in learner_results])
            for learner, learner_results in results.items()
        }
        draw = _draw_histogram_rows if in_rows else _draw_histograms
        draw(panel, {learner: of_task[~np.isnan(of_task)] for learner, of_task in values.items()})
        panel.set_title(f"task {tau + 1}", fontsize=9)
        panel.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        panel.tick_params(labelsize=8, labelbottom=True)
        if not in_rows or panel_index % columns:
            panel.set_yticks([])
    for panel in panels.flat[len(taus) :]:
        panel.set_axis_off()
    figure.supxlabel("SHAPC at the last step", fontsize=9)
    if not in_rows:
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=6, frameon=False, fontsize=9)
    return figure


def _draw_histograms(panel: Any, values: Mapping[str, NDArray[np.float64]]) -> None:
    """Draw the histograms of all learners over each other."""
    for index, (learner, of_task) in enumerate(values.items()):
        panel.hist(
            of_task,
            HISTOGRAM_EDGES,
            density=True,
            histtype="step",
            color=series_color(index),
            linewidth=1.4,
            label=learner,
        )
        if len(of_task):
            panel.axvline(of_task.mean(), color=series_color(index), linestyle="--", linewidth=1)


def _draw_histogram_rows(panel: Any, values: Mapping[str, NDArray[np.float64]]) -> None:
    """Draw one histogram of the same height per learner, the first learner on top."""
    baselines = np.arange(len(values))[::-1]
    for baseline, of_task in zip(baselines, values.values(), strict=True):
        if len(of_task):
            counts, _ = np.histogram(of_task, HISTOGRAM_EDGES)
            heights = 0.85 * counts / max(1, counts.max())
            panel.stairs(
                baseline + heights, HISTOGRAM_EDGES, baseline=baseline, fill=True, color=series_color(0), alpha=0.55
            )
            panel.plot([of_task.mean()] * 2, [baseline, baseline + 0.9], color="black", linestyle="--", linewidth=1)
    panel.hlines(baselines, 0, 1, color="#999", linewidth=0.5)
    panel.set_yticks(baselines + 0.35, [style_shortened_label(learner) for learner in values])
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(-0.1, len(values))


def shapc_bars(audit: Audit, published: Mapping[str, Mapping[str, float]] | None = None) -> Figure:
    """Average accuracy, forgetting, SHAPC-Mean and SHAPC-Var of each learner with intervals (Figure 3).

    ``published`` maps a measure to the published value of each learner, which is marked by a diamond.

    Examples
    --------
    >>> import perdure
    >>> from perdure import figures
    >>> audit = perdure.Audit.load("demo/audit.json")  # of ``make demo``
    >>> figure = figures.shapc_bars(audit)
    >>> figures.save(figure, "shapc.pdf").name
    'shapc.pdf'
    """
    names = list(_results(audit))
    entries = [entry for entry in audit.learners if entry.title in names]
    figure = Figure(figsize=(max(9, 1.1 * len(entries)), 2.6), layout="constrained")
    panels = figure.subplots(1, len(BARS))
    for panel, measure in zip(panels, BARS, strict=True):
        for index, entry in enumerate(entries):
            value = entry.measures[measure]
            color = series_color(index if len(entries) <= len(PALETTE) else 0)
            panel.bar(index, value.mean, color=color, width=0.7)
            if not math.isnan(value.low):
                panel.errorbar(
                    index, value.mean, [[value.mean - value.low], [value.high - value.mean]], color="#444", capsize=3
                )
        known = (published or {}).get(measure, {})
        marked = [(index, known[entry.learner]) for index, entry in enumerate(entries) if entry.learner in known]
        if marked:
            panel.plot(*zip(*marked, strict=True), "D", color="white", markeredgecolor="black", markersize=4.5)
        arrow = "↑" if MEASURES[measure].higher_is_better else "↓"
        panel.set_title(f"{MEASURES[measure].label} {arrow}", fontsize=9)
        names = [style_shortened_label(entry.title) for entry in entries]
        panel.set_xticks(range(len(entries)), names, rotation=40, ha="right", fontsize=8)
        panel.set_ylim(bottom=0)
        panel.tick_params(axis="y", labelsize=8)
    return figure


def shapc_boxes(audit: Audit, task: int = 0) -> Figure:
    """Box plots of SHAPC over one task's examples after each later step (Figure 4).

    Boxes show the quartiles and the median; whiskers extend to 1.5 times the interquartile range.
    """
    results = _results(audit)
    first = next(iter(results.values()))[0]
    tau = first.curriculum.index(task)
    later = first.table[tau].shape[1]
    figure = Figure(figsize=(max(4.5, 1.1 * later + 1), 2.9), layout="constrained")
    panel = figure.subplots()
    width = 0.8 / len(results)
    for index, learner_results in enumerate(results.values()):
        values = np.concatenate([result.table[tau] for result in learner_results])
        positions = np.arange(later) + (index - (len(results) - 1) / 2) * width
        boxplot: Any = panel.boxplot(
            [column[~np.isnan(column)] for column in values.T],
            positions=positions,
            widths=0.85 * width,
            patch_artist=True,
            manage_ticks=False,
            flierprops={"markersize": 2, "markeredgecolor": series_color(index)},
            medianprops={"color": "black"},
        )
        for box in boxplot["boxes"]:
            box.set(facecolor=series_color(index), alpha=0.75)
    panel.set_xticks(range(later), [str(tau + 2 + k) for k in range(later)], fontsize=8)
    panel.set_xlabel("after step", fontsize=9)
    panel.set_ylabel(f"SHAPC, examples of task {task + 1}", fontsize=9)
    panel.set_ylim(-0.02, 1.02)
    panel.tick_params(labelsize=8)
    handles = [Patch(color=series_color(index), label=learner) for index, learner in enumerate(results)]
    figure.legend(handles=handles, loc="outside upper center", ncols=6, frameon=False, fontsize=9)
    return figure


def shapc_matrices(audit: Audit) -> Figure:
    """Calibrated SHAPC of every pair (tau, t), averaged over each learner's runs and clipped to [0, 1].

    0 is the similarity to untrained networks, 1 means identical reasons.
    """
    results = _results(audit)
    columns = min(4, len(results))
    rows = math.ceil(len(results) / columns)
    steps = len(next(iter(results.values()))[0].curriculum)
    side = max(2.3, 0.45 * steps)
    figure = Figure(figsize=(side * columns + 0.9, side * rows + 0.4), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    image: Any = None
    for panel, (learner, learner_results) in zip(panels.flat, results.items(), strict=False):
        mean = np.mean([result.matrices["calibrated"] for result in learner_results], axis=0)[:-1, 1:]
        matrix = np.clip(mean, 0, 1)
        image = panel.imshow(matrix, vmin=0, vmax=1, cmap="cividis")
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
    figure.colorbar(image, ax=panels, shrink=0.8, label="calibrated SHAPC").ax.tick_params(labelsize=8)
    return figure


def shapc_bands(audit: Audit) -> Figure:
    """SHAPC between independent draws after each later step, one panel per trained step; bands from floor to ceiling."""
    results = [result for learner_results in _results(audit).values() for result in learner_results]
    steps = max(len(result.curriculum) for result in results)
    columns = min(4, max(1, steps - 1))
    rows = math.ceil((steps - 1) / columns)
    figure = Figure(figsize=(2.3 * columns, 1.9 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    learners = list(dict.fromkeys(result.learner for result in results))
    for step in range(steps - 1):
        panel = panels.flat[step]
        for result in results:
            _draw_run(panel, result, step, series_color(learners.index(result.learner)))
        panel.set_title(f"task of step {step + 1}", fontsize=9)
        panel.set_ylim(0, 1)
        panel.tick_params(labelsize=8)
        panel.xaxis.get_major_locator().set_params(integer=True)
    for panel in panels.flat[steps - 1 :]:
        panel.set_axis_off()
    figure.supxlabel("later step (band: untrained networks to noise ceiling)", fontsize=9)
    figure.supylabel("SHAPC", fontsize=9)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(
        unique.values(), unique.keys(), loc="outside upper center", ncols=min(6, len(unique)), frameon=False, fontsize=9
    )
    return figure


def _draw_run(panel: Any, result: ShapcResult, step: int, shade: str) -> None:
    later = np.arange(step + 1, len(result.curriculum))
    values, floor, ceiling = (result.matrices[name][step, later] for name in ("independent", "floor", "ceiling"))
    panel.plot(later + 1, values, color=shade, linewidth=1.4, marker="o", markersize=3, label=result.learner)
    panel.fill_between(later + 1, floor, ceiling, color=shade, alpha=0.05, linewidth=0)
