"""Mutated files never give a traceback, hang, fill the memory or execute something.

``make soak`` reads 100,000 mutated files per reader. A failing file is saved; benchmarks/fuzz_readers.py repeats it.
"""

import sys
from pathlib import Path

import pytest

from tests.fuzz.readers import READERS
from tests.fuzz.runner import MEMORY, SECONDS, Outcome, fuzz

NAMES = [reader.name for reader in READERS]
FILES = 2_000
SOAK_FILES = 100_000

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured with /proc")


def check(outcomes: list[Outcome], names: list[str], files: int) -> None:
    failures = [failure for outcome in outcomes for failure in outcome.failures]
    assert not failures, "\n\n".join(failures)
    assert [outcome.reader for outcome in outcomes] == names
    for outcome in outcomes:
        assert outcome.files == files
        assert 0 < outcome.refused < files  # the mutations are neither too weak nor too strong
        assert outcome.slowest < SECONDS
        assert outcome.peak < MEMORY


def test_there_are_at_least_20_readers_with_different_names():
    assert len(set(NAMES)) == len(NAMES) >= 20


@pytest.mark.extra
@pytest.mark.parametrize("group", range(4))
def test_mutated_files_are_read_or_refused_with_one_line(group: int, tmp_path: Path) -> None:
    names = NAMES[group * len(NAMES) // 4 : (group + 1) * len(NAMES) // 4]
    check(fuzz(names, FILES, 0, tmp_path), names, FILES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_mutated_files_are_read_or_refused_with_one_line(name: str, tmp_path: Path) -> None:
    check(fuzz([name], SOAK_FILES, 1, tmp_path), [name], SOAK_FILES)


def test_mutated_files_depend_on_reader_seed_and_number_only() -> None:
    for reader in READERS:
        assert reader.mutated(3, 7) == reader.mutated(3, 7)
    assert len({READERS[0].mutated(seed, 0) for seed in range(20)}) > 10


def test_the_runner_reports_exceptions_hangs_memory_commands_and_crashes(tmp_path: Path) -> None:
    names = ["self-test-error", "self-test-hang", "self-test-memory", "self-test-command", "self-test-crash"]
    outcomes = {outcome.reader: outcome for outcome in fuzz(names, 1, 0, tmp_path)}
    for name, expected in zip(
        names, ("ZeroDivisionError", "more than 5 seconds", "MB of memory", "os.system", "hung or crashed"), strict=True
    ):
        (failure,) = outcomes[name].failures
        assert expected in failure
        assert name in failure
    saved = tmp_path / "failures" / "self-test-error-seed-0-file-0-file"
    assert str(saved) in outcomes["self-test-error"].failures[0]
    assert saved.is_file()
