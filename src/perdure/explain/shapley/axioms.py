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
from perdure.explain.adapters.arrays import as_batch_array, check_one_array, rejected_input, targets_as_array
from perdure.explain.adapters.models import checked_shape, device_and_dtype, single_precision
from perdure.explain.attribute import attribute
from perdure.explain.draws import generator
from perdure.explain.shapley.exact import ExactShapley, exact_shapley
from perdure.explain.shapley.game import FloatArray, GameFunction, NetworkGame, game_values
from perdure.explain.shapley.players import feature_players, player_count

MOST_PLAYERS = 12
MOST_SAMPLES = 2**15
STEPS_PER_PART = 40
PATH_METHODS = ("integrated_gradients", "expected_gradients")
"""Methods that integrate gradients along a path: their exact values sum to the difference of outputs."""
DUMMY_VALUE = 0.7
Solver = Callable[[GameFunction, int], Any]


@dataclass(frozen=True)
class AxiomCheck:
    """Result for one axiom: whether it holds, and the violation relative to the largest Shapley value.

    ``error`` is the estimated numerical error of ``gap``, from the integration steps or the random draws of the method.
    ``violated``: the gap exceeds the tolerance by more than that error. If the axiom neither holds nor is violated, the
    numerical error, and not the method, exceeds the tolerance.
    """

    axiom: str
    holds: bool
    gap: float
    error: float = 0.0
    violated: bool = False

    @property
    def undecided(self) -> bool:
        """Whether the numerical error is too large to decide."""
        return not self.holds and not self.violated


@dataclass(frozen=True)
class Axioms:
    """Results of the five checks for one method; ``str`` gives a table.

    ``samples`` is the largest number of integration steps or random draws that was used for a map; 0 if there are none.
    """

    method: str
    checks: tuple[AxiomCheck, ...]
    samples: int = 0

    def __getitem__(self, axiom: str) -> AxiomCheck:
        return next(check for check in self.checks if check.axiom == axiom)

    def __str__(self) -> str:
        rows = [f"{check.axiom:<26}{_answer(check):<7}{check.gap:.1e}" + self._note(check) for check in self.checks]
        return "\n".join([f"{self.method:<26}{'holds':<7}gap", *rows])

    def _note(self, check: AxiomCheck) -> str:
        if not check.undecided:
            return ""
        return f"  not decided: numerical error {check.error:.1e} after {self.samples} samples"


def _answer(check: AxiomCheck) -> str:
    return "yes" if check.holds else "no" if check.violated else "?"


def check_axioms(solve: Solver, value: GameFunction, players: int, *, seed: int = 0, tolerance: float = 1e-6) -> Axioms:
    """Check a method ``solve(value, players) -> (players,)`` on a game of 2 to 12 players.

    Linearity is checked with a random second game, dummy with an additional player that adds a constant, and symmetry on the
    average of the game and the game with its first two players exchanged.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import explain
    >>> # two players have an effect only together, the third has none
    >>> def product(coalitions):
    ...     return coalitions[:, 0] * coalitions[:, 1] * 1.0
    >>> def solve(value, players):
    ...     return explain.exact_shapley(value, players).values
    >>> print(explain.check_axioms(solve, product, players=3))
    solve                     holds  gap
    linearity                 yes    2.2e-16
    dummy                     yes    4.4e-16
    symmetry                  yes    0.0e+00
    efficiency                yes    2.2e-16
    interaction distribution  yes    1.1e-16
    >>> # the effect of each player alone misses the interaction
    >>> def alone(value, players):
    ...     return value(np.eye(players, dtype=bool))
    >>> axioms = explain.check_axioms(alone, product, players=3)
    >>> [check.axiom for check in axioms.checks if check.violated]
    ['efficiency', 'interaction distribution']
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
    most_samples: int = MOST_SAMPLES,
) -> Axioms:
    """Check a method of `attribute` on a small network and one example with 2 to 12 features.

    The games of the axioms are networks: the sum of two networks, the network with an additional input that is added to the
    outputs, and the sum of the network and a copy whose first two inputs are exchanged, at an input where these are equal.
    The baseline (zero by default) is also the background of methods that need one.

    The number of integration steps or random draws starts at ``samples`` and is doubled until the numerical error of a map
    is below a quarter of the tolerance, or ``most_samples`` is reached. The error is the change at the last doubling; for
    integrated and expected gradients, whose exact integral sums to the difference of outputs, it is at least the
    difference from that sum. An axiom whose gap exceeds the tolerance by no more than this error is not reported as
    violated (`AxiomCheck.undecided`).

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> _ = torch.manual_seed(0)
    >>> network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    >>> x = torch.tensor([[1.0, -0.5, 2.0]], dtype=torch.float64)
    >>> for method in ("shapley", "gradient_x_input"):
    ...     axioms = explain.check_network_axioms(network, x, target=0, method=method)
    ...     print(method, [check.axiom for check in axioms.checks if check.violated])
    shapley []
    gradient_x_input ['efficiency', 'interaction distribution']
    """
    network = copy.deepcopy(single_precision(model)).eval()
    row = _row(x, "x", network)
    count = _small_player_count(row.shape[1])
    start = torch.zeros_like(row) if baseline is None else _row(baseline, "baseline", network)
    if start.shape != row.shape:
        raise InputError(f"baseline: expected {count} values, as in x, got {start.numel()}")
    with rejected_input(network, row), torch.no_grad():
        outputs = checked_shape(network(row.clone()), 1).shape[1]
    second = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.mul_(0.8)
    equal_row, equal_start = row.clone(), start.clone()
    equal_row[0, 1], equal_start[0, 1] = equal_row[0, 0], equal_start[0, 0]
    extended = (
        torch.cat([row, torch.ones_like(row[:, :1])], dim=1),
        torch.cat([start, torch.zeros_like(row[:, :1])], dim=1),
    )
    targets_as_array(target, torch.zeros(1, outputs))
    exact = exact_shapley(NetworkGame(network, row[0], target, feature_players((count,)), start[0]), count)
    scale = max(float(np.abs(exact.values).max()), np.finfo(float).tiny)
    solver = _MapSolver(method, target, samples, max(samples, most_samples), tolerance * scale / 4)
    attributions = solver(network, row, start)
    symmetric = solver(_Sum(_Exchange(network, count), copy.deepcopy(network)), equal_row, equal_start)
    total, other = solver(_Sum(network, second), row, start), solver(second, row, start)
    with_dummy = solver(_WithDummy(network, count, outputs), *extended)
    gaps = {
        "linearity": total.values - attributions.values - other.values,
        "dummy": with_dummy.values[-1] - DUMMY_VALUE,
        "symmetry": (symmetric.values[0] - symmetric.values[1]) / 2,
        **_exact_gaps(attributions.values, exact),
    }
    errors = {
        "linearity": total.error + attributions.error + other.error,
        "dummy": with_dummy.error,
        "symmetry": symmetric.error,
        "efficiency": attributions.sum_error,
        "interaction distribution": attributions.error,
    }
    used = max(map_.samples for map_ in (attributions, symmetric, total, other, with_dummy))
    return _checked(method, gaps, exact.values, tolerance, errors, used)


def _row(values: Any, name: str, model: nn.Module) -> Tensor:
    """Return one example as a batch of one row, on the network's device and of its type."""
    check_one_array(values, name)
    batch = values.reshape(1, -1) if hasattr(values, "reshape") else [values]
    return as_batch_array(batch, name, *device_and_dtype(model)).flatten(1)


