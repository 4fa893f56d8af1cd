"""Audits: a run becomes numbers with intervals and reasons."""

from importlib import import_module
from typing import TYPE_CHECKING

from perdure.audits.audit import add_shapc_to_audit, add_trust_to_audit, audit, audit_provenance
from perdure.audits.clamp import FittedCurves, LatentProperties, clamp_properties, fit_clamp
from perdure.audits.imported import ImportOptions
from perdure.audits.lifelong import LifelongMetrics, lifelong_metrics
from perdure.audits.performance import audit_measures, audit_runs
from perdure.audits.results import (
    FILE,
    MEASURES,
    AccuracyDifference,
    Audit,
    LearnerAudit,
    Measure,
    RunProvenance,
    TrustFindings,
    read_findings,
    save_findings,
)
from perdure.audits.retraining.summaries import CheckpointSummary, ExplainerScores, RetrainingSummary
from perdure.audits.shapc.example_views import ExampleView, example_views
from perdure.audits.shapc.results import LearnerDifference, ShapcResult
from perdure.audits.shapc.scores import shapc_result_differences
from perdure.audits.shapc.values import ShapcSettings
from perdure.metrics import CRITERIA, METRICS, WEIGHTS, Interval

if TYPE_CHECKING:
    from perdure.audits.bias.measure import BiasSettings, measure_bias
    from perdure.audits.bias.record_bias import network_bias, record_bias
    from perdure.audits.retraining.checkpoints import across_checkpoints
    from perdure.audits.retraining.maps import MapSettings
    from perdure.audits.retraining.retrain import retrain
    from perdure.audits.shapc.runner import audit_shapc

_NEED_TORCH = {
    "BiasSettings": "bias.measure",
    "MapSettings": "retraining.maps",
    "across_checkpoints": "retraining.checkpoints",
    "audit_shapc": "shapc.runner",
    "measure_bias": "bias.measure",
    "network_bias": "bias.record_bias",
    "record_bias": "bias.record_bias",
    "retrain": "retraining.retrain",
}

__all__ = [
    "CRITERIA",
    "FILE",
    "MEASURES",
    "METRICS",
    "WEIGHTS",
    "AccuracyDifference",
    "Audit",
    "BiasSettings",
    "CheckpointSummary",
    "ExampleView",
    "ExplainerScores",
    "FittedCurves",
    "ImportOptions",
    "Interval",
    "LatentProperties",
    "LearnerAudit",
    "LearnerDifference",
    "LifelongMetrics",
    "MapSettings",
    "Measure",
    "RetrainingSummary",
    "RunProvenance",
    "ShapcResult",
    "ShapcSettings",
    "TrustFindings",
    "across_checkpoints",
    "add_shapc_to_audit",
    "add_trust_to_audit",
    "audit",
    "audit_measures",
    "audit_provenance",
    "audit_runs",
    "audit_shapc",
    "clamp_properties",
    "example_views",
    "fit_clamp",
    "lifelong_metrics",
    "measure_bias",
    "network_bias",
    "read_findings",
    "record_bias",
    "retrain",
    "save_findings",
    "shapc_result_differences",
]


def __getattr__(name: str) -> object:
    if name in _NEED_TORCH:
        return getattr(import_module(f"perdure.audits.{_NEED_TORCH[name]}"), name)
    raise AttributeError(f"module 'perdure.audits' has no attribute {name!r}")
