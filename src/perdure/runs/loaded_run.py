"""Loads the networks and data of a run from a record or a folder of checkpoints."""

from __future__ import annotations

import hashlib
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
from perdure.explain.adapters.adapted import Adapted, adapt
from perdure.explain.adapters.inputs import Description, Table
from perdure.record import Record
from perdure.record.kept_checkpoints import ALL, describe_kept_checkpoints
from perdure.record.reader import load_tensors
from perdure.record.references import FILE as REFERENCES
from perdure.record.schema import MANIFEST
from perdure.runs.cache import Cache, cache_digest, record_cache, weights_digest
from perdure.runs.data import BenchmarkData, RunData, UserData
from perdure.runs.networks import PROBED_ROWS, NetworkSource, UserNetworks, reset_modules, resize_heads, usable_network
from perdure.runs.permissions import stored_data, stored_network
from perdure.runs.torch_files import read_torch_file
from perdure.tasks import Benchmark
from perdure.tasks.benchmark import Augmentation

_IN_PYTHON = {
    "network": "network=make_net, a function that returns the network",
    "data": "data=[(inputs, labels), ...], the test data of each task",
}
_ON_COMMAND_LINE = {
    "network": "--network file.py:function, which returns the network",
    "data": "--data, the test data of each task (file.py:function, .npz, .pt, .csv or a folder)",
}
DIGEST_ROWS = 256
"""Test examples of each task whose outputs identify a model without weights."""
WEIGHTS_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
_BENCHMARK_OPTIONS = ("scenario", "seed", "order_seed", "curriculum", "per_class", "validation", "tasks")
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
    inputs: Description | None = None
    """What the inputs are (tokens, time series, a table with groups of columns); None for images and plain tables."""
    keep_checkpoints: str = ALL
    """Which checkpoints the record keeps."""
    behavior: str = ""
    """A digest of some outputs of a user's network; empty for built-in networks, whose weights determine them."""

    @property
    def identity(self) -> dict[str, str]:
        """What determines explanations besides checkpoints and data, for the cache: the user's code and description.

        The weights do not determine the outputs of a user's network: its forward method may have been edited.
        """
        values = {"network": self.behavior, "inputs": "" if self.inputs is None else repr(self.inputs)}
        return {name: value for name, value in values.items() if value}

    def described(self, network: nn.Module) -> nn.Module:
        """Return a network with the description of the run's inputs, for explainers."""
        return network if self.inputs is None or isinstance(network, Adapted) else adapt(network, self.inputs)

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
            reason = describe_kept_checkpoints(self.keep_checkpoints)
            raise InputError(
                f"{self.path}: no checkpoint was saved after step {step + 1}; there are {known}"
                f"{f' ({reason})' if reason else ''}"
            )
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
    network: NetworkSource | None = None,
    data: Any = None,
    background: Any = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    *,
    sequence: bool = False,
) -> LoadedRun:
    """Load a record, or a folder of checkpoints with the user's network and data.

    ``network`` is a function that returns an untrained network, a network, or one ready model after each step (a sequence,
    or a function with an argument ``step``). ``data`` holds a pair (inputs, output units), a Dataset or a DataLoader for each
    task, inputs preprocessed for the network. ``background`` holds background inputs, one array for all tasks or one per task
    (by default test examples). A record of ``perdure run`` needs none of them, nor does a record that stores references to
    code which this machine allows. With ``sequence`` the run must have several tasks and a checkpoint after every step.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import perdure
    >>> from perdure import runs
    >>> def make_net():
    ...     return nn.Linear(4, 2)
    >>> recorder = perdure.Recorder("runs/mine", tasks=2)
    >>> for task in range(2):
    ...     recorder.after_task(make_net(), accuracy=[0.9, 0.8])
    >>> sets = [(torch.randn(20, 4), torch.arange(20) % 2) for task in range(2)]
    >>> run = runs.load_run("runs/mine", make_net, sets)
    >>> sorted(run.checkpoints), type(run.network(1)).__name__
    ([0, 1], 'Linear')
    """
    path = Path(path)
    is_record = (path / MANIFEST).exists()
    if (path / REFERENCES).exists():
        network = stored_network(path) if network is None else network
        data = stored_data(path) if data is None else data
    user_data = None if data is None else UserData.checked(data, background)
    if is_record:
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
    if missing and run.keep_checkpoints != ALL:
        reason = f"{run.path}: {describe_kept_checkpoints(run.keep_checkpoints)}"
        needed = f"comparing steps (SHAPC) needs the checkpoint after every step, and that after step {missing[0]} is missing"
        raise InputError(
            f"{reason}; {needed}. Train again with keep_checkpoints='all'",
            cli=f"{reason}; {needed}. Train again with --keep-checkpoints all",
        )
    if missing:
        raise InputError(f"{run.path}: no checkpoint was saved after step {missing[0]}; every step needs one")
    if len(set(run.curriculum)) < 2:
        raise InputError(f"{run.path}: only one task is trained; a comparison needs at least two")
    _check_data(run)


