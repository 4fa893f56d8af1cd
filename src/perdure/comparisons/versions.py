"""Versions of a model: records, checkpoints, weights files, modules and functions, on one test set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.comparisons.weights import require_network_and_data
from perdure.explain.adapters.adapted import Adapted, adapt, two_columns
from perdure.explain.adapters.inputs import Table
from perdure.record import Record, find_records
from perdure.record.schema import CHECKPOINTS, MANIFEST
from perdure.runs.cache import cache_digest, weights_digest
from perdure.runs.data import BenchmarkData, UserData
from perdure.runs.loaded_run import WEIGHTS_SUFFIXES, LoadedRun, load_run, run_network_device
from perdure.runs.single_network import load_single_network

BATCH = 256
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
_OTHER_TESTS = "pass data=, one test set for all versions"
_OTHER_TESTS_CLI = "pass --data, one test set for all versions"


@dataclass(frozen=True)
class Loading:
    """What versions are loaded with: the user's network and data, and where networks run."""

    network: Any = None
    data: UserData | None = None
    data_dir: Path | None = None
    device: str = "cpu"
    columns: tuple[str, ...] = ()
    """Names of the columns of a DataFrame."""

    def described(self, model: nn.Module) -> nn.Module:
        """Return a model of a table with the names of its columns, unless it describes its inputs itself."""
        if not self.columns or getattr(model, "inputs", None) is not None:
            return model
        return adapt(model, Table.from_names(self.columns))


@dataclass(frozen=True)
class Position:
    """A test example: its task and its row in the task's test set (0-based)."""

    task: int
    row: int


@dataclass(frozen=True)
class Version:
    """One version of a model: a checkpoint of a run, or a single network."""

    name: str
    run: LoadedRun
    step: int
    source: Any = field(default=None, repr=False, compare=False)
    """What it was loaded from, for other processes: a path or a model; None if it was not loaded by `load_version`."""
    _scores: dict[int, FloatArray] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def network(self) -> nn.Module:
        """The network whose scores are explained."""
        return self.run.network(self.step)

    @cached_property
    def decision_network(self) -> nn.Module:
        """The network whose scores decide."""
        return self.run.decision_network(self.step)

    @cached_property
    def digest(self) -> str:
        """A digest of the weights; of the outputs for the test data if there are none."""
        if self.network.state_dict():
            return weights_digest(self.network)
        return cache_digest(*(self.scores(task) for task in self.tasks))

    @property
    def tasks(self) -> list[int]:
        """The tasks that the version has learned."""
        return self.run.seen_tasks(self.step) if self.run.scenario else list(range(len(self.run.data.classes)))

    @cached_property
    def outputs(self) -> int:
        """Number of outputs."""
        network = self.decision_network  # parameters that are created in inference mode cannot be explained
        x = self.run.data.inputs(0, np.arange(1)).to(run_network_device(network))
        with torch.inference_mode():
            return int(network(x).shape[1])

    def scores(self, task: int) -> FloatArray:
        """Return the scores of the test examples of a task, (examples, outputs), computed once."""
        if task not in self._scores:
            rows = np.arange(len(self.run.data.labels(task)))
            parts = [self.scores_at(task, rows[start : start + BATCH]) for start in range(0, len(rows), BATCH)]
            self._scores[task] = np.concatenate(parts)
        return self._scores[task]

    def scores_at(self, task: int, rows: IntArray) -> FloatArray:
        """Return the scores of some test examples of a task."""
        network = self.decision_network
        with torch.inference_mode():
            scores = network(self.run.data.inputs(task, rows).to(run_network_device(network)))
        if not bool(torch.isfinite(scores).all()):
            raise InputError(f"{self.name}: the model returns NaN or infinity for test examples of task {task + 1}")
        return np.asarray(scores.detach().double().cpu().numpy())

    def predictions(self, task: int) -> IntArray:
        """Return the predicted class of each test example of a task."""
        return self._decided(task, self.scores(task))

    def predictions_at(self, task: int, rows: IntArray) -> IntArray:
        """Return the predicted classes of some test examples of a task."""
        return self._decided(task, self.scores_at(task, rows))

    def _decided(self, task: int, scores: FloatArray) -> IntArray:
        candidates = self.candidates(task)
        chosen: IntArray = candidates[scores[:, candidates].argmax(axis=1)]
        return chosen

    def probabilities(self, task: int) -> FloatArray:
        """Return the probability of each candidate class, (examples, outputs): softmax, unless the scores are probabilities."""
        candidates = self.candidates(task)
        scores = self.scores(task)[:, candidates]
        if _is_single_score(self.decision_network):
            scores = scores / 2  # the columns hold -s and s, and the probability is the logistic function of s
        if not _are_probabilities(scores):
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        full = np.zeros((len(scores), int(candidates.max()) + 1))
        full[:, candidates] = scores / scores.sum(axis=1, keepdims=True)
        return full

    def candidates(self, task: int) -> IntArray:
        """Return the outputs among which the version decides."""
        known = self.run.candidates(self.step, task)
        return np.arange(self.outputs) if known is None else np.array(known, dtype=np.int64)

    def test_digest(self) -> str:
        """Return a digest of the test data before any preprocessing."""
        data = self.run.data
        if isinstance(data, BenchmarkData):
            sets = [task.test for task in data.benchmark.tasks]
            return cache_digest(*(array for examples in sets for array in (np.asarray(examples.x), examples.y)))
        return data.fingerprint


