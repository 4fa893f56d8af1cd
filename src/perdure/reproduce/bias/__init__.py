"""The experiments of the attribution-bias paper and the code that they share."""

from perdure.reproduce.bias.experiment import Experiment, Workspace, run_experiment, write_page
from perdure.reproduce.bias.experiments import (
    agreement,
    boxes,
    deepshap,
    gaussian,
    human,
    instability,
    irrelevant_region,
    masking,
    perspectives,
    planted_pattern,
    removal,
    table,
    variance,
)

_ALL = (
    table.EXPERIMENT,
    instability.EXPERIMENT,
    variance.EXPERIMENT,
    agreement.EXPERIMENT,
    deepshap.EXPERIMENT,
    masking.EXPERIMENT,
    irrelevant_region.EXPERIMENT,
    planted_pattern.EXPERIMENT,
    gaussian.EXPERIMENT,
    perspectives.EXPERIMENT,
    removal.EXPERIMENT,
    boxes.EXPERIMENT,
    human.EXPERIMENT,
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}

__all__ = ["EXPERIMENTS", "Experiment", "Workspace", "run_experiment", "write_page"]
