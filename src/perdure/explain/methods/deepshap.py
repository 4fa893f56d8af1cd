"""DeepSHAP, through captum's DeepLiftShap."""

from __future__ import annotations

import copy

import torch
from captum.attr import DeepLiftShap
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.explain.batches import in_batches
from perdure.explain.checks.network import ALTERNATIVES, MAX_POOLS, ModuleRules
from perdure.explain.explainer import Request, explainer

DEEPLIFT_MODULES = (
    nn.ReLU,
    nn.ELU,
    nn.LeakyReLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
    *MAX_POOLS,
    nn.Softmax,
)
"""Modules for which captum's DeepLift has a rule."""


@explainer(
    "deepshap",
    needs=ModuleRules(activations=DEEPLIFT_MODULES, called_once=DEEPLIFT_MODULES, disjoint_pooling=True),
    stochastic=False,
)
def deepshap(request: Request) -> Tensor:
    """DeepSHAP (Lundberg and Lee 2017): DeepLIFT averaged over the background.

    Captum identifies a module's input by its tensor, so one rule is lost where max-pooling directly follows an activation; a
    copy at the input of each nonlinear module avoids this. The attributions must sum to the difference of outputs; if they
    do not (overlapping pooling windows), `InputError` is raised.
    """
    count = request.background_count("deepshap")
    shared = request.fixed is None and request.starts is None  # all examples have the same background
    model = copy.deepcopy(request.model)
    for module in model.modules():
        if isinstance(module, DEEPLIFT_MODULES):
            module.register_forward_pre_hook(_copy_inputs)
    deep = DeepLiftShap(model)
    examples_per_batch = max(1, request.batch_size // count) if shared else 1

    def explain(x: Tensor, y: Tensor, part: slice) -> Tensor:
        index = torch.arange(count, device=x.device)
        background = request.background_rows(torch.full_like(index, part.start), index)
        total = torch.zeros_like(x)
        for rows in torch.split(background, request.batch_size):
            # DeepLIFT needs at least two baselines; a single one is used twice.
            baselines = rows if len(rows) > 1 else torch.cat([rows, rows])
            total += deep.attribute(x, baselines, target=y).detach() * (len(rows) / count)
        _check_complete(request, x, y, background, total, part.start)
        return total

    return in_batches(request, examples_per_batch, explain)


def _copy_inputs(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(value.clone() for value in inputs)


def _check_complete(request: Request, x: Tensor, target: Tensor, background: Tensor, maps: Tensor, first: int) -> None:
    """Check that each map sums to the output minus its mean over the background."""
    with torch.no_grad():
        scores = request.model(x.clone()).gather(1, target[:, None])[:, 0]
        parts = [request.model(rows.clone())[:, target] for rows in torch.split(background, request.batch_size)]
        expected = scores - torch.cat(parts).mean(0)
    gap = (maps.flatten(1).sum(1) - expected).abs()
    allowed = 1e-3 * (expected.abs() + scores.abs()) + 1e-5 * maps.flatten(1).abs().sum(1)
    if (gap > allowed).any():
        worst = int((gap / allowed).argmax())
        raise InputError(
            f"method 'deepshap', example {first + worst}: attributions sum to {float(maps[worst].sum()):.4g} instead of "
            f"{float(expected[worst]):.4g}, so a rule does not fit this network (for example overlapping max-pooling windows); "
            f"{ALTERNATIVES}"
        )
