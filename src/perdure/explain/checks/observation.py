"""Observation of a forward pass: every operation on values that depend on the input, and the layer that executes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from perdure.explain.adapters.models import HALF, layer_names
from perdure.explain.checks.operations import LINEAR, LOOKUPS, PRODUCTS, RANDOM, ROUTING, SUMS


@dataclass(frozen=True)
class Operation:
    """One operation on values that depend on the input.

    ``kind``: routing, linear, sum (of two branches), product (of two branches), or nonlinear. ``layer`` names the innermost
    module that executes it; ``leaf`` is whether that module has no submodules. ``writes`` identifies the memory that the
    operation overwrites, 0 for none.
    """

    name: str
    kind: str
    layer: str
    module: nn.Module
    leaf: bool
    writes: int = 0


@dataclass
class Observation:
    """What happens in a forward pass; dictionaries are keyed by module name."""

    operations: list[Operation] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    """Number of calls of each module."""
    outputs: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    """Module and shape of every output, in the order of the calls."""
    memory: dict[str, int] = field(default_factory=dict)
    """Memory of each module's last output."""
    random: list[str] = field(default_factory=list)
    """Layers that draw random numbers."""
    half: list[str] = field(default_factory=list)
    """Layers that compute in float16 or bfloat16."""
    lookups: list[str] = field(default_factory=list)
    """Layers that use the input as indices of a table (an embedding)."""
    detached_layer: str | None = None
    """The layer where a value that reaches the output was detached from the gradient of the input, if there is one."""
    differentiable: bool = True
    """Whether the output has a gradient with respect to the input."""
    output: Tensor | None = None
    gradient: Tensor | None = None
    """Gradient of a weighted sum of the outputs. The weights differ: the sum of a softmax is constant."""


def observe(model: nn.Module, x: Tensor) -> tuple[Observation, Any]:
    """Run a network on a batch; return the observation and the output."""
    recorder = _OperationRecorder(model)
    with ExitStack() as stack, torch.enable_grad():
        for handle in recorder.register_hooks():
            stack.callback(handle.remove)
        point = x.clone().requires_grad_()
        batch = point.clone()  # a network may write into its input, but not into a tensor whose gradient is required
        recorder.track_input(batch)
        with recorder:
            output = model(batch)
    observation = recorder.observation
    if isinstance(output, Tensor):
        observation.output = output.detach()
        observation.gradient = _gradient(output, point)
        observation.differentiable = observation.gradient is not None
        observation.detached_layer = recorder.detached_layer(output)
    return observation, output


def _gradient(output: Tensor, point: Tensor) -> Tensor | None:
    """Return the gradient of a weighted sum of the outputs, or None if they do not depend on the point."""
    if not output.requires_grad:
        return None
    weights = torch.linspace(1, 2, output.numel(), dtype=output.dtype, device=output.device).view_as(output)
    return torch.autograd.grad(output, point, weights, allow_unused=True)[0]


def _memory(tensor: Tensor) -> int:
    """Return a number that identifies the memory of a tensor and of its views."""
    return int(tensor.untyped_storage()._cdata)


def _is_integer(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype is not torch.bool


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))


@dataclass
class _Trace:
    """State of a block of memory whose values depend on the input."""

    storage: Any
    """Kept alive, so that its identifier is not reused."""
    constant: bool = False
    """Piecewise constant (a comparison, an index): the gradient is zero by definition, not because it was detached."""
    detached_layer: str | None = None


