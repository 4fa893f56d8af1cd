"""Just keep training: the lower bound."""

from perdure.learners.learner import Learner


class Naive(Learner, name="naive"):
    """Fine-tuning on one task after the other, with nothing done against forgetting."""
