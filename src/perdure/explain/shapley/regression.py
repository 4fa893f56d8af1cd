r"""Shapley values by regression on complementary pairs of coalitions, made unbiased by leaving each pair out in turn.

The Shapley value is a weighted mean over coalitions. With the size s uniform on 1, ..., n - 1 and S uniform among the
coalitions of that size,

    phi_i = (F(all) - F(empty)) / n + E[w_i(S) F(S)],   w_i(S) = (n - 1) (1 / s if i is in S, else -1 / (n - s)).

Each evaluation gives a term for every player, and w_i(complement of S) = -w_i(S), so a pair of S and its complement gives
w_i(S) o(S) with the odd part o(S) = (F(S) - F(complement)) / 2: all interactions of an even number of players cancel.

**Control variate.** For any game h whose Shapley values are known (a proxy, see `perdure.explain.shapley.proxies`),

    phi(F) = phi(h) + phi(F - h),

and the second term has little variance if h is close to F. The proxy is a weighted ridge regression of o on the players'
signs, on powers of the size, and for differentiable games on products of a few directions. The weights, n^2 / (4 s (n -
s)), are those of the variance: the squared norm of w is proportional to them.

**Leaving one out.** A proxy that was fitted to a pair would be closer to it than to other pairs, and the estimate biased.
So the correction of each pair uses the proxy fitted to *all other* pairs, h_(-k):

    estimate = mean over k of  phi(h_(-k)) + w(S_k) (o(S_k) - h_(-k)(S_k))   (plus the sizes 0 and n, which are known).

Each term is unbiased, since h_(-k) is independent of pair k. All of them follow from one fit: with the diagonal d_k of
the hat matrix, the residual without pair k is r_k / (1 - d_k). The strength of the ridge is chosen for each fold of the
pairs from the other folds, for the same reason, and so are interactions (below).

**Interactions.** With at most 256 players, the proxy also has interactions of odd numbers of players (parities): all of a
size if there are at least five pairs for each, otherwise those that boosted trees find. Models that are sums of trees are
then explained almost exactly. The trees take seconds, so they are left out where an evaluation is known to be cheap.

**Gradients.** For a differentiable game, the slopes of the players at some pairs of coalitions give the starting point
that the ridge shrinks to, the change of the slopes with the size, and the directions in which the slopes vary most. These
coalitions are not used otherwise. On image networks the mean slopes are within a fifth of the Shapley values after fifty
pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from perdure.base.errors import InputError
from perdure.explain.draws import generator
from perdure.explain.shapley.estimator_choice import is_differentiable_game
from perdure.explain.shapley.estimators import CHUNK_ELEMENTS, Budget, Shapley, estimator_end_values
from perdure.explain.shapley.game import FloatArray, GameFunction, game_values
from perdure.explain.shapley.proxies import ProxyTerms, Signs
from perdure.explain.shapley.tree_interactions import Parity, tree_interactions

GRADIENT_COST = 3  # evaluations: one forward pass, and a backward pass that costs two
GRADIENT_SHARE = 0.04  # of the evaluations
LEAST_GRADIENT_PAIRS, MOST_GRADIENT_PAIRS = 16, 256
DIRECTIONS = 3
DRAWN = 256  # pairs from one random generator
LEAST_PAIRS = 16
PAIRS_PER_TERM = 20
PAIRS_PER_PARITY = 5
FOLDS, TREE_FOLDS = 2, 5
LEAST_PARITIES, MOST_PARITIES = 100, 1500
SEARCH_COST = 1e7  # multiply-adds; where evaluations cost less, more of them are better than a search
MOST_SEARCHED_PLAYERS, MOST_SEARCHED_PAIRS = 256, 2**16  # of the search for interactions with trees
SINGLE_PRECISION_PLAYERS = 256  # with more, the regression computes in single precision
JITTER = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-10}
"""Added to the diagonal of the normal equations, relative to it, so that they can be solved."""


def regression_shapley(value: GameFunction, players: int, budget: Budget, seed: int, prior: Any = None) -> Shapley:
    """Estimate Shapley values by regression on pairs (see the module docstring).

    ``prior``: values to start from, for example those of an earlier checkpoint. They must not come from the same draws.
    """
    empty, full = estimator_end_values(value, players)
    if players == 1:
        return Shapley((full - empty)[None], np.zeros_like(full)[None], 2, budget.samples, "regression")
    start = _starting_point(value, players, budget, seed, prior, empty)
    pairs = _Pairs(value, players, seed, empty)
    cost = value.multiply_adds() if hasattr(value, "multiply_adds") else None
    search = cost is None or cost >= SEARCH_COST
    most = (budget.evaluations - 2 - start.evaluations) // 2
    if most < LEAST_PAIRS:
        raise InputError(
            f"estimator 'regression': expected at least {2 * LEAST_PAIRS + 2} evaluations, got {budget.evaluations}; "
            "increase samples or max_evaluations"
        )
    for wanted in _rounds(most, budget):
        pairs.extend(wanted)
        values, stderr = _Fit(pairs, start, full - empty, search=search).estimate()
        if budget.stderr is not None and np.sqrt(np.mean(stderr**2)) <= budget.stderr:
            break
    evaluations = 2 + start.evaluations + 2 * len(pairs)
    return Shapley(
        values.reshape(players, *empty.shape),
        stderr.reshape(players, *empty.shape),
        evaluations,
        max(1, evaluations // (players + 1)),
        "regression",
    )


def _rounds(most: int, budget: Budget) -> list[int]:
    """Return the numbers of pairs after which the standard errors are checked: the last, or each doubling."""
    if budget.stderr is None:
        return [most]
    doubled = [LEAST_PAIRS * 2**power for power in range(3, most.bit_length()) if LEAST_PAIRS * 2**power < most]
    return [*doubled, most]


@dataclass(frozen=True)
class _Start:
    """What is known before the pairs: approximate Shapley values and the terms of the proxy."""

    values: FloatArray
    terms: ProxyTerms
    evaluations: int = 0


def _starting_point(value: Any, players: int, budget: Budget, seed: int, prior: Any, empty: FloatArray) -> _Start:
    """Return the starting point from the slopes of a differentiable game, or from ``prior``, or zeros."""
    none = ProxyTerms(players, np.zeros((0, players)))
    known = np.zeros((players, *empty.shape)) if prior is None else np.asarray(prior, dtype=np.float64)
    if known.shape != (players, *empty.shape) or not np.isfinite(known).all():
        raise InputError(f"prior: expected finite values of shape {(players, *empty.shape)}, got shape {known.shape}")
    work = budget.evaluations if budget.stderr is None else 0
    count = min(MOST_GRADIENT_PAIRS, max(LEAST_GRADIENT_PAIRS, int(GRADIENT_SHARE * work / (2 * GRADIENT_COST))))
    cost = 2 * GRADIENT_COST * count
    if not is_differentiable_game(value) or empty.ndim or prior is not None or cost > budget.evaluations // 4:
        return _Start(known.reshape(players, -1), none)
    coalitions = _random_coalitions(generator(seed, 5), count, players)
    slopes = np.empty((2, len(coalitions), players))
    for side, rows in enumerate((coalitions, ~coalitions)):
        for part in _chunks(len(rows), max(1, CHUNK_ELEMENTS // players)):
            slopes[side, part] = value.gradients(rows[part].astype(np.float64))
    odd = slopes.mean(axis=0)
    size = coalitions.mean(axis=1) - 0.5
    # The odd part is fitted by values + curvature * size^2 for each player.
    design = np.stack([np.ones(len(size)), size**2 - 1 / 12], axis=1)
    mean, curvature = np.linalg.lstsq(design, odd, rcond=None)[0]
    spread = (slopes - slopes.mean(axis=1, keepdims=True)).reshape(-1, players)
    _, axes = np.linalg.eigh(spread @ spread.T)  # of the slopes' principal components, in ascending order
    directions = [*(axes[:, -DIRECTIONS:].T @ spread), curvature]
    scaled = [direction / max(float(np.linalg.norm(direction)), np.finfo(float).tiny) for direction in directions]
    return _Start(mean[:, None], ProxyTerms(players, np.stack(scaled)), cost)


def _random_coalitions(rng: np.random.Generator, count: int, players: int) -> NDArray[np.bool_]:
    """Return coalitions of uniform sizes from 1 to players - 1, uniform among those of their size."""
    sizes = rng.integers(1, players, size=count)
    present = np.zeros((count, players), dtype=bool)
    drawn = np.arange(count)
    while len(drawn):
        keys = rng.integers(0, 2**32, size=(len(drawn), players), dtype=np.uint32)
        thresholds = np.take_along_axis(np.sort(keys, axis=1), sizes[drawn, None] - 1, axis=1)
        present[drawn] = keys <= thresholds
        drawn = drawn[present[drawn].sum(axis=1) != sizes[drawn]]  # again if two keys are equal at the threshold
    return present


class _Pairs:
    """Coalitions, and the odd part of the game at each of them."""

    def __init__(self, value: GameFunction, players: int, seed: int, empty: FloatArray) -> None:
        self.value, self.players, self.seed = value, players, seed
        self.dtype: np.dtype[Any] = np.dtype(np.float32 if players > SINGLE_PRECISION_PLAYERS else np.float64)
        self.packed = np.zeros((0, -(-players // 8)), dtype=np.uint8)
        self.odd = np.zeros((0, empty.size))

    def __len__(self) -> int:
        return len(self.odd)

    def extend(self, wanted: int) -> None:
        """Evaluate more pairs until there are ``wanted``; more pairs always follow the same ones."""
        packed, odd = [self.packed], [self.odd]
        for block in range(len(self) // DRAWN, -(-wanted // DRAWN)):
            drawn = _random_coalitions(generator(self.seed, 4, block), DRAWN, self.players)
            new = drawn[max(0, len(self) - block * DRAWN) : wanted - block * DRAWN]
            packed.append(np.packbits(new, axis=1))
            values = game_values(self.value, np.concatenate([new, ~new])).reshape(2, len(new), -1)
            odd.append((values[0] - values[1]) / 2)
        self.packed, self.odd = np.concatenate(packed), np.concatenate(odd)

    def signs(self, rows: NDArray[np.int64] | slice) -> Signs:
        """Return the signs of selected pairs: 1/2 for players in the coalition, -1/2 for the others."""
        signs: Signs = np.unpackbits(self.packed[rows], axis=1, count=self.players).astype(self.dtype)
        signs -= 0.5
        return signs

    def chunks(self) -> Iterator[tuple[slice, Signs, FloatArray]]:
        """Yield parts of bounded memory: the pairs, their signs and the sizes of the coalitions."""
        for part in _chunks(len(self), max(DRAWN, CHUNK_ELEMENTS // self.players)):
            signs = self.signs(part)
            yield part, signs, signs.sum(axis=1, dtype=np.float64) + self.players / 2


def _chunks(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


class _Fit:
    """The regression on all pairs, and the estimate that leaves each pair out in turn.

    Pairs are divided into folds; the ridge and the interactions that one fold is fitted with are chosen from the others.
    """

    def __init__(self, pairs: _Pairs, start: _Start, total: FloatArray, *, search: bool = False) -> None:
        self.search = search
        self.pairs, self.players, self.total = pairs, pairs.players, np.atleast_1d(total)
        self.dtype = pairs.dtype
        self.start, terms = start.values, start.terms
        if len(pairs) < PAIRS_PER_TERM * terms.count:
            terms = ProxyTerms(self.players, np.zeros((0, self.players)))
        self.rest = np.empty_like(pairs.odd)  # the odd part without the starting point
        self.weight = np.empty(len(pairs))
        for part, signs, sizes in pairs.chunks():
            self.weight[part] = self.players**2 / (4 * sizes * (self.players - sizes))
            self.rest[part] = pairs.odd[part] - signs @ self.start.astype(self.dtype)
        complete, room = self._complete_parities()
        self.folds = TREE_FOLDS if room else FOLDS
        self.plain = _System(self, terms)
        if complete and not room:
            terms = replace(terms, parities=complete)
            self.systems = [_System(self, terms)] * self.folds
        elif room:
            chosen = [self._tree_parities(complete, room, fold) for fold in range(self.folds)]
            self.systems = [_System(self, replace(terms, parities=parities)) for parities in chosen]
        else:
            self.systems = [self.plain] * self.folds
        self.penalties = self._penalties()

    def estimate(self) -> tuple[FloatArray, FloatArray]:
        """Return the Shapley values and their standard errors, both (players, outputs)."""
        count = len(self.pairs)
        proxy = self.start.copy()
        residual = np.empty_like(self.rest)
        for fold, (system, penalty) in enumerate(zip(self.systems, self.penalties, strict=True)):
            coefficients = system.leave_each_out(fold, penalty, residual)
            proxy += len(residual[fold :: self.folds]) / count * system.shapley(coefficients)
        mean, variance = (moment[0] for moment in self._corrections(residual[None], np.array([count])))
        return proxy + (self.total - proxy.sum(axis=0)) / self.players + mean, np.sqrt(variance)

    def _corrections(self, residuals: FloatArray, counts: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """Return the means of w_i r over pairs, and the variances of these means, (sets, players, outputs).

        ``residuals`` is (sets, pairs, outputs), with zeros for the pairs that a set does not have.
        """
        sets, count, outputs = residuals.shape
        flat = residuals.transpose(1, 0, 2).reshape(count, -1)
        mean, square = (np.zeros((self.players, flat.shape[1])) for _ in range(2))
        for part, signs, sizes in self.pairs.chunks():
            present = (self.players - 1) / sizes[:, None] * flat[part]
            absent = -(self.players - 1) / (self.players - sizes[:, None]) * flat[part]
            mean += self._sums_over_pairs(signs, present, absent)
            square += self._sums_over_pairs(signs, present**2, absent**2)
        numbers = counts[:, None, None]
        means, squares = (sums.reshape(-1, sets, outputs).transpose(1, 0, 2) / numbers for sums in (mean, square))
        return means, np.maximum(squares - means**2, 0) / np.maximum(numbers - 1, 1)

    def _sums_over_pairs(self, signs: Signs, present: FloatArray, absent: FloatArray) -> FloatArray:
        """Return, for each player, the sum of ``present`` over the pairs that contain it and of ``absent`` over the others."""
        halves = (present + absent).sum(axis=0) / 2  # signs are 1/2 for present and -1/2 for absent players
        sums: FloatArray = signs.T @ (present - absent).astype(self.dtype) + halves
        return sums

    def other_folds(self, fold: int) -> NDArray[np.int64]:
        """Return the pairs that are not in a fold."""
        return np.flatnonzero(np.arange(len(self.pairs)) % self.folds != fold)

    def _penalties(self) -> list[float]:
        """Return the strength of the ridge for each fold of the pairs, chosen from the others.

        With the variance t of the distance of a player's value from the starting point, and the noise variance v of a
        pair, the best strength is v / t. The squared distance is estimated without bias from the mean of w r.
        """
        residuals = np.zeros((self.folds, *self.rest.shape))
        counts = np.zeros(self.folds, dtype=np.int64)
        for fold in range(self.folds):
            rows = self.other_folds(fold)
            residuals[fold, rows] = self.rest[rows] - self.plain.fitted_terms(rows)
            counts[fold] = len(rows)
        penalties = []
        for fold, (mean, variance) in enumerate(zip(*self._corrections(residuals, counts), strict=True)):
            distance = max(float((mean**2 - variance).sum(axis=0).mean()), 1e-6 * float(variance.sum(axis=0).mean()))
            noise = self.plain.noise_without(fold)
            if noise is None:
                noise = float((self.weight @ residuals[fold] ** 2).mean() / counts[fold])
                noise = max(noise - distance / 4, 0.1 * noise)  # the distance itself is a part of the residuals
            penalties.append(noise * self.players / max(distance, np.finfo(float).tiny))
        return penalties

    def _complete_parities(self) -> tuple[tuple[Parity, ...], int]:
        """Return all interactions of three, five, ... players if there are few enough, and how many others to search for.

        An interaction needs at least five pairs, and there are at most 1500. If every odd interaction is included, or there
        are too many players or too few pairs for a search, that number is 0.
        """
        room = min(MOST_PARITIES, len(self.pairs) // PAIRS_PER_PARITY)
        parities: list[Parity] = []
        for size in range(3, self.players + 1, 2):
            if comb(self.players, size) > room - len(parities):
                room -= len(parities)
                searched = self.search and room >= LEAST_PARITIES and self.players <= MOST_SEARCHED_PLAYERS
                return tuple(parities), room if searched else 0
            parities += combinations(range(self.players), size)
        return tuple(parities), 0

    def _tree_parities(self, complete: tuple[Parity, ...], room: int, fold: int) -> tuple[Parity, ...]:
        """Return ``complete`` with the interactions that boosted trees find in the other folds."""
        rows = self.other_folds(fold)[:MOST_SEARCHED_PAIRS]
        weight = self.weight[rows]
        largest = int(np.argmax(weight @ self.rest[rows] ** 2))  # the output to search in, if there are several
        found = tree_interactions(self.pairs.signs(rows), self.rest[rows, largest], weight, room + len(complete))
        known = set(complete)
        return (*complete, *[parity for parity in found if parity not in known][:room])


class _System:
    """The normal equations of all pairs for one choice of terms."""

    def __init__(self, fit: _Fit, terms: ProxyTerms) -> None:
        self.fit, self.terms, self.players, self.dtype = fit, terms, fit.players, fit.dtype
        count, outputs = fit.rest.shape
        self.columns = np.empty((count, terms.count), dtype=self.dtype)
        size = self.players + terms.count
        self.grams = np.zeros((fit.folds, size, size))
        self.sides = np.zeros((fit.folds, size, outputs))
        self.squares = np.zeros((fit.folds, outputs))
        for part, signs, _ in fit.pairs.chunks():
            self.columns[part] = terms.columns(signs)
            root = np.sqrt(fit.weight[part])[:, None]
            design = self._design(part, signs) * root.astype(self.dtype)
            target = fit.rest[part] * root
            for fold in range(fit.folds):
                first = (fold - part.start) % fit.folds
                rows = design[first :: fit.folds]
                self.grams[fold] += rows.T @ rows
                self.sides[fold] += rows.T @ target[first :: fit.folds].astype(self.dtype)
                self.squares[fold] += np.square(target[first :: fit.folds]).sum(axis=0)
        self.gram, self.side = self.grams.sum(axis=0), self.sides.sum(axis=0)

    def _design(self, part: slice, signs: Signs) -> Signs:
        return np.concatenate([signs, self.columns[part]], axis=1)

    def noise_without(self, fold: int) -> float | None:
        """Return the variance of the weighted residuals of a fit to the other folds; None with too few pairs."""
        free = len(self.fit.other_folds(fold)) - len(self.gram)
        if free < len(self.gram) / 2:
            return None
        side = self.side - self.sides[fold]
        solution = _Solution(self.gram - self.grams[fold], side, self.players, 0.0, self.dtype)
        squares = self.squares.sum(axis=0) - self.squares[fold]
        left = squares - (side * solution.coefficients).sum(axis=0)
        return float(np.maximum(left, 1e-7 * squares).mean() / free)

    def shapley(self, coefficients: FloatArray) -> FloatArray:
        """Return the Shapley values of the proxy with these coefficients, (players, outputs)."""
        values: FloatArray = coefficients[: self.players] + self.terms.shapley().T @ coefficients[self.players :]
        return values

    def leave_each_out(self, fold: int, penalty: float, residual: FloatArray) -> FloatArray:
        """Write the residual of each pair of a fold with the fit to all other pairs; return the mean of their coefficients."""
        solution = _Solution(self.gram, self.side, self.players, penalty, self.dtype)
        without, folds = np.zeros_like(self.side), self.fit.folds
        for part, signs, _ in self.fit.pairs.chunks():
            first = (fold - part.start) % folds
            rows, index = self._design(part, signs)[first::folds], slice(part.start + first, part.stop, folds)
            weight = self.fit.weight[index, None]
            alone = 1 - weight * solution.leverages(rows)[:, None]
            residual[index] = (self.fit.rest[index] - rows @ solution.coefficients.astype(self.dtype)) / alone
            without += rows.T @ (weight * residual[index]).astype(self.dtype)
        return solution.coefficients - solution.solve(without) / len(residual[fold::folds])

    def fitted_terms(self, rows: NDArray[np.int64]) -> FloatArray:
        """Return the fit of the terms alone, without the players, to these pairs."""
        columns, root = self.columns[rows].astype(np.float64), np.sqrt(self.fit.weight[rows])[:, None]
        coefficients = np.linalg.lstsq(columns * root, self.fit.rest[rows] * root, rcond=1e-6)[0]
        fitted: FloatArray = columns @ coefficients
        return fitted


class _Solution:
    """The solution of the normal equations with one strength of the ridge on the players' coefficients."""

    def __init__(self, gram: FloatArray, side: FloatArray, players: int, penalty: float, dtype: np.dtype[Any]) -> None:
        matrix = gram.copy()
        matrix[np.diag_indices(players)] += penalty
        matrix[np.diag_indices(len(gram))] += JITTER[dtype] * np.diagonal(gram) + np.finfo(float).tiny
        self.factor = cho_factor(matrix, lower=True)
        self.coefficients = self.solve(side)
        self._triangle = self.factor[0].astype(dtype)

    def solve(self, side: FloatArray) -> FloatArray:
        """Solve the normal equations for another right-hand side."""
        solution: FloatArray = cho_solve(self.factor, side)
        return solution

    def leverages(self, rows: Signs) -> FloatArray:
        """Return x' A^-1 x for each row x."""
        solved = solve_triangular(self._triangle, rows.T, lower=True, check_finite=False)
        leverages: FloatArray = np.einsum("ij,ij->j", solved, solved).astype(np.float64)
        return leverages
