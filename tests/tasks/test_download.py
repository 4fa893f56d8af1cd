"""Downloads are verified and resumed, and failures are explained; tested with a server that breaks connections."""

from __future__ import annotations

import hashlib
import io
import socket
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perdure.base.errors import InputError
from perdure.tasks.files.download import Remote, fetch, verify
from perdure.tasks.loading import data_folder
from tests.helpers.loopback import Site, serve

CONTENT = np.random.default_rng(0).integers(0, 256, 3_000_000, dtype=np.uint8).tobytes()


def remote(content: bytes = CONTENT, path: str = "data/file.bin") -> Remote:
    digest = "md5:" + hashlib.md5(content, usedforsecurity=False).hexdigest()
    return Remote(path, f"http://official.invalid/{path}", digest, len(content))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with serve(Site(files={"data/file.bin": CONTENT})) as running:
        monkeypatch.setenv("PERDURE_MIRROR", running.address)
        yield running


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_a_download_arrives_once_and_is_then_found_on_disk(site: Site, tmp_path: Path) -> None:
    path = fetch(remote(), tmp_path)
    assert path == tmp_path / "data" / "file.bin"
    assert path.read_bytes() == CONTENT
    assert fetch(remote(), tmp_path) == path
    assert site.requests == [("/data/file.bin", None)]
    assert files_in(tmp_path) == {"file.bin"}


def test_a_broken_download_resumes_where_it_stopped(site: Site, tmp_path: Path) -> None:
    site.cuts = [1_000_000, 700_000]
    assert fetch(remote(), tmp_path).read_bytes() == CONTENT
    starts = [0 if byte_range is None else int(byte_range[6:-1]) for _, byte_range in site.requests]
    assert len(starts) == 3
    assert starts[0] == 0 < starts[1] <= 1_000_000
    assert starts[1] < starts[2] <= starts[1] + 700_000


def test_the_part_of_an_earlier_download_is_not_downloaded_again(site: Site, tmp_path: Path) -> None:
    site.cuts = [2_000_000, 0]  # the second response is empty: the download fails
    with pytest.raises(InputError, match="The part that arrived is kept"):
        fetch(remote(), tmp_path)
    part = tmp_path / "data" / "file.bin.part"
    size = part.stat().st_size
    assert 0 < size <= 2_000_000
    assert part.read_bytes() == CONTENT[:size]
    site.requests.clear()
    assert fetch(remote(), tmp_path).read_bytes() == CONTENT
    assert site.requests == [("/data/file.bin", f"bytes={size}-")]
    assert files_in(tmp_path) == {"file.bin"}


def test_a_complete_part_is_used(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file.bin.part").write_bytes(CONTENT)
    assert fetch(remote(), tmp_path).read_bytes() == CONTENT
    assert len(site.requests) == 1


def test_a_part_that_is_too_long_is_deleted(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(remote(), tmp_path).read_bytes() == CONTENT


def test_without_range_requests_the_download_starts_again(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    site.cuts = [500_000]
    assert fetch(remote(), tmp_path).read_bytes() == CONTENT
    assert len(site.requests) == 2


def test_a_download_with_the_wrong_checksum_is_deleted(site: Site, tmp_path: Path) -> None:
    site.files["data/file.bin"] = b"something else"
    wrong = hashlib.md5(b"something else", usedforsecurity=False).hexdigest()
    with pytest.raises(InputError) as error:
        fetch(remote(), tmp_path)
    message = str(error.value)
    assert "file.bin" in message
    assert wrong in message
    assert str(remote().digest) in message
    assert str(tmp_path / "data" / "file.bin") in message
    assert "\n" not in message
    assert files_in(tmp_path) == set()
    site.files["data/file.bin"] = CONTENT
    assert fetch(remote(), tmp_path).read_bytes() == CONTENT


def test_a_file_without_a_published_checksum_must_be_a_complete_zip(site: Site, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("BBC.txt", "1 1:2")
    unknown = replace(remote(), digest=None)
    for page in (b"<html>please log in</html>", packed.getvalue()[:-8]):
        site.files["data/file.bin"] = page
        with pytest.raises(InputError, match="not a complete zip file"):
            fetch(unknown, tmp_path)
        assert files_in(tmp_path) == set()
    site.files["data/file.bin"] = packed.getvalue()
    assert fetch(unknown, tmp_path).read_bytes() == packed.getvalue()


def test_a_part_of_another_file_is_deleted(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file.bin.part").write_bytes(b"x" * 1000)
    with pytest.raises(InputError, match="The download was deleted"):
        fetch(remote(), tmp_path)
    assert fetch(remote(), tmp_path).read_bytes() == CONTENT


def test_a_damaged_file_on_disk_is_named_with_both_checksums_and_not_changed(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "data" / "file.bin"
    path.parent.mkdir()
    path.write_bytes(CONTENT[:-1])
    actual = hashlib.md5(CONTENT[:-1], usedforsecurity=False).hexdigest()
    with pytest.raises(InputError) as error:
        fetch(remote(), tmp_path)
    for word in (str(path), actual, str(remote().digest), "Delete it"):
        assert word in str(error.value)
    with pytest.raises(InputError, match="Delete it"):
        verify(path, remote().digest)
    assert path.read_bytes() == CONTENT[:-1]
    assert site.requests == []


def test_a_file_missing_on_the_server_gives_404_and_the_path_to_put_it(site: Site, tmp_path: Path) -> None:
    gone = remote(path="data/gone.bin")
    with pytest.raises(InputError) as error:
        fetch(gone, tmp_path)
    for word in (
        f"{site.address}/data/gone.bin",
        "404",
        str(tmp_path / "data" / "gone.bin"),
        str(gone.digest),
    ):
        assert word in str(error.value)
    assert len(site.requests) == 1
    assert files_in(tmp_path) == set()


def test_without_network_the_message_names_the_file_and_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PERDURE_MIRROR", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(InputError) as error:
            fetch(remote(), tmp_path)
    for word in ("cannot download", "by hand", str(tmp_path / "data" / "file.bin"), str(remote().digest)):
        assert word in str(error.value)
    assert "\n" not in str(error.value)
    (tmp_path / "data" / "file.bin").write_bytes(CONTENT)  # by hand
    assert fetch(remote(), tmp_path).read_bytes() == CONTENT


def test_an_unwritable_folder_is_an_input_error(site: Site, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    with pytest.raises(InputError, match="taken"):
        fetch(remote(), tmp_path / "taken")


def test_concurrent_calls_download_once(site: Site, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: fetch(remote(), tmp_path), range(4)))
    assert {path.read_bytes() for path in paths} == {CONTENT}
    assert len(site.requests) == 1


def test_the_progress_bar_is_shown_on_a_terminal_only(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(remote(), tmp_path / "pipe")
    assert "MB" not in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    fetch(remote(), tmp_path / "quiet", progress=False)
    assert "MB" not in capsys.readouterr().err
    fetch(remote(), tmp_path / "terminal")
    assert "3.0/3.0 MB" in capsys.readouterr().err


def test_a_mirror_must_be_an_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PERDURE_MIRROR", "file:///etc")
    with pytest.raises(InputError, match="PERDURE_MIRROR"):
        fetch(remote(), tmp_path)


def test_the_data_folder_is_the_argument_then_the_environment_then_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PERDURE_DATA", str(tmp_path / "environment"))
    assert data_folder(tmp_path / "given") == tmp_path / "given"
    assert data_folder(None) == tmp_path / "environment"
    monkeypatch.delenv("PERDURE_DATA")
    assert data_folder(None).name == "perdure"
