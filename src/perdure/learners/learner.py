"""What a learner is: a network and a way to learn. A new method is one file with one subclass."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.base.errors import InputError, suggest
from perdure.learners.data import Batch, Preparation, derived_seed
from perdure.learners.meter import Meter
from perdure.nets import features_of
from perdure.tasks import Benchmark, Examples

REGISTRY: dict[str, type[Learner]] = {}
Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Context:
    """What a learner is given and does not own: network, how to make one from a seed, benchmark, data, randomness, meter."""

    net: nn.Module
    make_network: Callable[[int], nn.Module]
    benchmark: Benchmark
    preparation: Preparation
    generator: torch.Generator
    meter: Meter
    device: torch.device
    seed: int


class Learner:
    """Base of all methods; on its own it just keeps training.

    The loop calls ``begin`` once, then for every step of the curriculum ``before_task``, for every batch ``loss``,
    ``after_backward`` (gradients are there, the step is not taken) and ``after_step``, at the end ``after_task``. Whatever a
    learner assigns to itself (tensors, numbers, containers of them, networks, optimisers, and objects with ``state`` and
    ``load_state``) is saved and restored when a run is resumed; nothing needs to be declared. A network of another make than
    ``self.net``, and an optimiser, are restored in place: ``begin`` makes them.
    """

    name: ClassVar[str] = ""
    trains_all: ClassVar[bool] = False
    """Whether the method learns all tasks in one step (a reference, not a sequence)."""
    judged_within_task: ClassVar[bool] = True
    """Whether accuracy means something before the task's end; patience needs that."""
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Published settings by benchmark: the method's own, and the training's where they differ from the benchmark's protocol."""
    decides_by: ClassVar[str] = "logits"
    """What the decision is made by: the network's logits, or a rule of the learner's own (then ``decision`` says the rest)."""
    search: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """What tuning varies besides the rate: lowest and highest value, on a logarithmic scale."""

    @dataclass(frozen=True)
    class Settings:
        """A method's own numbers; each subclass has its own."""

    def __init_subclass__(cls, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is not None:
            cls.name = name
            REGISTRY[name] = cls

    def __init__(self, context: Context, settings: Any) -> None:
        self.context = context
        self.settings = settings
        self.net = context.net
        self.visited: list[int] = []
        self.rate = 0.0  # the loop sets the rate of the epoch here
        self._barriers = _barriers(context.benchmark, context.device)
        self._not_saved = frozenset(vars(self)) | {"_not_saved"}

    def state(self) -> dict[str, Any]:
        """Return everything the method has assigned to itself, for a run that is resumed."""
        return {name: packed(value) for name, value in vars(self).items() if name not in self._not_saved}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up a saved state, after ``begin``."""
        for name, value in state.items():
            setattr(self, name, unpacked(value, getattr(self, name, None), self))

    # What a method may define.

    @classmethod
    def check(cls, settings: Any, benchmark: Benchmark) -> None:
        """Refuse settings that do not fit the benchmark, before anything is written."""

    def begin(self) -> None:
        """Prepare what lives as long as the run."""

    def before_task(self, step: int, task: int) -> None:
        """Prepare for a task; ``self.visited`` holds the tasks of the steps before."""

    def training_examples(self, task: int) -> Sequence[Examples]:
        """Return the data this step trains on."""
        return [self.context.benchmark.tasks[task].train]

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of a batch: cross-entropy over all outputs."""
        return self.cross_entropy(self.net(batch.x), batch.y)

    def after_backward(self, batch: Batch) -> None:
        """Change the gradients before the step is taken."""

    def after_step(self, batch: Batch) -> None:
        """Look at what the step did."""

    def after_task(self, step: int, task: int) -> None:
        """Keep what later tasks need."""

    def logits(self, x: Tensor) -> Tensor:
        """Return the scores by which the learner decides."""
        scores: Tensor = self.net(x)
        return scores

    def decision(self) -> dict[str, Tensor]:
        """Return the tensors beyond the network that the decision needs; they are kept with each checkpoint."""
        return {}

    @classmethod
    def decision_network(cls, net: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:  # noqa: ARG003
        """Return a network whose outputs are the scores by which the learner decides, from what `decision` gave."""
        return net

    def trained_parameters(self) -> Iterable[nn.Parameter]:
        """Return what the loop's optimiser trains."""
        return self.net.parameters()

    @property
    def kept(self) -> int:
        """Numbers kept per parameter on top of the network (anchors, importances)."""
        return 0

    @property
    def teachers(self) -> int:
        """Parameters of frozen old networks."""
        return 0

    @property
    def memory_bits(self) -> int:
        """Bits of stored samples, logits included."""
        return 0

    # What every method can use.

    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the cross-entropy over all outputs, unseen classes included.

        Task-incrementally only the outputs of the example's own task take part, as if each task had its own head (Hsu et al.
        2018); mammoth instead trains over all outputs and masks only when it evaluates.
        """
        return F.cross_entropy(self.own_outputs(logits, y), y)

    def own_outputs(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the logits with the outputs of other tasks than the example's own at minus infinity, task-incrementally."""
        return logits if self._barriers is None else logits + self._barriers[y]

    def among_seen(self, logits: Tensor, task: int) -> Tensor:
        """Return the logits with classes never trained at minus infinity, class-incrementally."""
        benchmark = self.context.benchmark
        if benchmark.scenario != "class":
            return logits
        return masked(logits, [unit for seen in {*self.visited, task} for unit in benchmark.tasks[seen].classes])

    def drawn(self, make: Callable[[], Module], step: int = 0) -> Module:
        """Return a module of the learner's own, its parameters drawn from the run's seed and a step alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(self.context.seed, "part", step))
            return make().to(self.context.device)

    @property
    def feature_size(self) -> int:
        """Length of the network's penultimate features."""
        with self.context.meter.paused(), torch.no_grad():
            return features_of(self.snapshot(), self.two_blanks()).shape[1]

    def two_blanks(self) -> Tensor:
        """Return two empty inputs, to see what the network makes of their shape."""
        return torch.zeros(2, *self.context.benchmark.input_shape, device=self.context.device)

    def snapshot(self) -> nn.Module:
        """Return a frozen copy of the network in evaluation mode; its passes are metered like the network's own."""
        return copy.deepcopy(self.net).eval().requires_grad_(False)


def parameters_in(network: nn.Module) -> int:
    """Return the number of a network's parameters."""
    return sum(parameter.numel() for parameter in network.parameters())


def packed(value: Any) -> Any:
    """Return a value as a tree of tensors and plain values: networks, optimisers and objects by their state."""
    if hasattr(value, "load_state_dict"):
        return {"@state": value.state_dict()}
    if hasattr(value, "load_state"):
        return value.state()
    if isinstance(value, list | tuple):
        return [packed(item) for item in value]
    if isinstance(value, dict):
        return {key: packed(item) for key, item in value.items()}
    return value


def unpacked(tree: Any, present: Any, learner: Learner) -> Any:
    """Return the value that `packed` took apart; ``present`` is what ``begin`` put in its place."""
    if hasattr(present, "load_state"):
        present.load_state(unpacked(tree, None, learner))
        return present
    if isinstance(tree, dict) and "@state" in tree:
        whole = learner.snapshot() if present is None else present
        whole.load_state_dict(tree["@state"])
        return whole
    if isinstance(tree, list):
        return [unpacked(item, None, learner) for item in tree]
    if isinstance(tree, dict):
        return {key: unpacked(item, None, learner) for key, item in tree.items()}
    return tree.to(learner.context.device) if isinstance(tree, Tensor) else tree


def _barriers(benchmark: Benchmark, device: torch.device) -> Tensor | None:
    """Return, for a task-incremental benchmark, a row for each class: 0 on its task's outputs, minus infinity elsewhere."""
    if benchmark.scenario != "task":
        return None
    rows = torch.full((benchmark.outputs, benchmark.outputs), -math.inf, device=device)
    for task in benchmark.tasks:
        for unit in task.classes:
            rows[unit, list(task.classes)] = 0.0
    return rows


def masked(logits: Tensor, classes: Sequence[int]) -> Tensor:
    """Return logits that are minus infinity outside the given classes."""
    barrier = torch.full((logits.shape[1],), -math.inf, device=logits.device)
    barrier[list(classes)] = 0.0
    return logits + barrier


def make_settings(learner: type[Learner], given: Mapping[str, Any]) -> Any:
    """Return a learner's settings with the given ones in place; an unknown name or a wrong type is refused."""
    kinds = get_type_hints(learner.Settings)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in kinds:
            known = suggest(name, list(kinds)) if kinds else "it has none"
            raise InputError(f"{learner.name}: there is no setting {name!r}; {known}")
        try:
            values[name] = _converted(value, kinds[name])
        except (TypeError, ValueError):
            raise InputError(
                f"{learner.name}: setting {name!r} must be a {kinds[name].__name__}, got {value!r}"
            ) from None
    return learner.Settings(**values)


def _converted(value: Any, kind: type) -> Any:
    """Return the value as a type; a fraction of a whole number is an error, not rounded."""
    if kind is int and isinstance(value, float) and not value.is_integer():
        raise ValueError
    return kind(value)
