"""The base class of all learners. A new method is one file with one subclass."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.base.errors import InputError, error_suggestion
from perdure.base.registry import Registry
from perdure.learners.data import Batch, Preparation
from perdure.learners.meter import Meter
from perdure.learners.seeds import derived_seed
from perdure.nets import features_of
from perdure.tasks import Benchmark, Examples

LEARNERS: Registry[type[Learner]] = Registry("learner", group="perdure.learners", package="perdure.learners.methods")
Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Context:
    """The objects a learner works with: network, benchmark, data preparation, random generator, meter and device.

    ``make_network(seed)`` returns a new network of the same architecture, initialized from the seed.
    """

    net: nn.Module
    make_network: Callable[[int], nn.Module]
    benchmark: Benchmark
    preparation: Preparation
    generator: torch.Generator
    meter: Meter
    device: torch.device
    seed: int


class Learner:
    """Base class of all methods. Without overrides it fine-tunes the network on each task.

    The loop calls ``begin`` once. For every step of the curriculum it calls ``before_task``; for every batch ``loss``,
    ``after_backward`` (gradients are computed, parameters are not updated yet) and ``after_update``; and at the end
    ``after_task``.

    Everything a learner assigns to ``self`` (tensors, numbers, containers of these, networks, optimizers, and objects
    with ``state`` and ``load_state``) is saved and restored when a run is resumed; nothing needs to be declared.
    Optimizers, and networks with another architecture than ``self.net``, are restored in place, so ``begin`` must
    create them.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from perdure import learners
    >>> class Shrink(learners.Learner, name="shrink"):
    ...     "Weight decay as a loss."
    ...     @dataclass(frozen=True)
    ...     class Settings:
    ...         strength: float = 1e-4
    ...     def loss(self, batch):
    ...         penalty = sum(
    ...             (parameter**2).sum() for parameter in self.net.parameters()
    ...         )
    ...         loss = self.cross_entropy(self.net(batch.x), batch.y)
    ...         return loss + self.settings.strength * penalty
    >>> learners.get("shrink").Settings()
    Shrink.Settings(strength=0.0001)
    """

    name: ClassVar[str] = ""
    trains_all: ClassVar[bool] = False
    """Whether the method trains on all tasks in a single step (a reference, not a sequence)."""
    supports_patience: ClassVar[bool] = True
    """Whether accuracies measured within a task are meaningful, as early stopping (``patience``) requires."""
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Published settings by benchmark: the method's settings, and training settings that differ from the protocol."""
    decides_by: ClassVar[str] = "logits"
    """What the prediction is based on: the network's logits, or another rule, whose tensors ``decision`` returns."""
    search_space: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """Settings that tuning varies besides the learning rate: lowest and highest value, on a logarithmic scale."""

    @dataclass(frozen=True)
    class Settings:
        """Settings of the method; each subclass defines its own."""

    def __init_subclass__(cls, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is not None:
            cls.name = name
            LEARNERS.add(name, cls, summary=(cls.__doc__ or "").partition("\n")[0])

    def __init__(self, context: Context, settings: Any) -> None:
        self.context = context
        self.settings = settings
        self.net = context.net
        self.visited: list[int] = []
        self.rate = 0.0  # learning rate of the current epoch, set by the loop
        self.adaptive = False  # whether the optimizer is adaptive (`Training.adaptive`), set by the loop
        self._task_masks = _task_masks(context.benchmark, context.device)
        self._unsaved = frozenset(vars(self)) | {"_unsaved"}

    def state(self) -> dict[str, Any]:
        """Return everything the method has assigned to ``self``, to resume a run."""
        return {name: _pack(value) for name, value in vars(self).items() if name not in self._unsaved}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned; called after ``begin``."""
        for name, value in state.items():
            setattr(self, name, _unpack(value, getattr(self, name, None), self))

    def own_optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the optimizers that the method has assigned to ``self``."""
        return [value for value in vars(self).values() if isinstance(value, torch.optim.Optimizer)]

    # Methods that subclasses override.

    @classmethod
    def check(cls, settings: Any, benchmark: Benchmark) -> None:
        """Raise `InputError` if the settings do not fit the benchmark; called before anything is written."""

    def begin(self) -> None:
        """Create what the learner keeps for the whole run; called once, before training."""

    def before_task(self, step: int, task: int) -> None:
        """Prepare for a task; ``self.visited`` lists the tasks of all earlier steps."""

    def training_examples(self, task: int) -> Sequence[Examples]:
        """Return the examples that this step trains on."""
        return [self.context.benchmark.tasks[task].train]

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy over all outputs."""
        return self.cross_entropy(self.net(batch.x), batch.y)

    def after_backward(self, batch: Batch) -> None:
        """Change the gradients before the optimizer updates the parameters."""

    def after_update(self, batch: Batch) -> None:
        """Use the updated parameters; called after each update of the optimizer."""

    def after_task(self, step: int, task: int) -> None:
        """Store what later tasks need; called when the training of a task ends."""

    def logits(self, x: Tensor) -> Tensor:
        """Return the class scores that predictions are based on."""
        scores: Tensor = self.net(x)
        return scores

    def decision(self) -> dict[str, Tensor]:
        """Return the tensors that predictions need besides the network; they are saved with each checkpoint."""
        return {}

    @classmethod
    def decision_network(cls, net: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:  # noqa: ARG003
        """Return a network whose outputs are the scores that predictions are based on; ``tensors`` is from `decision`."""
        return net

    def trained_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters that the loop's optimizer trains."""
        return self.net.parameters()

    @property
    def extra_parameters(self) -> int:
        """Number of values stored in addition to the network's parameters (anchors, importances)."""
        return 0

    @property
    def teacher_parameters(self) -> int:
        """Number of parameters of frozen old networks."""
        return 0

    @property
    def memory_bits(self) -> int:
        """Size of the stored examples in bits, including stored logits."""
        return 0

    # Helpers for subclasses.

    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the cross-entropy over all outputs, including classes that are not seen yet.

        In the task-incremental scenario only the outputs of each example's task are used, as if each task had its own
        head (Hsu et al. 2018). mammoth instead trains over all outputs and masks them only for evaluation.
        """
        return F.cross_entropy(self.mask_other_tasks(logits, y), y)

    def mask_other_tasks(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the logits; if task-incremental, with the outputs of tasks other than the example's at minus infinity."""
        return logits if self._task_masks is None else logits + self._task_masks[y]

    def mask_unseen(self, logits: Tensor, task: int) -> Tensor:
        """Return the logits; if class-incremental, with the classes that are not trained yet at minus infinity."""
        benchmark = self.context.benchmark
        if benchmark.scenario != "class":
            return logits
        return mask_learner_logits(
            logits, [output for seen in {*self.visited, task} for output in benchmark.tasks[seen].classes]
        )

    def make_module(self, make: Callable[[], Module], step: int = 0) -> Module:
        """Return ``make()`` on the run's device, initialized from the run's seed and the step alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(self.context.seed, "part", step))
            return make().to(self.context.device)

    @property
    def feature_size(self) -> int:
        """Length of the network's penultimate feature vector."""
        with self.context.meter.paused(), torch.no_grad():
            return features_of(self.snapshot(), self.blank_inputs()).shape[1]

    def blank_inputs(self) -> Tensor:
        """Return a batch of two zero inputs, to find out shapes of features and outputs."""
        return torch.zeros(2, *self.context.benchmark.input_shape, device=self.context.device)

    def snapshot(self) -> nn.Module:
        """Return a frozen copy of the network in evaluation mode; the meter counts its passes too."""
        return copy.deepcopy(self.net).eval().requires_grad_(False)


def learner_parameter_count(network: nn.Module) -> int:
    """Return the number of parameters of a network."""
    return sum(parameter.numel() for parameter in network.parameters())


def mask_learner_logits(logits: Tensor, classes: Sequence[int]) -> Tensor:
    """Return the logits with all outputs except ``classes`` at minus infinity."""
    mask = torch.full((logits.shape[1],), -math.inf, device=logits.device)
    mask[list(classes)] = 0.0
    return logits + mask


def _task_masks(benchmark: Benchmark, device: torch.device) -> Tensor | None:
    """Return one row per class, 0 on the outputs of its task and minus infinity elsewhere; None unless task-incremental."""
    if benchmark.scenario != "task":
        return None
    rows = torch.full((benchmark.outputs, benchmark.outputs), -math.inf, device=device)
    for task in benchmark.tasks:
        for output in task.classes:
            rows[output, list(task.classes)] = 0.0
    return rows


def _pack(value: Any) -> Any:
    """Return a value as a tree of tensors and plain values; networks, optimizers and other objects become their state."""
    if hasattr(value, "load_state_dict"):
        return {"@state": value.state_dict()}
    if hasattr(value, "load_state"):
        return value.state()
    if isinstance(value, list | tuple):
        return [_pack(item) for item in value]
    if isinstance(value, dict):
        return {key: _pack(item) for key, item in value.items()}
    return value


def _unpack(tree: Any, current: Any, learner: Learner) -> Any:
    """Return the value that `_pack` converted; ``current`` is the value that ``begin`` assigned to the same attribute."""
    if hasattr(current, "load_state"):
        current.load_state(_unpack(tree, None, learner))
        return current
    if isinstance(tree, dict) and "@state" in tree:
        restored = learner.snapshot() if current is None else current
        restored.load_state_dict(tree["@state"])
        return restored
    if isinstance(tree, list):
        return [_unpack(item, None, learner) for item in tree]
    if isinstance(tree, dict):
        return {key: _unpack(item, None, learner) for key, item in tree.items()}
    return tree.to(learner.context.device) if isinstance(tree, Tensor) else tree


_TYPE_NAMES = {int: "an integer", float: "a number"}


def make_learner_settings(learner: type[Learner], values: Mapping[str, Any]) -> Learner.Settings:
    """Return a learner's settings with these values; an unknown name or a wrong type raises `InputError`."""
    types = get_type_hints(learner.Settings)
    converted: dict[str, Any] = {}
    for name, value in values.items():
        if name not in types:
            hint = error_suggestion(name, list(types)) if types else f"{learner.name} has no settings"
            raise InputError(f"{learner.name}: unknown setting {name!r}; {hint}")
        try:
            converted[name] = _convert(value, types[name])
        except (TypeError, ValueError, OverflowError):
            expected = _TYPE_NAMES.get(types[name], f"a value of type {types[name].__name__}")
            raise InputError(f"{learner.name}: setting {name!r}: expected {expected}, got {value!r}") from None
    return learner.Settings(**converted)


def _convert(value: Any, expected: type) -> Any:
    """Return the value as the expected type; a fraction is not rounded to an integer but is an error."""
    if expected is int and isinstance(value, float) and not value.is_integer():
        raise ValueError
    return expected(value)