def recorded_run_benchmark(record: Record, data_dir: Path | None = None, per_class: int | None = None) -> Benchmark:
    """Load the benchmark that a record names and check its fingerprint.

    ``per_class``: return it with this number of training examples per class instead.
    """
    provenance = record.manifest.provenance
    if "source" not in provenance:
        raise InputError(f"{record.path}: the record does not name its data, so its benchmark cannot be loaded")
    options = {name: provenance[name] for name in _BENCHMARK_OPTIONS if name in provenance}
    benchmark = tasks.load(provenance["source"], data_dir=data_dir, **options)
    if per_class is not None and per_class != provenance.get("per_class"):
        same = recorded_run_benchmark(record, data_dir)
        smaller = tasks.load(provenance["source"], data_dir=data_dir, **{**options, "per_class": per_class})
        return replace(smaller, augmentation=same.augmentation)
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
    record: Record, network: NetworkSource | None, user_data: UserData | None, data_dir: Path | None, device: str
) -> LoadedRun:
    manifest = record.manifest
    builds_own = network is None and manifest.network.get("name") in nets.names()
    _check_sources(record, network is not None or builds_own, user_data is not None)
    benchmark = recorded_run_benchmark(record, data_dir) if user_data is None or builds_own else None
    data: RunData = user_data if user_data is not None else BenchmarkData(_known(benchmark), device)
    steps = manifest.steps_done
    last_state = (lambda: record.checkpoint(max(manifest.checkpoints))) if manifest.checkpoints else None
    networks = None if network is None else _RunNetworks(UserNetworks(network), data, device, last_state)

    def load(step: int) -> nn.Module:
        if networks is None:
            return recorded_run_network(record, _known(benchmark), step).to(device)
        source = f"{record.path}: the checkpoint after step {step + 1}"
        return networks.after(step, record.checkpoint, source)

    def with_rule(trained: nn.Module, step: int) -> nn.Module:
        rule = {name: value.to(device) for name, value in record.decision(step).items()}
        return learners.get(manifest.learner).decision_network(trained, rule).eval() if rule else trained

    def initial(seed: int) -> nn.Module:
        if networks is None:
            return _recorded_network(record, _known(benchmark), seed).to(device)
        return networks.initial(seed)

    checkpoints = {step: point.sha256 for step, point in sorted(manifest.checkpoints.items())}
    if networks is not None and networks.source.are_ready:
        networks.source.check_steps(steps, str(record.path))
        checkpoints = {step: networks.digest(step) for step in range(steps)}
    return LoadedRun(
        path=record.path,
        learner=manifest.learner,
        benchmark=record.measurements.benchmark,
        seed=manifest.seed,
        tasks=manifest.tasks,
        curriculum=manifest.curriculum[:steps],
        scenario=manifest.scenario,
        checkpoints=checkpoints,
        data=data,
        network=load,
        decision_network=lambda step: with_rule(load(step), step),
        initial_network=initial,
        with_rule=with_rule,
        decides_by=manifest.decides_by,
        class_names=benchmark.class_names if benchmark is not None else (),
        trains_all=manifest.trains_all,
        keep_checkpoints=manifest.keep_checkpoints,
        inputs=_table_of(benchmark) if networks is None else networks.description,
        behavior="" if networks is None or not checkpoints else networks.behavior(load(max(checkpoints))),
    )


