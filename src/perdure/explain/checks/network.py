"""The network checker: what would make an attribution silently wrong is found first, named and refused.

Measured with captum 0.9: with ``F.relu`` its DeepLift misses completeness and its guided backprop ignores the
activation, through a plain ``h + x`` its LRP diverges, and a module used twice raises deep inside. A finding refuses
only the methods it makes wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.explain.adapters.arrays import as_rows, check_finite, place_of
from perdure.explain.adapters.outputs import checked_shape
from perdure.explain.checks.observation import Observation, Operation, observe
from perdure.explain.checks.operations import ELEMENTWISE
from perdure.explain.methods.captum_methods import DEEPLIFT_MODULES
from perdure.explain.methods.lrp import ACTIVATIONS as LRP_ACTIVATIONS
from perdure.explain.methods.lrp import AVERAGING, WEIGHTED

GRADIENTS = frozenset(
    {
        "grad",
        "gradient_x_input",
        "integrated_gradients",
        "guided_backprop",
        "lrp",
        "deepshap",
        "gradcam",
        "expected_gradients",
    }
)
METHODS = GRADIENTS | {"lime", "shapley", "exact_shapley"}
RULES = frozenset({"deepshap", "lrp", "guided_backprop"})
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
_BESIDE = "use 'expected_gradients', 'integrated_gradients' or 'shapley' instead"


@dataclass(frozen=True)
class Finding:
    """Something in a network that makes some methods wrong: where, what, and what to do about it."""

    layer: str
    problem: str
    remedy: str
    methods: frozenset[str]

    def __str__(self) -> str:
        where = f"layer {self.layer!r}" if self.layer else "the network's own forward"
        return f"{where}: {self.problem}; {self.remedy}"


@dataclass(frozen=True)
class Inspection:
    """What the checker found, and what the methods need to know of the network."""

    findings: tuple[Finding, ...]
    additions: frozenset[str]
    """Modules that do nothing but add two branches."""
    map_layer: str | None
    """The last layer with a map of more than one position before pooling: Grad-CAM's default."""
    observation: Observation

    def refuse(self, method: str, *, gradients: bool = False) -> None:
        """Raise the first finding that makes this method wrong, or any gradient if the method takes gradients."""
        for finding in self.findings:
            if method in finding.methods or (gradients and "grad" in finding.methods):
                raise InputError(f"method {method!r}: {finding}")


def check_network(model: nn.Module, x: Any) -> tuple[Finding, ...]:
    """Return everything in a network that would make a method wrong, with its remedy; an empty tuple if nothing would."""
    from perdure.explain.adapters.preserve import kept_as_it_was  # noqa: PLC0415

    with kept_as_it_was(model), torch.inference_mode(False):
        return inspect_network(model, as_rows(x, "x", *place_of(model, x))).findings


def inspect_network(model: nn.Module, x: Tensor) -> Inspection:
    """Run one or two samples through the network and judge what is seen."""
    modes = tuple(_training_modules(model))
    if modes:
        return Inspection(modes, frozenset(), None, Observation())
    rows = x[:2] if len(x) > 1 else torch.cat([x[:1], torch.zeros_like(x[:1])])
    seen, output = observe(model, rows)
    scores = checked_shape(output, len(rows))
    check_finite(scores[: len(x)].detach(), 0, "the network's output")
    additions = frozenset(_additions(seen.operations))
    findings = [
        *_randomness(seen),
        *_coupling(model, rows, scores),
        *_gradient_flow(seen),
        *_in_place(seen),
        *_reuse(model, seen),
        *_activations(seen),
        *_relevance(seen, additions),
        *_pooling(model),
    ]
    return Inspection(tuple(findings), additions, _map_layer(model, seen, x.dim()), seen)


def _training_modules(model: nn.Module) -> Iterator[Finding]:
    sensitive = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
    for name, module in model.named_modules():
        if isinstance(module, sensitive) and module.training and getattr(module, "p", 1) > 0:
            problem = f"{type(module).__name__} is in training mode, so outputs depend on the batch or on chance"
            yield Finding(name, problem, "call model.eval() first", METHODS)


def _randomness(seen: Observation) -> Iterator[Finding]:
    for layer in dict.fromkeys(seen.random):
        remedy = "call model.eval() first, and give functional dropout training=self.training"
        yield Finding(layer, "it draws random numbers, so outputs depend on chance", remedy, METHODS)


def _coupling(model: nn.Module, rows: Tensor, scores: Tensor) -> Iterator[Finding]:
    with torch.no_grad():
        alone = model(rows[:1].clone())
    gap = (alone[0] - scores[0].detach()).abs().max()
    if not gap <= 1e-3 * (1 + scores[0].detach().abs().max()):
        problem = "the output of a sample changes with the other samples in its batch"
        yield Finding("", problem, "normalise with fixed statistics (batch norm in evaluation mode)", METHODS)


def _gradient_flow(seen: Observation) -> Iterator[Finding]:
    remedy = "remove detach, no_grad, .data or whole-number casts between input and output, or use 'shapley' or 'lime'"
    if not seen.differentiable:
        yield Finding(
            seen.severed or "", "the input is frozen: the output has no gradient with respect to it", remedy, GRADIENTS
        )
    elif seen.severed is not None:
        yield Finding(seen.severed, "a part of the output is cut off from the input's gradient", remedy, GRADIENTS)


def _in_place(seen: Observation) -> Iterator[Finding]:
    for operation in seen.operations:
        if operation.writes:
            problem = f"{operation.name} works in place, over what the method has to remember"
            yield Finding(
                operation.layer, problem, "make it not in place (inplace=False, h = h + x, not h += x)", RULES
            )


