"""The data of the charts on trust and retraining, as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.audits import CheckpointSummary, ExplainerScores, RetrainingSummary, TrustFindings
from perdure.audits.bias.results import BiasResult, ExplainerBias
from perdure.audits.controls import CONTROLS
from perdure.report.chart_numbers import chart_interval, chart_number, numbers


def trust_data(findings: Sequence[TrustFindings]) -> dict[str, Any]:
    """Return the findings of every run, and a color slot for every explainer that all charts share."""
    names = dict.fromkeys(name for run in findings for name in _methods(run))
    explainers = [name for name in names if name not in CONTROLS]
    slots: dict[str, int | str] = {name: index for index, name in enumerate(explainers)}
    return {
        "slots": {**slots, **{name: name for name in CONTROLS}},
        "runs": [
            {
                "bias": None if run.bias is None else _bias(run.bias),
                "retraining": None if run.retraining is None else _retraining(run.retraining),
                "checkpoints": None if run.checkpoints is None else _checkpoints(run.checkpoints),
            }
            for run in findings
        ],
    }


def _methods(run: TrustFindings) -> list[str]:
    bias = [] if run.bias is None else [entry.method for entry in run.bias.explainers]
    retrained = () if run.retraining is None else run.retraining.methods
    compared = () if run.checkpoints is None else run.checkpoints.methods
    return [*bias, *retrained, *compared]


def _bias(result: BiasResult) -> dict[str, Any]:
    return {
        "shares": [round(100 * share) for share in result.shares],
        "sides": list(result.sides),
        "explainers": [_explainer(entry) for entry in result.explainers],
    }


def _explainer(entry: ExplainerBias) -> dict[str, Any]:
    return {
        "name": entry.method,
        "layer": entry.layer,
        "cells": [[chart_interval(cell) for cell in row] for row in entry.cells],
        "corrected": [numbers(row) for row in entry.corrected.tolist()],
        "floor": [numbers(row) for row in entry.floor.tolist()],
    }


def _retraining(summary: RetrainingSummary) -> dict[str, Any]:
    return {
        "methods": list(summary.methods),
        "levels": [
            {
                "name": f"{100 * level.share:g}",
                "accuracy": numbers(level.accuracy),
                "scores": _by_distance(level.scores),
            }
            for level in summary.levels
            if level.top is None
        ],
    }


def _by_distance(scores: dict[str, dict[str, ExplainerScores]]) -> dict[str, Any]:
    return {
        method: {distance: _scores(values) for distance, values in by_distance.items()}
        for method, by_distance in scores.items()
    }


def _scores(scores: ExplainerScores) -> dict[str, Any]:
    return {
        "mege": chart_interval(scores.mege),
        "reco_rate": chart_interval(scores.reco_rate),
        "reco_precision": chart_interval(scores.reco_precision),
        "p": chart_number(scores.p_value),
        "holm": chart_number(scores.corrected_p),
        "same": scores.same,
        "different": scores.different,
    }


def _checkpoints(summary: CheckpointSummary) -> dict[str, Any]:
    return {
        "methods": list(summary.methods),
        "scores": _by_distance(summary.scores),
        "shapc": {method: chart_number(value) for method, value in summary.shapc.items()},
    }
