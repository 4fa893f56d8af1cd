"""How each benchmark is trained unless the user says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.learners.training import Training
from perdure.tasks import Benchmark


@dataclass(frozen=True)
class Protocol:
    """A network and the training that goes with it."""

    network: str
    training: Training = field(default_factory=Training)


PROTOCOLS = {
    "split-digits": Protocol("small-conv", Training(epochs=20, lr=0.05)),
}


def protocol_for(benchmark: Benchmark) -> Protocol:
    """Return the protocol of a benchmark; data of the user's own get a small network that fits their shape."""
    if benchmark.name in PROTOCOLS:
        return PROTOCOLS[benchmark.name]
    return Protocol("small-conv" if len(benchmark.input_shape) == 3 else "mlp400")
