"""Networks with trained weights: built by name or by a user's function, filled from checkpoints and weights files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import nets
from perdure.base.errors import InputError
from perdure.record import Record
from perdure.record.tensors import load_tensors
from perdure.tasks import Benchmark

NetworkMaker = Callable[[], nn.Module]
_NESTED_KEYS = ("state_dict", "model_state_dict", "model")
"""Keys under which training scripts store the weights inside a torch file."""


def recorded_network(record: Record, benchmark: Benchmark, step: int) -> nn.Module:
    """Build the network that a record names and load the checkpoint after a step."""
    name = record.manifest.network.get("name")
    if name is None or name not in nets.names():
        raise InputError(
            f"{record.path}: the record does not name a built-in network; pass network=, a function that makes it"
        )
    network = nets.build(
        name,
        input_shape=benchmark.input_shape,
        outputs=benchmark.outputs,
        width=record.manifest.network.get("width"),
    )
    return load_weights(network, record.checkpoint(step), f"{record.path}: the checkpoint after step {step + 1}")


def make_network(network: NetworkMaker) -> nn.Module:
    """Call a user's function and check that it returns a module."""
    made: object = network()
    if not isinstance(made, nn.Module):
        raise InputError(f"network: expected a function that returns a torch.nn.Module, got a {type(made).__name__}")
    return made


def load_weights(network: nn.Module, state: Mapping[str, Tensor], source: str) -> nn.Module:
    """Load weights into a network and set evaluation mode; other shapes and non-finite weights raise `InputError`."""
    for name, value in state.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise InputError(f"{source} has NaN or infinite weights in {name!r}")
    try:
        network.load_state_dict(dict(state))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"{source} does not fit the network ({reason})") from None
    return network.eval()


def read_weights(file: Path) -> dict[str, Tensor]:
    """Return the weights in a safetensors file, or in a torch file read with ``weights_only``: no code is executed."""
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    if file.suffix == ".safetensors":
        return load_tensors(file)
    try:
        value = torch.load(file, map_location="cpu", weights_only=True)
    except Exception:  # noqa: BLE001  (torch raises several kinds for a bad file)
        raise InputError(
            f"{file}: it cannot be read as weights; expected a file written by torch.save(network.state_dict(), file)"
        ) from None
    for name in _NESTED_KEYS:
        if isinstance(value, dict) and isinstance(value.get(name), dict):
            value = value[name]
    if not isinstance(value, dict) or not all(isinstance(item, Tensor) for item in value.values()):
        raise InputError(f"{file}: expected a state_dict, a dictionary of names and tensors")
    return value


def copy_head(network: nn.Module, source: nn.Module) -> None:
    """Copy the weights of the module named ``head`` from another network."""
    head, source_head = getattr(network, "head", None), getattr(source, "head", None)
    if not isinstance(head, nn.Module) or not isinstance(source_head, nn.Module):
        raise InputError("head: the network has no module named 'head' to replace")
    head.load_state_dict(source_head.state_dict())


def predictions(network: nn.Module, x: Tensor, candidates: list[int] | None) -> NDArray[np.int64]:
    """Return the class with the highest score among the candidates (None: all outputs) for each example."""
    with torch.inference_mode():
        scores = network(x)
    if candidates is not None:
        allowed = torch.tensor(candidates, device=scores.device)
        return np.asarray(allowed[scores[:, allowed].argmax(dim=1)].cpu().numpy(), dtype=np.int64)
    return np.asarray(scores.argmax(dim=1).cpu().numpy(), dtype=np.int64)


def device_of(network: nn.Module) -> torch.device:
    """Return the device of a network's parameters; the CPU if it has none."""
    first = next(network.parameters(), None)
    return torch.device("cpu") if first is None else first.device
