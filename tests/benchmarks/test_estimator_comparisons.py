"""Comparisons of Shapley estimators from stored measurements: errors at equal budgets, and times to equal errors."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from comparison import ERROR, SAME_ERROR, Comparison, NotMeasured
from estimators import (
    FINISHED,
    finished_provenance,
    includes_imports,
    read_rows,
    row_comparisons,
    seconds_to_error,
)
from image_networks import cifar10, digits
from perdure import tasks
from perdure.reproduce.provenance import read_provenance

CACHE = Path(__file__).parents[3] / "data-cache"


def row(estimator, index, budget, error, seconds, **more):
    software = {"regression": "perdure 0.1.0", "shap": "shap 0.51.0"}.get(estimator, "shapiq 1.8.0")
    values = {"error": error, "evaluations": budget, "evaluation_seconds": seconds / 2, "overhead_seconds": seconds / 2}
    key = {"game": "lenet", "index": index, "estimator": estimator, "budget": budget}
    return {**key, **values, "software": software, "date": "2026-11-19", **more}


OURS = [row("regression", 0, budget, 10 / math.sqrt(budget), budget / 1000) for budget in (10_000, 40_000, 160_000)]


@pytest.mark.parametrize("evaluations", [10_000, 20_000, 90_000, 160_000])
def test_the_time_to_an_error_is_exact_where_the_error_is_a_power_of_the_time(evaluations):
    reached = seconds_to_error(OURS[::-1], 10 / math.sqrt(evaluations))
    assert reached.seconds == pytest.approx(evaluations / 1000)
    assert reached.bound == ""


def test_errors_outside_of_the_measured_ones_give_bounds():
    easy, hard = seconds_to_error(OURS, 0.2), seconds_to_error(OURS, 0.02)
    assert (easy.seconds, easy.bound) == (10, "at least")
    assert (hard.seconds, hard.bound) == (160, "at most")


def compared(rows, quantity):
    return [item for item in row_comparisons(rows) if isinstance(item, Comparison) and item.quantity == quantity]


def test_both_ratios_come_from_pairs_of_the_same_example():
    second = [{**each, "index": 1, "error": 2 * each["error"]} for each in OURS]
    # Twice our error at 40,000 evaluations and three times; the third example has no counterpart of ours.
    peers = [row("shap", 0, 40_000, 0.1, 30.0), row("shap", 1, 40_000, 0.3, 30.0), row("shap", 2, 40_000, 9.0, 1.0)]
    rows = [*OURS, *second, *peers]
    (error,) = compared(rows, ERROR)
    assert error.ratio == pytest.approx(np.median([0.1 / 0.05, 0.3 / 0.1]))
    assert (error.ours.value, error.other.value) == (pytest.approx(0.075), pytest.approx(0.2))
    assert error.note == "2 examples"
    (time,) = compared(rows, SAME_ERROR)
    # The first reaches .1 at 10,000 evaluations; the second has less error than .3 there.
    assert (time.ratio, time.bound) == (pytest.approx(3.0), "at least")
    assert time.other.version == "shap 0.51.0"


def test_times_that_include_the_import_of_shapiq_are_not_compared():
    cold, warm = row("OddSHAP", 0, 40_000, 0.06, 4.0), row("OddSHAP", 0, 40_000, 0.06, 4.0, warm=True)
    long = row("OddSHAP", 0, 40_000, 0.06, 80.0)
    assert [includes_imports(each) for each in (cold, warm, long, OURS[0])] == [True, False, False, False]
    assert len(compared([*OURS, cold], ERROR)) == 1
    assert compared([*OURS, cold], SAME_ERROR) == []
    reasons = [item.reason for item in row_comparisons([*OURS, cold]) if isinstance(item, NotMeasured)]
    assert any("includes the import of shapiq" in reason for reason in reasons)
    (time,) = compared([*OURS, warm], SAME_ERROR)
    assert time.ratio == pytest.approx(4.0 / (100 / 0.36 / 10))


def test_failures_and_missing_measurements_are_listed_with_their_budgets():
    failed = {"game": "lenet", "index": 0, "estimator": "OddSHAP", "budget": 160_000, "failed": "MemoryError: 14 GiB"}
    items = [item for item in row_comparisons([*OURS, failed]) if isinstance(item, NotMeasured)]
    listed = {(item.other, item.reason): item.task for item in items}
    assert "160,000 evaluations" in listed["`OddSHAP`", "MemoryError: 14 GiB"]
    assert "10,000, 40,000 evaluations" in listed["`OddSHAP`", "no rows"]


def test_of_two_measurements_of_the_same_settings_the_later_one_counts(tmp_path):
    file = tmp_path / "rows.jsonl"
    rows = [row("OddSHAP", 0, 10_000, 0.2, 9.0), OURS[0], row("OddSHAP", 0, 10_000, 0.2, 7.0, warm=True)]
    file.write_text("".join(json.dumps(each) + "\n" for each in rows))
    assert [each["overhead_seconds"] for each in read_rows(file)] == [3.5, 5.0]


def test_the_stored_measurements_give_comparisons_and_state_their_origin():
    items = list(row_comparisons(read_rows(FINISHED)))
    assert {"captum", "shap", "shapiq"} <= {
        item.other.version.split()[0] for item in items if isinstance(item, Comparison)
    }
    stated = finished_provenance()
    assert read_provenance(str(stated)) == [stated]


def test_an_image_set_has_the_first_images_of_each_class_in_their_order():
    images = digits()
    source = tasks.load("split-digits", scenario="class", tasks=1).tasks[0].train
    assert images.train_labels.tolist() == source.y.tolist()  # fewer than 500 of each class: all
    assert images.train.shape[1:] == (1, 16, 16)
    assert images.train.mean().item() == pytest.approx(0, abs=1e-5)
    assert list(images.rows(8)) == list(range(0, len(images.test) // 8 * 8, len(images.test) // 8))


@pytest.mark.skipif(not CACHE.is_dir(), reason="the official CIFAR-10 is not next to the project")
def test_the_images_are_those_of_the_stored_measurements(shared_data):
    with np.load(shared_data / "cifar10-small.npz") as copy:
        pixels = torch.from_numpy(copy["x_train"]).permute(0, 3, 1, 2).float() / 255
        labels, test_labels = copy["y_train"], copy["y_test"]
    images = cifar10(CACHE)
    assert images.train_labels.tolist() == labels.tolist()
    assert images.test_labels.tolist() == test_labels.tolist()
    expected = (pixels - pixels.mean((0, 2, 3), keepdim=True)) / pixels.std((0, 2, 3), keepdim=True)
    assert torch.equal(images.train, expected)
    assert images.train.stride() == expected.stride()  # the order of sums, and so the trained networks, depend on it
