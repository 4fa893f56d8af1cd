"""MeGe, ReCo and the weight-randomisation test on CIFAR-10, and the three warnings of the report put to the test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from perdure import figures, tasks
from perdure.audits import Interval
from perdure.audits.retraining.maps import Explaining, distances_of
from perdure.audits.retraining.pairs import Pairs
from perdure.audits.retraining.results import RetrainingResult
from perdure.audits.retraining.retrain import NOISE, Progress, kept_maps, retrain
from perdure.base.errors import InputError
from perdure.base.files import read_text, write_atomically
from perdure.learners import Training
from perdure.metrics import RetrainingScores

TITLE = "# Do explanations survive retraining?"
METHODS = (
    "expected_gradients",
    "grad",
    "gradient_x_input",
    "integrated_gradients",
    "guided_backprop",
    "lrp",
    "gradcam",
)
SLOW = ("deepshap", "lime")
SWEEP = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
DISTANCE = "l2-unit"
"""L2 of maps as they are depends on their scale, which noise on the weights changes; all distances are in the files."""
EXPLAINING = Explaining(samples=30, background=30, players="grid")
SIMILAR = (("cat", "dog"), ("automobile", "truck"), ("deer", "horse"))
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Subject:
    """A network and how it is trained, with the explainers and samples its time allows."""

    name: str
    title: str
    network: str
    width: int | None
    training: Training
    per_fold: int
    methods: tuple[str, ...]
    noise: tuple[float, ...]


_LENET = Subject(
    "lenet", "LeNet", "lenet", None, Training(epochs=10, batch_size=32, lr=0.01, momentum=0.9), 30, METHODS, NOISE
)
_RESNET = Subject(
    "resnet18",
    "ResNet-18, width 16",
    "resnet18",
    16,
    Training(epochs=5, batch_size=32, lr=0.05, momentum=0.9),
    10,
    (*METHODS, *SLOW),
    NOISE,
)
SUBJECTS = {
    subject.name: subject
    for subject in (
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
    )
}


def run_subject(
    subject: Subject, data_dir: Path | None, out: Path, progress: Progress | None = None
) -> RetrainingResult:
    """Train and explain, or read what an earlier call has left."""
    data = tasks.load((data_dir or Path()) / "cifar10-small.npz", scenario="class", tasks=5)
    return retrain(
        replace(data, class_names=CIFAR),
        network=subject.network,
        width=subject.width,
        training=subject.training,
        methods=subject.methods,
        per_fold=subject.per_fold,
        noise=subject.noise,
        cascade_share=0.3 if subject.name.endswith("sweep") else None,
        explaining=EXPLAINING,
        workers=1,
        out=out / "retraining",
        progress=progress,
    )


def section(subject: Subject, result: RetrainingResult, pictures: Path) -> str:
    """Return one network's part of the page: settings, tables and figures."""
    lines = [f"## {subject.title}", "", _settings(result), ""]
    rows = [result.levels(), result.cascade()] if subject.name.endswith("sweep") else [result.levels()]
    for places, top_down in zip(rows, (False, True), strict=False):
        lines += [*_table(result, places), "", *_trends(result, top_down), ""]
        picture = pictures / f"retraining-{subject.name}{'-top-down' if top_down else ''}.png"
        figures.save(figures.noise_lines(result, DISTANCE, top_down), picture)
        lines += [f"![scores against noise]({picture.name})", ""]
    if not subject.name.endswith("sweep"):
        lines += [*_distances(result), ""]
    if METHODS[0] in result.explainers and not subject.name.endswith("sweep"):
        lines += [*warnings(result), ""]
        picture = pictures / f"retraining-{subject.name}-classes.png"
        figures.save(figures.class_separation(result, METHODS[0], DISTANCE), picture)
        lines += [f"![separation, class by class]({picture.name})", ""]
    for name, why in result.refused.items():
        lines += [f"`{name}` was refused: {why}.", ""]
    return "\n".join(lines)


