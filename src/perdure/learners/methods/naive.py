"""Fine-tuning without any protection against forgetting: the lower bound."""

from perdure.learners.learner import Learner


class Naive(Learner, name="naive"):
    """Fine-tuning on each task in turn, without protection against forgetting: the lower bound."""
