"""What the Trust charts draw from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.audits import CheckpointSummary, ExplainerScores, RetrainingSummary, TrustFindings
from perdure.audits.bias.results import BiasResult, ExplainerBias
from perdure.audits.controls import CONTROLS
from perdure.report.json_numbers import ends, number, numbers


def trust_data(findings: Sequence[TrustFindings]) -> dict[str, Any]:
    """Return the findings of every run as plain values, and a colour for every explainer on all charts of the part."""
    names = dict.fromkeys(name for found in findings for name in _methods(found))
    explainers = [name for name in names if name not in CONTROLS]
    slots: dict[str, int | str] = {name: place for place, name in enumerate(explainers)}
    return {
        "slots": {**slots, **{name: name for name in CONTROLS}},
        "runs": [
            {
                "bias": None if found.bias is None else _bias(found.bias),
                "retraining": None if found.retraining is None else _retraining(found.retraining),
                "checkpoints": None if found.checkpoints is None else _checkpoints(found.checkpoints),
            }
            for found in findings
        ],
    }


def _methods(found: TrustFindings) -> list[str]:
    bias = [] if found.bias is None else [entry.method for entry in found.bias.explainers]
    retrained = () if found.retraining is None else found.retraining.methods
    compared = () if found.checkpoints is None else found.checkpoints.methods
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
        "cells": [[ends(cell) for cell in row] for row in entry.cells],
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
    return {method: {kind: _scores(one) for kind, one in kinds.items()} for method, kinds in scores.items()}


def _scores(scores: ExplainerScores) -> dict[str, Any]:
    return {
        "mege": ends(scores.mege),
        "reco_rate": ends(scores.reco_rate),
        "reco_precision": ends(scores.reco_precision),
        "p": number(scores.p_value),
        "holm": number(scores.corrected_p),
        "same": scores.same,
        "different": scores.different,
    }


def _checkpoints(summary: CheckpointSummary) -> dict[str, Any]:
    return {
        "methods": list(summary.methods),
        "scores": _by_distance(summary.scores),
        "shapc": {method: number(value) for method, value in summary.shapc.items()},
    }
