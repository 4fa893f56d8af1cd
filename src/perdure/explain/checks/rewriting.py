"""Rewriting of networks as people write them into networks on which rule-based explainers are right.

A copy is traced with torch.fx. Activations, additions, pooling and reshapes that are called as functions become modules, a
module that is called k times becomes k modules, and nothing works in place. The copy shares its parameters with the original;
it is used only if outputs and gradients agree on the user's data.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from perdure.base.errors import InputError, error_message
from perdure.explain.adapters.models import TOLERANCE, Wrapper, layer_names
from perdure.explain.checks.network import (
    Function,
    Gradients,
    Inspection,
    MapLayers,
    Problem,
    Requirement,
    inspect_network,
    inspected_rows,
    is_leaf,
)

_POOL = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
_AVERAGE = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
MODULES: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "celu": (nn.CELU, ("alpha",)),
    "elu": (nn.ELU, ("alpha",)),
    "gelu": (nn.GELU, ("approximate",)),
    "hardsigmoid": (nn.Hardsigmoid, ()),
    "hardswish": (nn.Hardswish, ()),
    "hardtanh": (nn.Hardtanh, ("min_val", "max_val")),
    "leaky_relu": (nn.LeakyReLU, ("negative_slope",)),
    "log_softmax": (nn.LogSoftmax, ("dim",)),
    "mish": (nn.Mish, ()),
    "relu": (nn.ReLU, ()),
    "relu6": (nn.ReLU6, ()),
    "selu": (nn.SELU, ()),
    "sigmoid": (nn.Sigmoid, ()),
    "silu": (nn.SiLU, ()),
    "softmax": (nn.Softmax, ("dim",)),
    "softplus": (nn.Softplus, ("beta", "threshold")),
    "tanh": (nn.Tanh, ()),
    "max_pool1d": (nn.MaxPool1d, _POOL),
    "max_pool2d": (nn.MaxPool2d, _POOL),
    "max_pool3d": (nn.MaxPool3d, _POOL),
    "avg_pool1d": (nn.AvgPool1d, _AVERAGE[:-1]),
    "avg_pool2d": (nn.AvgPool2d, _AVERAGE),
    "avg_pool3d": (nn.AvgPool3d, _AVERAGE),
    "adaptive_avg_pool1d": (nn.AdaptiveAvgPool1d, ("output_size",)),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d, ("output_size",)),
    "adaptive_avg_pool3d": (nn.AdaptiveAvgPool3d, ("output_size",)),
    "adaptive_max_pool1d": (nn.AdaptiveMaxPool1d, ("output_size",)),
    "adaptive_max_pool2d": (nn.AdaptiveMaxPool2d, ("output_size",)),
    "adaptive_max_pool3d": (nn.AdaptiveMaxPool3d, ("output_size",)),
}
"""Functions and methods that become a torch.nn module, with the names of their parameters after the input, in order."""
_CONVOLUTIONS = {"conv1d": nn.Conv1d, "conv2d": nn.Conv2d, "conv3d": nn.Conv3d}
_WEIGHTED = {
    **dict.fromkeys(_CONVOLUTIONS, ("weight", "bias", "stride", "padding", "dilation", "groups")),
    "linear": ("weight", "bias"),
    "matmul": ("weight",),
    "mm": ("weight",),
}
"""Functions with weights, with the names of their parameters after the input, in order."""
_IN_PLACE_OPERATORS: dict[Any, Callable[..., Any]] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}
_CONCRETE_ATTRIBUTES = {"device", "dtype", "is_cuda", "layout", "ndim"}


class RewritingError(Exception):
    """The network cannot be rewritten; the message says why."""


class Add(nn.Module):
    """The sum of two branches."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return left + right."""
        return left + right


def suitable_network(method: str, requirement: Requirement, inspection: Inspection, x: Tensor) -> Inspection:
    """Return the inspection of a network on which the method is right: the given one, or that of a rewritten copy.

    Raises `InputError` if neither suits. A network that suits is not traced.
    """
    problem = next(inspection.problems(requirement), None)
    if problem is None:
        return _with_layers(requirement, inspection, x) if isinstance(requirement, MapLayers) else inspection
    if _is_basic(problem, inspection):
        raise InputError(f"method {method!r}: {problem}")
    try:
        rewritten = rewritten_network(inspection, x)
    except RewritingError as error:
        raise InputError(
            f"method {method!r}: {problem}. The network could not be rewritten automatically: {error}"
        ) from error
    for remaining in _problems_of_copy(requirement, inspection, rewritten):
        raise InputError(f"method {method!r}: {remaining}")
    return rewritten


