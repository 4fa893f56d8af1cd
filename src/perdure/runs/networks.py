"""The user's networks: built by a function and filled with checkpoints, or ready models, one for each step."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.explain.adapters.adapted import Adapted, adapt, probability_columns, two_columns, with_form, with_scores
from perdure.explain.adapters.arrays import rejected_input
from perdure.explain.adapters.inputs import InputForm, Series
from perdure.explain.adapters.models import single_precision
from perdure.explain.adapters.views import require_layout

NetworkMaker = Callable[..., Any]
NetworkSource = NetworkMaker | nn.Module | Sequence[Any]
"""A function that returns the network, the network itself, or one ready model after each step."""
PROBED_ROWS = 64
"""Examples on which the form of a network's output is found out."""
_RESETS = ("reset_parameters", "_reset_parameters")
"""Methods by which modules of torch.nn draw new weights."""
_SIZES = ("out_features", "out_channels", "num_embeddings", "num_features")
"""Attributes of modules of torch.nn that hold the first dimension of their parameters."""


@dataclass(frozen=True)
class UserNetworks:
    """The networks of a run from what a user passes as ``network``.

    A function without arguments, or a module, gives a network whose weights come from checkpoints. A function with an argument
    named ``step`` (0-based), or a sequence, gives the ready model after a step.
    """

    source: NetworkSource
    arguments: tuple[tuple[int, ...], int] | None = None
    """Input shape and number of outputs, for functions that take them."""

    @property
    def are_ready(self) -> bool:
        """Whether the models are complete, so that no checkpoint is loaded."""
        if isinstance(self.source, Sequence):
            return True
        return not isinstance(self.source, nn.Module) and _has_step(self.source)

    def check_steps(self, steps: int, where: str) -> None:
        """Raise `InputError` unless there is a model for each step."""
        if isinstance(self.source, Sequence) and len(self.source) != steps:
            raise InputError(
                f"{where}: {len(self.source)} models for {steps} steps; expected one model after each step"
            )

    def ready(self, step: int) -> nn.Module:
        """Return the model after a step, in evaluation mode."""
        source: Any = self.source
        model = source[step] if isinstance(source, Sequence) else source(step=step)
        return made_network(model, "network").eval()

    def blank(self, seed: int | None = None, name: str = "network") -> nn.Module:
        """Return a network to be filled with weights, initialized from a seed if there is one."""
        if self.are_ready:
            return copy.deepcopy(self.ready(0))
        if isinstance(self.source, nn.Module):
            return copy.deepcopy(self.source)
        if seed is None:
            return made_network(self._call(name), name)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return made_network(self._call(name), name)

    def _call(self, name: str) -> Any:
        if not callable(self.source):
            return made_network(self.source, name)  # a fitted model outside PyTorch
        return self.source(*self.arguments) if self.arguments and takes_shape(self.source) else self.source()


def takes_shape(function: Callable[..., Any]) -> bool:
    """Return whether a function needs two arguments, the input shape and the number of outputs."""
    return _accepts(function, 2) and not _accepts(function, 0)


def accepts_no_arguments(function: Callable[..., Any]) -> bool:
    """Return whether a function can be called without arguments."""
    return _accepts(function, 0)


