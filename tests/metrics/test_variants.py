"""Other frameworks' variants: by hand, and against the functions that the frameworks print."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from perdure import metrics
from perdure.base.errors import InputError
from perdure.metrics import METRICS, compute_metric_variants, compute_metrics, reason
from perdure.record import Evaluations, Measurements

# Task 1 is better before its training (0.95) than ever after; the last row beats every earlier one on task 2.
R = np.array([[0.9, 0.95, 0.1], [0.6, 0.7, 0.3], [0.5, 0.8, 1.0]])
VARIANTS = [
    "gem_accuracy",
    "gem_backward_transfer",
    "gem_forward_transfer",
    "continuum_forward_transfer",
    "chaudhry_forgetting",
    "avalanche_forgetting",
    "mammoth_forgetting",
    "intransigence",
    "average_anytime_accuracy",
    "anytime_accuracy_all",
    "average_incremental_accuracy",
    "learning_accuracy",
]


def run(table=R, **more) -> Measurements:
    return Measurements("ewc.csv", "ewc", np.asarray(table, float), tuple(range(len(table))), **more)


def test_every_variant_by_hand():
    initial = np.array([0.1, 0.2, 0.3])
    values = compute_metric_variants(run(initial=initial), reference=np.array([0.9, 0.9, 0.9]))
    assert list(values) == VARIANTS
    assert values == pytest.approx(
        {
            "gem_accuracy": (0.5 + 0.8 + 1.0) / 3,
            "gem_backward_transfer": ((0.5 - 0.9) + (0.8 - 0.7)) / 2,
            "gem_forward_transfer": ((0.95 - 0.2) + (0.3 - 0.3)) / 2,
            "continuum_forward_transfer": (0.95 + 0.3) / 2,
            "chaudhry_forgetting": ((0.9 - 0.5) + (0.7 - 0.8)) / 2,
            "avalanche_forgetting": ((0.9 - 0.5) + (0.7 - 0.8)) / 2,
            "mammoth_forgetting": ((0.9 - 0.5) + 0) / 2,
            "intransigence": ((0.9 - 0.9) + (0.9 - 0.7) + (0.9 - 1.0)) / 3,
            "average_anytime_accuracy": (0.9 + 0.65 + 2.3 / 3) / 3,
            "anytime_accuracy_all": (0.9 + 0.95 + 0.1 + 0.6 + 0.7 + 0.3 + 0.5 + 0.8 + 1.0) / 9,
            "average_incremental_accuracy": (0.9 + 0.65 + 2.3 / 3) / 3,
            "learning_accuracy": (0.9 + 0.7 + 1.0) / 3,
        }
    )


def test_the_direction_and_the_range_of_every_variant():
    """The first learner is better by every variant, and the second one attains negative values where these exist."""
    better = [[0.9, 0.3, 0.2], [0.9, 0.9, 0.3], [0.9, 0.9, 0.9]]
    worse = [[0.6, 0.1, 0.1], [0.3, 0.5, 0.1], [0.2, 0.1, 0.5]]
    first, second = (
        compute_metric_variants(run(table=table, initial=np.full(3, 0.2)), reference=np.full(3, 0.8))
        for table in (better, worse)
    )
    for name in VARIANTS:
        entry = METRICS.get(name)
        assert (first[name] > second[name]) == entry.higher_is_better, name
        assert first[name] != second[name], name
        low, high = entry.bounds
        assert all(low <= values[name] <= high for values in (first, second)), name


def test_the_four_definitions_of_forgetting_differ():
    table = [[0.5, 0.9, 0.0, 0.0], [0.7, 0.6, 0.0, 0.0], [0.4, 0.5, 0.8, 0.0], [0.45, 0.65, 0.7, 0.9]]
    by_variant = {
        name: metrics.average_forgetting(table, variant=name) for name in ("shapc", "chaudhry", "avalanche", "mammoth")
    }
    assert by_variant == pytest.approx(
        {
            "shapc": (0.25 + 0.25 + 0.1) / 3,
            "chaudhry": (0.25 - 0.05 + 0.1) / 3,
            "avalanche": (0.05 - 0.05 + 0.1) / 3,
            "mammoth": (0.25 + 0.0 + 0.1) / 3,
        }
    )
    assert metrics.average_forgetting(table, seen_only=True) == by_variant["chaudhry"]


def test_forgetting_with_revisited_tasks():
    table, curriculum = [[0.9, 0.1], [0.4, 0.8], [0.7, 0.5], [0.6, 0.9]], [0, 1, 0, 1]
    assert metrics.average_forgetting(table, curriculum=curriculum, variant="chaudhry") == pytest.approx(0.3)
    # avalanche compares with the most recent training of the task
    assert metrics.average_forgetting(table, curriculum=curriculum, variant="avalanche") == pytest.approx(0.1)


def mammoth_forgetting(results):
    """Forgetting as mammoth computes it from rows of increasing length."""
    tasks = len(results)
    padded = np.array([row + [0.0] * (tasks - len(row)) for row in results])
    return np.mean([padded[:, task].max() - padded[-1, task] for task in range(tasks - 1)])


def facil_forgetting(results):
    """Forgetting after the last task as FACIL prints it: the maximum over earlier rows, 0 where nothing was measured."""
    tasks = len(results)
    padded = np.array([row + [0.0] * (tasks - len(row)) for row in results])
    return np.mean([padded[:-1, task].max() - padded[-1, task] for task in range(tasks - 1)])


@given(hnp.arrays(float, st.integers(2, 6).map(lambda n: (n, n)), elements=st.floats(0, 1)))
def test_the_numbers_of_mammoth_and_facil_and_the_identities_between_variants(matrix):
    rows = [row[: step + 1] for step, row in enumerate(matrix.tolist())]
    assert metrics.average_forgetting(matrix, variant="mammoth") == pytest.approx(mammoth_forgetting(rows), abs=1e-12)
    assert metrics.average_forgetting(matrix, variant="chaudhry") == pytest.approx(facil_forgetting(rows), abs=1e-12)
    assert metrics.average_forgetting(matrix, variant="avalanche") == pytest.approx(
        -metrics.backward_transfer(matrix, "gem"), abs=1e-12
    )
    assert metrics.average_incremental_accuracy(matrix) == pytest.approx(np.mean([np.mean(row) for row in rows]))
    assert metrics.learning_accuracy(matrix) == pytest.approx(np.mean([row[-1] for row in rows]))


def test_anytime_accuracy_uses_evaluations_within_tasks():
    dense = Evaluations(np.array([[0.4, 0.1], [0.9, 0.1], [0.2, 0.6], [0.5, 0.8]]), (0, 0, 1, 1))
    values = compute_metric_variants(run(table=[[0.9, 0.1], [0.5, 0.8]], evaluations=dense))
    assert values["average_anytime_accuracy"] == pytest.approx((0.4 + 0.9 + 0.4 + 0.65) / 4)
    assert values["average_incremental_accuracy"] == pytest.approx((0.9 + 0.65) / 2)


def test_missing_variants_say_why():
    values = compute_metric_variants(run())
    assert "before any training" in (reason(values["gem_forward_transfer"]) or "")
    assert reason(values["intransigence"]) == "no reference accuracies were given"
    joint = compute_metric_variants(run(table=R[-1:], is_reference=True))
    assert joint.pop("gem_accuracy") == pytest.approx(2.3 / 3)
    assert all("reference" in (reason(value) or "") for value in joint.values())
    with pytest.raises(InputError, match="did you mean 'mammoth'"):
        metrics.average_forgetting(R, variant="mamoth")  # type: ignore[arg-type]


def test_variants_are_on_request_and_no_default_metric():
    on_request = [name for name, entry in METRICS.entries().items() if entry.on_request]
    assert [name for name in on_request if "loss" not in name and "performance" not in name] == VARIANTS
    assert not set(compute_metrics(run())) & set(VARIANTS)


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan])
def test_an_invalid_epsilon_is_rejected(epsilon):
    with pytest.raises(InputError, match="epsilon: expected a positive, finite number"):
        metrics.computational_efficiency([99], [10], epsilon=epsilon)