def unsolved_problems(requirement: Requirement, inspection: Inspection, x: Tensor) -> list[Problem]:
    """Return what makes a method wrong on a network and, if it can be rewritten, also on its copy."""
    problems = list(inspection.problems(requirement))
    if not problems or _is_basic(problems[0], inspection):
        return problems
    try:
        return list(_problems_of_copy(requirement, inspection, rewritten_network(inspection, x)))
    except RewritingError:
        return problems


def _is_basic(problem: Problem, inspection: Inspection) -> bool:
    """Return whether a problem lies in what the network computes and not in how it is written."""
    return problem in (*inspection.general, *Gradients().problems(inspection.model, inspection.observation))


def _with_layers(requirement: MapLayers, inspection: Inspection, x: Tensor) -> Inspection:
    """Return a copy with layers if the network has none; if it cannot be made, the network and the reason."""
    if x.dim() <= 2 or requirement.has_layer(inspection.model, inspection.observation):
        return inspection
    try:
        return rewritten_network(inspection, x)
    except RewritingError as error:
        return replace(inspection, not_rewritten=str(error))


def _problems_of_copy(requirement: Requirement, original: Inspection, rewritten: Inspection) -> Iterator[Problem]:
    """Yield the problems of a rewritten network, each at the module of the original network in which it lies."""
    names = set(layer_names(original.model).values())
    prefix = _wrapper_prefix(original.model)
    origins = {new: name for name, copies in reversed(list(rewritten.names.items())) for new in copies}
    for problem in requirement.problems(rewritten.model, rewritten.observation):
        layer = origins.get(problem.layer, problem.layer).removeprefix(prefix)
        while layer not in names:
            layer = layer.rpartition(".")[0]
        yield replace(problem, layer=layer)


def rewritten_network(inspection: Inspection, x: Tensor) -> Inspection:
    """Return the inspection of a rewritten copy with equal outputs and gradients; otherwise raise `RewritingError`."""
    model, expected = inspection.model, inspection.observation
    try:
        with torch.no_grad(), _traceable_len(model):
            network, names = _network_of_modules(model, _traced(model, inspected_rows(x)))
    except RewritingError:
        raise
    except Exception as error:  # the network's own code runs on placeholders and may raise anything
        raise RewritingError(f"it could not be traced ({error_message(error)})") from error
    try:
        result = inspect_network(network, x)
    except InputError as error:
        raise RewritingError(
            "the copy does not run on this batch, so the forward method may depend on the number of examples"
        ) from error
    for name in ("output", "gradient"):
        if not _agree(getattr(result.observation, name), getattr(expected, name)):
            raise RewritingError(f"its {name}s differ from those of the network")
    for problem in result.general:
        raise RewritingError(problem.text)
    prefix = _wrapper_prefix(model)
    return replace(result, names={name.removeprefix(prefix): copies for name, copies in names.items()})


def _wrapper_prefix(model: nn.Module) -> str:
    """Return the part of a module's name that leads to the user's model."""
    return f"model.{_wrapper_prefix(model.model)}" if isinstance(model, Wrapper) else ""


def _agree(values: Tensor | None, expected: Tensor | None) -> bool:
    """Return whether two tensors are equal up to rounding, relative to the largest value."""
    if values is None or expected is None or values.shape != expected.shape:
        return False
    return bool((values - expected).abs().max() <= TOLERANCE * expected.abs().max())


