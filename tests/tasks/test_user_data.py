"""Arrays, images and tables of a user, and the messages when they are invalid."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from perdure import tasks
from perdure.base.errors import InputError
from perdure.tasks.user_data.tables import read_csv

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="the folder of shared data is missing")


def error_for(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        tasks.load(str(path), **options)
    message = str(error.value)
    assert "\n" not in message
    assert str(path) in message
    return message


# npz


def write_npz(path: Path, x: NDArray[Any], y: NDArray[Any] | None = None, **others: NDArray[Any]) -> Path:
    labels = np.arange(len(x)) % 4 if y is None else y
    arrays: dict[str, Any] = {"x_train": x, "y_train": labels, "x_test": x, "y_test": labels} | others
    np.savez(path, **arrays)
    return path


@needs_data
def test_cifar10_small_npz_is_transposed_to_channels_first() -> None:
    benchmark = tasks.load(str(DATA / "cifar10-small.npz"), tasks=5)
    with np.load(DATA / "cifar10-small.npz") as archive:
        in_task = archive["y_test"] < 2
        assert np.array_equal(benchmark.tasks[0].test.x, archive["x_test"][in_task].transpose(0, 3, 1, 2))
        pixels = archive["x_train"] / 255
        assert benchmark.mean == pytest.approx(pixels.mean(axis=(0, 1, 2)), abs=1e-8)
        assert benchmark.std == pytest.approx(pixels.std(axis=(0, 1, 2)), abs=1e-8)
    assert benchmark.name == "cifar10-small"
    assert benchmark.provenance["source"] == str(DATA / "cifar10-small.npz")
    assert benchmark.provenance["files"] == ["cifar10-small.npz"]
    assert tasks.load(DATA / "cifar10-small.npz").fingerprint() == benchmark.fingerprint()


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((8, 5, 6), None),
        ((8, 5, 6, 3), (0, 3, 1, 2)),
        ((8, 5, 6, 1), (0, 3, 1, 2)),
        ((8, 3, 5, 6), (0, 1, 2, 3)),
        ((8, 1, 5, 6), (0, 1, 2, 3)),
    ],
)
def test_images_may_have_any_common_layout(
    shape: tuple[int, ...], axes: tuple[int, ...] | None, tmp_path: Path
) -> None:
    x = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    benchmark = tasks.load(str(write_npz(tmp_path / "data.npz", x)), tasks=1)
    expected = x[:, None] if axes is None else x.transpose(axes)
    assert np.array_equal(benchmark.tasks[0].train.x, expected)


def test_rows_of_numbers_are_a_table_and_words_are_labels(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(3, 2, (40, 7))
    y = np.array(["cat", "dog", "ant", "bee"] * 10)
    benchmark = tasks.load(str(write_npz(tmp_path / "data.npz", x, y)))
    assert benchmark.class_names == ("ant", "bee", "cat", "dog")
    assert benchmark.tasks[0].train.x.dtype == np.float32
    assert np.array_equal(benchmark.tasks[1].test.x, x[(y == "cat") | (y == "dog")].astype(np.float32))
    assert benchmark.mean == pytest.approx(x.mean(axis=0), rel=1e-5)
    assert benchmark.std == pytest.approx(x.std(axis=0), rel=1e-5)


def test_a_constant_feature_normalizes_to_zero(tmp_path: Path) -> None:
    x = np.column_stack([np.full(8, 0.1), np.arange(8)])
    benchmark = tasks.load(str(write_npz(tmp_path / "data.npz", x)))
    assert benchmark.std[0] == 1
    gray = np.full((8, 4, 4), 77, np.uint8)
    assert tasks.load(str(write_npz(tmp_path / "gray.npz", gray))).std == (1,)


@pytest.mark.parametrize(
    ("classes", "expected"), [(2, 1), (3, 1), (4, 2), (7, 1), (9, 3), (10, 5), (20, 10), (26, 2), (200, 10)]
)
def test_user_data_get_at_most_ten_tasks_of_two_classes_or_more(classes: int, expected: int, tmp_path: Path) -> None:
    path = write_npz(tmp_path / "data.npz", np.zeros((classes, 2)), np.arange(classes))
    assert len(tasks.load(str(path)).tasks) == expected


IMAGES = np.zeros((8, 4, 4), np.uint8)


@pytest.mark.parametrize(
    ("x", "y", "others", "message"),
    [
        (IMAGES / 255, None, {}, "expected images of integers from 0 to 255"),
        (IMAGES.astype(int) - 1, None, {}, "from -1 to -1"),
        (IMAGES.astype(int) + 256, None, {}, "from 256 to 256"),
        (np.zeros((8, 4, 4, 4), np.uint8), None, {}, "got (8, 4, 4, 4)"),
        (np.zeros(8), None, {}, "got (8,)"),
        (IMAGES, np.arange(7), {}, "expected one label per row"),
        (IMAGES, np.arange(8) / 3, {}, "expected integers or words as labels"),
        (IMAGES, None, {"y_test": np.array([0, 1, 2, 3] * 2) + 1}, "class '0' has no test examples"),
        (IMAGES, None, {"x_test": np.zeros((8, 5, 4), np.uint8)}, "expected inputs of one shape"),
        (IMAGES[:0], None, {}, "expected one label per row"),
        (np.full((8, 2), np.nan), None, {}, "row 1, column 1: expected a finite number, got nan"),
        (np.array([["a", "b"]] * 8), None, {}, "expected numbers as inputs"),
        (np.array([[{}, {}]] * 8), None, {}, "not an npz file of plain arrays"),
    ],
)
def test_invalid_arrays_give_a_message_of_one_line(
    x: NDArray[Any], y: NDArray[Any] | None, others: dict[str, NDArray[Any]], message: str, tmp_path: Path
) -> None:
    assert message in error_for(write_npz(tmp_path / "data.npz", x, y, **others))


def test_a_missing_array_in_an_npz_file_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x_train=IMAGES, y_train=np.arange(8), x_test=IMAGES)
    assert "no array 'y_test'" in error_for(tmp_path / "data.npz")
    (tmp_path / "text.npz").write_text("hello")
    assert "not an npz file" in error_for(tmp_path / "text.npz")
    np.save(tmp_path / "single.npy", IMAGES)
    (tmp_path / "single.npy").rename(tmp_path / "single.npz")
    assert "not an npz file" in error_for(tmp_path / "single.npz")


# images


def write_images(
    root: Path, sizes: tuple[tuple[int, int], ...] = ((12, 10),), mode: str = "RGB", side: str = "test"
) -> None:
    rng = np.random.default_rng(0)
    for part in ("train", side):
        for label in ("cat", "ant", "dog", "bee"):
            (root / part / label).mkdir(parents=True)
            for number in range(3):
                width, height = sizes[number % len(sizes)]
                shape = (height, width, 3) if mode == "RGB" else (height, width)
                Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(root / part / label / f"{number}.png")


@pytest.mark.parametrize("side", ["test", "val"])
def test_an_image_folder_becomes_a_benchmark(side: str, tmp_path: Path) -> None:
    write_images(tmp_path, side=side)
    benchmark = tasks.load(str(tmp_path))
    assert benchmark.class_names == ("ant", "bee", "cat", "dog")
    assert benchmark.input_shape == (3, 10, 12)
    assert len(benchmark.tasks) == 2
    task = benchmark.tasks[1]
    assert task.train.y.tolist() == [2, 2, 2, 3, 3, 3]
    expected = np.asarray(Image.open(tmp_path / "train" / "dog" / "1.png")).transpose(2, 0, 1)
    assert np.array_equal(task.train.x[4], expected)


def test_a_zipped_folder_is_the_same_benchmark(tmp_path: Path) -> None:
    write_images(tmp_path / "images")
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for path in sorted((tmp_path / "images").rglob("*.png")):
            archive.write(path, path.relative_to(tmp_path))
    assert tasks.load(str(tmp_path / "images.zip")).fingerprint() == tasks.load(str(tmp_path / "images")).fingerprint()


def test_gray_images_keep_one_channel(tmp_path: Path) -> None:
    write_images(tmp_path, mode="L")
    assert tasks.load(str(tmp_path)).input_shape == (1, 10, 12)


def test_images_of_several_sizes_become_squares_of_64(tmp_path: Path) -> None:
    write_images(tmp_path, sizes=((12, 10), (100, 128), (64, 64)))
    benchmark = tasks.load(str(tmp_path))
    assert benchmark.input_shape == (3, 64, 64)
    assert benchmark.provenance["resized_to"] == [64, 64]
    exact = np.asarray(Image.open(tmp_path / "train" / "ant" / "2.png")).transpose(2, 0, 1)
    assert np.array_equal(benchmark.tasks[0].train.x[2], exact)
    wide = Image.open(tmp_path / "train" / "ant" / "0.png").resize((77, 64), Image.Resampling.BILINEAR)
    assert np.array_equal(benchmark.tasks[0].train.x[0], np.asarray(wide)[:, 6:70].transpose(2, 0, 1))
    tall = Image.open(tmp_path / "train" / "ant" / "1.png").resize((64, 82), Image.Resampling.BILINEAR)
    assert np.array_equal(benchmark.tasks[0].train.x[1], np.asarray(tall)[9:73].transpose(2, 0, 1))


def test_unusable_folders_give_a_message_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty" / "a" / "b").mkdir(parents=True)
    (tmp_path / "empty" / "a" / "b" / "wnids.txt").write_text("too deep to be Tiny ImageNet")
    assert "no images in train/<class>/" in error_for(tmp_path / "empty")
    write_images(tmp_path / "no-test", side="other")
    assert "no images in test/<class>/ or val/<class>/" in error_for(tmp_path / "no-test")
    write_images(tmp_path / "lonely")
    for path in (tmp_path / "lonely" / "test" / "bee").iterdir():
        path.unlink()
    assert "class 'bee' has no test images" in error_for(tmp_path / "lonely")
    write_images(tmp_path / "broken")
    (tmp_path / "broken" / "train" / "ant" / "0.png").write_bytes(b"no image")
    assert "train/ant/0.png is not a readable image" in error_for(tmp_path / "broken")
    write_images(tmp_path / "cut")
    content = (tmp_path / "cut" / "train" / "ant" / "0.png").read_bytes()
    (tmp_path / "cut" / "train" / "ant" / "0.png").write_bytes(content[: len(content) // 2])
    assert "train/ant/0.png is not a readable image" in error_for(tmp_path / "cut")


def test_other_paths_are_rejected(tmp_path: Path) -> None:
    assert "no such file or folder" in error_for(tmp_path / "nothing.npz")
    assert "no such file or folder" in error_for(tmp_path / "nothing")
    (tmp_path / "notes.md").write_text("x")
    assert "expected .npz" in error_for(tmp_path / "notes.md")
    (tmp_path / "bad.zip").write_bytes(b"PK not really")
    assert "not a readable folder, zip file or tar file" in error_for(tmp_path / "bad.zip")


# tables

TABLE = """age,job,hours,class
30,clerk,40,no
41,?,38.5,yes
25,smith,40,no
60,clerk,0,yes
33,,1e3,no
"""


def test_a_csv_table_is_encoded_by_the_documented_rule(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(TABLE)
    table = read_csv(path)
    assert table.features == ("age", "job=clerk", "job=missing", "job=smith", "hours")
    assert table.x.tolist() == [
        [30, 1, 0, 0, 40],
        [41, 0, 1, 0, 38.5],
        [25, 0, 0, 1, 40],
        [60, 1, 0, 0, 0],
        [33, 0, 1, 0, 1000],
    ]
    assert table.labels.tolist() == ["no", "yes", "no", "yes", "no"]
    benchmark = tasks.load(str(path))
    assert benchmark.class_names == ("no", "yes")
    assert benchmark.provenance["features"] == list(table.features)
    assert len(benchmark.tasks) == 1
    assert (len(benchmark.tasks[0].train), len(benchmark.tasks[0].test)) == (3, 2)


@pytest.mark.parametrize("header", ["label", "Class", "TARGET"])
def test_the_label_column_is_found_by_its_name(header: str, tmp_path: Path) -> None:
    path = tmp_path / "data.tsv"
    path.write_text(f"{header}\ta\tb\n" + "0\t1\t2\n1\t3\t4\n" * 5)
    table = read_csv(path)
    assert table.labels.tolist() == ["0", "1"] * 5
    assert table.features == ("a", "b")


def test_without_a_header_the_last_column_is_the_label_and_numbers_sort_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("".join(f"{number};{number * 2};{number % 11}\n" for number in range(44)))
    benchmark = tasks.load(str(path), tasks=1)
    assert benchmark.class_names == tuple(str(number) for number in range(11))
    assert benchmark.provenance["features"] == ["column 1", "column 2"]


@needs_data
def test_the_adult_table_is_read_completely() -> None:
    benchmark = tasks.load(str(DATA / "tabular" / "adult.data"))
    task = benchmark.tasks[0]
    assert len(task.train) + len(task.test) == 32561
    assert benchmark.class_names == ("<=50K", ">50K")
    labels = np.concatenate([task.train.y, task.test.y])
    assert np.bincount(labels).tolist() == [24720, 7841]  # as adult.names counts them
    features = benchmark.provenance["features"]
    assert benchmark.input_shape == (len(features),) == (108,)  # 6 numbers and 102 words, three of them missing
    rows = np.concatenate([task.train.x, task.test.x])
    assert rows[:, features.index("column 2=missing")].sum() == 1836
    assert rows[:, features.index("column 7=missing")].sum() == 1843
    assert rows[:, features.index("column 14=missing")].sum() == 583


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("a,class\n", "0 rows"),
        ("class\nx\n", "1 columns"),
        ("a,b,class\n1,2,x\n3,y\n", "line 3: expected 3 cells as in the first line, got 2"),
        ("a,b,class\n1,2,x\n3,4,y,z\n", "line 3: expected 3 cells as in the first line, got 4"),
        ("a,b,class\n1,2,x\n3,,y\n4,,x\n", "column b: 2 of 3 numbers are missing, the first in line 3"),
        ("a,b,class\n1,2,x\n3,4,\n", "line 3, column class: the label is missing"),
        ("a,class\n1,x\n2,x\n3,y\n", "class 'y' has one row"),
        ("a,class\n1,1.5\n2,2.5\n", "expected integers or words as labels"),
        (
            "name,class\n" + "".join(f"n{number // 2},x\n" for number in range(2002)),
            "column name: expected at most 1000 different words, got 1001",
        ),
    ],
)
def test_invalid_tables_give_a_message_of_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text)
    assert message in error_for(path)


def test_cells_in_quotes_may_hold_commas_and_line_ends(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text('a,class\n"x, y\nz",0\n"x, y\nz",1\nw,0\n"v,1\n')
    with pytest.raises(InputError, match="line 7: expected 2 cells as in the first line, got 1"):
        read_csv(tmp_path / "data.csv")
    (tmp_path / "data.csv").write_text('a,class\n"x, y\nz",0\n"x, y\nz",1\nw,0\n')
    assert read_csv(tmp_path / "data.csv").features == ("a=w", "a=x, y\nz")


def test_a_table_that_is_not_text_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_bytes(b"\xff\xfe\x00\x01")
    assert "expected a text file in UTF-8" in error_for(tmp_path / "data.csv")
