"""Loads the networks and data of a run from a record or a folder of checkpoints."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import learners, nets, tasks
from perdure.base.errors import InputError
from perdure.record import Record
from perdure.record.reader import load_tensors
from perdure.record.schema import MANIFEST
from perdure.runs.cache import Cache, record_cache
from perdure.runs.data import BenchmarkData, RunData, UserData
from perdure.tasks import Benchmark
from perdure.tasks.benchmark import Augmentation
from perdure.tasks.files.bounded import damage_named, open_zip

WEIGHTS_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
_BENCHMARK_OPTIONS = ("scenario", "seed", "order_seed", "curriculum", "per_class", "validation", "tasks")
NetworkMaker = Callable[[], nn.Module]
_NESTED_KEYS = ("state_dict", "model_state_dict", "model")
"""Keys under which training scripts store the weights inside a torch file."""


@dataclass(frozen=True)
class LoadedRun:
    """A finished run: its checkpoints, how to load their networks, and the data of its tasks."""

    path: Path
    learner: str
    benchmark: str
    seed: int | None
    tasks: tuple[str, ...]
    curriculum: tuple[int, ...]
    """The task trained at each step."""
    scenario: str
    checkpoints: Mapping[int, str]
    """SHA-256 of the checkpoint after each step that has one."""
    data: RunData
    network: Callable[[int], nn.Module]
    """Returns the network after a step, on its device and in evaluation mode."""
    decision_network: Callable[[int], nn.Module]
    """Returns the network whose outputs decide: the network itself, or the learner's own rule on top of it."""
    initial_network: Callable[[int], nn.Module]
    """Returns the network that a seed initializes, before any weights are loaded."""
    with_rule: Callable[[nn.Module, int], nn.Module] = lambda network, step: network  # noqa: ARG005
    """Returns a network with the learner's decision rule of a step on top of it."""
    decides_by: str = "logits"
    class_names: tuple[str, ...] = ()
    trains_all: bool = False
    """Whether all tasks were learned at once (joint training): there is no sequence."""

    @property
    def cache(self) -> Cache:
        """The cache inside the run's folder."""
        return record_cache(self.path)

    @property
    def digests(self) -> list[str]:
        """SHA-256 of every checkpoint, in order."""
        return [self.checkpoints[step] for step in sorted(self.checkpoints)]

    def last_step(self) -> int:
        """Return the last step with a checkpoint."""
        if not self.checkpoints:
            raise InputError(f"{self.path}: no checkpoint was saved, so there is no network to examine")
        return max(self.checkpoints)

    def checked_step(self, step: int | None) -> int:
        """Return a step with a checkpoint; None means the last one."""
        last = self.last_step()
        if step is None:
            return last
        if step not in self.checkpoints:
            known = ", ".join(str(number + 1) for number in sorted(self.checkpoints))
            raise InputError(f"{self.path}: no checkpoint was saved after step {step + 1}; there are {known}")
        return step

    def candidates(self, step: int, task: int) -> list[int] | None:
        """Return the outputs among which the learner decides after a step; None means all."""
        if self.scenario == "task":
            return list(self.data.classes[task])
        if self.scenario == "class":
            return sorted({unit for seen in self.curriculum[: step + 1] for unit in self.data.classes[seen]})
        return None

    def seen_tasks(self, step: int) -> list[int]:
        """Return the tasks trained up to a step."""
        if self.trains_all:
            return list(range(len(self.data.classes)))
        return sorted(set(self.curriculum[: step + 1])) or [0]

    def first_visits(self) -> list[int]:
        """Return the steps that train a task for the first time and are followed by another step (SHAPC's tau)."""
        steps = range(len(self.curriculum) - 1)
        return [step for step in steps if self.curriculum[step] not in self.curriculum[:step]]


