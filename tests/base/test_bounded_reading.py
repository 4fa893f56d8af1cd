"""Files that are too large, too deep, of the wrong type or hostile are refused with one line, before memory is allocated."""

import gzip
import io
import json
import pickle
import random
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import tasks
from perdure.base import files
from perdure.base.errors import InputError
from perdure.base.files import read_csv_file, read_json, read_text
from perdure.importers import read_accuracy_matrices, read_matrix_costs
from perdure.importers.curves import read_curves
from perdure.record import Record
from perdure.tasks.files import bounded, plain_pickle
from perdure.tasks.files.archives import open_files, read_members
from perdure.tasks.files.bounded import read_idx, read_npz_arrays
from perdure.tasks.files.plain_pickle import read_plain_pickle
from tests.fuzz.readers import pack_zip, picture, prepare_record, record_manifest

SMALL = 50 * 2**20


def refused(read: Callable[[Path], object], path: Path) -> str:
    """Return the message with which a file is refused; check that it is one line and little memory was allocated."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as error:
            read(path)
        assert tracemalloc.get_traced_memory()[1] < SMALL
    finally:
        tracemalloc.stop()
    assert "\n" not in str(error.value)
    assert path.name in str(error.value)
    return str(error.value)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# JSON


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n"b": NaN}', "line 2: NaN is not JSON; write null for a missing value"),
        ('["NaN",\n-Infinity]', "line 2: -Infinity is not JSON"),
        ("[" * 100_000, "line 1: expected at most 64 levels of lists and objects"),
        ('{"a":' * 65 + "1" + "}" * 65, "expected at most 64 levels"),
        ("[\n" + "7" * 5000 + "]", "line 2: expected integers of at most 64 bits"),
        ("[18446744073709551616]", "expected integers of at most 64 bits"),
        ("[1e999]", "line 1: expected a finite number, got '1e999'"),
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' occurs twice in one object"),
        ('["\\ud800"]', "half of a surrogate pair"),
        ('["' + "x" * 100_001 + '"]', "expected strings of at most 100000 characters"),
        ('["' + '\\"' * 500_000, "expected strings of at most 100000 characters"),
        ("[" + "0," * 2_000_000 + "0]", "expected at most 2000000 values"),
        ('["a\0b"]', "line 1: expected text, got a NUL character"),
        ("\ufeff[1", "line 1: not JSON"),
        ("  \n", "the file is empty"),
    ],
)
def test_json_beyond_the_limits_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(read_json, write(tmp_path / "value.json", text))


def test_json_within_the_limits_is_read(tmp_path: Path) -> None:
    value = {"a": [1, -2.5, None, True, 'NaN, [[[ \\ " é 😀'], "n": 2**64 - 1, "deep": [[[[[]]]]]}
    assert read_json(write(tmp_path / "value.json", json.dumps(value))) == value
    assert read_json(write(tmp_path / "value.json", "\ufeff" + json.dumps(value, ensure_ascii=False))) == value
    deepest = "[" * 64 + "]" * 64
    assert json.dumps(read_json(write(tmp_path / "value.json", deepest))) == deepest


def test_a_file_above_the_size_limit_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(files.LARGEST_TEXT + 1)  # a sparse file
    assert f"expected at most {files.LARGEST_TEXT} bytes" in refused(read_text, tmp_path / "large.json")
    assert "expected a file, got a directory" in refused(read_text, tmp_path)
    assert "UTF-8" in refused(read_text, write(tmp_path / "utf16.csv", "a,b\n1,2\n".encode("utf-16")))


# CSV


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",,,\n", "the table is empty"),
        ("a,b\n1," + "x" * 100_001 + "\n", "row 2: expected at most 100000 characters in a cell"),
        ('a,"' + "x" * 200_000, "line 1: not a table"),
        ("a,b\n1,\0\n", "line 2: expected text, got a NUL character"),
        ("a,b\n1\n", "row 2: expected 2 cells as in the first row, got 1"),
    ],
)
def test_csv_beyond_the_limits_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(read_csv_file, write(tmp_path / "table.csv", text))


def test_the_number_of_cells_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.parse_csv_rows, "__kwdefaults__", {"most_cells": 6, "name": "row"})
    assert len(read_csv_file(write(tmp_path / "table.csv", "a,b\n1,2\n3,4\n"))) == 3
    assert "row 4: expected at most 6 cells" in refused(
        read_csv_file, write(tmp_path / "table.csv", "a,b\n1,2\n3,4\n5,6\n")
    )


# Task and step numbers: a one-row file that names task 99999999999 used 2 GB.


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("1,1,99999999999,.5", "row 2, column task: expected an integer of at most 100000, got '99999999999'"),
        ("99999999999,1,1,.5", "row 2, column after: expected an integer of at most 100000"),
        ("1,99999999999,1,.5", "row 2, column trained: expected an integer of at most 100000"),
        ("100000,1,100000,.5", "expected tables of at most 5000000 cells (steps x tasks), got 10000100000"),
        ("1,1," + "7" * 5000 + ",.5", "row 2, column task: expected a number"),
    ],
)
def test_long_matrices_cannot_ask_for_large_tables(tmp_path: Path, cells: str, message: str) -> None:
    text = f"after,trained,task,accuracy\n{cells}\n"
    assert message in refused(read_accuracy_matrices, write(tmp_path / "matrix.csv", text))


def test_many_runs_cannot_ask_for_large_tables_together(tmp_path: Path) -> None:
    rows = "".join(f"{run},1000,1,1000,.5\n" for run in range(6))
    text = f"run,after,trained,task,accuracy\n{rows}"
    assert "got 6006000" in refused(read_accuracy_matrices, write(tmp_path / "matrix.csv", text))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a,1,99999999999,1,.5"], "expected tasks numbered from 1 to 100000 at most, got task 99999999999"),
        (["a,1," + "7" * 900 + ",1,.5"], "expected tasks numbered from 1 to 100000 at most, got task 777"),
        (["a,99999999999,1,1,.5"], "row 2, column step: expected at most 100000, got 99999999999"),
        (["a,1e300,1,1,.5"], "row 2, column step: expected at most 100000"),
        (["a,90000,1,1,.5"], "step 1 is missing"),
        (["a," + "x" * 1001 + ",1,1,.5"], "row 2, column step: expected a number"),
        (["a,1,1," + "x" * 1001 + ",.5"], "row 2, column evaluated: expected at most 1000 characters"),
        ([f"a{i},{i / 200},1,{i},.5" for i in range(1, 201)], "200 x 200 x 200 = 8000000"),
    ],
)
def test_long_curves_cannot_ask_for_large_tables(tmp_path: Path, rows: list[str], message: str) -> None:
    text = "\n".join(["algorithm,step,trained,evaluated,performance", *rows, ""])
    assert message in refused(read_curves, write(tmp_path / "curves.csv", text))


def test_superscript_digits_are_names_of_tasks(tmp_path: Path) -> None:
    text = "algorithm,step,trained,evaluated,performance\na,1,²,²,.5\n"
    assert read_curves(write(tmp_path / "curves.csv", text))[0].tasks == ("²",)


# Costs and lists in JSON matrices


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"cost": {"parameters": [1, -2]}}, "key cost, parameters: expected 2 numbers of at least 0"),
        ({"cost": {"parameters": [1, 2, 3]}}, "key cost, parameters: expected 2 numbers of at least 0, one per step"),
        ({"cost": {"parameters": 1}}, "key parameters: expected a list of rows of numbers"),
        ({"initial": [0.1]}, "key initial: expected 2 numbers, one per task, got 1"),
        ({"curriculum": 3}, "key curriculum: expected a list of task numbers"),
        ({"curriculum": [True, 2]}, "key curriculum: expected a list of task numbers"),
        ({"curriculum": [1, 2, 1]}, "expected one row per step"),
        ({"lifetime_bits": -1}, "key lifetime_bits: expected a positive number"),
        ({"lifetime_bits": "many"}, "key lifetime_bits: expected a positive number"),
        ({"learner": {"a": 1}}, "key learner: expected a name"),
        ({"run": "x" * 1001}, "key run: expected a name of at most 1000 characters"),
    ],
)
def test_wrong_values_next_to_a_json_matrix_are_named(tmp_path: Path, part: dict[str, Any], message: str) -> None:
    value = {"accuracy": [[0.5, 0.1], [0.4, 0.6]], **part}
    assert message in refused(read_accuracy_matrices, write(tmp_path / "matrix.json", json.dumps(value)))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("-1", "row 2, column operations: expected a cost of at least 0"),
        ("inf", "row 2, column operations: expected a number"),
    ],
)
def test_negative_and_infinite_costs_are_refused(tmp_path: Path, cell: str, message: str) -> None:
    assert message in refused(read_matrix_costs, write(tmp_path / "cost.csv", f"after,operations\n1,{cell}\n"))


# Records


MANIFEST_ERRORS = [
    ("learner", 3, "field learner: expected a name"),
    ("learner", "x" * 1001, "field learner: expected a name of at most 1000 characters"),
    ("tasks", "abc", "field tasks: expected a list"),
    ("tasks", [1, 2], "field tasks: expected a list"),
    ("tasks", ["x" * 1001], "field tasks: expected a list"),
    ("tasks", [""] * 100_001, "field tasks: expected a list of at most 100000"),
    ("curriculum", {"1": 2}, "field curriculum: expected a list"),
    ("curriculum", [1.5], "field curriculum: expected a list"),
    ("curriculum", [99], "the curriculum contains a task that does not exist"),
    ("trains_all", 1, "field trains_all: expected true or false"),
    ("decides_by", None, "field decides_by: expected a name"),
    ("benchmark", [], "field benchmark: expected a name"),
    ("scenario", 1, "field scenario: expected a name"),
    ("seed", "0", "field seed: expected an integer or null"),
    ("seed", True, "field seed: expected an integer or null"),
    ("settings", [], "field settings: expected an object"),
    ("network", "lenet", "field network: expected an object"),
    ("provenance", 1, "field provenance: expected an object"),
    ("lifetime_bits", -5, "field lifetime_bits: expected a positive integer or null"),
    ("test_examples", [1], "test_examples: expected 5 positive integers"),
    ("test_examples", ["1"] * 5, "field test_examples: expected a list"),
    ("steps_done", -1, "field steps_done: expected an integer from 0"),
    ("steps_done", "2", "field steps_done: expected an integer from 0"),
    ("checkpoints", [], "field checkpoints: expected an object"),
    ("checkpoints", {"x": {}}, "field checkpoints: expected the number of a step as key, got 'x'"),
    ("checkpoints", {"7" * 5000: {}}, "field checkpoints: expected an object"),
    ("checkpoints", {"1": ["a"]}, "field checkpoints, step 1: expected the names file and sha256"),
    ("checkpoints", {"1": {"file": "a\0", "sha256": ""}}, "field checkpoints, step 1: expected the name of a file"),
    ("decisions", {"1": {"file": "/etc/passwd", "sha256": ""}}, "a checkpoint is outside the record"),
    ("software", "torch", "field software: expected an object"),
    ("hardware", 1, "field hardware: expected an object"),
]


@pytest.mark.parametrize(
    ("field", "value", "message"), MANIFEST_ERRORS, ids=[f"{e[0]}-{i}" for i, e in enumerate(MANIFEST_ERRORS)]
)
def test_wrong_fields_of_a_record_are_named(tmp_path: Path, field: str, value: Any, message: str) -> None:
    prepare_record(tmp_path)
    manifest = {**json.loads(record_manifest()), field: value}
    write(tmp_path / "record/record.json", json.dumps(manifest))
    with pytest.raises(InputError) as error:
        Record.open(tmp_path / "record")
    assert message in str(error.value)
    assert "record.json: " in str(error.value)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("field", ["learner", "tasks", "curriculum", "steps_done"])
def test_missing_fields_of_a_record_are_named(tmp_path: Path, field: str) -> None:
    prepare_record(tmp_path)
    manifest = json.loads(record_manifest())
    del manifest[field]
    write(tmp_path / "record/record.json", json.dumps(manifest))
    with pytest.raises(InputError, match=f"record.json: .*field {field} is missing"):
        Record.open(tmp_path / "record")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("cost.csv", "\n1,1,", "\n1,-1,", "row 2, column trained: expected at least 0, got -1"),
        ("accuracy.csv", "\n1,1,1,", "\n1,1,99999999999,", "column task: expected a task from 1 to 5, got 99999999999"),
        ("evaluations.csv", ",0.5\n", ",1.5\n", "row 2, column accuracy: expected a number between 0 and 1, got 1.5"),
        ("evaluations.csv", ",0.5\n", ",inf\n", "row 2, column accuracy: expected a number"),
    ],
)
def test_wrong_numbers_in_a_record_are_named(tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
    prepare_record(tmp_path)
    text = (tmp_path / "record" / file).read_text()
    assert old in text
    write(tmp_path / "record" / file, text.replace(old, new))
    with pytest.raises(InputError) as error:
        Record.open(tmp_path / "record")
    assert f"{file}, " in str(error.value)
    assert message in str(error.value)


# npz: a file of 2.4 MB used 2.6 GB.


def npy_header(shape: str, descr: str = "'|u1'") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy_header("(99999999999,)"), "array 'x': expected at most 32 dimensions, each up to 4294967296"),
        (npy_header("(99999999, 99)"), "array 'x': its shape needs 9899999901 bytes, but it has 0"),
        (npy_header("(-1,)"), "array 'x': expected at most 32 dimensions"),
        (npy_header("(2,)", "'|O'") + bytes(16), "array 'x': expected numbers or text, got type object"),
        (npy_header("(1,)", "[('a', '<i4')]") + bytes(4), "array 'x': expected numbers or text"),
        (npy_header(str((1,) * 40)) + bytes(1), "array 'x': expected at most 32 dimensions"),
        (npy_header("(1,)", "'<U1'") + b"\xff\xff\xff\x7f", "not an npz file of plain arrays"),
        (npy_header("(" * 500), "not an npz file of plain arrays"),
        (b"\x93NUMPY\x09\x00", "expected version 1.0 or 2.0"),
        (b"", "not an npz file of plain arrays"),
    ],
)
def test_declared_sizes_of_arrays_are_checked_before_they_are_read(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = write(tmp_path / "data.npz", pack_zip({"x.npy": content}))
    assert message in refused(read_npz_arrays, path)


def test_an_npz_file_that_expands_too_much_is_refused(tmp_path: Path) -> None:
    size = 200 * 2**20
    with (
        zipfile.ZipFile(tmp_path / "data.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x_train.npy", "w") as member,
    ):
        member.write(npy_header(f"({size},)"))
        for _ in range(size // 2**20):
            member.write(bytes(2**20))
    assert (tmp_path / "data.npz").stat().st_size < 2**20
    assert "expected the members to expand to at most" in refused(tasks.load, tmp_path / "data.npz")


# Archives


def test_encrypted_zip_files_are_refused(tmp_path: Path) -> None:
    content = bytearray(pack_zip({"train/a/1.png": b"x"}))
    content[6] |= 1  # the flag in the local header
    content[content.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
    message = refused(open_files, write(tmp_path / "images.zip", bytes(content)))
    assert "member 'train/a/1.png': the member is encrypted" in message


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside.png", "a/../../b", "a\\..\\..\\b"])
def test_names_outside_the_archive_are_refused(tmp_path: Path, name: str) -> None:
    message = refused(open_files, write(tmp_path / "images.zip", pack_zip({name: b"x"})))
    assert "expected a relative name without '..'" in message


def test_links_in_zip_files_and_members_that_occur_twice_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        link = zipfile.ZipInfo("train/a/1.png")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    assert "got a link or a device" in refused(open_files, tmp_path / "link.zip")
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("a.png", b"1")
        archive.writestr("a.png", b"2")
    assert "this name occurs twice" in refused(open_files, tmp_path / "twice.zip")


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MOST_MEMBERS", 3)
    names = [f"{number}.png" for number in range(4)]
    write(tmp_path / "a.zip", pack_zip(dict.fromkeys(names, b"x")))
    assert "expected at most 3 members" in refused(open_files, tmp_path / "a.zip")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    assert "expected at most 3 members" in refused(open_files, tmp_path / "a.tar")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
@pytest.mark.parametrize("read", [open_files, lambda path: read_members(path, {"test_batch"})])
def test_links_and_devices_in_tar_files_are_refused(
    tmp_path: Path, kind: bytes, read: Callable[[Path], object]
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        member = tarfile.TarInfo("test_batch")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    assert "member 'test_batch': expected a regular file or a folder" in refused(read, tmp_path / "a.tar")


def test_tar_members_of_a_large_declared_size_are_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("a.png")
    member.size = 2**33
    write(tmp_path / "a.tar", member.tobuf() + bytes(1024))
    assert "member 'a.png': expected at most" in refused(open_files, tmp_path / "a.tar")
    member = tarfile.TarInfo("name")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 2**30
    write(tmp_path / "a.tar", gzip.compress(member.tobuf() + bytes(2**20)))
    assert "expected parts of at most 1048576 bytes" in refused(open_files, tmp_path / "a.tar")


def test_a_compressed_tar_file_that_expands_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "FREE_EXPANSION", 2**20)
    with tarfile.open(tmp_path / "a.tar", "w:gz", compresslevel=1) as archive:
        for number in range(4):
            member = tarfile.TarInfo(f"{number}.png")
            member.size = 2**21
            archive.addfile(member, io.BytesIO(bytes(2**21)))
    assert "expected at most" in refused(open_files, tmp_path / "a.tar")


def test_images_of_too_many_pixels_and_other_formats_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    for name, content in {"a": picture("PNG"), "b": picture("PNG")}.items():
        for part in ("train", "test"):
            (folder / part / name).mkdir(parents=True)
            write(folder / part / name / "1.png", content)
    large = bytearray(picture("PNG"))
    large[16:24] = struct.pack(">II", 8000, 8000)
    large[29:33] = struct.pack(">I", zlib.crc32(large[12:29]))
    write(folder / "test/b/1.png", bytes(large))
    with pytest.raises(InputError, match=r"1\.png to have at most 33554432 pixels, got 8000 x 8000"):
        tasks.load(folder)
    write(folder / "test/b/1.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n")
    with pytest.raises(InputError, match=r"1\.png is not a readable image"):
        tasks.load(folder)


def test_torch_files_that_are_compressed_or_damaged_are_refused(tmp_path: Path) -> None:
    import torch

    from perdure.runs.loaded_run import read_run_weights

    torch.save({"w": torch.zeros(1000)}, tmp_path / "weights.pt")
    assert read_run_weights(tmp_path / "weights.pt")["w"].shape == (1000,)
    content = (tmp_path / "weights.pt").read_bytes()
    with zipfile.ZipFile(tmp_path / "weights.pt") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    packed = write(tmp_path / "packed.pt", pack_zip(members))
    assert "member 'weights/data/0': expected at most" in refused(read_run_weights, packed)
    locator = content.rindex(b"PK\x06\x07")  # its last field is the number of disks
    damaged = content[: locator + 16] + b"\xff\xff\xff\x7f" + content[locator + 20 :]
    assert "cannot be read as weights" in refused(read_run_weights, write(tmp_path / "damaged.pt", damaged))


# idx and gzip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\0\x08\x03" + b"\xff" * 12 + b"x", "expected 79228162458924105385300197375 bytes after the header, got 1"),
        (b"\0\0\x08\xff" + b"\1" * 2000, "expected 1 to 4 dimensions, got 255"),
        (b"\0\0\x08\x03\0\0\0\1", "expected 3 dimensions"),
        (b"\0\0\x08\x01\0\0\0\1xy", "expected 1 bytes after the header, got 2"),
    ],
)
def test_idx_files_that_declare_too_much_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    assert message in refused(read_idx, write(tmp_path / "idx", content))
    assert message.split(", got", maxsplit=1)[0] in refused(
        read_idx, write(tmp_path / "idx.gz", gzip.compress(content))
    )


def test_truncated_and_expanding_gzip_files_are_refused(tmp_path: Path) -> None:
    packed = gzip.compress(b"\0\0\x08\x01\0\0\x10\0" + bytes(4096))
    assert "not a complete gzip file" in refused(read_idx, write(tmp_path / "a.gz", packed[:-9]))
    assert "not a complete gzip file" in refused(read_idx, write(tmp_path / "a.gz", b"no gzip file"))
    size = 2**28
    with gzip.open(tmp_path / "b.gz", "wb", compresslevel=1) as file:
        file.write(b"\0\0\x08\x01" + struct.pack(">I", size))
    assert f"expected {size} bytes after the header, got at most" in refused(read_idx, tmp_path / "b.gz")


# Pickles: nested lists hung the reader.


def read_pickle(path: Path) -> object:
    return read_plain_pickle(path.name, path.read_bytes())


def doubled(levels: int) -> list[Any]:
    value: list[Any] = [1]
    for _ in range(levels):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"a": doubled(60)}), "more than 1000 values or 8 levels"),
        (pickle.dumps({"a": [[0] * 100] * 10}), "more than 1000 values"),
        (pickle.dumps({"a": {1, 2}}), "not a pickle of plain values"),
        # A key that is a tuple of tuples, made by DUP and TUPLE2 at each of 60 levels: its hash takes exponential time.
        (b"\x80\x02}K\x01" + b"2\x86" * 60 + b"K\x01s.", "key of type tuple"),
    ],
)
def test_pickles_that_stand_for_many_values_are_refused(
    tmp_path: Path, content: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_pickle, "MOST_VALUES", 1000)
    assert message in refused(read_pickle, write(tmp_path / "batch", content))


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x05\x96" + struct.pack("<Q", 2**34) + b"x.",  # a bytearray of 16 GB
        b"\x80\x05\x8e" + struct.pack("<Q", 2**34) + b"x.",  # bytes of 16 GB
        b"cnumpy\nndarray\n(I99999999999\ncnumpy\ndtype\n(S'u1'\ntR(I1\ntS'C'\ntR.",  # an array of so many zeros
        b"\x80\x02cnumpy\ndtype\nK\x01" + b"2\x86" * 60 + b"\x85R.",  # the text of a type
    ],
)
def test_pickles_that_declare_large_sizes_are_refused(tmp_path: Path, content: bytes) -> None:
    assert "not a pickle of plain values" in refused(read_pickle, write(tmp_path / "batch", content))


# User tables


def test_a_long_label_cannot_widen_all_labels(tmp_path: Path) -> None:
    rows = "1,x\n2,y\n" * 2000 + "3," + "z" * 1001 + "\n"
    message = refused(tasks.load, write(tmp_path / "data.csv", "a,class\n" + rows))
    assert "line 4002, column class: expected at most 1000 characters, got 1001" in message


def test_columns_of_words_cannot_ask_for_a_large_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from perdure.tasks.user_data import tables

    monkeypatch.setattr(tables, "_MOST_FEATURE_VALUES", 10_000)
    rows = "".join(f"{number},w{number // 2},{'xy'[number % 2]}\n" for number in range(200))
    message = refused(tasks.load, write(tmp_path / "data.csv", "a,b,class\n" + rows))
    assert "column b: the table has more than 10000 values" in message


# Exit code 2 and one line


@pytest.mark.parametrize(
    ("command", "name", "text"),
    [
        ("score", "matrix.csv", "after,task,accuracy\n1,99999999999,.5\n"),
        ("score", "matrix.json", '{"accuracy": [[0.5]], "cost": {"operations": [-1]}}'),
        ("score", "matrix.json", "[" * 100_000),
        ("fit", "curves.csv", "algorithm,step,trained,evaluated,performance\na,1,99999999999,1,.5\n"),
    ],
)
def test_commands_exit_with_code_2_and_one_line(perdure, tmp_path: Path, command: str, name: str, text: str) -> None:
    write(tmp_path / name, text)
    output = perdure(command, name, code=2)
    assert name in output.stderr
    assert "Traceback" not in output.stderr + output.stdout


# Global state


def test_loading_data_leaves_global_random_states_alone() -> None:
    """In a process of its own: the first import of scikit-learn drew from Python's generator."""
    script = """
import random
import numpy as np
state, numpy_state = random.getstate(), np.random.get_state()
from perdure import tasks
tasks.load("split-digits", seed=3, order_seed=1, per_class=20, validation=0.2)
assert random.getstate() == state
assert all(np.array_equal(a, b) for a, b in zip(numpy_state, np.random.get_state()))
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    state = random.getstate()
    tasks.load("split-digits", tasks=2)
    assert random.getstate() == state


def test_importing_perdure_does_not_change_warning_filters() -> None:
    """Filters that the dependencies add when they are imported are theirs."""
    script = """
import importlib, pkgutil, warnings
filters = list(warnings.filters)
import perdure
assert warnings.filters == filters
import numpy, scipy.stats, scipy.optimize, sklearn.datasets, torch, captum.attr, matplotlib.pyplot, skimage.segmentation, optuna
import PIL.Image, typer, rich.console, jinja2, pooch, quadprog, cattrs, safetensors
filters = list(warnings.filters)
for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
    # A plug-in imports its framework, which may change warning filters or not be installed.
    if module.name != "perdure.__main__" and not module.name.startswith("perdure.importers.plugins."):
        importlib.import_module(module.name)
added = [item for item in warnings.filters if item not in filters]
assert warnings.filters == filters, added
"""
    subprocess.run([sys.executable, "-c", script], check=True)