def _settings(result: RetrainingResult) -> str:
    training, explaining = result.training, result.explaining
    return (
        f"{result.examples} images in {result.folds} folds, {training['epochs']} epochs of {training['optimizer']} at "
        f"{training['lr']:g} (momentum {training['momentum']:g}, batch {training['batch_size']}, "
        f"no augmentation), each fold from a start of its own; "
        f"{result.per_fold} held-out images of each fold, {explaining['samples']} gradients, steps or perturbations a map, "
        f"{explaining['background']} backgrounds. Distance: L2 of maps scaled to unit norm."
    )


def _table(result: RetrainingResult, places: list[int]) -> list[str]:
    header = ["noise", "accuracy", "explainer", "MeGe ↑", "ReCo, rates ↑", "p", "ReCo, precisions ↑", "S= / S≠"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for place in places:
        stage = result.stages[place]
        for method in result.methods:
            cells = [str(stage.noise), f"{np.mean(stage.accuracy):.3f}", f"`{method}`"]
            lines.append("| " + " | ".join(cells + _cells(result.scores(method, DISTANCE, place))) + " |")
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
        "Page's test over folds, for a fall with noise:",
        "",
        "| explainer | MeGe | ReCo, rates | ReCo, precisions |",
        "|---|---|---|---|",
    ]
    for method in result.methods:
        cells = []
        for score in ("mege", "reco_rate", "reco_precision"):
            found = result.trend(method, score, DISTANCE, top_down)
            left = f", {found.left_out} folds left out" if found.left_out else ""
            cells.append((found.reason or f"{found.rank_correlation:+.2f} (p {found.p_value:.1g})") + left)
        lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    return lines


def _distances(result: RetrainingResult) -> list[str]:
    lines = ["Without noise, by distance: MeGe, and ReCo of rates (p).", ""]
    lines += ["| explainer | " + " | ".join(result.distances) + " |", "|" + "---|" * (len(result.distances) + 1)]
    for method in result.methods:
        found = [result.scores(method, kind) for kind in result.distances]
        cells = [f"{one.mege.mean:.3f}, {one.reco_rate.mean:.3f} ({one.p_value:.3f})" for one in found]
        lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    return lines


def warnings(result: RetrainingResult) -> list[str]:
    """Return the report's three warnings with the numbers that show or refute each."""
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
    mege = {method: f"{found.mege.mean:.3f}" for method, found in scores.items()}
    rate = {method: f"{found.reco_rate.mean:.3f}" for method, found in scores.items()}
    best = max(result.explainers, key=lambda method: scores[method].mege.mean)
    text = (
        f"**High MeGe of poor maps.** A map of ones has MeGe {mege['constant']}; of the explainers the highest is "
        f"{mege[best]} (`{best}`), and expected gradients have {mege[METHODS[0]]}. ReCo of rates is {rate['constant']} for "
        f"the map of ones, {rate[best]} for `{best}` and {rate[METHODS[0]]} for expected gradients. Gaussian maps: MeGe "
        f"{mege['random']}, ReCo {rate['random']}."
    )
    return [text]


def _similar_classes(result: RetrainingResult) -> list[str]:
    """Compare the errors between look-alikes with all other errors, on the same pairs' separation from agreement."""
    matrix = result.stages[0].pairs[METHODS[0]].classes(DISTANCE, len(result.class_names))
    alike = np.zeros(matrix.pairs.shape, dtype=bool)
    for one, other in SIMILAR:
        first, second = CIFAR.index(one), CIFAR.index(other)
        alike[first, second] = alike[second, first] = True
    known = ~np.isnan(matrix.separation)
    parts = []
    for name, chosen in (("between look-alikes", alike & known), ("all others", ~alike & known)):
        weight = matrix.pairs[chosen]
        mean = float(np.average(matrix.separation[chosen], weights=weight)) if weight.sum() else float("nan")
        parts.append(f"{name} {mean:.3f} ({int(weight.sum())} pairs)")
    names = ", ".join(f"{one} and {other}" for one, other in SIMILAR)
    cells = [
        f"{a} called {b}: {matrix.separation[CIFAR.index(a), CIFAR.index(b)]:.3f}"
        for a, b in (("cat", "dog"), ("dog", "cat"))
    ]
    text = (
        "**Similar classes.** Separation of errors from agreement under expected gradients (1/2: an error cannot be told), "
        f"look-alikes being {names}: {'; '.join(parts)}. {'; '.join(cells)}."
    )
    return [text]


