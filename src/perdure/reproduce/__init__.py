"""Targets of `perdure reproduce`: one for each published table or figure."""

from pathlib import Path

from perdure.reproduce.learners.classic_learners import STUDIES, classic_learners_table, write_classic_learners
from perdure.reproduce.learners.study import Target, run_learner_study
from perdure.reproduce.learners.study_units import run_learner_study_units

TARGETS = {
    "classic-learners": Target(
        STUDIES, classic_learners_table, write_classic_learners, Path("docs/results/learners.md")
    ),
}

__all__ = [
    "STUDIES",
    "TARGETS",
    "classic_learners_table",
    "run_learner_study",
    "run_learner_study_units",
    "write_classic_learners",
]
