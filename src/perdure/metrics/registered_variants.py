"""Other frameworks' variants of the run metrics, in the order of tables. They are shown on request."""

from __future__ import annotations

from perdure.metrics import accuracy_matrix as matrix
from perdure.metrics.missing import FloatArray, Missing
from perdure.metrics.registered_metrics import compute_registered, most_frequent_evaluations
from perdure.metrics.registry import RunNumbers, metric


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
    """
    return compute_registered(run, on_request=True, settings={"reference": reference})