def _accepts(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return True


def _has_step(function: Any) -> bool:
    try:
        return "step" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def made_network(model: Any, name: str) -> nn.Module:
    """Return what a user's function made as a module: models outside PyTorch are adapted."""
    if isinstance(model, nn.Module):
        return model
    if model is None or isinstance(model, str | int | float | tuple | list | dict):
        raise InputError(
            f"{name}: expected a function that returns a torch.nn.Module, got a {type(model).__name__}"
            if name == "network"
            else f"{name}: expected a torch.nn.Module, got a {type(model).__name__}"
        )
    return adapt(model)


def usable_network(
    network: nn.Module, rows: Tensor, form: InputForm | None, *, classes: bool = True, layout: str | None = None
) -> nn.Module:
    """Return a network of one input tensor and scores (n, outputs), for packed rows like ``rows``.

    A classifier with a single output gets a score for each of its two classes: the output is a probability if it lies
    between 0 and 1 for all ``rows``, otherwise a logit. Inputs of three dimensions need a layout.
    """
    if layout is not None:
        network = adapt(network, Series(layout))  # type: ignore[arg-type]
    network = with_form(network, form)
    require_layout(network, tuple(rows.shape))
    with rejected_input(network, rows), torch.no_grad():
        probe = with_scores(single_precision(network), rows[:1])
        outputs = probe(rows.clone())
    if isinstance(probe, Adapted) and not isinstance(network, Adapted):
        network = Adapted(network)
    if classes and outputs.dim() == 2 and outputs.shape[1] == 1:
        adapted = adapt(network)
        is_probability = len(outputs) > 1 and bool(((outputs >= 0) & (outputs <= 1)).all())
        columns = probability_columns if is_probability else two_columns
        return Adapted(adapted.model, adapted.inputs, partial(columns, logits=adapted.logits), adapted.form)
    return network


def resize_heads(network: nn.Module, state: Mapping[str, Tensor]) -> list[nn.Module]:
    """Give the output layers of a network the sizes that they have in a checkpoint; return the modules that changed.

    The head of a continual learner may grow with the tasks: a layer with more outputs, or one more entry in a list of heads.
    Only the first dimension of a parameter may differ, and only entries of a ModuleList or ModuleDict may be missing.
    """
    changed = _resize_lists(network, state)
    own = network.state_dict()
    for name, value in state.items():
        if name in own and own[name].shape != value.shape and own[name].shape[1:] == value.shape[1:] and value.dim():
            parent, _, leaf = name.rpartition(".")
            module = network.get_submodule(parent) if parent else network
            if leaf in module._parameters:
                module._parameters[leaf] = nn.Parameter(torch.empty_like(value))
            elif leaf in module._buffers:
                module._buffers[leaf] = torch.empty_like(value)
            for size in _SIZES:
                if getattr(module, size, None) == own[name].shape[0]:
                    setattr(module, size, value.shape[0])
            changed.append(module)
    return changed


def _resize_lists(network: nn.Module, state: Mapping[str, Tensor]) -> list[nn.Module]:
    """Remove the entries of module lists that a checkpoint does not have, and copy the last entry for those it adds."""
    added: list[nn.Module] = []
    for name, module in list(network.named_modules()):
        prefix = f"{name}." if name else ""
        if isinstance(module, nn.ModuleDict) and len(module):
            added += _resize_dict(module, {key[len(prefix) :].split(".")[0] for key in state if key.startswith(prefix)})
        if not isinstance(module, nn.ModuleList) or not len(module):
            continue
        entries = {key[len(prefix) :].split(".")[0] for key in state if key.startswith(prefix)}
        stored = sorted(int(entry) for entry in entries if entry.isdigit())
        if not stored or stored != list(range(len(stored))):
            continue
        while len(module) > len(stored) and next(module[len(module) - 1].parameters(), None) is not None:
            del module[len(module) - 1]
        while len(module) < len(stored):
            module.append(copy.deepcopy(module[len(module) - 1]))
            added += list(module[len(module) - 1].modules())
    return added


def _resize_dict(modules: nn.ModuleDict, stored: set[str]) -> list[nn.Module]:
    """Remove the entries of a dictionary of modules that a checkpoint does not have, and copy one for those it adds."""
    if not stored:
        return []
    last = list(modules.values())[-1]
    for key in [
        key for key, entry in modules.items() if key not in stored and next(entry.parameters(), None) is not None
    ]:
        del modules[key]
    added: list[nn.Module] = []
    for key in sorted(stored - set(modules)):
        modules[key] = copy.deepcopy(last)
        added += list(modules[key].modules())
    return added


def reset_modules(modules: Sequence[nn.Module], seed: int) -> list[nn.Module]:
    """Draw new weights for each module with torch's own ``reset_parameters``; return the modules that cannot do this."""
    fixed = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # modules on an accelerator draw from its own generator
        for module in modules:
            reset = next((getattr(module, name) for name in _RESETS if callable(getattr(module, name, None))), None)
            if reset is not None:
                reset()
            else:
                fixed.append(module)
    return fixed
