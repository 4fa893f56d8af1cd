"""Tiny ImageNet, Pascal VOC and TV-news in their official layouts; permuted and rotated MNIST."""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from perdure import tasks
from perdure.base.errors import InputError
from perdure.tasks.benchmarks.tv_news import CHANNELS, FEATURES, tv_news_source
from perdure.tasks.benchmarks.voc import voc_source
from perdure.tasks.files.archives import open_files
from perdure.tasks.sequence import Plan, split_by_class, split_by_group
from perdure.tasks.transforms import Rotation

DATA = Path(__file__).parents[3] / "shared" / "data"
TINY = DATA / "tiny-imagenet-20.zip"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="the folder of shared data is missing")


# Tiny ImageNet


@pytest.fixture(scope="module")
def tiny() -> tasks.Benchmark:
    return tasks.load(str(TINY))


@needs_data
def test_tiny_imagenet_is_read_from_the_zip_with_its_boxes(tiny: tasks.Benchmark) -> None:
    benchmark = tiny
    assert (len(benchmark.tasks), benchmark.outputs, benchmark.input_shape) == (10, 20, (3, 64, 64))
    assert benchmark.class_names[:2] == ("Egyptian cat", "reel")
    boxes = tasks.read_tiny_imagenet_boxes(TINY)
    assert len(boxes) == 20 * 150
    with zipfile.ZipFile(TINY) as archive:
        wnids = archive.read("tiny-imagenet-200/wnids.txt").decode().split()
        lines = [
            line.split("\t") for line in archive.read("tiny-imagenet-200/val/val_annotations.txt").decode().splitlines()
        ]
        for number, task in enumerate(benchmark.tasks):
            assert len(task.train) == 200
            own = [line for line in lines if wnids.index(line[1]) // 2 == number]
            assert task.test.y.tolist() == [wnids.index(line[1]) for line in own]
            assert task.test.boxes is not None
            corners = [[int(line[2]), int(line[3]), int(line[4]) + 1, int(line[5]) + 1] for line in own]
            assert task.test.boxes.tolist() == corners
            content = archive.read(f"tiny-imagenet-200/val/images/{own[7][0]}")
            pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).transpose(2, 0, 1)
            assert np.array_equal(task.test.x[7], pixels)
        name = f"{wnids[3]}_42.JPEG"
        content = archive.read(f"tiny-imagenet-200/train/{wnids[3]}/images/{name}")
        pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).transpose(2, 0, 1)
        task = benchmark.tasks[1]
        row = np.flatnonzero(task.train.y == 3)[42]
        assert np.array_equal(task.train.x[row], pixels)
        assert task.train.boxes is not None
        assert tuple(task.train.boxes[row]) == boxes[name]


@needs_data
def test_gray_images_of_tiny_imagenet_have_three_equal_channels(tiny: tasks.Benchmark) -> None:
    images = np.concatenate([task.train.x for task in tiny.tasks])
    gray = (images[:, 0] == images[:, 1]).all(axis=(1, 2)) & (images[:, 0] == images[:, 2]).all(axis=(1, 2))
    assert 0.005 < gray.mean() < 0.05  # about 2 % of the images


