"""Where the numbers of a run come from: settings, seed, versions, machine, data, and the command that makes it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
)  # one is never changed by the command, the other chose settings that are given


@dataclass(frozen=True)
class RunProvenance:
    """What it takes to judge and to repeat one run. ``command`` is None for a run recorded by a loop of the user's own."""

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
    """The checksum (SHA-256) of the network kept after each step, steps counted from 1."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def provenance_of(record: Record) -> RunProvenance:
    """Return what a record says about itself."""
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
    """Return the ``perdure run`` that makes the record again, with every setting given.

    Seeds are counted from 0 by that command, so it makes the runs with smaller seeds as well.
    """
    data = manifest.provenance
    if "source" not in data or manifest.seed is None or not manifest.settings:
        return None
    words = ["perdure", "run", manifest.learner, "--benchmark", str(data["source"])]
    words += ["--seeds", str(manifest.seed + 1), "--scenario", manifest.scenario]
    words += _data_options(data)
    words += _network_options(manifest.network)
    words += [word for name in _TRAINING for word in _option(name, manifest.settings.get(name))]
    own = [name for name in manifest.settings if name not in (*_TRAINING, *_WITHOUT_OPTION)]
    words += [word for name in own for word in ("--set", f"{name}={manifest.settings[name]}")]
    words += [word for name in ("device", "threads") for word in _option(name, manifest.hardware.get(name))]
    return shlex.join(words)


def _data_options(data: Mapping[str, Any]) -> list[str]:
    """Return the options that shape the data; a class order is one of several that the command makes, the last."""
    visits = [task + 1 for task in data.get("curriculum", [])]
    plain = visits == list(range(1, len(visits) + 1))
    given = {
        "tasks": data.get("tasks"),
        "orders": data.get("order_seed"),
        "curriculum": None if plain else visits,
        "per_class": data.get("per_class"),
        "validation": data.get("validation") or None,
    }
    return [word for name, value in given.items() for word in _option(name, value)]


def _network_options(network: Mapping[str, Any]) -> list[str]:
    """Return the network's options; ``module.function`` is a function of the user's own, in ``module.py``."""
    name = str(network.get("name", ""))
    module, dot, function = name.rpartition(".")
    return _option("network", f"{module}.py:{function}" if dot else name) + _option("width", network.get("width"))


def _option(name: str, value: object) -> list[str]:
    if value is None or value in ("", [], ()):
        return []
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return [f"--{name.replace('_', '-')}", text]
