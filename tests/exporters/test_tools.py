"""Exporters for other tools, read back with the real tools: l2metrics, TensorBoard, MLflow."""

import warnings
from pathlib import Path

import numpy as np
import pytest

import perdure
from perdure import InputError, Recorder
from perdure.audits import audit_runs
from perdure.exporters import export
from perdure.importers.l2logger import read_l2logger
from perdure.metrics import lifelong
from tests.helpers.frameworks import require
from tests.helpers.pages import HOSTILE, synthetic_runs

TASKS = ("digits", "3", "three_x", "digits")
RNG = np.random.default_rng(0)
TABLES = {(learner, seed): RNG.uniform(0.2, 0.9, (5, 4)) for learner in ("naive", HOSTILE) for seed in (0, 1)}
LABELS = ["digits", "task 2", "three_x", "digits-4"]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Two learners with two seeds each, evaluated before training and within the second step, and a joint reference."""
    folder = tmp_path_factory.mktemp("records")
    for index, ((learner, seed), table) in enumerate(TABLES.items()):
        settings = {"lr": 0.1, "x+y": "z"}
        recorder = Recorder(folder / str(index), TASKS, learner=learner, benchmark="toy", seed=seed, settings=settings)
        recorder.before_training(table[0].tolist())
        for step, row in enumerate(table[1:]):
            within = [(2, [0.3, 0.4, 0.5, 0.6])] if step == 1 else []
            recorder.after_task({}, row.tolist(), evaluations=within)
    joint = Recorder(folder / "joint", TASKS, curriculum=[0], trains_all=True, learner="joint", benchmark="toy", seed=0)
    joint.after_task({}, [0.9] * 4)
    return folder


@pytest.fixture(scope="module")
def audit(records):
    return perdure.audit(records)


@pytest.fixture(autouse=True)
def _no_telemetry(monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def exported_names(audit, name, out):
    return [Path(path).name for path in export(audit, name, out)]


def test_l2logger_folders_are_read_back_with_equal_values(audit, tmp_path):
    names = exported_names(audit, "l2logger", tmp_path)
    assert len(names) == 4  # the reference learns all tasks at once
    assert {"naive-seed-0", "naive-seed-1"} <= set(names)
    (curves,) = read_l2logger(tmp_path / "naive-seed-1")
    labels = [label.replace("_", "-") for label in LABELS]  # an underscore marks a variant in l2metrics
    order = [curves.tasks.index(label) for label in labels]
    np.testing.assert_array_equal(curves.values[0][order].T, TABLES["naive", 1])
    assert [curves.tasks[task] for task in curves.curriculum] == labels


def test_l2metrics_computes_equal_values(audit, tmp_path, monkeypatch):
    require("l2metrics", "l2logger", "pandas", "seaborn")
    monkeypatch.setattr(np, "NaN", np.nan, raising=False)  # l2metrics 3.1.0 was written for numpy 1
    monkeypatch.setenv("L2DATA", str(tmp_path / "l2data"))
    from l2logger.util import read_log_data
    from l2metrics.report import MetricsReport

    export(audit, "l2logger", tmp_path)
    folder = tmp_path / "naive-seed-0"
    table = TABLES["naive", 0]
    log = read_log_data(folder)
    tested = log[log.block_type == "test"].sort_values("exp_num")
    np.testing.assert_array_equal(tested.performance.to_numpy().reshape(5, 4), table)
    second = log[(log.block_type == "train") & (log.task_name == "task 2")].sort_values("exp_num")
    assert second.performance.tolist() == [0.4, table[2, 1]]  # the evaluation within the step, then after it
    options = {"normalization_method": "none", "smoothing_method": "none", "perf_measure": "performance"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = MetricsReport(log_dir=folder, maintenance_method="mrlep", transfer_method="both", **options)
        report.calculate()
    theirs = report.ll_metrics_df.iloc[0]
    run = lifelong.run_from_table(table, range(4))
    ours = {
        "avg_eval_perf": lifelong.mean_performance(run, "test").mean,
        "perf_maintenance_mrlep": lifelong.performance_maintenance(run).mean,
        "forward_transfer_ratio": lifelong.forward_transfer(run).mean,
        "backward_transfer_ratio": lifelong.backward_transfer(run).mean,
        "forward_transfer_contrast": lifelong.forward_transfer(run, "contrast").mean,
        "backward_transfer_contrast": lifelong.backward_transfer(run, "contrast").mean,
    }
    for name, value in ours.items():
        assert float(theirs[name]) == pytest.approx(value, abs=1e-12), name


def test_l2logger_needs_the_records_of_several_runs(tmp_path):
    with pytest.raises(InputError, match="needs the accuracies of each run"):
        export(audit_runs(synthetic_runs(("naive",), seeds=2)), "l2logger", tmp_path)
    assert exported_names(audit_runs(synthetic_runs(("naive",), seeds=1)), "l2logger", tmp_path) == ["naive-seed-0"]


def test_tensorboard_reads_accuracies_and_metrics(audit, tmp_path):
    require("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util import tensor_util

    files = {Path(path).parent.name: path for path in export(audit, "tensorboard", tmp_path)}
    assert len(files) == 5
    table = TABLES["naive", 1]
    scalars: dict[str, dict[int, float]] = {}
    for event in EventFileLoader(files["naive-seed-1"]).Load():
        for value in event.summary.value:
            number = tensor_util.make_ndarray(value.tensor).item()
            scalars.setdefault(value.tag, {})[event.step] = number
    for task, label in enumerate(LABELS):
        values = scalars[f"accuracy/{label}"]
        assert list(values) == [0, 1, 2, 3, 4]
        np.testing.assert_allclose(
            list(values.values()), table[:, task], rtol=1e-6
        )  # TensorBoard stores single precision
    (entry,) = [entry for entry in audit.learners if entry.learner == "naive"]
    assert scalars["metrics/forgetting"][4] == pytest.approx(entry.run_values["forgetting"][1], rel=1e-6)
    assert not any(np.isnan(value) for values in scalars.values() for value in values.values())


def test_mlflow_holds_settings_metrics_and_curves_once(audit, records, tmp_path):
    require("mlflow")
    from mlflow.tracking import MlflowClient

    store = tmp_path / "folder" / "mlflow.db"
    written = export(audit, "mlflow", store)
    client = MlflowClient(f"sqlite:///{store}")
    experiment = client.get_experiment_by_name("toy")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert len(runs) == 5
    run = runs["naive-seed-1"]
    assert run.info.status == "FINISHED"
    assert run.data.params == {"learner": "naive", "seed": "1", "lr": "0.1", "x_plusy": "z"}
    (entry,) = [entry for entry in audit.learners if entry.learner == "naive"]
    assert run.data.metrics["forgetting"] == entry.run_values["forgetting"][1]
    assert run.data.metrics["BWT_plus"] == entry.run_values["BWT+"][1]
    history = client.get_metric_history(run.info.run_id, "accuracy/three_x")
    assert {point.step: point.value for point in history} == dict(enumerate(TABLES["naive", 1][:, 2].tolist()))
    assert run.data.tags["perdure.source"] == str(records / "1")

    assert export(audit, "mlflow", f"sqlite:///{store}") == written  # nothing has changed: the same runs
    unfinished = client.create_run(experiment.experiment_id, tags={"perdure.run": "naive-seed-1"})  # a killed export
    again = export(audit, "mlflow", store)
    ids = {run.info.run_id for run in client.search_runs([experiment.experiment_id])}
    assert len(ids) == 5
    assert unfinished.info.run_id not in ids
    assert {text.split()[-1] for text in again} == ids


def test_an_address_that_mlflow_refuses_is_an_input_error(audit):
    require("mlflow")
    with pytest.raises(InputError, match="nonsense://x"):
        export(audit, "mlflow", "nonsense://x")
