"""Memory aware synapses: importance from the sensitivity of the outputs."""

from dataclasses import dataclass

from torch import Tensor

from perdure.learners.parts.penalty import PenalisedLearner
from perdure.learners.parts.ranges import above, at_least


class MAS(PenalisedLearner, name="mas"):
    """Memory aware synapses (Aljundi et al. 2018, Eq. 3): importance = mean over examples of |d ||f(x)||^2 / d theta|.

    No labels are used. Importances of tasks add up, as in the authors' code; others blend old and new half and half. By single
    examples, where some code takes the gradient of a mini-batch's mean.
    """

    @dataclass(frozen=True)
    class Settings:
        """``strength``: coefficient of the penalty. ``samples``: examples of a task that the importance is averaged over."""

        strength: float = 1.0
        samples: int = 500

        def __post_init__(self) -> None:
            at_least(self, 0, "strength")
            above(self, 0, "samples")

    search = {"strength": (1e-3, 100.0)}

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Add the task's importance and anchor here."""

        def squared_length(logits: Tensor, y: Tensor) -> Tensor:
            outputs = self.own_outputs(logits, y)
            return (outputs[outputs.isfinite()] ** 2).sum()

        new = self.mean_over_samples(task, self.settings.samples, squared_length, power=1)
        self.importance = {name: value + self.importance.get(name, 0) for name, value in new.items()}
        self.anchor = self.parameters_now()
