"""The numbers of the five-question study: every answer of every learner, and how the answers are related."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits import Audit, ExplainerScores, LatentProperties, serialization
from perdure.audits.controls import CONTROLS
from perdure.metrics import (
    Interval,
    SpearmanCorrelation,
    average_accuracy,
    average_forgetting,
    interval,
    partial_spearman_correlation,
    spearman_correlation,
)
from perdure.reproduce.learners.run_rows import audit_of_rows, measurements_of_rows, rows_of_learner
from perdure.reproduce.result_rows import Row

FloatArray = NDArray[np.float64]
RESAMPLES = 2000
EARLY_STEP = 2
"""The step (0-based) whose numbers predict the forgetting at the end: after the third task."""


@dataclass(frozen=True)
class Answer:
    """A number that answers one of the questions. Correlations use it times ``direction``, so that higher is better."""

    name: str
    label: str
    question: str
    direction: int


ANSWERS = (
    Answer("accuracy", "accuracy", "What does it learn, keep and cost?", 1),
    Answer("forgetting", "forgetting", "What does it learn, keep and cost?", -1),
    Answer("cl_score", "CL_score", "What does it learn, keep and cost?", 1),
    Answer("cost", "cost", "What does it learn, keep and cost?", -1),
    Answer("shapc", "calibrated SHAPC", "Does it still decide for the same reasons?", 1),
    Answer("retention", "retention", "Algorithm or tasks: what explains the curves?", 1),
    Answer("bias", "least bias", "Can the explanations be trusted?", -1),
    Answer("mege", "MeGe", "Do explanations survive retraining?", 1),
    Answer("reco", "ReCo", "Do explanations survive retraining?", 1),
)
GIVEN = "accuracy"


@dataclass(frozen=True)
class LearnerAnswers:
    """The answers of one learner with their intervals over seeds; NaN with the reason where a number is missing.

    Intervals of MeGe and ReCo are over examples, because one number describes all seeds; that of retention is of the CLAMP fit.
    """

    learner: str
    values: Mapping[str, Interval]
    runs: Mapping[str, tuple[float, ...]]
    """The values of the single seeds, for the answers that have them."""
    least_biased: tuple[tuple[str, int], ...]
    """The explainer with the lowest bias, and in how many seeds, most frequent first."""
    retention_is_supported: bool
    runs_without_bias: int = 0
    """Runs whose final network cannot be explained, because its gradients are 0 at all explained inputs."""


@dataclass(frozen=True)
class RankGap:
    """Rank by accuracy minus rank by calibrated SHAPC (1 is best), with its interval over resampled seeds.

    Positive: better reasons than accuracy. Negative: it keeps its accuracy and changes its reasons.
    """

    learner: str
    by_accuracy: float
    by_shapc: float
    low: float
    high: float

    @property
    def gap(self) -> float:
        """The difference of the ranks."""
        return self.by_accuracy - self.by_shapc


@dataclass(frozen=True)
class Prediction:
    """How well numbers after the third task predict the forgetting after the last one, over learners and over runs."""

    predictors: tuple[str, ...]
    over_learners: Mapping[str, SpearmanCorrelation]
    over_runs: Mapping[str, float]
    """Spearman's correlation over all runs; no interval of its own, because runs of one learner are not independent."""
    advantage: Interval
    """abs(correlation) of calibrated SHAPC minus that of accuracy, over learners; the interval resamples learners."""


@dataclass(frozen=True)
class FiveAnswers:
    """All results of the study on one data set."""

    learners: tuple[LearnerAnswers, ...]
    correlation: Mapping[tuple[str, str], SpearmanCorrelation]
    partial: Mapping[tuple[str, str], SpearmanCorrelation]
    """Rank correlations of the answers given accuracy."""
    undefined: Mapping[tuple[str, str], str]
    """Pairs without a correlation, and why."""
    gaps: tuple[RankGap, ...]
    prediction: Prediction | None
    early: Mapping[str, FloatArray]
    """What is predicted and from what: for each learner, the means over seeds."""
    audit: Audit
    reference: LearnerAnswers | None
    """Joint training, which is not part of the correlations."""

    def named(self, learner: str) -> LearnerAnswers:
        """Return the answers of a learner."""
        return next(entry for entry in self.learners if entry.learner == learner)


