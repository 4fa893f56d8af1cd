"""Gradient episodic memory: no step may raise the loss on any old task."""

from dataclasses import dataclass

import numpy as np
import quadprog
import torch
from numpy.typing import NDArray
from torch import Tensor

from perdure.learners.data import Batch
from perdure.learners.parts.memory import SharedMemory, Stored, shuffled
from perdure.learners.parts.ranges import above, at_least
from perdure.learners.parts.replay import ReplayLearner

RIDGE = 1e-3


class ProjectingLearner(ReplayLearner):
    """Base of the methods that compare gradients as vectors."""

    def gradient_on(self, stored: Stored) -> Tensor:
        """Return the gradient of the loss on stored examples."""
        self.net.zero_grad()
        self.cross_entropy(self.net(self.view(stored)), stored.y).backward()  # type: ignore[no-untyped-call]
        return self.flat_gradient()

    def flat_gradient(self) -> Tensor:
        """Return the gradient as one vector; a parameter without one counts as 0."""
        return torch.cat(
            [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in self.net.parameters()]
        )

    def set_gradient(self, gradient: Tensor) -> None:
        """Give each parameter its part of a vector."""
        parts = torch.split(gradient, [p.numel() for p in self.net.parameters()])
        for parameter, part in zip(self.net.parameters(), parts, strict=True):
            parameter.grad = part.view_as(parameter).clone()


class GEM(ProjectingLearner, name="gem"):
    """Gradient episodic memory (Lopez-Paz and Ranzato 2017, Eq. 11): project the gradient by a quadratic program.

    Where the gradient g makes an obtuse angle with the gradient g_k of some old task's memory, it is replaced by g +
    G^T v, v the solution of the dual min 1/2 v^T (G G^T + ridge) v + (G g)^T v with v >= margin, solved by Goldfarb
    and Idnani's method (quadprog). A margin above 0 pushes towards the old tasks, as in the authors' code. Each old
    task has buffer / number of tasks examples.
    """

    @dataclass(frozen=True)
    class Settings:
        """``buffer``: stored examples of all tasks together. ``margin``: lowest weight of an old task's gradient."""

        buffer: int = 500
        margin: float = 0.5

        def __post_init__(self) -> None:
            above(self, 0, "buffer")
            at_least(self, 0, "margin")

    search = {"margin": (0.05, 1.0)}
    published = {
        "split-cifar10": {"lr": 0.03, "margin": 0.5},
        "split-cifar100": {"lr": 0.03, "margin": 0.5},
        "split-tiny-imagenet": {"lr": 0.01, "margin": 0.5},
    }

    memory: SharedMemory

    def begin(self) -> None:
        """Begin with an empty memory."""
        self.memory = SharedMemory(self.settings.buffer, self.context.generator)

    def after_backward(self, batch: Batch) -> None:
        """Project the gradient if an old task would suffer."""
        past = [stored for task, stored in self.memory.groups.items() if task != batch.task]
        if not past:
            return
        gradient = self.flat_gradient()
        old = torch.stack([self.gradient_on(stored) for stored in past])
        self.set_gradient(project(gradient, old, self.settings.margin))

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Keep this task's share."""
        examples = shuffled(self.stored_task(task), self.context.generator)
        self.memory.keep(task, examples, shares=len(self.context.benchmark.tasks))


def project(gradient: Tensor, old: Tensor, margin: float) -> Tensor:
    """Return GEM's projection of a gradient, given the old tasks' gradients as rows; unchanged if none is violated."""
    products = old @ gradient
    if bool((products >= 0).all()):
        return gradient
    weights = solve_dual(gram_matrix(old), products.double().cpu().numpy(), margin)
    return gradient + torch.from_numpy(weights).to(gradient) @ old


def gram_matrix(rows: Tensor) -> NDArray[np.float64]:
    """Return the inner products of all pairs of rows, in double precision.

    In single precision the error of nearly parallel gradients with a norm of 100 exceeds the ridge, and the matrix is no longer
    positive definite. The rows are taken in parts so that they need not be held twice.
    """
    gram = sum(part.double() @ part.double().T for part in torch.split(rows, 2**20, dim=1))
    products: NDArray[np.float64] = torch.as_tensor(gram).cpu().numpy()
    return products


def solve_dual(gram: NDArray[np.float64], products: NDArray[np.float64], margin: float) -> NDArray[np.float64]:
    """Return the v >= margin that minimises 1/2 v^T (gram + ridge) v + products^T v."""
    count = len(products)
    matrix = (gram + gram.T) / 2 + RIDGE * np.eye(count)
    solution: NDArray[np.float64] = quadprog.solve_qp(matrix, -products, np.eye(count), np.full(count, margin))[0]
    return solution
