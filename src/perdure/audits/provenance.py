"""The provenance of a run: settings, seed, versions, machine, data, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.record import Manifest, Record

_TRAINING = (
    "epochs",
    "batch_size",
    "lr",
    "optimizer",
    "momentum",
    "weight_decay",
    "milestones",
    "patience",
    "evaluate_every",
)
_WITHOUT_OPTION = (
    "decay",
    "tuning_trials",
)  # the command never changes the first; the second led to settings that are passed explicitly


@dataclass(frozen=True)
class RunProvenance:
    """Everything needed to judge and repeat one run. ``command`` is None for a run recorded by a user's own loop."""

    run: str
    learner: str
    benchmark: str
    seed: int | None
    command: str | None
    settings: Mapping[str, Any]
    network: Mapping[str, Any]
    data: Mapping[str, Any]
    software: Mapping[str, str]
    hardware: Mapping[str, Any]
    checkpoints: Mapping[str, str]
    """The SHA-256 of the checkpoint after each step; steps are 1-based."""


def provenance_of(record: Record) -> RunProvenance:
    """Return the provenance of a record."""
    manifest = record.manifest
    return RunProvenance(
        run=str(record.path),
        learner=manifest.learner,
        benchmark=record.measurements.benchmark,
        seed=manifest.seed,
        command=repeat_command(manifest),
        settings=manifest.settings,
        network=manifest.network,
        data=manifest.provenance,
        software=manifest.software,
        hardware=manifest.hardware,
        checkpoints={str(step + 1): point.sha256 for step, point in sorted(manifest.checkpoints.items())},
    )


def repeat_command(manifest: Manifest) -> str | None:
    """Return the ``perdure run`` command that repeats the record, with every setting passed explicitly.

    The command counts seeds from 0, so it also makes the runs with smaller seeds.
    """
    data = manifest.provenance
    if "source" not in data or manifest.seed is None or not manifest.settings:
        return None
    command = ["perdure", "run", manifest.learner, "--benchmark", str(data["source"])]
    command += ["--seeds", str(manifest.seed + 1), "--scenario", manifest.scenario]
    command += _data_options(data)
    command += _network_options(manifest.network)
    command += [word for name in _TRAINING for word in _option(name, manifest.settings.get(name))]
    own = [name for name in manifest.settings if name not in (*_TRAINING, *_WITHOUT_OPTION)]
    command += [word for name in own for word in ("--set", f"{name}={manifest.settings[name]}")]
    command += [word for name in ("device", "threads") for word in _option(name, manifest.hardware.get(name))]
    return shlex.join(command)


def _data_options(data: Mapping[str, Any]) -> list[str]:
    """Return the options of the data; a class order is the last of those that the command makes."""
    visits = [task + 1 for task in data.get("curriculum", [])]
    plain = visits == list(range(1, len(visits) + 1))
    options = {
        "tasks": data.get("tasks"),
        "orders": data.get("order_seed"),
        "curriculum": None if plain else visits,
        "per_class": data.get("per_class"),
        "validation": data.get("validation") or None,
    }
    return [word for name, value in options.items() for word in _option(name, value)]


def _network_options(network: Mapping[str, Any]) -> list[str]:
    """Return the options of the network; ``module.function`` is a user's function in ``module.py``."""
    name = str(network.get("name", ""))
    module, dot, function = name.rpartition(".")
    return _option("network", f"{module}.py:{function}" if dot else name) + _option("width", network.get("width"))


def _option(name: str, value: object) -> list[str]:
    if value is None or value in ("", [], ()):
        return []
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return [f"--{name.replace('_', '-')}", text]
