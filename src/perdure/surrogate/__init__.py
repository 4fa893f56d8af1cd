"""CLAMP: what is the algorithm's doing and what the tasks', estimated from performance curves (Rivera et al. 2022)."""

from perdure.surrogate.best_order import BestOrder, best_order
from perdure.surrogate.diagnostics.held_out import HeldOut, held_out
from perdure.surrogate.diagnostics.intervals import bootstrap
from perdure.surrogate.diagnostics.profile import Profile, profile
from perdure.surrogate.diagnostics.summary import describe
from perdure.surrogate.estimation.fit import fit
from perdure.surrogate.estimation.problem import make_problem
from perdure.surrogate.forecast import Prediction, predict
from perdure.surrogate.model import simulate
from perdure.surrogate.rank_comparison import RankComparison, compare_ranks
from perdure.surrogate.result import Diagnostics, Fit, PaperForm
from perdure.surrogate.scaling import scale, scale_together

__all__ = [
    "BestOrder",
    "Diagnostics",
    "Fit",
    "HeldOut",
    "PaperForm",
    "Prediction",
    "Profile",
    "RankComparison",
    "best_order",
    "bootstrap",
    "compare_ranks",
    "describe",
    "fit",
    "held_out",
    "make_problem",
    "predict",
    "profile",
    "scale",
    "scale_together",
    "simulate",
]
