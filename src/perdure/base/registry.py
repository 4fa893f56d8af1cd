"""Registries: named learners, explainers, metrics, benchmarks and networks, from this project and from installed packages.

Also the versions of the installed packages that affect results.
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from pkgutil import iter_modules
from typing import Generic, TypeVar

from perdure import __version__
from perdure.base.errors import InputError, error_suggestion
from perdure.base.user_code import import_plugin

Entry = TypeVar("Entry")
PLUGINS_VARIABLE = "PERDURE_PLUGINS"
"""Environment variable with the user's files and modules that register entries, separated as in PATH."""
_plugins: set[str] = set()


class Registry(Generic[Entry]):
    """Named entries of one kind.

    Built-in entries are registered when the modules of ``package`` are imported, which happens on first use. Other
    packages add entries through the entry-point group ``group``: each entry point names a module or an object whose import
    registers the entry. A package that fails to import is reported as a warning and skipped. The user's own files and modules
    are named by the environment variable PERDURE_PLUGINS; one that fails to import is an error.
    """

    def __init__(self, kind: str, *, group: str, package: str | None = None) -> None:
        self.kind, self.group, self.package = kind, group, package
        self._entries: dict[str, Entry] = {}
        self._summaries: dict[str, str] = {}
        self._loaded = False

    def add(self, name: str, entry: Entry, summary: str = "") -> None:
        """Register an entry. ``summary`` is one line for lists; two different entries cannot share a name."""
        if name in self._entries and not _same_origin(self._entries[name], entry):
            raise InputError(f"{self.kind} {name!r} is registered twice; rename one of them")
        self._entries[name] = entry
        self._summaries[name] = summary

    def get(self, name: str) -> Entry:
        """Return the entry with this name; an unknown name raises `InputError` with the closest known name."""
        if name not in self._entries:
            self._load()
        if name not in self._entries:
            raise InputError(f"{self.kind}: unknown name {name!r}, {error_suggestion(name, self.names())}")
        return self._entries[name]

    def names(self) -> list[str]:
        """Return all names, sorted."""
        self._load()
        return sorted(self._entries)

    def entries(self) -> dict[str, Entry]:
        """Return all entries by name, in the order of their registration."""
        self._load()
        return dict(self._entries)

    def summaries(self) -> dict[str, str]:
        """Return a one-line description of each entry, by name."""
        return {name: self._summaries[name] for name in self.names()}

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            self._load()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _import_built_in(self) -> None:
        if self.package is not None:
            for module in iter_modules(import_module(self.package).__path__, f"{self.package}."):
                import_module(module.name)

    def _load(self) -> None:
        """Import the built-in entries, those of other packages and the user's plug-ins, each once."""
        self._load_packages()
        _import_plugins()

    def _load_packages(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # set first, because a module that is imported here may use the registry
        try:
            self._import_built_in()
        except BaseException:
            self._loaded = False  # a later call reports the error again instead of an incomplete list
            raise
        for entry_point in entry_points(group=self.group):
            try:
                entry_point.load()
            except Exception as error:  # noqa: BLE001  (a broken plug-in must not stop the others)
                warnings.warn(f"{self.kind} {entry_point.name!r} could not be loaded: {error}", stacklevel=3)


def _import_plugins() -> None:
    """Import the files and modules that PERDURE_PLUGINS names."""
    for name in filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)):
        key = str(Path(name).resolve()) if name.endswith(".py") else name
        if key in _plugins:
            continue
        _plugins.add(key)  # first, because the plug-in may use a registry
        try:
            import_plugin(name)
        except InputError as error:
            _plugins.discard(key)
            raise InputError(f"{PLUGINS_VARIABLE}: {error}") from error.__cause__


def _same_origin(first: object, second: object) -> bool:
    """Return whether two entries come from the same place: a module that is reloaded registers again."""
    functions = [getattr(entry, "function", entry) for entry in (first, second)]
    origins = [(getattr(item, "__module__", None), getattr(item, "__qualname__", None)) for item in functions]
    return origins[0] == origins[1] and None not in origins[0]


def software_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect results, without importing them."""
    versions = {"python": platform.python_version(), "perdure": __version__}
    for name in ("torch", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions
