"""Disk cache of expensive arrays, so that a repeated or interrupted experiment resumes."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from perdure.base.files import write_atomically
from perdure.reproduce.bias.experiment import Workspace

Arrays = dict[str, NDArray[Any]]


def cached_arrays(
    workspace: Workspace, name: str, settings: Mapping[str, Any], compute: Callable[[], Arrays]
) -> Arrays:
    """Return the stored arrays if they were computed with the same settings; otherwise compute and store them."""
    file = workspace.out / "values" / f"{name}.npz"
    settings_json = json.dumps(settings, sort_keys=True)
    if file.exists():
        with np.load(file) as stored:
            if str(stored["settings"]) == settings_json:
                return {key: stored[key] for key in stored.files if key != "settings"}
    arrays = compute()
    content = io.BytesIO()
    entries: dict[str, Any] = {"settings": np.array(settings_json), **arrays}
    np.savez_compressed(content, **entries)
    write_atomically(file, content.getvalue())
    return arrays


def weights_digest(network: nn.Module) -> str:
    """Return a short digest of a network's parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
