"""MeGe, ReCo and the weight-randomization test on CIFAR-10, and tests of the report's three warnings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from perdure import figures, tasks
from perdure.audits import Interval
from perdure.audits.bias.measure import METHODS as BIAS_METHODS
from perdure.audits.retraining.maps import MapSettings, Target, retraining_map_distances
from perdure.audits.retraining.pairs import Pairs
from perdure.audits.retraining.results import RetrainingResult
from perdure.audits.retraining.retrain import NOISE, retrain
from perdure.audits.retraining.runner import Progress, stored_retrain_maps
from perdure.base.errors import InputError
from perdure.base.files import read_text, write_atomically
from perdure.engine import Engine
from perdure.learners import Training
from perdure.metrics import RetrainingScores
from perdure.reproduce.provenance import current_provenance

TITLE = "# Do explanations survive retraining?"
SLOW = ("deepshap", "lime")
METHODS = tuple(method for method in BIAS_METHODS if method not in SLOW)
SWEEP = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
DISTANCE = "l2-unit"
"""L2 of unscaled maps depends on their scale, which noise on the weights changes. The files hold all distances."""
EXPLAINING = MapSettings(samples=30, background=30, players="grid")
BENCHMARK = "split-cifar10"
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
EXPLAINED = {"label": "the true class is explained", "own": "the class that each network predicts is explained"}
SIMILAR = (("cat", "dog"), ("automobile", "truck"), ("deer", "horse"))


@dataclass(frozen=True)
class Study:
    """A network with its training, the explainers, the examples per fold and the noise levels."""

    name: str
    title: str
    network: str
    width: int | None
    training: Training
    per_fold: int
    methods: tuple[str, ...]
    noise: tuple[float, ...]
    target: Target = "label"
    """The class that is explained: the true one, or under each network the one that it predicts (``own``)."""


_LENET = Study(
    "lenet",
    "LeNet",
    "lenet",
    None,
    Training(epochs=10, batch_size=64, lr=0.01, momentum=0.9, milestones=(8,), decay=0.2),
    30,
    METHODS,
    NOISE,
)
_RESNET = Study(
    "resnet18",
    "ResNet-18, width 16",
    "resnet18",
    16,
    Training(epochs=6, batch_size=64, lr=0.05, momentum=0.9, weight_decay=5e-4, milestones=(4,), decay=0.1),
    20,
    (*METHODS, *SLOW),
    NOISE,
)
STUDIES = {
    study.name: study
    for study in (
        _LENET,
        replace(_LENET, name="lenet-slow", title="LeNet, the slower explainers", methods=SLOW),
        replace(
            _LENET,
            name="lenet-sweep",
            title="LeNet, finer noise and from the top down",
            methods=METHODS[:1],
            noise=SWEEP,
            per_fold=10,
        ),
        _RESNET,
        replace(
            _RESNET,
            name="resnet18-own",
            title="ResNet-18, width 16, each network's own prediction",
            methods=METHODS,
            noise=(),
            target="own",
        ),
    )
}


def run_retraining_study(
    study: Study,
    data_dir: Path | None,
    out: Path,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> RetrainingResult:
    """Train and explain the networks, or read the results of an earlier call."""
    return retrain(
        tasks.load(BENCHMARK, scenario="class", data_dir=data_dir),
        network=study.network,
        width=study.width,
        training=study.training,
        methods=study.methods,
        examples=study.per_fold,
        noise=study.noise,
        cascade_share=0.3 if study.name.endswith("sweep") else None,
        settings=replace(EXPLAINING, target=study.target),
        out=out / "retraining",
        progress=progress,
        engine=engine,
    )


def retraining_study_section(study: Study, result: RetrainingResult, pictures: Path) -> str:
    """Return one study's section of the page: settings, tables and figures."""
    lines = [f"## {study.title}", "", str(current_provenance()), "", _settings(result), ""]
    rows = [result.levels(), result.cascade()] if study.name.endswith("sweep") else [result.levels()]
    for stages, top_down in zip(rows, (False, True), strict=False):
        lines += [*_table(result, stages), ""]
        if len(stages) == 1:
            continue
        lines += [*_trends(result, top_down), ""]
        picture = pictures / f"retraining-{study.name}{'-top-down' if top_down else ''}.png"
        figures.save(figures.noise_lines(result, DISTANCE, top_down), picture)
        lines += [f"![scores against noise]({picture.name})", ""]
    if not study.name.endswith("sweep"):
        lines += [*_distances(result), ""]
    if METHODS[0] in result.explainers and not study.name.endswith("sweep"):
        lines += [*retraining_study_warnings(result), ""]
        picture = pictures / f"retraining-{study.name}-classes.png"
        figures.save(figures.retraining_class_separation(result, METHODS[0], DISTANCE), picture)
        lines += [f"![separation, class by class]({picture.name})", ""]
    for name, reason in result.refused.items():
        lines += [f"`{name}` was refused: {reason}.", ""]
    return "\n".join(lines)