def _check_sources(record: Record, has_network: bool, has_data: bool) -> None:
    """Raise `InputError` that names everything that the record does not say and was not passed."""
    missing = {
        "network": not has_network and bool(record.manifest.checkpoints),
        "data": not has_data and "source" not in record.manifest.provenance,
    }
    if not any(missing.values()):
        return
    names = " and ".join(f"its {name}" for name in missing if missing[name])
    python = ", and ".join(_IN_PYTHON[name] for name in missing if missing[name])
    options = ", and ".join(_ON_COMMAND_LINE[name] for name in missing if missing[name])
    raise InputError(
        f"{record.path}: the record does not name {names}; pass {python}",
        cli=f"{record.path}: the record does not name {names}; pass {options}. --store keeps them in the record",
    )


def _table_of(benchmark: Benchmark | None) -> Table | None:
    """Return the groups of one-hot columns of a table that the benchmark was read from."""
    names = None if benchmark is None else benchmark.provenance.get("features")
    return Table.from_names([str(name) for name in names]) if names else None


class _RunNetworks:
    """The user's networks of a run, on their device and in the form that explainers use."""

    def __init__(
        self,
        source: UserNetworks,
        data: RunData,
        device: str,
        last_state: Callable[[], Mapping[str, Tensor]] | None = None,
    ) -> None:
        self.last_state = last_state
        shape = tuple(data.inputs(0, np.arange(1)).shape[1:])
        outputs = getattr(getattr(data, "benchmark", None), "outputs", 1 + max(max(units) for units in data.classes))
        self.source, self.data, self.device = replace(source, arguments=(shape, outputs)), data, device

    def after(self, step: int, state: Callable[[int], Mapping[str, Tensor]], source: str) -> nn.Module:
        """Return the network after a step: a ready model, or one filled with the weights of a checkpoint."""
        if self.source.are_ready:
            return self._usable(self.source.ready(step))
        return self._usable(load_run_weights(self.source.blank(), state(step), source))

    def initial(self, seed: int) -> nn.Module:
        """Return the network that a seed initializes, before any weights are loaded, with the outputs of the last step."""
        network = self.source.blank(seed).eval()
        if not self.source.are_ready and self.last_state is not None:
            reset_modules(resize_heads(_inner(network), self.last_state()), seed)
        return self._usable(network)

    def digest(self, step: int) -> str:
        """Return a digest of a ready model: of its weights, or of its outputs on the test data if it has none."""
        network = self._usable(self.source.ready(step))
        if network.state_dict():
            return weights_digest(network)
        rows = [self.data.inputs(task, self._rows(task)) for task in range(len(self.data.classes))]
        with torch.inference_mode():
            return cache_digest(*(network(part.to(self.device)) for part in rows))

    def behavior(self, network: nn.Module) -> str:
        """Return a digest of the outputs for the first examples, rounded so that it is the same on every machine."""
        with torch.inference_mode():
            outputs = network(self.data.inputs(0, np.arange(2)).to(self.device)).double().cpu()
        largest = float(outputs.abs().max()) or 1.0
        return cache_digest(torch.round(outputs / largest, decimals=3))

    @property
    def description(self) -> Description | None:
        """What the inputs are, if the user's network says so."""
        network = self.source.blank()
        return network.inputs if isinstance(network, Adapted) else None

    def _usable(self, network: nn.Module) -> nn.Module:
        rows = self.data.inputs(0, np.arange(min(PROBED_ROWS, len(self.data.labels(0))))).to(self.device)
        return usable_network(network.to(self.device), rows, self.data.form, classes=self.data.kind == "classes")

    def _rows(self, task: int) -> NDArray[np.int64]:
        return np.arange(min(len(self.data.labels(task)), DIGEST_ROWS))


def _known(benchmark: Benchmark | None) -> Benchmark:
    assert benchmark is not None, "a record without user data and network has a benchmark"  # noqa: S101
    return benchmark


