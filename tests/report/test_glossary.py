"""The glossary covers every number of the reports, and its texts agree with the code."""

import inspect
import math
import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from perdure import learners, metrics
from perdure.audits import MEASURES
from perdure.audits.bias.results import LEVEL as BIAS_LEVEL
from perdure.audits.clamp import PROPERTIES
from perdure.audits.lifelong import LABELS as LIFELONG_LABELS
from perdure.audits.retraining.summaries import DISTANCE
from perdure.audits.shapc.scores import OUTCOMES, SUFFICIENT
from perdure.audits.shapc.values import UNTRAINED
from perdure.base.errors import InputError
from perdure.comparisons.accuracy import Decisions, compare_confidences
from perdure.comparisons.results import LEVEL as COMPARISON_LEVEL
from perdure.comparisons.results import TEST_NAMES
from perdure.explain import method_names
from perdure.explain.distances import DISTANCES
from perdure.exporters.trust_tables import SCORES as RETRAINING_SCORES
from perdure.metrics import METRICS, confidence_scores, intervals, lifelong, prediction_tests, registered_metrics
from perdure.metrics.bias import SHARES, SIDES, attribution_bias
from perdure.metrics.intervals import holm
from perdure.metrics.mege_reco import mege, reco
from perdure.metrics.registry import metric
from perdure.metrics.retraining import PERMUTATIONS
from perdure.metrics.shapc import TOP, shapc, summarise_shapc
from perdure.metrics.unbounded import unbounded_backward_transfer, unbounded_forgetting
from perdure.policies.quantities import QUANTITIES
from perdure.report.chart_data import MATRICES
from perdure.report.glossary import ABBREVIATIONS, GLOSSARY, Term, term
from perdure.report.glossary.terms import OVER_RUNS
from perdure.surrogate.result import TASK_PROPERTIES

TEXTS = ("meaning", "computed", "not_for")
LONGEST = 300
BUILT_IN = [name for name, entry in METRICS.entries().items() if entry.function.__module__.startswith("perdure.")]
REQUIRED = re.findall(
    r"\S+",
    """
    interval interval_runs interval_examples difference p_value p_holm rank verdict verdict_good verdict_weak verdict_bad
    verdict_undecided verdict_not_measured cl_score cl_stability first_places criteria_correlation accuracy_matrix
    shapc shapc_floor shapc_ceiling shapc_independent shapc_ratio retraining_reference shapc_degenerate shapc_budget
    shapc_difference transfer difficulty supported clamp_forecast bias bias_relative bias_corrected bias_floor bias_share
    bias_side bias_sampling_error bias_difference bias_degenerate controls mege_distance reco_p pairs_same pairs_different
    trend weight_noise explanation_distance checkpoint_pairs accuracy_difference negative_flips positive_flips other_flips
    negative_flip_rate reasons_example same_answer feature_importance retraining_interval retraining_p comparison_verdict
    """,
)
R = np.array([[0.9, 0.2, 0.3, 0.1], [0.8, 0.7, 0.4, 0.1], [0.3, 0.8, 0.6, 0.2], [0.5, 0.4, 0.6, 0.8]])


def own_entry(key):
    assert key in GLOSSARY, f"{key} has no entry of its own"
    return GLOSSARY[key]


@pytest.mark.parametrize("key", [*BUILT_IN, *MEASURES, *QUANTITIES, *LIFELONG_LABELS, *PROPERTIES, *REQUIRED])
def test_every_number_has_an_entry_of_its_own(key):
    assert own_entry(key).key == key
    assert term(key) is GLOSSARY[key]


def test_names_of_parts_of_results_lead_to_entries():
    for name in OUTCOMES:
        own_entry(name.replace(" ", "_"))
    for name in MATRICES:
        own_entry(name if name == "shapc" else f"shapc_{name}")
    for name in TEST_NAMES:
        assert own_entry(f"test_{name}").short == TEST_NAMES[name]
    for name, label in RETRAINING_SCORES.items():
        assert own_entry(name).short == label
    for name in TASK_PROPERTIES:
        if name != "gain":  # it is not shown in reports
            own_entry(name)


