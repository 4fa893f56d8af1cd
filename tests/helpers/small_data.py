"""Tiny benchmarks, and learners without the training loop, for tests that compute results by hand."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from perdure import learners
from perdure.learners.data import Batch, Preparation
from perdure.learners.learner import make_learner_settings
from perdure.learners.meter import Meter
from perdure.tasks import Benchmark, Examples, Scenario, Task

Net = TypeVar("Net", bound=nn.Module)
CPU = torch.device("cpu")


def table(
    tasks: Sequence[tuple[Any, Any]], classes: Sequence[tuple[int, ...]], scenario: Scenario = "class"
) -> Benchmark:
    """Return a benchmark of feature vectors, which are not normalized, from (x, y) of each task."""
    built = []
    for i, (x, y) in enumerate(tasks):
        examples = Examples(np.asarray(x, np.float32), np.asarray(y, np.int64))
        built.append(Task(str(i + 1), classes[i], train=examples, test=examples))
    features = built[0].train.x.shape[1]
    return Benchmark(
        name="small",
        tasks=tuple(built),
        scenario=scenario,
        outputs=1 + max(output for outputs in classes for output in outputs),
        curriculum=tuple(range(len(built))),
        mean=(0.0,) * features,
        std=(1.0,) * features,
        seed=0,
    )


def make_learner(
    name: str,
    benchmark: Benchmark,
    net: nn.Module,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: torch.device = CPU,
) -> Any:
    """Return a learner after ``begin``, with a learning rate of 0.01."""
    learner_class = learners.get(name)
    context = learners.Context(
        net=net,
        make_network=lambda _: net,
        benchmark=benchmark,
        preparation=Preparation(benchmark, device),
        generator=torch.Generator().manual_seed(seed),
        meter=Meter(),
        device=device,
        seed=seed,
    )
    learner = learner_class(context, make_learner_settings(learner_class, settings or {}))
    learner.begin()
    learner.rate = 0.01
    return learner


def batch_of(benchmark: Benchmark, task: int, count: int | None = None) -> Batch:
    """Return the first ``count`` examples of a task as a training batch."""
    train = benchmark.tasks[task].train
    raw = torch.from_numpy(train.x[:count])
    return Batch(Preparation(benchmark, CPU).normalize(raw), torch.from_numpy(train.y[:count]), raw, task)


def move(net: nn.Module, seed: int, by: float = 0.3) -> None:
    """Change every parameter by a random amount, to simulate training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=by)


def seeded(net: Net, seed: int = 0) -> Net:
    """Return the network with parameters drawn from a seed."""
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    move(net, seed, by=0.5)
    return net


def zero_gradients(net: nn.Module) -> None:
    """Set the gradient of every parameter to zeros."""
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)


def gradients(net: nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of the gradient of every parameter that has one."""
    by_name = {name: parameter.grad for name, parameter in net.named_parameters()}
    return {name: gradient.clone() for name, gradient in by_name.items() if gradient is not None}
