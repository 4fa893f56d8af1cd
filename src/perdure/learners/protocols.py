"""Default networks and training settings of each benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from perdure.learners.learner import Learner
from perdure.learners.training import Training
from perdure.tasks import Benchmark


@dataclass(frozen=True)
class Protocol:
    """The default network and training settings of a benchmark."""

    network: str
    training: Training = field(default_factory=Training)


_HSU = Training(epochs=4, batch_size=128, lr=0.001, optimizer="adam")  # Hsu et al. 2018, Split MNIST

PROTOCOLS = {
    "split-digits": Protocol("small-conv", Training(epochs=20, lr=0.05)),
    "split-mnist": Protocol("mlp400", _HSU),
    "split-fashion-mnist": Protocol("mlp400", _HSU),
    "permuted-mnist": Protocol("mlp400", _HSU),
    "rotated-mnist": Protocol("mlp400", _HSU),
    # The protocol of Table 1 of the SHAPC paper: full width, SGD without momentum, batch size 32.
    "split-cifar10": Protocol("resnet18", Training(epochs=50, lr=0.1)),
    "split-cifar100": Protocol("resnet18", Training(epochs=50, lr=0.03, milestones=(35, 45))),
    "split-cifar100-5x20": Protocol("resnet18", Training(epochs=50, lr=0.03, milestones=(35, 45))),
    "split-tiny-imagenet": Protocol("resnet18", Training(epochs=100, lr=0.03)),
    "voc2012": Protocol("resnet18", Training(epochs=50, lr=0.03)),
    "tv-news": Protocol("mlp5", Training(epochs=20, lr=0.03)),
}


def protocol_for(benchmark: Benchmark) -> Protocol:
    """Return the protocol of a benchmark; for a user's data, a small network that fits the input shape.

    Examples
    --------
    >>> from perdure import learners, tasks
    >>> protocol = learners.protocol_for(tasks.load("split-digits"))
    >>> protocol.network, protocol.training.epochs
    ('small-conv', 20)
    """
    if benchmark.name in PROTOCOLS:
        return PROTOCOLS[benchmark.name]
    return Protocol("small-conv" if len(benchmark.input_shape) == 3 else "mlp400")


@dataclass(frozen=True)
class ResolvedSettings:
    """The training settings and the method's settings that a learner is trained with."""

    training: Training
    settings: dict[str, Any]


def protocol_settings(
    benchmark: Benchmark, learner: type[Learner], training: Mapping[str, Any], settings: Mapping[str, Any]
) -> ResolvedSettings:
    """Return a learner's settings on a benchmark: the user's values, else published ones, else those of the protocol."""
    published = learner.published.get(benchmark.name, {})
    shared = {field.name for field in fields(Training)}
    return ResolvedSettings(
        training=replace(
            protocol_for(benchmark).training,
            **{**{name: value for name, value in published.items() if name in shared}, **training},
        ),
        settings={**{name: value for name, value in published.items() if name not in shared}, **settings},
    )
