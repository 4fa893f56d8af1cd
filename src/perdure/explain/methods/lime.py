"""LIME on superpixels, through captum."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import torch
from captum._utils.models.linear_model import SkLearnRidge
from captum.attr import Lime
from torch import Tensor

from perdure.base.errors import InputError
from perdure.explain.checks.network import Outputs
from perdure.explain.draws import generator
from perdure.explain.explainer import Request, explainer
from perdure.explain.shapley.players import Players, pixel_players, players_of, superpixel_players

KERNEL_WIDTH = 0.25
"""The width that the authors' code uses for cosine distances between coalitions."""


@explainer("lime", needs=Outputs(), stochastic=True, pixels="players")
def lime(request: Request, kernel_width: float = KERNEL_WIDTH) -> Tensor:
    """LIME (Ribeiro et al. 2016): weights of a local ridge regression on ``samples`` random coalitions.

    Each player's weight is written to all of its variables. Images are segmented into superpixels (SLIC) unless ``players``
    is given; in other inputs each position is a player. Absent players take the baseline: the mean of the background if
    there is one, zero otherwise. ``kernel_width`` is the width of the kernel on cosine distances between coalitions.
    """
    baselines = request.baselines("zero" if request.background is None else "mean")
    maps = []
    for index, example in enumerate(request.x):
        players = _players(request, example)
        if players.count < 2:
            raise InputError(f"method 'lime', example {index}: only one segment was found; use players='grid'")
        maps.append(_map(request, index, players, baselines[index], kernel_width))
        request.report(index + 1)
    return torch.stack(maps)


def _players(request: Request, example: Tensor) -> Players:
    if request.players is not None:
        return players_of(request.players, example)
    return superpixel_players(example) if example.dim() == 3 else pixel_players(tuple(example.shape))


def _map(request: Request, index: int, players: Players, baseline: Tensor, kernel_width: float) -> Tensor:
    """Return the map of one example."""
    similarity = partial(_similarity, kernel_width=kernel_width)
    regression = Lime(request.model, interpretable_model=SkLearnRidge(alpha=1.0), similarity_func=similarity)
    draws = generator(request.seed, request.keys[index])
    # Captum draws from torch's global generator; its state is restored afterwards.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(int(draws.integers(2**62)))
        weights: Tensor = regression.attribute(
            request.x[index : index + 1],
            baselines=baseline[None],
            target=int(request.target[index]),
            feature_mask=players.labels[None].to(request.x.device),
            n_samples=request.samples,
            perturbations_per_eval=request.batch_size,
        )
    return weights[0].to(request.x.dtype)


def _similarity(_original: Tensor, _perturbed: Tensor, coalition: Tensor, *, kernel_width: float, **_: Any) -> float:
    """Return the authors' kernel of the cosine distance between a coalition and the full coalition."""
    distance = 1 - float(coalition.float().mean().sqrt())
    return float(torch.exp(torch.tensor(-(distance**2) / kernel_width**2)).sqrt())
