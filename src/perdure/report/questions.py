"""The five questions of the report; every other module takes their wording from here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A question about a learner and the short name of the section that answers it."""

    text: str
    short: str


PERFORMANCE = Question("What does it learn, keep and cost?", "Performance")
REASONS = Question("Does it still decide for the same reasons?", "Reasons")
CAUSES = Question("Algorithm or tasks: what explains the curves?", "Causes")
TRUST = Question("Can the explanations be trusted?", "Trust")
RETRAINING = Question("Do explanations survive retraining?", "Retraining")
QUESTIONS = (PERFORMANCE, REASONS, CAUSES, TRUST, RETRAINING)
