"""Attributions from a network: explainers, expected gradients, Shapley values, and refusals where they would be wrong."""

from perdure.explain.attribute import attribute, expected_gradients, method_names, unknown_method
from perdure.explain.axioms import AxiomCheck, Axioms, check_axioms, check_network_axioms
from perdure.explain.checker import Finding, check_network
from perdure.explain.exact import Dividends, ExactShapley, exact_shapley
from perdure.explain.expected_gradients import ExpectedGradients
from perdure.explain.game import NetworkGame, layer_output
from perdure.explain.marginals import shapley_marginals
from perdure.explain.masking import MaskingOrder, masked_in_order
from perdure.explain.pilot import choose_estimator
from perdure.explain.players import Players, features, grid, own_players, pixels, superpixels
from perdure.explain.shapley import ESTIMATORS, Shapley, shapley
from perdure.explain.shapley_table import ShapleyTable, layer_maps, shapley_table
from perdure.explain.sharing import quick_game

__all__ = [
    "ESTIMATORS",
    "AxiomCheck",
    "Axioms",
    "Dividends",
    "ExactShapley",
    "ExpectedGradients",
    "Finding",
    "MaskingOrder",
    "NetworkGame",
    "Players",
    "Shapley",
    "ShapleyTable",
    "attribute",
    "check_axioms",
    "check_network",
    "check_network_axioms",
    "choose_estimator",
    "exact_shapley",
    "expected_gradients",
    "features",
    "grid",
    "layer_maps",
    "layer_output",
    "masked_in_order",
    "method_names",
    "own_players",
    "pixels",
    "quick_game",
    "shapley",
    "shapley_marginals",
    "shapley_table",
    "superpixels",
    "unknown_method",
]
