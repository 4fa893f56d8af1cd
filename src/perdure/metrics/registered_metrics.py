"""Built-in run metrics, in the order of tables and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perdure.base.errors import InputError
from perdure.metrics import accuracy_matrix as matrix
from perdure.metrics.efficiency_and_score import (
    CE_EPSILON,
    computational_efficiency,
    model_size_efficiency,
    sample_storage_efficiency,
)
from perdure.metrics.missing import FloatArray, Missing
from perdure.metrics.registry import METRICS, Metric, RunCosts, RunEvaluations, RunNumbers, metric

WINDOW = 10
"""Number of consecutive evaluations in windowed forgetting and windowed plasticity."""


@metric(
    "average_accuracy",
    label="average accuracy",
    meaning="mean accuracy over all trained tasks after the last step",
    higher_is_better=True,
    defined_for_references=True,
)
def _average_accuracy(run: RunNumbers) -> float:
    if run.is_reference:
        return float(run.table[-1].mean())
    return matrix.average_accuracy(run.table, run.curriculum)


@metric(
    "forgetting",
    label="forgetting",
    meaning="drop from the best earlier accuracy to the final one, averaged over old tasks",
    higher_is_better=False,
    bounds=(-1, 1),
)
def _forgetting(run: RunNumbers) -> float:
    return matrix.average_forgetting(run.table, curriculum=run.curriculum)


@metric(
    "min_accuracy",
    label="min-ACC",
    meaning="lowest accuracy on each old task after its training, averaged over old tasks",
    higher_is_better=True,
)
def _min_accuracy(run: RunNumbers) -> float:
    return matrix.min_accuracy(*most_frequent_evaluations(run))


@metric(
    "worst_case_accuracy",
    label="WC-ACC",
    meaning="worst-case accuracy: accuracy on the last task combined with min-ACC of the old tasks",
    higher_is_better=True,
)
def _worst_case_accuracy(run: RunNumbers) -> float:
    return matrix.worst_case_accuracy(*most_frequent_evaluations(run))


def most_frequent_evaluations(run: RunNumbers) -> tuple[FloatArray, Sequence[int]]:
    """Return accuracies and the trained task of each row: within steps if measured, otherwise after each step."""
    if run.evaluations is None:
        return run.table, run.curriculum
    return run.evaluations.values, run.evaluations.trained


@metric(
    "windowed_forgetting",
    label="WF10",
    meaning="largest drop in a task's accuracy within 10 evaluations, averaged over tasks",
    higher_is_better=False,
    needs="evaluations",
)
def _windowed_forgetting(run: RunNumbers) -> float:
    return matrix.windowed_forgetting(_evaluations(run).values, WINDOW)


@metric(
    "windowed_plasticity",
    label="WP10",
    meaning="largest rise in a task's accuracy within 10 evaluations, averaged over tasks",
    higher_is_better=True,
    needs="evaluations",
)
def _windowed_plasticity(run: RunNumbers) -> float:
    return matrix.windowed_plasticity(_evaluations(run).values, WINDOW)


@metric(
    "backward_transfer",
    label="BWT",
    meaning="change in accuracy on earlier tasks caused by later ones, averaged over all steps (GEM: last step only)",
    higher_is_better=True,
    bounds=(-1, 1),
)
def _backward_transfer(run: RunNumbers) -> float:
    return matrix.backward_transfer(run.table, curriculum=run.curriculum)


@metric("A", label="A", meaning="accuracy on all tasks seen so far, averaged over steps", higher_is_better=True)
def _accuracy(run: RunNumbers) -> float:
    return matrix.accuracy(run.table, run.curriculum)


@metric(
    "REM",
    label="REM",
    meaning="remembering: 1 minus the magnitude of negative backward transfer",
    higher_is_better=True,
)
def _remembering(run: RunNumbers) -> float:
    return matrix.remembering(run.table, run.curriculum)


@metric("BWT+", label="BWT+", meaning="positive backward transfer, 0 if negative", higher_is_better=True)
def _positive_backward_transfer(run: RunNumbers) -> float:
    return matrix.positive_backward_transfer(run.table, run.curriculum)


@metric(
    "FWT",
    label="FWT",
    meaning="forward transfer: accuracy on tasks before they are trained, without a baseline",
    higher_is_better=True,
)
def _forward_transfer(run: RunNumbers) -> float:
    return matrix.forward_transfer(run.table, curriculum=run.curriculum)


@metric(
    "MS",
    label="MS",
    meaning="model size efficiency: 1 if the model does not grow",
    higher_is_better=True,
    needs="costs",
)
def _model_size_efficiency(run: RunNumbers) -> float:
    cost = _costs(run)
    sizes = cost.parameters + cost.kept
    if np.isnan(sizes).any():
        return Missing("the number of parameters was not measured at every step")
    return model_size_efficiency(sizes)


@metric(
    "SSS",
    label="SSS",
    meaning="sample storage efficiency: 1 if no training example is stored",
    higher_is_better=True,
    needs="costs",
)
def _sample_storage_efficiency(run: RunNumbers) -> float:
    memory_bits = _costs(run).memory_bits
    if run.lifetime_bits is None:
        return Missing("the size of all training data (lifetime_bits) was not given")
    if np.isnan(memory_bits).any():
        return Missing("the size of the stored examples was not measured at every step")
    return sample_storage_efficiency(memory_bits, run.lifetime_bits)


@metric(
    "CE",
    label="CE",
    meaning="computational efficiency: 1 for up to epsilon (by default ten) passes over each task",
    higher_is_better=True,
    needs="costs",
    options=("ce_epsilon",),
)
def _computational_efficiency(run: RunNumbers, ce_epsilon: float) -> float:
    cost = _costs(run)
    if np.isnan(cost.operations + cost.passes).any():
        return Missing("operations and passes were not measured at every step")
    return computational_efficiency(cost.operations, cost.passes, ce_epsilon)


def _evaluations(run: RunNumbers) -> RunEvaluations:
    if run.evaluations is None:
        raise ValueError("a metric of evaluations within steps was computed for a run without them")
    return run.evaluations


def _costs(run: RunNumbers) -> RunCosts:
    if run.cost is None:
        raise ValueError("a metric of costs was computed for a run without them")
    return run.cost


def compute_metrics(run: RunNumbers, *, ce_epsilon: float = CE_EPSILON) -> dict[str, float]:
    """Return every registered metric of a run by name; `Missing` with a reason where it cannot be computed.

    Metrics of evaluations within steps are left out for a run without such evaluations, and for a reference. Metrics on
    request are left out, see `compute_metric_variants`. ``ce_epsilon`` is the epsilon of `computational_efficiency`.

    Examples
    --------
    >>> import perdure
    >>> recorder = perdure.Recorder("runs/ewc", tasks=2)
    >>> for accuracy in [0.9, 0.1], [0.6, 0.8]:
    ...     recorder.after_task(accuracy=accuracy)
    >>> run = perdure.Record.open("runs/ewc").measurements
    >>> values = perdure.metrics.compute_metrics(run)
    >>> round(values["average_accuracy"], 2), round(values["forgetting"], 2)
    (0.7, 0.3)
    >>> values["MS"]
    Missing('the number of parameters was not measured at every step')
    """
    return compute_registered(run, on_request=False, settings={"ce_epsilon": ce_epsilon})


def compute_registered(run: RunNumbers, on_request: bool, settings: Mapping[str, object]) -> dict[str, float]:
    """Return the registered metrics that are on request, or those that are not. ``settings`` holds the values of options."""
    measure = run_measure(run)
    has_evaluations = run.evaluations is not None and not run.is_reference and measure == "accuracy"
    left_out = {needs for needs, needed in MEASURE_OF_NEEDS.items() if needed != measure}
    if not has_evaluations:
        left_out.add("evaluations")
    return {
        name: _value(entry, run, {option: settings[option] for option in entry.options})
        for name, entry in METRICS.entries().items()
        if entry.on_request == on_request and entry.needs not in left_out
    }


MEASURE_OF_NEEDS = {"losses": "loss", "performances": "performance"}
"""The measure of the runs for which a metric with this need is defined."""
NOT_ACCURACIES = {
    "loss": "it is defined for accuracies from 0 to 1; these are losses (lower is better, without a range)",
    "performance": "it is defined for accuracies from 0 to 1; these are performances without a range",
}
"""Why metrics of accuracies are missing, by the measure of the run."""


def run_measure(run: RunNumbers) -> str:
    """Return what the values of a run are: accuracy (if the run does not state it), loss or performance."""
    return str(getattr(run, "measure", "accuracy"))


def _value(entry: Metric, run: RunNumbers, options: Mapping[str, object]) -> float:
    if run.is_reference and not entry.defined_for_references:
        return Missing("joint training is a reference, not a sequence of tasks")
    if entry.needs == "costs":
        if run.cost is None:
            return Missing("no costs were given")
        if len(run.cost.parameters) != len(run.table):
            raise InputError(
                f"costs: expected one row for each of {len(run.table)} steps, got {len(run.cost.parameters)} rows"
            )
    elif entry.needs not in MEASURE_OF_NEEDS and run_measure(run) != "accuracy":
        return Missing(NOT_ACCURACIES[run_measure(run)])
    return entry.function(run, **options)


@metric(
    "gem_accuracy",
    label="GEM ACC",
    meaning="mean accuracy over all tasks after the last step, the same as average accuracy (Lopez-Paz and Ranzato 2017)",
    higher_is_better=True,
    defined_for_references=True,
    on_request=True,
)
def _gem_accuracy(run: RunNumbers) -> float:
    if run.is_reference:
        return float(run.table[-1].mean())
    return matrix.average_accuracy(run.table, run.curriculum)


@metric(
    "gem_backward_transfer",
    label="GEM BWT",
    meaning="final accuracy minus accuracy right after training, averaged over all tasks but the last",
    higher_is_better=True,
    bounds=(-1, 1),
    on_request=True,
)
def _gem_backward_transfer(run: RunNumbers) -> float:
    return matrix.backward_transfer(run.table, "gem", run.curriculum)


@metric(
    "gem_forward_transfer",
    label="GEM FWT",
    meaning="accuracy just before a task is trained minus accuracy before any training, averaged over all tasks but the first",
    higher_is_better=True,
    bounds=(-1, 1),
    on_request=True,
)
def _gem_forward_transfer(run: RunNumbers) -> float:
    return matrix.forward_transfer(run.table, "gem", run.initial, run.curriculum)


@metric(
    "continuum_forward_transfer",
    label="continuum FWT",
    meaning="accuracy just before a task is trained, without a baseline, averaged over all tasks but the first",
    higher_is_better=True,
    on_request=True,
)
def _continuum_forward_transfer(run: RunNumbers) -> float:
    return matrix.forward_transfer(run.table, "continuum", curriculum=run.curriculum)


@metric(
    "chaudhry_forgetting",
    label="Chaudhry forgetting",
    meaning="best earlier accuracy since the task's training minus the final one, averaged over all tasks but the last",
    higher_is_better=False,
    bounds=(-1, 1),
    on_request=True,
)
def _chaudhry_forgetting(run: RunNumbers) -> float:
    return matrix.average_forgetting(run.table, curriculum=run.curriculum, variant="chaudhry")


@metric(
    "avalanche_forgetting",
    label="avalanche forgetting",
    meaning="accuracy right after training minus the final one, averaged over all tasks but the last",
    higher_is_better=False,
    bounds=(-1, 1),
    on_request=True,
)
def _avalanche_forgetting(run: RunNumbers) -> float:
    return matrix.average_forgetting(run.table, curriculum=run.curriculum, variant="avalanche")


@metric(
    "mammoth_forgetting",
    label="mammoth forgetting",
    meaning="best accuracy since the task's training, the final one included, minus the final one; never negative",
    higher_is_better=False,
    on_request=True,
)
def _mammoth_forgetting(run: RunNumbers) -> float:
    return matrix.average_forgetting(run.table, curriculum=run.curriculum, variant="mammoth")


@metric(
    "intransigence",
    label="intransigence",
    meaning="accuracy of a network trained jointly on all tasks so far minus accuracy right after training, task average",
    higher_is_better=False,
    bounds=(-1, 1),
    on_request=True,
    options=("reference",),
)
def _intransigence(run: RunNumbers, reference: FloatArray | Missing | None) -> float:
    if reference is None:
        return Missing("no reference accuracies were given")
    if isinstance(reference, Missing):
        return reference
    return matrix.intransigence(run.table, reference, run.curriculum).mean


@metric(
    "average_anytime_accuracy",
    label="anytime accuracy",
    meaning="AAA: average accuracy on the tasks trained so far, averaged over all evaluations, within tasks if measured",
    higher_is_better=True,
    on_request=True,
)
def _average_anytime_accuracy(run: RunNumbers) -> float:
    return matrix.average_anytime_accuracy(*most_frequent_evaluations(run))


@metric(
    "anytime_accuracy_all",
    label="anytime accuracy (all)",
    meaning="accuracy on all tasks, future ones included, averaged over all evaluations, within tasks if measured",
    higher_is_better=True,
    on_request=True,
)
def _anytime_accuracy_all(run: RunNumbers) -> float:
    return matrix.anytime_accuracy_all(*most_frequent_evaluations(run))


@metric(
    "average_incremental_accuracy",
    label="incremental accuracy",
    meaning="AIA: average accuracy on the tasks trained so far, averaged over steps",
    higher_is_better=True,
    on_request=True,
)
def _average_incremental_accuracy(run: RunNumbers) -> float:
    return matrix.average_incremental_accuracy(run.table, run.curriculum)


@metric(
    "learning_accuracy",
    label="learning accuracy",
    meaning="LA: accuracy on each task right after its training, averaged over tasks",
    higher_is_better=True,
    on_request=True,
)
def _learning_accuracy(run: RunNumbers) -> float:
    return matrix.learning_accuracy(run.table, run.curriculum)


def compute_metric_variants(run: RunNumbers, *, reference: FloatArray | Missing | None = None) -> dict[str, float]:
    """Return every registered metric on request of a run, such as other frameworks' variants, by name.

    ``reference``: the accuracy on each task of a network trained jointly on this task and all earlier ones, or why it is
    missing; for `intransigence`.

    Examples
    --------
    >>> import perdure
    >>> recorder = perdure.Recorder("runs/ewc", tasks=2)
    >>> for accuracy in [0.9, 0.1], [0.6, 0.8]:
    ...     recorder.after_task(accuracy=accuracy)
    >>> run = perdure.Record.open("runs/ewc").measurements
    >>> values = perdure.metrics.compute_metric_variants(run, reference=[0.9, 0.9])
    >>> (
    ...     round(values["mammoth_forgetting"], 2),
    ...     round(values["gem_backward_transfer"], 2),
    ... )
    (0.3, -0.3)
    >>> round(values["intransigence"], 2)
    0.05
    """
    return compute_registered(run, on_request=True, settings={"reference": reference})
