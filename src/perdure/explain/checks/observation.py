"""What a network really does in a forward pass: every operation on what depends on the input, and in which layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from perdure.explain.checks.operations import LINEAR, PRODUCTS, RANDOM, ROUTING, SUMS


@dataclass(frozen=True)
class Operation:
    """One operation on what depends on the input.

    ``kind``: routing, linear, sum (of two branches), product (of two branches), or nonlinear. ``layer`` is the innermost module
    at work and ``leaf`` whether it has no parts. ``writes`` is the memory it writes into, 0 for none.
    """

    name: str
    kind: str
    layer: str
    module: nn.Module
    leaf: bool
    writes: int = 0


@dataclass
class Observation:
    """A forward pass: the operations, how often each module was called, what it put out, and how the output came about."""

    operations: list[Operation] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    random: list[str] = field(default_factory=list)
    severed: str | None = None
    """The layer where a value that reaches the output was cut off from the input's gradient, if there is one."""
    differentiable: bool = True


def observe(model: nn.Module, rows: Tensor) -> tuple[Observation, Any]:
    """Run the network on some rows and return what was seen, with the output."""
    watch = _Watch(model)
    with ExitStack() as stack, torch.enable_grad():
        for handle in watch.hang():
            stack.callback(handle.remove)
        point = rows.clone().requires_grad_()
        watch.start(point)
        with watch:
            output = model(point)
    seen = watch.seen
    if isinstance(output, Tensor):
        seen.differentiable = output.requires_grad and (
            torch.autograd.grad(output.sum(), point, allow_unused=True)[0] is not None
        )
        seen.severed = watch.severed_at(output)
    return seen, output


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


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
    """What is known of a piece of memory that depends on the input."""

    keeper: Any
    constant: bool = False
    """Piecewise constant (a comparison, an index): its zero gradient is the true one."""
    severed: str | None = None


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names = {module: name for name, module in model.named_modules()}
        self.inside: list[nn.Module] = [model]
        self.traces: dict[int, _Trace] = {}
        self.seen = Observation()

    def hang(self) -> Iterator[Any]:
        """Hang the hooks that tell which module is at work."""
        for module in self.names:
            yield module.register_forward_pre_hook(self._enter, prepend=True)
            yield module.register_forward_hook(self._leave, always_call=True)

    def start(self, point: Tensor) -> None:
        """Take the input as what everything depends on."""
        self.traces[_memory(point)] = _Trace(point.untyped_storage())

    def severed_at(self, output: Tensor) -> str | None:
        """Return the layer that cut a part of the output off from the input's gradient."""
        trace = self.traces.get(_memory(output))
        return trace.severed if trace else None

    def _enter(self, module: nn.Module, _: Any) -> None:
        self.inside.append(module)

    def _leave(self, module: nn.Module, _: Any, output: Any) -> None:
        self.inside.pop()
        name = self.names[module]
        self.seen.calls[name] = self.seen.calls.get(name, 0) + 1
        if isinstance(output, Tensor):
            self.seen.shapes[name] = tuple(output.shape)
            self.seen.memory[name] = _memory(output)

    def __torch_dispatch__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = list(_tensors([args, kwargs or {}]))
        needs = {id(tensor): tensor.requires_grad for tensor in given}
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in RANDOM:
            self.seen.random.append(self._layer())
        sources = [tensor for tensor in given if _memory(tensor) in self.traces]
        if sources and name != "detach":
            self._note(func, name, args, sources, needs, list(_tensors(result)))
        return result

    def _layer(self) -> str:
        return str(self.names[self.inside[-1]])

    def _note(
        self,
        func: Any,
        name: str,
        args: tuple[Any, ...],
        sources: list[Tensor],
        needs: dict[int, bool],
        made: list[Tensor],
    ) -> None:
        module = self.inside[-1]
        plain = name.rstrip("_")
        writes = _memory(args[0]) if func._schema.is_mutable and isinstance(args[0], Tensor) else 0
        if writes not in self.traces or (plain in ROUTING and plain != "copy"):  # a new shape alone writes nothing
            writes = 0
        kind = _kind(plain, args, [_memory(tensor) for tensor in sources])
        leaf = next(module.children(), None) is None
        self.seen.operations.append(Operation(plain, kind, self._layer(), module, leaf, writes))
        traces = [self.traces[_memory(tensor)] for tensor in sources]
        severed = next((trace.severed for trace in traces if trace.severed is not None), None)
        for tensor, trace in zip(sources, traces, strict=True):
            followed = needs[id(tensor)] and torch.is_grad_enabled()
            if tensor.is_floating_point() and not trace.constant and not followed and severed is None:
                severed = self._layer()
        for tensor in made:
            if _memory(tensor) in self.traces and plain in ROUTING:  # a view: what it shows is known already
                continue
            constant = not tensor.is_floating_point() or all(trace.constant for trace in traces)
            self.traces[_memory(tensor)] = _Trace(tensor.untyped_storage(), constant, None if constant else severed)


def _kind(name: str, args: tuple[Any, ...], sources: list[int]) -> str:
    operands = [_memory(value) for value in args if isinstance(value, Tensor)]
    depending = sum(memory in sources for memory in operands)
    if name in ROUTING:
        return "routing"
    if name in SUMS:
        return "sum" if depending > 1 else "linear"
    if name in PRODUCTS:
        divided = name == "div" and len(operands) > 1 and operands[1] in sources
        both = (
            depending > 1 if not name.startswith(("addmm", "baddbmm")) else sum(m in sources for m in operands[1:]) > 1
        )
        return "product" if both or divided else "linear"
    return "linear" if name in LINEAR else "nonlinear"
