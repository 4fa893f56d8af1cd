"""All tasks at once: a reference, not a sequence."""

from collections.abc import Sequence

from perdure.learners.learner import Learner
from perdure.tasks import Examples


class Joint(Learner, name="joint"):
    """Training on the data of all tasks in a single step; its record has one row, the reference for the others' last."""

    trains_all = True

    def training_examples(self, task: int) -> Sequence[Examples]:  # noqa: ARG002
        """Return the data of every task."""
        return [task.train for task in self.context.benchmark.tasks]
