"""The pictures of a study of the SHAPC paper, as its Figures 1 to 4, with captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from perdure.audits import Audit, ShapcResult
from perdure.audits.shapc.maps import StoredExample
from perdure.figures import (
    save,
    shapc_attribution_pairs,
    shapc_bars,
    shapc_boxes,
    shapc_distributions,
    shapc_lines,
    shapc_matrices,
)
from perdure.reproduce.result_rows import Row
from perdure.reproduce.shapc.published import TABLE_1_MEASURES, published_measure
from perdure.reproduce.shapc.ranking import rank_learners
from perdure.reproduce.shapc.studies import ILLUSTRATED

DURING_TRAINING = (*ILLUSTRATED, "si")
"""The methods whose SHAPC during training is drawn: those of Figure 1, and SI, which Figure 4 compares with iCaRL."""
_CAPTIONS = {
    "maps": "Figure 1, upper part. Examples of the first task: what supports (red) and opposes (blue) their true class after "
    "the first and after the last task, in a run of seed 0. Below each map is the decision, below the second map of each pair "
    "the example's SHAPC between the two. Every map has its own color scale. A learner that keeps its reasons has two "
    "similar maps.",
    "first-task": "Figure 1, lower left. Accuracy, forgetting and SHAPC of the first task after each task. Thick lines are "
    "means over seeds; in the right panel, thin lines are single seeds. Compare how early accuracy and reasons are lost.",
    "distributions": "Figure 2. SHAPC of the examples of each task between its own step and the last one, over all seeds, for "
    "each learner in the order of Table 1. Dashed lines are means. A narrow histogram far to the right means that the reasons "
    "for all examples are kept.",
    "measures": "Figure 3, and Figure 1, lower right. The four measures of Table 1, with 95 % intervals over seeds. White "
    "diamonds are the paper's values. Arrows point in the better direction.",
    "boxes": "Figure 4. SHAPC of the examples of the first task after each later task, over all seeds. Boxes show quartiles "
    "and medians; whiskers extend to 1.5 times the interquartile range. A box that stays high and short means that the "
    "reasons are kept evenly.",
    "matrices": "Calibrated SHAPC of every pair of tasks, averaged over seeds and clipped to [0, 1]: rows are the tasks of the "
    "examples, columns the later steps. Values that fall from left to right show a slow loss, low rows a loss at once.",
}


def shapc_pictures(audit: Audit, rows: Sequence[Row], benchmark: str, class_names: Sequence[str]) -> dict[str, Figure]:
    """Return the pictures of a study by name; pictures whose learners have no results are left out."""
    ranked = replace(audit, learners=tuple(rank_learners(audit)))
    if not ranked.shapc:
        return {}
    published = {measure: published_measure(benchmark, measure) for measure in TABLE_1_MEASURES}
    illustrated, during_training = (_learners_of(ranked, names) for names in (ILLUSTRATED, DURING_TRAINING))
    pictures = {
        "maps": _map_picture(ranked, rows, class_names),
        "first-task": shapc_lines(illustrated) if illustrated.shapc else None,
        "distributions": shapc_distributions(ranked),
        "measures": shapc_bars(ranked, published),
        "boxes": shapc_boxes(during_training) if during_training.shapc else None,
        "matrices": shapc_matrices(ranked),
    }
    return {name: figure for name, figure in pictures.items() if figure is not None}


def save_pictures(pictures: Mapping[str, Figure], study: str, folder: Path) -> str:
    """Save the pictures of a study in the folder of the page, and return the Markdown that shows them."""
    parts = []
    for name, figure in pictures.items():
        file = save(figure, folder / f"stability-{study}-{name}.png")
        caption = _CAPTIONS[name]
        parts.append(f"![{caption.partition('. ')[0]}]({file.name})\n\n*{caption}*")
    return "\n\n".join(parts)


def _learners_of(audit: Audit, names: Sequence[str]) -> Audit:
    """Return the part of an audit with these learners, in this order."""
    entries = {entry.learner: entry for entry in audit.learners}
    learners = tuple(entries[name] for name in names if name in entries)
    runs = {run for entry in learners for run in entry.runs}
    return replace(audit, learners=learners, shapc=tuple(result for result in audit.shapc if result.run in runs))


def _map_picture(audit: Audit, rows: Sequence[Row], class_names: Sequence[str]) -> Figure | None:
    """Return Figure 1 for the examples whose maps all illustrated learners with rows have; None without such examples."""
    results = {result.run: result for result in audit.shapc}
    stored = {
        row["learner"]: _scored_examples(row["maps"], results[row["measurements"]["run"]])
        for row in rows
        if row.get("maps")
    }
    learners = [name for name in ILLUSTRATED if name in stored]
    if not learners:
        return None
    common = [number for number in stored[learners[0]] if all(number in stored[name] for name in learners)]
    if not common:
        return None
    return shapc_attribution_pairs(
        {name: [stored[name][number][0] for number in common] for name in learners},
        {name: [stored[name][number][1] for number in common] for name in learners},
        class_names,
    )


def _scored_examples(maps: Sequence[Mapping[str, Any]], result: ShapcResult) -> dict[int, tuple[StoredExample, float]]:
    """Return the images of a row's ``maps`` by their number, each with SHAPC between its own step and the last one."""
    examples = [stored_example(entry) for entry in maps if entry["image"] is not None]
    explained = {step: numbers.tolist() for step, numbers in result.examples.items()}
    return {
        example.example: (
            example,
            float(result.table[example.step][explained[example.step].index(example.example), -1]),
        )
        for example in examples
        if example.example in explained[example.step]
    }


def stored_example(entry: Mapping[str, Any]) -> StoredExample:
    """Return an example and its maps from an entry of a row (`illustrated_maps`)."""
    return StoredExample(
        step=int(entry["step"]),
        example=int(entry["example"]),
        label=int(entry["label"]),
        image=np.array(entry["image"], dtype=np.uint8),
        predicted={int(step): int(unit) for step, unit in entry["predicted"].items()},
        maps={int(step): np.array(values, dtype=np.float32) for step, values in entry["maps"].items()},
    )
