"""Registry of run metrics: one number for each run, computed from its accuracies, evaluations or costs.

A new metric is one file in this package plus one import line in ``perdure/metrics/__init__.py``. It then appears in
audits, tables, figures and reports. A complete file::

    '''Final accuracy on the first task.'''

    from perdure.metrics.missing import Missing
    from perdure.metrics.registry import RunNumbers, metric


    @metric(
        "first_task_accuracy",
        label="first task",
        meaning="accuracy on the first task after the last step",
        higher_is_better=True,
    )
    def first_task_accuracy(run: RunNumbers) -> float:
        '''Accuracy on the first task of the curriculum after the last step. In [0, 1], higher is better.'''
        if len(run.table) < 2:
            return Missing("first-task accuracy needs at least two steps")
        return float(run.table[-1, run.curriculum[0]])

Another package adds a metric through the entry-point group ``perdure.metrics``, whose entries name the module to import::

    [project.entry-points."perdure.metrics"]
    first_task_accuracy = "my_package.first_task_accuracy"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from perdure.base.registry import Registry
from perdure.metrics.missing import FloatArray

Needs = Literal["accuracy matrix", "evaluations", "costs", "losses", "performances"]


class RunCosts(Protocol):
    """Cost of each step of a run, one number per step; NaN where it was not measured."""

    @property
    def parameters(self) -> FloatArray:
        """Parameters of the network."""

    @property
    def kept(self) -> FloatArray:
        """Numbers stored in addition to the parameters, such as anchors and importances."""

    @property
    def memory_bits(self) -> FloatArray:
        """Bits of stored training examples while the step is learned."""

    @property
    def operations(self) -> FloatArray:
        """All multiply-adds spent on the step."""

    @property
    def passes(self) -> FloatArray:
        """Multiply-adds of one forward and one backward pass over the step's training set."""


class RunEvaluations(Protocol):
    """Accuracies within steps."""

    @property
    def values(self) -> FloatArray:
        """Accuracies (evaluations x tasks) in time order."""

    @property
    def trained(self) -> Sequence[int]:
        """Task trained at the time of each evaluation, 0-based."""


class RunNumbers(Protocol):
    """The numbers of one run that metrics are computed from. `perdure.record.Measurements` has all of them."""

    @property
    def table(self) -> FloatArray:
        """Accuracies in [0, 1] (steps x tasks); NaN where a task was not evaluated before its training."""

    @property
    def curriculum(self) -> Sequence[int]:
        """Task trained at each step, 0-based."""

    @property
    def initial(self) -> FloatArray | None:
        """Accuracies before any training."""

    @property
    def evaluations(self) -> RunEvaluations | None:
        """Accuracies within steps."""

    @property
    def cost(self) -> RunCosts | None:
        """Cost of each step."""

    @property
    def lifetime_bits(self) -> float | None:
        """Bits of the training data of all tasks."""

    @property
    def is_reference(self) -> bool:
        """Whether all tasks were trained jointly in one step: a reference for other runs, not a sequence."""


MetricFunction = Callable[..., float]
"""A function of `RunNumbers`, and of the metric's ``options`` as keyword arguments."""
FunctionT = TypeVar("FunctionT", bound=MetricFunction)


@dataclass(frozen=True)
class Metric:
    """A registered metric: how it is computed and how its value is read."""

    name: str
    """Key in audits and in ``audit.json``."""
    label: str
    """Name in tables and figures."""
    meaning: str
    """Description in one line."""
    higher_is_better: bool
    function: MetricFunction
    bounds: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest possible value; intervals are clipped to it."""
    needs: Needs = "accuracy matrix"
    """Numbers that a run must have. Without ``costs`` the metric is missing; without ``evaluations``, ``losses`` or
    ``performances`` it is left out. A metric of accuracies is missing for a run of losses or performances."""
    defined_for_references: bool = False
    """Whether it is computed for a jointly trained reference, too."""
    on_request: bool = False
    """Whether it is shown only on request (``--variants``), such as another framework's variant of a metric."""
    options: tuple[str, ...] = ()
    """Settings that the function takes as keyword arguments: ``ce_epsilon``, or ``reference`` if it is on request."""


METRICS = Registry[Metric]("metric", group="perdure.metrics")


def metric(
    name: str,
    *,
    label: str,
    meaning: str,
    higher_is_better: bool,
    bounds: tuple[float, float] = (0.0, 1.0),
    needs: Needs = "accuracy matrix",
    defined_for_references: bool = False,
    on_request: bool = False,
    options: tuple[str, ...] = (),
) -> Callable[[FunctionT], FunctionT]:
    """Register a function of a run as a metric and return it unchanged.

    The function returns a float, or ``Missing("why")`` for a run to which the metric does not apply. The parameters are
    the fields of `Metric`.

    Examples
    --------
    >>> from perdure import metrics
    >>> @metrics.metric(
    ...     "worst_task",
    ...     label="worst task",
    ...     meaning="lowest final accuracy",
    ...     higher_is_better=True,
    ... )
    ... def worst_task(run):
    ...     return float(run.table[-1].min())
    >>> metrics.METRICS.get("worst_task").label
    'worst task'
    """

    def register(function: FunctionT) -> FunctionT:
        entry = Metric(
            name,
            label,
            meaning,
            higher_is_better,
            function,
            bounds,
            needs,
            defined_for_references,
            on_request,
            options,
        )
        METRICS.add(name, entry, meaning)
        return function

    return register
