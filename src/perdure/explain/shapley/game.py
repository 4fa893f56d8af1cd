"""A network and one sample as a cooperative game (Shapley 1953): F(T) is the output when only T is shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.explain.adapters.arrays import check_finite, rows_per_batch
from perdure.explain.shapley.players import Players

FloatArray = NDArray[np.float64]


class NetworkGame:
    """The target's output as a function of coalitions: a player that is out takes its baseline.

    Call it with (m, players) booleans for (m,) values. ``gradients`` takes the same rows as numbers in [0, 1], 1 for in, 0 for
    out, and returns the derivative along each player's way from its baseline to its value. With ``layer`` the players are
    units of that layer's output (sample and baseline have its shape) and ``source`` is the network's input.
    """

    def __init__(
        self,
        model: nn.Module,
        sample: Tensor,
        target: int,
        players: Players,
        baseline: Tensor,
        *,
        batch_size: int | None = None,
        layer: nn.Module | None = None,
        source: Tensor | None = None,
        index: int = 0,
    ) -> None:
        if players.shape != tuple(sample.shape) or baseline.shape != sample.shape:
            raise InputError(
                f"game: sample {tuple(sample.shape)}, baseline {tuple(baseline.shape)} and players {players.shape} "
                "must have one shape"
            )
        self.model, self.target, self.index = model, target, index
        self.sample, self.baseline, self.labels = sample, baseline, players
        self.layer, self.source = layer, source
        self.batch_size = rows_per_batch(batch_size, sample.shape if source is None else source.shape)
        self._by_position = players.kind == "pixels" and sample.dim() > 1

    @property
    def players(self) -> int:
        """How many players there are."""
        return self.labels.count

    def __call__(self, coalitions: Any) -> FloatArray:
        """Return F for each coalition."""
        rows = torch.from_numpy(np.asarray(coalitions, dtype=bool))
        values = []
        with torch.inference_mode():
            for part in torch.split(rows, self.batch_size):
                shown = self._spread(part.to(self.sample.device))
                values.append(self._scores(torch.where(shown, self.sample, self.baseline)))
        return torch.cat(values).cpu().double().numpy()

    def gradients(self, weights: Any) -> FloatArray:
        """Return (m, players): the derivative of the output by each player's share, at these shares."""
        rows = torch.from_numpy(np.asarray(weights, dtype=np.float64)).to(self.sample)
        difference = self.sample - self.baseline
        found = []
        for part in torch.split(rows, self.batch_size):
            point = (self.baseline + self._spread(part) * difference).requires_grad_()
            (gradient,) = torch.autograd.grad(self._scores(point).sum(), point)
            found.append(self._gather(gradient * difference))
        return torch.cat(found).cpu().double().numpy()

    def _spread(self, rows: Tensor) -> Tensor:
        if self._by_position:  # a view instead of a copy for every channel
            return rows.reshape(len(rows), 1, *self.sample.shape[1:])
        return self.labels.spread(rows)

    def _gather(self, variables: Tensor) -> Tensor:
        return variables.sum(1).flatten(1) if self._by_position else self.labels.gather(variables)

    def _scores(self, rows: Tensor) -> Tensor:
        if self.layer is None:
            scores = self.model(rows)
        else:
            with _replaced(self.layer, rows):
                scores = self.model(self._source().expand(len(rows), *self._source().shape))
        return self._checked(scores)

    def _checked(self, scores: Tensor) -> Tensor:
        """Return the target's scores, refusing what is not finite."""
        chosen: Tensor = scores[:, self.target]
        check_finite(chosen.detach().reshape(1, -1), self.index, "the network's output for a coalition")
        return chosen

    def _source(self) -> Tensor:
        if self.source is None:
            raise InputError("game: players that are units of a layer need source=, the network's input")
        return self.source


def layer_output(model: nn.Module, layer: nn.Module, source: Tensor) -> Tensor:
    """Return what a layer puts out for one input, without the batch dimension."""
    caught: list[Tensor] = []
    handle = layer.register_forward_hook(lambda _, __, output: caught.append(output.detach().clone()))
    try:
        with torch.no_grad():
            model(source[None].clone())
    finally:
        handle.remove()
    if len(caught) != 1:
        raise InputError(f"layer: it is called {len(caught)} times in a forward pass, expected once")
    return caught[0][0]


@contextmanager
def _replaced(layer: nn.Module, rows: Tensor) -> Iterator[None]:
    """Put ``rows`` in the place of a layer's output for the time of the block."""
    handle = layer.register_forward_hook(lambda *_: rows)
    try:
        yield
    finally:
        handle.remove()
