"""Multilayer perceptrons for flattened images and for tables."""

from __future__ import annotations

from math import prod

from torch import nn

from perdure.nets.registry import Network, network


def perceptron(shape: tuple[int, ...], outputs: int, hidden: int, layers: int) -> Network:
    """Return a perceptron: flatten, ``layers`` hidden layers of ``hidden`` ReLU units each, linear head."""
    body = nn.Sequential(nn.Flatten())
    size = prod(shape)
    for _ in range(layers):
        body.extend([nn.Linear(size, hidden), nn.ReLU()])
        size = hidden
    return Network(body, nn.Linear(size, outputs))


@network(
    "mlp400",
    paper="Hsu et al. 2018, Re-evaluating continual learning scenarios",
    inputs="any",
    width=400,
    width_meaning="units of each of the two hidden layers",
)
def mlp400(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """MLP with two hidden layers of 400 units (Hsu et al. 2018), for Split and permuted MNIST."""
    return perceptron(shape, outputs, width, layers=2)


@network(
    "mlp5",
    paper="Evaluation of attribution explanations without ground truth, MLP-5",
    inputs="any",
    width=100,
    width_meaning="units of each of the four hidden layers",
)
def mlp5(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """MLP-5 of the attribution-bias paper: five linear layers, 100 units per hidden layer.

    The paper gives only the depth; the width is our choice.
    """
    return perceptron(shape, outputs, width, layers=4)


@network(
    "mlp-table",
    paper="ours, for table rows",
    inputs="any",
    width=64,
    width_meaning="units of each of the two hidden layers",
)
def mlp_table(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """MLP with two hidden layers of 64 units, for tables.

    Large enough for tens of columns, and cheap to evaluate on all coalitions.
    """
    return perceptron(shape, outputs, width, layers=2)