def _misplaced(result: RetrainingResult) -> list[str]:
    """Score expected gradients moved by half an image, and cut to the border or the centre: the same maps elsewhere."""
    base = result.stages[0].pairs[METHODS[0]]
    lines = ["**Semantic relevance.** Expected gradients as they are, and spoilt alike under every network:", ""]
    lines += ["| map | MeGe ↑ | ReCo, rates ↑ | p | ReCo, precisions ↑ | S= / S≠ |", "|---|---|---|---|---|---|"]
    for name, change in _SPOILT.items():
        pairs = _changed(result, base, change)
        lines.append(f"| {name} | " + " | ".join(_cells(pairs.scores(DISTANCE))) + " |")
    return lines


def _border(maps: Any) -> Any:
    """Keep the outer quarter of rows and columns, three quarters of the area."""
    cut = np.array(maps)
    side = cut.shape[-1] // 4
    cut[..., side:-side, side:-side] = 0
    return cut


def _moved(maps: Any) -> Any:
    return np.roll(maps, (maps.shape[-2] // 2, maps.shape[-1] // 2), axis=(-2, -1))


_SPOILT: Mapping[str, Any] = {
    "as it is": lambda maps: maps,
    "moved by half the image": _moved,
    "border only, the middle quarter of the area erased": _border,
    "middle quarter only": lambda maps: maps - _border(maps),
}


def _changed(result: RetrainingResult, base: Pairs, change: Any) -> Pairs:
    """Return the pairs of maps without noise after a change that is the same for all of them."""
    found = np.full(len(base), np.nan)
    for fold in range(result.folds):
        maps = [change(own) for own in kept_maps(result, METHODS[0], fold)]
        for other in range(result.folds):
            where = (base.first == fold) & (base.second == other)
            if other != fold:
                found[where] = distances_of(maps[fold], maps[other])[DISTANCE]
    return replace(base, distances={DISTANCE: found})


def parts_of(path: Path) -> dict[str, str]:
    """Return the parts that a page holds, by their names; a page of anything else is refused, so that it is not lost."""
    if not path.exists():
        return {}
    names = {f"## {subject.title}": name for name, subject in SUBJECTS.items()}
    head, *parts = re.split(r"^(?=## )", read_text(path), flags=re.MULTILINE)
    found = {part.splitlines()[0].strip(): part for part in parts}
    foreign = [heading for heading in found if heading not in names]
    if not head.startswith(TITLE) or foreign:
        what = f"the heading {foreign[0]!r}" if foreign else "its title"
        raise InputError(f"{path}: {what} is not of this study; give another --page, or make the whole page anew")
    return {names[heading]: part for heading, part in found.items()}


def write_results(parts: Mapping[str, str], path: Path) -> None:
    """Write the page: its parts in the study's order, and which of them have not been run."""
    lacking = [f"`{name}`" for name in SUBJECTS if name not in parts]
    intro = [
        TITLE,
        "",
        "Made by `perdure reproduce retraining --data-dir DATA` (DATA holds `cifar10-small.npz`, 500 training images a",
        "class). Intervals are 95 %, drawn over samples; p is of a permutation test of ReCo's rate form. `constant` and",
        "`random` are controls: a score says something about an explainer only as far as it differs from theirs.",
        "[What is computed](../retraining.md).",
        *(["", f"Not run yet (`--only`): {', '.join(lacking)}."] if lacking else []),
    ]
    ordered = [parts[name].strip() for name in SUBJECTS if name in parts]
    write_atomically(path, "\n\n".join(["\n".join(intro), *ordered]).encode() + b"\n")
