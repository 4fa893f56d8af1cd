"""Memory aware synapses: importance from the sensitivity of the outputs."""

from dataclasses import dataclass

from torch import Tensor

from perdure.learners.data import Batch
from perdure.learners.parts.penalty import PenaltyLearner
from perdure.learners.parts.ranges import require_range_above, require_range_at_least


class MAS(PenaltyLearner, name="mas"):
    """Memory aware synapses (Aljundi et al. 2018): importance from output sensitivity.

    The loss is cross-entropy + strength * sum importance (theta - theta_last)^2, with importance = mean over examples
    of |d ||f(x)||^2 / d theta| (Eq. 3). Labels are not used. Importances of tasks are added, as in the authors' code;
    other implementations average old and new. Gradients are computed for single examples; some implementations use
    the gradient of a mini-batch mean. Hsu et al. take the mean of the squared outputs instead of their sum, so their
    importances are smaller by the number of outputs.

    Differences from the paper: the importance uses at most ``samples`` examples of a task and, in the task-incremental
    scenario, only the outputs of the task; with SGD the penalty is capped (`perdure.learners.parts.penalty`).
    """

    @dataclass(frozen=True)
    class Settings:
        """``strength``: coefficient of the penalty. ``samples``: number of examples per task for the importance."""

        strength: float = 1.0
        samples: int = 500

        def __post_init__(self) -> None:
            require_range_at_least(self, 0, "strength")
            require_range_above(self, 0, "samples")

    search_space = {"strength": (1e-3, 100.0)}

    def after_backward(self, batch: Batch) -> None:  # noqa: ARG002
        """Add the gradient of the penalty."""
        self.add_penalty_gradient(self.settings.strength)

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Add the task's importance and anchor the parameters at the solution of this task."""

        def squared_length(logits: Tensor, y: Tensor) -> Tensor:
            outputs = self.mask_other_tasks(logits, y)
            return (outputs[outputs.isfinite()] ** 2).sum()

        new = self.mean_gradient_power(task, self.settings.samples, squared_length, power=1)
        self.importance = {name: value + self.importance.get(name, 0) for name, value in new.items()}
        self.anchor = self.copy_parameters()
