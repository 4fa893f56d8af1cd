"""The network checker: finds what would make an attribution wrong before it is computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.explain.adapters.arrays import as_batch, check_finite, device_and_dtype
from perdure.explain.adapters.outputs import checked_shape
from perdure.explain.adapters.preserve import preserved
from perdure.explain.checks.observation import Observation, observe
from perdure.explain.checks.requirements import Problem, Requirement, addition_modules
from perdure.explain.explainer import EXPLAINERS


@dataclass(frozen=True)
class Finding:
    """A property of a network that makes some methods wrong: where, what, and the remedy."""

    layer: str
    problem: str
    remedy: str
    methods: frozenset[str]

    def __str__(self) -> str:
        return str(Problem(self.layer, self.problem, self.remedy))


@dataclass(frozen=True)
class Inspection:
    """What one forward pass shows about a network."""

    model: nn.Module
    observation: Observation
    general: tuple[Problem, ...]
    """Problems for every method: outputs that depend on chance or on the rest of the batch."""

    @property
    def additions(self) -> frozenset[str]:
        """Names of the modules that do nothing but add two branches."""
        return addition_modules(self.observation.operations)

    def problems(self, requirement: Requirement) -> Iterator[Problem]:
        """Yield everything that violates a requirement."""
        yield from self.general
        yield from requirement.problems(self.model, self.observation)

    def require(self, method: str, requirement: Requirement) -> None:
        """Raise `InputError` with the first problem that makes a method wrong."""
        for problem in self.problems(requirement):
            raise InputError(f"method {method!r}: {problem}")


def check_network(model: nn.Module, x: Any) -> tuple[Finding, ...]:
    """Return everything in a network that would make a registered method wrong, with its remedy."""
    with preserved(model), torch.inference_mode(False):
        inspection = inspect_network(model, as_batch(x, "x", *device_and_dtype(model, x)))
        methods: dict[Problem, set[str]] = {problem: set() for problem in inspection.general}
        for name in EXPLAINERS.names():
            for problem in inspection.problems(EXPLAINERS.get(name).requirement({})):
                methods.setdefault(problem, set()).add(name)
    return tuple(Finding(p.layer, p.text, p.remedy, frozenset(names)) for p, names in methods.items())


def inspect_network(model: nn.Module, x: Tensor) -> Inspection:
    """Run one or two examples through the network and record every operation."""
    training = tuple(_training_modules(model))
    if training:
        return Inspection(model, Observation(), training)
    rows = x[:2] if len(x) > 1 else torch.cat([x[:1], torch.zeros_like(x[:1])])
    observation, output = observe(model, rows)
    scores = checked_shape(output, len(rows))
    check_finite(scores[: len(x)].detach(), 0, "the network's output")
    return Inspection(model, observation, (*_randomness(observation), *_coupling(model, rows, scores)))


def _training_modules(model: nn.Module) -> Iterator[Problem]:
    mode_dependent = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
    for name, module in model.named_modules():
        if isinstance(module, mode_dependent) and module.training and getattr(module, "p", 1) > 0:
            text = f"{type(module).__name__} is in training mode, so outputs depend on the batch or on chance"
            yield Problem(name, text, "call model.eval() first")


def _randomness(observation: Observation) -> Iterator[Problem]:
    for layer in dict.fromkeys(observation.random):
        remedy = "call model.eval() first, and pass training=self.training to functional dropout"
        yield Problem(layer, "it draws random numbers, so outputs depend on chance", remedy)


def _coupling(model: nn.Module, rows: Tensor, scores: Tensor) -> Iterator[Problem]:
    """Compare the output of an example in a batch with its output alone."""
    with torch.no_grad():
        alone = model(rows[:1].clone())
    gap = (alone[0] - scores[0].detach()).abs().max()
    if not gap <= 1e-3 * (1 + scores[0].detach().abs().max()):
        text = "the output of an example changes with the other examples in its batch"
        yield Problem("", text, "normalize with fixed statistics (batch norm in evaluation mode)")
