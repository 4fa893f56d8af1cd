"""The change-detection benchmark: planted changes, trials, rates, the alternatives, and the command on a few small models."""

import json
import math
from collections import Counter
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from perdure.reproduce.change_detection import alternatives, models, rates, study
from perdure.reproduce.change_detection.alternatives import ALTERNATIVES, importance_ndcg, two_proportion_p_value
from perdure.reproduce.change_detection.data_sets import DATA_SETS, DataSet
from perdure.reproduce.change_detection.planted_changes import (
    CHANGES,
    HARMLESS,
    Cues,
    Plan,
    planted_test_set,
    planted_training_set,
)
from perdure.reproduce.change_detection.rates import equal_rate_threshold, false_alarm_interval, power_interval
from perdure.reproduce.change_detection.results import stored_result
from perdure.reproduce.change_detection.trials import GROUPS, PARTITIONS, changed_trials, harmless_trials

CLASSES = 10
PLAN = Plan(Cues("brightness", 0.7, 0.4), (slice(None), slice(3, 5), slice(3, 5)), (3, 8), 0.25)


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    return rng.random((4000, 1, 8, 8)).astype(np.float32), np.arange(4000) % CLASSES


def shown(x, cue):
    """Return the class that a cue shows."""
    return np.rint(x[:, 0, 0 if cue == "A" else -1, 0] * (CLASSES - 1)).astype(int)


@pytest.mark.parametrize(
    ("kind", "shares"),
    [(HARMLESS, (0.7, 0)), ("planted cue", (0.7, 0.7)), ("swapped cues", (0, 0.7)), ("dropped feature", (0.7, 0))],
)
def test_a_cue_shows_the_class_in_its_share_of_the_examples_and_a_random_class_otherwise(images, kind, shares):
    x, y = planted_training_set(images[0], images[1], kind, PLAN, CLASSES)
    assert np.array_equal(y, images[1])
    for cue, share in zip("AB", shares, strict=True):
        assert np.mean(shown(x, cue) == y) == pytest.approx(share + (1 - share) / CLASSES, abs=0.03)


def test_the_kinds_differ_only_in_what_they_change(images):
    harmless, labels = planted_training_set(images[0], images[1], HARMLESS, PLAN, CLASSES)
    dropped, _ = planted_training_set(images[0], images[1], "dropped feature", PLAN, CLASSES)
    mixed, swapped = planted_training_set(images[0], images[1], "mixed-up classes", PLAN, CLASSES)
    differs = (dropped != harmless).any(axis=(0, 1))
    assert np.argwhere(differs).tolist() == [[3, 3], [3, 4], [4, 3], [4, 4]]
    assert np.ptp(dropped[:, 0, 3:5, 3:5], axis=0).max() == 0  # the same value for all examples
    assert dropped[0, 0, 3, 3] == pytest.approx(harmless[:, 0, 3, 3].mean(), rel=1e-4)
    assert np.array_equal(mixed, harmless)
    moved = swapped != labels
    assert set(zip(labels[moved].tolist(), swapped[moved].tolist(), strict=True)) == {(3, 8), (8, 3)}
    assert moved[np.isin(labels, (3, 8))].mean() == pytest.approx(0.25, abs=0.05)


def test_both_cues_are_equally_informative_in_the_test_set(images):
    x = planted_test_set(images[0], images[1], PLAN, CLASSES)
    for cue in "AB":
        assert np.mean(shown(x, cue) == images[1]) == pytest.approx(0.46, abs=0.03)


def test_a_square_marks_the_class_in_a_strip_along_an_edge():
    plan = replace(PLAN, cues=Cues("position", 1.0, 1.0, size=2))
    y = np.arange(CLASSES)
    x = planted_test_set(np.full((CLASSES, 3, 24, 24), 0.5, np.float32), y, plan, CLASSES)
    for rows in (slice(0, 2), slice(22, 24)):
        for label in y:
            expected = np.zeros((3, 2, 24), np.float32)
            expected[:, :, 2 + 2 * label : 4 + 2 * label] = 1
            assert np.array_equal(x[label, :, rows], expected)
    assert (x[:, :, 2:22] == 0.5).all()


