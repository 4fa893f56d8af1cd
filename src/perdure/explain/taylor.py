"""Attributions as an allocation of Taylor effects (Deng et al. 2021; Theorem 2 of the bias paper's Appendix H).

The Taylor expansion of a function F at the baseline b has one term for each vector of degrees kappa = (kappa_1, ..., kappa_n):

    F(x) - F(b) = sum over kappa of I(kappa),   I(kappa) = prod_i (x_i - b_i)^kappa_i / kappa_i! * d^kappa F(b)

A term of one variable is an independent effect, a term of several variables an interaction effect. Many attribution methods
give variable i a fixed share of each term, a_i = sum over kappa of w_i(kappa) I(kappa), and differ only in these shares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from math import comb, factorial, prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perdure.base.errors import InputError, error_suggestion

FloatArray = NDArray[np.float64]
Degrees = tuple[int, ...]
Rule = Callable[[Degrees], Any]
"""From the degrees of a term to the share of each variable."""
MOST_TERMS = 5000

RULES: dict[str, Rule] = {
    "shapley": lambda degrees: [(degree > 0) / sum(d > 0 for d in degrees) for degree in degrees],
    "integrated_gradients": lambda degrees: [degree / sum(degrees) for degree in degrees],
    "gradient_x_input": list,
    "occlusion": lambda degrees: [float(degree > 0) for degree in degrees],
}
"""The shares of known methods: equal among the variables of a term; in proportion to the degree; the degree; all of it."""


@dataclass(frozen=True)
class TaylorAllocation:
    """Attributions of n variables and their two parts: ``values = independent + interaction``."""

    independent: FloatArray
    interaction: FloatArray

    @property
    def values(self) -> FloatArray:
        """The attributions."""
        return self.independent + self.interaction


@dataclass(frozen=True)
class TaylorEffects:
    """The terms of a Taylor expansion up to an order, by their degrees, and what they leave of F(x) - F(b)."""

    terms: Mapping[Degrees, float]
    remainder: float

    @property
    def by_set(self) -> dict[frozenset[int], float]:
        """The sum of the terms of each set of variables, psi_S in the paper: the set's Harsanyi dividend."""
        sums: dict[frozenset[int], float] = {}
        for degrees, effect in self.terms.items():
            members = frozenset(index for index, degree in enumerate(degrees) if degree)
            sums[members] = sums.get(members, 0.0) + effect
        return sums

    def allocation(self, rule: str | Rule) -> TaylorAllocation:
        """Return the attributions that a rule makes of the terms.

        ``rule``: shapley, integrated_gradients, gradient_x_input (x minus baseline instead of x), occlusion (F(x) minus F(x)
        with the variable at its baseline), or a function from the degrees of a term to the share of each variable.
        """
        if isinstance(rule, str) and rule not in RULES:
            raise InputError(f"rule: unknown name {rule!r}, {error_suggestion(rule, list(RULES))}")
        shares = RULES[rule] if isinstance(rule, str) else rule
        variables = len(next(iter(self.terms)))
        parts = np.zeros((2, variables))
        for degrees, effect in self.terms.items():
            interacts = int(sum(degree > 0 for degree in degrees) > 1)
            parts[interacts] += np.asarray(shares(degrees), dtype=np.float64) * effect
        return TaylorAllocation(parts[0], parts[1])


def taylor_effects(function: Callable[[Tensor], Tensor], x: Any, baseline: Any = 0.0, order: int = 4) -> TaylorEffects:
    """Return the Taylor effects of a function of few variables at one example, by automatic differentiation in float64.

    ``function`` takes rows (m, variables) and returns (m,), for example ``lambda rows: net(rows)[:, 0]`` with
    ``net.double()``. It must be smooth: the higher derivatives of a ReLU network are zero, so ``remainder`` is large. There are
    as many terms as vectors of degrees up to the order, 209 for 4 variables and order 6.

    Examples
    --------
    >>> from perdure import explain
    >>> def polynomial(rows):
    ...     return 3 * rows[:, 0] + rows[:, 0] * rows[:, 1]
    >>> effects = explain.taylor_effects(polynomial, x=[1.0, 2.0], order=2)
    >>> # 3 x and x y
    >>> {degrees: round(size, 2) for degrees, size in effects.terms.items() if size}
    {(1, 0): 3.0, (1, 1): 2.0}
    >>> abs(effects.remainder) < 1e-9  # the function is a polynomial of degree 2
    True
    """
    point = torch.as_tensor(np.asarray(x, dtype=np.float64)).flatten()
    start = torch.as_tensor(np.asarray(baseline, dtype=np.float64)).flatten().expand(len(point)).clone()
    if order < 1 or comb(len(point) + order, order) > MOST_TERMS:
        raise InputError(
            f"order: expected at least 1 and at most {MOST_TERMS} terms, got order {order} for {len(point)} variables"
        )
    origin = start.clone().requires_grad_()
    derivatives = {(0,) * len(point): function(origin[None])[0]}
    with torch.no_grad():
        total = float(function(point[None])[0] - function(start[None])[0])
    for degrees in sorted(product(range(order + 1), repeat=len(point)), key=sum):
        if 0 < sum(degrees) <= order:
            derivatives[degrees] = _derivative(derivatives, degrees, origin)
    difference = (point - start).numpy()
    terms = {
        degrees: float(value.detach() * np.prod(difference ** np.array(degrees)))
        / prod(factorial(degree) for degree in degrees)
        for degrees, value in derivatives.items()
        if any(degrees)
    }
    return TaylorEffects(terms, total - sum(terms.values()))


def _derivative(known: Mapping[Degrees, Tensor], degrees: Degrees, origin: Tensor) -> Tensor:
    """Return a derivative from the one of an order less, which is known."""
    variable = next(index for index, degree in enumerate(degrees) if degree)
    lower = known[tuple(degree - (index == variable) for index, degree in enumerate(degrees))]
    if not lower.requires_grad:  # a constant
        return torch.zeros((), dtype=origin.dtype)
    (gradient,) = torch.autograd.grad(lower, origin, create_graph=True, allow_unused=True)
    return torch.zeros((), dtype=origin.dtype) if gradient is None else gradient[variable]
