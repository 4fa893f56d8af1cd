"""CLAMP: what is the algorithm's doing and what the tasks', estimated from performance curves (Rivera et al. 2022)."""

from perdure.surrogate.estimate import fit
from perdure.surrogate.heldout import HeldOut, held_out
from perdure.surrogate.intervals import bootstrap
from perdure.surrogate.model import simulate
from perdure.surrogate.result import Diagnostics, Fit, PaperForm
from perdure.surrogate.words import describe

__all__ = ["Diagnostics", "Fit", "HeldOut", "PaperForm", "bootstrap", "describe", "fit", "held_out", "simulate"]
