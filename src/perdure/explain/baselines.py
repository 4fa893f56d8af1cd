"""Baselines: the values of absent variables (mean over the background, zero, a blurred copy, or given values)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from skimage.filters import gaussian
from torch import Tensor

from perdure.base.errors import InputError, error_suggestion

NAMED_BASELINES = ("mean", "zero", "blur")
BLUR = 0.1  # standard deviation relative to the longest side: 3.2 pixels for a side of 32


def baseline_rows(baseline: Any, x: Tensor, background: Tensor | None) -> Tensor:
    """Return one baseline per example, with the shape of x.

    ``"mean"`` or None: the mean of each variable over the background. ``"zero"``: zeros. ``"blur"``: a blurred copy of each
    example. A number: that value for every variable. An array: the shape of one example or of x.
    """
    if baseline is None or isinstance(baseline, str):
        return _named_baseline("mean" if baseline is None else baseline, x, background)
    if isinstance(baseline, int | float):
        return torch.full_like(x, float(baseline))
    values = baseline if isinstance(baseline, Tensor) else torch.from_numpy(np.asarray(baseline))
    values = values.detach().to(x)
    if not torch.isfinite(values).all():
        raise InputError("baseline: expected finite values, got NaN or infinity")
    if values.shape not in {x.shape, x.shape[1:], (1, *x.shape[1:])}:
        raise InputError(
            f"baseline: expected a number or an array of shape {tuple(x.shape[1:])} or {tuple(x.shape)}, "
            f"got shape {tuple(values.shape)}"
        )
    return values.expand_as(x).clone()


def _named_baseline(name: str, x: Tensor, background: Tensor | None) -> Tensor:
    if name not in NAMED_BASELINES:
        hint = error_suggestion(name, list(NAMED_BASELINES))
        raise InputError(f"baseline: unknown name {name!r}, {hint}; or pass a number or an array")
    if name == "zero":
        return torch.zeros_like(x)
    if name == "blur":
        return blurred(x)
    if background is None:
        raise InputError("baseline 'mean' needs a background: pass background=, or baseline='zero', 'blur' or an array")
    return background.mean(dim=0, keepdim=True).expand_as(x).clone()


def blurred(x: Tensor) -> Tensor:
    """Return the examples after a Gaussian blur along height and width, or along time."""
    if x.dim() < 3:
        raise InputError("baseline 'blur': rows of a table have no positions to blur; use 'mean', 'zero' or an array")
    sigma = BLUR * max(x.shape[2:])
    arrays = x.detach().cpu().numpy().astype(np.float64)
    blur: Any = gaussian  # scikit-image has no types for it
    smooth = [blur(array, sigma=sigma, channel_axis=0, mode="nearest") for array in arrays]
    return torch.from_numpy(np.stack(smooth)).to(x)