@needs_data
def test_the_unpacked_folder_is_the_same_benchmark_and_a_subset_reads_less(tmp_path: Path) -> None:
    with zipfile.ZipFile(TINY) as archive:
        archive.extractall(tmp_path)
    folder = tasks.load("split-tiny-imagenet", data_dir=tmp_path, per_class=5, tasks=10)
    zipped = tasks.load(str(TINY), per_class=5)
    assert folder.fingerprint() == zipped.fingerprint()
    assert folder.provenance["per_class"] == 5
    (tmp_path / "tiny-imagenet-200" / "val" / "images" / "val_108.JPEG").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"val_108\.JPEG is not a readable image"):
        tasks.load("split-tiny-imagenet", data_dir=tmp_path, per_class=5)
    (tmp_path / "tiny-imagenet-200" / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02124075\t1\t2\t3\n")
    with pytest.raises(InputError, match="every class"):
        tasks.load("split-tiny-imagenet", data_dir=tmp_path)


# Pascal VOC


def voc_xml(*objects: tuple[str, tuple[float, ...], int]) -> str:
    body = "".join(
        f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox><xmax>{box[2]}</xmax><xmin>{box[0]}</xmin>"
        f"<ymax>{box[3]}</ymax><ymin>{box[1]}</ymin></bndbox><part><name>head</name></part></object>"
        for name, box, difficult in objects
    )
    return f"<annotation><size><width>90</width></size>{body}</annotation>"


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    root = tmp_path / "VOCdevkit" / "VOC2012"
    for folder in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (root / folder).mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number, part in enumerate(("train", "val")):
        (root / "ImageSets" / "Main" / f"{part}.txt").write_text(f"2008_00{number}a\n2008_00{number}b\n")
        for letter in "ab":
            identity = f"2008_00{number}{letter}"
            noise = rng.integers(0, 256, (70, 90, 3), dtype=np.uint8)
            Image.fromarray(noise).save(root / "JPEGImages" / f"{identity}.jpg", quality=95)
            (root / "Annotations" / f"{identity}.xml").write_text(
                voc_xml(
                    ("dog", (1, 1, 64, 64), 0),
                    ("cat", (11, 3.2, 90, 70), 0),
                    ("person", (5, 5, 20, 20), 1),
                )
            )
    return tmp_path


def test_voc_objects_are_cropped_by_their_boxes(voc: Path) -> None:
    benchmark = tasks.load("voc2012", data_dir=voc)
    root = voc / "VOCdevkit" / "VOC2012"
    assert benchmark.class_names == ("cat", "dog")  # the person is difficult
    task = benchmark.tasks[0]
    assert task.train.x.shape == (4, 3, 64, 64)
    assert task.train.y.tolist() == [1, 0, 1, 0]
    photo = Image.open(root / "JPEGImages" / "2008_000a.jpg").convert("RGB")
    assert np.array_equal(task.train.x[0], np.asarray(photo)[:64, :64].transpose(2, 0, 1))
    cat = photo.crop((10, 2, 90, 70)).resize((64, 64), Image.Resampling.BILINEAR)
    assert np.array_equal(task.train.x[1], np.asarray(cat).transpose(2, 0, 1))
    last = Image.open(root / "JPEGImages" / "2008_001b.jpg").convert("RGB")
    assert np.array_equal(task.test.x[2], np.asarray(last)[:64, :64].transpose(2, 0, 1))
    assert tasks.load("voc2012-224", data_dir=voc).input_shape == (3, 224, 224)
    assert len(tasks.load("voc2012", data_dir=voc, tasks=2).tasks) == 2


def test_voc_is_read_from_its_tar_file(voc: Path) -> None:
    with tarfile.open(voc / "voc.tar", "w") as archive:
        archive.add(voc / "VOCdevkit", "VOCdevkit")
    plan = Plan(name="voc2012", scenario="class", tasks=1)
    packed = split_by_class(voc_source(open_files(voc / "voc.tar"), 64), plan)
    assert packed.fingerprint() == tasks.load("voc2012", data_dir=voc).fingerprint()


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        ("<annotation>", "not a VOC annotation"),
        (voc_xml(("zebra", (1, 1, 9, 9), 0)), "not a VOC annotation"),
        (voc_xml(("dog", (9, 1, 1, 9), 0)), "empty box 9, 1, 1, 9"),
        (voc_xml(("bird", (1, 1, 9, 9), 0)), "class 'bird' occurs only in the train list"),
    ],
)
def test_invalid_annotations_are_named(xml: str, message: str, voc: Path) -> None:
    (voc / "VOCdevkit" / "VOC2012" / "Annotations" / "2008_000a.xml").write_text(xml)
    with pytest.raises(InputError, match=message):
        tasks.load("voc2012", data_dir=voc)


# TV-news


