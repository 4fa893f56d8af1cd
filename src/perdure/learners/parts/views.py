"""Strong random views of images for contrastive learning, computed on whole batches of tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from perdure.learners.data import Preparation, random_flip

AREA = (0.2, 1.0)
"""Range of the crop's area, relative to the image."""
ASPECT_RATIO = (3 / 4, 4 / 3)
"""Range of the crop's aspect ratio."""
JITTER = 0.4
"""Brightness, contrast and saturation are multiplied by a factor between 1 - JITTER and 1 + JITTER."""
HUE = 0.1
"""Largest rotation of the hue, as a fraction of the circle."""
JITTER_PROBABILITY, GRAY_PROBABILITY = 0.8, 0.2
"""Probabilities that a view's colors are changed, and that a view is converted to gray."""
_LUMA = (0.299, 0.587, 0.114)
_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


def strong_views(raw: Tensor, preparation: Preparation, generator: torch.Generator) -> Tensor:
    """Return a random view of each stored example, normalized for the network.

    The views of SimCLR (Chen et al. 2020) as Co2L and X-DER use them: a random crop (20 to 100 % of the image's area)
    resized to full size; a horizontal flip with probability 1/2 if the benchmark's augmentation flips; changed
    brightness, contrast, saturation and hue; sometimes converted to gray. The hue is rotated in the YIQ plane by a
    matrix product; public implementations convert to HSV. Examples that are not images are returned unchanged except
    for normalization.
    """
    if not preparation.is_image:
        return preparation.normalize(raw)
    x = resized_crop(raw.float() / 255, generator)
    if preparation.augmentation == "crop-flip":
        x = random_flip(x, generator)
    return preparation.normalize(255 * color_jitter(x, generator))


def resized_crop(x: Tensor, generator: torch.Generator) -> Tensor:
    """Cut a window of random area, aspect ratio and position from each image and resize it bilinearly to the image's size."""
    count = len(x)
    area = _uniform(AREA, count, generator)
    ratio = _uniform((math.log(ASPECT_RATIO[0]), math.log(ASPECT_RATIO[1])), count, generator).exp()
    # Half sides relative to the image's; the center is uniform over the positions where the window fits.
    half = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()], dim=1).clamp_max(1.0)
    center = (2 * torch.rand(count, 2, generator=generator) - 1) * (1 - half)
    matrix = torch.cat([torch.diag_embed(half), center[:, :, None]], dim=2).to(x.device)
    grid = F.affine_grid(matrix, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


def color_jitter(x: Tensor, generator: torch.Generator) -> Tensor:
    """Change brightness, contrast, saturation and hue of most images, in this order, and convert some images to gray."""
    count = len(x)
    changed = x * _jitter_factor(count, generator, x)
    mean = _gray(changed).mean(dim=(2, 3), keepdim=True)
    changed = mean + _jitter_factor(count, generator, x) * (changed - mean)
    if x.shape[1] == 3:
        gray = _gray(changed)
        changed = _rotate_hue(gray + _jitter_factor(count, generator, x) * (changed - gray), generator)
    x = torch.where(_random_mask(JITTER_PROBABILITY, count, generator, x), changed.clamp(0, 1), x)
    return torch.where(_random_mask(GRAY_PROBABILITY, count, generator, x), _gray(x).expand_as(x), x)


def _rotate_hue(x: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate the hue of each image by a random angle."""
    angle = 2 * torch.pi * _uniform((-HUE, HUE), len(x), generator)
    rotation = torch.eye(3).repeat(len(x), 1, 1)
    rotation[:, 1, 1], rotation[:, 2, 2] = angle.cos(), angle.cos()
    rotation[:, 1, 2], rotation[:, 2, 1] = -angle.sin(), angle.sin()
    yiq = torch.tensor(_YIQ)
    matrix: Tensor = torch.linalg.inv(yiq) @ rotation @ yiq
    return (matrix.to(x.device) @ x.flatten(2)).reshape(x.shape)


def _gray(x: Tensor) -> Tensor:
    """Return the brightness of each pixel, (count, 1, height, width)."""
    if x.shape[1] != 3:
        return x.mean(dim=1, keepdim=True)
    return (x * torch.tensor(_LUMA, device=x.device)[:, None, None]).sum(dim=1, keepdim=True)


def _jitter_factor(count: int, generator: torch.Generator, like: Tensor) -> Tensor:
    return _uniform((1 - JITTER, 1 + JITTER), count, generator).to(like.device)[:, None, None, None]


def _random_mask(probability: float, count: int, generator: torch.Generator, like: Tensor) -> Tensor:
    return (torch.rand(count, generator=generator) < probability).to(like.device)[:, None, None, None]


def _uniform(bounds: tuple[float, float], count: int, generator: torch.Generator) -> Tensor:
    return bounds[0] + (bounds[1] - bounds[0]) * torch.rand(count, generator=generator)
