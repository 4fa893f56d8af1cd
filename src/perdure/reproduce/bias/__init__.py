"""The experiments of the attribution-bias paper, one module each."""

from perdure.reproduce.bias import (
    agreement,
    instability,
    table,
    variance,
)
from perdure.reproduce.bias.experiment import Experiment, Place, run_experiment, write_page

_ALL = (
    table.EXPERIMENT,
    instability.EXPERIMENT,
    variance.EXPERIMENT,
    agreement.EXPERIMENT,
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}

__all__ = ["EXPERIMENTS", "Experiment", "Place", "run_experiment", "write_page"]