def analyze(rows: Sequence[Row], clamp: LatentProperties | None = None) -> FiveAnswers:
    """Compute all results from the rows of one study; ``clamp`` is the fit of its sequential learners."""
    audit = audit_of_rows(rows)
    everything = {
        entry.learner: _answers(entry, rows_of_learner(rows, entry.learner), clamp) for entry in audit.learners
    }
    references = {entry.learner for entry in audit.learners if entry.is_reference}
    learners = tuple(value for name, value in everything.items() if name not in references)
    correlation, partial, undefined = _correlations(learners)
    early = _early_numbers(rows, [entry.learner for entry in learners])
    return FiveAnswers(
        learners=learners,
        correlation=correlation,
        partial=partial,
        undefined=undefined,
        gaps=_rank_gaps(learners),
        prediction=_prediction(early) if len(learners) >= 4 else None,
        early={name: np.array([np.mean(runs) for runs in values]) for name, values in early.items()},
        audit=audit,
        reference=next((everything[name] for name in references), None),
    )


def _answers(entry: Any, rows: Sequence[Row], clamp: LatentProperties | None) -> LearnerAnswers:
    bias = [min(explained.items(), key=lambda pair: pair[1]) for row in rows if (explained := _explainers(row))]
    runs = {
        "accuracy": tuple(entry.run_values["average_accuracy"]),
        "bias": tuple(value for _, value in bias),
        "cost": tuple(float(run.cost.operations.sum()) for run in measurements_of_rows(rows) if run.cost is not None),
    }
    if shapc := [row["shapc"]["calibrated"]["mean"] for row in rows if row.get("shapc")]:
        runs |= {"shapc": tuple(shapc), "forgetting": tuple(entry.run_values["forgetting"])}
    values = {name: interval(numbers) for name, numbers in runs.items() if numbers}
    if not entry.is_reference:
        values["cl_score"] = entry.scores["W1"]
    agreement = next((row["seed_agreement"] for row in rows if row.get("seed_agreement")), None)
    if agreement is not None:
        scores = serialization.from_json(agreement["expected_gradients"], ExplainerScores)
        values |= {"mege": scores.mege, "reco": scores.reco_rate}
    supported = False
    if clamp is not None and entry.learner in clamp.algorithms:
        index = clamp.algorithms.index(entry.learner)
        low, high = clamp.intervals["retention"][index]
        values["retention"] = Interval(
            float(clamp.estimates["retention"][index]), float(low), float(high), len(rows), "bootstrap"
        )
        supported = bool(clamp.supported["retention"][index])
    counts = Counter(name for name, _ in bias)
    return LearnerAnswers(entry.learner, values, runs, tuple(counts.most_common()), supported, len(rows) - len(bias))


def _explainers(row: Row) -> dict[str, float]:
    """Return the bias of each explainer that is ranked, without the controls; nothing if that of one is missing.

    Maps that are 0 for all examples have no bias, and the least of the others would not be comparable.
    """
    values = {
        name: math.nan if entry[0] is None else float(entry[0])
        for name, entry in row["bias"]["explainers"].items()
        if name not in CONTROLS
    }
    return {} if any(map(math.isnan, values.values())) else values


def _column(learners: Sequence[LearnerAnswers], name: str) -> FloatArray:
    answer = next(entry for entry in ANSWERS if entry.name == name)
    means = [entry.values[name].mean if name in entry.values else math.nan for entry in learners]
    return answer.direction * np.array(means, dtype=np.float64)


def _correlations(
    learners: Sequence[LearnerAnswers],
) -> tuple[
    dict[tuple[str, str], SpearmanCorrelation], dict[tuple[str, str], SpearmanCorrelation], dict[tuple[str, str], str]
]:
    from perdure.base.errors import InputError  # noqa: PLC0415

    plain, partial, undefined = {}, {}, {}
    columns = {answer.name: _column(learners, answer.name) for answer in ANSWERS}
    for first, second in combinations(columns, 2):
        try:
            plain[first, second] = spearman_correlation(columns[first], columns[second])
        except InputError as error:
            undefined[first, second] = str(error)
            continue
        if GIVEN in (first, second):
            continue
        try:
            partial[first, second] = partial_spearman_correlation(columns[first], columns[second], columns[GIVEN])
        except InputError as error:
            undefined[first, second] = str(error)
    return plain, partial, undefined


