"""One target for each published table or figure."""

from perdure.reproduce.classic_learners import STUDIES, run_study, table, write_results

__all__ = ["STUDIES", "run_study", "table", "write_results"]
