"""Targets on engines: the same bytes with worker processes and with shards as in one process, and what is missing."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from perdure import learners, reproduce, tasks
from perdure.engine import Shard, ShardEngine, StatusFolder, UnitContext
from perdure.engine.local import LocalEngine
from perdure.engine.study import IncompleteStudyError
from perdure.learners import Training
from perdure.reproduce.bias import experiment_units
from perdure.reproduce.bias.example_set import select_example_set
from perdure.reproduce.bias.experiment import Experiment, Folders, Workspace, experiment_section_file
from perdure.reproduce.bias.experiments import human, table
from perdure.reproduce.bias.trained_models import train_or_load
from perdure.reproduce.change_detection import study as change_detection
from perdure.reproduce.change_detection.data_sets import DATA_SETS
from perdure.reproduce.clamp import split_mnist
from perdure.reproduce.learners import study, study_units
from perdure.reproduce.learners.run_rows import RowsTarget
from perdure.reproduce.learners.study import Study
from perdure.reproduce.learners.study_units import train_learner_study_units

SMALL = Study(
    name="small",
    title="Small digits",
    benchmark="split-digits",
    scenario="class",
    learners=("naive", "rehearsal"),
    per_class=12,
    network="small-conv",
    width=4,
    training=Training(epochs=1, batch_size=8, lr=0.05),
    trials=1,
    seeds=2,
)


def files(folder):
    """Return the bytes of all results; states of units are no results."""
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".perdure" not in path.parts
    }


def shards(count, folder):
    """Return the engines of all shards."""
    return [ShardEngine(LocalEngine(1, StatusFolder.of(folder)), Shard(index, count)) for index in range(count)]


def forbidden(*_arguments, **_options):
    pytest.fail("computed again")


def train_here(folder):
    """Train the small study without an engine; finished runs are skipped."""
    benchmark = study.load_learner_study_benchmark(SMALL, None)
    for seed in range(SMALL.seeds):
        for name in SMALL.learners:
            silent = lambda _: nullcontext(learners.Progress())  # noqa: E731
            study.train_study_learner(SMALL, name, seed, benchmark, folder, silent)


@pytest.fixture(scope="module")
def plain_study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    torch.set_num_threads(1)
    train_here(folder)
    return files(folder)


def test_a_study_with_two_workers_has_the_same_bytes(tmp_path, plain_study, monkeypatch):
    with LocalEngine(2, StatusFolder.of(tmp_path)) as engine:
        train_learner_study_units(SMALL, None, tmp_path, engine)
        assert files(tmp_path) == plain_study
        plans = StatusFolder.of(tmp_path).read_plans()
        assert [len(plan.units) for plan in plans] == [2, 4]
        assert all(plan.finished for plan in plans)
        monkeypatch.setattr(study_units, "train_run", forbidden)
        train_learner_study_units(SMALL, None, tmp_path, engine)


def test_a_study_in_shards_has_the_same_bytes_and_a_learner_stays_in_one_shard(tmp_path, plain_study, monkeypatch):
    for index, engine in enumerate(shards(2, tmp_path)):
        if index == 0:
            with engine, pytest.raises(IncompleteStudyError) as error:
                train_learner_study_units(SMALL, None, tmp_path, engine)
            assert {outcome.unit.group for outcome in error.value.result.elsewhere} == {"rehearsal"}
            assert len(error.value.result.elsewhere) == 3
            assert not (tmp_path / "small/rehearsal").exists()
        else:
            with engine:
                train_learner_study_units(SMALL, None, tmp_path, engine)
    assert files(tmp_path) == plain_study
    monkeypatch.setattr(learners.loop, "Loop", forbidden)
    train_here(tmp_path)


def test_runs_whose_search_failed_are_missing_and_the_other_learner_is_trained(tmp_path, monkeypatch):
    search = study.tuned_learner_study_run

    def failing(chosen, name, *arguments):
        if name == "naive":
            raise RuntimeError("no memory")
        return search(chosen, name, *arguments)

    monkeypatch.setattr(study_units, "tuned_learner_study_run", failing)
    engine = LocalEngine(1, StatusFolder.of(tmp_path), attempts=1)
    with engine, pytest.raises(IncompleteStudyError) as error:
        train_learner_study_units(SMALL, None, tmp_path, engine)
    failed = [outcome.unit.label for outcome in error.value.result.failed]
    assert failed == ["naive tuning", "naive seed 0", "naive seed 1"]
    assert (tmp_path / "small/rehearsal/features-1.json").exists()
    assert not (tmp_path / "small/naive/seed-0").exists()


@pytest.fixture
def small_target(monkeypatch):
    """A target with the small study, whose page counts the rows."""

    def write_page(finished, page, data_dir):
        page.write_text(f"{[len(entry.rows) for entry in finished]} runs\n")

    chosen = RowsTarget({"small": replace(SMALL, trials=0)}, ("small",), write_page, Path("page.md"))
    monkeypatch.setitem(reproduce.TARGETS, "five-questions", chosen)
    return ("reproduce", "five-questions", "--out", "out", "--page", "page.md", "--workers", 1)


def test_the_page_is_written_without_shards_only(perdure, tmp_path, small_target):
    text = perdure(*small_target, "--shard", "1/2").stderr
    assert "Shard 1/2 is done; 2 of 4 parts are left to other shards." in text
    assert "run the command without --shard to write the page" in text
    assert not (tmp_path / "page.md").exists()
    perdure(*small_target)
    assert (tmp_path / "page.md").read_text() == "[4] runs\n"


def test_a_failed_part_is_listed_and_no_page_is_written(perdure, tmp_path, monkeypatch, small_target):
    train = study.train_study_learner

    def failing(chosen, learner, *arguments):
        if learner == "naive":
            raise RuntimeError("no memory")
        train(chosen, learner, *arguments)

    monkeypatch.setattr(study_units, "train_study_learner", failing)
    text = perdure(*small_target, code=1).stderr
    assert "2 of 4 parts failed:" in text
    assert "naive seed 1: no memory (tried 3 times)" in text
    assert (tmp_path / "out/five-questions/small/rehearsal/features-1.json").exists()
    assert not (tmp_path / "page.md").exists()


def test_runs_on_split_mnist_as_units_have_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(split_mnist, "BENCHMARK", "split-digits")
    monkeypatch.setattr(split_mnist, "LOADING", {"scenario": "domain", "tasks": 5, "per_class": 10})
    monkeypatch.setattr(split_mnist, "METHODS", {name: split_mnist.METHODS[name] for name in ("L2", "NormalNN")})
    monkeypatch.setattr(split_mnist, "SEEDS", 1)
    for name in ("plain", "units"):
        if name == "units":
            with LocalEngine(1) as engine:
                split_mnist.run_split_mnist_units(None, tmp_path / name, engine)
            before = files(tmp_path / name)
            monkeypatch.setattr(learners.loop, "Loop", forbidden)
        result = split_mnist.train_split_mnist(None, tmp_path / name, lambda _: nullcontext(learners.Progress()))
        assert result.accuracies.shape == (2, 1, 5, 6)
    assert files(tmp_path / "plain") == files(tmp_path / "units") == before


def test_models_of_the_change_detection_benchmark_in_shards_have_the_same_bytes(tmp_path):
    digits = replace(DATA_SETS["digits"], per_class=20, test_examples=60, epochs=1, explained=40)
    digits = replace(digits, harmless_models=12, changed_models=1)
    change_detection.run_data_set(digits, None, tmp_path / "plain")
    first, second = shards(2, tmp_path / "shards")
    with first, pytest.raises(IncompleteStudyError) as error:
        change_detection.run_data_set(digits, None, tmp_path / "shards", engine=first)
    assert len(error.value.result.elsewhere) == 8
    with second:
        change_detection.run_data_set(digits, None, tmp_path / "shards", engine=second)
    assert files(tmp_path / "plain") == files(tmp_path / "shards")


def small_model(workspace):
    """Return a network trained on a few digits."""
    return train_or_load(workspace, "small-conv", tasks.load("split-digits", per_class=10), Training(epochs=1), width=4)


@pytest.mark.parametrize("kind", ["marginals", "exact"])
def test_shapley_values_of_examples_as_units_are_the_same(tmp_path, kind):
    values = {}
    for name, workers in (("plain", 0), ("units", 2 if kind == "exact" else 1)):
        with LocalEngine(workers) if workers else nullcontext() as engine:
            workspace = Folders(None, tmp_path / name, tmp_path).workspace(engine=engine)
            examples = select_example_set(workspace, small_model(workspace), 3, cells=2)
            exact = np.stack([entry.values for entry in examples.exact()]) if kind == "exact" else None
            values[name] = examples.marginals(6) if exact is None else exact
    assert np.array_equal(values["plain"], values["units"])
    assert files(tmp_path / "plain") == files(tmp_path / "units")


def test_the_shapley_values_of_the_bias_table_in_shards_give_the_same_result(tmp_path):
    small = table.Study("small", "Small, digits", small_model, 4, 20, methods=("grad", "gradient_x_input"))
    texts = {}
    for name, engines in (("plain", [None]), ("shards", shards(2, tmp_path / "shards"))):
        for number, engine in enumerate(engines):
            workspace = Workspace(None, tmp_path / name, tmp_path, lambda *_: None, engine)
            if engine is not None and number == 0:
                with pytest.raises(IncompleteStudyError):
                    table.run_table_studies(workspace, [small])
                assert not table.table_result_file(workspace.out, "small").exists()
            else:
                texts[name] = table.run_table_studies(workspace, [small])
    assert texts["plain"] == texts["shards"]
    assert files(tmp_path / "plain") == files(tmp_path / "shards")


@pytest.fixture
def experiments(monkeypatch):
    """Two experiments, and one that reads their results, which count how often they run."""
    runs = []

    def experiment(name):
        def run(workspace):
            runs.append(name)
            workspace.progress("working", 1, 2)
            return f"{name}: {sorted(path.name for path in (workspace.out / 'sections').glob('*.md'))}\n"

        return Experiment(name, name, "Figure", run)

    chosen = {name: experiment(name) for name in ("bias-a", "bias-b", human.EXPERIMENT.name)}
    monkeypatch.setattr(experiment_units, "EXPERIMENTS", chosen)
    monkeypatch.setattr(table, "STUDIES", ())
    return chosen, runs


def test_all_experiments_in_shards_are_run_once_and_those_that_read_results_last(tmp_path, experiments):
    chosen, runs = experiments
    folders = Folders(tmp_path / "data", tmp_path / "out", tmp_path)
    first, second = shards(2, tmp_path)
    with first, pytest.raises(IncompleteStudyError):
        experiment_units.run_experiment_units(folders, first)
    with second:
        experiment_units.run_experiment_units(folders, second)
    assert runs == ["bias-a", "bias-b", "bias-human"]
    text = experiment_section_file(folders.out, chosen["bias-human"]).read_text()
    assert text.endswith("\n\nbias-human: ['bias-a.md', 'bias-b.md']\n")
    assert text.startswith("Measured ")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "new.npz").write_bytes(b"data")  # sections of other data are out of date
    with LocalEngine(1) as engine:
        experiment_units.run_experiment_units(folders, engine)
        experiment_units.run_experiment_units(folders, engine)
    assert runs[3:] == ["bias-a", "bias-b", "bias-human", "bias-human"]


def test_a_section_of_other_code_is_computed_again(tmp_path, experiments):
    _, runs = experiments
    folders = Folders(None, tmp_path / "out", tmp_path)
    with LocalEngine(1) as engine:
        experiment_units.run_experiment_units(folders, engine)
        stamp = tmp_path / "out/sections/bias-a.json"
        stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "code": "another"}))
        experiment_units.run_experiment_units(folders, engine)
    assert runs == ["bias-a", "bias-b", "bias-human", "bias-a", "bias-human"]


def test_a_network_whose_data_are_missing_does_not_stop_the_others(tmp_path):
    folders = Folders(tmp_path, tmp_path / "out", tmp_path)
    experiment_units.train_network(UnitContext(), "alexnet", folders)
    assert not (tmp_path / "out" / "networks").exists()
