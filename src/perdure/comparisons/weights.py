"""Files of weights, which are versions of a model only together with a network and test data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.base.errors import InputError

_WANTED = {"network": ("network=make_net", "--network file.py:function"), "data": ("data=(inputs, labels)", "--data")}


def require_network_and_data(path: Path, network: Any, data: Any) -> None:
    """Raise `InputError` unless a file of weights comes with a network and test data."""
    missing = [word for word, value in (("network", network), ("data", data)) if value is None]
    if missing:
        options, cli = (" and ".join(_WANTED[word][column] for word in missing) for column in (0, 1))
        raise InputError(f"{path}: a file of weights needs {options}", cli=f"{path}: a file of weights needs {cli}")
