"""The audit that a command shows or exports: a stored one if it is current, otherwise a new one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.base.errors import InputError
from perdure.base.files import read_json
from perdure.cli.output.names import echo

if TYPE_CHECKING:
    from perdure.audits import Audit, ImportOptions


def stored_or_new_audit(paths: Sequence[Path], result: str, importing: ImportOptions | None = None) -> Audit:
    """Return the audit.json in the only path if the records have not changed since; otherwise audit the records.

    A path can also be an audit.json itself. ``result``: what is made of the audit, for the message that parts are missing.
    ``importing``: how results of other frameworks are read.
    """
    from perdure.audits import FILE, Audit, ImportOptions, add_trust_to_audit, audit

    options = importing or ImportOptions()

    if len(paths) == 1 and not paths[0].exists():
        raise InputError(f"{paths[0]}: no such directory")
    if len(paths) == 1 and paths[0].is_file() and paths[0].suffix == ".json" and is_audit_file(paths[0]):
        return add_trust_to_audit(Audit.load(paths[0]))
    saved = paths[0] / FILE
    stored = Audit.load(saved) if len(paths) == 1 and paths[0].is_dir() and saved.exists() else None
    if stored is not None and _is_current(stored, paths[0], options):
        return add_trust_to_audit(stored)
    if stored is not None and (stored.shapc or stored.clamp):
        echo(
            f"{saved}: the records have changed, so the {result} is made without its SHAPC and CLAMP results",
            err=True,
        )
    return audit(paths, importing=options)


def is_audit_file(path: Path) -> bool:
    """Return whether a JSON file is an audit, and not results of another framework."""
    value = read_json(path)
    return isinstance(value, dict) and {"schema", "learners"} <= value.keys()


def _is_current(audit: Audit, folder: Path, importing: ImportOptions) -> bool:
    """Return whether an audit was made of the records in a folder as they are now; times of files do not matter."""
    from perdure.audits.imported import audit_sources

    if not audit.sources:  # written by an earlier version
        return False
    return sorted(audit.sources.values()) == sorted(audit_sources([folder], importing).values())
