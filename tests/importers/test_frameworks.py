"""Files as the frameworks write them give the matrices that were logged.

The files in tests/data/frameworks were written by the frameworks' own loggers (CSVLogger of avalanche, Logger of mammoth,
the disk logger of FACIL, JSONLogger of ocl_survey, DataLogger of l2logger, EventFileWriter of TensorBoard, pandas); the
values are ours.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import perdure
from perdure.base.errors import InputError
from perdure.importers import IMPORTERS, ImportedRun, importer, read
from perdure.importers.reading import detect
from perdure.importers.source import Source

DATA = Path(__file__).parents[1] / "data" / "frameworks"
R = {
    ("ewc", 0): np.array([[0.95, 0.10, 0.05], [0.60, 0.90, 0.10], [0.45, 0.70, 0.85]]),
    ("ewc", 1): np.array([[0.93, 0.12, 0.06], [0.58, 0.91, 0.09], [0.47, 0.72, 0.84]]),
    ("naive", 0): np.array([[0.96, 0.11, 0.04], [0.30, 0.92, 0.08], [0.10, 0.35, 0.90]]),
    ("naive", 1): np.array([[0.94, 0.09, 0.05], [0.28, 0.93, 0.11], [0.12, 0.33, 0.91]]),
}
EWC = R["ewc", 0]
INITIAL = np.array([0.08, 0.12, 0.10])


def lower(table: np.ndarray) -> np.ndarray:
    return np.where(np.tril(np.ones_like(table)) > 0, table, np.nan)


def by_name(runs: tuple[ImportedRun, ...]) -> dict[tuple[str, int | None], ImportedRun]:
    named = {(run.learner, run.seed): run for run in runs}
    assert len(named) == len(runs)
    return named


def check(run: ImportedRun, table: np.ndarray, atol: float = 1e-12) -> None:
    np.testing.assert_allclose(run.table, table, rtol=0, atol=atol)
    assert run.curriculum == (0, 1, 2)


@pytest.mark.parametrize(
    ("path", "reader"),
    [
        ("avalanche/ewc_seed0/csvlogs/eval_results.csv", "avalanche-csv"),
        ("avalanche_metrics/ewc_seed0.json", "avalanche-metrics"),
        ("mammoth/eval_epochs.pyd", "mammoth"),
        ("pycil/logs/ewc/cifar100/0/10/reproduce_0_resnet32.log", "pycil"),
        ("pycil/printed_matrix.txt", "pycil"),
        ("facil/cifar100_ewc_0", "facil"),
        ("facil/cifar100_ewc_0/results/acc_tag-2024-05-01-10-30.txt", "facil"),
        ("facil/stdout.txt", "facil"),
        ("ocl_survey/ewc_split_cifar100_3_2000/0/logs_continual.json", "ocl-survey"),
        ("capymoa/er_seed0.json", "capymoa"),
        ("capymoa/er_seed1.npz", "capymoa"),
        ("l2logger/lifelong-1600697775-609517", "l2logger"),
        ("lm_evaluation_harness/lora/out__base/results_2024-05-01T10-30-00.000000.json", "lm-evaluation-harness"),
        ("peft/lora--llama-3.2-3B-rank32.json", "peft"),
        ("wandb/ewc_seed0.csv", "wandb"),
        ("wandb/wandb_export.csv", "wandb"),
        ("tensorboard/ewc_seed0/events.out.tfevents.1714550000.host.1.0", "tensorboard"),
        ("tensorboard/run-ewc_seed0-tag-acc_task_0.csv", "tensorboard-csv"),
        ("tables/ewc_0.csv", "table"),
        ("tables/matrix.npy", "table"),
    ],
)
def test_the_format_is_detected_from_the_content(path, reader, tmp_path):
    found = detect(Source(DATA / path))
    assert found is not None
    assert found.name == reader
    if (DATA / path).is_file() and reader not in ("facil", "table"):
        renamed = tmp_path / "anything.bin"
        renamed.write_bytes((DATA / path).read_bytes())
        found = detect(Source(renamed))
        assert found is not None, "the name of the file must not matter"
        assert found.name == reader


def test_avalanche_csv():
    runs = by_name(read(DATA / "avalanche").runs)
    assert runs.keys() == R.keys()
    for (learner, seed), run in runs.items():
        check(run, R[learner, seed or 0])
        assert run.initial is not None
        np.testing.assert_array_equal(run.initial, INITIAL)
    losses = by_name(read(DATA / "avalanche", losses=True).runs)
    check(losses["ewc", 0], 2 * (1 - EWC), atol=1e-4)
    assert losses["ewc", 0].measure == "loss"


def test_avalanche_csv_without_monitored_accuracy_names_the_missing_metric(tmp_path):
    file = tmp_path / "eval_results.csv"
    file.write_text("eval_exp,training_exp,eval_accuracy,eval_loss,forgetting\n0,0,0,0.3,0\n0,1,0,0.4,0\n1,1,0,0.2,0\n")
    with pytest.raises(InputError, match=r"not monitored\. Add accuracy_metrics\(experience=True\)"):
        read(file)
    assert read(file, losses=True).runs[0].table.tolist()[1] == [0.4, 0.2]


def test_avalanche_csv_repeated_evaluations_and_revisited_experiences(tmp_path):
    file = tmp_path / "eval_results.csv"
    rows = ["0,0,0.5,1,0", "1,0,0.2,1,0", "0,0,0.9,1,0", "1,0,0.1,1,0"]
    rows += ["0,1,0.4,1,0", "1,1,0.8,1,0", "0,0,0.7,1,0", "1,0,0.3,1,0"]
    file.write_text("\n".join(["eval_exp,training_exp,eval_accuracy,eval_loss,forgetting", *rows]))
    (run,) = read(file).runs
    assert run.curriculum == (0, 1, 0)
    assert run.table.tolist() == [[0.9, 0.1], [0.4, 0.8], [0.7, 0.3]]
    assert "2 experiences were evaluated again after the same training; the last value is used" in run.notes


def test_avalanche_metrics_with_duplicate_iterations():
    (run,) = read(DATA / "avalanche_metrics" / "ewc_seed0.json").runs
    check(run, EWC)
    assert run.initial is not None
    np.testing.assert_array_equal(run.initial, INITIAL)
    assert (run.learner, run.seed) == ("ewc", 0)
    assert run.reported == {"StreamForgetting": pytest.approx(0.35)}
    assert any("9 values have the same iteration" in note for note in run.notes)
    (losses,) = read(DATA / "avalanche_metrics" / "ewc_seed0.json", losses=True).runs
    check(losses, 2 * (1 - EWC), atol=1e-4)


def test_avalanche_metrics_with_evaluations_within_experiences(tmp_path):
    name = "Top1_Acc_Exp/eval_phase/test_stream/Task{0:03}/Exp{0:03}"  # task-incremental: the label differs, too
    within = {10: (0.4, 0.1), 20: (0.9, 0.1), 30: (0.3, 0.5), 40: (0.5, 0.8)}
    series = {name.format(task): (list(within), [row[task] for row in within.values()]) for task in (0, 1)}
    file = tmp_path / "run.json"
    file.write_text(json.dumps(series))
    (run,) = read(file).runs
    assert run.table.tolist() == [[0.9, 0.1], [0.5, 0.8]]
    assert [(entry.step, entry.batches, entry.values.tolist()) for entry in run.evaluations] == [
        (0, 10, [0.4, 0.1]),
        (1, 10, [0.3, 0.5]),
    ]
    assert any(note.startswith("2 evaluations per task") for note in run.notes)
    evaluations = run.measurements.evaluations
    assert evaluations is not None
    assert evaluations.trained == (0, 0, 1, 1)
    del series[name.format(1)]
    series[name.format(0)][0].append(50)
    file.write_text(json.dumps(series))
    with pytest.raises(InputError, match="expected as many values as iterations, got 4 and 5"):
        read(file)


def test_mammoth():
    learners = {"ewc_on": "ewc", "sgd": "naive"}
    runs = read(DATA / "mammoth" / "class-il").runs
    for run in runs:
        check(run, lower(R[learners[run.learner], run.seed or 0]))
        assert (run.scenario, run.benchmark) == ("class", "seq-mnist")
        assert run.settings["lr"] == 0.03
        assert not {"device", "seed", "conf_jobnum", "accuracy_1_task1"} & set(run.settings)
    assert [(run.learner, run.seed) for run in runs] == [("ewc_on", 0), ("ewc_on", 1), ("sgd", 0), ("sgd", 1)]
    assert runs[0].reported == {"backward_transfer": -35.0, "forgetting": 35.0}
    (task_incremental, *_) = read(DATA / "mammoth" / "task-il").runs
    assert task_incremental.scenario == "task"
    check(task_incremental, lower(np.minimum(1, EWC + 0.04)))


def test_mammoth_with_evaluations_within_tasks_and_of_future_tasks():
    (epochs,) = read(DATA / "mammoth" / "eval_epochs.pyd").runs
    check(epochs, lower(EWC))
    assert [(entry.step, entry.batches) for entry in epochs.evaluations] == [
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
    ]
    np.testing.assert_allclose(epochs.evaluations[2].values, [0.4, 0.7, np.nan], atol=1e-12)
    (future,) = read(DATA / "mammoth" / "eval_future.pyd").runs
    check(future, EWC)


def mammoth_line(rows: list[list[float]], **more: object) -> str:
    entry: dict[str, object] = {"model": "er", "dataset": "d", "seed": 1, **more}
    entry |= {f"accuracy_{j + 1}_task{i + 1}": value for i, row in enumerate(rows) for j, value in enumerate(row)}
    return str(entry)


def test_mammoth_final_evaluation_on_the_test_set_is_left_out(tmp_path):
    file = tmp_path / "logs.pyd"
    file.write_text(mammoth_line([[90.0], [50.0, 80.0], [48.0, 79.0]]))
    (run,) = read(file).runs
    assert run.table[-1].tolist() == [0.5, 0.8]
    assert any("final evaluation on the test set" in note for note in run.notes)
    file.write_text(mammoth_line([[90.0], [10.0], [50.0, 80.0], [48.0, 79.0]], eval_future=True))
    (run,) = read(file).runs
    assert run.table.tolist() == [[0.9, 0.1], [0.5, 0.8]]


def test_mammoth_runs_with_different_settings_are_different_learners(tmp_path):
    file = tmp_path / "logs.pyd"
    rows = [[90.0], [50.0, 80.0]]
    file.write_text("\n".join(mammoth_line(rows, lr=lr, seed=seed) for lr in (0.1, 0.03) for seed in (0, 1)))
    assert [(run.learner, run.seed) for run in read(file).runs] == [
        ("er lr=0.1", 0),
        ("er lr=0.1", 1),
        ("er lr=0.03", 0),
        ("er lr=0.03", 1),
    ]


def test_mammoth_logs_without_accuracies_of_tasks_say_what_to_import_instead(tmp_path):
    file = tmp_path / "logs.pyd"
    file.write_text(str({"model": "er", "accmean_task1": 90.0, "accmean_task2": 80.0}))
    with pytest.raises(InputError, match=r"found 2 mean accuracies .* --metric 'RESULT_domain_acc_\{task\}'"):
        read(file)


def test_pycil_and_pilot():
    runs = by_name(read(DATA / "pycil" / "logs").runs)
    learners = {"ewc": "ewc", "finetune": "naive"}
    for (learner, seed), run in runs.items():
        if learner in learners:
            check(run, lower(R[learners[learner], seed or 0]))
    assert runs["ewc", 0].tasks == ("classes 00-09", "classes 10-19", "classes 20-29")
    assert runs["ewc", 0].reported == {"Average Accuracy": pytest.approx(78.89), "Forgetting": 35.0}
    assert runs["ewc", 0].scenario == "class"
    check(runs["icarl (nearest class mean)", 0], lower(EWC + 0.02))
    (printed,) = read(DATA / "pycil" / "printed_matrix.txt").runs
    check(printed, lower(EWC))


def test_pycil_with_a_larger_first_task_and_more_than_100_classes(tmp_path):
    rows = [
        {"total": 1, "00-09": 90.0, "10-19": 80.0, "old": 0, "new": 1},
        {"total": 1, "00-09": 50.0, "10-19": 70.0, "100-109": 60.0, "old": 0, "new": 1},
        {"total": 1, "00-09": 40.0, "10-19": 50.0, "100-109": 30.0, "20-29": 88.0, "old": 0, "new": 1},
    ]
    file = tmp_path / "reproduce_1993_resnet32.log"
    file.write_text("".join(f"2024-05-01 10:30:00,123 [trainer.py] => CNN: {row}\n" for row in rows))
    (run,) = read(file).runs
    np.testing.assert_allclose(run.table[:, 0], [0.85, 0.60, 0.45])
    assert run.tasks == ("classes 00-19", "classes 100-109", "classes 20-29")
    assert run.table[2, 1] == 0.3
    assert run.seed == 1993
    file.write_text("2024-05-01 10:30:00,123 [trainer.py] => CNN top1 curve: [90.0, 80.0]\n")
    with pytest.raises(InputError, match="only the curve of the total accuracy"):
        read(file)


def test_facil():
    learners = {"ewc": "ewc", "finetuning": "naive"}
    runs = [run for run in read(DATA / "facil").runs if run.seed is not None]
    assert len(runs) == 8
    for run in runs:
        table = R[learners[run.learner], run.seed or 0]
        check(run, lower(table if run.scenario == "class" else np.minimum(1, table + 0.04)), atol=1e-6)
        assert run.benchmark == "cifar100"
        assert run.settings["network"] == "resnet32"
    aware, agnostic = read(DATA / "facil" / "stdout.txt").runs
    check(agnostic, lower(EWC), atol=1e-12)
    assert (aware.scenario, agnostic.scenario) == ("task", "class")


def test_facil_experiments_that_stopped_early(tmp_path):
    file = tmp_path / "acc_tag-2024-05-01-10-30.txt"
    file.write_text("0.900000\t0.000000\t0.000000\n0.500000\t0.800000\t0.000000\n0.000000\t0.000000\t0.000000\n")
    (run,) = read(file).runs
    np.testing.assert_array_equal(run.table, [[0.9, np.nan], [0.5, 0.8]])
    assert any("stopped after 2 of 3 tasks" in note for note in run.notes)


def test_ocl_survey():
    runs = read(DATA / "ocl_survey").runs
    tests = by_name(tuple(run for run in runs if run.benchmark == "test stream"))
    for (learner, seed), run in tests.items():
        check(run, lower(R[learner.partition("_")[0], seed or 0]))
        assert not run.evaluations
    (valid, *_) = [run for run in runs if run.benchmark == "valid stream"]
    check(valid, lower(EWC))  # the lines are not in the order of time
    assert [(entry.step, entry.batches) for entry in valid.evaluations] == [
        (step, n) for step in range(3) for n in (20, 40)
    ]
    np.testing.assert_allclose(valid.evaluations[4].values, [0.28, 0.53, 0.73], atol=1e-12)


def test_capymoa():
    runs = by_name(read(DATA / "capymoa").runs)
    for seed in (0, 1):
        run = runs["er", seed]
        check(run, R["ewc", seed])
        assert len(run.evaluations) == 6
    evaluations = runs["er", 0].measurements.evaluations
    assert evaluations is not None
    assert evaluations.values.shape == (9, 3)
    np.testing.assert_array_equal(evaluations.values[2::3], EWC)


def test_capymoa_anytime_rows_must_end_with_the_matrix(tmp_path):
    file = tmp_path / "er.json"
    value = {"accuracy_matrix": [[0.9, 0.1], [0.5, 0.8]], "anytime_accuracy_matrix": [[0.1, 0.1]] * 4}
    file.write_text(json.dumps(value))
    with pytest.raises(InputError, match="expected the rows of accuracy_matrix at the end of each task"):
        read(file)


def test_l2logger_and_its_single_task_experts():
    (run,) = read(DATA / "l2logger").runs
    check(run, 100 * EWC)
    assert run.initial is not None
    np.testing.assert_allclose(run.initial, 100 * INITIAL)
    assert (run.learner, run.seed, run.measure) == ("lifelong", None, "performance")
    assert run.tasks == ("task1", "task2", "task3")
    assert [block.kind for block in run.blocks] == ["test"] * 3 + (["train"] + ["test"] * 3) * 3
    assert run.blocks[3].performance[[0, -1]].tolist() == [20.0, 95.0]
    assert {task: len(curves) for task, curves in run.experts.items()} == {"task1": 1, "task2": 1, "task3": 1}
    (alone,) = read(DATA / "l2logger" / "lifelong-1600697775-609517").runs
    assert not alone.experts
    assert alone.missing[0] == "single-task experts of task1, task2, task3"
    with pytest.raises(InputError, match="got only single-task runs"):
        read(DATA / "l2logger" / "expert-task1-1600697775-609517")


def test_lm_evaluation_harness():
    (run,) = read(DATA / "lm_evaluation_harness" / "lora").runs
    check(run, EWC)
    assert run.initial is not None
    np.testing.assert_array_equal(run.initial, INITIAL)
    assert run.tasks == ("boolq", "rte", "winogrande")
    assert run.test_examples == (500, 500, 500)
    assert run.learner == "lora"
    (losses,) = read(DATA / "lm_evaluation_harness" / "perplexity", losses=True).runs
    check(losses, 30 * (1 - EWC) + 5, atol=1e-4)
    assert losses.measure == "loss"
    with pytest.raises(InputError, match=r"no task has an accuracy\. .*pass --losses for perplexities"):
        read(DATA / "lm_evaluation_harness" / "perplexity")


def lm_results(folder: Path, name: str, values: dict[str, float], date: float) -> None:
    folder.mkdir(parents=True)
    results = {task: {"alias": task, "acc,none": value, "acc_norm,none": value / 2} for task, value in values.items()}
    value = {"results": results, "n-shot": {}, "model_name": name, "date": date, "group_subtasks": {"mmlu": ["law"]}}
    (folder / "results_x.json").write_text(json.dumps(value))


def test_lm_evaluation_harness_needs_the_trained_task_of_each_checkpoint(tmp_path):
    for number, row in ((1000, (0.5, 0.8)), (500, (0.9, 0.1))):
        lm_results(
            tmp_path / f"checkpoint-{number}", f"checkpoint-{number}", {"a": row[0], "mmlu": row[1], "law": 0.3}, 0
        )
    with pytest.raises(InputError, match=r"do not state which task was trained .* --curriculum a,mmlu"):
        read(tmp_path)
    (run,) = read(tmp_path, curriculum=["a", "mmlu"]).runs
    assert run.table.tolist() == [[0.9, 0.1], [0.5, 0.8]]  # 500 comes before 1000, and law is part of mmlu
    assert run.tasks == ("a", "mmlu")
    (normalized,) = read(tmp_path, curriculum=["1", "2"], metric="acc_norm").runs
    assert normalized.table.tolist() == [[0.45, 0.05], [0.25, 0.4]]
    with pytest.raises(InputError, match="unknown task 'b' in --curriculum; the files hold a, mmlu"):
        read(tmp_path, curriculum=["a", "b"])


def test_peft():
    runs = {run.learner: run for run in read(DATA / "peft").runs}
    lora = runs["lora/llama-3.2-3B-rank32"]
    assert lora.table.tolist() == [[0.4784]]
    assert list(lora.reported.values()) == [0.04996]
    assert "loss on Wikipedia" in next(iter(lora.reported))
    assert (lora.seed, lora.benchmark, lora.tasks) == (0, "meta-llama/Llama-3.2-3B", ("metamath and gsm8k",))


def test_wandb():
    (history,) = read(DATA / "wandb" / "ewc_seed0.csv").runs
    check(history, EWC)
    assert "the trained task is logged as task" in history.notes
    (losses,) = read(DATA / "wandb" / "ewc_seed0.csv", losses=True).runs
    check(losses, 2 * (1 - EWC), atol=1e-4)
    export = by_name(read(DATA / "wandb" / "wandb_export.csv").runs)
    check(export["ewc", 0], EWC)
    check(export["naive", 0], R["naive", 0])


def test_wandb_metrics_with_named_tasks_and_ambiguous_metrics(tmp_path):
    file = tmp_path / "ewc.csv"
    file.write_text("_step,eval/cats/acc,eval/dogs/acc,loss\n0,90,10,1\n1,50,80,1\n")
    with pytest.raises(InputError, match=r"found no metrics .* --metric 'eval/\{task\}/acc'"):
        read(file)
    (run,) = read(file, metric="eval/{task}/acc", percent=True).runs
    assert run.table.tolist() == [[0.9, 0.1], [0.5, 0.8]]
    assert run.tasks == ("cats", "dogs")
    file.write_text(
        "_step,RESULT_class_acc_0,RESULT_class_acc_1,RESULT_task_acc_0,RESULT_task_acc_1\n0,.9,.1,1,1\n1,.5,.8,1,1\n"
    )
    with pytest.raises(InputError, match=r"several metrics could be meant: .* --metric 'RESULT_class_acc_\{task\}'"):
        read(file)


def test_wandb_values_that_were_logged_one_by_one(tmp_path):
    file = tmp_path / "ewc.csv"
    file.write_text("_step,acc_1,acc_2\n0,.9,\n1,.5,\n2,,.8\n")
    (run,) = read(file).runs
    np.testing.assert_array_equal(run.table, [[0.9, np.nan], [0.5, 0.8]])


def test_tensorboard():
    runs = by_name(read([DATA / "tensorboard" / name for name in ("ewc_seed0", "naive_seed0")]).runs)
    check(runs["ewc", 0], EWC, atol=1e-7)  # TensorBoard stores single precision
    check(runs["naive", 0], R["naive", 0], atol=1e-7)  # stored as a tensor, as TensorFlow 2 does
    (facil,) = read(DATA / "tensorboard" / "facil_run").runs
    check(facil, lower(EWC), atol=1e-6)
    (aware,) = read(DATA / "tensorboard" / "facil_run", metric="test_acc_taw").runs
    check(aware, lower(np.minimum(1, EWC + 0.04)), atol=1e-6)
    (table,) = read(sorted((DATA / "tensorboard").glob("run-*.csv"))).runs
    check(table, EWC)
    assert (table.learner, table.seed) == ("ewc", 0)


def test_a_damaged_event_file_is_refused_and_a_truncated_one_is_read_up_to_its_end(tmp_path):
    content = (DATA / "tensorboard/ewc_seed0/events.out.tfevents.1714550000.host.1.0").read_bytes()
    file = tmp_path / "events.out.tfevents.1"
    file.write_bytes(content[:-3])
    with pytest.raises(InputError, match=r"task 3 was not evaluated after step 3|other tasks are missing"):
        read(file)  # the last scalar is lost
    damaged = bytearray(content)
    damaged[content.index(b"Exp001") + 8] ^= 1
    file.write_bytes(bytes(damaged))
    with pytest.raises(InputError, match="the checksum of a record is wrong"):
        read(file)


def test_formats_without_losses_say_so():
    for path in (
        "mammoth/eval_epochs.pyd",
        "pycil/printed_matrix.txt",
        "facil/stdout.txt",
        "capymoa/er_seed0.json",
        "peft",
    ):
        with pytest.raises(InputError, match="Leave out --losses"):
            read(DATA / path, losses=True)


def test_a_file_of_an_unknown_format_names_the_supported_ones(tmp_path):
    file = tmp_path / "model.bin"
    file.write_bytes(b"\x00\x01\x02")
    with pytest.raises(InputError, match=r"unknown format; the file starts with 'binary data'. Supported: .*avalanche"):
        read(file)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="found no results here"):
        read(tmp_path / "empty")
    with pytest.raises(InputError, match="given twice"):
        read([DATA / "tables/ewc_0.csv", DATA / "tables/ewc_0.csv"])


def test_runs_check_their_shapes():
    (run,) = read(DATA / "tables" / "ewc_0.csv").runs
    with pytest.raises(InputError, match="expected one row for each of 2 steps, got 3"):
        replace(run, curriculum=(0, 1))
    with pytest.raises(InputError, match="expected 3 names of tasks, got 1"):
        replace(run, task_names=("a",))


def test_notes_and_settings_beside_tables_are_skipped_but_explained_if_given(tmp_path):
    (tmp_path / "ewc_0.csv").write_text("0.9,\n0.5,0.8\n")
    (tmp_path / "README.txt").write_text("These are the results of EWC.\n")
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    imported = read(tmp_path)
    assert [run.source.name for run in imported.runs] == ["ewc_0.csv"]
    assert sorted(path.name for path in imported.skipped) == ["README.txt", "config.json"]
    with pytest.raises(InputError, match="expected a matrix or an object with the key 'accuracy'"):
        read(tmp_path / "config.json")
    with pytest.raises(InputError, match=r"README\.txt"):
        read(tmp_path / "README.txt")


def test_records_are_audited_instead(tmp_path):
    perdure.Recorder(tmp_path / "runs" / "mine", tasks=1).after_task(accuracy=[0.5])
    for path in (tmp_path / "runs", tmp_path / "runs" / "mine"):
        with pytest.raises(InputError, match=r"a record of perdure.* Use perdure audit"):
            read(path)


def test_another_package_can_add_a_format(tmp_path, monkeypatch):
    monkeypatch.setattr(IMPORTERS, "_entries", IMPORTERS.entries())
    monkeypatch.setattr(IMPORTERS, "_summaries", IMPORTERS.summaries())

    @importer("mine", title="my format", detects=lambda source: source.first_line == "MINE")
    def read_mine(sources, options):
        return [
            ImportedRun("mine", (source.path,), np.array([[float(source.text.split()[1])]]), (0,), source.path)
            for source in sources
        ]

    (tmp_path / "ewc_3.txt").write_text("MINE\n0.75\n")
    (run,) = read(tmp_path).runs
    assert (run.format, run.learner, run.seed, run.table.tolist()) == ("mine", "ewc", 3, [[0.75]])
    assert IMPORTERS.group == "perdure.importers"
