"""Retraining on all data so far: the upper bound."""

from collections.abc import Sequence

from perdure.learners.learner import Learner
from perdure.learners.seeds import derived_seed
from perdure.tasks import Examples


class Cumulative(Learner, name="cumulative"):
    """Train a new network on all data so far at each task: the upper bound.

    The baseline "Cumulative" of Diaz-Rodriguez et al. 2018; each network is trained from scratch, for as many epochs as
    each task of the other learners.
    """

    def before_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Reinitialize the network."""
        fresh = self.context.make_network(derived_seed(self.context.seed, "network", step))
        self.net.load_state_dict(fresh.state_dict())

    def training_examples(self, task: int) -> Sequence[Examples]:
        """Return the data of all tasks so far, each task once."""
        tasks = self.context.benchmark.tasks
        return [tasks[seen].train for seen in sorted({*self.visited, task})]

    @property
    def memory_bits(self) -> int:
        """All training data of earlier tasks."""
        return sum(self.context.benchmark.tasks[seen].train.bits for seen in set(self.visited))
