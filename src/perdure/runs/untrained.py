"""Networks that have learned nothing: new initializations of an architecture, the zero of the calibrated SHAPC score."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.base.errors import InputError, error_message
from perdure.explain.adapters.adapted import Adapted, adapt, function_model
from perdure.explain.adapters.functions import FunctionModel
from perdure.runs.loaded_run import LoadedRun, run_network_device
from perdure.runs.networks import reset_modules

REFIT_STEPS = 200
REFIT_BATCH = 64
REFIT_LR = 1e-3


class CannotReinitializeError(InputError):
    """The network has no untrained counterpart; the message says why."""


def untrained_network(
    initial: Callable[[int], nn.Module],
    trained: nn.Module,
    examples: Callable[[], tuple[Tensor, NDArray[np.int64]]],
    seed: int,
) -> nn.Module:
    """Return a network of the same architecture that has learned nothing, in evaluation mode.

    ``initial`` returns the network of a seed before the trained weights are loaded. If all of its weights depend on the seed,
    it is the untrained network. Otherwise (pretrained weights, or a function that sets the seed) the modules draw new weights
    with their own ``reset_parameters``. A network with modules that cannot do this is refitted: its remaining parameters are
    shuffled, and the whole network is trained on ``examples``, (inputs, labels), with permuted labels.
    """
    if isinstance(trained, Adapted) and (model := function_model(trained)) is not None:
        return _refitted_model(trained, model, *examples(), seed)
    # A copy, because a user's function may return the same network each time.
    network = copy.deepcopy(initial(seed))
    if _all_weights_differ(network, initial(seed + 1)):
        return network.to(run_network_device(trained)).eval()
    network = copy.deepcopy(trained)
    if next(network.parameters(), None) is None:
        raise CannotReinitializeError("the network has no parameters, so there is no untrained network to compare with")
    fixed = [
        value for module in reset_modules(list(network.modules()), seed) for value in module.parameters(recurse=False)
    ]
    if fixed:
        _shuffle(fixed, seed)
        _refit(network, *examples(), seed)
    return network.eval()


def _refitted_model(
    trained: nn.Module, model: FunctionModel, x: Tensor, labels: NDArray[np.int64], seed: int
) -> nn.Module:
    """Return a model outside PyTorch, fitted to permuted labels with the same settings."""
    permuted = np.random.default_rng([seed, 1]).permutation(labels)
    try:
        refitted = model.refitted(x.cpu().double().numpy(), permuted)
    except Exception as error:
        raise CannotReinitializeError(
            f"{model.label} cannot be fitted to permuted labels ({error_message(error)}), so there is no untrained model to "
            "compare with"
        ) from error
    if refitted is None:
        raise CannotReinitializeError(
            f"{model.label} is a function that cannot be fitted again, so there is no untrained model to compare with"
        )
    adapted = adapt(trained)
    return Adapted(refitted, adapted.inputs, adapted.logits, adapted.form).eval()


def _all_weights_differ(first: nn.Module, second: nn.Module) -> bool:
    """Return whether every weight matrix differs; biases, normalization layers and others may start from one constant."""
    others = dict(second.named_parameters())
    weights = [(value, others[name]) for name, value in first.named_parameters() if value.dim() > 1]
    drawn = [(value, other) for value, other in weights if value.numel() == 1 or value.min() != value.max()]
    return bool(drawn) and all(not torch.equal(value, other) for value, other in drawn)


def _shuffle(parameters: list[nn.Parameter], seed: int) -> None:
    """Put the values of each parameter in a random order, which keeps their scale."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters:
            order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
            parameter.copy_(parameter.flatten()[order].reshape(parameter.shape))


def _refit(network: nn.Module, x: Tensor, labels: NDArray[np.int64], seed: int) -> None:
    """Train a network on permuted labels, so that it fits the inputs and knows nothing about the classes."""
    rng = np.random.default_rng([seed, 1])
    device = run_network_device(network)
    y = torch.from_numpy(rng.permutation(labels)).to(device)
    parameters = [value for value in network.parameters() if value.is_floating_point()]
    for value in parameters:
        value.requires_grad_(True)
    optimizer = torch.optim.Adam(parameters, lr=REFIT_LR)
    network.train()
    with torch.enable_grad():
        for _ in range(REFIT_STEPS):
            rows = torch.from_numpy(rng.integers(0, len(x), size=min(REFIT_BATCH, len(x))))
            optimizer.zero_grad()
            loss = _loss(network, x[rows].to(device), y[rows.to(device)])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    if not all(bool(torch.isfinite(value).all()) for value in parameters):
        raise CannotReinitializeError(
            "the network cannot be re-initialized, and training on permuted labels gives non-finite weights"
        )


def _loss(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    outputs: Any = network(x)
    if not outputs.requires_grad:
        raise CannotReinitializeError(
            "the network cannot be re-initialized, and it cannot be trained on permuted labels because its outputs have "
            "no gradient"
        )
    return nn.functional.cross_entropy(outputs, y)


SEED_OFFSET = 1_000_000
"""Added to the seeds of untrained networks; the seeds of runs are much smaller."""
SEEDS_PER_AUDIT = 1_000


class UntrainedNetworks:
    """Networks with the architecture of a run that have learned nothing, made on first use."""

    def __init__(self, run: LoadedRun, count: int, seed: int) -> None:
        self.run, self.count, self.seed = run, count, seed
        self._networks: list[nn.Module] | None = None
        self._reason = ""

    @property
    def reason(self) -> str:
        """Why there are none; empty if there are."""
        if self.count == 0:
            return "no untrained networks were requested, so the score has no zero"
        self._made()
        return self._reason

    @property
    def networks(self) -> list[nn.Module]:
        """The networks; none if they cannot be made."""
        return self._made()

    def _made(self) -> list[nn.Module]:
        if self._networks is None:
            try:
                self._networks = [self._network(index) for index in range(self.count)]
            except CannotReinitializeError as error:
                self._networks, self._reason = [], str(error)
        return self._networks

    def _network(self, index: int) -> nn.Module:
        seed = SEED_OFFSET + SEEDS_PER_AUDIT * self.seed + index
        trained = self.run.network(self.run.last_step())  # its head has an output for every class
        return untrained_network(self.run.initial_network, trained, self._labelled, seed)

    def _labelled(self) -> tuple[Tensor, NDArray[np.int64]]:
        """Return the test examples of all tasks with their labels, for refitting on permuted labels."""
        data = self.run.data
        if data.kind != "classes":
            raise CannotReinitializeError(
                f"the model cannot be re-initialized, and {data.kind} data have no classes to permute"
            )
        visited = sorted(set(self.run.curriculum))
        inputs = [data.inputs(task, np.arange(len(data.labels(task)))) for task in visited]
        return torch.cat(inputs), np.concatenate([data.labels(task) for task in visited])
