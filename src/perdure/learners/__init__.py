"""Continual learners: the training loop, and one file for each method in ``methods/``.

The methods are imported on first use. Other packages can add learners through the entry-point group
``perdure.learners``.

Examples
--------
>>> from perdure import learners, tasks
>>> benchmark = tasks.load("split-digits", tasks=2, per_class=20)
>>> training = learners.Training(epochs=2)
>>> run = learners.Run(benchmark, learners.get("naive"), training=training)
>>> record = learners.execute(run, "runs/naive")
>>> record.table.shape
(2, 2)
"""

from perdure.learners.learner import LEARNERS, Context, Learner
from perdure.learners.loop import DivergedError, execute
from perdure.learners.progress import Position, Progress
from perdure.learners.protocols import Protocol, ResolvedSettings, protocol_for, protocol_settings
from perdure.learners.run import Run
from perdure.learners.training import Training
from perdure.learners.tuning import tune

__all__ = [
    "Context",
    "DivergedError",
    "Learner",
    "Position",
    "Progress",
    "Protocol",
    "ResolvedSettings",
    "Run",
    "Training",
    "execute",
    "get",
    "names",
    "protocol_for",
    "protocol_settings",
    "summaries",
    "tune",
]


def names() -> list[str]:
    """Return the names of all learners, sorted.

    Examples
    --------
    >>> from perdure import learners
    >>> {"naive", "ewc", "rehearsal", "cumulative"} <= set(learners.names())
    True
    """
    return LEARNERS.names()


def summaries() -> dict[str, str]:
    """Return a one-line description of each learner, by name."""
    return LEARNERS.summaries()


def get(name: str) -> type[Learner]:
    """Return the learner class with this name; an unknown name raises `InputError`.

    Examples
    --------
    >>> from perdure import learners
    >>> learners.get("ewc").Settings()
    EWC.Settings(strength=100.0, fisher_samples=500)
    """
    return LEARNERS.get(name)