class _Proxy(fx.Proxy):
    """A placeholder that knows its value for the traced rows, so that sizes can be used in conditions and loops."""

    node: fx.Node

    def __getattr__(self, name: str) -> Any:
        if name in _CONCRETE_ATTRIBUTES:
            return getattr(self.node.meta["value"], name)
        if name == "shape":
            return self.tracer.create_proxy("call_function", getattr, (self, name), {})
        return super().__getattr__(name)

    def __len__(self) -> int:
        return len(self.node.meta["value"])

    def __index__(self) -> int:
        return operator.index(_size(self.node))

    def __int__(self) -> int:
        return int(_size(self.node))

    def __float__(self) -> float:
        return float(_size(self.node))

    def __iadd__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.iadd, (self, other), {})

    def __isub__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.isub, (self, other), {})

    def __imul__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.imul, (self, other), {})

    def __itruediv__(self, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.itruediv, (self, other), {})


def _size(node: fx.Node) -> Any:
    """Return the value of a node that is a number derived from shapes; a tensor's value may not steer the forward pass."""
    value = node.meta["value"]
    if isinstance(value, Tensor):
        raise RewritingError("its forward method depends on computed values in a condition, a loop or a number")
    return value


@contextmanager
def _traceable_len(model: nn.Module) -> Iterator[None]:
    """Let ``len`` of a placeholder be traced in the files of the network's classes; otherwise it would be a fixed number."""
    forwards = [getattr(type(module), "forward", None) for module in model.modules()]
    spaces = {id(space): space for forward in forwards if (space := getattr(forward, "__globals__", None)) is not None}
    patched = [space for space in spaces.values() if "len" not in space]
    for space in patched:
        space["len"] = _len
    try:
        yield
    finally:
        for space in patched:
            del space["len"]


def _len(value: Any) -> Any:
    return value.tracer.create_proxy("call_function", len, (value,), {}) if isinstance(value, _Proxy) else len(value)


@dataclass
class _Trace:
    """A traced forward pass. ``calls`` lists for each module the nodes of its outputs, one for each call."""

    graph: fx.Graph
    constants: dict[str, Tensor]
    calls: dict[str, list[fx.Node]]
    scopes: dict[fx.Node, str]
    """Name of the module in whose forward method a node was created."""


def _traced(model: nn.Module, rows: Tensor) -> _Trace:
    tracer = _Tracer(rows)
    graph = tracer.trace(model)
    return _Trace(graph, tracer.constants, tracer.calls, tracer.scopes)


class _Tracer(fx.Tracer):
    """Traces through all modules but those of torch.nn, and evaluates every node on the given rows."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = rows
        self.evaluating = False
        self.constants: dict[str, Tensor] = {}
        self.calls: dict[str, list[fx.Node]] = {}
        self.scopes: dict[fx.Node, str] = {}

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:  # noqa: ARG002
        """Call the network's own forward method with one input; other parameters keep their default values."""
        return _call_forward, [self.root, self.create_proxy("placeholder", "x", (), {})]

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        """Keep modules of torch.nn as they are."""
        return type(m).__module__.startswith("torch.nn") and not isinstance(m, nn.Sequential)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Record which nodes a module returns."""
        if self.evaluating:
            return forward(*args, **kwargs)
        result = super().call_module(m, forward, args, kwargs)
        if isinstance(result, fx.Proxy):
            self.calls.setdefault(self.path_of_module(m), []).append(result.node)
        return result

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: Any) -> Any:  # noqa: ARG002
        """Use parameters as they are; they become constants where they meet a placeholder."""
        return attr_val

    def create_arg(self, a: Any) -> Any:
        """Keep tensors in the trace. The base class would store them as attributes of the user's network."""
        if not isinstance(a, Tensor):
            return super().create_arg(a)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = a
        node = self.create_node("get_attr", name, (), {})
        node.meta["value"] = a
        return node

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **named: Any) -> fx.Proxy:
        """Evaluate each new node."""
        proxy = super().create_proxy(kind, target, args, kwargs, *rest, **named)
        self.scopes[proxy.node] = self.scope.module_path
        self.evaluating = True
        try:
            proxy.node.meta["value"] = self._value(proxy.node)
        finally:
            self.evaluating = False
        return proxy

    def _value(self, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda argument: argument.meta["value"])
        if node.op == "placeholder":
            return self.rows.clone()
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        function: Any = self.root.get_submodule(str(node.target)) if node.op == "call_module" else node.target
        return function(*args, **kwargs)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Return a placeholder that knows its value."""
        return _Proxy(node, self)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """Decide conditions on sizes; conditions on values are refused."""
        return bool(_size(obj.node))

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """Iterate over the parts of a shape, a tuple or a tensor."""
        return iter([cast(Any, obj)[index] for index in range(len(obj.node.meta["value"]))])


def _call_forward(root: nn.Module, x: Any) -> Any:
    return root.forward(x)


class _Network(fx.GraphModule):
    """A network of modules. Unlike its base class it prints nothing if it fails."""

    def recompile(self) -> Any:
        """Compile the graph; calls go through torch.nn.Module."""
        code = super().recompile()
        type(self).__call__ = nn.Module.__call__  # type: ignore[method-assign]  # each instance has a class of its own
        return code


def _network_of_modules(model: nn.Module, trace: _Trace) -> tuple[nn.Module, dict[str, tuple[str, ...]]]:
    """Return a network in which every operation is a module, and for each module of the original its modules there."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    new_names = _new_names(model, trace)
    modules: dict[str, nn.Module] = {}
    for node, new_name in new_names.items():
        operation, in_place = _operation(node, model)
        if in_place:
            _use_result(node)
        if node.op == "call_module":
            module = _copied(model.get_submodule(operation), shared)
            if in_place:
                module.inplace = False  # type: ignore[assignment]
        else:
            module, node.args, node.kwargs = _as_module(operation, node)
        node.op, node.target = "call_module", new_name
        modules[new_name] = module
    for node in trace.graph.nodes:
        node.meta.clear()
    for node in [node for node in trace.graph.nodes if node.op == "get_attr" and not node.users]:
        trace.graph.erase_node(node)
    network = _Network({**modules, **trace.constants}, trace.graph)
    network.training = model.training
    return network, {
        name: tuple(new_names[node] for node in nodes)
        for name, nodes in trace.calls.items()
        if new_names.keys() >= set(nodes)
    }


