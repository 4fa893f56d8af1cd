"""Arrays that took long: kept beside the networks, so that a repeated or interrupted experiment goes on."""

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
from perdure.reproduce.bias.experiment import Place

Arrays = dict[str, NDArray[Any]]


def kept(place: Place, name: str, settings: Mapping[str, Any], make: Callable[[], Arrays]) -> Arrays:
    """Return arrays from the last time if they were made with the same settings, else make and keep them."""
    file = place.out / "values" / f"{name}.npz"
    said = json.dumps(settings, sort_keys=True)
    if file.exists():
        with np.load(file) as stored:
            if str(stored["settings"]) == said:
                return {key: stored[key] for key in stored.files if key != "settings"}
    arrays = make()
    content = io.BytesIO()
    stored_arrays: dict[str, Any] = {"settings": np.array(said), **arrays}
    np.savez_compressed(content, **stored_arrays)
    write_atomically(file, content.getvalue())
    return arrays


def weights_digest(network: nn.Module) -> str:
    """Return what tells a network's weights from others."""
    digest = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