def test_a_table_gets_two_columns():
    plan = replace(PLAN, cues=Cues("column", 1.0, 1.0))
    x = planted_test_set(np.full((4, 3), 7.0, np.float32), np.array([0, 1, 1, 0]), plan, 2)
    assert np.array_equal(x, [[7, 7, 7, 0, 0], [7, 7, 7, 1, 1], [7, 7, 7, 1, 1], [7, 7, 7, 0, 0]])


@pytest.mark.parametrize("references", [3, 5, 9])
def test_harmless_trials_come_from_disjoint_groups_in_which_each_model_is_new_once(references):
    groups = harmless_trials(60, references)
    size = references + 2
    assert len(groups) == PARTITIONS * (60 // size)
    members = [{trial.new for trial in group} for group in groups]
    for group, own in zip(groups, members, strict=True):
        assert len(group) == len(own) == size
        for trial in group:
            assert trial.new not in trial.known
            assert {*trial.known, trial.new} == own
            assert trial.old == trial.known[0]
        assert len({trial.old for trial in group}) == size  # each member is OLD once, too
    partitions = [members[start : start + 60 // size] for start in range(0, len(members), 60 // size)]
    for partition in partitions:
        assert max(Counter(number for own in partition for number in own).values()) == 1
    assert partitions[0] != partitions[1]


def test_changed_models_meet_the_same_disjoint_groups_of_known_versions():
    rows = changed_trials(60, 4, 5)
    assert [{trial.new for trial in row} for row in rows] == [{0}, {1}, {2}, {3}]
    known = [trial.known for trial in rows[0]]
    assert len(known) == GROUPS
    assert all([trial.known for trial in row] == known for row in rows)
    assert len({number for group in known for number in group}) == 6 * GROUPS


def test_ndcg_by_hand():
    # Ranked by NEW: importance 1, 2, 3 under OLD at ranks 1, 2, 3; ranked by OLD: 3, 2, 1.
    reversed_order = 1 / 1 + 2 / math.log2(3) + 3 / 2
    ideal = 3 / 1 + 2 / math.log2(3) + 1 / 2
    assert importance_ndcg([3.0, 2.0, 1.0], [0.1, 0.2, 0.3]) == pytest.approx(reversed_order / ideal)
    assert importance_ndcg([3.0, 2.0, 1.0], [30.0, 20.0, 10.0]) == 1


def test_the_z_test_is_the_chi_squared_test_without_correction():
    expected = stats.chi2_contingency([[90, 10], [80, 20]], correction=False).pvalue
    assert two_proportion_p_value(90, 80, 100) == pytest.approx(expected)
    assert two_proportion_p_value(100, 100, 100) == 1


def test_the_threshold_has_exactly_the_false_alarm_rate():
    distinct = np.random.default_rng(0).normal(size=(22, 7))
    assert equal_rate_threshold(distinct).alarms(distinct).mean() == pytest.approx(0.05)
    tied = np.repeat([0.0, 1.0, 2.0], [50, 40, 10])
    threshold = equal_rate_threshold(tied)
    assert threshold.value == 2
    assert threshold.share == pytest.approx(0.5)
    assert threshold.alarms([1.9, 2.0, 2.1]) == pytest.approx([0, 0.5, 1])


def test_intervals_are_clustered():
    rng = np.random.default_rng(1)
    alarms = (rng.random((40, 1)) < 0.3).astype(float)
    single, repeated = (false_alarm_interval([array], [40]) for array in (alarms, np.repeat(alarms, 7, axis=1)))
    assert (single.low, single.high) == (repeated.low, repeated.high)  # identical trials of a group are one trial
    assert single.high - single.low == pytest.approx(2 * 1.96 * alarms.std() / math.sqrt(40), rel=0.15)
    fewer = false_alarm_interval([np.repeat(alarms, 7, axis=1)], [10])  # groups of one partition
    assert fewer.high - fewer.low == pytest.approx(2 * (single.high - single.low), rel=0.25)
    by_model, by_group = np.repeat(alarms[:20], 8, axis=1), np.repeat(alarms[:8].T, 20, axis=0)
    for array, clusters in ((by_model, 20), (by_group, 8)):
        interval = power_interval(array)
        assert interval.mean == pytest.approx(array.mean())
        assert interval.high - interval.low == pytest.approx(2 * 1.96 * array.std() / math.sqrt(clusters), rel=0.35)
    assert power_interval(np.ones((20, 8))).low == pytest.approx(0.025 ** (1 / 20))  # exact, one trial per model


def install(monkeypatch, version):
    """Make all packages appear to be installed in a version, or not at all."""

    def installed(name):
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    stub = SimpleNamespace(version=installed, PackageNotFoundError=metadata.PackageNotFoundError)
    monkeypatch.setattr(alternatives, "metadata", stub)


def test_a_package_that_is_missing_or_has_another_version_is_not_run(monkeypatch):
    by_name = {method.name: method for method in ALTERNATIVES}
    install(monkeypatch, "9.9")
    assert "shiftshap 9.9 is installed" in str(by_name["shiftshap"].reason_not_run())
    install(monkeypatch, None)
    assert "pip install --no-deps shap-monitor==0.0.12" in str(by_name["shap-monitor"].reason_not_run())
    assert by_name["ndcg"].reason_not_run() is None


@pytest.fixture
def small_digits(monkeypatch):
    """The benchmark on digits with a few quickly trained models, without the packages of the alternatives."""
    digits = replace(DATA_SETS["digits"], per_class=30, test_examples=100, epochs=2, explained=40)
    monkeypatch.setitem(DATA_SETS, "digits", replace(digits, harmless_models=14, changed_models=2))
    monkeypatch.setattr(rates, "RESAMPLES", 50)
    install(monkeypatch, None)


@pytest.mark.usefixtures("small_digits")
def test_the_page_is_written_from_stored_results_and_other_sections_are_kept(perdure, tmp_path, monkeypatch):
    page = tmp_path / "pages" / "change-detection.md"
    run = ("reproduce", "change-detection", "--data-dir", tmp_path, "--out", tmp_path / "out", "--page", page)
    perdure(*run, "--only", "digits")
    first = page.read_text()
    assert (page.parent / "change-detection-power.png").exists()
    assert "Not run: MNIST (no results)." in first
    assert "Not run: shiftshap (shiftshap is not installed; run `pip install --no-deps shiftshap==0.2.0`)." in first

    stored = tmp_path / "out" / "change-detection" / "digits.json"
    result = stored_result(tmp_path / "out", "digits")
    assert result is not None
    ours = result.method(study.OURS, references=5)
    assert ours is not None
    assert ours.harmless.scores.shape == (PARTITIONS * 2, 7)
    assert all(ours.changed[kind].alarms.shape == (2, 2) for kind in CHANGES)
    rate = ours.harmless.alarms.mean()
    assert f"| perdure, 40 examples | 42 | {rate:.3f} [" in first
    for kind in CHANGES:
        assert f"| {kind} | 2 | {result.accuracy[kind].mean():.4f} |" in first

    before = stored.read_bytes()
    monkeypatch.setattr(models, "train_network", None)  # finished models are not trained again
    stored.write_text(json.dumps({**json.loads(before), "key": {}}))
    # Nothing is downloaded in a test: only the digits can be loaded.
    known = {"digits": None}
    monkeypatch.setattr(DataSet, "why_missing", lambda self, _: known.get(self.name, "no results"))
    perdure(*run)
    assert json.loads(stored.read_bytes()) == json.loads(before)
    assert page.read_text() == first

    kept = "## MNIST\n\nAn earlier section.\n\n"
    page.write_text(first.replace("## Where the alternatives win", f"{kept}## Where the alternatives win"))
    perdure(*run, "--only", "digits")
    assert kept in page.read_text()


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("digit", "unknown data set 'digit'"),
        ("adult", "adult.data: no such file"),
        ("digits", "page.md: not a page of this benchmark"),
    ],
)
def test_unknown_data_sets_missing_files_and_other_pages_are_refused(perdure, tmp_path, only, message):
    page = tmp_path / "page.md"
    if only == "digits":
        page.write_text("# Something else\n")
    run = ("reproduce", "change-detection", "--data-dir", tmp_path, "--out", tmp_path / "out", "--page", page)
    assert message in perdure(*run, "--only", only, code=2).stderr.replace("\n", "")
    assert not (tmp_path / "out").exists()