def test_the_confidence_scores_of_a_comparison_have_entries():
    labels = np.array([0, 1, 1])
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    predicted = probabilities.argmax(axis=1)
    decisions = Decisions(labels, np.zeros(3, int), predicted, predicted, (), probabilities, probabilities)
    for change in compare_confidences(decisions, seed=0):
        assert own_entry(change.name).name == change.label


@pytest.mark.parametrize("key", [*MEASURES, *LIFELONG_LABELS])
def test_the_entry_shows_the_label_of_the_tables(key):
    label = LIFELONG_LABELS[key] if key in LIFELONG_LABELS else MEASURES[key].label
    assert label in {GLOSSARY[key].short, GLOSSARY[key].name}


def abbreviations_in(text):
    """Words with two capital letters in one part, such as MeGe and WC-ACC, and words that end in a plus sign."""
    words = re.findall(r"(?<![\w-])[A-Za-z][\w]*(?:-\w+)*(?:\+{1,2}(?![\w]))?", text)
    return [word for word in words if re.search(r"[A-Z]\w*[A-Z]|\+$", word)]


def undefined_abbreviations(text):
    parts = [[word] if word in ABBREVIATIONS else re.split("-", word) for word in abbreviations_in(text)]
    return [part for word in parts for part in word if abbreviations_in(part) and part not in ABBREVIATIONS]


def test_the_search_for_abbreviations_finds_them():
    text = "MeGe, min-ACC, BWT+ and iCaRL by Lopez-Paz with Kolmogorov-Smirnov; XYZ-corrected; 1 + REM, DER++."
    assert abbreviations_in(text) == ["MeGe", "min-ACC", "BWT+", "iCaRL", "XYZ-corrected", "REM", "DER++"]
    assert undefined_abbreviations(text) == ["XYZ"]


@pytest.mark.parametrize("entry", GLOSSARY.values(), ids=list(GLOSSARY))
def test_texts_are_short_sentences_without_unknown_abbreviations(entry):
    for name in TEXTS:
        text = getattr(entry, name)
        assert text.endswith("."), name
        assert text == " ".join(text.split()), name
        assert len(text) <= LONGEST, (name, len(text))
    for name in (*TEXTS, "name", "short"):
        assert not undefined_abbreviations(getattr(entry, name)), name
    assert entry.not_for.startswith("Do not ")
    assert entry.source
    first_word = entry.name.split()[0]
    assert first_word[0].islower() or first_word[0].isdigit() or first_word in {*ABBREVIATIONS, "Brier"}
    assert not entry.name.endswith(".") or entry.name.endswith("et al.")


def test_texts_name_files_that_exist(pytestconfig):
    pages = {page for entry in GLOSSARY.values() for page in re.findall(r"docs/[\w/.-]+\.md", entry.source)}
    assert pages
    assert not [page for page in pages if not (pytestconfig.rootpath / page).is_file()]


def test_no_two_entries_say_the_same():
    meanings = [entry.meaning for entry in GLOSSARY.values()]
    assert len(set(meanings)) == len(meanings)


def test_keys_are_not_used_twice():
    from perdure.report import glossary

    keys = [entry.key for part in glossary._PARTS for entry in part.TERMS]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("key", [*BUILT_IN, *QUANTITIES])
def test_direction_and_range_are_those_of_the_registry(key):
    entry, quantity = GLOSSARY[key], QUANTITIES[key]
    if key in {"shapc_mean", "shapc_calibrated", "reasons"}:  # more stable is not better
        assert "better" not in entry.meaning
        return
    low, high = quantity.bounds
    direction = "higher is better" if quantity.higher_is_better else "lower is better"
    assert direction in entry.meaning.lower()
    if math.isfinite(low) and math.isfinite(high):
        assert f"From {low:g} to {high:g}" in entry.meaning
    else:
        assert not re.search(r"From -?\d", entry.meaning)


def test_metrics_of_runs_say_that_they_are_averaged_over_runs():
    assert all(GLOSSARY[name].computed.endswith(OVER_RUNS) for name in BUILT_IN)


