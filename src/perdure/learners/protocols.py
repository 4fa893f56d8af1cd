"""How each benchmark is trained unless the user says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from perdure.learners.learner import Learner
from perdure.learners.training import Training
from perdure.tasks import Benchmark


@dataclass(frozen=True)
class Protocol:
    """A network and the training that goes with it."""

    network: str
    training: Training = field(default_factory=Training)


_HSU = Training(epochs=4, batch_size=128, lr=0.001, optimizer="adam")  # Hsu et al. 2018, Split MNIST

PROTOCOLS = {
    "split-digits": Protocol("small-conv", Training(epochs=20, lr=0.05)),
    "split-mnist": Protocol("mlp400", _HSU),
    "split-fashion-mnist": Protocol("mlp400", _HSU),
    "permuted-mnist": Protocol("mlp400", _HSU),
    "rotated-mnist": Protocol("mlp400", _HSU),
    # The protocol of the SHAPC paper's table: full width, SGD without momentum, batch 32.
    "split-cifar10": Protocol("resnet18", Training(epochs=50, lr=0.1)),
    "split-cifar100": Protocol("resnet18", Training(epochs=50, lr=0.03, milestones=(35, 45))),
    "split-cifar100-5x20": Protocol("resnet18", Training(epochs=50, lr=0.03, milestones=(35, 45))),
    "split-tiny-imagenet": Protocol("resnet18", Training(epochs=100, lr=0.03)),
    "voc2012": Protocol("resnet18", Training(epochs=50, lr=0.03)),
    "tv-news": Protocol("mlp5", Training(epochs=20, lr=0.03)),
}


def protocol_for(benchmark: Benchmark) -> Protocol:
    """Return the protocol of a benchmark; data of the user's own get a small network that fits their shape."""
    if benchmark.name in PROTOCOLS:
        return PROTOCOLS[benchmark.name]
    return Protocol("small-conv" if len(benchmark.input_shape) == 3 else "mlp400")


@dataclass(frozen=True)
class Choice:
    """What a learner is trained with: the shared training and its own settings."""

    training: Training
    settings: dict[str, Any]


def choose(
    benchmark: Benchmark, learner: type[Learner], training: Mapping[str, Any], settings: Mapping[str, Any]
) -> Choice:
    """Return the settings of a learner on a benchmark: what the user gave, else what was published, else the protocol's."""
    published = learner.published.get(benchmark.name, {})
    shared = {entry.name for entry in fields(Training)}
    return Choice(
        training=replace(
            protocol_for(benchmark).training,
            **{**{name: value for name, value in published.items() if name in shared}, **training},
        ),
        settings={**{name: value for name, value in published.items() if name not in shared}, **settings},
    )
