"""The network checker: what explainers require of a network, checked before an attribution is computed.

Measured with captum 0.9: with ``F.relu``, DeepLift violates completeness and guided backprop ignores the activation; through a
plain ``h + x`` the relevance of LRP diverges; a module that is used twice raises an error deep inside captum. Such networks are
refused for the affected methods, with the layer and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.explain.adapters.adapted import Adapted, packed_inputs, with_scores
from perdure.explain.adapters.arrays import as_batch_array, check_finite_array, rejected_input
from perdure.explain.adapters.functions import FunctionModel
from perdure.explain.adapters.inputs import Tokens
from perdure.explain.adapters.models import (
    checked_shape,
    device_and_dtype,
    layer_names,
    preserved_model,
    single_precision,
)
from perdure.explain.adapters.views import input_view
from perdure.explain.checks.observation import Observation, Operation, observe
from perdure.explain.checks.operations import ELEMENTWISE
from perdure.explain.explainer import EXPLAINERS

MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
AVERAGE_POOLS = (
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
)
TOKENS_WITHOUT_GRADIENT = (
    "describe them: perdure.adapt(model, perdure.explain.Tokens(mask=...)); or use 'shapley' or 'lime' with baseline= the id "
    "of the mask or padding token"
)
ALTERNATIVES = "use 'expected_gradients', 'integrated_gradients' or 'shapley' instead"


@dataclass(frozen=True)
class Problem:
    """A property of a network that makes an explainer wrong: where, what, and the remedy."""

    layer: str
    text: str
    remedy: str
    whole: bool = False
    """Whether the problem is that of the whole model, not of a place in it."""

    def __str__(self) -> str:
        if self.whole:
            return f"{self.text}; {self.remedy}"
        where = f"layer {self.layer!r}" if self.layer else "the network's forward method"
        return f"{where}: {self.text}; {self.remedy}"


class Requirement(Protocol):
    """What an explainer requires of a network beyond outputs that depend on the input alone."""

    def problems(self, model: nn.Module, observation: Observation) -> Iterator[Problem]:
        """Yield every violation, the most basic first."""


@dataclass(frozen=True)
class Outputs:
    """Outputs only. The explainer never differentiates the network."""

    def problems(self, model: nn.Module, observation: Observation) -> Iterator[Problem]:  # noqa: ARG002
        """Yield nothing: every network with valid outputs is accepted."""
        yield from ()


@dataclass(frozen=True)
class Gradients:
    """The gradient of an output with respect to the input."""

    def problems(self, model: nn.Module, observation: Observation) -> Iterator[Problem]:
        """Yield the layer at which the gradient is cut off."""
        remedy = "remove detach, no_grad, .data or integer casts between input and output, or use 'shapley' or 'lime'"
        outside = next((module for module in model.modules() if isinstance(module, FunctionModel)), None)
        if outside is not None:
            text = f"{outside.label} is not a PyTorch network and has no gradient"
            yield Problem("", text, "use 'shapley' or 'lime'", whole=True)
        elif not observation.differentiable and observation.lookups:
            text = "the inputs are indices of an embedding (token ids), which have no gradient"
            if isinstance(model, Adapted) and isinstance(model.inputs, Tokens):
                text = "the token ids are looked up, but not by an nn.Embedding that returns one vector per token"
                yield Problem(observation.lookups[0], text, "use 'shapley' or 'lime'")
                return
            yield Problem(observation.lookups[0], text, TOKENS_WITHOUT_GRADIENT)
        elif not observation.differentiable:
            layer = observation.detached_layer or ""
            yield Problem(layer, "the output has no gradient with respect to the input", remedy)
        elif observation.detached_layer is not None:
            layer = observation.detached_layer
            yield Problem(layer, "part of the output is cut off from the gradient of the input", remedy)


@dataclass(frozen=True)
class ModuleRules(Gradients):
    """Gradients, and propagation rules attached to modules.

    ``activations``: module types with a rule; nonlinear operations and products must happen inside one of them.
    ``elementwise_only``: only elementwise activations need a rule. ``called_once``: module types that may be used only once
    in a forward pass. ``linear``: module types with a rule for linear operations; None if linear operations need no rule.
    ``disjoint_pooling``: pooling windows must not overlap.
    """

    activations: tuple[type[nn.Module], ...] = ()
    elementwise_only: bool = False
    called_once: tuple[type[nn.Module], ...] = ()
    linear: tuple[type[nn.Module], ...] | None = None
    disjoint_pooling: bool = False

    def problems(self, model: nn.Module, observation: Observation) -> Iterator[Problem]:
        """Yield operations without a rule, in-place operations, reused modules and overlapping pooling windows."""
        yield from super().problems(model, observation)
        yield from _in_place(observation)
        yield from self._reused(model, observation)
        yield from self._without_rule(observation)
        if self.linear is not None:
            yield from self._linear_without_rule(observation, self.linear)
        if self.disjoint_pooling:
            yield from _overlapping_pooling(model)

    def _reused(self, model: nn.Module, observation: Observation) -> Iterator[Problem]:
        for name, calls in observation.calls.items():
            module = model.get_submodule(name)
            if calls > 1 and is_leaf(model, name) and isinstance(module, self.called_once):
                text = f"{type(module).__name__} is used {calls} times in a forward pass"
                yield Problem(name, text, "create a separate module for each use")

    def _without_rule(self, observation: Observation) -> Iterator[Problem]:
        for operation in observation.operations:
            if operation.kind not in {"nonlinear", "product"}:
                continue
            if self.elementwise_only and operation.name not in ELEMENTWISE:
                continue
            module_type = type(operation.module) if operation.leaf else None
            if module_type not in self.activations:
                yield Problem(operation.layer, *missing_rule(operation))

    def _linear_without_rule(self, observation: Observation, linear: tuple[type[nn.Module], ...]) -> Iterator[Problem]:
        additions = network_addition_modules(observation.operations)
        for operation in observation.operations:
            has_rule = operation.leaf and isinstance(operation.module, linear)
            if operation.kind in {"routing", "nonlinear", "product"} or has_rule or operation.layer in additions:
                continue
            if operation.kind == "sum":
                text = "two branches are added by a plain +, through which relevance diverges"
                remedy = "make the addition a separate module (perdure.nets.Add)"
            else:
                text = f"{operation.name} happens outside a layer that has a relevance rule"
                remedy = f"make it a torch.nn layer (Linear, Conv, AvgPool, ...), or {ALTERNATIVES}"
            yield Problem(operation.layer, text, remedy)


@dataclass(frozen=True)
class MapLayers(Gradients):
    """Gradients, and a layer that outputs a map. The method checks the layer that it explains."""

    def has_layer(self, model: nn.Module, observation: Observation) -> bool:
        """Return whether a module outputs values with positions. If none does, the network is rewritten."""
        return any(len(shape) > 2 and name and is_leaf(model, name) for name, shape in observation.outputs)


@dataclass(frozen=True)
class Finding:
    """A property of a network that makes some methods wrong: where, what, and the remedy."""

    layer: str
    problem: str
    remedy: str
    methods: frozenset[str]

    def __str__(self) -> str:
        return str(Problem(self.layer, self.problem, self.remedy))


@dataclass(frozen=True)
class Inspection:
    """What one forward pass shows about a network."""

    model: nn.Module
    observation: Observation
    general: tuple[Problem, ...]
    """Problems for every method: outputs that depend on chance or on the rest of the batch, or are rounded."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """If the network was rewritten: for each module of the original network the modules that compute its outputs."""
    not_rewritten: str = ""
    """Why the network could not be rewritten, if that was tried."""

    def problems(self, requirement: Requirement) -> Iterator[Problem]:
        """Yield everything that violates a requirement."""
        yield from self.general
        yield from requirement.problems(self.model, self.observation)

    def suits(self, requirement: Requirement) -> bool:
        """Return whether nothing violates a requirement, so that the network needs no rewriting."""
        if isinstance(requirement, MapLayers) and not requirement.has_layer(self.model, self.observation):
            return False
        return next(self.problems(requirement), None) is None

    def require(self, method: str, requirement: Requirement) -> None:
        """Raise `InputError` with the first problem that makes a method wrong."""
        for problem in self.problems(requirement):
            raise InputError(f"method {method!r}: {problem}")


class Function(nn.Module):
    """A function as a module: a reshape, a mean, a concatenation, ..."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function's result."""
        return self.function(*args, **kwargs)


