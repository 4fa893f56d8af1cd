"""Attributions: explainers, Shapley values, and a checker that refuses networks on which a method would be wrong."""

from perdure.explain.adapters.adapted import Adapted, adapt
from perdure.explain.adapters.inputs import Series, Table, Tokens
from perdure.explain.adapters.views import LayoutWarning
from perdure.explain.attribute import attribute, attribute_for_seeds, expected_gradients
from perdure.explain.checks.network import Finding, Gradients, ModuleRules, Outputs, check_network
from perdure.explain.explainer import EXPLAINERS, Explainer, Request, explainer, get_explainer, method_names
from perdure.explain.methods.expected_gradients import ExpectedGradients
from perdure.explain.shapley.axioms import AxiomCheck, Axioms, check_axioms, check_network_axioms
from perdure.explain.shapley.estimator_choice import EstimatorChoice, choose_estimator, recommend_estimator
from perdure.explain.shapley.estimators import ESTIMATORS, Shapley, shapley
from perdure.explain.shapley.exact import Dividends, ExactShapley, exact_shapley
from perdure.explain.shapley.game import NetworkGame, game_layer_output
from perdure.explain.shapley.marginals import shapley_marginals
from perdure.explain.shapley.masking_order import MaskingOrder, masked_in_order
from perdure.explain.shapley.players import (
    Players,
    feature_players,
    grid_players,
    pixel_players,
    players_from_labels,
    superpixel_players,
)
from perdure.explain.shapley.shared_layers import fast_game
from perdure.explain.shapley.table import (
    ShapleyTable,
    recommended_estimator,
    shapley_table,
    shapley_table_layer_maps,
)
from perdure.explain.taylor import TaylorAllocation, TaylorEffects, taylor_effects

__all__ = [
    "ESTIMATORS",
    "EXPLAINERS",
    "Adapted",
    "AxiomCheck",
    "Axioms",
    "Dividends",
    "EstimatorChoice",
    "ExactShapley",
    "ExpectedGradients",
    "Explainer",
    "Finding",
    "Gradients",
    "LayoutWarning",
    "MaskingOrder",
    "ModuleRules",
    "NetworkGame",
    "Outputs",
    "Players",
    "Request",
    "Series",
    "Shapley",
    "ShapleyTable",
    "Table",
    "TaylorAllocation",
    "TaylorEffects",
    "Tokens",
    "adapt",
    "attribute",
    "attribute_for_seeds",
    "check_axioms",
    "check_network",
    "check_network_axioms",
    "choose_estimator",
    "exact_shapley",
    "expected_gradients",
    "explainer",
    "fast_game",
    "feature_players",
    "game_layer_output",
    "get_explainer",
    "grid_players",
    "masked_in_order",
    "method_names",
    "pixel_players",
    "players_from_labels",
    "recommend_estimator",
    "recommended_estimator",
    "shapley",
    "shapley_marginals",
    "shapley_table",
    "shapley_table_layer_maps",
    "superpixel_players",
    "taylor_effects",
]
