"""The state of every unit of a study, in small files that any machine can read.

``<folder>/plans/<digest>.json`` lists the units of one command. ``<folder>/units/<name>/`` has ``status.json`` (what happened
last), ``log.txt`` (the output of failed attempts) and a lock while a process works on the unit.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from perdure.base.errors import InputError
from perdure.base.files import is_running, read_json, write_atomically
from perdure.engine.units import DIGITS, Unit

FOLDER = ".perdure"
"""The folder of the state, inside the folder of the study."""
HEARTBEAT_SECONDS = 5.0
"""A running unit renews the time of its file this often."""
LOST_SECONDS = 60.0
"""A running unit whose file is older than this has lost its process."""
LARGEST_LOG = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")

State = Literal["waiting", "running", "lost", "done", "failed"]
STATES: tuple[State, ...] = ("running", "done", "failed", "lost", "waiting")


@dataclass(frozen=True)
class UnitStatus:
    """The last known state of a unit."""

    name: str
    label: str
    state: State = "waiting"
    host: str = ""
    process: int = 0
    started: float = 0.0
    seconds: float = 0.0
    """Duration of the finished unit, or of the attempts so far."""
    attempts: int = 0
    done: int = 0
    total: int = 0
    detail: str = ""
    error: str = ""


@dataclass(frozen=True)
class PlanStatus:
    """The units of one command, in their order, with their states."""

    command: str
    created: float
    units: tuple[UnitStatus, ...] = ()
    eta: float | None = None
    """Seconds until all units are finished at the present rate; None if it is unknown, 0 if nothing is left to do."""

    @property
    def counts(self) -> dict[str, int]:
        """The number of units in each state."""
        return {state: sum(unit.state == state for unit in self.units) for state in STATES}

    @property
    def finished(self) -> bool:
        """Whether every unit is done."""
        return all(unit.state == "done" for unit in self.units)

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "command": self.command,
            "created": self.created,
            "counts": self.counts,
            "eta_seconds": self.eta,
            "units": [asdict(unit) for unit in self.units],
        }


@dataclass(frozen=True)
class StatusFolder:
    """Writes and reads the state of units in a folder."""

    folder: Path
    command: str = field(default="", compare=False)

    @classmethod
    def of(cls, study: Path, command: str = "") -> StatusFolder:
        """Return the state of the study in a folder."""
        return cls(study.absolute() / FOLDER, command)

    def unit_folder(self, name: str) -> Path:
        """Return the folder of a unit."""
        return self.folder / "units" / name

    def log_file(self, name: str) -> Path:
        """Return the file with the output of a unit's failed attempts."""
        return self.unit_folder(name) / "log.txt"

    def write_plan(self, units: Sequence[Unit]) -> None:
        """List the units of a command; the same list is written once."""
        listed = [{"name": unit.name, "label": unit.label} for unit in units]
        digest = hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:DIGITS]
        file = self.folder / "plans" / f"{digest}.json"
        if not file.exists():
            content = {"command": self.command, "created": time.time(), "units": listed}
            write_atomically(file, json.dumps(content).encode())

    def write(self, status: UnitStatus) -> None:
        """Write the state of a unit; a crash of the machine may lose it, which costs nothing but information."""
        folder = self.unit_folder(status.name)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".status-{platform.node()}-{os.getpid()}.tmp"
        temporary.write_text(json.dumps(asdict(status)), encoding="utf-8")
        temporary.replace(folder / "status.json")

    def touch(self, name: str) -> None:
        """Show that the process of a unit is alive."""
        os.utime(self.unit_folder(name) / "status.json")

    def append_log(self, name: str, text: str) -> None:
        """Add the output of an attempt to the log of a unit."""
        self.unit_folder(name).mkdir(parents=True, exist_ok=True)
        with self.log_file(name).open("a", encoding="utf-8") as file:
            file.write(text[-LARGEST_LOG:])

    def read(self, name: str, label: str = "") -> UnitStatus:
        """Return the state of a unit; one that has no file is waiting."""
        file = self.unit_folder(name) / "status.json"
        try:
            age = time.time() - file.stat().st_mtime
            status = read_status_file(file)
        except FileNotFoundError:
            return UnitStatus(name, label)
        died = status.host == platform.node() and not is_running(status.process)
        if status.state == "running" and (died or age > LOST_SECONDS):
            return replace(status, state="lost")
        return status

    def read_plans(self) -> list[PlanStatus]:
        """Return the state of every command, oldest first."""
        plans = []
        for file in sorted((self.folder / "plans").glob("*.json")):
            plan = read_plan_file(file)
            units = tuple(self.read(unit.name, unit.label) for unit in plan.units)
            plans.append(replace(plan, units=units, eta=_eta(units)))
        return sorted(plans, key=lambda plan: plan.created)


def read_status_file(file: Path) -> UnitStatus:
    """Read the state of a unit; another file raises `InputError`."""
    content = read_json(file)
    types = {entry.name: type(entry.default) for entry in fields(UnitStatus)[2:]} | {"name": str, "label": str}
    is_valid = isinstance(content, dict) and types.keys() == content.keys()
    is_valid = is_valid and all(_has_type(content[name], kind) for name, kind in types.items())
    if not is_valid or content["state"] not in STATES:
        raise InputError(f"{file}: expected the state of a unit. Delete the file; it holds no results.")
    return UnitStatus(**content)


def read_plan_file(file: Path) -> PlanStatus:
    """Read the list of the units of a command, all of them waiting; another file raises `InputError`."""
    content = read_json(file)
    is_valid = isinstance(content, dict) and content.keys() == {"command", "created", "units"}
    is_valid = is_valid and isinstance(content["units"], list) and _has_type(content["created"], float)
    if not is_valid or not all(_is_listed(unit) for unit in content["units"]):
        raise InputError(f"{file}: expected a list of units. Delete the file; it holds no results.")
    units = tuple(UnitStatus(unit["name"], unit["label"]) for unit in content["units"])
    return PlanStatus(str(content["command"]), float(content["created"]), units)


def _is_listed(unit: Any) -> bool:
    """Return whether a value names a unit; its name must not lead to another folder."""
    names = ("name", "label")
    is_text = (
        isinstance(unit, dict) and unit.keys() == set(names) and all(isinstance(unit[name], str) for name in names)
    )
    return is_text and _NAME.fullmatch(unit["name"]) is not None


def _has_type(value: Any, kind: type) -> bool:
    """Return whether a JSON value has a type; integers are numbers, and numbers must not be negative."""
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return isinstance(value, kind)


def _eta(units: Sequence[UnitStatus]) -> float | None:
    """Return the seconds until all units are finished, if those that run now keep their rate."""
    open_units = [unit for unit in units if unit.state in ("waiting", "running")]
    if not open_units:
        return 0.0
    running = [unit for unit in open_units if unit.state == "running"]
    times = [unit.seconds for unit in units if unit.state == "done" and unit.seconds > 0]
    now = time.time()
    for unit in running:  # a running unit that knows its progress says how long units take
        if not times and unit.done:
            times.append((now - unit.started) * unit.total / unit.done)
    if not running or not times:
        return None
    typical = sum(times) / len(times)
    left = sum(typical * (1 - unit.done / unit.total if unit.total else 1) for unit in open_units)
    return left / len(running)