def check_network(model: Any, x: Any) -> tuple[Finding, ...]:
    """Return everything in a network that would make a registered method wrong, with its remedy.

    What `attribute` avoids by rewriting a copy of the network is not reported.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> class Network(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear = nn.Linear(3, 2)
    ...     def forward(self, x):
    ...         return self.linear(x) ** 2
    >>> explain.check_network(nn.Linear(3, 2), torch.ones(1, 3))
    ()
    >>> for finding in explain.check_network(Network(), torch.ones(1, 3)):
    ...     print(finding.problem, sorted(finding.methods))
    there is no rule for pow ['deepshap', 'lrp']
    """
    from perdure.explain.checks.rewriting import unsolved_problems  # noqa: PLC0415  (it imports this module)

    network, rows, _ = packed_inputs(model, x)
    device, dtype = device_and_dtype(network, rows)
    with preserved_model(network), torch.inference_mode(False), torch.autocast(device.type, enabled=False):
        examples = as_batch_array(rows, "x", device, dtype)
        explained = single_precision(network)
        if next(training_modules(explained), None) is None:
            with rejected_input(explained, examples):
                explained = with_scores(explained, examples[:1])
        view = input_view(explained, examples, None, None)
        inspection = inspect_network(view.model, view.x)
        methods: dict[Problem, set[str]] = {problem: set() for problem in inspection.general}
        for name in EXPLAINERS.names():
            for problem in unsolved_problems(EXPLAINERS.get(name).requirement({}), inspection, view.x):
                methods.setdefault(problem, set()).add(name)
    return tuple(Finding(p.layer, p.text, p.remedy, frozenset(names)) for p, names in methods.items())


