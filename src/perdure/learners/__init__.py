"""The training loop and one file for each method.

>>> from perdure import learners, tasks
>>> run = learners.Run(tasks.load("split-digits"), learners.get("naive"))
>>> record = learners.execute(run, "runs/naive")  # doctest: +SKIP
"""

from importlib import import_module
from pkgutil import iter_modules

from perdure.base.errors import InputError, suggest
from perdure.learners import methods
from perdure.learners.learner import REGISTRY, Context, Learner
from perdure.learners.loop import DivergedError, Run, execute
from perdure.learners.progress import Position, Progress
from perdure.learners.protocols import Choice, Protocol, choose, protocol_for
from perdure.learners.training import Training
from perdure.learners.tuning import tune

__all__ = [
    "Choice",
    "Context",
    "DivergedError",
    "Learner",
    "Position",
    "Progress",
    "Protocol",
    "Run",
    "Training",
    "choose",
    "execute",
    "get",
    "names",
    "protocol_for",
    "tune",
]

# Every file in methods/ is imported, so a new method is one new file.
for _module in iter_modules(methods.__path__, f"{methods.__name__}."):
    import_module(_module.name)


def names() -> list[str]:
    """Return the names of all learners."""
    return sorted(REGISTRY)


def get(name: str) -> type[Learner]:
    """Return a learner by its name."""
    if name not in REGISTRY:
        raise InputError(f"learner {name!r} is unknown; {suggest(name, names())}")
    return REGISTRY[name]
