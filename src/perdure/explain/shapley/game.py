"""A network and one example as a cooperative game (Shapley 1953): F(T) is the output if only the players in T are present."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from perdure.base.errors import InputError
from perdure.explain.adapters.adapted import replaced_output
from perdure.explain.adapters.arrays import array_batch_size, check_finite_array
from perdure.explain.shapley.players import Players

FloatArray = NDArray[np.float64]
GameFunction = Callable[[NDArray[np.bool_]], Any]
"""Takes (m, players) booleans, one coalition per row; returns (m,) or (m, outputs)."""


class NetworkGame:
    """The target's output as a function of coalitions. Absent players have their baseline values.

    Calling the game with (m, players) booleans returns (m,) values. ``gradients`` takes weights in [0, 1] instead of booleans
    (0: baseline, 1: value) and returns derivatives. With ``layer``, the players are units of that layer's output,
    ``example`` and ``baseline`` have its shape, and ``source`` is the network's input.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> network = nn.Linear(3, 2, bias=False)
    >>> network.weight.data = torch.tensor([[1.0, -2.0, 3.0], [0.0, 1.0, 1.0]])
    >>> example = torch.ones(3)
    >>> players = explain.feature_players((3,))
    >>> game = explain.NetworkGame(network, example, 0, players, torch.zeros(3))
    >>> game(np.array([[True, False, False], [True, True, True]])).tolist()
    [1.0, 2.0]
    >>> explain.exact_shapley(game, players=3).values.round(3).tolist()
    [1.0, -2.0, 3.0]
    """

    def __init__(
        self,
        model: nn.Module,
        example: Tensor,
        target: int,
        players: Players,
        baseline: Tensor,
        *,
        batch_size: int | None = None,
        layer: nn.Module | None = None,
        source: Tensor | None = None,
        index: int = 0,
    ) -> None:
        if players.shape != tuple(example.shape) or baseline.shape != example.shape:
            raise InputError(
                f"game: expected an example, a baseline and players of the same shape, got {tuple(example.shape)}, "
                f"{tuple(baseline.shape)} and {players.shape}"
            )
        self.model, self.target, self.index = model, target, index
        self.example, self.baseline, self.partition = example, baseline, players
        self.layer, self.source = layer, source
        self.batch_size = array_batch_size(batch_size, example.shape if source is None else source.shape)
        self._by_position = players.kind == "pixels" and example.dim() > 1

    @property
    def players(self) -> int:
        """Number of players."""
        return self.partition.count

    @cached_property
    def differentiable(self) -> bool:
        """Whether outputs have a gradient with respect to the input; functions outside PyTorch and token ids have none."""
        if not self.example.is_floating_point():
            return False
        with torch.enable_grad():
            return bool(self._scores(self.example[None].clone().requires_grad_()).requires_grad)

    def multiply_adds(self) -> float | None:
        """Return the multiply-adds of one evaluation, counted by torch; None if the model computes outside PyTorch."""
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            self._scores(self.example[None].clone())
        return counter.get_total_flops() / 2 or None

    def __call__(self, coalitions: Any) -> FloatArray:
        """Return F for each coalition."""
        rows = torch.from_numpy(np.asarray(coalitions, dtype=bool))
        values = []
        with torch.inference_mode():
            for part in torch.split(rows, self.batch_size):
                present = self._spread(part.to(self.example.device))
                values.append(self._scores(torch.where(present, self.example, self.baseline)))
        return torch.cat(values).cpu().double().numpy()

    def gradients(self, weights: Any) -> FloatArray:
        """Return the derivative of the output with respect to the weight of each player, (m, players).

        A player with weight w has the values baseline + w * (example - baseline).
        """
        rows = torch.from_numpy(np.asarray(weights, dtype=np.float64)).to(self.example)
        difference = self.example - self.baseline
        derivatives = []
        for part in torch.split(rows, self.batch_size):
            point = (self.baseline + self._spread(part) * difference).requires_grad_()
            (gradient,) = torch.autograd.grad(self._scores(point.clone()).sum(), point)
            derivatives.append(self._gather(gradient * difference))
        return torch.cat(derivatives).cpu().double().numpy()

    def _spread(self, rows: Tensor) -> Tensor:
        if self._by_position:  # a view instead of a copy for every channel
            return rows.reshape(len(rows), 1, *self.example.shape[1:])
        return self.partition.spread(rows)

    def _gather(self, variables: Tensor) -> Tensor:
        return variables.sum(1).flatten(1) if self._by_position else self.partition.gather(variables)

    def _scores(self, rows: Tensor) -> Tensor:
        if self.layer is None:
            scores = self.model(rows)
        else:
            with replaced_output(self.layer, rows):
                scores = self.model(self._source().expand(len(rows), *self._source().shape).clone())
        return self._checked(scores)

    def _checked(self, scores: Tensor) -> Tensor:
        """Return the target's scores. NaN and infinity raise `InputError`."""
        target_scores: Tensor = scores[:, self.target]
        check_finite_array(target_scores.detach().reshape(1, -1), self.index, "the network's output for a coalition")
        return target_scores

    def _source(self) -> Tensor:
        if self.source is None:
            raise InputError("game: with layer=, the network's input is needed too; pass it as source=")
        return self.source


def game_layer_output(model: nn.Module, layer: nn.Module, source: Tensor) -> Tensor:
    """Return the output of a layer for one input, without the batch dimension.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
    >>> output = explain.game_layer_output(network, network[1], torch.ones(1, 5, 5))
    >>> tuple(output.shape)
    (4, 3, 3)
    """
    outputs: list[Tensor] = []
    handle = layer.register_forward_hook(lambda _, __, output: outputs.append(output.detach().clone()))
    try:
        with torch.no_grad():
            model(source[None].clone())
    finally:
        handle.remove()
    if len(outputs) != 1:
        raise InputError(
            f"layer: expected one call in a forward pass, got {len(outputs)}; pass a layer that is used once"
        )
    return outputs[0][0]


def game_values(value: GameFunction, coalitions: NDArray[np.bool_]) -> FloatArray:
    """Return a game's values, (m,) or (m, outputs). Another shape, NaN or infinity raises `InputError`."""
    raw = value(coalitions)
    if hasattr(raw, "detach"):
        raw = raw.detach().cpu().numpy()
    values = np.asarray(raw, dtype=np.float64)
    if values.ndim not in (1, 2) or len(values) != len(coalitions):
        raise InputError(
            f"value: expected shape ({len(coalitions)},) or ({len(coalitions)}, outputs) for {len(coalitions)} coalitions, "
            f"got {values.shape}"
        )
    if not np.isfinite(values).all():
        invalid = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        members = np.flatnonzero(coalitions[invalid.argmax()])
        shown = ", ".join(map(str, members[:8])) + (", ..." if len(members) > 8 else "")
        raise InputError(f"value: the value of coalition {{{shown}}} is NaN or infinite")
    return values
