"""The five questions of an audit; every other module takes their wording from here."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.policies.verdicts import QuestionName


@dataclass(frozen=True)
class Question:
    """A question about a learner, the short name of the section that answers it, and the number that answers it."""

    name: QuestionName
    text: str
    short: str
    number: str
    """What the number of the verdict is, in a few plain words."""
    scale: str
    """What 0 and 100 % mean."""
    command: str
    """The command that measures it; RUNS and RUN stand for paths."""
    not_a_share: str = ""
    """What the percentage must not be read as."""


PERFORMANCE = Question(
    "performance",
    "What does it learn, keep and cost?",
    "Performance",
    "average accuracy",
    "0 means that every answer is wrong, 100 % that every answer is right",
    "perdure audit RUNS",
)
REASONS = Question(
    "reasons",
    "Does it still decide for the same reasons?",
    "Reasons",
    "similarity to earlier reasons",
    "0 means no more similar to the earlier reasons than those of an untrained network, 100 % means identical reasons",
    "perdure audit RUNS --shapc",
    "The percentage is a position on this scale, not a share of the reasons.",
)
CAUSES = Question(
    "causes",
    "Algorithm or tasks: what explains the curves?",
    "Causes",
    "retained per step",
    "0 means that one step erases everything that was built up, 100 % that it erases nothing",
    "perdure audit RUNS --clamp",
    "The percentage is a share of what was built up in the fitted model, not a share of the accuracy.",
)
TRUST = Question(
    "trust",
    "Can the explanations be trusted?",
    "Trust",
    "freedom from bias",
    "0 means as biased as a random map, 100 % means unbiased",
    "perdure trust bias RUN",
    "The percentage is a position on this scale, not a share of correct attributions.",
)
RETRAINING = Question(
    "retraining",
    "Do explanations survive retraining?",
    "Retraining",
    "similarity after retraining",
    "0 means as different as random maps, 100 % means identical explanations",
    "perdure trust retraining RUN",
    "The percentage is a position on this scale, not a share of the explanations.",
)
QUESTIONS = (PERFORMANCE, REASONS, CAUSES, TRUST, RETRAINING)
