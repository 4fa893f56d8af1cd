"""Five axioms of attribution, checked for any method on a small game or a small network.

Linearity, dummy, symmetry and efficiency (Shapley 1953) and the interaction distribution (Harsanyi 1963; Theorem 1 of the
bias paper). Only the Shapley value has all of them. The bias paper's dummy axiom is misprinted: a dummy is a player with
F(T + i) - F(T) = F(i) - F(nobody) for every T.
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
from perdure.explain.shapley.exact import exact_shapley
from perdure.explain.shapley.game import NetworkGame
from perdure.explain.shapley.players import features
from perdure.explain.shapley.values import FloatArray, Value, evaluated, player_count

MOST_PLAYERS = 12
DUMMY_WORTH = 0.7
Solver = Callable[[Value, int], Any]


@dataclass(frozen=True)
class AxiomCheck:
    """One axiom: whether it holds, and by how much it is missed, in units of the largest attribution."""

    axiom: str
    holds: bool
    gap: float


@dataclass(frozen=True)
class Axioms:
    """The five checks of one method; printed, they are a table."""

    method: str
    checks: tuple[AxiomCheck, ...]

    def __getitem__(self, axiom: str) -> AxiomCheck:
        return next(check for check in self.checks if check.axiom == axiom)

    def __str__(self) -> str:
        rows = [f"{check.axiom:<26}{'yes' if check.holds else 'no':<7}{check.gap:.1e}" for check in self.checks]
        return "\n".join([f"{self.method:<26}{'holds':<7}gap", *rows])


def check_axioms(solve: Solver, value: Value, players: int, *, seed: int = 0, tolerance: float = 1e-6) -> Axioms:
    """Check a method ``solve(value, players) -> (players,)`` on a game of 2 to 12 players.

    Linearity is tried with a random second game, the dummy as one more player of constant worth, symmetry on the game averaged
    with its first two players exchanged.
    """
    count = _few(players)
    table = exact_shapley(value, count)
    second = generator(seed, 4).normal(size=1 << count)

    def other(rows: Any) -> FloatArray:
        return np.asarray(second[rows @ (1 << np.arange(count))])

    def both(rows: Any) -> FloatArray:
        return evaluated(value, rows) + other(rows)

    def with_dummy(rows: Any) -> FloatArray:
        return np.asarray(evaluated(value, rows[:, :-1]) + DUMMY_WORTH * rows[:, -1])

    def symmetric(rows: Any) -> FloatArray:
        exchanged = rows[:, [1, 0, *range(2, count)]]
        return (evaluated(value, rows) + evaluated(value, exchanged)) / 2

    own = _solved(solve, value, count)
    twins = _solved(solve, symmetric, count)
    gaps = {
        "linearity": _solved(solve, both, count) - own - _solved(solve, other, count),
        "dummy": _solved(solve, with_dummy, count + 1)[-1] - DUMMY_WORTH,
        "symmetry": twins[0] - twins[1],
        "efficiency": own.sum() - (table.table[-1] - table.table[0]),
        "interaction distribution": own - _distributed(table.dividends.array, count),
    }
    return _judged(getattr(solve, "__name__", "method"), gaps, table.values, tolerance)


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
    """Check a method of ``attribute`` on a small network and one table row of 2 to 12 columns.

    The games of the axioms are networks here: the sum of two outputs, the network with one more input that is
    only added, and its average with a copy whose first two inputs are exchanged, at an input where they are equal. The
    baseline (zero unless given) is also the background of methods that need one.
    """
    row = torch.as_tensor(x).reshape(1, -1).float()
    count = _few(row.shape[1])
    start = torch.zeros_like(row) if baseline is None else torch.as_tensor(baseline).reshape(1, -1).float()
    if start.shape != row.shape:
        raise InputError(f"baseline: found {start.numel()} values, expected {count}")

    def solve(net: nn.Module, at: Tensor, zero: Tensor) -> FloatArray:
        found = attribute(
            net.eval(), at, target, method, background=zero, baseline=zero, samples=samples, players="features"
        )
        return np.asarray(found[0].double())

    second = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.mul_(0.8)
    outputs = model(row).shape[1]
    equal, origin = row.clone(), start.clone()
    equal[0, 1], origin[0, 1] = equal[0, 0], origin[0, 0]
    one_more = torch.cat([row, torch.ones(1, 1)], dim=1), torch.cat([start, torch.zeros(1, 1)], dim=1)
    own = solve(model, row, start)
    twins = solve(_Sum(_Exchange(model, count), copy.deepcopy(model)), equal, origin)
    game = NetworkGame(model, row[0], target, features((count,)), start[0])
    table = exact_shapley(game, count)
    gaps = {
        "linearity": solve(_Sum(model, second), row, start) - own - solve(second, row, start),
        "dummy": solve(_Extended(model, count, outputs), *one_more)[-1] - DUMMY_WORTH,
        "symmetry": (twins[0] - twins[1]) / 2,
        "efficiency": own.sum() - (table.table[-1] - table.table[0]),
        "interaction distribution": own - _distributed(table.dividends.array, count),
    }
    return _judged(method, gaps, table.values, tolerance)


def _few(players: Any) -> int:
    count = player_count(players)
    if not 2 <= count <= MOST_PLAYERS:
        raise InputError(f"axioms: {count} players, expected 2 to {MOST_PLAYERS}")
    return count


def _solved(solve: Solver, value: Value, players: int) -> FloatArray:
    found = np.asarray(solve(value, players), dtype=np.float64)
    if found.shape != (players,):
        raise InputError(f"axioms: the method gave shape {found.shape} for {players} players, expected ({players},)")
    return found


def _distributed(dividends: FloatArray, players: int) -> FloatArray:
    """Return sum over T with i of D(T) / |T|: every interaction shared out equally."""
    sizes = np.array([mask.bit_count() for mask in range(len(dividends))])
    shares = dividends / np.maximum(sizes, 1)
    return np.array([shares.reshape(-1, 2, 1 << player)[:, 1].sum() for player in range(players)])


def _judged(method: str, gaps: dict[str, Any], values: FloatArray, tolerance: float) -> Axioms:
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


class _Extended(nn.Module):
    """A network with one more input, which adds its constant worth to every output."""

    def __init__(self, model: nn.Module, inputs: int, outputs: int) -> None:
        super().__init__()
        self.model, self.inputs, self.add = copy.deepcopy(model), inputs, _Add()
        self.worth = nn.Linear(1, outputs, bias=False)
        nn.init.constant_(self.worth.weight, DUMMY_WORTH)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.add(self.model(x[:, : self.inputs]), self.worth(x[:, self.inputs :]))
        return total
