"""CLAMP: latent properties of algorithms and tasks, estimated from performance curves (Rivera et al. 2022).

Imports point one way: problem -> model -> estimation -> result -> diagnostics -> fitting -> forecast -> best_order,
design, description and rank_comparison.
"""

from perdure.surrogate.best_order import BestOrder, best_order
from perdure.surrogate.description import ambiguities, describe
from perdure.surrogate.design import Design, design
from perdure.surrogate.diagnostics.held_out import held_out
from perdure.surrogate.diagnostics.intervals import bootstrap
from perdure.surrogate.diagnostics.profile import Profile, profile
from perdure.surrogate.fitting import fit
from perdure.surrogate.forecast import Prediction, predict
from perdure.surrogate.model import simulate
from perdure.surrogate.problem import make_problem
from perdure.surrogate.rank_comparison import RankComparison, compare_ranks
from perdure.surrogate.result import Diagnostics, Explanation, Fit, HeldOut, PaperForm
from perdure.surrogate.scaling import scale, scale_together

__all__ = [
    "BestOrder",
    "Design",
    "Diagnostics",
    "Explanation",
    "Fit",
    "HeldOut",
    "PaperForm",
    "Prediction",
    "Profile",
    "RankComparison",
    "ambiguities",
    "best_order",
    "bootstrap",
    "compare_ranks",
    "describe",
    "design",
    "fit",
    "held_out",
    "make_problem",
    "predict",
    "profile",
    "scale",
    "scale_together",
    "simulate",
]
