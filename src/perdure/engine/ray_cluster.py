"""Units as tasks of a Ray cluster. Results are files in a folder that all nodes share."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from perdure.base.errors import InputError, error_message
from perdure.engine.execution import Attempt, execute_unit
from perdure.engine.local import (
    ATTEMPTS,
    BUSY_SECONDS,
    check_units,
    mark_failed,
    may_try_again,
    outcome_of,
)
from perdure.engine.status import StatusFolder
from perdure.engine.units import Observer, Outcome, Unit, WorkerDiedError

UNITS_PER_CORE = 4
"""Tasks that wait in the cluster for each of its cores; the others wait in the driver, so that time is linear in units."""
FEWEST_WAITING = 64


@dataclass
class RayEngine:
    """Runs units as tasks of the Ray cluster at ``address``, or of a new one on this machine.

    Ray starts a task where its cores, GPUs and memory are free, and starts it again elsewhere if its process or its node dies.
    The packages must be installed on all nodes, and the folders of the study shared.
    """

    address: str | None = None
    status: StatusFolder | None = None
    workers: int | None = None
    """Number of units that run at the same time; by default as many as the cluster has room for."""
    observer: Observer | None = None
    threads: int = 1
    attempts: int = ATTEMPTS
    connected: bool = False

    def __enter__(self) -> Self:
        ray = _import_ray()
        if not ray.is_initialized():
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise InputError(f"--address {self.address}: no Ray cluster there ({error_message(error)})") from None
            self.connected = True
        return self

    def __exit__(self, *_error: object) -> None:
        if self.connected:
            _import_ray().shutdown()
            self.connected = False

    def run(self, units: Iterable[Unit]) -> Iterator[Outcome]:
        """Run the units and yield outcomes as they finish."""
        ray = _import_ray()
        listed = []
        for unit in units:
            if unit.finished:
                yield Outcome(unit, "done")
            else:
                listed.append(unit)
        check_units(listed)
        task = ray.remote(execute_unit)
        waiting = deque((unit, 1, "") for unit in listed)
        running: dict[Any, tuple[Unit, int, str]] = {}
        window = self.workers or max(FEWEST_WAITING, UNITS_PER_CORE * int(ray.cluster_resources().get("CPU", 1)))
        while waiting or running:
            while waiting and len(running) < window:
                unit, number, log = waiting.popleft()
                options = task.options(
                    num_cpus=unit.cores,
                    num_gpus=unit.gpus,
                    memory=unit.memory or None,
                    max_retries=self.attempts - 1,
                    name=unit.label,
                )
                # Ray makes the GPU of a task the only visible one, so the unit's own device, cuda, is the right one.
                running[options.remote(unit, self.status, number, capture=True, folder=str(Path.cwd()))] = (
                    unit,
                    number,
                    log,
                )
            finished, _ = ray.wait(list(running), num_returns=1, timeout=BUSY_SECONDS)
            self._show_progress(running)
            for reference in finished:
                unit, number, log = running.pop(reference)
                attempt = self._result(unit, number, reference)
                if attempt.state == "busy":
                    waiting.append((unit, number, log))
                elif attempt.state == "failed" and may_try_again(attempt, number, self.attempts):
                    waiting.append((unit, number + 1, log + attempt.log))
                else:
                    yield outcome_of(unit, attempt, number, log)

    def _result(self, unit: Unit, number: int, reference: Any) -> Attempt:
        """Return the attempt at a unit; Ray has already tried again if a process or a node died."""
        ray = _import_ray()
        try:
            attempt: Attempt = ray.get(reference)
        except ray.exceptions.RayError as error:
            died = WorkerDiedError(f"Ray lost the unit: {error_message(error)}")
            attempt = Attempt("failed", error=died, log=f"{error}\n")
            mark_failed(self.status, unit, attempt, number)
        return attempt

    def _show_progress(self, running: dict[Any, tuple[Unit, int, str]]) -> None:
        if self.observer is None or self.status is None:
            return
        for unit, _, _ in running.values():
            status = self.status.read(unit.name)
            if status.state == "running" and status.total:
                self.observer.show(unit, status.done, status.total, status.detail)


def _import_ray() -> Any:
    try:
        import ray  # noqa: PLC0415  (an extra)
        import ray.exceptions  # noqa: PLC0415
    except ImportError:
        raise InputError('the ray engine needs Ray: pip install "perdure[ray]"') from None
    return ray
