"""Tables: a user's own CSV file, and the TV-news commercials of the attribution-bias study."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError
from perdure.tasks.files.archives import open_files
from perdure.tasks.files.download import Remote, fetch
from perdure.tasks.files.wording import reason
from perdure.tasks.own_data.arrays import number_labels
from perdure.tasks.source import Source, in_memory, stratified_rows

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from perdure.tasks.files.archives import Files

_MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
_LABEL_NAMES = ("label", "class", "target")
_MOST_CATEGORIES = 1000
_TEST_SHARE = 0.2

TV_NEWS = Remote(
    path="TV_News_Channel_Commercial_Detection_Dataset.zip",
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/00326/"
    "TV_News_Channel_Commercial_Detection_Dataset.zip",
    digest=None,
    size=64000000,
)
CHANNELS = ("BBC", "CNN", "CNNIBN", "NDTV", "TIMESNOW")
# Ten of the 4125 dimensions, as the bias study's authors choose them: means, no histograms, no audio words.
TV_FEATURES = {
    1: "shot length",
    2: "motion",
    4: "frame difference",
    6: "short time energy",
    8: "zero crossing rate",
    10: "spectral centroid",
    12: "spectral roll-off",
    14: "spectral flux",
    16: "fundamental frequency",
    4124: "edge change ratio",
}


@dataclass(frozen=True, eq=False)
class Table:
    """A table as numbers: one column for each number column and for each value of a column of words."""

    x: NDArray[np.float32]
    labels: NDArray[np.str_]
    features: tuple[str, ...]


def table_source(path: Path) -> Source:
    """Return a CSV table as a data set; a fifth of each class, drawn from a fixed seed, is the test set."""
    table = read_csv(path)
    labels = table.labels
    if all(_number(value) is not None for value in np.unique(labels)):
        labels = labels.astype(np.float64)
    names, (codes, _) = number_labels(str(path), labels, labels)
    counts = np.bincount(codes)
    if counts.min() < 2:
        raise InputError(f"{path}: class {names[counts.argmin()]!r} has one row, expected one to train and one to test")
    train, test = stratified_rows(codes, _TEST_SHARE, np.random.default_rng(0))
    return Source(
        train=in_memory(table.x[train], codes[train]),
        test=in_memory(table.x[test], codes[test]),
        class_names=names,
        about={"files": [path.name], "features": list(table.features)},
    )


def read_csv(path: Path) -> Table:
    """Read a table cut by commas, semicolons or tabs (whichever its first line has most of).

    The first row is a header if no cell of it is a number. The label is the column named label, class or
    target, else the last one. A column is numeric if all its cells are finite numbers; any other becomes
    one 0/1 feature ``column=value`` for each distinct value, in sorted order, a missing cell (empty, ?, NA,
    NaN, null, none) being the value ``missing``. A missing cell in a column of numbers or among the labels
    is an error that names it.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a text file that can be read ({reason(error)})") from error
    delimiter = max(",;\t", key=text.split("\n", 1)[0].count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not a table ({reason(error)})") from error
    if not rows:
        raise InputError(f"{path}: the table is empty")
    for line, row in rows:
        if len(row) != len(rows[0][1]):
            raise InputError(f"{path}, line {line}: {len(row)} cells, expected {len(rows[0][1])} as in the first line")
    headed = all(_number(cell) is None for cell in rows[0][1])
    width = len(rows[0][1])
    header = rows[0][1] if headed else [f"column {number}" for number in range(1, width + 1)]
    body = rows[1:] if headed else rows
    if width < 2 or not body:
        raise InputError(f"{path}: {width} columns and {len(body)} rows, expected features, a label column and rows")
    lines = [line for line, _ in body]
    columns = list(zip(*(row for _, row in body), strict=True))
    target = _label_column(header)
    labels = columns[target]
    for line, label in zip(lines, labels, strict=True):
        if label.lower() in _MISSING:
            raise InputError(f"{path}, line {line}, column {header[target]!r}: the label is missing")
    parts = [
        _encode(f"{path}, column {name!r}", name, cells, lines)
        for number, (name, cells) in enumerate(zip(header, columns, strict=True))
        if number != target
    ]
    return Table(
        x=np.concatenate([values for values, _ in parts], axis=1),
        labels=np.array(labels),
        features=tuple(name for _, names in parts for name in names),
    )


def _label_column(header: list[str]) -> int:
    lowered = [name.lower() for name in header]
    return next((lowered.index(name) for name in _LABEL_NAMES if name in lowered), len(header) - 1)


def _number(cell: str) -> float | None:
    """Return the finite number that a cell holds."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _encode(place: str, name: str, cells: tuple[str, ...], lines: list[int]) -> tuple[NDArray[np.float32], list[str]]:
    """Return a column's features: itself, or one for each of its values."""
    values, codes = np.unique(np.array(cells), return_inverse=True)  # few, and slow to look at
    numbers = np.array([np.nan if (number := _number(value)) is None else number for value in values])
    missing = np.array([value.lower() in _MISSING for value in values])
    if not (np.isnan(numbers) & ~missing).any() and not missing.all():
        gone = missing[codes]
        if gone.any():
            raise InputError(
                f"{place}: {gone.sum()} of {len(cells)} numbers are missing, the first in line"
                f" {lines[gone.argmax()]}: fill them in or leave these rows out"
            )
        return numbers[codes].astype(np.float32)[:, None], [name]
    words = np.where(missing, "missing", values)
    values, merged = np.unique(words, return_inverse=True)
    if len(values) > _MOST_CATEGORIES:
        raise InputError(f"{place}: {len(values)} different words, more than {_MOST_CATEGORIES}: leave the column out")
    return np.eye(len(values), dtype=np.float32)[merged[codes]], [f"{name}={value}" for value in values]


def read_tv_news(folder: Path, progress: bool) -> Source:
    """Read the five channels' files from their folder if it is there, else the zip file, else download it."""
    for place in (folder / TV_NEWS.path.removesuffix(".zip"), folder):
        if (place / f"{CHANNELS[0]}.txt").is_file():
            return tv_news_source(open_files(place))
    return tv_news_source(open_files(fetch(TV_NEWS, folder, progress)))


def tv_news_source(files: Files) -> Source:
    """Return shots of news broadcasts: commercial or not, ten audio-visual features, the channel as domain.

    The makers give no split: a fifth of each channel's classes, drawn from a fixed seed, is the test set.
    Neighbouring shots resemble each other, so this test set is an easy one, as in the studies that use it.
    """
    parts = []
    for number, channel in enumerate(CHANNELS):
        name = files.find(f"{channel}.txt")
        if name is None:
            raise InputError(
                f"{files.path}: no {channel}.txt in it, expected one file for each of {', '.join(CHANNELS)}"
            )
        x, y = _read_libsvm(f"{files.path}: {name}", files.read(name))
        parts.append((x, y, np.full(len(y), number)))
    x, y, group = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    train, test = stratified_rows(2 * group + y, _TEST_SHARE, np.random.default_rng(0))
    return Source(
        train=in_memory(x[train], y[train], group[train]),
        test=in_memory(x[test], y[test], group[test]),
        class_names=("news", "commercial"),
        group_names=CHANNELS,
        about={"files": [files.path.name], "features": list(TV_FEATURES.values())},
    )


def _read_libsvm(place: str, content: bytes) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read the chosen dimensions of ``label index:value ...`` lines; one that a line leaves out is 0."""
    from sklearn.datasets import load_svmlight_file  # noqa: PLC0415  (two seconds only this benchmark should pay)

    try:
        sparse, labels = load_svmlight_file(
            io.BytesIO(content), n_features=max(TV_FEATURES) + 1, dtype=np.float32, zero_based=False
        )
    except ValueError as error:
        raise InputError(f"{place}: not in libsvm format, 'label index:value ...' ({reason(error)})") from error
    if set(np.unique(labels)) != {-1, 1}:
        raise InputError(f"{place}: labels {np.unique(labels)}, expected 1 for commercials and -1 for news")
    x = sparse.tocsc()[:, [index - 1 for index in TV_FEATURES]].toarray()
    return x, (labels > 0).astype(np.int64)
