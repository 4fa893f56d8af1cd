"""CLAMP: what is the algorithm's doing and what the tasks', estimated from performance curves (Rivera et al. 2022)."""

from perdure.surrogate.estimate import fit
from perdure.surrogate.forecast import Prediction, predict
from perdure.surrogate.heldout import HeldOut, held_out
from perdure.surrogate.intervals import bootstrap
from perdure.surrogate.likelihood import Profile, profile
from perdure.surrogate.model import simulate
from perdure.surrogate.order import BestOrder, best_order
from perdure.surrogate.problem import make_problem
from perdure.surrogate.ranks import RankComparison, compare_ranks
from perdure.surrogate.result import Diagnostics, Fit, PaperForm
from perdure.surrogate.scaling import scale, scale_together
from perdure.surrogate.words import describe

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
