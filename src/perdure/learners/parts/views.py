"""Strong random views of images for contrastive learning, on whole batches of tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from perdure.learners.data import Preparation, flip

AREA = (0.2, 1.0)
"""Share of the image's area that a view shows."""
RATIO = (3 / 4, 4 / 3)
JITTER = 0.4
"""Brightness, contrast and saturation are multiplied by a number between 1 - JITTER and 1 + JITTER."""
HUE = 0.1
"""The hue turns by up to this share of the circle."""
JITTERED, GREY = 0.8, 0.2
"""Shares of views whose colours change, and that lose their colours."""
_LUMA = (0.299, 0.587, 0.114)
_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


def strong_views(raw: Tensor, preparation: Preparation, generator: torch.Generator) -> Tensor:
    """Return a random view of each stored example, normalised for the network.

    The views of SimCLR (Chen et al. 2020) as Co2L and X-DER use them: a random part of the image (20 to 100 % of its
    area) at full size, mirrored in half of the cases where the benchmark's augmentation mirrors, changed in brightness,
    contrast, saturation and hue, sometimes grey. The hue turns in the YIQ plane, a matrix product, where public code goes
    through HSV. Examples that are no images have only one view: themselves.
    """
    if not preparation.is_image:
        return preparation.normalised(raw)
    x = resized_crop(raw.float() / 255, generator)
    if preparation.augmentation == "crop-flip":
        x = flip(x, generator)
    return preparation.normalised(255 * coloured(x, generator))


def resized_crop(x: Tensor, generator: torch.Generator) -> Tensor:
    """Cut a window of random area, shape and place from each image and bring it to the image's size, bilinearly."""
    count = len(x)
    area = _uniform(AREA, count, generator)
    ratio = _uniform((math.log(RATIO[0]), math.log(RATIO[1])), count, generator).exp()
    # Half sides as shares of the image's; the centre is anywhere the window still fits.
    half = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()], dim=1).clamp_max(1.0)
    centre = (2 * torch.rand(count, 2, generator=generator) - 1) * (1 - half)
    matrix = torch.cat([torch.diag_embed(half), centre[:, :, None]], dim=2).to(x.device)
    grid = F.affine_grid(matrix, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


def coloured(x: Tensor, generator: torch.Generator) -> Tensor:
    """Change brightness, contrast, saturation and hue of most images, in this order, and take the colours of some."""
    count = len(x)
    changed = x * _factor(count, generator, x)
    mean = _grey(changed).mean(dim=(2, 3), keepdim=True)
    changed = mean + _factor(count, generator, x) * (changed - mean)
    if x.shape[1] == 3:
        grey = _grey(changed)
        changed = _turned(grey + _factor(count, generator, x) * (changed - grey), generator)
    x = torch.where(_some(JITTERED, count, generator, x), changed.clamp(0, 1), x)
    return torch.where(_some(GREY, count, generator, x), _grey(x).expand_as(x), x)


def _turned(x: Tensor, generator: torch.Generator) -> Tensor:
    """Turn the hue of each image by a random angle."""
    angle = 2 * torch.pi * _uniform((-HUE, HUE), len(x), generator)
    turn = torch.eye(3).repeat(len(x), 1, 1)
    turn[:, 1, 1], turn[:, 2, 2] = angle.cos(), angle.cos()
    turn[:, 1, 2], turn[:, 2, 1] = -angle.sin(), angle.sin()
    yiq = torch.tensor(_YIQ)
    matrix: Tensor = torch.linalg.inv(yiq) @ turn @ yiq
    return (matrix.to(x.device) @ x.flatten(2)).reshape(x.shape)


def _grey(x: Tensor) -> Tensor:
    """Return the brightness of each pixel, (count, 1, height, width)."""
    if x.shape[1] != 3:
        return x.mean(dim=1, keepdim=True)
    return (x * torch.tensor(_LUMA, device=x.device)[:, None, None]).sum(dim=1, keepdim=True)


def _factor(count: int, generator: torch.Generator, like: Tensor) -> Tensor:
    return _uniform((1 - JITTER, 1 + JITTER), count, generator).to(like.device)[:, None, None, None]


def _some(share: float, count: int, generator: torch.Generator, like: Tensor) -> Tensor:
    return (torch.rand(count, generator=generator) < share).to(like.device)[:, None, None, None]


def _uniform(span: tuple[float, float], count: int, generator: torch.Generator) -> Tensor:
    return span[0] + (span[1] - span[0]) * torch.rand(count, generator=generator)
