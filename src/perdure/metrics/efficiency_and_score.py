"""Efficiency criteria, CL_score and CL_stability (Diaz-Rodriguez et al. 2018)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.stats import rankdata

from perdure.base.errors import InputError, error_suggestion
from perdure.metrics.missing import FloatArray, Missing, as_floats

CE_EPSILON = 10.0
"""Default of epsilon in computational efficiency."""
CRITERIA = ("A", "MS", "SSS", "CE", "BWT+", "REM", "FWT")


def _vector(*weights: float) -> Mapping[str, float]:
    return MappingProxyType(dict(zip(CRITERIA, weights, strict=True)))


WEIGHTS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "W1": _vector(*[1 / 7] * 7),
        # The W2 printed in the paper reproduces none of its own five rows. This is the only vector on a grid of .05 that
        # reproduces all of them to four decimals.
        "W2": _vector(0.4, 0.05, 0.2, 0.1, 0.05, 0.15, 0.05),
        "W2-printed": _vector(0.4, 0.1, 0.1, 0.1, 0.2, 0.05, 0.05),
        "W3": _vector(0.4, 0.05, 0.2, 0.2, 0.05, 0.05, 0.05),
    }
)


def score_weights(weights: str | Mapping[str, float]) -> dict[str, float]:
    """Return the weight of each criterion, from a name or a mapping; weights lie in [0, 1] and sum to 1.

    Examples
    --------
    >>> from perdure import metrics
    >>> {name: round(weight, 2) for name, weight in metrics.score_weights("W2").items()}
    {'A': 0.4, 'MS': 0.05, 'SSS': 0.2, 'CE': 0.1, 'BWT+': 0.05, 'REM': 0.15, 'FWT': 0.05}
    >>> # criteria without a weight have weight 0
    >>> metrics.score_weights({"A": 0.5, "REM": 0.5})["MS"]
    0.0
    """
    if isinstance(weights, str):
        if weights not in WEIGHTS:
            raise InputError(f"weights: unknown name {weights!r}, {error_suggestion(weights, list(WEIGHTS))}")
        return dict(WEIGHTS[weights])
    unknown = [name for name in weights if name not in CRITERIA]
    if unknown:
        raise InputError(f"weights: unknown criterion {unknown[0]!r}, {error_suggestion(unknown[0], list(CRITERIA))}")
    vector = {name: float(weights.get(name, 0.0)) for name in CRITERIA}
    for name, weight in vector.items():
        if not 0 <= weight <= 1:
            raise InputError(f"weights: expected a number between 0 and 1 for {name}, got {weight:g}")
    if not math.isclose(sum(vector.values()), 1.0, abs_tol=1e-9):
        raise InputError(f"weights: expected a sum of 1, got {sum(vector.values()):g}")
    return vector


def cl_score(
    criteria: Mapping[str, float], weights: str | Mapping[str, float] = "W1", renormalise: bool = False
) -> float:
    """CL_score = sum of w_c * c over the seven criteria, each the mean over runs (Eq. 10). In [0, 1], higher is better.

    The score is `Missing` if a criterion with a weight above 0 is absent or NaN. ``renormalise=True`` scales the remaining
    weights to a sum of 1 instead; such a score is not comparable with a complete one.

    Examples
    --------
    >>> from perdure import metrics
    >>> criteria = {"A": 0.8, "MS": 1.0, "SSS": 0.9, "CE": 0.3}
    >>> criteria |= {"BWT+": 0.0, "REM": 0.7, "FWT": 0.2}
    >>> round(metrics.cl_score(criteria), 3)  # equal weights
    0.557
    >>> round(metrics.cl_score(criteria, weights={"A": 0.5, "REM": 0.5}), 3)
    0.75
    >>> del criteria["CE"]
    >>> metrics.cl_score(criteria)
    Missing('CE missing; pass renormalise=True (--renormalise) to score the other criteria')
    """
    vector = score_weights(weights)
    known = _known_criteria(criteria)
    absent = [name for name in CRITERIA if vector[name] > 0 and name not in known]
    if absent and not renormalise:
        return Missing(
            f"{', '.join(absent)} missing; pass renormalise=True (--renormalise) to score the other criteria"
        )
    total = sum(vector[name] for name in known)
    if total == 0:
        return Missing("no criterion with a weight above 0 is known")
    score = sum(vector[name] * value for name, value in known.items())
    return score / total if absent else score


def cl_stability(
    runs: Sequence[Mapping[str, float]],
    weights: str | Mapping[str, float] = "W1",
    renormalise: bool = False,
) -> float:
    """CL_stability = 1 - sum of w_c * std_c, population standard deviation over runs (Eq. 11). In [0, 1], higher is better.

    Examples
    --------
    >>> from perdure import metrics
    >>> # the criteria of two runs
    >>> runs = [{"A": 0.8, "REM": 0.7}, {"A": 0.6, "REM": 0.7}]
    >>> round(metrics.cl_stability(runs, weights={"A": 0.5, "REM": 0.5}), 2)
    0.95
    >>> metrics.cl_stability(runs[:1])
    Missing('stability needs at least two runs')
    """
    if not runs:
        raise InputError("runs: expected the criteria of at least one run, got none")
    if len(runs) == 1:
        return Missing("stability needs at least two runs")
    known = [_known_criteria(run) for run in runs]
    common = [name for name in CRITERIA if all(name in run for run in known)]
    spread = {name: float(np.std([run[name] for run in known])) for name in common}
    instability = cl_score(spread, weights, renormalise)
    return instability if isinstance(instability, Missing) else 1 - instability


def _known_criteria(criteria: Mapping[str, float]) -> dict[str, float]:
    unknown = [name for name in criteria if name not in CRITERIA]
    if unknown:
        raise InputError(f"criteria: unknown criterion {unknown[0]!r}, {error_suggestion(unknown[0], list(CRITERIA))}")
    for name, value in criteria.items():
        if not math.isnan(value) and not 0 <= value <= 1:
            raise InputError(f"criteria: expected a number between 0 and 1 for {name}, got {value:g}")
    return {name: float(value) for name, value in criteria.items() if not math.isnan(value)}


@dataclass(frozen=True)
class FirstPlaces:
    """Share of all weight vectors under which each learner ranks first, with its Monte Carlo standard error."""

    share: dict[str, float]
    stderr: dict[str, float]
    criteria: tuple[str, ...]
    weightings: int


def score_first_places(
    criteria: Mapping[str, Mapping[str, float]], weightings: int = 100_000, seed: int = 0
) -> FirstPlaces:
    """Return the share of weight vectors under which each learner has the highest score; weights are uniform on the simplex.

    ``criteria`` maps a learner to its criteria; only criteria known for every learner are used. Ties share the first place.
    A learner that ranks first under few weight vectors owes its rank to the choice of weights.

    Examples
    --------
    >>> from perdure import metrics
    >>> criteria = {
    ...     "ewc": {"A": 0.5, "MS": 0.4, "CE": 0.8},
    ...     "replay": {"A": 0.8, "MS": 1.0, "CE": 0.3},
    ...     "naive": {"A": 0.4, "MS": 1.0, "CE": 0.9},
    ... }
    >>> places = metrics.score_first_places(criteria)
    >>> # naive if CE has more weight than A
    >>> {learner: round(share, 1) for learner, share in places.share.items()}
    {'ewc': 0.0, 'replay': 0.4, 'naive': 0.6}
    """
    names, values = _common_table(criteria)
    learners = list(criteria)
    if not names:
        raise InputError("criteria: expected at least one criterion that is known for every learner, got none")
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(names)), size=weightings)
    scores = weights @ values.T
    best = np.isclose(scores, scores.max(axis=1, keepdims=True), rtol=0, atol=1e-12)
    share = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    stderr = np.sqrt(share * (1 - share) / weightings)
    return FirstPlaces(
        share=dict(zip(learners, share.tolist(), strict=True)),
        stderr=dict(zip(learners, stderr.tolist(), strict=True)),
        criteria=names,
        weightings=weightings,
    )


@dataclass(frozen=True)
class CriteriaCorrelation:
    """Spearman correlation of the criteria over learners; NaN for a criterion with the same value for all learners."""

    criteria: tuple[str, ...]
    matrix: FloatArray
    learners: int


def score_criteria_correlation(criteria: Mapping[str, Mapping[str, float]]) -> CriteriaCorrelation:
    """Return the rank correlation of every two criteria over learners (at least three); high values mark redundant criteria.

    Examples
    --------
    >>> from perdure import metrics
    >>> criteria = {
    ...     "ewc": {"A": 0.5, "REM": 0.6, "CE": 0.8},
    ...     "replay": {"A": 0.8, "REM": 0.9, "CE": 0.3},
    ...     "naive": {"A": 0.4, "REM": 0.3, "CE": 0.9},
    ... }
    >>> result = metrics.score_criteria_correlation(criteria)
    >>> result.criteria
    ('A', 'CE', 'REM')
    >>> # A and REM rank the learners alike, CE ranks them in the opposite order
    >>> result.matrix.round(1).tolist()
    [[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0], [1.0, -1.0, 1.0]]
    """
    names, values = _common_table(criteria)
    if len(values) < 3:
        raise InputError(f"criteria: expected at least 3 learners for a correlation, got {len(values)}")
    with np.errstate(invalid="ignore", divide="ignore"):
        matrix = np.atleast_2d(np.corrcoef(rankdata(values, axis=0), rowvar=False))
    return CriteriaCorrelation(names, matrix, len(values))


def _common_table(criteria: Mapping[str, Mapping[str, float]]) -> tuple[tuple[str, ...], FloatArray]:
    known = [_known_criteria(values) for values in criteria.values()]
    if not known:
        raise InputError("criteria: expected at least one learner, got none")
    names = tuple(name for name in CRITERIA if all(name in values for values in known))
    return names, np.array([[values[name] for name in names] for values in known], dtype=np.float64)


def model_size_efficiency(sizes: Any) -> float:
    """MS = min(1, mean_i size_1 / size_i) (Eq. 7). In (0, 1], higher is better.

    ``sizes[i]``: parameters at task i plus the numbers stored in addition (anchors, importances). EWC and SI store one model
    at task 1 and three times as much afterwards, which gives the printed 0.40 over ten tasks. The paper does not count
    teachers (it prints 1 for LwF); add them to ``sizes`` to count them.

    Examples
    --------
    >>> from perdure import metrics
    >>> metrics.model_size_efficiency([1000, 1000, 1000])  # the network does not grow
    1.0
    >>> # EWC: importances and anchors after task 1
    >>> round(metrics.model_size_efficiency([1000] + 9 * [3000]), 2)
    0.4
    """
    values = as_floats(sizes, "sizes", ndim=1)
    if not (values > 0).all():
        raise InputError(f"sizes: expected positive numbers, got {values.min():g}")
    return min(1.0, float((values[0] / values).mean()))


def sample_storage_efficiency(memory: Any, lifetime: float) -> float:
    """SSS = 1 - min(1, mean_i memory_i / lifetime) (Eq. 8). In [0, 1], higher is better.

    ``memory[i]``: bits of stored training examples (and of their logits) while task i is learned, including those stored at
    earlier tasks. ``lifetime``: bits of the training data of all tasks. Only this reading gives Cumulative its printed 0.55.

    Examples
    --------
    >>> from perdure import metrics
    >>> metrics.sample_storage_efficiency([0, 0, 0], lifetime=3e6)  # nothing is stored
    1.0
    >>> # all data are kept
    >>> round(metrics.sample_storage_efficiency([1e6, 2e6, 3e6], lifetime=3e6), 3)
    0.333
    """
    values = as_floats(memory, "memory", ndim=1)
    _check_nonnegative(values, "memory")
    if not lifetime > 0:
        raise InputError(f"lifetime: expected the bits of all training data, a positive number, got {lifetime!r}")
    return 1.0 - min(1.0, float((values / lifetime).mean()))


def computational_efficiency(ops: Any, passes: Any, epsilon: float = CE_EPSILON) -> float:
    """CE = min(1, mean_i passes_i * epsilon / (1 + ops_i)) (Eq. 9). In [0, 1], higher is better.

    ``ops[i]``: all multiply-adds spent on task i (epochs, replay, Fisher passes, teachers). ``passes[i]``: multiply-adds of
    one forward and one backward pass over its training set. ``epsilon``: number of passes up to which CE is 1. Choose it
    larger than 10 if every learner needs many more passes and CE is close to 0 for all of them. Values of CE, and CL_scores
    that contain it, are comparable only for the same epsilon.

    Examples
    --------
    >>> from perdure import metrics
    >>> # multiply-adds of one pass over the training set of each task
    >>> passes = [1e9, 1e9]
    >>> # five passes: 1 up to epsilon = 10 passes
    >>> round(metrics.computational_efficiency([5e9, 5e9], passes), 2)
    1.0
    >>> # 40 and 80 passes
    >>> round(metrics.computational_efficiency([40e9, 80e9], passes), 2)
    0.19
    >>> round(metrics.computational_efficiency([40e9, 80e9], passes, epsilon=50), 2)
    0.94
    """
    spent = as_floats(ops, "ops", ndim=1)
    single_pass = as_floats(passes, "passes", ndim=1)
    if spent.shape != single_pass.shape:
        raise InputError(
            f"ops and passes: expected one number of each per task, got {spent.size} and {single_pass.size}"
        )
    _check_nonnegative(spent, "ops")
    _check_nonnegative(single_pass, "passes")
    check_ce_epsilon(epsilon, "epsilon")
    return min(1.0, float((single_pass * epsilon / (1 + spent)).mean()))


def check_ce_epsilon(epsilon: float, name: str = "ce_epsilon (--ce-epsilon)") -> None:
    """Raise `InputError` unless the epsilon of computational efficiency is a positive, finite number.

    Examples
    --------
    >>> from perdure import InputError, metrics
    >>> metrics.check_ce_epsilon(10.0)
    >>> try:
    ...     metrics.check_ce_epsilon(0)
    ... except InputError as error:
    ...     print(error)
    ce_epsilon (--ce-epsilon): expected a positive, finite number, got 0
    """
    if not 0 < epsilon < math.inf:
        raise InputError(f"{name}: expected a positive, finite number, got {epsilon!r}")


def _check_nonnegative(array: FloatArray, name: str) -> None:
    if not (array >= 0).all():
        raise InputError(f"{name}: expected numbers of at least 0, got {array.min():g}")
