"""References of a record to code: what a record would execute, and which files this machine allows it to execute.

A record never executes code by itself. The first time, `CodeNotAllowedError` shows what would be imported. A permission
holds for one file with one content: a changed file, or a copy of the record on another machine, asks again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from perdure.base.errors import InputError
from perdure.base.files import read_json, write_json
from perdure.base.fingerprints import data_fingerprint, file_fingerprint
from perdure.base.user_code import load_function, load_object
from perdure.record.references import Reference, make_reference, read_references, write_references
from perdure.runs.data_sources import read_data_file

FOLDER_VARIABLE = "PERDURE_CONFIG_DIR"
FILE = "allowed-code.json"


class CodeNotAllowedError(InputError):
    """A record refers to code that this machine has not been allowed to execute."""


def permissions_file() -> Path:
    """Return the file that lists the allowed code: in the folder PERDURE_CONFIG_DIR, by default ~/.config/perdure."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return (Path(folder) if folder else Path.home() / ".config" / "perdure") / FILE


def allow_code(records: Iterable[str | Path]) -> None:
    """Allow the code that these records refer to, as it is now, on this machine."""
    allowed = _allowed()
    for record in map(Path, records):
        for reference in read_references(record).values():
            if reference.is_code:
                file = reference.file(record)
                allowed[str(file)] = file_fingerprint(file)
    write_json(permissions_file(), allowed)


def stored_network(record: Path) -> Any:
    """Return the function that a record refers to for its network; None if it refers to none."""
    reference = read_references(record).get("network")
    if reference is None:
        return None
    _check_allowed(record)
    return load_function(reference.load_target(record))


def stored_data(record: Path) -> Any:
    """Return the test data that a record refers to; None if it refers to none. Changed data raise `InputError`."""
    reference = read_references(record).get("data")
    if reference is None:
        return None
    if not reference.is_code:
        file = reference.file(record)
        _check_same(record, reference, file_fingerprint(file), reference.sha256)
        return read_data_file(file)
    _check_allowed(record)
    value = load_object(reference.load_target(record))
    data = value() if callable(value) else value
    if reference.fingerprint is not None:
        _check_same(record, reference, data_fingerprint(data), reference.fingerprint)
    return data


def store_references(record: Path, network: str | None = None, data: str | None = None) -> None:
    """Store where the network's function and the test data are in a record. The code is allowed on this machine."""
    given = {"network": network, "data": data}
    write_references(
        record, {role: make_reference(text, role, record) for role, text in given.items() if text is not None}
    )
    with suppress(OSError):  # without a place to remember it, the next command asks
        allow_code([record])


def _check_same(record: Path, reference: Reference, fingerprint: str, stored: str) -> None:
    if fingerprint != stored:
        raise InputError(
            f"{record}: the test data of {reference.target} differ from those that the record refers to; restore them, or pass "
            "data=",
            cli=f"{record}: the test data of {reference.target} differ from those that the record refers to; restore them, or "
            "pass --data (with --store to use them from now on)",
        )


def _check_allowed(record: Path) -> None:
    """Raise `CodeNotAllowedError` unless all code that a record refers to is allowed with its current content."""
    allowed = _allowed()
    asked, changed = [], False
    for role, reference in read_references(record).items():
        if not reference.is_code:
            continue
        file = reference.file(record)
        digest = file_fingerprint(file)
        if allowed.get(str(file)) != digest:
            changed |= digest != reference.sha256 or str(file) in allowed
            asked.append(f"{role}: {reference.target.rpartition(':')[2]} in {file} (SHA-256 {digest[:12]})")
    if asked:
        listed = "; ".join(asked)
        note = " The file has changed since it was stored or allowed." if changed else ""
        question = f"{record}: the record refers to code that has not been allowed on this machine. {listed}.{note} "
        raise CodeNotAllowedError(
            f"{question}Read it, then pass allow_code=True", cli=f"{question}Read it, then pass --allow-code"
        )


def _allowed() -> dict[str, str]:
    """Return the allowed files with the SHA-256 of their content."""
    file = permissions_file()
    content = read_json(file) if file.exists() else {}
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise InputError(f"{file}: expected an object of files and digests; delete the file")
    return content
