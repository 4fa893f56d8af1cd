"""Gradient episodic memory: no update may increase the loss on any old task."""

from dataclasses import dataclass

import numpy as np
import quadprog
import torch
from numpy.typing import NDArray
from torch import Tensor

from perdure.learners.data import Batch
from perdure.learners.parts.gradient_vectors import flat_gradient, set_flat_gradient
from perdure.learners.parts.memory import GroupedMemory, shuffle_memory
from perdure.learners.parts.ranges import require_range_above, require_range_at_least
from perdure.learners.parts.replay import ReplayLearner

RIDGE = 1e-3


class GEM(ReplayLearner, name="gem"):
    """Gradient episodic memory (Lopez-Paz and Ranzato 2017): project the gradient by a QP.

    If the gradient g makes an obtuse angle with the gradient g_k on the memory of an old task, it is replaced by g +
    G^T v, where v solves the dual min 1/2 v^T (G G^T + ridge) v + (G g)^T v with v >= margin (Eq. 11), by the method
    of Goldfarb and Idnani (quadprog). A margin above 0 moves the update towards the old tasks, as in the authors'
    code.

    Differences from the authors' code: each old task has buffer / number of tasks random examples, stored when the task
    ends and augmented at each update (theirs are the last examples of the stream, stored during the task); in the
    class-incremental scenario the losses run over all outputs (theirs over the outputs of the task).
    """

    @dataclass(frozen=True)
    class Settings:
        """``buffer``: number of stored examples. ``margin``: lowest weight of an old task's gradient."""

        buffer: int = 500
        margin: float = 0.5

        def __post_init__(self) -> None:
            require_range_above(self, 0, "buffer")
            require_range_at_least(self, 0, "margin")

    search_space = {"margin": (0.05, 1.0)}
    published = {
        "split-cifar10": {"lr": 0.03, "margin": 0.5},
        "split-cifar100": {"lr": 0.03, "margin": 0.5},
        "split-tiny-imagenet": {"lr": 0.01, "margin": 0.5},
    }

    memory: GroupedMemory

    def begin(self) -> None:
        """Start with an empty memory."""
        self.memory = GroupedMemory(self.settings.buffer, self.context.generator)

    def after_backward(self, batch: Batch) -> None:
        """Project the gradient so that it does not increase the loss on any old task."""
        old_tasks = [stored for task, stored in self.memory.groups.items() if task != batch.task]
        if not old_tasks:
            return
        gradient = flat_gradient(self.net)
        old_gradients = torch.stack([self.gradient_on(stored) for stored in old_tasks])
        set_flat_gradient(self.net, gem_projection(gradient, old_gradients, self.settings.margin))

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Store a random share of the task's examples."""
        examples = shuffle_memory(self.task_examples(task), self.context.generator)
        self.memory.store(task, examples, shares=len(self.context.benchmark.tasks))


def gem_projection(gradient: Tensor, old_gradients: Tensor, margin: float) -> Tensor:
    """Return GEM's projection of a gradient, or the gradient if no row of ``old_gradients`` has a negative product with it."""
    products = old_gradients @ gradient
    if bool((products >= 0).all()):
        return gradient
    weights = solve_dual(gem_gram_matrix(old_gradients), products.double().cpu().numpy(), margin)
    return gradient + torch.from_numpy(weights).to(gradient) @ old_gradients


def gem_gram_matrix(rows: Tensor) -> NDArray[np.float64]:
    """Return the inner products of all pairs of rows, in double precision.

    In single precision the rounding error of nearly parallel gradients with a norm of 100 exceeds the ridge, and the
    matrix is no longer positive definite. Columns are processed in blocks, so that no second copy of all rows is
    needed.
    """
    gram = sum(part.double() @ part.double().T for part in torch.split(rows, 2**20, dim=1))
    products: NDArray[np.float64] = torch.as_tensor(gram).cpu().numpy()
    return products


def solve_dual(gram: NDArray[np.float64], products: NDArray[np.float64], margin: float) -> NDArray[np.float64]:
    """Return the v >= margin that minimizes 1/2 v^T (gram + ridge) v + products^T v."""
    count = len(products)
    matrix = (gram + gram.T) / 2 + RIDGE * np.eye(count)
    solution: NDArray[np.float64] = quadprog.solve_qp(matrix, -products, np.eye(count), np.full(count, margin))[0]
    return solution
