"""Continual learners: the training loop, and one file for each method in ``methods/``.

>>> from perdure import learners, tasks
>>> run = learners.Run(tasks.load("split-digits"), learners.get("naive"))
>>> record = learners.execute(run, "runs/naive")  # doctest: +SKIP

The methods are imported on first use. Other packages can add learners through the entry-point group
``perdure.learners``.
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
    """Return the names of all learners, sorted."""
    return LEARNERS.names()


def summaries() -> dict[str, str]:
    """Return a one-line description of each learner, by name."""
    return LEARNERS.summaries()


def get(name: str) -> type[Learner]:
    """Return the learner class with this name; an unknown name raises `InputError`."""
    return LEARNERS.get(name)