@dataclass(frozen=True)
class _Map:
    """The attributions of one network, their numerical error per value and of their sum, and the samples they needed."""

    values: FloatArray
    error: float
    sum_error: float
    samples: int


@dataclass(frozen=True)
class _MapSolver:
    """Computes the attributions of a method with a growing number of samples, until they change by less than ``allowed``."""

    method: str
    target: int
    samples: int
    most_samples: int
    allowed: float

    def __call__(self, network: nn.Module, point: Tensor, reference: Tensor) -> _Map:
        network = network.to(point).eval()
        with torch.no_grad():
            scores = network(torch.cat([point, reference]))[:, self.target].double()
        total = float(scores[0] - scores[1])
        samples, values = self.samples, self._map(network, point, reference, self.samples)
        while True:
            finer = self._map(network, point, reference, 2 * samples)
            change, sum_change = float(np.abs(finer - values).max()), abs(float(finer.sum() - values.sum()))
            if self.method in PATH_METHODS:
                missing = abs(float(finer.sum()) - total)
                change, sum_change = max(change, missing), max(sum_change, missing)
            values, samples = finer, 2 * samples
            if max(change, sum_change) <= self.allowed or 2 * samples > self.most_samples:
                return _Map(values, change, sum_change, samples)

    def _map(self, network: nn.Module, point: Tensor, reference: Tensor, samples: int) -> FloatArray:
        starts, ends, steps = reference, point, samples
        if self.method == "integrated_gradients" and samples > STEPS_PER_PART:
            # The integral over a path is the sum over its parts; the Gauss-Legendre nodes of one long part are slow to compute.
            parts = -(-samples // STEPS_PER_PART)
            share = torch.arange(parts + 1, device=point.device, dtype=point.dtype)[:, None] / parts
            path = reference + share * (point - reference)
            starts, ends, steps = path[:-1], path[1:], STEPS_PER_PART
        maps = attribute(
            network,
            ends,
            self.target,
            self.method,
            background=reference,
            baseline=starts,
            samples=steps,
            players="features",
        )
        values: FloatArray = maps.double().sum(dim=0).cpu().numpy()
        return values


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


def _checked(
    method: str,
    gaps: dict[str, Any],
    values: FloatArray,
    tolerance: float,
    errors: dict[str, float] | None = None,
    samples: int = 0,
) -> Axioms:
    scale = max(float(np.abs(values).max()), np.finfo(float).tiny)
    checks = []
    for axiom, gap in gaps.items():
        size, error = float(np.abs(gap).max()) / scale, (errors or {}).get(axiom, 0.0) / scale
        checks.append(AxiomCheck(axiom, size <= tolerance, size, error, size - error > tolerance))
    return Axioms(method, tuple(checks), samples)


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
