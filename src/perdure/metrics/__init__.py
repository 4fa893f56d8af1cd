"""Numbers from numbers: pure functions on arrays, numpy and scipy only."""

from perdure.metrics import lifelong
from perdure.metrics.accuracy_matrix import (
    Intransigence,
    accuracy,
    average_accuracy,
    average_forgetting,
    backward_transfer,
    forward_transfer,
    intransigence,
    positive_backward_transfer,
    remembering,
)
from perdure.metrics.bias import Bias, anchor_values, attribution_bias, attribution_biases, chosen_players
from perdure.metrics.efficiency import (
    computational_efficiency,
    model_size_efficiency,
    sample_storage_efficiency,
)
from perdure.metrics.intervals import Interval, interval
from perdure.metrics.mege_reco import PairScores, mege, mege_distance, pair_scores, reco
from perdure.metrics.missing import Missing, reason
from perdure.metrics.paired_tests import Difference, holm, paired_difference
from perdure.metrics.rank_correlation import MapAgreement, RankCorrelation, map_agreement, rank_correlation
from perdure.metrics.ranks import Correlation, RankAgreement, RankMatrix, correlation, rank_agreement, rank_matrix
from perdure.metrics.retraining import RetrainingScores, Trend, retraining_scores, trend_test
from perdure.metrics.sampling_stability import (
    ContextInstability,
    SamplingDistribution,
    StabilityCurve,
    VarianceRatio,
    context_instability,
    instability,
    sampling_distribution,
    stability_curve,
    variance_ratio,
)
from perdure.metrics.score import (
    CRITERIA,
    WEIGHTS,
    CriteriaCorrelation,
    FirstPlaces,
    cl_score,
    cl_stability,
    criteria_correlation,
    first_places,
    weight_vector,
)
from perdure.metrics.shapc import ShapcSummary, shapc, shapc_at_shares, summarise_shapc
from perdure.metrics.stability_gap import (
    min_accuracy,
    windowed_forgetting,
    windowed_plasticity,
    worst_case_accuracy,
)

__all__ = [
    "CRITERIA",
    "WEIGHTS",
    "Bias",
    "ContextInstability",
    "Correlation",
    "CriteriaCorrelation",
    "Difference",
    "FirstPlaces",
    "Interval",
    "Intransigence",
    "MapAgreement",
    "Missing",
    "PairScores",
    "RankAgreement",
    "RankCorrelation",
    "RankMatrix",
    "RetrainingScores",
    "SamplingDistribution",
    "ShapcSummary",
    "StabilityCurve",
    "Trend",
    "VarianceRatio",
    "accuracy",
    "anchor_values",
    "attribution_bias",
    "attribution_biases",
    "average_accuracy",
    "average_forgetting",
    "backward_transfer",
    "chosen_players",
    "cl_score",
    "cl_stability",
    "computational_efficiency",
    "context_instability",
    "correlation",
    "criteria_correlation",
    "first_places",
    "forward_transfer",
    "holm",
    "instability",
    "interval",
    "intransigence",
    "lifelong",
    "map_agreement",
    "mege",
    "mege_distance",
    "min_accuracy",
    "model_size_efficiency",
    "pair_scores",
    "paired_difference",
    "positive_backward_transfer",
    "rank_agreement",
    "rank_correlation",
    "rank_matrix",
    "reason",
    "reco",
    "remembering",
    "retraining_scores",
    "sample_storage_efficiency",
    "sampling_distribution",
    "shapc",
    "shapc_at_shares",
    "stability_curve",
    "summarise_shapc",
    "trend_test",
    "variance_ratio",
    "weight_vector",
    "windowed_forgetting",
    "windowed_plasticity",
    "worst_case_accuracy",
]
