"""The experiments of the SHAPC paper: nine methods on Split CIFAR-10, Split CIFAR-100 and Split Tiny ImageNet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from perdure import tasks
from perdure.audits import Audit, ShapcResult, ShapcSettings
from perdure.audits import audit as audit_records
from perdure.audits.shapc.maps import stored_shapc_maps
from perdure.engine import Engine
from perdure.learners import Training
from perdure.learners.learner import LEARNERS
from perdure.reproduce.learners.run_rows import shapc_finding
from perdure.reproduce.learners.study import Study

METHODS = ("lwf", "si", "agem", "icarl", "der", "der++", "co2l", "xder", "bfp")
ILLUSTRATED = ("icarl", "xder", "lwf")
"""The methods of Figure 1."""
SETTINGS = ShapcSettings(samples=400, background=100)
EXAMPLES = 16
"""Test examples per task."""

# Published settings for Split CIFAR-10, except what depends on the smaller batch. The learning rate is .03 where the published
# one does not suit this batch size. All learners have the same number of trials on validation data, which vary the learning
# rate and the method's main coefficients. Trials use a narrower network and fewer epochs.
_SETTINGS: dict[str, dict[str, Any]] = {
    "lwf": {"alpha": 3.0, "weight_decay": 5e-4, "lr": 0.01},
    "si": {"c": 0.5, "xi": 1.0},
    "agem": {"buffer": 500, "reference": 10},
    "icarl": {"weight_decay": 1e-5, "buffer": 500, "lr": 0.1},
    "der": {"alpha": 0.3, "buffer": 500},
    "der++": {"alpha": 0.2, "beta": 0.5, "buffer": 500},
    "co2l": {"weight_decay": 1e-4, "buffer": 500},
    "xder": {"alpha": 0.3, "beta": 1.0, "eta": 0.01, "margin": 0.5, "views": 2, "buffer": 500},
    "bfp": {"alpha": 0.2, "beta": 0.5, "alpha_bfp": 1.0, "buffer": 500},
}
_CIFAR10 = Study(
    name="split-cifar10",
    title="Split CIFAR-10",
    benchmark="split-cifar10",
    scenario="class",
    learners=("naive", "joint", *METHODS),
    per_class=500,
    network="resnet18",
    width=16,
    training=Training(epochs=7, batch_size=10, lr=0.03, momentum=0.9, milestones=(5,), decay=0.2),
    trials=4,
    seeds=3,
    settings=_SETTINGS,
    augmentation="crop-flip",
    tuning_width=8,
    tuning_epochs=3,
)
STUDIES = {
    study.name: study
    for study in (
        _CIFAR10,
        replace(
            _CIFAR10,
            name="split-cifar100",
            title="Split CIFAR-100",
            benchmark="split-cifar100",
            tasks=10,
            per_class=100,
        ),
        replace(
            _CIFAR10,
            name="split-tiny-imagenet",
            title="Split Tiny ImageNet",
            benchmark="split-tiny-imagenet",
            tasks=10,
            per_class=50,
        ),
    )
}


def paper_scale(study: Study) -> Study:
    """Return a study with the network, the data and the published settings of the paper."""
    epochs = 100 if study.name == "split-tiny-imagenet" else 50
    settings = {
        name: {"buffer": 500, **LEARNERS.get(name).published.get(study.benchmark, {})}
        if "buffer" in _SETTINGS[name]
        else dict(LEARNERS.get(name).published.get(study.benchmark, {}))
        for name in METHODS
    }
    rate = 0.1 if study.name == "split-cifar10" else 0.03
    milestones = (35, 45) if study.name == "split-cifar100" else ()
    return replace(
        study,
        name=f"{study.name}-paper",
        title=f"{study.title}, the paper's scale",
        per_class=None,
        width=64,
        training=Training(epochs=epochs, batch_size=32, lr=rate, milestones=milestones, decay=0.1),
        trials=0,
        settings=settings,
        tuning_width=None,
        tuning_epochs=None,
    )


def examine_runs(
    study: Study, learner: str, folders: Sequence[Path], data_dir: Path | None, engine: Engine
) -> list[dict[str, Any]]:
    """Return SHAPC of each run of a learner, and the maps of Figure 1; nothing for a learner of all tasks at once."""
    if learner == "joint":
        return [{} for _ in folders]
    audit: Audit = audit_records(
        [str(folder) for folder in folders],
        shapc=SETTINGS,
        examples=EXAMPLES,
        retrain_reference=True,
        keep_maps=learner in ILLUSTRATED,
        data_dir=data_dir,
        engine=engine,
    )
    by_run = {Path(result.run): result for result in audit.shapc}
    findings = [shapc_finding(by_run[folder], study, seed) for seed, folder in enumerate(folders)]
    if learner in ILLUSTRATED:
        findings[0]["maps"] = illustrated_maps(by_run[folders[0]])
    return findings


def illustrated_maps(result: ShapcResult, count: int = 3) -> list[Mapping[str, Any]]:
    """Return the maps of the first examples of the first task after each step, with three digits."""
    return [
        {
            "step": stored.step,
            "example": stored.example,
            "label": stored.label,
            "image": None if stored.image is None else stored.image.tolist(),
            "predicted": {str(step): int(unit) for step, unit in stored.predicted.items()},
            "maps": {str(step): _rounded(values) for step, values in stored.maps.items()},
        }
        for stored in stored_shapc_maps(result, per_task=count)
        if stored.step == 0
    ]


def _rounded(values: np.ndarray[Any, Any]) -> list[list[float]]:
    scale = float(np.abs(values).max()) or 1.0
    rounded: list[list[float]] = np.round(values.astype(np.float64) / scale, 3).tolist()
    return rounded


def class_names(study: Study, data_dir: Path | None) -> tuple[str, ...]:
    """Return the names of the classes in the order of the outputs."""
    return tasks.load(study.benchmark, scenario=study.scenario, tasks=study.tasks, data_dir=data_dir).class_names
