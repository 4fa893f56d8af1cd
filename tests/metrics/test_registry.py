"""Run metrics are registered once, appear in audits, and say why they are missing."""

import inspect
import math
import re
import textwrap
from dataclasses import dataclass, field

import numpy as np
import pytest

from perdure import metrics
from perdure.audits import MEASURES, audit_runs
from perdure.base.errors import InputError
from perdure.metrics import METRICS, Missing, compute_metrics, reason, registry
from perdure.record import Measurements

R = np.array([[0.9, 0.2, 0.1], [0.6, 0.8, 0.3], [0.5, 0.7, 1.0]])

BUILT_IN = [
    "average_accuracy",
    "forgetting",
    "min_accuracy",
    "worst_case_accuracy",
    "windowed_forgetting",
    "windowed_plasticity",
    "backward_transfer",
    "A",
    "REM",
    "BWT+",
    "FWT",
    "MS",
    "SSS",
    "CE",
]


@dataclass(frozen=True)
class Costs:
    """Costs of three steps."""

    parameters: np.ndarray
    kept: np.ndarray
    memory_bits: np.ndarray
    operations: np.ndarray
    passes: np.ndarray


COSTS = Costs(np.full(3, 10.0), np.zeros(3), np.array([0.0, 50.0, 100.0]), np.full(3, 99.0), np.full(3, 10.0))


@dataclass(frozen=True)
class Evaluations:
    """Accuracies within steps."""

    values: np.ndarray
    trained: tuple[int, ...]


@dataclass(frozen=True)
class Numbers:
    """The numbers of one run."""

    table: np.ndarray = field(default_factory=R.copy)
    curriculum: tuple[int, ...] = (0, 1, 2)
    initial: np.ndarray | None = None
    evaluations: Evaluations | None = None
    cost: Costs | None = None
    lifetime_bits: float | None = None
    is_reference: bool = False


@pytest.fixture
def clean_registry(monkeypatch):
    """Registrations of a test do not outlive it."""
    monkeypatch.setattr(METRICS, "_entries", METRICS.entries())
    monkeypatch.setattr(METRICS, "_summaries", METRICS.summaries())


def test_built_in_metrics_are_listed_in_the_order_of_tables():
    assert list(METRICS.entries())[: len(BUILT_IN)] == BUILT_IN


def test_values_are_those_of_the_functions():
    values = compute_metrics(Numbers(cost=COSTS, lifetime_bits=200))
    assert values == {
        "average_accuracy": metrics.average_accuracy(R),
        "forgetting": metrics.average_forgetting(R),
        "min_accuracy": metrics.min_accuracy(R),
        "worst_case_accuracy": metrics.worst_case_accuracy(R),
        "backward_transfer": metrics.backward_transfer(R),
        "A": metrics.accuracy(R),
        "REM": metrics.remembering(R),
        "BWT+": metrics.positive_backward_transfer(R),
        "FWT": metrics.forward_transfer(R),
        "MS": 1.0,
        "SSS": metrics.sample_storage_efficiency(COSTS.memory_bits, 200),
        "CE": metrics.computational_efficiency(COSTS.operations, COSTS.passes),
    }


def test_evaluations_within_steps_replace_the_table_and_add_windowed_metrics():
    dense = Evaluations(np.vstack([R[:1], [[0.0, 0.5, 0.2]], R[1:]]), (0, 1, 1, 2))
    values = compute_metrics(Numbers(evaluations=dense))
    assert list(values) == BUILT_IN
    assert values["min_accuracy"] == pytest.approx((0.0 + 0.7) / 2)
    assert values["windowed_forgetting"] == metrics.windowed_forgetting(dense.values, 10)


def test_a_reference_has_an_average_accuracy_only():
    values = compute_metrics(Numbers(table=R[-1:], curriculum=(0,), is_reference=True, cost=COSTS))
    assert values.pop("average_accuracy") == R[-1].mean()
    assert all("reference" in (reason(value) or "") for value in values.values())
    assert "windowed_forgetting" not in values


def test_missing_costs_have_a_reason():
    assert reason(compute_metrics(Numbers())["MS"]) == "no costs were given"
    values = compute_metrics(Numbers(cost=Costs(*[np.full(3, math.nan)] * 5)))
    assert "lifetime_bits" in (reason(values["SSS"]) or "")
    assert "parameters was not measured" in (reason(values["MS"]) or "")
    assert "operations and passes" in (reason(values["CE"]) or "")


def test_costs_of_another_number_of_steps_are_rejected():
    with pytest.raises(InputError, match="costs: expected one row for each of 3 steps, got 2 rows"):
        compute_metrics(Numbers(cost=Costs(*[np.ones(2)] * 5)))


def test_the_documented_example_is_a_complete_metric(clean_registry):
    example = re.search(r"A complete file::\n\n(.*?)\n\nAnother package", inspect.getdoc(registry) or "", re.DOTALL)
    assert example is not None
    exec(compile(textwrap.dedent(example[1]), "first_task_accuracy.py", "exec"), {})
    assert compute_metrics(Numbers())["first_task_accuracy"] == 0.5
    assert METRICS.get("first_task_accuracy").bounds == (0.0, 1.0)
    one_step = compute_metrics(Numbers(table=R[:1, :1], curriculum=(0,)))
    assert reason(one_step["first_task_accuracy"]) == "first-task accuracy needs at least two steps"


def test_a_registered_metric_appears_in_audits(clean_registry):
    @registry.metric(
        "drop", label="drop", meaning="first diagonal entry minus the last", higher_is_better=False, bounds=(-1, 1)
    )
    def drop(run):
        return float(run.table[0, 0] - run.table[-1, 0])

    runs = [Measurements(run=f"{seed}.csv", learner="ewc", table=R, curriculum=(0, 1, 2)) for seed in range(2)]
    audit = audit_runs(runs)
    assert audit.learners[0].measures["drop"].mean == pytest.approx(0.4)
    assert MEASURES["drop"].label == "drop"
    assert list(MEASURES)[-4:] == ["drop", "shapc_mean", "shapc_var", "shapc_calibrated"]
    assert "drop" in audit.details()


def test_a_name_is_registered_once(clean_registry):
    with pytest.raises(InputError, match="'A' is registered twice"):
        registry.metric("A", label="A", meaning="another A", higher_is_better=True)(lambda run: Missing("never"))