@pytest.mark.parametrize(
    ("key", "field", "claim", "value", "expected"),
    [
        ("windowed_forgetting", "computed", "within 10 consecutive", registered_metrics.WINDOW, 10),
        ("windowed_plasticity", "computed", "within 10 consecutive", registered_metrics.WINDOW, 10),
        ("CE", "meaning", "by default ten", metrics.CE_EPSILON, 10),
        ("first_places", "computed", "100,000 weightings", metrics.score_first_places, 100_000),
        ("shapc_mean", "computed", "30 % (by default)", TOP, 0.3),
        ("shapc", "computed", "30 % (by default)", TOP, 0.3),
        ("shapc_floor", "computed", "by default twelve", UNTRAINED, 12),
        ("shapc_budget", "computed", "at most 0.01", SUFFICIENT, 0.01),
        ("bias_share", "meaning", "10, 30, 50, 70 or 90 %", SHARES, (0.1, 0.3, 0.5, 0.7, 0.9)),
        ("bias", "computed", "five shares, both sides", (len(SHARES), len(SIDES)), (5, 2)),
        ("bias_difference", "not_for", "0.05 or more", BIAS_LEVEL, 0.05),
        ("reco_p", "computed", "999 times", PERMUTATIONS, 999),
        ("interval_runs", "computed", "two to nine runs", intervals.FEW_RUNS, 10),
        ("difference", "computed", "two to nine", intervals.FEW_RUNS, 10),
        ("expected_calibration_error", "computed", "15 bins", confidence_scores.BINS, 15),
        ("log_loss", "computed", "at least 1e-12", confidence_scores.SMALLEST, 1e-12),
        ("retraining_interval", "computed", "at least three references", prediction_tests.FEWEST_REFERENCES, 3),
        ("retraining_p", "meaning", "below 0.05", COMPARISON_LEVEL, 0.05),
        ("comparison_verdict", "computed", "below 0.05", COMPARISON_LEVEL, 0.05),
        (
            "retraining_p",
            "computed",
            "(0.5, 0.2, 0.2, 0.1)",
            tuple(prediction_tests.SHARES.values()),
            (0.5, 0.2, 0.2, 0.1),
        ),
        ("explanation_distance", "meaning", "shows l2-unit", DISTANCE, "l2-unit"),
    ],
)
def test_numbers_in_texts_are_those_of_the_code(key, field, claim, value, expected):
    assert claim in getattr(GLOSSARY[key], field)
    if callable(value):
        value = inspect.signature(value).parameters["weightings"].default
    assert value == expected


def test_distances_are_listed_completely():
    listed = re.findall(r"[a-z0-9]+(?:-unit)?", GLOSSARY["explanation_distance"].computed)
    assert set(DISTANCES) <= set(listed)


def pairs(condition):
    return [(i, j) for i in range(4) for j in range(4) if condition(i, j)]


def mean(values):
    return sum(values) / len(values)


BWT = mean([R[i, j] - R[j, j] for i, j in pairs(lambda i, j: i > j)])
MIN_ACC = mean([0.3, 0.4, 0.6])