def load_run(
    path: str | Path,
    network: NetworkMaker | None = None,
    data: Any = None,
    background: Any = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    *,
    sequence: bool = False,
) -> LoadedRun:
    """Load a record, or a folder of checkpoints with the user's network and data.

    ``network`` is a function that returns an untrained network. ``data`` holds a pair (inputs, output units) for each task,
    inputs preprocessed for the network. ``background`` holds background inputs, one array for all tasks or one per task (by
    default test examples). A record of ``perdure run`` needs none of them. With ``sequence`` the run must have several tasks
    and a checkpoint after every step.
    """
    path = Path(path)
    user_data = None if data is None else UserData.checked(data, background)
    if (path / MANIFEST).exists():
        run = _from_record(Record.open(path), network, user_data, data_dir, device)
    elif not path.is_dir():
        raise InputError(f"{path}: no such directory")
    elif network is None or user_data is None:
        raise InputError(f"{path}: not a record (no {MANIFEST}). {_missing_record_hint(path)}")
    else:
        run = _from_checkpoints(path, network, user_data, device)
    if sequence:
        _check_sequence(run)
    return run


def _missing_record_hint(path: Path) -> str:
    """Return what to pass instead of a folder that is not a record."""
    manifest = min(path.rglob(MANIFEST), default=None)
    if manifest is not None:
        return f"Pass one of the records in this folder, for example {manifest.parent}"
    return "For a folder of checkpoints, pass a network and the test data of the tasks"


def _check_sequence(run: LoadedRun) -> None:
    """Check that the checkpoints can be compared with each other: several tasks, a checkpoint after every step."""
    if run.trains_all:
        raise InputError(f"{run.path}: {run.learner} learns all tasks at once; there is no sequence to compare")
    missing = [step + 1 for step in range(len(run.curriculum)) if step not in run.checkpoints]
    if missing:
        raise InputError(f"{run.path}: no checkpoint was saved after step {missing[0]}; every step needs one")
    if len(set(run.curriculum)) < 2:
        raise InputError(f"{run.path}: only one task is trained; a comparison needs at least two")
    _check_data(run)


def recorded_run_benchmark(record: Record, data_dir: Path | None = None) -> Benchmark:
    """Load the benchmark that a record names and check its fingerprint."""
    provenance = record.manifest.provenance
    if "source" not in provenance:
        raise InputError(
            f"{record.path}: the record does not name its data; pass a network and the test data of each task "
            "(network= and data= in Python)"
        )
    options = {name: provenance[name] for name in _BENCHMARK_OPTIONS if name in provenance}
    benchmark = tasks.load(provenance["source"], data_dir=data_dir, **options)
    if "fingerprint" not in provenance:
        return benchmark
    # A run may have used another augmentation than the benchmark's default; the fingerprint identifies it.
    for augmentation in (benchmark.augmentation, *get_args(Augmentation)):
        candidate = replace(benchmark, augmentation=augmentation)
        if candidate.fingerprint() == provenance["fingerprint"]:
            return candidate
    raise InputError(
        f"{record.path}: the data of {provenance['source']} differ from the data that the run was trained on"
    )


def _from_record(
    record: Record, network: NetworkMaker | None, user_data: UserData | None, data_dir: Path | None, device: str
) -> LoadedRun:
    manifest = record.manifest
    benchmark = recorded_run_benchmark(record, data_dir) if user_data is None or network is None else None
    data: RunData = user_data if user_data is not None else BenchmarkData(_known(benchmark), device)

    def load(step: int) -> nn.Module:
        if network is None:
            return recorded_run_network(record, _known(benchmark), step).to(device)
        source = f"{record.path}: the checkpoint after step {step + 1}"
        return load_run_weights(make_run_network(network), record.checkpoint(step), source).to(device)

    def with_rule(trained: nn.Module, step: int) -> nn.Module:
        rule = {name: value.to(device) for name, value in record.decision(step).items()}
        return learners.get(manifest.learner).decision_network(trained, rule).eval() if rule else trained

    def initial(seed: int) -> nn.Module:
        if network is None:
            return _recorded_network(record, _known(benchmark), seed).to(device)
        return _initial_network(network, seed).to(device)

    return LoadedRun(
        path=record.path,
        learner=manifest.learner,
        benchmark=record.measurements.benchmark,
        seed=manifest.seed,
        tasks=manifest.tasks,
        curriculum=manifest.curriculum[: manifest.steps_done],
        scenario=manifest.scenario,
        checkpoints={step: point.sha256 for step, point in sorted(manifest.checkpoints.items())},
        data=data,
        network=load,
        decision_network=lambda step: with_rule(load(step), step),
        initial_network=initial,
        with_rule=with_rule,
        decides_by=manifest.decides_by,
        class_names=benchmark.class_names if benchmark is not None else (),
        trains_all=manifest.trains_all,
    )


