"""From arrays to batches: augmentation and normalisation on whole batches of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from perdure.tasks import Benchmark, Examples

PADDING = 4


class Preparation:
    """What stands between stored examples and the network: augment (training only), scale and normalise."""

    def __init__(self, benchmark: Benchmark, device: torch.device) -> None:
        shape = (1, -1, 1, 1) if len(benchmark.input_shape) == 3 else (1, -1)
        self.is_image = len(benchmark.input_shape) == 3
        self.augmentation = benchmark.augmentation
        scale = 255.0 if self.is_image else 1.0
        # (x / 255 - mean) / std in one multiplication and one addition.
        std = torch.tensor(benchmark.std, device=device).reshape(shape)
        mean = torch.tensor(benchmark.mean, device=device).reshape(shape)
        self._factor = 1.0 / (scale * std)
        self._shift = -mean / std

    @property
    def augments(self) -> bool:
        """Whether training batches differ from the stored examples."""
        return self.augmentation != "none"

    def normalised(self, x: Tensor) -> Tensor:
        """Return network inputs for stored examples."""
        return torch.addcmul(self._shift, x.float(), self._factor)

    def augmented(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return network inputs for stored examples: shifted by up to four pixels (black comes in), half of them flipped."""
        if self.augments:
            x = shift(x, generator)
            if self.augmentation == "crop-flip":
                x = flip(x, generator)
        return self.normalised(x)


def shift(x: Tensor, generator: torch.Generator) -> Tensor:
    """Pad each image with four black pixels and cut a window of its old size at a random place of its own."""
    count, _, height, width = x.shape
    offsets = torch.randint(0, 2 * PADDING + 1, (2, count, 1), generator=generator).to(x.device)
    rows = offsets[0] + torch.arange(height, device=x.device)
    columns = offsets[1] + torch.arange(width, device=x.device)
    padded = F.pad(x, (PADDING, PADDING, PADDING, PADDING))
    # Indexing with the channels last keeps one gather for the whole batch.
    images = torch.arange(count, device=x.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[images, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image left to right with probability one half."""
    chosen = (torch.rand(len(x), generator=generator) < 0.5).to(x.device)
    return torch.where(chosen[:, None, None, None], x.flip(-1), x)


@dataclass(frozen=True, slots=True)
class Batch:
    """A training batch: ``x`` as the network sees it, ``y`` the output units, ``plain_x`` the stored, un-augmented examples."""

    x: Tensor
    y: Tensor
    plain_x: Tensor
    task: int

    @property
    def size(self) -> int:
        """Number of examples."""
        return len(self.y)


class TrainingData:
    """The examples of one step on the device, served in batches in an order that depends on the seed and the epoch only."""

    def __init__(self, examples: Sequence[Examples], preparation: Preparation, device: torch.device) -> None:
        self._raw = torch.cat([torch.from_numpy(np.ascontiguousarray(part.x)) for part in examples]).to(device)
        self._y = torch.cat([torch.from_numpy(part.y) for part in examples]).to(device)
        self._preparation = preparation
        # What is not augmented is normalised once, not in every epoch.
        self._ready = None if preparation.augments else preparation.normalised(self._raw)

    def __len__(self) -> int:
        return len(self._y)

    def order(self, seed: int, step: int, epoch: int, batch_size: int) -> list[Tensor]:
        """Return the indices of each batch of an epoch; one left over, which batch norm cannot train on, joins the last."""
        generator = torch.Generator().manual_seed(derived_seed(seed, "order", step, epoch))
        parts = list(torch.split(torch.randperm(len(self), generator=generator).to(self._y.device), batch_size))
        if len(parts) > 1 and len(parts[-1]) == 1:
            parts[-2:] = [torch.cat(parts[-2:])]
        return parts

    def batch(self, indices: Tensor, task: int, generator: torch.Generator) -> Batch:
        """Return the batch at these indices, augmented where the benchmark asks for it."""
        raw = self._raw[indices]
        x = self._preparation.augmented(raw, generator) if self._ready is None else self._ready[indices]
        return Batch(x, self._y[indices], raw, task)


_PURPOSES = ("network", "order", "augmentation", "learner", "global", "part")


def derived_seed(seed: int, purpose: str, *numbers: int) -> int:
    """Return a seed of its own for each purpose, step and epoch, so that no two random streams share their draws."""
    sequence = np.random.SeedSequence([seed, _PURPOSES.index(purpose), *numbers])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
