"""Five axioms of attribution, checked for any method on a small game or a small network.

Linearity, dummy, symmetry and efficiency (Shapley 1953) and interaction distribution (Harsanyi 1963; Theorem 1 of the bias
paper). Only the Shapley value satisfies all of them. The dummy axiom in the bias paper is misprinted: a dummy is a player with
F(T + i) - F(T) = F(i) - F(empty) for every T.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.explain.attribute import attribute
from perdure.explain.draws import generator
from perdure.explain.shapley.exact import ExactShapley, exact_shapley
from perdure.explain.shapley.game import FloatArray, GameFunction, NetworkGame, game_values
from perdure.explain.shapley.players import feature_players, player_count

MOST_PLAYERS = 12
DUMMY_VALUE = 0.7
Solver = Callable[[GameFunction, int], Any]


@dataclass(frozen=True)
class AxiomCheck:
    """Result for one axiom: whether it holds, and the violation relative to the largest Shapley value."""

    axiom: str
    holds: bool
    gap: float


@dataclass(frozen=True)
class Axioms:
    """Results of the five checks for one method; ``str`` gives a table."""

    method: str
    checks: tuple[AxiomCheck, ...]

    def __getitem__(self, axiom: str) -> AxiomCheck:
        return next(check for check in self.checks if check.axiom == axiom)

    def __str__(self) -> str:
        rows = [f"{check.axiom:<26}{'yes' if check.holds else 'no':<7}{check.gap:.1e}" for check in self.checks]
        return "\n".join([f"{self.method:<26}{'holds':<7}gap", *rows])


def check_axioms(solve: Solver, value: GameFunction, players: int, *, seed: int = 0, tolerance: float = 1e-6) -> Axioms:
    """Check a method ``solve(value, players) -> (players,)`` on a game of 2 to 12 players.

    Linearity is checked with a random second game, dummy with an additional player that adds a constant, and symmetry on the
    average of the game and the game with its first two players exchanged.
    """
    count = _small_player_count(players)
    exact = exact_shapley(value, count)
    random_values = generator(seed, 4).normal(size=1 << count)

    def second_game(rows: Any) -> FloatArray:
        return np.asarray(random_values[rows @ (1 << np.arange(count))])

    def sum_of_games(rows: Any) -> FloatArray:
        return game_values(value, rows) + second_game(rows)

    def with_dummy(rows: Any) -> FloatArray:
        return np.asarray(game_values(value, rows[:, :-1]) + DUMMY_VALUE * rows[:, -1])

    def symmetric(rows: Any) -> FloatArray:
        exchanged = rows[:, [1, 0, *range(2, count)]]
        return (game_values(value, rows) + game_values(value, exchanged)) / 2

    attributions = _attributions(solve, value, count)
    symmetric_pair = _attributions(solve, symmetric, count)
    gaps = {
        "linearity": _attributions(solve, sum_of_games, count)
        - attributions
        - _attributions(solve, second_game, count),
        "dummy": _attributions(solve, with_dummy, count + 1)[-1] - DUMMY_VALUE,
        "symmetry": symmetric_pair[0] - symmetric_pair[1],
        **_exact_gaps(attributions, exact),
    }
    return _checked(getattr(solve, "__name__", "method"), gaps, exact.values, tolerance)


def check_network_axioms(
    model: nn.Module,
    x: Any,
    target: int,
    method: str,
    *,
    baseline: Any = None,
    samples: int = 200,
    tolerance: float = 1e-3,
) -> Axioms:
    """Check a method of `attribute` on a small network and one example with 2 to 12 features.

    The games of the axioms are networks: the sum of two networks, the network with an additional input that is added to the
    outputs, and the sum of the network and a copy whose first two inputs are exchanged, at an input where these are equal.
    The baseline (zero by default) is also the background of methods that need one.
    """
    row = torch.as_tensor(x).reshape(1, -1).float()
    count = _small_player_count(row.shape[1])
    start = torch.zeros_like(row) if baseline is None else torch.as_tensor(baseline).reshape(1, -1).float()
    if start.shape != row.shape:
        raise InputError(f"baseline: expected {count} values, as in x, got {start.numel()}")

    def solve(net: nn.Module, point: Tensor, reference: Tensor) -> FloatArray:
        maps = attribute(
            net.eval(),
            point,
            target,
            method,
            background=reference,
            baseline=reference,
            samples=samples,
            players="features",
        )
        return np.asarray(maps[0].double())

    second = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.mul_(0.8)
    outputs = model(row).shape[1]
    equal_row, equal_start = row.clone(), start.clone()
    equal_row[0, 1], equal_start[0, 1] = equal_row[0, 0], equal_start[0, 0]
    extended = torch.cat([row, torch.ones(1, 1)], dim=1), torch.cat([start, torch.zeros(1, 1)], dim=1)
    attributions = solve(model, row, start)
    symmetric_pair = solve(_Sum(_Exchange(model, count), copy.deepcopy(model)), equal_row, equal_start)
    game = NetworkGame(model, row[0], target, feature_players((count,)), start[0])
    exact = exact_shapley(game, count)
    gaps = {
        "linearity": solve(_Sum(model, second), row, start) - attributions - solve(second, row, start),
        "dummy": solve(_WithDummy(model, count, outputs), *extended)[-1] - DUMMY_VALUE,
        "symmetry": (symmetric_pair[0] - symmetric_pair[1]) / 2,
        **_exact_gaps(attributions, exact),
    }
    return _checked(method, gaps, exact.values, tolerance)


def _small_player_count(players: Any) -> int:
    count = player_count(players)
    if not 2 <= count <= MOST_PLAYERS:
        raise InputError(f"axioms: expected 2 to {MOST_PLAYERS} players, got {count}")
    return count


def _attributions(solve: Solver, value: GameFunction, players: int) -> FloatArray:
    values = np.asarray(solve(value, players), dtype=np.float64)
    if values.shape != (players,):
        raise InputError(f"axioms: expected the method to return shape ({players},), got {values.shape}")
    return values


def _exact_gaps(attributions: FloatArray, exact: ExactShapley) -> dict[str, Any]:
    """Return the violations of the two axioms that need the values of all coalitions."""
    return {
        "efficiency": attributions.sum() - (exact.table[-1] - exact.table[0]),
        "interaction distribution": attributions - _distributed(exact.dividends.array, len(exact.values)),
    }


def _distributed(dividends: FloatArray, players: int) -> FloatArray:
    """Return sum over T with i of D(T) / |T|: every interaction divided equally among its members."""
    sizes = np.array([mask.bit_count() for mask in range(len(dividends))])
    shares = dividends / np.maximum(sizes, 1)
    return np.array([shares.reshape(-1, 2, 1 << player)[:, 1].sum() for player in range(players)])


def _checked(method: str, gaps: dict[str, Any], values: FloatArray, tolerance: float) -> Axioms:
    scale = max(float(np.abs(values).max()), np.finfo(float).tiny)
    sizes = {axiom: float(np.abs(gap).max()) / scale for axiom, gap in gaps.items()}
    return Axioms(method, tuple(AxiomCheck(axiom, size <= tolerance, size) for axiom, size in sizes.items()))


class _Add(nn.Module):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


class _Sum(nn.Module):
    """The sum of two networks' outputs."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second, self.add = copy.deepcopy(first), second, _Add()

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.add(self.first(x), self.second(x))
        return total


class _Exchange(nn.Module):
    """A network whose first two inputs are exchanged."""

    def __init__(self, model: nn.Module, inputs: int) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("order", torch.tensor([1, 0, *range(2, inputs)]))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.model(x.index_select(1, self.get_buffer("order")))
        return scores


class _WithDummy(nn.Module):
    """A network with an additional input that adds a constant to every output."""

    def __init__(self, model: nn.Module, inputs: int, outputs: int) -> None:
        super().__init__()
        self.model, self.inputs, self.add = copy.deepcopy(model), inputs, _Add()
        self.dummy = nn.Linear(1, outputs, bias=False)
        nn.init.constant_(self.dummy.weight, DUMMY_VALUE)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.add(self.model(x[:, : self.inputs]), self.dummy(x[:, self.inputs :]))
        return total
