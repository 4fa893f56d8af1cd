"""What the Trust part of the page says in words, what can be chosen in it, and its tables."""

from __future__ import annotations

from typing import Any

from perdure.audits import Audit, TrustFindings
from perdure.report.trust.answers import (
    bias_words,
    checkpoint_words,
    named,
    retraining_words,
    shown_distance,
    trend_words,
)
from perdure.report.trust.tables import trust_tables

PARTS = ("bias", "retraining", "checkpoints")


def trust_context(audit: Audit) -> dict[str, Any]:
    """Return the part's words by run, its choices and its tables by name."""
    several = len({entry.benchmark for entry in audit.learners}) > 1
    kinds = dict.fromkeys(kind for found in audit.trust for kind in _distances(found))
    first = shown_distance(tuple(kinds)) if kinds else ""
    return {
        "trust_runs": {
            part: [
                (str(place), _title(found, several)) for place, found in enumerate(audit.trust) if getattr(found, part)
            ]
            for part in PARTS
        },
        "trust_words": {
            part: [(_title(found, several), _words(found, part)) for found in audit.trust if getattr(found, part)]
            for part in PARTS
        },
        "distances": [(kind, kind) for kind in sorted(kinds, key=lambda kind: kind != first)],
        "trust_tables": {table.name: table for table in trust_tables(audit, every=False)},
    }


def _title(found: TrustFindings, several: bool) -> str:
    """Return how a run is called in lists and menus."""
    return ", ".join([found.learner, named(found), *([found.benchmark] if several else [])])


def _distances(found: TrustFindings) -> tuple[str, ...]:
    retrained = () if found.retraining is None else found.retraining.distances
    compared = () if found.checkpoints is None else tuple(next(iter(found.checkpoints.scores.values())))
    return (*retrained, *compared)


def _words(found: TrustFindings, part: str) -> str:
    """Return what one run's part says, with what it was measured on."""
    told: list[str] = []
    refused: dict[str, str] = {}
    if part == "bias" and found.bias is not None:
        told, refused = (
            [f"{found.bias.subject}, {found.bias.samples} samples.", *bias_words(found.bias)],
            found.bias.refused,
        )
    if part == "retraining" and (one := found.retraining) is not None:
        about = f"{one.network} on {one.data}: {one.folds} networks, each without one fold of {one.examples} examples; "
        about += f"{one.per_fold} samples of each fold."
        kind = shown_distance(one.distances)
        told, refused = [about, *retraining_words(one, kind), *trend_words(one, kind)], one.refused
    if part == "checkpoints" and found.checkpoints is not None:
        told = [f"{found.checkpoints.per_task} samples a task.", *checkpoint_words(found, found.retraining)]
        refused = found.checkpoints.refused
    return " ".join([*told, *(f"{name} was refused: {why}." for name, why in refused.items())])
