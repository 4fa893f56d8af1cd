"""Multi-layer perceptrons: for flattened images and for tables."""

from __future__ import annotations

from math import prod

from torch import nn

from perdure.nets.layers import Network
from perdure.nets.registry import network


def perceptron(shape: tuple[int, ...], outputs: int, hidden: int, layers: int) -> Network:
    """Flatten, then ``layers`` hidden layers of ``hidden`` rectified units each, then the head."""
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
    width_is="units of each of the two hidden layers",
)
def mlp400(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """Two hidden layers of 400, the network of Hsu et al. for Split and permuted MNIST."""
    return perceptron(shape, outputs, width, layers=2)


@network(
    "mlp5",
    paper="Evaluation of attribution explanations without ground truth, MLP-5",
    inputs="any",
    width=100,
    width_is="units of each of the four hidden layers",
)
def mlp5(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """Five linear layers. The paper names the depth alone; 100 units a layer are our choice."""
    return perceptron(shape, outputs, width, layers=4)


@network(
    "mlp-table",
    paper="ours, for table rows",
    inputs="any",
    width=64,
    width_is="units of each of the two hidden layers",
)
def mlp_table(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """Two hidden layers of 64: enough for tens of columns, cheap to evaluate on all coalitions."""
    return perceptron(shape, outputs, width, layers=2)
