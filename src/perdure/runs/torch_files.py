"""Reading of files that torch.save wrote, without executing code."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from perdure.base.errors import InputError
from perdure.tasks.files.bounded import damage_named, open_zip


def read_torch_file(file: Path, what: str = "tensors", expected: str = "a file written by torch.save") -> Any:
    """Return the content of a torch file, read with ``weights_only``: no code is executed."""
    _check_members(file)
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception:  # noqa: BLE001  (torch raises several kinds for a bad file)
        raise InputError(f"{file}: cannot be read as {what}; expected {expected}") from None


def _check_members(file: Path) -> None:
    """Check that a torch file in zip format is not compressed: torch writes it so, and a compressed one can fill the memory."""
    with damage_named(f"{file}: cannot be read as weights"):
        if not zipfile.is_zipfile(file):
            return
        with open_zip(file, file.stat().st_size) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED:
                    raise InputError(f"{file}, member {member.filename[:80]!r}: expected a file written by torch.save")
