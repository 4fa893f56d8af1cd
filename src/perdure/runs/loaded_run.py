"""What an audit looks at: the checkpoints of a run, the networks they belong to, and the test data of its tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from perdure import learners, nets, tasks
from perdure.runs.data import BenchmarkData, Data, OwnData
from perdure.base.errors import InputError
from perdure.record import Record
from perdure.record.schema import MANIFEST
from perdure.record.tensors import load_tensors
from perdure.tasks import Benchmark
from perdure.tasks.benchmark import Augmentation

NetworkMaker = Callable[[], nn.Module]
_REBUILT = ("scenario", "seed", "order_seed", "curriculum", "per_class", "validation", "tasks")
_NESTED = ("state_dict", "model_state_dict", "model")
"""Where training scripts put the weights inside a torch file."""


@dataclass(frozen=True)
class Subject:
    """One run: where its checkpoints are, how to make its networks, and its data."""

    path: Path
    learner: str
    benchmark: str
    seed: int | None
    tasks: tuple[str, ...]
    curriculum: tuple[int, ...]
    """The task trained at each step that has a checkpoint."""
    scenario: str
    files: tuple[str, ...]
    """SHA-256 of each checkpoint."""
    data: Data
    load: Callable[[int], nn.Module]
    """The network after a step, on its device and in evaluation mode."""
    load_decision: Callable[[int], nn.Module]
    """What the learner decides by: the network itself, or a rule on top of it."""
    decides_by: str = "logits"
    class_names: tuple[str, ...] = ()

    def candidates(self, step: int, task: int) -> list[int] | None:
        """Return the outputs among which the learner decides; None means all."""
        if self.scenario == "task":
            return list(self.data.classes[task])
        if self.scenario == "class":
            return sorted({unit for seen in self.curriculum[: step + 1] for unit in self.data.classes[seen]})
        return None

    def first_visits(self) -> list[int]:
        """Return the steps that train a task for the first time and are followed by another: the tau of SHAPC."""
        steps = range(len(self.curriculum) - 1)
        return [step for step in steps if self.curriculum[step] not in self.curriculum[:step]]


def explained_in_words(whose: str, score: str, decides_by: str) -> str:
    """Return in words which score of whose class is explained, and whether the learner decides by it."""
    if decides_by == "logits":
        return f"the logit of {whose}"
    if score == "decision":
        return f"the score of {whose} by which the learner decides ({decides_by})"
    return f"the network's logit of {whose}; the learner decides by {decides_by}"


def subject_of(
    path: str | Path,
    network: NetworkMaker | None = None,
    data: Any = None,
    background: Any = None,
    data_dir: Path | None = None,
    device: str = "cpu",
) -> Subject:
    """Return what is to be audited at a path: a record, or a folder of checkpoints with a network and data of your own.

    ``network`` makes an untrained network; ``data`` holds a pair (inputs, output units) for each task, inputs as the network
    takes them; ``background`` inputs to compare with, for all tasks or one array for each (by default test samples).
    """
    path = Path(path)
    own = None if data is None else OwnData.checked(data, background)
    if (path / MANIFEST).exists():
        return _of_record(Record.open(path), network, own, data_dir, device)
    if not path.is_dir():
        raise InputError(f"{path}: there is no such directory")
    if network is None or own is None:
        raise InputError(
            f"{path}: this is no record (no {MANIFEST}); for a folder of checkpoints give a network and the tasks' test data"
        )
    return _of_folder(path, network, own, device)


def rebuilt_benchmark(record: Record, data_dir: Path | None = None) -> Benchmark:
    """Build the record's benchmark again, as its provenance says, and check that it is the same."""
    about = record.manifest.provenance
    if "source" not in about:
        raise InputError(
            f"{record.path}: it does not say where its data came from; give network= and data=, the tasks' test data"
        )
    given = {name: about[name] for name in _REBUILT if name in about}
    benchmark = tasks.load(about["source"], data_dir=data_dir, **given)
    if "fingerprint" not in about:
        return benchmark
    # A run may augment its images otherwise than the benchmark does by itself; the fingerprint tells how it did.
    for augmentation in (benchmark.augmentation, *get_args(Augmentation)):
        candidate = replace(benchmark, augmentation=augmentation)
        if candidate.fingerprint() == about["fingerprint"]:
            return candidate
    raise InputError(f"{record.path}: the data of {about['source']} are not those the record was made with")


def rebuilt_network(record: Record, benchmark: Benchmark, step: int) -> nn.Module:
    """Build the record's network and load the checkpoint after a step."""
    name = record.manifest.network.get("name")
    if name is None or name not in nets.names():
        raise InputError(f"{record.path}: it does not name a network of ours; give network=, a function that makes it")
    shape, outputs = benchmark.input_shape, benchmark.outputs
    network = nets.build(name, input_shape=shape, outputs=outputs, width=record.manifest.network.get("width"))
    return filled(network, record.checkpoint(step), f"{record.path}: the checkpoint after step {step + 1}")


def filled(network: nn.Module, state: Mapping[str, Tensor], what: str) -> nn.Module:
    """Load weights into a network, in evaluation mode; other shapes and NaN are refused."""
    for name, value in state.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise InputError(f"{what} has NaN or infinite weights in {name!r}")
    try:
        network.load_state_dict(dict(state))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"{what} does not fit the network ({reason})") from None
    return network.eval()


def take_head(network: nn.Module, other: nn.Module) -> None:
    """Give a network the head of another."""
    own, given = getattr(network, "head", None), getattr(other, "head", None)
    if not isinstance(own, nn.Module) or not isinstance(given, nn.Module):
        raise InputError("head: the network has no part named 'head' that could be exchanged")
    own.load_state_dict(given.state_dict())


