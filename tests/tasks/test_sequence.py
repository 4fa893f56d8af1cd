"""Division of a data set into tasks."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from perdure import tasks
from perdure.base.errors import InputError

DIGITS = load_digits()


def images_of(benchmark: tasks.Benchmark, side: str) -> list[bytes]:
    return sorted(image.tobytes() for task in benchmark.tasks for image in getattr(task, side).x)


def test_split_digits_holds_every_digit_once_with_its_label() -> None:
    benchmark = tasks.load("split-digits")
    expected = {
        np.rint(image * 255 / 16).astype(np.uint8).tobytes(): label
        for image, label in zip(DIGITS.data, DIGITS.target, strict=True)
    }
    seen = []
    for number, task in enumerate(benchmark.tasks):
        assert task.classes == (2 * number, 2 * number + 1)
        for part in (task.train, task.test):
            assert part.x.dtype == np.uint8
            assert part.x.shape[1:] == benchmark.input_shape == (1, 8, 8)
            assert part.y.dtype == np.int64
            assert set(part.y) == set(task.classes)
            assert [expected[image.tobytes()] for image in part.x] == part.y.tolist()
            seen += [image.tobytes() for image in part.x]
    assert len(seen) == 1797
    assert sorted(seen) == sorted(np.rint(image * 255 / 16).astype(np.uint8).tobytes() for image in DIGITS.data)
    assert benchmark.outputs == 10
    assert benchmark.class_names == tuple("0123456789")
    assert benchmark.curriculum == (0, 1, 2, 3, 4)


def test_a_quarter_of_every_digit_is_test_data_for_every_seed() -> None:
    first, second = tasks.load("split-digits", seed=0), tasks.load("split-digits", seed=7)
    assert images_of(first, "test") == images_of(second, "test")
    for task in first.tasks:
        for label in task.classes:
            total = int((DIGITS.target == label).sum())
            assert int((task.test.y == label).sum()) == round(total / 4)


def test_the_normalization_constants_of_the_digits_are_their_moments() -> None:
    benchmark = tasks.load("split-digits")
    ink = np.concatenate([task.train.x for task in benchmark.tasks]) / 255
    assert benchmark.mean == pytest.approx([ink.mean()], abs=5e-5)
    assert benchmark.std == pytest.approx([ink.std()], abs=5e-5)


def test_lifetime_bits_count_images_and_labels() -> None:
    benchmark = tasks.load("split-digits")
    examples = sum(len(task.train) for task in benchmark.tasks)
    assert benchmark.lifetime_bits == examples * (64 * 8 + 64)


def test_class_order_renumbers_units_and_reorders_names() -> None:
    official, shuffled = tasks.load("split-digits"), tasks.load("split-digits", order_seed=1)
    assert sorted(shuffled.class_names) == sorted(official.class_names)
    assert shuffled.class_names != official.class_names
    assert images_of(official, "train") == images_of(shuffled, "train")
    names = {
        image.tobytes(): official.class_names[label]
        for task in official.tasks
        for image, label in zip(task.test.x, task.test.y, strict=True)
    }
    for task in shuffled.tasks:
        assert {names[image.tobytes()] for image in task.test.x} == set(task.name.split(", "))
        for image, label in zip(task.test.x, task.test.y, strict=True):
            assert names[image.tobytes()] == shuffled.class_names[label]
    assert shuffled.provenance["order"] == [int(name) for name in shuffled.class_names]
    assert tasks.load("split-digits", order_seed=2).class_names != shuffled.class_names


def test_domain_scenario_makes_binary_tasks_of_shared_units() -> None:
    benchmark = tasks.load("split-digits", scenario="domain")
    split = tasks.load("split-digits")
    assert benchmark.outputs == 2
    assert benchmark.class_names == ("0/2/4/6/8", "1/3/5/7/9")
    for task, twin in zip(benchmark.tasks, split.tasks, strict=True):
        assert task.classes == (0, 1)
        assert np.array_equal(task.train.y, twin.train.y % 2)
        assert np.array_equal(task.train.x, twin.train.x)


@settings(max_examples=15, deadline=None)
@given(
    per_class=st.integers(2, 130),
    validation=st.sampled_from([0.0, 0.1, 0.25, 0.5]),
    seed=st.integers(0, 2**31),
    count=st.sampled_from([1, 2, 5, 10]),
)
def test_subset_and_validation_are_disjoint_stratified_and_exact(
    per_class: int, validation: float, seed: int, count: int
) -> None:
    benchmark = tasks.load("split-digits", per_class=per_class, validation=validation, seed=seed, tasks=count)
    aside = max(1, round(validation * per_class)) if validation else 0
    assert len(benchmark.tasks) == count
    for task in benchmark.tasks:
        assert len(task.classes) == 10 // count
        for label in task.classes:
            assert (task.train.y == label).sum() == per_class - aside
        if not aside:
            assert task.validation is None
            continue
        assert task.validation is not None
        assert all((task.validation.y == label).sum() == aside for label in task.classes)
        trained = {image.tobytes() for image in task.train.x}
        assert not trained & {image.tobytes() for image in task.validation.x}
        assert not trained & {image.tobytes() for image in task.test.x}


def test_the_subset_of_a_class_does_not_depend_on_the_class_order() -> None:
    official = tasks.load("split-digits", per_class=20, seed=3, validation=0.2)
    shuffled = tasks.load("split-digits", per_class=20, seed=3, validation=0.2, order_seed=5, tasks=2)
    assert images_of(official, "train") == images_of(shuffled, "train")
    assert images_of(official, "validation") == images_of(shuffled, "validation")
    assert images_of(official, "train") != images_of(
        tasks.load("split-digits", per_class=20, seed=4, validation=0.2), "train"
    )


def test_the_fingerprint_depends_only_on_what_the_learner_sees() -> None:
    load = tasks.load
    plain = load("split-digits").fingerprint()
    assert plain == load("split-digits", seed=9).fingerprint()  # the seed draws nothing here
    others = [
        load("split-digits", order_seed=0).fingerprint(),
        load("split-digits", curriculum=[0, 1, 2, 3, 4, 0]).fingerprint(),
        load("split-digits", scenario="task").fingerprint(),
        load("split-digits", scenario="domain").fingerprint(),
        load("split-digits", per_class=50).fingerprint(),
        load("split-digits", per_class=50, seed=1).fingerprint(),
        load("split-digits", validation=0.1).fingerprint(),
        load("split-digits", tasks=2).fingerprint(),
    ]
    assert len({plain, *others}) == len(others) + 1


def test_fingerprint_and_checksum_are_the_same_on_every_machine() -> None:
    benchmark = tasks.load("split-digits")
    assert benchmark.provenance["data_sha256"] == "6b634a0b44566e5fd4a23f929de9a03a68109bd1019bb3ac0d50256647697441"
    big = benchmark.tasks[0].train
    swapped = tasks.Examples(big.x, big.y.astype(">i8"))
    assert swapped.digest == big.digest
    assert tasks.Examples(big.x[:, :, ::-1], big.y).digest != big.digest


def test_provenance_is_plain_json_and_rebuilds_the_benchmark() -> None:
    benchmark = tasks.load("split-digits", order_seed=4, per_class=9, curriculum=(0, 1, 0), validation=0.3, seed=2)
    provenance = json.loads(json.dumps(dict(benchmark.provenance)))
    again = tasks.load(
        provenance["source"],
        **{
            key: provenance[key]
            for key in ("scenario", "tasks", "seed", "order_seed", "curriculum", "per_class", "validation")
        },
    )
    assert again.fingerprint() == benchmark.fingerprint()


def test_names_and_descriptions_agree_with_the_benchmark() -> None:
    description = tasks.describe("split-digits")
    benchmark = tasks.load("split-digits")
    assert "split-digits" in tasks.names()
    assert (description.classes, description.tasks) == (benchmark.outputs, len(benchmark.tasks))
    assert description.input_shape == benchmark.input_shape
    assert description.scenario == benchmark.scenario
    assert description.download == 0


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"tasks": 3}, ["10 classes", "1, 2, 5, 10"]),
        ({"tasks": 0}, ["at least one"]),
        ({"curriculum": [0, 5]}, ["task 6", "1 to 5"]),
        ({"curriculum": [-1]}, ["task 0", "1 to 5"]),
        ({"curriculum": []}, ["empty"]),
        ({"per_class": 131}, ["class '8'", "only 130", "at most 130"]),
        ({"per_class": 1000}, ["class '8'", "only 130", "at most 130"]),
        ({"per_class": 0}, ["at least one"]),
        ({"validation": 1.0}, ["0 <= share < 1"]),
        ({"validation": -0.1}, ["0 <= share < 1"]),
        ({"validation": 0.9, "per_class": 1}, ["none would be left"]),
        ({"scenario": "clas"}, ["did you mean 'class'"]),
        ({"seed": -1}, ["seed"]),
    ],
)
def test_invalid_options_give_a_message_of_one_line(options: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(InputError) as error:
        tasks.load("split-digits", **options)
    assert "\n" not in str(error.value)
    for part in parts:
        assert part in str(error.value)


def test_an_unknown_name_suggests_the_closest_benchmark() -> None:
    for call in (tasks.load, tasks.describe):
        with pytest.raises(InputError, match=r"did you mean 'split-digits'\?"):
            call("split-digit")
    with pytest.raises(InputError, match="benchmark: unknown name ''"):
        tasks.load("")