@pytest.mark.parametrize(
    ("key", "value", "by_hand"),
    [
        ("average_accuracy", metrics.average_accuracy(R), mean([0.5, 0.4, 0.6, 0.8])),
        ("forgetting", metrics.average_forgetting(R), mean([0.9 - 0.5, 0.8 - 0.4, 0.6 - 0.6])),
        ("min_accuracy", metrics.min_accuracy(R), MIN_ACC),
        ("worst_case_accuracy", metrics.worst_case_accuracy(R), 0.8 / 4 + (1 - 1 / 4) * MIN_ACC),
        ("windowed_forgetting", metrics.windowed_forgetting(R, 10), mean([0.9 - 0.3, 0.8 - 0.4, 0, 0])),
        ("windowed_plasticity", metrics.windowed_plasticity(R, 10), mean([0.5 - 0.3, 0.8 - 0.2, 0.6 - 0.3, 0.8 - 0.1])),
        ("backward_transfer", metrics.backward_transfer(R), BWT),
        ("A", metrics.accuracy(R), mean([R[i, j] for i, j in pairs(lambda i, j: i >= j)])),
        ("REM", metrics.remembering(R), 1 - abs(BWT)),
        ("BWT+", metrics.positive_backward_transfer(R), 0),
        ("BWT+", metrics.positive_backward_transfer([[0.5, 0.1], [0.7, 0.9]]), 0.7 - 0.5),
        ("REM", metrics.remembering([[0.5, 0.1], [0.7, 0.9]]), 1),
        ("FWT", metrics.forward_transfer(R), mean([R[i, j] for i, j in pairs(lambda i, j: i < j)])),
        ("MS", metrics.model_size_efficiency([10, 20, 40]), mean([1, 1 / 2, 1 / 4])),
        ("SSS", metrics.sample_storage_efficiency([0, 10, 20], 100), 1 - mean([0, 0.1, 0.2])),
        ("CE", metrics.computational_efficiency([99, 199], [5, 10]), mean([5 * 10 / 100, 10 * 10 / 200])),
        ("gem_backward_transfer", metrics.backward_transfer(R, "gem"), mean([0.5 - 0.9, 0.4 - 0.7, 0.6 - 0.6])),
        (
            "gem_forward_transfer",
            metrics.forward_transfer(R, "gem", initial=[0.1, 0.1, 0.2, 0.3]),
            mean([0.2 - 0.1, 0.4 - 0.2, 0.2 - 0.3]),
        ),
        ("continuum_forward_transfer", metrics.forward_transfer(R, "continuum"), mean([0.2, 0.4, 0.2])),
        ("chaudhry_forgetting", metrics.average_forgetting(R, seen_only=True), mean([0.4, 0.4, 0])),
        ("avalanche_forgetting", metrics.average_forgetting(R, variant="avalanche"), mean([0.4, 0.3, 0])),
        ("mammoth_forgetting", metrics.average_forgetting(R, variant="mammoth"), mean([0.4, 0.4, 0])),
        ("intransigence", metrics.intransigence(R, [1, 1, 1, 1]).mean, mean([0.1, 0.3, 0.4, 0.2])),
        (
            "average_incremental_accuracy",
            metrics.average_incremental_accuracy(R),
            mean([0.9, mean([0.8, 0.7]), mean([0.3, 0.8, 0.6]), mean([0.5, 0.4, 0.6, 0.8])]),
        ),
        ("anytime_accuracy_all", metrics.anytime_accuracy_all(R), R.mean()),
        ("learning_accuracy", metrics.learning_accuracy(R), mean([0.9, 0.7, 0.6, 0.8])),
        (
            "loss_forgetting",
            unbounded_forgetting(R, range(4), higher_is_better=False),
            mean([0.5 - 0.3, 0.4 - 0.2, 0.6 - 0.3]),
        ),
        ("loss_backward_transfer", unbounded_backward_transfer(R, range(4), higher_is_better=False), -BWT),
        ("performance_backward_transfer", unbounded_backward_transfer(R, range(4), higher_is_better=True), BWT),
    ],
)
def test_formulas_in_words_give_the_values_of_the_code(key, value, by_hand):
    assert key in GLOSSARY
    assert value == pytest.approx(by_hand)


def test_the_score_is_the_weighted_sum_and_stability_one_minus_the_weighted_deviations():
    first = dict.fromkeys(metrics.CRITERIA, 0.5) | {"A": 0.2}
    second = dict.fromkeys(metrics.CRITERIA, 0.5) | {"A": 0.6}
    assert metrics.cl_score(first) == pytest.approx((0.2 + 6 * 0.5) / 7)
    assert metrics.cl_stability([first, second]) == pytest.approx(1 - 0.2 / 7)
    listed = re.findall(r"[A-Z]+\+?", GLOSSARY["cl_score"].computed.partition("criteria ")[2].partition(";")[0])
    assert set(listed) == set(metrics.CRITERIA)
    shares = metrics.score_first_places({"naive": first, "joint": second}, weightings=100).share
    assert sum(shares.values()) == pytest.approx(1)


