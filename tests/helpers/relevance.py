"""LRP computed layer by layer, as the papers write it, with the relevance that each layer absorbs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
PASSED = (nn.ReLU, nn.Tanh)


class _LeafTracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return next(m.children(), None) is None


class _Recorder(fx.Interpreter):
    """Runs a network and keeps the value of every node."""

    def run_node(self, n: fx.Node) -> Any:
        n.meta["value"] = super().run_node(n)
        return n.meta["value"]


@dataclass(frozen=True)
class Relevance:
    """Relevance of the input, and the relevance that biases and epsilon absorb, one number for each example."""

    values: Tensor
    absorbed: Tensor


def layerwise_relevance(modular: nn.Module, x: Tensor, target: int, epsilon: float) -> Relevance:
    """Return R_i = sum_j a_i w_ij R_j / (z_j + eps sign z_j), from the last layer of a modular network to the first.

    ``epsilon`` applies to layers with weights. A layer absorbs sum_j R_j (b_j + eps sign z_j) / (z_j + eps sign z_j); batch
    norm and other linear operations have epsilon 0, and what they add to a linear function of their inputs is their bias.
    """
    graph = _LeafTracer().trace(modular)
    network = fx.GraphModule(modular, graph)
    output = _Recorder(network).run(x)
    relevance: dict[fx.Node, Tensor] = {}
    absorbed = torch.zeros(len(x), dtype=x.dtype)
    for node in reversed(graph.nodes):
        if node.op == "output":
            seed = torch.zeros_like(output)
            seed[:, target] = output[:, target]
            relevance[node.args[0]] = seed
        elif node.op == "placeholder":
            return Relevance(relevance[node], absorbed)
        elif node in relevance:
            upper = relevance[node].detach()
            module = network.get_submodule(str(node.target)) if node.op == "call_module" else None
            inputs = list(node.all_input_nodes)
            if isinstance(module, PASSED):
                shares = [upper]
            else:
                shares = _shares(network, node, inputs, upper, epsilon if isinstance(module, WEIGHTED) else 0.0)
                absorbed += _absorbed(node, module, upper, epsilon)
            for source, share in zip(inputs, shares, strict=True):
                relevance[source] = relevance.get(source, 0) + share
    raise AssertionError("the network has no input")


def _shares(network: Any, node: fx.Node, inputs: list[fx.Node], upper: Tensor, epsilon: float) -> list[Tensor]:
    """Return a_i sum_j dz_j/da_i R_j / (z_j + eps sign z_j) for each input."""
    points = [source.meta["value"].detach().requires_grad_() for source in inputs]
    values = dict(zip(inputs, points, strict=True))
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda source: values[source])
    function: Any = network.get_submodule(node.target) if node.op == "call_module" else node.target
    with torch.enable_grad():
        z = function(*args, **kwargs)
    gradients = torch.autograd.grad(z, points, _ratio(upper, z.detach(), epsilon))
    return [point.detach() * gradient for point, gradient in zip(points, gradients, strict=True)]


def _ratio(upper: Tensor, z: Tensor, epsilon: float) -> Tensor:
    """Return R / (z + eps sign z), 0 where nothing arrives."""
    return torch.where(upper == 0, 0, upper / (z + torch.where(z < 0, -epsilon, epsilon)))


def _absorbed(node: fx.Node, module: nn.Module | None, upper: Tensor, epsilon: float) -> Tensor:
    """Return the relevance that biases and epsilon absorb in a layer."""
    z = node.meta["value"].detach()
    if isinstance(module, WEIGHTED):
        bias = _per_channel(module.bias, z)
        total = _ratio(upper, z, epsilon) * (bias + torch.where(z < 0, -epsilon, epsilon))
    elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        norm: Any = module
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        total = _ratio(upper, z, 0.0) * _per_channel(norm.bias - norm.running_mean * scale, z)
    else:
        return torch.zeros(len(z), dtype=z.dtype)
    return total.detach().flatten(1).sum(1)


def _per_channel(bias: Any, z: Tensor) -> Tensor:
    if bias is None:
        return torch.zeros_like(z)
    values: Tensor = bias.detach().view(1, -1, *[1] * (z.dim() - 2)).expand_as(z)
    return values