def _settings(result: RetrainingResult) -> str:
    training, explaining = result.training, result.explaining
    return (
        f"{result.examples} images in {result.folds} folds, {training['epochs']} epochs of "
        f"{training['optimizer']} with learning "
        f"rate {training['lr']:g} (momentum {training['momentum']:g}, batch size {training['batch_size']}), a "
        f"different initialization for each fold; {result.per_fold} held-out images per fold, "
        f"{EXPLAINED[explaining['target']]}, {explaining['samples']} gradients, "
        f"steps or perturbations per map, {explaining['background']} backgrounds. Distance: L2 of maps scaled to unit norm."
    )


def _table(result: RetrainingResult, stages: list[int]) -> list[str]:
    header = ["noise", "accuracy", "explainer", "MeGe ↑", "ReCo, rates ↑", "p", "ReCo, precisions ↑", "S= / S≠"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for index in stages:
        stage = result.stages[index]
        for method in result.methods:
            cells = [str(stage.noise), f"{np.mean(stage.accuracy):.3f}", f"`{method}`"]
            lines.append("| " + " | ".join(cells + _cells(result.scores(method, DISTANCE, index))) + " |")
    return lines


def _cells(scores: RetrainingScores) -> list[str]:
    return [
        _cell(scores.mege),
        _cell(scores.reco_rate),
        f"{scores.p_value:.3f}" if scores.permutations else "–",
        _cell(scores.reco_precision),
        f"{scores.plain.same} / {scores.plain.different}",
    ]


def _cell(value: Interval) -> str:
    return "–" if np.isnan(value.mean) else f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]"


def _trends(result: RetrainingResult, top_down: bool) -> list[str]:
    lines = [
        "Page's trend test over folds for a decrease with noise:",
        "",
        "| explainer | MeGe | ReCo, rates | ReCo, precisions |",
        "|---|---|---|---|",
    ]
    for method in result.methods:
        cells = []
        for score in ("mege", "reco_rate", "reco_precision"):
            trend = result.trend(method, score, DISTANCE, top_down)
            left_out = f", {trend.left_out} folds left out" if trend.left_out else ""
            cells.append((trend.reason or f"{trend.rank_correlation:+.2f} (p {trend.p_value:.1g})") + left_out)
        lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    return lines


def _distances(result: RetrainingResult) -> list[str]:
    lines = ["Without noise, by distance: MeGe, and ReCo (rates) with its p-value.", ""]
    lines += ["| explainer | " + " | ".join(result.distances) + " |", "|" + "---|" * (len(result.distances) + 1)]
    for method in result.methods:
        scores = [result.scores(method, distance) for distance in result.distances]
        cells = [f"{s.mege.mean:.3f}, {s.reco_rate.mean:.3f} ({s.p_value:.3f})" for s in scores]
        lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    return lines


def retraining_study_warnings(result: RetrainingResult) -> list[str]:
    """Return the report's three warnings with the numbers that confirm or refute them."""
    return [
        "### The report's three warnings",
        "",
        *_uninformative(result),
        "",
        *_similar_classes(result),
        "",
        *_misplaced(result),
    ]


def _uninformative(result: RetrainingResult) -> list[str]:
    scores = {method: result.scores(method, DISTANCE) for method in result.methods}
    mege = {method: f"{method_scores.mege.mean:.3f}" for method, method_scores in scores.items()}
    rate = {method: f"{method_scores.reco_rate.mean:.3f}" for method, method_scores in scores.items()}
    best = max(result.explainers, key=lambda method: scores[method].mege.mean)
    text = (
        f"**Uninformative maps with high MeGe.** A constant map has MeGe {mege['constant']}; the highest of the explainers is "
        f"{mege[best]} (`{best}`), and expected gradients have {mege[METHODS[0]]}. ReCo (rates) is {rate['constant']} for the "
        f"constant map, {rate[best]} for `{best}` and {rate[METHODS[0]]} for expected gradients. Random Gaussian maps: MeGe "
        f"{mege['random']}, ReCo {rate['random']}."
    )
    return [text]