@pytest.fixture
def tv_news(tmp_path: Path) -> Path:
    folder = tmp_path / "TV_News_Channel_Commercial_Detection_Dataset"
    folder.mkdir()
    for number, channel in enumerate(CHANNELS):
        lines = []
        for shot in range(20 + number):
            cells = [
                f"{index}:{1000 * number + shot + index / 8}" for index in (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 4124)
            ]
            lines.append(f"{'1' if shot % 2 else '-1'}  {' '.join(cells)} 4125:0.5")
        lines.append("1 1:7 17:9")  # a dimension that is left out is 0
        (folder / f"{channel}.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_tv_news_has_ten_features_and_two_classes(tv_news: Path) -> None:
    benchmark = tasks.load("tv-news", data_dir=tv_news)
    assert (len(benchmark.tasks), benchmark.outputs, benchmark.scenario) == (1, 2, "domain")
    assert benchmark.class_names == ("news", "commercial")
    assert benchmark.input_shape == (10,) == tasks.describe("tv-news").input_shape
    assert benchmark.provenance["features"] == list(FEATURES.values())
    task = benchmark.tasks[0]
    rows, labels = np.concatenate([task.train.x, task.test.x]), np.concatenate([task.train.y, task.test.y])
    assert len(rows) == sum(21 + number for number in range(5))
    full = rows[:, 1] > 0
    shots = rows[full, 0] - 1 / 8
    assert np.array_equal(labels[full], (shots % 1000 % 2).astype(int))
    offsets = np.array(list(FEATURES)) / 8
    assert np.allclose(rows[full] - shots[:, None], offsets)
    assert rows[~full].tolist() == [[7] + [0] * 9] * 5


def test_tv_news_channels_are_its_domains(tv_news: Path) -> None:
    benchmark = tasks.load("tv-news", data_dir=tv_news, tasks=5)
    assert [task.name for task in benchmark.tasks] == list(CHANNELS)
    for number, task in enumerate(benchmark.tasks):
        assert task.classes == (0, 1)
        full = task.train.x[:, 1] > 0
        assert set((task.train.x[full, 0] // 1000).astype(int)) == {number}
        for label, shots in enumerate(((20 + number + 1) // 2, (20 + number) // 2 + 1)):
            assert (task.test.y == label).sum() == round(shots / 5)
            assert (task.train.y == label).sum() == shots - round(shots / 5)
    shuffled = tasks.load("tv-news", data_dir=tv_news, tasks=5, order_seed=1)
    assert sorted(task.name for task in shuffled.tasks) == sorted(CHANNELS)
    assert [task.name for task in shuffled.tasks] != list(CHANNELS)
    with pytest.raises(InputError, match=r"class 'news' of tv-news has only 8 .* at most 8"):
        tasks.load("tv-news", data_dir=tv_news, tasks=5, per_class=9)
    assert len(tasks.load("tv-news", data_dir=tv_news, tasks=5, per_class=8).tasks[4].train) == 16
    with pytest.raises(InputError, match="5 domains"):
        tasks.load("tv-news", data_dir=tv_news, tasks=2)
    assert len(tasks.load("tv-news", data_dir=tv_news, tasks=2, scenario="class").tasks) == 2


def test_tv_news_is_read_from_its_zip_file(tv_news: Path) -> None:
    folder = tv_news / "TV_News_Channel_Commercial_Detection_Dataset"
    with zipfile.ZipFile(tv_news / "tv.zip", "w") as archive:
        for path in folder.iterdir():
            archive.write(path, path.name)
    source = tv_news_source(open_files(tv_news / "tv.zip"))
    packed = split_by_group(source, Plan(name="tv-news", scenario="domain", tasks=5))
    assert packed.fingerprint() == tasks.load("tv-news", data_dir=tv_news, tasks=5).fingerprint()


@pytest.mark.parametrize(
    ("text", "message"),
    [("1 1:x\n", "not in libsvm format"), ("2 1:1\n", r"expected the labels 1 \(commercial\)"), (None, r"no CNN\.txt")],
)
def test_invalid_tv_news_files_are_named(text: str | None, message: str, tv_news: Path) -> None:
    path = tv_news / "TV_News_Channel_Commercial_Detection_Dataset" / "CNN.txt"
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message):
        tasks.load("tv-news", data_dir=tv_news)


# permuted and rotated MNIST


@needs_data
def test_permuted_mnist_applies_one_permutation_to_all_images() -> None:
    benchmark = tasks.load("permuted-mnist", data_dir=DATA, per_class=50, tasks=3)
    assert benchmark.scenario == "domain"
    assert benchmark.outputs == 10
    first, second, third = benchmark.tasks
    assert np.array_equal(first.test.x, tasks.load("split-mnist", data_dir=DATA, tasks=1).tasks[0].test.x)
    assert np.array_equal(first.train.y, second.train.y)
    flat, shuffled = first.test.x.reshape(-1, 784), second.test.x.reshape(-1, 784)
    assert np.array_equal(np.sort(flat, axis=1), np.sort(shuffled, axis=1))
    assert not np.array_equal(flat, shuffled)
    # one permutation for all images: the columns are the same, in another order
    sums = sorted(map(bytes, flat.T))
    assert sums == sorted(map(bytes, shuffled.T)) == sorted(map(bytes, third.test.x.reshape(-1, 784).T))
    other = tasks.load("permuted-mnist", data_dir=DATA, per_class=50, tasks=3, seed=1)
    assert np.array_equal(other.tasks[0].test.x, first.test.x)
    assert not np.array_equal(other.tasks[1].test.x, second.test.x)


@needs_data
def test_permuted_mnist_holds_its_data_once_and_can_be_pickled() -> None:
    benchmark = tasks.load("permuted-mnist", data_dir=DATA, per_class=50)
    images = [task.test.x for task in benchmark.tasks]  # all tasks are accessed
    assert benchmark.lifetime_bits == 10 * 500 * (784 * 8 + 64)
    assert benchmark.tasks[9].train.x is benchmark.tasks[9].train.x
    pickled = pickle.dumps(benchmark)
    assert len(pickled) < 2 * (10000 + 500) * 784
    again = pickle.loads(pickled)
    assert all(np.array_equal(task.test.x, expected) for task, expected in zip(again.tasks, images, strict=True))
    assert again.fingerprint() == benchmark.fingerprint()


@needs_data
def test_permuted_mnist_outside_the_domain_scenario_has_units_for_every_task() -> None:
    benchmark = tasks.load("permuted-mnist", data_dir=DATA, per_class=10, tasks=3, scenario="class", validation=0.2)
    assert benchmark.outputs == len(benchmark.class_names) == 30
    for number, task in enumerate(benchmark.tasks):
        assert task.classes == tuple(range(10 * number, 10 * number + 10))
        assert task.validation is not None
        for part in (task.train, task.test, task.validation):
            assert set(part.y) == set(task.classes)


@needs_data
def test_rotated_mnist_divides_a_half_circle_into_equal_steps() -> None:
    benchmark = tasks.load("rotated-mnist", data_dir=DATA, per_class=20, tasks=4)
    assert [task.name for task in benchmark.tasks] == ["0 degrees", "45 degrees", "90 degrees", "135 degrees"]
    upright = benchmark.tasks[0].test.x
    assert np.array_equal(benchmark.tasks[2].test.x, np.rot90(upright, 1, (2, 3)))
    shuffled = tasks.load("rotated-mnist", data_dir=DATA, per_class=20, tasks=4, order_seed=0)
    assert sorted(task.name for task in shuffled.tasks) == sorted(task.name for task in benchmark.tasks)
    assert shuffled.provenance["order"] != [0, 1, 2, 3]


@settings(max_examples=25, deadline=None)
@given(degrees=st.floats(-360, 360), seed=st.integers(0, 1000))
def test_rotation_agrees_with_pillow_away_from_the_border(degrees: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    image = np.zeros((24, 24), np.uint8)
    image[7:17, 7:17] = rng.integers(0, 256, (10, 10))
    expected = Image.fromarray(image).rotate(degrees, Image.Resampling.BILINEAR)
    ours = Rotation(degrees)(np.stack([image, 255 - image])[:, None])
    assert ours.dtype == np.uint8
    difference = np.abs(ours[0, 0].astype(int) - np.asarray(expected))
    assert difference.max() <= 3  # weights are multiples of 1/256


def test_rotation_by_quarter_turns_is_exact() -> None:
    image = np.random.default_rng(0).integers(0, 256, (3, 2, 9, 9), dtype=np.uint8)
    for turns in range(4):
        assert np.array_equal(Rotation(90 * turns)(image), np.rot90(image, turns, (2, 3)))
