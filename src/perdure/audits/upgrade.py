"""Audits and findings written by earlier versions, brought to the current schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.audits.evaluation_times import AT_BOUNDARIES, WITHIN_TASKS, evaluation_notes

Plain = dict[str, Any]


def upgraded_audit(value: Mapping[str, Any]) -> Plain:
    """Return the JSON form of an audit in the current schema (4).

    Schemas up to 3 (version 0.1) have ``stability`` for SHAPC results and for CL_stability, ``latent`` for CLAMP, and
    ``samples`` for test examples. Parts that a schema did not have yet stay empty.
    """
    if value.get("schema", 0) >= 4:
        return {**value, "learners": [_with_evaluation_times(learner) for learner in value["learners"]]}
    audit = renamed(value, {"stability": "shapc", "latent": "clamp"})
    audit["learners"] = [
        _with_evaluation_times(renamed(learner, {"stability": "cl_stability"})) for learner in value["learners"]
    ]
    audit["shapc"] = [renamed(result, {"samples": "examples"}) for result in audit.get("shapc", ())]
    audit["trust"] = [upgraded_findings(findings) for findings in value.get("trust", ())]
    audit["clamp"] = [renamed(fit, {"words": "notes"}) for fit in audit.get("clamp", ())]
    return audit


def _with_evaluation_times(learner: Mapping[str, Any]) -> Plain:
    """Add when accuracies were evaluated; only learners that were evaluated within tasks have windowed forgetting."""
    evaluated = WITHIN_TASKS if "windowed_forgetting" in learner["measures"] else AT_BOUNDARIES
    notes = evaluation_notes(evaluated, learner.get("is_reference", False))
    return {"evaluated": evaluated, "notes": notes, **learner}


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