class _OperationRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operations that PyTorch dispatches, with the module that is executing."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names = layer_names(model)
        self.executing: list[nn.Module] = [model]
        self.traces: dict[int, _Trace] = {}
        self.observation = Observation()

    def register_hooks(self) -> Iterator[Any]:
        """Register hooks that follow which module is executing; yield their handles."""
        for module in self.names:
            yield module.register_forward_pre_hook(self._enter, prepend=True)
            yield module.register_forward_hook(self._leave, always_call=True)

    def track_input(self, point: Tensor) -> None:
        """Mark the network's input; every value computed from it is tracked."""
        self.traces[_memory(point)] = _Trace(point.untyped_storage())

    def detached_layer(self, output: Tensor) -> str | None:
        """Return the layer that detached a part of the output from the gradient of the input."""
        trace = self.traces.get(_memory(output))
        return trace.detached_layer if trace else None

    def _enter(self, module: nn.Module, _: Any) -> None:
        self.executing.append(module)

    def _leave(self, module: nn.Module, _: Any, output: Any) -> None:
        self.executing.pop()
        name = self.names[module]
        self.observation.calls[name] = self.observation.calls.get(name, 0) + 1
        if isinstance(output, Tensor):
            self.observation.outputs.append((name, tuple(output.shape)))
            self.observation.memory[name] = _memory(output)

    def __torch_dispatch__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        inputs = list(_tensors([args, kwargs or {}]))
        # Read before the call: an operation in place changes it.
        requires_grad = {id(tensor): tensor.requires_grad for tensor in inputs}
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in RANDOM:
            self.observation.random.append(self._layer())
        sources = [tensor for tensor in inputs if _memory(tensor) in self.traces]
        if name in LOOKUPS and _memory(args[0]) not in self.traces and any(map(_is_integer, sources)):
            self.observation.lookups.append(self._layer())
        if sources and any(tensor.dtype in HALF for tensor in _tensors(result)):
            self.observation.half.append(self._layer())
        if sources and name != "detach":
            self._record(func, name, args, sources)
            self._trace_results(name.rstrip("_"), sources, requires_grad, list(_tensors(result)))
        return result

    def _layer(self) -> str:
        return str(self.names[self.executing[-1]])

    def _record(self, func: Any, name: str, args: tuple[Any, ...], sources: list[Tensor]) -> None:
        module = self.executing[-1]
        operation = name.rstrip("_")
        writes = _memory(args[0]) if func._schema.is_mutable and isinstance(args[0], Tensor) else 0
        # An operation that only changes the shape does not change values.
        if writes not in self.traces or (operation in ROUTING and operation != "copy"):
            writes = 0
        kind = _kind(operation, args, [_memory(tensor) for tensor in sources])
        leaf = next(module.children(), None) is None
        self.observation.operations.append(Operation(operation, kind, self._layer(), module, leaf, writes))

    def _trace_results(
        self, operation: str, sources: list[Tensor], requires_grad: dict[int, bool], results: list[Tensor]
    ) -> None:
        """Track the results of an operation; a differentiable source without a gradient was detached in this layer."""
        traces = [self.traces[_memory(tensor)] for tensor in sources]
        detached = next((trace.detached_layer for trace in traces if trace.detached_layer is not None), None)
        for tensor, trace in zip(sources, traces, strict=True):
            has_gradient = requires_grad[id(tensor)] and torch.is_grad_enabled()
            if tensor.is_floating_point() and not trace.constant and not has_gradient and detached is None:
                detached = self._layer()
        for tensor in results:
            if _memory(tensor) in self.traces and operation in ROUTING:  # a view of memory that is already tracked
                continue
            constant = not tensor.is_floating_point() or all(trace.constant for trace in traces)
            self.traces[_memory(tensor)] = _Trace(tensor.untyped_storage(), constant, None if constant else detached)


def _kind(operation: str, args: tuple[Any, ...], sources: list[int]) -> str:
    """Return the kind of an operation; ``sources`` identifies the memory that depends on the input."""
    operands = [_memory(value) for value in args if isinstance(value, Tensor)]
    dependent = sum(memory in sources for memory in operands)
    if operation in ROUTING:
        return "routing"
    if operation in SUMS:
        return "sum" if dependent > 1 else "linear"
    if operation in PRODUCTS:
        divisor = operation == "div" and len(operands) > 1 and operands[1] in sources
        if operation.startswith(("addmm", "baddbmm")):  # their first operand is added, not multiplied
            dependent = sum(memory in sources for memory in operands[1:])
        return "product" if dependent > 1 or divisor else "linear"
    return "linear" if operation in LINEAR else "nonlinear"
