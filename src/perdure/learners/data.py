"""Training batches: stored arrays are augmented and normalized as whole batches of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from perdure.learners.seeds import derived_seed
from perdure.tasks import Benchmark, Examples

PADDING = 4
"""Pixels by which a random crop can move an image in each direction."""


class Preparation:
    """Converts stored examples to network inputs: augmentation (training only), scaling and normalization."""

    def __init__(self, benchmark: Benchmark, device: torch.device) -> None:
        self.is_image = len(benchmark.input_shape) == 3
        self.augmentation = benchmark.augmentation
        self._factor, self._shift = (torch.from_numpy(array).to(device) for array in benchmark.normalization())

    @property
    def augments(self) -> bool:
        """Whether training inputs are augmented."""
        return self.augmentation != "none"

    def normalize(self, x: Tensor) -> Tensor:
        """Return network inputs for stored examples, without augmentation."""
        return torch.addcmul(self._shift, x.float(), self._factor)

    def augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return network inputs for stored examples: randomly cropped, flipped if the augmentation flips, and normalized."""
        if self.augments:
            x = random_crop(x, generator)
            if self.augmentation == "crop-flip":
                x = random_flip(x, generator)
        return self.normalize(x)


def random_crop(x: Tensor, generator: torch.Generator) -> Tensor:
    """Pad each image with four black pixels on every side and cut out a window of the original size at a random position."""
    count, _, height, width = x.shape
    offsets = torch.randint(0, 2 * PADDING + 1, (2, count, 1), generator=generator).to(x.device)
    rows = offsets[0] + torch.arange(height, device=x.device)
    columns = offsets[1] + torch.arange(width, device=x.device)
    padded = F.pad(x, (PADDING, PADDING, PADDING, PADDING))
    # With the channels last, one gather serves the whole batch.
    images = torch.arange(count, device=x.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[images, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def random_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Flip each image horizontally with probability 1/2."""
    flipped = (torch.rand(len(x), generator=generator) < 0.5).to(x.device)
    return torch.where(flipped[:, None, None, None], x.flip(-1), x)


@dataclass(frozen=True, slots=True)
class Batch:
    """A training batch.

    ``x``: network inputs, augmented and normalized. ``y``: output index of each example's class. ``unaugmented_x``: the
    examples as stored. ``task``: index of the task that is being trained.
    """

    x: Tensor
    y: Tensor
    unaugmented_x: Tensor
    task: int

    @property
    def size(self) -> int:
        """Number of examples."""
        return len(self.y)


class TrainingData:
    """The training examples of one step, on the device. The order of batches depends only on seed, step and epoch."""

    def __init__(self, examples: Sequence[Examples], preparation: Preparation, device: torch.device) -> None:
        self._raw = torch.cat([torch.from_numpy(np.ascontiguousarray(part.x)) for part in examples]).to(device)
        self._y = torch.cat([torch.from_numpy(part.y) for part in examples]).to(device)
        self._preparation = preparation
        # Without augmentation, inputs are normalized once instead of in every epoch.
        self._normalized = None if preparation.augments else preparation.normalize(self._raw)

    def __len__(self) -> int:
        return len(self._y)

    def order(self, seed: int, step: int, epoch: int, batch_size: int) -> list[Tensor]:
        """Return the indices of each batch of an epoch.

        Batch norm cannot train on one example, so a last batch of one is merged into the batch before it.
        """
        generator = torch.Generator().manual_seed(derived_seed(seed, "order", step, epoch))
        batches = list(torch.split(torch.randperm(len(self), generator=generator).to(self._y.device), batch_size))
        if len(batches) > 1 and len(batches[-1]) == 1:
            batches[-2:] = [torch.cat(batches[-2:])]
        return batches

    def batch(self, indices: Tensor, task: int, generator: torch.Generator) -> Batch:
        """Return the batch with these indices, augmented if the benchmark uses augmentation."""
        raw = self._raw[indices]
        x = self._preparation.augment(raw, generator) if self._normalized is None else self._normalized[indices]
        return Batch(x, self._y[indices], raw, task)