def _similar_classes(result: RetrainingResult) -> list[str]:
    """Compare how well errors between similar classes and all other errors are separated from agreement."""
    matrix = result.stages[0].pairs[METHODS[0]].classes(DISTANCE, len(result.class_names))
    similar = np.zeros(matrix.pairs.shape, dtype=bool)
    for first_class, second_class in SIMILAR:
        first, second = CIFAR.index(first_class), CIFAR.index(second_class)
        similar[first, second] = similar[second, first] = True
    known = ~np.isnan(matrix.separation)
    parts = []
    for name, mask in (("between similar classes", similar & known), ("all others", ~similar & known)):
        weight = matrix.pairs[mask]
        mean = float(np.average(matrix.separation[mask], weights=weight)) if weight.sum() else float("nan")
        parts.append(f"{name} {mean:.3f} ({int(weight.sum())} pairs)")
    names = ", ".join(f"{first_class} and {second_class}" for first_class, second_class in SIMILAR)
    cells = [
        f"{true} predicted as {predicted}: {matrix.separation[CIFAR.index(true), CIFAR.index(predicted)]:.3f}"
        for true, predicted in (("cat", "dog"), ("dog", "cat"))
    ]
    text = (
        "**Similar classes.** Separation of errors from agreement with expected gradients (1/2: errors cannot be detected); "
        f"similar classes are {names}: {'; '.join(parts)}. {'; '.join(cells)}."
    )
    return [text]


def _misplaced(result: RetrainingResult) -> list[str]:
    """Score expected gradients shifted by half an image, and restricted to the border or the center."""
    base = result.stages[0].pairs[METHODS[0]]
    lines = ["**Semantic relevance.** Expected gradients unchanged, and changed in the same way for all networks:", ""]
    lines += ["| map | MeGe ↑ | ReCo, rates ↑ | p | ReCo, precisions ↑ | S= / S≠ |", "|---|---|---|---|---|---|"]
    for name, change in _CHANGES.items():
        pairs = _changed(result, base, change)
        lines.append(f"| {name} | " + " | ".join(_cells(pairs.scores(DISTANCE))) + " |")
    return lines


def _border(maps: Any) -> Any:
    """Keep the outer quarter of rows and columns on each side, three quarters of the area."""
    cut = np.array(maps)
    side = cut.shape[-1] // 4
    cut[..., side:-side, side:-side] = 0
    return cut


def _shifted(maps: Any) -> Any:
    return np.roll(maps, (maps.shape[-2] // 2, maps.shape[-1] // 2), axis=(-2, -1))


_CHANGES: Mapping[str, Any] = {
    "unchanged": lambda maps: maps,
    "shifted by half the image": _shifted,
    "border only (the central quarter of the area set to zero)": _border,
    "central quarter only": lambda maps: maps - _border(maps),
}


def _changed(result: RetrainingResult, base: Pairs, change: Any) -> Pairs:
    """Return the pairs without noise, with distances computed after the same change to all maps."""
    distances = np.full(len(base), np.nan)
    for fold in range(result.folds):
        maps = [change(fold_maps) for fold_maps in stored_retrain_maps(result, METHODS[0], fold)]
        for other in range(result.folds):
            rows = (base.first == fold) & (base.second == other)
            if other != fold:
                distances[rows] = retraining_map_distances(maps[fold], maps[other])[DISTANCE]
    return replace(base, distances={DISTANCE: distances})


def read_retraining_study(path: Path) -> dict[str, str]:
    """Return the sections of an existing page by study name.

    A page with other content is refused, so that it is not overwritten.
    """
    if not path.exists():
        return {}
    names = {f"## {study.title}": name for name, study in STUDIES.items()}
    head, *parts = re.split(r"^(?=## )", read_text(path), flags=re.MULTILINE)
    by_heading = {part.splitlines()[0].strip(): part for part in parts}
    unknown = [heading for heading in by_heading if heading not in names]
    if not head.startswith(TITLE) or unknown:
        problem = f"the heading {unknown[0]!r}" if unknown else "the title"
        raise InputError(
            f"{path}: {problem} does not belong to this study. Pass another file with --page, or omit --only to "
            "replace the page."
        )
    return {names[heading]: part for heading, part in by_heading.items()}


def write_retraining_study(parts: Mapping[str, str], path: Path) -> None:
    """Write the page: the sections in the order of the studies, and the names of those that have not been run."""
    missing = [f"`{name}`" for name in STUDIES if name not in parts]
    intro = [
        TITLE,
        "",
        "Created by `perdure reproduce retraining --data-dir DATA` on all training images of CIFAR-10. Intervals are 95 %,",
        "bootstrapped over examples; p is from a permutation test of ReCo (rates). `constant` and",
        "`random` are controls: a score is informative about an explainer only if it differs from theirs.",
        "[What is computed](../retraining.md).",
        *(["", f"Not run yet (`--only`): {', '.join(missing)}."] if missing else []),
    ]
    ordered = [parts[name].strip() for name in STUDIES if name in parts]
    write_atomically(path, "\n\n".join(["\n".join(intro), *ordered]).encode() + b"\n")