def _of_record(
    record: Record,
    network: NetworkMaker | None,
    own: OwnData | None,
    data_dir: Path | None,
    device: str,
) -> Subject:
    manifest = record.manifest
    if manifest.trains_all:
        raise InputError(f"{record.path}: {manifest.learner} learns all tasks at once; there is no sequence to compare")
    missing = [step + 1 for step in range(manifest.steps_done) if step not in manifest.checkpoints]
    if missing:
        raise InputError(f"{record.path}: no checkpoint was kept after step {missing[0]}; SHAPC needs them all")
    benchmark = rebuilt_benchmark(record, data_dir) if own is None or network is None else None
    data: Data = own if own is not None else BenchmarkData(benchmark or rebuilt_benchmark(record, data_dir), device)
    load, load_decision = networks_of(record, network, benchmark, device)
    return _checked(
        Subject(
            path=record.path,
            learner=manifest.learner,
            benchmark=record.measurements.benchmark,
            seed=manifest.seed,
            tasks=manifest.tasks,
            curriculum=manifest.curriculum[: manifest.steps_done],
            scenario=manifest.scenario,
            files=tuple(manifest.checkpoints[step].sha256 for step in range(manifest.steps_done)),
            data=data,
            load=load,
            load_decision=load_decision,
            decides_by=manifest.decides_by,
            class_names=benchmark.class_names if benchmark is not None else (),
        )
    )


def networks_of(
    record: Record, network: NetworkMaker | None, benchmark: Benchmark | None, device: str
) -> tuple[Callable[[int], nn.Module], Callable[[int], nn.Module]]:
    """Return how to load a record's network after a step, and what its learner decides by."""

    def load(step: int) -> nn.Module:
        if network is not None:
            what = f"{record.path}: the checkpoint after step {step + 1}"
            return filled(_made(network), record.checkpoint(step), what).to(device)
        if benchmark is None:
            raise InputError(f"{record.path}: give network=, a function that makes its network")
        return rebuilt_network(record, benchmark, step).to(device)

    def load_decision(step: int) -> nn.Module:
        rule = {name: value.to(device) for name, value in record.decision(step).items()}
        if not rule:
            return load(step)
        return learners.get(record.manifest.learner).decision_network(load(step), rule).eval()

    return load, load_decision


def _of_folder(path: Path, network: NetworkMaker, data: OwnData, device: str) -> Subject:
    files = sorted(file for file in path.iterdir() if file.suffix in (".safetensors", ".pt", ".pth", ".bin"))
    if not files:
        raise InputError(f"{path}: there is no checkpoint (.safetensors, .pt, .pth) in it")
    if len(files) != len(data.given):
        raise InputError(
            f"{path}: there are {len(files)} checkpoints but data for {len(data.given)} tasks; expected one after each task, "
            "in the order of their names"
        )

    def load(step: int) -> nn.Module:
        return filled(_made(network), read_weights(files[step]), f"{files[step]}: the checkpoint").to(device)

    return _checked(
        Subject(
            path=path,
            learner=path.resolve().name,
            benchmark="own",
            seed=None,
            tasks=tuple(str(i + 1) for i in range(len(files))),
            curriculum=tuple(range(len(files))),
            scenario="",
            files=tuple(hashlib.sha256(file.read_bytes()).hexdigest() for file in files),
            data=data,
            load=load,
            load_decision=load,
        )
    )


def read_weights(file: Path) -> dict[str, Tensor]:
    """Return the weights in a safetensors file, or in a torch file read with ``weights_only``: nothing is executed."""
    if not file.is_file():
        raise InputError(f"{file}: there is no such file")
    if file.suffix == ".safetensors":
        return load_tensors(file)
    try:
        value = torch.load(file, map_location="cpu", weights_only=True)
    except Exception:  # noqa: BLE001  (torch raises several kinds for a bad file)
        raise InputError(
            f"{file}: it cannot be read as weights alone; expected what torch.save(network.state_dict(), file) writes"
        ) from None
    for name in _NESTED:
        if isinstance(value, dict) and isinstance(value.get(name), dict):
            value = value[name]
    if not isinstance(value, dict) or not all(isinstance(item, Tensor) for item in value.values()):
        raise InputError(f"{file}: expected a state_dict, names and tensors")
    return value


def _made(network: NetworkMaker) -> nn.Module:
    made: object = network()
    if not isinstance(made, nn.Module):
        raise InputError(f"network: expected a function that makes a torch.nn.Module, it made a {type(made).__name__}")
    return made


def _checked(subject: Subject) -> Subject:
    """Refuse what cannot be compared, before any work: one task, missing data, labels without an output."""
    path = subject.path
    if len(set(subject.curriculum)) < 2:
        raise InputError(f"{path}: only one task is trained; SHAPC compares a task with what came after it")
    if len(subject.data.classes) != len(subject.tasks):
        raise InputError(f"{path}: there are {len(subject.tasks)} tasks but test data for {len(subject.data.classes)}")
    first = subject.load(0)
    for task in sorted(set(subject.curriculum)):
        x = subject.data.inputs(task, np.arange(2))
        with torch.inference_mode():
            outputs = first(x.to(next(first.parameters(), x).device))
        if outputs.dim() != 2:
            raise InputError(f"{path}: the network gives {tuple(outputs.shape)} for two samples, expected (2, classes)")
        if max(subject.data.classes[task]) >= outputs.shape[1]:
            raise InputError(
                f"{path}: task {task + 1} has a sample of class {max(subject.data.classes[task])}, but the network has "
                f"outputs 0 to {outputs.shape[1] - 1}"
            )
    return subject
