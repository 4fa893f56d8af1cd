"""Runs all units of a call before the rest of the call: those that are missing afterwards raise an error."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence

from perdure.engine.local import can_be_sent
from perdure.engine.study import IncompleteStudyError, StudyResult, raise_incomplete, run_units
from perdure.engine.units import Engine, Outcome, Unit

Progress = Callable[[int, int], None]


class NotDistributedWarning(UserWarning):
    """Objects cannot be sent to other processes, so everything is computed in this process."""


def complete_units(engine: Engine, units: Sequence[Unit], progress: Progress | None = None) -> StudyResult:
    """Run units; raise the `InputError` of a unit, or `IncompleteStudyError` unless all are done."""
    result = run_available_units(engine, units, progress)
    raise_incomplete(result)
    return result


def run_available_units(engine: Engine, units: Sequence[Unit], progress: Progress | None = None) -> StudyResult:
    """Run units as `complete_units` does, but accept that units of other shards are not finished."""
    done = 0

    def count(outcome: Outcome) -> None:
        nonlocal done
        done += outcome.state == "done"
        if progress is not None:
            progress(done, len(units))

    result = run_units(engine, units, count)
    result.raise_error()
    if result.failed:
        raise IncompleteStudyError(result)
    return result


def joined_errors(errors: Iterable[IncompleteStudyError]) -> IncompleteStudyError:
    """Return one error for the units of several calls."""
    return IncompleteStudyError(StudyResult(tuple(outcome for error in errors for outcome in error.result.outcomes)))


def is_distributable(what: str, *objects: object) -> bool:
    """Return whether objects can be sent to other processes; a warning says so if they cannot."""
    if can_be_sent(*objects):
        return True
    warnings.warn(
        f"{what} cannot be sent to another process; everything is computed in this process. Define functions and classes in "
        "a file, at its top level",
        NotDistributedWarning,
        stacklevel=3,
    )
    return False
