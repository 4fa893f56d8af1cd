"""Texts, menus and tables of the report's sections on trust and retraining."""

from __future__ import annotations

from typing import Any

from perdure.audits import Audit, TrustFindings
from perdure.audits.retraining.summaries import answer_distance
from perdure.report.trust.answers import (
    answer_run_label,
    bias_answer,
    checkpoints_answer,
    describe_trends,
    retraining_answer,
)

PARTS = ("bias", "retraining", "checkpoints")


def trust_context(audit: Audit) -> dict[str, Any]:
    """Return the template variables: texts by run, choices of the menus, and tables by name."""
    with_benchmark = len({entry.benchmark for entry in audit.learners}) > 1
    distances = dict.fromkeys(distance for findings in audit.trust for distance in _distances(findings))
    default = answer_distance(tuple(distances)) if distances else ""
    return {
        "trust_runs": {
            part: [
                (str(index), _title(findings, with_benchmark))
                for index, findings in enumerate(audit.trust)
                if getattr(findings, part)
            ]
            for part in PARTS
        },
        "trust_texts": {
            part: [
                (_title(findings, with_benchmark), _text(findings, part))
                for findings in audit.trust
                if getattr(findings, part)
            ]
            for part in PARTS
        },
        "distances": [(name, name) for name in sorted(distances, key=lambda name: name != default)],
    }


def _title(findings: TrustFindings, with_benchmark: bool) -> str:
    """Return the name of a run in lists and menus."""
    return ", ".join([findings.learner, answer_run_label(findings), *([findings.benchmark] if with_benchmark else [])])


def _distances(findings: TrustFindings) -> tuple[str, ...]:
    retrained = () if findings.retraining is None else findings.retraining.distances
    compared = () if findings.checkpoints is None else tuple(next(iter(findings.checkpoints.scores.values())))
    return (*retrained, *compared)


def _text(findings: TrustFindings, part: str) -> str:
    """Return the text of one run's part: what was measured, the results, and which explainers were refused."""
    sentences: list[str] = []
    refused: dict[str, str] = {}
    if part == "bias" and (bias := findings.bias) is not None:
        sentences, refused = [f"{bias.subject}, {bias.examples} examples.", *bias_answer(bias)], bias.refused
    if part == "retraining" and (summary := findings.retraining) is not None:
        setting = (
            f"{summary.network} on {summary.data}: {summary.folds} networks, each trained without one fold of "
            f"{summary.examples} examples; {summary.per_fold} examples per fold."
        )
        distance = answer_distance(summary.distances)
        sentences = [setting, *retraining_answer(summary, distance), *describe_trends(summary, distance)]
        refused = summary.refused
    if part == "checkpoints" and (checkpoints := findings.checkpoints) is not None:
        sentences = [
            f"{checkpoints.per_task} examples per task.",
            *checkpoints_answer(findings, findings.retraining),
        ]
        refused = checkpoints.refused
    return " ".join([*sentences, *(f"{name} was refused: {reason}." for name, reason in refused.items())])