def _known(benchmark: Benchmark | None) -> Benchmark:
    assert benchmark is not None, "a record without user data and network has a benchmark"  # noqa: S101
    return benchmark


def _from_checkpoints(path: Path, network: NetworkMaker, data: UserData, device: str) -> LoadedRun:
    files = sorted(file for file in path.iterdir() if file.suffix in WEIGHTS_SUFFIXES)
    if not files:
        raise InputError(f"{path}: the folder has no checkpoints ({', '.join(WEIGHTS_SUFFIXES)})")
    if len(files) != len(data.tasks):
        raise InputError(
            f"{path}: {len(files)} checkpoints but data for {len(data.tasks)} tasks; expected one checkpoint after each task, "
            "sorted by name"
        )

    def load(step: int) -> nn.Module:
        return load_run_weights(
            make_run_network(network), read_run_weights(files[step]), f"{files[step]}: the checkpoint"
        ).to(device)

    return LoadedRun(
        path=path,
        learner=path.resolve().name,
        benchmark="own",
        seed=None,
        tasks=tuple(str(step + 1) for step in range(len(files))),
        curriculum=tuple(range(len(files))),
        scenario="",
        checkpoints={step: hashlib.sha256(file.read_bytes()).hexdigest() for step, file in enumerate(files)},
        data=data,
        network=load,
        decision_network=load,
        initial_network=lambda seed: _initial_network(network, seed).to(device),
    )


def _check_data(run: LoadedRun) -> None:
    """Check, before any work, that each task has data and that the network has an output for each label."""
    if len(run.data.classes) != len(run.tasks):
        raise InputError(f"{run.path}: {len(run.tasks)} tasks but test data for {len(run.data.classes)}")
    network = run.network(0)
    for task in sorted(set(run.curriculum)):
        x = run.data.inputs(task, np.arange(2))
        with torch.inference_mode():
            outputs = network(x.to(next(network.parameters(), x).device))
        if outputs.dim() != 2:
            raise InputError(
                f"{run.path}: the network returns shape {tuple(outputs.shape)} for two examples, expected (2, classes)"
            )
        largest = max(run.data.classes[task])
        if largest >= outputs.shape[1]:
            raise InputError(
                f"{run.path}: task {task + 1} has an example of class {largest}, but the network has outputs 0 to "
                f"{outputs.shape[1] - 1}"
            )


def describe_run_score(target: str, score: str, decides_by: str) -> str:
    """Describe which score of which class is explained, and whether the learner decides by it."""
    if decides_by == "logits":
        return f"the logit of {target}"
    if score == "decision":
        return f"the score of {target} by which the learner decides ({decides_by})"
    return f"the network's logit of {target}; the learner decides by {decides_by}"


def recorded_run_network(record: Record, benchmark: Benchmark, step: int) -> nn.Module:
    """Build the network that a record names and load the checkpoint after a step."""
    network = _recorded_network(record, benchmark)
    return load_run_weights(network, record.checkpoint(step), f"{record.path}: the checkpoint after step {step + 1}")


def _recorded_network(record: Record, benchmark: Benchmark, seed: int = 0) -> nn.Module:
    """Build the network that a record names, initialized from a seed."""
    name = record.manifest.network.get("name")
    if name is None or name not in nets.names():
        raise InputError(
            f"{record.path}: the record does not name a built-in network; pass a function that makes it (network= in Python)"
        )
    return nets.build(
        name,
        input_shape=benchmark.input_shape,
        outputs=benchmark.outputs,
        seed=seed,
        width=record.manifest.network.get("width"),
    )


