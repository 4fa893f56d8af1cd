"""One process at a time works in a folder."""

import errno
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import filelock
import pytest

from perdure.base.errors import InputError
from perdure.base.files import lock_folder, write_atomically

HOLD = """
import sys, time
from pathlib import Path
from perdure.base.files import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def start_holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_second_process_is_refused_at_once_until_the_first_one_dies(tmp_path):
    process = start_holder(tmp_path)
    try:
        start = time.monotonic()
        with pytest.raises(InputError, match="another process is using this folder"), lock_folder(tmp_path):
            pass
        assert time.monotonic() - start < 1
    finally:
        process.kill()
        process.wait()
    with lock_folder(tmp_path):
        pass


def test_a_lock_leaves_no_file_and_can_be_taken_again(tmp_path):
    for _ in range(2):
        with lock_folder(tmp_path):
            (tmp_path / "result").write_text("x")
        assert [path.name for path in tmp_path.iterdir()] == ["result"]
    with pytest.raises(KeyError), lock_folder(tmp_path):
        raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_nested_locks_on_different_folders(tmp_path):
    (tmp_path / "inner").mkdir()
    with lock_folder(tmp_path), lock_folder(tmp_path / "inner"):
        with pytest.raises(InputError, match="another process"), lock_folder(tmp_path):
            pass
        with pytest.raises(InputError, match="another process"), lock_folder(tmp_path / "inner"):
            pass
    with lock_folder(tmp_path / "inner"):
        pass


def test_a_read_only_folder_is_not_locked(tmp_path, monkeypatch):
    def refuse(self: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    monkeypatch.setattr(os, "access", lambda *_: False)  # permissions do not bind root, which may run these tests
    with lock_folder(tmp_path):
        pass
    monkeypatch.setattr(os, "access", lambda *_: True)
    with pytest.raises(InputError, match=r"cannot lock this folder \(Permission denied\)"), lock_folder(tmp_path):
        pass


NO_LOCKS = """
import errno, fcntl
def flock(handle, operation):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = flock
"""


def test_a_file_system_without_locks_uses_the_existence_of_the_file_and_takes_over_the_lock_of_a_dead_process(
    tmp_path, monkeypatch
):
    """As on some network file systems."""

    def no_locks(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    process = subprocess.Popen(
        [sys.executable, "-c", NO_LOCKS + HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "locked\n"
        message = rf"another process is using this folder \(process {process.pid}; if it has died on another machine"
        with pytest.raises(InputError, match=message), lock_folder(tmp_path):
            pass
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / ".lock-holder").exists()
    with lock_folder(tmp_path):
        assert (tmp_path / ".lock-holder").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_rename_is_synced_to_disk(tmp_path, monkeypatch):
    """After a power failure, the folder must hold the new name; the file itself is synced before the rename."""
    synced: list[int] = []
    fsync = os.fsync

    def record(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record)
    write_atomically(tmp_path / "file", b"content")
    assert synced == [(tmp_path / "file").stat().st_ino, tmp_path.stat().st_ino]


def test_temporary_files_of_dead_processes_are_removed_and_those_of_others_stay(tmp_path):
    node = platform.node()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = [
        f".file-{node}-{dead.pid}-abc.tmp",
        f".file-{node}-{os.getpid()}-abc.tmp",
        f".file-another-{dead.pid}-abc.tmp",
    ]
    for name in left:
        (tmp_path / name).write_bytes(b"half")
    write_atomically(tmp_path / "file", b"content")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["file", *left[1:]])
