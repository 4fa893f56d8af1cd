"""Synthetic findings about explanations for tests of the page: bias, retraining and checkpoints of one run."""

import math

import numpy as np

from perdure.audits import CheckpointSummary, ExplainerScores, Interval, RetrainingSummary, TrustFindings
from perdure.audits.bias.results import BiasResult, bias_result_verdict, explainer_bias_result
from perdure.audits.retraining.summaries import NoiseLevel, Scores, StepPair
from perdure.metrics import Bias, Trend
from perdure.metrics.bias import SHARES, SIDES

METHODS = ("expected_gradients", "lrp", "gradcam")
CONTROLS = ("constant", "random")
DISTANCES = ("l2", "l2-unit")


def synthetic_bias(methods: tuple[str, ...] = METHODS, examples: int = 20, seed: int = 0) -> BiasResult:
    """Return biases that increase from explainer to explainer and decrease with the share."""
    rng = np.random.default_rng(seed)
    entries = []
    for index, method in enumerate((*methods, *CONTROLS)):
        level = (0.01 + 0.005 * index) / np.sqrt(1 + np.arange(len(SHARES)))[None, :, None]
        values = level * (1 + 0.1 * rng.random((examples, len(SHARES), len(SIDES))))
        mean = values.mean(axis=0)
        zero = np.zeros((len(SHARES), len(SIDES)))
        bias = Bias(mean, 0.9 * mean, zero, zero + 0.0004, zero + 0.003, values, SHARES, SIDES, degenerate=index)
        entries.append(
            explainer_bias_result(method, bias, 0, layer="conv" if method == "gradcam" else None, players=64)
        )
    return BiasResult(
        subject="small-conv on split-digits",
        examples=examples,
        target="label",
        permutations=100,
        estimator="antithetic",
        noise_share=0.02,
        shares=SHARES,
        sides=SIDES,
        explainers=tuple(entries),
        refused={"deepshap": "a module is used twice"},
        settings={"players": "pixels", "player_count": 64},
        verdict=bias_result_verdict(entries),
    )


def synthetic_scores(mege: float, rate: float, p: float, corrected: float = math.nan) -> ExplainerScores:
    def near(value: float) -> Interval:
        return Interval(value, value - 0.02, value + 0.03, 60, "bootstrap")

    distance = 1 / mege - 1
    return ExplainerScores(near(mege), near(distance), near(rate), near(0.5), p, 40, 30, 60, 999, 1, corrected)


def _all_scores(methods: tuple[str, ...], drop: float) -> Scores:
    by_method: Scores = {}
    for index, method in enumerate((*methods, *CONTROLS)):
        control = method in CONTROLS
        mege = {"constant": 0.99, "random": 0.4}.get(method, 0.6 - 0.03 * index - drop)
        rate = {"constant": 0.0, "random": 0.05}.get(method, 0.35 - 0.15 * index)
        p = 0.5 if control else 0.001 + 0.04 * index
        unscaled = synthetic_scores(mege, rate, p, math.nan if control else min(1.0, 3 * p))
        by_method[method] = {
            distance_name: unscaled
            if distance_name == "l2"
            else synthetic_scores(mege - 0.05, rate, p, unscaled.corrected_p)
            for distance_name in DISTANCES
        }
    return by_method


def synthetic_retraining(methods: tuple[str, ...] = METHODS) -> RetrainingSummary:
    """Return scores that decrease with noise."""
    levels = [
        NoiseLevel(share, None, (0.8 - share, 0.7 - share), _all_scores(methods, share / 4))
        for share in (0, 0.05, 0.1, 0.3)
    ]
    trend = Trend(-0.9, 0.001, 2, 4, 0)
    return RetrainingSummary(
        data="split-digits",
        network="small-conv",
        folds=2,
        per_fold=30,
        examples=200,
        training={"epochs": 2},
        explaining={"samples": 30, "seed": 0},
        levels=(*levels, NoiseLevel(0.3, 1, (0.6, 0.5), _all_scores(methods, 0.05))),
        trends={
            method: {distance_name: {"mege": trend} for distance_name in DISTANCES} for method in (*methods, *CONTROLS)
        },
        refused={},
    )


def synthetic_checkpoints(methods: tuple[str, ...] = METHODS) -> CheckpointSummary:
    """Return scores below those of retrained networks."""
    scores = _all_scores(methods, 0.12)
    names = (*methods, *CONTROLS)
    return CheckpointSummary(
        per_task=20,
        explaining={"samples": 30, "seed": 0},
        scores=scores,
        shapc={name: math.nan if name == "constant" else 0.5 for name in names},
        pairs={
            name: {distance_name: (StepPair(0, 1, 0.5, math.nan, 0.4, 9, 0),) for distance_name in DISTANCES}
            for name in names
        },
        refused={},
    )


def synthetic_findings(run: str, learner: str, methods: tuple[str, ...] = METHODS) -> TrustFindings:
    """Return all three parts of one run."""
    parts = (synthetic_bias(methods), synthetic_retraining(methods), synthetic_checkpoints(methods))
    return TrustFindings(run, learner, "", 0, *parts)