def test_unrelated_maps_score_about_a_fifth_and_the_variation_is_relative_to_the_mean():
    rng = np.random.default_rng(0)
    unrelated = shapc(rng.normal(size=(200, 400)), rng.normal(size=(200, 400)))
    assert unrelated.mean() == pytest.approx(0.2, abs=0.03)
    values = np.array([0.2, 0.4, 0.9])
    assert summarise_shapc({(0, 1): values}).var == pytest.approx(values.std() / values.mean())


def test_bias_is_the_difference_of_the_means_of_maps_scaled_to_length_one():
    first, reference = np.array([3.0, 0.0, 4.0]), np.array([0.0, 6.0, 8.0])
    assert attribution_bias([first], [reference], share=0.7) == pytest.approx(abs((0.8 + 0.6) / 2 - (0.8 + 0.0) / 2))


def test_mege_and_reco_follow_their_texts():
    same, different = np.array([0.1, 0.2, 0.6]), np.array([0.3, 0.5, 0.9, 1.0])
    assert mege(same) == pytest.approx(1 / (1 + mean(same)))
    thresholds = [*same, *different]
    rates = [(same <= limit).mean() - (different <= limit).mean() for limit in thresholds]
    assert reco(same, different, "rate") == pytest.approx(max(rates))
    precisions = [
        (same <= limit).sum() / ((same <= limit).sum() + (different <= limit).sum())
        + (different > limit).sum() / ((same > limit).sum() + (different > limit).sum())
        - 1
        for limit in thresholds
        if limit < max(thresholds)
    ]
    assert reco(same, different) == pytest.approx(max(precisions))


