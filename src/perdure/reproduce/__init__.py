"""Targets of `perdure reproduce`: one for each published table or figure."""

from pathlib import Path

from perdure.reproduce.learners import memory_learners
from perdure.reproduce.learners.classic_learners import STUDIES, table, write_results
from perdure.reproduce.learners.study import Target, run_study
from perdure.reproduce.shapc import table as shapc_table

TARGETS = {
    "classic-learners": Target(STUDIES, table, write_results, Path("docs/results/learners.md")),
    "memory-learners": Target(
        memory_learners.STUDIES,
        memory_learners.table,
        memory_learners.write_results,
        Path("docs/results/memory-learners.md"),
    ),
    "shapc": Target(
        memory_learners.STUDIES,
        shapc_table.table,
        shapc_table.write_results,
        Path("docs/results/stability.md"),
    ),
}

__all__ = ["STUDIES", "TARGETS", "memory_learners", "run_study", "shapc_table", "table", "write_results"]
