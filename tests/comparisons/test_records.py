"""Comparisons of records of perdure run: checkpoints, tasks, references of other seeds, and references trained on the spot."""

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import perdure
from perdure import InputError, learners, tasks
from perdure.comparisons.versions import Loading, load_version
from perdure.engine import StatusFolder
from perdure.engine.local import LocalEngine
from perdure.record import Record

FAST: dict[str, Any] = {"samples": 8, "examples": 10}
TRAINING = learners.Training(epochs=2, batch_size=32, lr=0.05)


def train(folder, seed, **options):
    benchmark = tasks.load("split-digits", per_class=30, tasks=2, **options)
    run = learners.Run(benchmark, learners.get("rehearsal"), network="mlp5", width=16, training=TRAINING, seed=seed)
    learners.execute(run, folder / f"seed-{seed}")
    return folder / f"seed-{seed}"


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    return [train(folder, seed) for seed in range(5)]


def test_records_are_compared_on_all_tasks(records):
    comparison = perdure.compare(records[0], records[1], **FAST)
    table = [Record.open(path).table[-1] for path in records[:2]]
    counts = Record.open(records[0]).manifest.test_examples
    expected = [float(np.average(row, weights=counts)) for row in table]
    assert [comparison.accuracy.old, comparison.accuracy.new] == pytest.approx(expected)
    assert [group.old for group in comparison.accuracy.by_task] == pytest.approx(table[0].tolist())
    assert comparison.examples == sum(counts)
    assert len(comparison.reasons.examples) == 10
    assert comparison.classes == tuple(map(str, range(10)))


def test_other_seeds_in_a_folder_are_the_references(records):
    comparison = perdure.compare(records[0], records[1], reference=[records[0].parent], **FAST)
    assert comparison.references == tuple(str(path) for path in records[2:])
    assert comparison.verdict in ("unchanged", "changed")
    assert 0 <= comparison.p_value <= 1
    assert len(comparison.reasons.reference_calibrated) == 3


def test_references_are_trained_on_the_spot_and_reused(records, monkeypatch):
    first = perdure.compare(records[0], records[1], reference=3, **FAST)
    assert all("retrained" in name for name in first.references)
    trained = [Record.open(name) for name in first.references]
    assert len({record.manifest.seed for record in trained}) == 3
    assert all(record.manifest.settings == Record.open(records[0]).manifest.settings for record in trained)
    monkeypatch.setattr(learners.Learner, "loss", None)  # training again would fail
    again = perdure.compare(records[0], records[1], reference=3, **FAST)
    assert again.to_json() == first.to_json()
    from perdure.record import find_records

    assert sorted(find_records([records[0].parent])) == sorted(records)  # they are not further runs of a study


def test_checkpoints_of_one_run_are_compared_on_the_tasks_that_both_have_learned(records):
    early = (
        records[0]
        / "checkpoints"
        / next(iter(Record.open(records[0]).manifest.checkpoints.values())).file.split("/")[-1]
    )
    version = load_version(early, Loading(), "OLD")
    assert version.step == 0
    comparison = perdure.compare(early, records[0], **FAST)
    assert len(comparison.tasks) == 1
    assert comparison.accuracy.old == pytest.approx(Record.open(records[0]).table[0, 0])
    assert comparison.accuracy.new == pytest.approx(Record.open(records[0]).table[1, 0])


def test_a_file_that_the_record_does_not_list_is_not_a_checkpoint(records, tmp_path):
    shutil.copytree(records[0], tmp_path / "copy")
    first = next((tmp_path / "copy" / "checkpoints").glob("*.safetensors"))
    other = shutil.copy(first, first.with_name("step-99.safetensors"))
    with pytest.raises(InputError, match="does not list this checkpoint"):
        load_version(other, Loading(), "OLD")


def test_other_tasks_and_other_test_data_are_refused(records, tmp_path):
    five = learners.Run(
        tasks.load("split-digits", per_class=30),
        learners.get("naive"),
        network="mlp5",
        width=16,
        training=replace(TRAINING, epochs=1),
    )
    learners.execute(five, tmp_path / "five")
    with pytest.raises(InputError, match=r"tasks: 5, but 2 in .*one test set"):
        perdure.compare(records[0], tmp_path / "five", **FAST)
    reordered = train(tmp_path / "order", 0, order_seed=3)
    with pytest.raises(InputError, match="its test data differ"):
        perdure.compare(records[0], reordered, **FAST)


def test_a_folder_of_several_records_is_not_a_version(records):
    with pytest.raises(InputError, match=r"5 records .* pass one of them as NEW"):
        perdure.compare(records[0], records[0].parent, **FAST)


def test_a_version_trained_on_more_data_is_compared_on_the_same_tests(records, tmp_path):
    """The fingerprints of the benchmarks differ, because they include the training data; the test data are the same."""
    benchmark = tasks.load("split-digits", per_class=60, tasks=2)
    run = learners.Run(benchmark, learners.get("rehearsal"), network="mlp5", width=16, training=TRAINING)
    learners.execute(run, tmp_path / "more")
    comparison = perdure.compare(records[0], tmp_path / "more", **FAST)
    assert comparison.examples == sum(Record.open(records[0]).manifest.test_examples)


def test_references_are_trained_and_explained_by_worker_processes(records, tmp_path):
    """Records of the same seeds have the same weights, and the comparison is the same."""
    expected = perdure.compare(records[0], records[1], reference=3, **FAST)
    shutil.copytree(records[0], tmp_path / "old", ignore=shutil.ignore_patterns("cache"))
    with LocalEngine(2, StatusFolder.of(tmp_path)) as engine:
        found = perdure.compare(
            tmp_path / "old", records[1], reference=3, **FAST, cache=tmp_path / "cache", engine=engine
        )
    here, there = (folder / "cache/retrained" for folder in (records[0], tmp_path / "old"))
    files = sorted(path.relative_to(here) for path in here.rglob("*.safetensors"))
    assert files
    assert all((here / file).read_bytes() == (there / file).read_bytes() for file in files)
    assert found.tests == expected.tests
    np.testing.assert_array_equal(found.reasons.similarities, expected.reasons.similarities)
