"""Downloads of official files, with checksums; an interrupted download resumes where it stopped."""

from __future__ import annotations

import os
import sys
import zipfile
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from perdure.base.errors import InputError, error_message
from perdure.base.files import lock_folder
from perdure.tasks.benchmark import keep_random_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from rich.progress import Progress, TaskID

_BLOCK = 1 << 18
_TIMEOUT = 30


@dataclass(frozen=True)
class Remote:
    """A file of the data folder and its address.

    ``digest`` is ``algorithm:checksum``, or None if no checksum is published. ``size`` is in bytes.
    """

    path: str
    url: str
    digest: str | None
    size: int

    def address(self) -> str:
        """Return the official address, or the address on the mirror if PERDURE_MIRROR is set."""
        mirror = os.environ.get("PERDURE_MIRROR")
        if not mirror:
            return self.url
        if not mirror.startswith(("http://", "https://")):
            raise InputError(f"PERDURE_MIRROR={mirror}: expected an address that starts with http:// or https://.")
        return f"{mirror.rstrip('/')}/{self.path}"


def verify(path: Path, digest: str | None) -> Path:
    """Return the path if the file has this checksum; None skips the check."""
    if digest is not None and (actual := _checksum(path, digest)) != digest:
        raise InputError(
            f"{path}: expected the checksum {digest} of the official file, got {actual}. The file is damaged or is another"
            " file. Delete it to download it again, or replace it by the official file."
        )
    return path


def _checksum(path: Path, digest: str) -> str:
    """Return the checksum of the file, computed with the algorithm of ``digest``."""
    import pooch  # noqa: PLC0415

    algorithm = digest.split(":", maxsplit=1)[0]
    return f"{algorithm}:{pooch.file_hash(str(path), alg=algorithm)}"


def fetch(remote: Remote, folder: Path, progress: bool = True) -> Path:
    """Return the path of the file in the folder; download it if it is missing. Its checksum is verified."""
    import pooch  # noqa: PLC0415

    target = folder / remote.path
    if target.exists():
        return verify(target, remote.digest)
    url = remote.address()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with lock_folder(target.parent, wait=True):
            if target.exists():  # another process downloaded it in the meantime
                return verify(target, remote.digest)
            store = pooch.create(
                path=folder, base_url="", registry={remote.path: remote.digest}, urls={remote.path: url}
            )
            store.fetch(remote.path, downloader=ResumingDownloader(target, remote, progress))
    except (OSError, HTTPException) as error:
        checksum = f" (checksum {remote.digest})" if remote.digest else ""
        partial = ". The part that arrived is kept" if _part(target).exists() else ""
        raise InputError(
            f"cannot download {url}: {_reason(error)}{partial}. Check the network and the disk and run the command again,"
            f" or put the file at {target} by hand{checksum}."
        ) from error
    return target


def _reason(error: Exception) -> str:
    """Return the cause of a failed download on one line."""
    if isinstance(error, HTTPError):
        return f"the server responded {error.code} {error.reason}"
    return error_message(error.reason if isinstance(error, URLError) and isinstance(error.reason, OSError) else error)


def _part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


class ResumingDownloader:
    """A downloader for pooch that stores the data in ``<file>.part`` and requests only the missing part."""

    def __init__(self, target: Path, remote: Remote, progress: bool) -> None:
        self.part = _part(target)
        self.target = target
        self.remote = remote
        self.progress = progress

    def __call__(self, url: str, output_file: str, _pooch: object) -> None:
        """Download to ``output_file``. After a broken connection, try again as long as each attempt brings data."""
        with _progress_bar(self.target.name, self.remote.size, self.progress) as bar:
            complete = False
            while not complete:
                size_before = self._size()
                try:
                    complete = self._receive(url, bar)
                except HTTPError:
                    raise
                except (OSError, HTTPException):
                    if self._size() <= size_before:
                        raise
        if problem := self._problem():
            self.part.unlink()
            raise InputError(
                f"{url}: {problem}. The download was deleted. Try again, or put the official file at {self.target} by hand."
            )
        self.part.replace(output_file)

    def _problem(self) -> str:
        """Return what is wrong with the download, or ``""``. A file without a checksum must at least be a zip file."""
        name, digest = self.target.name, self.remote.digest
        if digest is None:
            return "" if zipfile.is_zipfile(self.part) else f"the downloaded {name} is not a complete zip file"
        actual = _checksum(self.part, digest)
        return "" if actual == digest else f"expected the checksum {digest} for {name}, got {actual}"

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _receive(self, url: str, bar: ProgressBar) -> bool:
        """Append the response to the part; return True if the file is complete, False to start again."""
        size = self._size()
        headers = {"User-Agent": "perdure", "Accept-Encoding": "identity"}
        if size:
            headers["Range"] = f"bytes={size}-"
        try:
            response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=_TIMEOUT)  # noqa: S310
        except HTTPError as error:
            if error.code != 416 or not size:
                raise
            # The part is at least as long as the file: complete if it has exactly this length, otherwise useless.
            if error.headers.get("Content-Range") == f"bytes */{size}":
                return True
            self.part.unlink()
            return False
        with response:
            resumed = response.status == 206
            length = response.headers.get("Content-Length")
            total = None if length is None else int(length) + (size if resumed else 0)
            bar.begin(size if resumed else 0, total)
            with self.part.open("ab" if resumed else "wb") as part:
                while block := response.read(_BLOCK):
                    part.write(block)
                    bar.advance(len(block))
        if total is not None and self._size() < total:
            raise ConnectionError(f"the connection broke after {self._size()} of {total} bytes")
        return True


class ProgressBar:
    """A progress bar, or a substitute that shows nothing."""

    def __init__(self, rich_progress: Progress | None = None, task: TaskID | None = None) -> None:
        self.rich_progress = rich_progress
        self.task = task

    def begin(self, completed: int, total: int | None) -> None:
        """Start from the bytes that are already there."""
        if self.rich_progress is not None and self.task is not None:
            self.rich_progress.update(self.task, completed=completed, total=total)

    def advance(self, count: int) -> None:
        """Add the number of bytes that arrived."""
        if self.rich_progress is not None and self.task is not None:
            self.rich_progress.advance(self.task, count)


def _progress_bar(name: str, size: int, progress: bool) -> AbstractContextManager[ProgressBar]:
    """Return a bar that is shown on a terminal only."""
    if not (progress and sys.stderr.isatty()):
        return nullcontext(ProgressBar())
    return _rich_progress_bar(name, size)


@contextmanager
def _rich_progress_bar(name: str, size: int) -> Iterator[ProgressBar]:
    with keep_random_state():
        from rich import progress as rich  # noqa: PLC0415  (needed only on a terminal)
        from rich.console import Console  # noqa: PLC0415

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.DownloadColumn(),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True)) as rich_progress:
        yield ProgressBar(rich_progress, rich_progress.add_task(name, total=size))
