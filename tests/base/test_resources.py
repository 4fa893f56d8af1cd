"""Peak memory, sizes of folders, and the time of jobs on several workers."""

import pytest

from perdure.base.resources import folder_bytes, peak_memory, present_memory, reset_peak_memory, time_on_workers


@pytest.mark.parametrize(
    ("seconds", "workers", "expected"),
    [
        ([], 3, 0.0),
        ([2.0] * 8, 1, 16.0),
        ([2.0] * 8, 2, 8.0),
        ([2.0] * 9, 2, 10.0),
        ([1.0] * 3, 8, 1.0),
        ([5.0, 1.0, 1.0, 1.0], 2, 5.0),
        ([1.0, 1.0, 5.0], 2, 6.0),  # in the given order, as an engine takes them
    ],
)
def test_each_worker_takes_the_next_job_when_it_is_free(seconds, workers, expected):
    assert time_on_workers(seconds, workers) == pytest.approx(expected)


def test_the_peak_counts_memory_that_was_freed_until_it_is_reset():
    reset_peak_memory()
    block = bytearray(200_000_000)
    block[::4096] = b"x" * len(block[::4096])
    del block
    assert peak_memory() > present_memory() + 150_000_000
    reset_peak_memory()
    assert peak_memory() < present_memory() + 50_000_000


def test_the_size_of_a_folder_includes_the_folders_below(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "a").write_bytes(b"123")
    (tmp_path / "below" / "b").write_bytes(b"4567")
    assert folder_bytes(tmp_path) == 7
