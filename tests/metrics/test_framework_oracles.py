"""The same matrices give the same numbers as other frameworks' published code, each metric under its own name.

The golden numbers were computed once by running the functions at these commits on `COUNTS` (CapyMOA in double precision; the
lines of the training scripts of PyCIL, LAMDA-PILOT and FACIL).
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from perdure import metrics
from perdure.metrics import compute_metric_variants, compute_metrics
from perdure.metrics.framework_metrics import FRAMEWORK_METRICS, framework_metric
from perdure.record import Evaluations, Measurements

COMMITS = {
    "avalanche": "ContinualAI/avalanche eb075be393e1f458b2c352514ff6c17b5a2c0f4e",
    "mammoth": "aimagelab/mammoth e75a491c69fd729edeb01431afb753d9157d9a81",
    "continuum": "Continvvm/continuum 43ba0090dec7e5d6976c57df05cb5ef5225e88f2",
    "CapyMOA": "adaptive-machine-learning/CapyMOA 095caba132be043ec4fddf5e01ddaab6f96fb336",
    "ocl_survey": "AlbinSou/ocl_survey 5fcaa390b5c18b516b6200252c2cf047e5c3a374",
    "PyCIL": "G-U-N/PyCIL 87cc4110d60765dc3f64af7ef7a693efed8418ff",
    "LAMDA-PILOT": "sun-hailong/LAMDA-PILOT 264745534fc2233f5a50b020e50a3472c47eb756",
    "FACIL": "mmasana/FACIL e09d2c83320a1aa945a6157d4875437515824dc9",
}
# Correct answers of 40 on each of four tasks, three evaluations while each task is trained.
COUNTS = np.array(
    [
        *([39, 12, 17, 16], [9, 2, 8, 7], [4, 15, 11, 16]),
        *([33, 17, 9, 11], [40, 24, 30, 10], [2, 2, 33, 9]),
        *([29, 2, 39, 37], [38, 17, 5, 32], [19, 5, 5, 35]),
        *([36, 26, 20, 8], [20, 5, 36, 35], [15, 34, 18, 35]),
    ]
)
ANYTIME = COUNTS / 40
R = ANYTIME[2::3]
TRAINED = tuple(np.repeat(np.arange(4), 3).tolist())
GOLDEN = {
    ("avalanche", "StreamForgetting"): -0.4666666666666666,
    ("avalanche", "StreamBWT"): 0.4666666666666666,
    ("mammoth", "forgetting"): 0.033333333333333326,
    ("mammoth", "backward_transfer"): 0.4666666666666666,
    ("continuum", "forgetting"): -0.31666666666666665,
    ("continuum", "backward_transfer"): 0.3,
    ("continuum", "forward_transfer"): 0.6916666666666668,
    ("continuum", "positive_backward_transfer"): 0.3,
    ("continuum", "remembering"): 1.0,
    ("continuum", "accuracy_A"): 0.34750000000000003,
    ("CapyMOA", "accuracy_seen_avg"): 0.2572916666666667,
    ("CapyMOA", "accuracy_all_avg"): 0.40312499999999996,
    ("CapyMOA", "accuracy_final"): 0.6375,
    ("CapyMOA", "backward_transfer"): 0.3,
    ("CapyMOA", "forward_transfer"): 0.49583333333333335,
    ("CapyMOA", "anytime_accuracy_seen_avg"): 0.49166666666666664,
    ("CapyMOA", "anytime_accuracy_all_avg"): 0.4828125000000001,
    ("ocl_survey", "compute_AAA"): 0.4916666666666667,
    ("ocl_survey", "compute_min_acc"): 0.18333333333333335,  # mean of 0.05, 0.05 and 0.45
    ("ocl_survey", "compute_wcacc"): 0.35625,
    ("PyCIL", "Forgetting"): 0.033333333333333326,
    ("LAMDA-PILOT", "Forgetting"): 0.033333333333333326,
    ("FACIL", "forg"): -0.31666666666666665,
}
WITHIN_TASKS = {"anytime_accuracy_seen_avg", "anytime_accuracy_all_avg", *FRAMEWORK_METRICS["ocl_survey"]}


def values(*, within_tasks: bool) -> dict[str, float]:
    evaluations = Evaluations(ANYTIME, TRAINED) if within_tasks else None
    run = Measurements("r", "r", R, (0, 1, 2, 3), evaluations=evaluations)
    return {**compute_metrics(run), **compute_metric_variants(run)}


@pytest.mark.parametrize(("framework", "name"), GOLDEN, ids=lambda part: part)
def test_the_golden_numbers_of_other_frameworks(framework, name):
    ours = values(within_tasks=name in WITHIN_TASKS)[framework_metric(framework, name)]
    assert ours == pytest.approx(GOLDEN[framework, name], abs=1e-12)


def test_every_named_metric_has_a_golden_number_and_a_commit():
    assert {(framework, name) for framework, names in FRAMEWORK_METRICS.items() for name in names} == set(GOLDEN)
    assert FRAMEWORK_METRICS.keys() == COMMITS.keys()


def test_the_frameworks_disagree_about_forgetting_on_this_matrix():
    """Otherwise the golden numbers would not tell the variants apart."""
    names = ("forgetting", "chaudhry_forgetting", "avalanche_forgetting", "mammoth_forgetting")
    assert len({round(values(within_tasks=False)[name], 12) for name in names}) == 4


MATRICES = hnp.arrays(float, st.integers(2, 6).map(lambda n: (n, n)), elements=st.floats(0, 1))


@given(MATRICES)
def test_bwt_and_fwt_of_continuum_and_capymoa_as_they_write_them(matrix):
    """Formulas of `backward_transfer` and `forward_transfer` in continuum, `_backwards_transfer` in CapyMOA."""
    tasks = len(matrix)
    pairs = [(i, j) for i in range(tasks) for j in range(i)]
    bwt = sum(matrix[i, j] - matrix[j, j] for i, j in pairs) / (tasks * (tasks - 1) / 2)
    assert metrics.backward_transfer(matrix) == pytest.approx(bwt, abs=1e-12)
    fwt = sum(matrix[j - 1, j] for j in range(1, tasks)) / (tasks - 1)
    assert metrics.forward_transfer(matrix, "continuum") == pytest.approx(fwt, abs=1e-12)


@given(st.integers(2, 5), st.integers(1, 4), st.data())
def test_worst_case_accuracy_as_ocl_survey_computes_it(tasks, per_task, data):
    """Running minimum of each task over the evaluations in which another task is trained; the current task is left out."""
    table = data.draw(hnp.arrays(float, (tasks * per_task, tasks), elements=st.floats(0, 1)))
    trained = [step // per_task for step in range(len(table))]
    lowest = [min(table[step, task] for step in range(len(table)) if trained[step] > task) for task in range(tasks - 1)]
    expected = table[-1, -1] / tasks + (1 - 1 / tasks) * np.mean(lowest)
    assert metrics.min_accuracy(table, trained) == pytest.approx(np.mean(lowest), abs=1e-12)
    assert metrics.worst_case_accuracy(table, trained) == pytest.approx(expected, abs=1e-12)
    seen = [np.mean(row[: task + 1]) for row, task in zip(table, trained, strict=True)]
    assert metrics.average_anytime_accuracy(table, trained) == pytest.approx(np.mean(seen), abs=1e-12)
    assert metrics.anytime_accuracy_all(table, trained) == pytest.approx(table.mean(), abs=1e-12)


def test_accuracies_on_all_tasks_need_future_tasks():
    missing = metrics.anytime_accuracy_all([[0.9, math.nan], [0.5, 0.8]])
    assert metrics.reason(missing) == "1 accuracies on tasks not trained yet were not measured"