def make_run_network(network: NetworkMaker) -> nn.Module:
    """Call a user's function and check that it returns a module."""
    module: object = network()
    if not isinstance(module, nn.Module):
        raise InputError(f"network: expected a function that returns a torch.nn.Module, got a {type(module).__name__}")
    return module


def _initial_network(network: NetworkMaker, seed: int) -> nn.Module:
    """Call a user's function with the random state of a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make_run_network(network)


def load_run_weights(network: nn.Module, state: Mapping[str, Tensor], source: str) -> nn.Module:
    """Load weights into a network and set evaluation mode; weights of other shapes or non-finite weights raise `InputError`."""
    for name, value in state.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise InputError(f"{source} has NaN or infinite weights in {name!r}")
    try:
        network.load_state_dict(dict(state))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"{source} does not fit the network ({reason})") from None
    return network.eval()


def read_run_weights(file: Path) -> dict[str, Tensor]:
    """Return the weights in a safetensors file, or in a torch file read with ``weights_only``: no code is executed."""
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    if file.suffix == ".safetensors":
        return load_tensors(file)
    _check_torch_members(file)
    try:
        value = torch.load(file, map_location="cpu", weights_only=True)
    except Exception:  # noqa: BLE001  (torch raises several kinds for a bad file)
        raise InputError(
            f"{file}: cannot be read as weights; expected a file written by torch.save(network.state_dict(), file)"
        ) from None
    is_mammoth = isinstance(value, dict) and {"model", "args", "results"} <= value.keys()
    for name in _NESTED_KEYS:
        if isinstance(value, dict) and isinstance(value.get(name), dict):
            value = value[name]
    if not isinstance(value, dict) or not all(isinstance(item, Tensor) for item in value.values()):
        raise InputError(f"{file}: expected a state_dict, a dictionary of names and tensors")
    if is_mammoth:
        value = without_mammoth_prefix(value)
    size = file.stat().st_size
    for name, tensor in value.items():
        if not isinstance(name, str) or tensor.layout != torch.strided or tensor.numel() * tensor.element_size() > size:
            raise InputError(
                f"{file}, tensor {str(name)[:80]!r}: expected a dense tensor that the file holds completely"
            )
    weights: dict[str, Tensor] = value
    return weights


def without_mammoth_prefix(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the network in a checkpoint of mammoth, which stores them under ``net.`` or ``net.module.``.

    Tensors of the method itself are left out.
    """
    names = {name: name.removeprefix("net.").removeprefix("module.") for name in state if str(name).startswith("net.")}
    return {short: state[name] for name, short in names.items()}


def _check_torch_members(file: Path) -> None:
    """Check that a torch file in zip format is not compressed: torch writes it so, and a compressed one can fill the memory."""
    with damage_named(f"{file}: cannot be read as weights"):
        if not zipfile.is_zipfile(file):
            return
        with open_zip(file, file.stat().st_size) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED:
                    raise InputError(f"{file}, member {member.filename[:80]!r}: expected a file written by torch.save")


def copy_run_head(network: nn.Module, source: nn.Module) -> None:
    """Copy the weights of the module named ``head`` from another network."""
    head, source_head = getattr(network, "head", None), getattr(source, "head", None)
    if not isinstance(head, nn.Module) or not isinstance(source_head, nn.Module):
        raise InputError("head: the network has no module named 'head' to replace")
    head.load_state_dict(source_head.state_dict())


def run_predictions(network: nn.Module, x: Tensor, candidates: list[int] | None) -> NDArray[np.int64]:
    """Return the class with the highest score among the candidates (None: all outputs) for each example."""
    with torch.inference_mode():
        scores = network(x)
    if candidates is not None:
        allowed = torch.tensor(candidates, device=scores.device)
        return np.asarray(allowed[scores[:, allowed].argmax(dim=1)].cpu().numpy(), dtype=np.int64)
    return np.asarray(scores.argmax(dim=1).cpu().numpy(), dtype=np.int64)


def run_network_device(network: nn.Module) -> torch.device:
    """Return the device of a network's parameters; the CPU if it has none."""
    first = next(network.parameters(), None)
    return torch.device("cpu") if first is None else first.device
