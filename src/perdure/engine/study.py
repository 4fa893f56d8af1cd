"""Runs the units of a command with an engine, and says what is missing afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perdure.base.errors import InputError
from perdure.engine.status import UnitStatus
from perdure.engine.units import Engine, Outcome, Unit

OnOutcome = Callable[[Outcome], None]


@dataclass(frozen=True)
class StudyResult:
    """The outcomes of all units of a command, in the order of the units."""

    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> list[Outcome]:
        """The units that failed."""
        return [outcome for outcome in self.outcomes if outcome.state == "failed"]

    @property
    def elsewhere(self) -> list[Outcome]:
        """The units that belong to other shards and are not finished."""
        return [outcome for outcome in self.outcomes if outcome.state == "elsewhere"]

    @property
    def complete(self) -> bool:
        """Whether every unit is done."""
        return all(outcome.state == "done" for outcome in self.outcomes)

    def raise_error(self) -> None:
        """Raise the error of the only unit, or that of a unit if nothing but wrong input made units fail."""
        errors = [outcome.error for outcome in self.failed if outcome.error is not None]
        if len(self.outcomes) == 1 and errors and not _is_result(errors[0]):
            raise errors[0]
        if errors and all(type(error) is InputError for error in errors):
            raise errors[0]


def _is_result(error: Exception) -> bool:
    """Return whether an error is a result of the computation, such as a diverging loss, and not wrong input."""
    return isinstance(error, InputError) and type(error) is not InputError


class IncompleteStudyError(RuntimeError):
    """Units failed, or belong to other shards. What is finished is stored; ``result`` has all outcomes."""

    def __init__(self, result: StudyResult) -> None:
        failed, others = len(result.failed), len(result.elsewhere)
        first = f"; {result.failed[0].unit.label}: {result.failed[0].error}" if failed else ""
        super().__init__(f"{failed} units failed and {others} are left to other shards{first}")
        self.result = result


def raise_incomplete(result: StudyResult) -> None:
    """Raise `IncompleteStudyError` if a unit is missing, or `InputError` if wrong input is the reason."""
    result.raise_error()
    if not result.complete:
        raise IncompleteStudyError(result)


def run_units(engine: Engine, units: Sequence[Unit], on_outcome: OnOutcome | None = None) -> StudyResult:
    """Run the units that have no stored result, and return the outcomes of all.

    A unit that fails does not stop the others. The engine's observer, and ``on_outcome``, are called as units finish.

    Examples
    --------
    >>> from perdure import engine
    >>> from perdure.engine.local import LocalEngine
    >>> def square(context, number):
    ...     return number**2
    >>> units = []
    >>> for number in range(3):
    ...     name = engine.unit_name("square", number)
    ...     units.append(
    ...         engine.Unit(name, f"square {number}", square, {"number": number})
    ...     )
    >>> with LocalEngine(workers=1) as here:
    ...     result = engine.run_units(here, units)
    >>> [outcome.value for outcome in result.outcomes]
    [0, 1, 4]
    """
    if engine.observer is not None:
        engine.observer.begin(units)

    def end(outcome: Outcome) -> None:
        if engine.observer is not None:
            engine.observer.end(outcome)
        if on_outcome is not None:
            on_outcome(outcome)

    names = [unit.name for unit in units]
    if len(set(names)) < len(names):
        repeated = next(unit for unit in units if names.count(unit.name) > 1)
        raise InputError(f"{repeated.label}: the study has this unit twice")
    if engine.status is not None and units:
        engine.status.write_plan(units)
        for unit in units:
            if unit.finished and engine.status.read(unit.name).state != "done":
                engine.status.write(UnitStatus(unit.name, unit.label, "done"))
    outcomes: dict[str, Outcome] = {unit.name: Outcome(unit, "done") for unit in units if unit.finished}
    for outcome in outcomes.values():
        end(outcome)
    # Shards are dealt out over all units, finished or not.
    for outcome in engine.run(units):
        if outcome.unit.name not in outcomes:
            outcomes[outcome.unit.name] = outcome
            end(outcome)
    return StudyResult(tuple(outcomes[name] for name in names))
