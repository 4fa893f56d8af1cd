"""Audits and findings written by earlier versions, brought to the current schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Plain = dict[str, Any]
_OLD_SCORE = {
    "mean": None,
    "low": None,
    "high": None,
    "n": 0,
    "method": "none",
    "reason": "it was computed by an earlier version, whose zero was not an untrained network; run perdure audit --shapc again",
    "level": 0.95,
}


def upgraded_audit(value: Mapping[str, Any]) -> Plain:
    """Return the JSON form of an audit in the current schema (5).

    Up to schema 4, the calibrated score of SHAPC had another zero (shuffled maps); it becomes the diagnostic ``ratio``, and
    the score is missing. Schemas up to 3 (version 0.1) have ``stability`` for SHAPC results and for CL_stability, ``latent``
    for CLAMP, and ``samples`` for test examples. Parts that a schema did not have yet stay empty.
    """
    schema = value.get("schema", 0)
    if schema >= 4:
        return dict(value) if schema > 4 else _without_calibrated(value)
    audit = renamed(value, {"stability": "shapc", "latent": "clamp"})
    audit["learners"] = [renamed(learner, {"stability": "cl_stability"}) for learner in value["learners"]]
    audit["shapc"] = [renamed(result, {"samples": "examples"}) for result in audit.get("shapc", ())]
    audit["trust"] = [upgraded_findings(findings) for findings in value.get("trust", ())]
    audit["clamp"] = [renamed(fit, {"words": "notes"}) for fit in audit.get("clamp", ())]
    return _without_calibrated(audit)


def _without_calibrated(audit: Mapping[str, Any]) -> Plain:
    """Return an audit whose calibrated scores are missing, because their zero was another one."""
    learners = [
        {**learner, "measures": {name: _replaced(name, item) for name, item in learner["measures"].items()}}
        for learner in audit["learners"]
    ]
    return {**audit, "learners": learners, "shapc": [_upgraded_shapc(result) for result in audit.get("shapc", ())]}


def _replaced(name: str, measure: Any) -> Any:
    return _OLD_SCORE if name == "shapc_calibrated" else measure


def _upgraded_shapc(result: Mapping[str, Any]) -> Plain:
    """Return a SHAPC result in the current schema."""
    kept = {name: item for name, item in result.items() if name != "limit"}
    nothing = {name: item for name, item in kept["matrices"].items() if name not in ("calibrated", "floor")}
    missing = [[None] * len(row) for row in kept["matrices"]["shapc"]]
    retraining = kept.get("retraining")
    return {
        **kept,
        "ratio": kept["calibrated"],
        "calibrated": _OLD_SCORE,
        "floor": _OLD_SCORE,
        "matrices": {**nothing, "calibrated": missing, "floor": missing},
        "retraining": None if retraining is None else {**retraining, "calibrated": _OLD_SCORE},
    }


def upgraded_findings(findings: Mapping[str, Any]) -> Plain:
    """Return the findings about one run's explanations in the current schema."""
    upgrades = {"bias": upgraded_bias, "retraining": upgraded_retraining, "checkpoints": upgraded_checkpoints}
    parts = {name: None if findings[name] is None else upgrade(findings[name]) for name, upgrade in upgrades.items()}
    return {**findings, **parts}


def upgraded_bias(value: Mapping[str, Any]) -> Plain:
    """Return a comparison of explainers in the current schema."""
    if "examples" in value:
        return dict(value)
    explainers = [renamed(entry, {"samples": "per_example"}) for entry in value["explainers"]]
    settings = renamed(value["settings"], {"budget": "samples", "decided": "predicted", "about": "key"})
    return {**renamed(value, {"samples": "examples"}), "explainers": explainers, "settings": settings}


def upgraded_retraining(value: Mapping[str, Any]) -> Plain:
    """Return a retraining summary in the current schema."""
    levels = [{**level, "scores": _upgraded_scores(level["scores"])} for level in value["levels"]]
    return {**value, "levels": levels}


def upgraded_checkpoints(value: Mapping[str, Any]) -> Plain:
    """Return a checkpoint summary in the current schema."""
    return {**value, "scores": _upgraded_scores(value["scores"])}


def _upgraded_scores(scores: Mapping[str, Mapping[str, Plain]]) -> Plain:
    return {
        method: {kind: renamed(entry, {"samples": "examples"}) for kind, entry in kinds.items()}
        for method, kinds in scores.items()
    }


def renamed(value: Mapping[str, Any], names: Mapping[str, str]) -> Plain:
    """Return a mapping with some keys renamed; keys that are missing are ignored."""
    return {names.get(key, key): item for key, item in value.items()}
