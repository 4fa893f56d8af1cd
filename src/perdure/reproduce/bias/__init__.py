"""The experiments of the attribution-bias paper, one module each."""

from perdure.reproduce.bias import (
    agreement,
    deepshap,
    gaussian,
    instability,
    irrelevant_region,
    masking,
    planted_pattern,
    variance,
)
from perdure.reproduce.bias.experiment import Experiment, Place, run_experiment, write_page

_ALL = (
    instability.EXPERIMENT,
    variance.EXPERIMENT,
    agreement.EXPERIMENT,
    masking.EXPERIMENT,
    irrelevant_region.EXPERIMENT,
    planted_pattern.EXPERIMENT,
    gaussian.EXPERIMENT,
    deepshap.EXPERIMENT,
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}

__all__ = ["EXPERIMENTS", "Experiment", "Place", "run_experiment", "write_page"]
