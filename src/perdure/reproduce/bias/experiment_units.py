"""All experiments as units of an engine: first the networks that several of them use, then the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from perdure.base.errors import InputError
from perdure.engine import Engine, Unit, UnitContext, fixed_threads, run_units, unit_name
from perdure.engine.study import IncompleteStudyError, raise_incomplete
from perdure.reproduce.bias import EXPERIMENTS
from perdure.reproduce.bias.experiment import Experiment, Folders, has_current_section, run_experiment, section_key
from perdure.reproduce.bias.experiments import human, table

LAST = (human.EXPERIMENT.name,)
"""Experiments that read the results of others."""


def run_experiment_units(folders: Folders, engine: Engine) -> None:
    """Run all experiments without a current section with an engine.

    Raise `IncompleteStudyError` if units fail or belong to other shards.
    """
    first = [experiment for name, experiment in EXPERIMENTS.items() if name not in LAST]
    with fixed_threads(engine.threads):
        units = _experiment_units(first, folders, engine.threads)
        if not all(unit.finished for unit in units):
            run_units(engine, _network_units(folders, engine.threads))
            _fill_shapley_values(folders, engine)
        raise_incomplete(run_units(engine, units))
        for name in LAST:
            run_experiment(EXPERIMENTS[name], folders.workspace())


def _fill_shapley_values(folders: Folders, engine: Engine) -> None:
    """Compute the Shapley values of the table's networks; the experiments compute what is missing and say why it is."""
    for study in table.STUDIES:
        with suppress(InputError, IncompleteStudyError):
            table.fill_table_shapley_values(study, folders, engine)


def _network_units(folders: Folders, threads: int) -> list[Unit]:
    return [
        Unit(
            name=unit_name("bias-network", [study.name, str(folders.out), threads]),
            label=f"training {study.title}",
            function=train_network,
            arguments={"name": study.name, "folders": folders},
            cores=threads,
        )
        for study in table.STUDIES
    ]


def _experiment_units(experiments: Sequence[Experiment], folders: Folders, threads: int) -> list[Unit]:
    workspace = folders.workspace()
    key = section_key(workspace)
    return [
        Unit(
            name=unit_name("bias-experiment", {**key, "experiment": experiment.name}),
            label=experiment.name,
            function=run_named_experiment,
            arguments={"name": experiment.name, "folders": folders},
            cores=threads,
            finished=has_current_section(experiment, workspace),
        )
        for experiment in experiments
    ]


def train_network(context: UnitContext, name: str, folders: Folders) -> None:
    """Train a network of `table.STUDIES`, or find it finished; the experiments say which data are missing."""
    study = next(study for study in table.STUDIES if study.name == name)
    with suppress(InputError):
        study.model(folders.workspace(context))


def run_named_experiment(context: UnitContext, name: str, folders: Folders) -> None:
    """Run an experiment and store its section."""
    run_experiment(EXPERIMENTS[name], folders.workspace(context))
