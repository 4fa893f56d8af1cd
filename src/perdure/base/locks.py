"""Locks: only one process at a time works in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from perdure.base.errors import InputError

LOCK = ".lock"


@contextmanager
def lock_folder(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder for this process.

    If the folder is locked already, raise `InputError` at once, or wait for the lock if ``wait`` is true. The lock is the
    file ``.lock`` in the folder. It is removed on release; if the process dies, the operating system releases the lock and
    the file has no effect. A read-only folder is not locked, because nothing can be written to it.
    """
    lock = _acquire(folder, wait)
    try:
        yield
    finally:
        if lock is not None:
            # The file is removed before the release. A process that opened it earlier sees that it has no name left and
            # tries again (filelock 3.20.4 and later). Windows cannot remove an open file; there filelock removes it.
            with suppress(OSError):
                (folder / LOCK).unlink()
            lock.release()


def _acquire(folder: Path, wait: bool) -> BaseFileLock | None:
    lock = FileLock(folder / LOCK, timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(
            f"{folder}: another process is using this folder. Wait until it finishes, or choose another folder."
        ) from None
    except OSError as error:
        if os.access(folder, os.W_OK):
            raise InputError(f"{folder}: cannot lock this folder ({error.strerror}).") from error
        return None
    return lock
