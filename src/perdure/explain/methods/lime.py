"""LIME (Ribeiro et al. 2016) on superpixels, through captum."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from captum._utils.models.linear_model import SkLearnRidge
from captum.attr import Lime
from torch import Tensor

from perdure.base.errors import InputError
from perdure.explain.baselines import baseline_rows
from perdure.explain.draws import generator, sample_key
from perdure.explain.request import Request
from perdure.explain.shapley.players import Players, pixels, players_of, superpixels

KERNEL_WIDTH = 0.25  # as in the authors' code, for cosine distances between coalitions


def lime(request: Request) -> Tensor:
    """Weights of a local ridge regression on ``samples`` random coalitions, each player's at all of its variables.

    Images are cut into superpixels (SLIC) unless ``players`` says otherwise; other samples play by position. What is out takes
    the baseline: the background's mean if there is a background, else zero.
    """
    word = ("zero" if request.background is None else "mean") if request.baseline is None else request.baseline
    baselines = baseline_rows(word, request.x, request.background)
    maps = []
    for index, sample in enumerate(request.x):
        players = _players(request, sample)
        if players.count < 2:
            raise InputError(f"method 'lime', sample {index}: only one segment was found; use players='grid'")
        maps.append(_explained(request, index, players, baselines[index]))
        request.report(index + 1)
    return torch.stack(maps)


def _players(request: Request, sample: Tensor) -> Players:
    if request.players is not None:
        return players_of(request.players, sample)
    return superpixels(sample) if sample.dim() == 3 else pixels(tuple(sample.shape))


def _explained(request: Request, index: int, players: Players, baseline: Tensor) -> Tensor:
    explainer = Lime(request.model, interpretable_model=SkLearnRidge(alpha=1.0), similarity_func=_similarity)
    draws = generator(request.seed, sample_key(request.x[index]))
    # Captum draws from torch's global generator, whose state is put back.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(int(draws.integers(2**62)))
        found: Tensor = explainer.attribute(
            request.x[index : index + 1],
            baselines=baseline[None],
            target=int(request.target[index]),
            feature_mask=players.labels[None].to(request.x.device),
            n_samples=request.samples,
            perturbations_per_eval=request.batch_size,
        )
    return found[0].to(request.x.dtype)


def _similarity(_original: Tensor, _perturbed: Tensor, coalition: Tensor, **_: Any) -> float:
    """Return the authors' kernel of the cosine distance between a coalition and everybody."""
    distance = 1 - float(coalition.float().mean().sqrt())
    return float(torch.exp(torch.tensor(-(distance**2) / KERNEL_WIDTH**2)).sqrt())