def _reuse(model: nn.Module, seen: Observation) -> Iterator[Finding]:
    for name, calls in seen.calls.items():
        module = model.get_submodule(name)
        if calls < 2 or next(module.children(), None) is not None:
            continue
        methods = {"lrp"} | ({"deepshap"} if isinstance(module, DEEPLIFT_MODULES) else set())
        problem = f"{type(module).__name__} is used {calls} times in a forward pass"
        yield Finding(name, problem, "give each use a module of its own", frozenset(methods))


def _activations(seen: Observation) -> Iterator[Finding]:
    for operation in seen.operations:
        if operation.kind not in {"nonlinear", "product"}:
            continue
        home = type(operation.module) if operation.leaf else None
        methods = set()
        if home not in DEEPLIFT_MODULES:
            methods.add("deepshap")
        if home not in (*LRP_ACTIVATIONS, *_POOLS):
            methods.add("lrp")
        if operation.name in ELEMENTWISE and home is not nn.ReLU:
            methods.add("guided_backprop")
        if methods:
            yield Finding(operation.layer, *_why(operation), frozenset(methods))


def _why(operation: Operation) -> tuple[str, str]:
    if operation.kind == "product":
        return f"{operation.name} multiplies two activations, for which there is no rule", _BESIDE
    if operation.leaf and type(operation.module).__module__.startswith("torch.nn"):
        return f"there is no rule for {type(operation.module).__name__}", _BESIDE
    word = operation.name.strip("_")
    if word in {"relu", "threshold", "clamp_min"}:
        return f"{word} is called as a function, which the method cannot see", "use an nn.ReLU module of its own"
    return f"{word} is called as a function, which the method cannot see", f"use a module of its own, or {_BESIDE}"


def _additions(operations: list[Operation]) -> set[str]:
    """Return the modules without parts in which nothing happens but one sum of two branches."""
    by_layer: dict[str, list[Operation]] = {}
    for operation in operations:
        if operation.leaf and operation.kind != "routing":
            by_layer.setdefault(operation.layer, []).append(operation)
    return {name for name, own in by_layer.items() if [operation.kind for operation in own] == ["sum"]}


def _relevance(seen: Observation, additions: frozenset[str]) -> Iterator[Finding]:
    for operation in seen.operations:
        known = operation.leaf and isinstance(operation.module, (*WEIGHTED, *AVERAGING, *LRP_ACTIVATIONS))
        if operation.kind in {"routing", "nonlinear", "product"} or known or operation.layer in additions:
            continue
        if operation.kind == "sum":
            problem = "two branches are added by a plain +, through which relevance diverges"
            remedy = "make the addition a module of its own (perdure.nets.Add)"
        else:
            problem = f"{operation.name} happens outside a layer that has a relevance rule"
            remedy = f"make it a torch.nn layer (Linear, Conv, AvgPool, ...), or {_BESIDE}"
        yield Finding(operation.layer, problem, remedy, frozenset({"lrp"}))


def _pooling(model: nn.Module) -> Iterator[Finding]:
    for name, module in model.named_modules():
        if isinstance(module, _POOLS):
            kernel, stride = _sides(module.kernel_size), _sides(module.stride)
            if any(size > step for size, step in zip(kernel, stride, strict=False)):
                problem = f"its pooling windows overlap (kernel {module.kernel_size}, stride {module.stride})"
                yield Finding(
                    name, f"{problem}, for which DeepLIFT's rule does not hold", _BESIDE, frozenset({"deepshap"})
                )


def _sides(value: Any) -> tuple[int, ...]:
    return (value,) * 3 if isinstance(value, int) else tuple(value)


def _map_layer(model: nn.Module, seen: Observation, dimensions: int) -> str | None:
    pools = (*_POOLS, *AVERAGING[3:], nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d)
    found = None
    for name, shape in seen.shapes.items():
        module = model.get_submodule(name)
        is_leaf = next(module.children(), None) is None
        if is_leaf and len(shape) == dimensions > 2 and max(shape[2:]) > 1 and not isinstance(module, pools):
            found = name
    return found


def check_map_layer(inspection: Inspection, layer: str | None, x: Tensor) -> str:
    """Return Grad-CAM's layer, refusing one that has no map, is used twice or is overwritten."""
    seen = inspection.observation
    if x.dim() not in (3, 4):
        raise InputError(f"method 'gradcam': samples of shape {tuple(x.shape[1:])} have no positions; {_BESIDE}")
    name = layer if layer is not None else inspection.map_layer
    if name is None:
        raise InputError(
            f"method 'gradcam': no layer of this network puts out a map; name one with layer=, or {_BESIDE}"
        )
    if seen.calls.get(name, 0) != 1:
        raise InputError(f"method 'gradcam': layer {name!r} is called {seen.calls.get(name, 0)} times, expected once")
    shape = seen.shapes.get(name, ())
    if len(shape) != x.dim():
        raise InputError(
            f"method 'gradcam': layer {name!r} puts out shape {shape}, expected a map of (batch, channels, "
            f"{'height, width' if x.dim() == 4 else 'length'}); name a convolutional layer"
        )
    for operation in seen.operations:
        if operation.writes and operation.writes == seen.memory[name]:
            raise InputError(
                f"method 'gradcam': layer {operation.layer!r} overwrites the output of layer {name!r} in place; "
                "make it not in place (inplace=False)"
            )
    return name