def inspect_network(model: nn.Module, x: Tensor) -> Inspection:
    """Run one or two examples through the network and record every operation."""
    training = tuple(training_modules(model))
    if training:
        return Inspection(model, Observation(), training)
    rows = inspected_rows(x)
    with rejected_input(model, rows):
        observation, output = observe(model, rows)
        scores = checked_shape(output, len(rows))
        check_finite_array(scores[: len(x)].detach(), 0, "the network's output")
        general = (*_randomness(observation), *_rounding(observation), *_coupling(model, rows, scores))
    return Inspection(model, observation, general)


def inspected_rows(x: Tensor) -> Tensor:
    """Return the two rows on which a network is inspected; a single example is followed by zeros."""
    return x[:2] if len(x) > 1 else torch.cat([x[:1], torch.zeros_like(x[:1])])


def is_leaf(model: nn.Module, name: str) -> bool:
    """Return whether a module has no submodules."""
    return next(model.get_submodule(name).children(), None) is None


def network_addition_modules(operations: list[Operation]) -> frozenset[str]:
    """Return the names of leaf modules whose only operation is one sum of two branches."""
    by_layer: dict[str, list[str]] = {}
    for operation in operations:
        if operation.leaf and operation.kind != "routing":
            by_layer.setdefault(operation.layer, []).append(operation.kind)
    return frozenset(name for name, kinds in by_layer.items() if kinds == ["sum"])


def training_modules(model: nn.Module) -> Iterator[Problem]:
    """Yield the layers whose outputs depend on the batch or on chance because they are in training mode."""
    mode_dependent = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
    for module, name in layer_names(model).items():
        if isinstance(module, mode_dependent) and module.training and getattr(module, "p", 1) > 0:
            text = f"{type(module).__name__} is in training mode, so outputs depend on the batch or on chance"
            yield Problem(name, text, "call model.eval() first")


def _randomness(observation: Observation) -> Iterator[Problem]:
    for layer in dict.fromkeys(observation.random):
        remedy = "call model.eval() first, and pass training=self.training to functional dropout"
        yield Problem(layer, "it draws random numbers, so outputs depend on chance", remedy)


def _rounding(observation: Observation) -> Iterator[Problem]:
    for layer in dict.fromkeys(observation.half):
        text = "it computes in half precision, whose rounding can exceed the contribution of a variable"
        yield Problem(layer, text, "remove the autocast or the cast, so that the network computes in float32")


def _coupling(model: nn.Module, rows: Tensor, scores: Tensor) -> Iterator[Problem]:
    """Compare the output of an example in a batch with its output alone."""
    with torch.no_grad():
        single_output = model(rows[:1].clone())
    gap = (single_output[0] - scores[0].detach()).abs().max()
    if not gap <= 1e-3 * scores[0].detach().abs().max():
        text = "the output of an example changes with the other examples in its batch"
        yield Problem("", text, "normalize with fixed statistics (batch norm in evaluation mode)")


def _in_place(observation: Observation) -> Iterator[Problem]:
    for operation in observation.operations:
        if operation.writes:
            text = f"{operation.name} works in place and overwrites values that the method needs"
            yield Problem(operation.layer, text, "use the version that is not in place (inplace=False, h = h + x)")


def missing_rule(operation: Operation) -> tuple[str, str]:
    """Return why an operation has no rule, and the remedy."""
    if operation.kind == "product":
        return f"{operation.name} multiplies two activations, for which there is no rule", ALTERNATIVES
    if operation.leaf and type(operation.module).__module__.startswith("torch.nn"):
        return f"there is no rule for {type(operation.module).__name__}", ALTERNATIVES
    name = operation.name.strip("_").removeprefix("native_")
    if operation.leaf and isinstance(operation.module, Function):
        return f"there is no rule for {name}", ALTERNATIVES
    if name in {"relu", "threshold", "clamp_min"}:
        return f"{name} is called as a function, which the method cannot see", "use a separate nn.ReLU module"
    return f"{name} is called as a function, which the method cannot see", f"use a separate module, or {ALTERNATIVES}"


def _overlapping_pooling(model: nn.Module) -> Iterator[Problem]:
    for module, name in layer_names(model).items():
        if not isinstance(module, MAX_POOLS):
            continue
        if any(size > step for size, step in zip(_sides(module.kernel_size), _sides(module.stride), strict=False)):
            text = f"its pooling windows overlap (kernel {module.kernel_size}, stride {module.stride})"
            yield Problem(name, f"{text}, for which DeepLIFT's rule does not hold", ALTERNATIVES)


def _sides(value: Any) -> tuple[int, ...]:
    return (value,) * 3 if isinstance(value, int) else tuple(value)