def _is_single_score(network: nn.Module) -> bool:
    """Return whether a network is a binary classifier with a single score, which got a second column."""
    return isinstance(network, Adapted) and getattr(network.logits, "func", None) is two_columns


def _are_probabilities(scores: FloatArray) -> bool:
    return bool((scores >= 0).all() and np.abs(scores.sum(axis=1) - 1).max() < 1e-3)


def load_version(source: Any, loading: Loading, name: str) -> Version:
    """Load a version from a record, a folder or file of weights, a module, or a model outside PyTorch.

    ``name`` is used in messages: "OLD", "NEW" or "reference 1".
    """
    if isinstance(source, Version):
        return source
    if isinstance(source, str | Path):
        return replace(_from_path(Path(source), loading, name), source=Path(source).absolute())
    if loading.data is None:
        raise InputError(f"{name}: a model needs test data; pass data=(inputs, labels)")
    label = _model_name(source, name)
    model = source if isinstance(source, nn.Module) else adapt(source)
    run = load_single_network(loading.described(model), loading.data, device=loading.device, name=name)
    return Version(label, run, run.last_step(), source)


def _model_name(source: Any, name: str) -> str:
    return f"{name} ({model_class_name(source)})"


def model_class_name(source: Any) -> str:
    """Return the name of a function, or of the class of a model; an adapted model has the name of the model that it wraps."""
    inner = source.model if isinstance(source, Adapted) else source
    return str(getattr(inner, "__name__", None) or type(inner).__name__)


def _from_path(path: Path, loading: Loading, name: str) -> Version:
    record = _record_of(path)
    if record is not None:
        run = _load(record, loading)
        return Version(str(path), run, _recorded_step(path, record, run))
    if path.is_file():
        if path.suffix not in WEIGHTS_SUFFIXES:
            raise InputError(f"{path}: expected a record or a file of weights ({', '.join(WEIGHTS_SUFFIXES)})")
        return _from_weights(path, loading, name)
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    if not loading.network and (inside := find_records([path])):
        if len(inside) > 1:
            listed = ", ".join(str(found) for found in inside[:3])
            raise InputError(f"{path}: {len(inside)} records ({listed}, ...); pass one of them as {name}")
        return _from_path(inside[0], loading, name)
    files = sorted(file for file in path.iterdir() if file.suffix in WEIGHTS_SUFFIXES)
    if len(files) == 1:
        return _from_weights(files[0], loading, name)
    run = _load(path, loading)
    return Version(str(path), run, run.last_step())


def _load(path: Path, loading: Loading) -> LoadedRun:
    return load_run(path, loading.network, loading.data, data_dir=loading.data_dir, device=loading.device)


def _record_of(path: Path) -> Path | None:
    """Return the record that a path is, or that a checkpoint belongs to; None if there is none."""
    if (path / MANIFEST).exists():
        return path
    record = path.parent.parent
    return record if path.parent.name == CHECKPOINTS and path.is_file() and (record / MANIFEST).exists() else None


def _recorded_step(path: Path, record: Path, run: LoadedRun) -> int:
    """Return the step of a checkpoint inside a record; the last one for the record itself."""
    if path == record:
        return run.last_step()
    steps = {point.file: step for step, point in Record.open(record).manifest.checkpoints.items()}
    name = f"{CHECKPOINTS}/{path.name}"
    if name not in steps:
        raise InputError(f"{path}: the record {record} does not list this checkpoint")
    return steps[name]


