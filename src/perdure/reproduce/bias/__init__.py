"""The experiments of the attribution-bias paper, one module each."""

from perdure.reproduce.bias import (
    boxes,
    human,
    perspectives,
    removal,
    table,
)
from perdure.reproduce.bias.experiment import Experiment, Place, run_experiment, write_page

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        table.EXPERIMENT,
        perspectives.EXPERIMENT,
        removal.EXPERIMENT,
        boxes.EXPERIMENT,
        human.EXPERIMENT,
    )
}

__all__ = ["EXPERIMENTS", "Experiment", "Place", "run_experiment", "write_page"]
