"""The audit that a command shows or exports: a stored one if it is current, otherwise a new one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.base.errors import InputError
from perdure.cli.output.names import echo

if TYPE_CHECKING:
    from perdure.audits import Audit


def stored_or_new_audit(paths: Sequence[Path], result: str) -> Audit:
    """Return the audit.json in the only path if the records have not changed since; otherwise audit the records.

    A path can also be an audit.json itself. ``result``: what is made of the audit, for the message that parts are missing.
    """
    from perdure.audits import FILE, Audit, add_trust_to_audit, audit

    if len(paths) == 1 and not paths[0].exists():
        raise InputError(f"{paths[0]}: no such directory")
    if len(paths) == 1 and paths[0].suffix == ".json" and paths[0].is_file():
        return add_trust_to_audit(Audit.load(paths[0]))
    saved = paths[0] / FILE
    stored = Audit.load(saved) if len(paths) == 1 and saved.exists() else None
    if stored is not None and _is_current(stored, paths[0]):
        return add_trust_to_audit(stored)
    if stored is not None and (stored.shapc or stored.clamp):
        echo(
            f"{saved}: the records have changed, so the {result} is made without its SHAPC and CLAMP results",
            err=True,
        )
    return audit(paths)


def _is_current(audit: Audit, folder: Path) -> bool:
    """Return whether an audit was made of the records in a folder as they are now; times of files do not matter."""
    from perdure.record.reader import find_records, record_digest

    if not audit.sources:  # written by an earlier version
        return False
    return sorted(audit.sources.values()) == sorted(map(record_digest, find_records([folder])))