def _copied(module: nn.Module, shared: dict[int, Tensor]) -> nn.Module:
    """Return a copy of a module with the same parameters and buffers."""
    if next(module.children(), None) is not None:
        return copy.deepcopy(module, dict(shared))
    clone = object.__new__(type(module))
    vars(clone).update(
        (name, value.copy() if isinstance(value, dict) else value) for name, value in vars(module).items()
    )
    return clone


def _new_names(model: nn.Module, trace: _Trace) -> dict[fx.Node, str]:
    """Return a name for each node that computes tensors, in the order of execution.

    A module of the original network keeps its name; the k calls of a module are called name__1 to name__k. A function is
    named after itself, below the module that calls it.
    """
    nodes = [node for node in trace.graph.nodes if _computes_tensors(node)]
    scopes = [trace.scopes[node] for node in nodes]
    taken = {name for name, _ in model.named_modules()}
    names: dict[fx.Node, str] = {}
    calls: dict[str, int] = {}
    for node, scope in zip(nodes, scopes, strict=True):
        only_operation = scope and is_leaf(model, scope) and scopes.count(scope) == len(trace.calls.get(scope, ()))
        if node.op == "call_module" or only_operation:
            name = str(node.target) if node.op == "call_module" else scope
            calls[name] = calls.get(name, 0) + 1
            names[node] = f"{name}__{calls[name]}" if len(trace.calls[name]) > 1 else name
            continue
        base = ".".join(part for part in (scope, _operation(node, model)[0].strip("_")) if part)
        name, count = base, 0
        while name in taken or hasattr(_Network, name.rpartition(".")[2]):  # h.float(), for example
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        names[node] = name
    return names


def _computes_tensors(node: fx.Node) -> bool:
    """Return whether a node computes tensors, not a size or a part of a tuple."""
    if node.op not in ("call_function", "call_method", "call_module"):
        return False
    if node.target is operator.getitem and not isinstance(cast(fx.Node, node.args[0]).meta["value"], Tensor):
        return False
    value = node.meta["value"]
    return isinstance(value, Tensor) or (isinstance(value, tuple | list) and any(isinstance(v, Tensor) for v in value))