def _from_weights(path: Path, loading: Loading, name: str) -> Version:
    require_network_and_data(path, loading.network, loading.data)
    run = load_single_network(loading.network, loading.data, path, loading.device, name)
    return Version(str(path), run, run.last_step())


def load_references(sources: Sequence[Any], loading: Loading, versions: Sequence[Version]) -> list[Version]:
    """Load the reference versions; a folder of records stands for all of its records except the compared ones.

    ``versions`` are OLD and NEW. A reference that equals one of them, or another reference, raises `InputError`.
    """
    compared = {version.run.path.resolve() for version in versions if version.run.path != Path()}
    expanded: list[Any] = []
    for source in sources:
        path = Path(source) if isinstance(source, str | Path) else None
        if path is None or not path.is_dir() or (path / MANIFEST).exists() or not (inside := find_records([path])):
            expanded.append(source)
        else:
            others = [record for record in inside if record.resolve() not in compared]
            expanded += [record for record in others if _same_learner(record, versions[0])]
    references: list[Version] = []
    known = {version.digest: name for name, version in zip(("OLD", "NEW"), versions, strict=True)}
    for number, source in enumerate(expanded, start=1):
        reference = load_version(source, loading, f"reference {number}")
        equal = known.setdefault(reference.digest, f"reference {number}")
        if equal != f"reference {number}":
            raise InputError(
                f"{reference.name}: its weights equal those of {equal}; expected a version retrained on the same data with "
                "another seed, or on a bootstrap sample of the data if training does not depend on a seed"
            )
        if (
            (path := reference.run.path) != Path()
            and (path / MANIFEST).exists()
            and not _same_learner(path, versions[0])
        ):
            raise InputError(
                f"{reference.name}: a run of {reference.run.learner}, but OLD is one of {versions[0].run.learner}; references "
                "must be trained like OLD"
            )
        references.append(reference)
    return references


def _same_learner(record: Path, old: Version) -> bool:
    """Return whether a record is a run of OLD's learner; True if OLD is not a record."""
    if old.run.path == Path() or not (old.run.path / MANIFEST).exists():
        return True
    return Record.open(record).manifest.learner == old.run.learner


def check_versions(old: Version, others: Sequence[Version]) -> list[int]:
    """Check that versions can be compared, and return the tasks that OLD and NEW (the first of ``others``) have learned."""
    for other in others:
        _check_same_tests(old, other)
        if other.outputs != old.outputs:
            raise InputError(
                f"{other.name}: {other.outputs} outputs, but {old.name} has {old.outputs}; expected versions with the same "
                "classes"
            )
    largest = max(max(units) for units in old.run.data.classes)
    if old.run.data.kind == "classes" and largest >= old.outputs:
        raise InputError(f"data: an example of class {largest}, but the versions have outputs 0 to {old.outputs - 1}")
    common = sorted(set(old.tasks).intersection(*(other.tasks for other in others)))
    if not common:
        raise InputError(f"{others[0].name}: it has learned none of the tasks that {old.name} has learned")
    return common


def _check_same_tests(old: Version, other: Version) -> None:
    first, second = old.run.data, other.run.data
    if first is second:
        return
    for what, here, there in (
        ("tasks", len(second.classes), len(first.classes)),
        ("classes in each task", list(map(len, second.classes)), list(map(len, first.classes))),
        ("scenario", other.run.scenario, old.run.scenario),
    ):
        if here != there:
            message = f"{other.name}: {what}: {here}, but {there} in {old.name}; the versions need one test set"
            raise InputError(f"{message}; {_OTHER_TESTS}", cli=f"{message}; {_OTHER_TESTS_CLI}")
    if old.test_digest() != other.test_digest():
        message = f"{other.name}: its test data differ from those of {old.name}"
        raise InputError(f"{message}; {_OTHER_TESTS}", cli=f"{message}; {_OTHER_TESTS_CLI}")


def inputs_at(version: Version, positions: Sequence[Position]) -> Tensor:
    """Return the prepared inputs of examples of one task."""
    rows = np.array([position.row for position in positions])
    return version.run.data.inputs(positions[0].task, rows)