def _rank_gaps(learners: Sequence[LearnerAnswers], seed: int = 0) -> tuple[RankGap, ...]:
    """Return the rank gaps, most negative first. In each resample, the seeds of every learner are drawn with replacement."""
    known = [entry for entry in learners if "shapc" in entry.runs]
    if len(known) < 2:
        return ()
    generator = np.random.default_rng(seed)
    draws = np.empty((2, RESAMPLES, len(known)))
    for index, entry in enumerate(known):
        chosen = generator.integers(0, len(entry.runs["shapc"]), size=(RESAMPLES, len(entry.runs["shapc"])))
        for row, name in enumerate(("accuracy", "shapc")):
            draws[row, :, index] = np.array(entry.runs[name])[chosen].mean(axis=1)
    ranks = _ranks(draws)
    low, high = np.quantile(ranks[0] - ranks[1], [0.025, 0.975], axis=0)
    plain = _ranks(np.array([[np.mean(entry.runs[name]) for entry in known] for name in ("accuracy", "shapc")]))
    gaps = [
        RankGap(entry.learner, float(plain[0, i]), float(plain[1, i]), float(low[i]), float(high[i]))
        for i, entry in enumerate(known)
    ]
    return tuple(sorted(gaps, key=lambda gap: gap.gap))


def _ranks(values: FloatArray) -> FloatArray:
    """Return ranks along the last axis; the largest value has rank 1."""
    from scipy.stats import rankdata  # noqa: PLC0415

    ranks: FloatArray = rankdata(-values, axis=-1)
    return ranks


def _early_numbers(rows: Sequence[Row], learners: Sequence[str]) -> dict[str, list[list[float]]]:
    """Return, for each learner and run, the numbers after the third task and the forgetting after the last one."""
    found: dict[str, list[list[float]]] = {"SHAPC": [], "accuracy": [], "forgetting so far": [], "outcome": []}
    for learner in learners:
        own = rows_of_learner(rows, learner)
        tables = [run.table for run in measurements_of_rows(own)]
        seen = EARLY_STEP + 1
        matrices = [
            serialization.from_json(row["shapc"]["matrices"], dict[str, FloatArray])["calibrated"] for row in own
        ]
        found["SHAPC"].append([float(np.mean(matrix[:EARLY_STEP, EARLY_STEP])) for matrix in matrices])
        found["accuracy"].append([float(average_accuracy(table[:seen, :seen])) for table in tables])
        found["forgetting so far"].append([float(average_forgetting(table[:seen, :seen])) for table in tables])
        found["outcome"].append([float(average_forgetting(table)) for table in tables])
    return found


def _prediction(early: Mapping[str, Sequence[Sequence[float]]], seed: int = 0) -> Prediction:
    """Return the correlations of each predictor with the final forgetting. Higher predictors should mean less forgetting."""
    predictors = tuple(name for name in early if name != "outcome")
    means = {name: np.array([np.mean(runs) for runs in values]) for name, values in early.items()}
    pooled = {name: np.concatenate([np.asarray(runs) for runs in values]) for name, values in early.items()}
    over_learners = {name: spearman_correlation(means[name], means["outcome"]) for name in predictors}
    over_runs = {name: spearman_correlation(pooled[name], pooled["outcome"]).rho for name in predictors}
    generator = np.random.default_rng(seed)
    count = len(means["outcome"])
    draws = [generator.integers(0, count, size=count) for _ in range(RESAMPLES)]
    usable = [rows for rows in draws if all(len(np.unique(values[rows])) > 1 for values in means.values())]
    strengths = np.array(
        [
            [abs(spearman_correlation(means[name][rows], means["outcome"][rows]).rho) for name in ("SHAPC", "accuracy")]
            for rows in usable
        ]
    )
    differences = strengths[:, 0] - strengths[:, 1]
    value = abs(over_learners["SHAPC"].rho) - abs(over_learners["accuracy"].rho)
    low, high = np.quantile(differences, [0.025, 0.975])
    return Prediction(
        predictors, over_learners, over_runs, Interval(value, float(low), float(high), count, "bootstrap")
    )