def _from_checkpoints(path: Path, network: NetworkSource, data: UserData, device: str) -> LoadedRun:
    files = sorted(file for file in path.iterdir() if file.suffix in WEIGHTS_SUFFIXES)
    last_state = (lambda: read_run_weights(files[-1])) if files else None
    networks = _RunNetworks(UserNetworks(network), data, device, last_state)
    steps = len(data.tasks)
    if networks.source.are_ready:
        networks.source.check_steps(steps, str(path))
        checkpoints = {step: networks.digest(step) for step in range(steps)}
    else:
        if not files:
            raise InputError(f"{path}: the folder has no checkpoints ({', '.join(WEIGHTS_SUFFIXES)})")
        if len(files) != steps:
            raise InputError(
                f"{path}: {len(files)} checkpoints but data for {steps} tasks; expected one checkpoint after each task, "
                "sorted by name"
            )
        checkpoints = {step: hashlib.sha256(file.read_bytes()).hexdigest() for step, file in enumerate(files)}

    def load(step: int) -> nn.Module:
        file = files[step] if files else path
        return networks.after(step, lambda _: read_run_weights(file), f"{file}: the checkpoint")

    return LoadedRun(
        path=path,
        learner=path.resolve().name,
        benchmark="own",
        seed=None,
        tasks=tuple(str(step + 1) for step in range(steps)),
        curriculum=tuple(range(steps)),
        scenario="",
        checkpoints=checkpoints,
        data=data,
        network=load,
        decision_network=load,
        initial_network=networks.initial,
        inputs=networks.description,
        behavior=networks.behavior(load(steps - 1)),
    )


def _check_data(run: LoadedRun) -> None:
    """Check, before any work, that each task has data and that the network has an output for each label."""
    if len(run.data.classes) != len(run.tasks):
        raise InputError(f"{run.path}: {len(run.tasks)} tasks but test data for {len(run.data.classes)}")
    for step in [0, *run.first_visits(), len(run.curriculum) - 1]:
        task = run.curriculum[step]
        network = run.network(step)
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
    return nets.build(
        str(record.manifest.network.get("name")),
        input_shape=benchmark.input_shape,
        outputs=benchmark.outputs,
        seed=seed,
        width=record.manifest.network.get("width"),
    )


def load_run_weights(network: nn.Module, state: Mapping[str, Tensor], source: str) -> nn.Module:
    """Load weights into a network and set evaluation mode; weights that do not fit, or are not finite, raise `InputError`.

    The network's output layers take the sizes that they have in the checkpoint.
    """
    for name, value in state.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise InputError(f"{source} has NaN or infinite weights in {name!r}")
    try:
        network.load_state_dict(dict(state))
    except RuntimeError:
        resize_heads(_inner(network), state)
        try:
            network.load_state_dict(dict(state))
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise InputError(f"{source} does not fit the network ({reason})") from None
    return network.eval()


def _inner(network: nn.Module) -> nn.Module:
    """Return the user's network inside an adapted one."""
    return network.model if isinstance(network, Adapted) else network


def read_run_weights(file: Path) -> dict[str, Tensor]:
    """Return the weights in a safetensors file, or in a torch file read with ``weights_only``: no code is executed.

    Examples
    --------
    >>> from pathlib import Path
    >>> import torch
    >>> from torch import nn
    >>> from perdure import runs
    >>> torch.save(nn.Linear(4, 2).state_dict(), "net.pt")
    >>> weights = runs.read_run_weights(Path("net.pt"))
    >>> network = runs.load_run_weights(nn.Linear(4, 2), weights, "net.pt")
    >>> torch.equal(network.weight, weights["weight"]), network.training
    (True, False)
    """
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    if file.suffix == ".safetensors":
        return load_tensors(file)
    value = read_torch_file(file, "weights", "a file written by torch.save(network.state_dict(), file)")
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


def copy_run_head(network: nn.Module, source: nn.Module) -> None:
    """Copy the weights of the module named ``head`` from another network."""
    network, source = _inner(network), _inner(source)
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
