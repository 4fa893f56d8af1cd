"""Examples of a comparison for display: same answer for different reasons, and flips, with the maps of both versions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from perdure.audits.shapc.example_views import ExampleView, display_image
from perdure.audits.shapc.runner import Halves, series_pictures
from perdure.comparisons.accuracy import Decisions
from perdure.comparisons.maps import MapMaker
from perdure.comparisons.results import ExampleChange, Flips, ReasonsChange, ShownExample
from perdure.comparisons.versions import Position, Version, inputs_at
from perdure.explain.adapters.views import input_view
from perdure.runs.display import displayed_inputs

MOST_DIFFERENT = 12
"""Examples with the same answer for different reasons."""
MOST_FLIPS = 8
"""Flips of each kind that are shown."""
SAME_ANSWER = "same answer, different reasons"
NEGATIVE = "right to wrong"
POSITIVE = "wrong to right"


def different_reasons(
    decisions: Decisions, positions: Sequence[Position], reasons: ReasonsChange, classes: Sequence[str]
) -> tuple[ExampleChange, ...]:
    """Return the explained examples with the same prediction under both versions, the most different reasons first.

    Examples whose maps have no important region come last.
    """
    indices = reasons.examples
    same = np.flatnonzero(decisions.old[indices] == decisions.new[indices])
    order = same[np.argsort(reasons.similarities[same], kind="stable")]
    return tuple(
        example_change(
            decisions, positions[index].task, int(indices[index]), float(reasons.per_example[index]), classes
        )
        for index in order
    )


def example_change(
    decisions: Decisions, task: int, index: int, calibrated: float, classes: Sequence[str]
) -> ExampleChange:
    """Return an example's label and its predictions under both versions."""
    label, old, new = (int(values[index]) for values in (decisions.labels, decisions.old, decisions.new))
    return ExampleChange(index, task, classes[label], classes[old], classes[new], calibrated)


def shown_examples(
    maker: MapMaker,
    versions: tuple[Version, Version],
    decisions: Decisions,
    flips: Flips,
    same_answer: Sequence[ExampleChange],
    known: Mapping[int, float],
    classes: Sequence[str],
) -> tuple[ShownExample, ...]:
    """Return the examples that the report shows; flips that were not among the explained examples are explained now.

    ``known`` maps explained examples to their calibrated scores.
    """
    chosen = [(SAME_ANSWER, change) for change in same_answer[:MOST_DIFFERENT]]
    for group, indices in ((NEGATIVE, flips.negative), (POSITIVE, flips.positive)):
        for index in indices[:MOST_FLIPS].tolist():
            score = known.get(index, math.nan)
            chosen.append((group, example_change(decisions, int(decisions.tasks[index]), index, score, classes)))
    positions = _positions(decisions, [change.position for _, change in chosen])
    if not chosen:
        return ()
    maps = [maker.maps(version, positions) for version in versions]
    return tuple(
        ShownExample(group, change, _view(versions[0], position, change, [(a[index], b[index]) for a, b in maps]))
        for index, ((group, change), position) in enumerate(zip(chosen, positions, strict=True))
    )


def flip_positions(decisions: Decisions, flips: Flips) -> list[Position]:
    """Return the flips that the report shows."""
    indices = [index for kind in (flips.negative, flips.positive) for index in kind[:MOST_FLIPS].tolist()]
    return _positions(decisions, indices)


def _positions(decisions: Decisions, indices: Sequence[int]) -> list[Position]:
    """Return the tasks and rows of examples, given by their positions in the test sets of all tasks."""
    tasks = [int(decisions.tasks[index]) for index in indices]
    starts = {task: int(np.flatnonzero(decisions.tasks == task)[0]) for task in set(tasks)}
    return [Position(task, index - starts[task]) for task, index in zip(tasks, indices, strict=True)]


def _view(version: Version, position: Position, change: ExampleChange, halves: Sequence[Halves]) -> ExampleView:
    rows = np.array([position.row])
    data = version.run.data
    x = inputs_at(version, [position])
    image = data.images(position.task, rows)
    means = [(first + second) / 2 for first, second in halves]
    names: tuple[str, ...] = ()
    if image is None and x.dim() == 3:
        view = input_view(version.run.described(version.network), x, None, None).x.cpu().numpy()
        image, kind = series_pictures(view), "series"
        means = [np.swapaxes(values, 0, 1) for values in means]
    else:
        displayed = None if image is not None else displayed_inputs(version.run.inputs, data.form, x.cpu().numpy())
        kind = "image" if displayed is None else displayed.kind
        names = names if displayed is None else displayed.names[0]
    return ExampleView(
        image=None if image is None else display_image(image[0]),
        label=change.label,
        task=position.task,
        maps={
            (name, 0): (values.sum(axis=0) if values.ndim > 1 else values).astype(np.float64)
            for name, values in zip(("OLD", "NEW"), means, strict=True)
        },
        predictions={("OLD", 0): change.old, ("NEW", 0): change.new},
        kind=kind,
        names=names,
    )