def _operation(node: fx.Node, model: nn.Module) -> tuple[str, bool]:
    """Return the name of a node's module, function or method, and whether it works in place."""
    if node.op == "call_module":
        return str(node.target), bool(getattr(model.get_submodule(str(node.target)), "inplace", False))
    if node.target in _IN_PLACE_OPERATORS:
        return _IN_PLACE_OPERATORS[node.target].__name__, True
    name = str(getattr(node.target, "__name__", node.target))
    in_place = name.endswith("_") and not name.endswith("__")
    return name.rstrip("_") if in_place else name, in_place or bool(node.kwargs.get("inplace", False))


def _use_result(node: fx.Node) -> None:
    """Let later operations use the result of an operation in place instead of the tensor that it overwrites."""
    source = node.args[0] if node.args else node.kwargs.get("input")
    if not isinstance(source, fx.Node):
        return
    for user in [user for user in source.users if user is not node and node < user]:
        user.replace_input_with(source, node)


def _as_module(name: str, node: fx.Node) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Return a module that computes a function or method, and the arguments of its call."""
    kwargs = dict(node.kwargs)
    args = (kwargs.pop("input"), *node.args) if "input" in kwargs else node.args
    known = _torch_module(name, args, kwargs) if _function(name, node) is not None else None
    if known is not None:
        return known[0], tuple(known[1:]), {}
    if "inplace" in kwargs:
        kwargs["inplace"] = False
    return Function(_function(name, node) or cast(Any, node.target)), args, kwargs


def _function(name: str, node: fx.Node) -> Callable[..., Any] | None:
    """Return the torch function that computes a node, not in place; None if it is not a function of torch."""
    if node.op == "call_method":
        return cast(Callable[..., Any], getattr(Tensor, name))
    for namespace in (operator, nn.functional, torch):
        original = getattr(node.target, "__name__", "")
        if getattr(namespace, original, None) is node.target and hasattr(namespace, name):
            return cast(Callable[..., Any], getattr(namespace, name))
    return None


def _torch_module(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return a torch.nn module (or `Add`) and its inputs, or None if the operation has none."""
    if name in MODULES:
        module_type, parameters = MODULES[name]
        options = _options(parameters, args[1:], kwargs)
        return None if options is None else (module_type(**options), args[0])
    if name in ("clamp", "clip", "clamp_min"):
        options = _options(("min", "max"), args[1:], kwargs) or {}
        return (nn.ReLU(), args[0]) if options.get("min") == 0 and options.get("max") is None else None
    if name == "add":
        operands = (*args, *([kwargs["other"]] if "other" in kwargs else []))
        return (Add(), *operands) if all(map(_is_computed, operands)) and kwargs.get("alpha", 1) == 1 else None
    return _weighted_module(name, args, kwargs)


def _is_computed(operand: Any) -> bool:
    return isinstance(operand, fx.Node) and operand.op != "get_attr" and isinstance(operand.meta["value"], Tensor)


def _options(parameters: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the options of a function by name; None if one is unknown or computed from the input."""
    if len(args) > len(parameters):
        return None
    options = {**dict(zip(parameters, args, strict=False)), **kwargs}
    options = {name: value for name, value in options.items() if name not in ("inplace", "_stacklevel")}
    for name in ("return_indices", "dtype"):
        if not options.get(name, False):
            options.pop(name, None)
    if not set(options) <= set(parameters):
        return None
    nodes: list[fx.Node] = []
    fx.node.map_arg(tuple(options.values()), nodes.append)
    if any(node.op != "get_attr" for node in nodes):
        return None
    return {name: value.meta["value"] if isinstance(value, fx.Node) else value for name, value in options.items()}


def _weighted_module(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return a linear or convolutional layer and its input, if its weights do not depend on the network's input."""
    options = _options(_WEIGHTED[name], args[1:], kwargs) if name in _WEIGHTED and _is_computed(args[0]) else None
    if options is None:
        return None
    weight, bias = options.pop("weight").detach(), options.pop("bias", None)
    layer: Any
    if name in _CONVOLUTIONS:
        channels = weight.shape[1] * options.get("groups", 1)
        layer = _CONVOLUTIONS[name](channels, len(weight), weight.shape[2:], device="meta", **options)
    elif weight.dim() == 2:
        weight = weight if name == "linear" else weight.t()
        layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    else:
        return None
    layer.weight = nn.Parameter(weight, requires_grad=False)
    layer.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
    return layer, args[0]
