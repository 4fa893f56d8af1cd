"""What a variable takes while it is out: its mean over the data, zero, a blurred copy of the sample, or the caller's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from skimage.filters import gaussian
from torch import Tensor

from perdure.base.errors import InputError, suggest

WORDS = ("mean", "zero", "blur")
BLUR = 0.1  # of the longest side: 3.2 pixels at 32


def baseline_rows(baseline: Any, x: Tensor, background: Tensor | None) -> Tensor:
    """Return one baseline for each sample, of x's shape.

    ``mean`` is the background's mean of each variable; None is the same where there is a background. A number
    stands for every variable; an array has the shape of one sample or of x.
    """
    if baseline is None or isinstance(baseline, str):
        return _by_word("mean" if baseline is None else baseline, x, background)
    if isinstance(baseline, int | float):
        return torch.full_like(x, float(baseline))
    given = baseline if isinstance(baseline, Tensor) else torch.from_numpy(np.asarray(baseline))
    given = given.detach().to(x)
    if not torch.isfinite(given).all():
        raise InputError("baseline: it holds NaN or infinite values")
    if given.shape not in {x.shape, x.shape[1:], (1, *x.shape[1:])}:
        raise InputError(
            f"baseline: found shape {tuple(given.shape)}, expected a number, {tuple(x.shape[1:])} or {tuple(x.shape)}"
        )
    return given.expand_as(x).clone()


def _by_word(word: str, x: Tensor, background: Tensor | None) -> Tensor:
    if word not in WORDS:
        raise InputError(f"baseline: unknown word {word!r}, {suggest(word, list(WORDS))}; or give a number or an array")
    if word == "zero":
        return torch.zeros_like(x)
    if word == "blur":
        return blurred(x)
    if background is None:
        raise InputError("baseline 'mean' needs a background: pass background=, or baseline='zero', 'blur' or an array")
    return background.mean(dim=0, keepdim=True).expand_as(x).clone()


def blurred(x: Tensor) -> Tensor:
    """Return the samples under a Gaussian blur along height and width, or along time."""
    if x.dim() < 3:
        raise InputError("baseline 'blur': table rows have no neighbours to blur with; use 'mean', 'zero' or an array")
    sigma = BLUR * max(x.shape[2:])
    plain = x.detach().cpu().numpy().astype(np.float64)
    blur: Any = gaussian  # scikit-image ships no types for it
    smooth = [blur(row, sigma=sigma, channel_axis=0, mode="nearest") for row in plain]
    return torch.from_numpy(np.stack(smooth)).to(x)
