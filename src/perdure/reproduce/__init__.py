"""Targets of `perdure reproduce`: one for each published table or figure."""

from pathlib import Path

from perdure.reproduce.five_questions import page as five_questions
from perdure.reproduce.learners import memory_learners
from perdure.reproduce.learners.classic_learners import STUDIES, classic_learners_table, write_classic_learners
from perdure.reproduce.learners.study import Target, run_learner_study
from perdure.reproduce.learners.study_units import run_learner_study_units
from perdure.reproduce.more_than_forgetting import page as more_than_forgetting
from perdure.reproduce.shapc import table as shapc_table

TARGETS = {
    "classic-learners": Target(
        STUDIES, classic_learners_table, write_classic_learners, Path("docs/results/learners.md")
    ),
    "memory-learners": Target(
        memory_learners.STUDIES,
        memory_learners.memory_learners_table,
        memory_learners.write_memory_learners,
        Path("docs/results/memory-learners.md"),
    ),
    "shapc": Target(
        memory_learners.STUDIES,
        shapc_table.shapc_paper_table,
        shapc_table.write_shapc_paper_table,
        Path("docs/results/stability.md"),
        shapc_table.explain_study,
    ),
}

ROW_TARGETS = {
    "five-questions": five_questions.TARGET,
    "more-than-forgetting": more_than_forgetting.TARGET,
}

__all__ = [
    "ROW_TARGETS",
    "STUDIES",
    "TARGETS",
    "classic_learners_table",
    "memory_learners",
    "run_learner_study",
    "run_learner_study_units",
    "shapc_table",
    "write_classic_learners",
]