def test_lifelong_ranges_follow_from_the_scale_of_1_to_101():
    table = [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    run = lifelong.normalised_run(lifelong.run_from_table(table, [0, 1]))
    assert lifelong.forward_transfer(run, "ratio").mean == pytest.approx(101)
    assert lifelong.backward_transfer(run, "ratio").mean == pytest.approx(1 / 101)
    assert lifelong.performance_maintenance(run).mean == pytest.approx(-100)
    assert "From 1/101 to 101" in GLOSSARY["forward_transfer_ratio"].meaning
    assert "From 1/101 to 101" in GLOSSARY["backward_transfer_ratio"].meaning
    assert "From -100 to 100" in GLOSSARY["perf_maintenance_mrlep"].meaning


def test_confidence_scores_follow_their_texts():
    probabilities, labels = np.array([[0.7, 0.3], [0.2, 0.8]]), np.array([0, 0])
    assert confidence_scores.brier_scores(probabilities, labels) == pytest.approx([0.3**2 + 0.3**2, 0.8**2 + 0.8**2])
    assert confidence_scores.log_losses(probabilities, labels) == pytest.approx([-math.log(0.7), -math.log(0.2)])
    gaps = mean([abs(1 - 0.7), abs(0 - 0.8)])
    assert confidence_scores.expected_calibration_error(probabilities, labels) == pytest.approx(gaps)


def test_p_values_are_corrected_as_described():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([3 * 0.01, 2 * 0.03, 2 * 0.03])
    blank = prediction_tests.PredictionTest(0, 0, 0, 0, 1.0, 4)
    tests = {name: replace(blank, p=p) for name, p in zip(prediction_tests.SHARES, (0.3, 0.01, 0.2, 0.4), strict=True)}
    assert prediction_tests.combine_p_values(tests) == pytest.approx(0.01 / 0.2)


def test_criteria_are_correlated_by_rank():
    criteria = {
        name: dict.fromkeys(metrics.CRITERIA, 0.5) | {"A": a, "CE": ce}
        for name, a, ce in (("first", 0.1, 0.9), ("second", 0.2, 0.3), ("third", 0.9, 0.4))
    }
    result = metrics.score_criteria_correlation(criteria)
    value = result.matrix[result.criteria.index("A"), result.criteria.index("CE")]
    assert value == pytest.approx(stats.spearmanr([0.1, 0.2, 0.9], [0.9, 0.3, 0.4]).statistic)


@pytest.fixture
def plug_in_metric():
    """A metric as another package registers it; it is removed afterwards."""

    def register(function, **changes):
        settings: dict[str, Any] = {
            "label": "first task",
            "meaning": "accuracy on the first task",
            "higher_is_better": True,
        } | changes
        metric("first_task_accuracy", **settings)(function)
        return term("first_task_accuracy")

    yield register
    METRICS._entries.pop("first_task_accuracy", None)
    METRICS._summaries.pop("first_task_accuracy", None)


def test_a_metric_of_another_package_is_described_by_its_registration_and_docstring(plug_in_metric):
    def function(run):
        """Accuracy on the first task of the ``curriculum``
        after the last step.

        A second paragraph.
        """
        return 0.0

    entry = plug_in_metric(function)
    assert isinstance(entry, Term)
    assert "first_task_accuracy" not in GLOSSARY
    assert (entry.key, entry.name, entry.short) == ("first_task_accuracy", "first task", "first task")
    assert entry.meaning == "Accuracy on the first task. From 0 to 1, higher is better."
    assert entry.computed == f"Accuracy on the first task of the curriculum after the last step. {OVER_RUNS}"
    assert function.__module__ in entry.not_for
    assert "not described here" in entry.not_for
    assert all(isinstance(getattr(entry, field.name), str) for field in fields(entry))


@pytest.mark.parametrize(
    ("bounds", "higher", "ending"),
    [
        ((-1, 1), False, "From -1 to 1, lower is better."),
        ((0, math.inf), False, "At least 0, lower is better."),
        ((-math.inf, 0), True, "At most 0, higher is better."),
        ((-math.inf, math.inf), True, "Higher is better; there is no fixed range."),
    ],
)
def test_the_range_of_a_metric_of_another_package_is_stated(plug_in_metric, bounds, higher, ending):
    entry = plug_in_metric(lambda run: 0.0, bounds=bounds, higher_is_better=higher)
    assert entry.meaning == f"Accuracy on the first task. {ending}"
    assert entry.computed == f"Its package does not describe how it is computed. {OVER_RUNS}"


def test_an_unknown_key_is_an_error_that_names_the_closest_one():
    with pytest.raises(InputError, match="retention"):
        term("retentoin")


@pytest.mark.parametrize("name", learners.names())
def test_short_names_of_learners_are_spelled_out(name):
    words = {"cumulative", "joint", "naive", "rehearsal"}
    assert (name in ABBREVIATIONS) != (name in words)


@pytest.mark.parametrize("name", ["lrp", "lime", "deepshap", "gradcam"])
def test_short_names_of_explainers_are_spelled_out(name):
    assert name in method_names()
    assert name in ABBREVIATIONS


@pytest.mark.parametrize(
    "name",
    re.findall(
        r"\S+",
        "A BWT BWT+ FWT REM MS SSS CE CL_score WC-ACC min-ACC WF10 WP10 SHAPC CLAMP MeGe ReCo GEM A-GEM EWC SI LwF MAS "
        "iCaRL DER DER++ X-DER BFP Co2L LRP DeepSHAP LIME Grad-CAM MAP CSV OLD NEW S= S≠",
    ),
)
def test_abbreviations_of_the_page_are_spelled_out(name):
    assert len(ABBREVIATIONS[name]) > len(name)


def test_abbreviations_stand_for_what_the_papers_say():
    assert ABBREVIATIONS["SHAPC"] == "SHAP value consistency"
    assert ABBREVIATIONS["CLAMP"] == "continual learning analysis via a model of performance"
    assert ABBREVIATIONS["MeGe"] == "mean generalizability"
    assert ABBREVIATIONS["ReCo"] == "relative consistency"
    assert ABBREVIATIONS["SSS"] == "samples storage size efficiency"
    for key, entry in GLOSSARY.items():
        if key in ABBREVIATIONS and key != "A":
            assert ABBREVIATIONS[key] == entry.name
