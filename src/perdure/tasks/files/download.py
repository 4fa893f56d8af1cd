"""Official files: on disk or downloaded, their checksum checked; a cut download goes on where it stopped."""

from __future__ import annotations

import os
import sys
import zipfile
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from perdure.base.errors import InputError
from perdure.tasks.files.wording import reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_BLOCK = 1 << 18
_TIMEOUT = 30


@dataclass(frozen=True)
class Remote:
    """A file of the data folder and where it comes from.

    ``digest`` is ``algorithm:sum``, or None where its makers publish none; ``size`` is in bytes.
    """

    path: str
    url: str
    digest: str | None
    size: int

    def address(self) -> str:
        """Return the official address, or the file's place on the mirror that PERDURE_MIRROR names."""
        mirror = os.environ.get("PERDURE_MIRROR")
        if not mirror:
            return self.url
        if not mirror.startswith(("http://", "https://")):
            raise InputError(f"PERDURE_MIRROR={mirror}: expected an address that starts with http:// or https://")
        return f"{mirror.rstrip('/')}/{self.path}"


def data_folder(data_dir: str | os.PathLike[str] | None) -> Path:
    """Return where data files are: the folder given, else $PERDURE_DATA, else the platform's cache folder."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if given := os.environ.get("PERDURE_DATA"):
        return Path(given).expanduser()
    import pooch  # noqa: PLC0415  (brings requests along, which most loads do not need)

    return Path(pooch.os_cache("perdure"))


def verify(path: Path, digest: str | None) -> Path:
    """Return the path if its content has that checksum; None checks nothing."""
    if digest is not None and (found := _sum_of(path, digest)) != digest:
        raise InputError(
            f"{path}: its checksum is {found}, the official file's is {digest}; it is damaged or another"
            " file: delete it to download it again, or put the official one in its place"
        )
    return path


def _sum_of(path: Path, digest: str) -> str:
    """Return the file's checksum in the algorithm of ``digest``."""
    import pooch  # noqa: PLC0415

    algorithm = digest.split(":", maxsplit=1)[0]
    return f"{algorithm}:{pooch.file_hash(str(path), alg=algorithm)}"


def fetch(remote: Remote, folder: Path, progress: bool = True) -> Path:
    """Return the file's place in the folder, downloaded if it was not there; its checksum is checked."""
    import pooch  # noqa: PLC0415

    target = folder / remote.path
    if target.exists():
        return verify(target, remote.digest)
    url = remote.address()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target):
            if target.exists():  # another process has just finished it
                return verify(target, remote.digest)
            store = pooch.create(
                path=folder, base_url="", registry={remote.path: remote.digest}, urls={remote.path: url}
            )
            store.fetch(remote.path, downloader=ResumingDownloader(target, remote, progress))
    except (OSError, HTTPException) as error:
        wanted = f" ({remote.digest})" if remote.digest else ""
        kept = "; what has arrived is kept" if _part(target).exists() else ""
        raise InputError(
            f"cannot download {url} ({_reason(error)}{kept}): check network and disk and run again, or put"
            f" the file by hand at {target}{wanted}"
        ) from error
    return target


def _reason(error: Exception) -> str:
    """Say in a few words on one line what went wrong."""
    if isinstance(error, HTTPError):
        return f"the server answers {error.code} {error.reason}"
    return reason(error.reason if isinstance(error, URLError) and isinstance(error.reason, OSError) else error)


def _part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Let one process at a time download the file; the others wait and then find it there."""
    try:
        import fcntl  # noqa: PLC0415
    except ImportError:
        yield  # not on this platform: two that download at once would meet a wrong checksum
        return
    with (target.parent / ".lock").open("w") as handle:  # stays there: removing it would let two in at once
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class ResumingDownloader:
    """A downloader for pooch that keeps what has arrived in ``<file>.part`` and asks only for the rest."""

    def __init__(self, target: Path, remote: Remote, progress: bool) -> None:
        self.part = _part(target)
        self.target = target
        self.remote = remote
        self.progress = progress

    def __call__(self, url: str, output_file: str, _pooch: object) -> None:
        """Download to the file that pooch names; a broken connection is taken up while it brings bytes."""
        with _bar(self.target.name, self.remote.size, self.progress) as bar:
            whole = False
            while not whole:
                before = self._have()
                try:
                    whole = self._receive(url, bar)
                except HTTPError:
                    raise
                except (OSError, HTTPException):
                    if self._have() <= before:
                        raise
        if flaw := self._flaw():
            self.part.unlink()
            raise InputError(
                f"{url}: {flaw}; it was not kept: try again, or put the right file by hand at {self.target}"
            )
        self.part.replace(output_file)

    def _flaw(self) -> str:
        """Say what is wrong with the download; without a known checksum it must at least be a zip file."""
        name, digest = self.target.name, self.remote.digest
        if digest is None:
            return "" if zipfile.is_zipfile(self.part) else f"the downloaded {name} is not a whole zip file"
        found = _sum_of(self.part, digest)
        if found == digest:
            return ""
        return f"the checksum of the downloaded {name} is {found}, the official file's is {digest}"

    def _have(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _receive(self, url: str, bar: Bar) -> bool:
        """Add what the server sends to the part; True once the file is whole, False to start over."""
        have = self._have()
        headers = {"User-Agent": "perdure", "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        try:
            response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=_TIMEOUT)  # noqa: S310
        except HTTPError as error:
            if error.code != 416 or not have:
                raise
            # The part is as long as the file, or longer than it: whole, or of no use.
            if error.headers.get("Content-Range") == f"bytes */{have}":
                return True
            self.part.unlink()
            return False
        with response:
            resumed = response.status == 206
            length = response.headers.get("Content-Length")
            whole = None if length is None else int(length) + (have if resumed else 0)
            bar.begin(have if resumed else 0, whole)
            with self.part.open("ab" if resumed else "wb") as part:
                while block := response.read(_BLOCK):
                    part.write(block)
                    bar.advance(len(block))
        if whole is not None and self._have() < whole:
            raise ConnectionError(f"the connection broke at {self._have()} of {whole} bytes")
        return True


class Bar:
    """A progress bar that may not be there."""

    def __init__(self, rich_progress: Any = None, task: Any = None) -> None:
        self.rich_progress = rich_progress
        self.task = task

    def begin(self, have: int, whole: int | None) -> None:
        """Start from what is there already."""
        if self.rich_progress:
            self.rich_progress.update(self.task, completed=have, total=whole)

    def advance(self, count: int) -> None:
        """Count bytes that arrived."""
        if self.rich_progress:
            self.rich_progress.advance(self.task, count)


def _bar(name: str, size: int, progress: bool) -> AbstractContextManager[Bar]:
    """Return a bar on a terminal, and none in a pipe."""
    if not (progress and sys.stderr.isatty()):
        return nullcontext(Bar())
    return _rich_bar(name, size)


@contextmanager
def _rich_bar(name: str, size: int) -> Iterator[Bar]:
    from rich import progress as rich  # noqa: PLC0415  (only on a terminal)
    from rich.console import Console  # noqa: PLC0415

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.DownloadColumn(),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True)) as shown:
        yield Bar(shown, shown.add_task(name, total=size))
