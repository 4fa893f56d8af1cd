"""A small vision transformer in which attention scores, softmax, value mixing and each addition are modules."""

from __future__ import annotations

from math import sqrt
from typing import cast

import torch
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.nets.registry import Add, Network, named_sequential, network

HEAD_SIZE = 16


class Permute(nn.Module):
    """Permutes the axes of a tensor."""

    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        """Return x with its axes permuted."""
        return x.permute(self.axes)


class Position(nn.Module):
    """Adds a learned position embedding to each token."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.offset = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, tokens, width), std=0.02))

    def forward(self, x: Tensor) -> Tensor:
        """Return x + offset."""
        return x + self.offset


class Scores(nn.Module):
    """Scaled dot-product scores: the products of queries and keys, divided by the square root of the head size."""

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return (batch, heads, tokens, tokens)."""
        return queries @ keys.transpose(-2, -1) / sqrt(HEAD_SIZE)


class Mix(nn.Module):
    """The average of the values, weighted by the attention."""

    def forward(self, attention: Tensor, values: Tensor) -> Tensor:
        """Return (batch, heads, tokens, head size)."""
        return attention @ values


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2), heads of 16 channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.queries, self.keys, self.values = (self._to_heads(width) for _ in range(3))
        self.scores = Scores()
        self.softmax = nn.Softmax(dim=-1)
        self.mix = Mix()
        self.merge = named_sequential(order=Permute(0, 2, 1, 3), flat=nn.Flatten(2), out=nn.Linear(width, width))

    @staticmethod
    def _to_heads(width: int) -> nn.Module:
        heads = nn.Unflatten(2, (width // HEAD_SIZE, HEAD_SIZE))
        return named_sequential(linear=nn.Linear(width, width), heads=heads, order=Permute(0, 2, 1, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Return the attended tokens, (batch, tokens, width)."""
        attention = self.softmax(self.scores(self.queries(x), self.keys(x)))
        return cast(Tensor, self.merge(self.mix(attention, self.values(x))))


class Encoder(nn.Module):
    """Self-attention, then a perceptron, each with pre-normalization and a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attend = named_sequential(norm=nn.LayerNorm(width), attention=Attention(width))
        self.add1 = Add()
        self.think = named_sequential(
            norm=nn.LayerNorm(width),
            widen=nn.Linear(width, 2 * width),
            gelu=nn.GELU(),
            narrow=nn.Linear(2 * width, width),
        )
        self.add2 = Add()

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens of the same shape."""
        x = self.add1(x, self.attend(x))
        return cast(Tensor, self.add2(x, self.think(x)))


@network(
    "vit-small",
    paper="Dosovitskiy et al. 2021, at the size Lee et al. 2021 use for small images",
    minimum=(8, 8),
    width=192,
    width_meaning="channels of a token, a multiple of 16",
)
def vit_small(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """Small vision transformer (Dosovitskiy et al. 2021): nine encoders, 4 x 4 patches.

    Patches are 8 x 8 pixels if a side exceeds 32. Attention heads have 16 channels. Tokens are averaged instead of
    using a class token, so that every token corresponds to pixels.
    """
    channels, height, image_width = shape
    patch = 4 if max(height, image_width) <= 32 else 8
    if height % patch or image_width % patch:
        raise InputError(
            f"network 'vit-small': an image of {height} x {image_width} cannot be divided into patches of {patch} x {patch}; "
            f"pad it to multiples of {patch}"
        )
    if width % HEAD_SIZE:
        raise InputError(f"network 'vit-small': width: expected a multiple of {HEAD_SIZE}, got {width}")
    body = named_sequential(
        patches=nn.Conv2d(channels, width, patch, stride=patch),
        flat=nn.Flatten(2),
        tokens=Permute(0, 2, 1),
        position=Position((height // patch) * (image_width // patch), width),
        encoders=nn.Sequential(*(Encoder(width) for _ in range(9))),
        norm=nn.LayerNorm(width),
        back=Permute(0, 2, 1),
        mean=nn.AdaptiveAvgPool1d(1),
        vector=nn.Flatten(),
    )
    for module in body.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
    return Network(body, nn.Linear(width, outputs))
