"""Tuning uses validation data only, runs the requested number of trials, and can be interrupted."""

import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from perdure import Record, learners, tasks
from perdure.base.errors import InputError
from perdure.learners.data import Preparation
from perdure.learners.training import Training
from perdure.learners.tuning import with_tuned_settings
from perdure.nets import features_of
from perdure.reproduce.learners.study import (
    Study,
    inactive_learner_features,
    learner_study_training,
    load_learner_study_benchmark,
    train_study_learner,
    write_learner_study_page,
)
from tests.helpers.crashes import Crash, contents, crash_at_write
from tests.helpers.small_data import CPU

DIGITS = tasks.load("split-digits", per_class=20, validation=0.25)


def run(learner="ewc", benchmark=DIGITS, **training) -> learners.Run:
    return learners.Run(
        benchmark, learners.get(learner), width=4, training=Training(**{"epochs": 2, "lr": 0.05, **training})
    )


def with_other_test_data(benchmark: tasks.Benchmark) -> tasks.Benchmark:
    """Return the benchmark with shuffled test labels, which changes any decision that depends on them."""
    rng = np.random.default_rng(0)
    shuffled = [
        replace(task, test=tasks.Examples(task.test.x, rng.permutation(task.test.y))) for task in benchmark.tasks
    ]
    return replace(benchmark, tasks=tuple(shuffled))


def test_the_first_trial_uses_the_defaults_and_the_best_trial_is_chosen(tmp_path):
    tuned = learners.tune(run(), 4, tmp_path / "t.json")
    saved = json.loads((tmp_path / "t.json").read_text())
    trials = saved["trials"]
    assert len(trials) == 4
    assert trials[0]["settings"] == {"lr": 0.05, "strength": 100.0}
    assert len({trial["settings"]["lr"] for trial in trials}) == 4
    best = max(trials, key=lambda trial: trial["validation_accuracy"])
    assert tuned.training.lr == best["settings"]["lr"]
    assert tuned.settings["strength"] == best["settings"]["strength"]
    assert tuned.tuning_trials == 4
    again = learners.execute(
        replace(
            tuned, benchmark=replace(DIGITS, tasks=tuple(replace(t, test=t.validation or t.test) for t in DIGITS.tasks))
        ),
        tmp_path / "again",
    )
    assert again.table[-1].mean() == best["validation_accuracy"]
    assert again.manifest.settings["tuning_trials"] == 4


def test_tuning_does_not_depend_on_test_data(tmp_path):
    learners.tune(run(), 3, tmp_path / "a.json")
    learners.tune(run(benchmark=with_other_test_data(DIGITS)), 3, tmp_path / "b.json")
    assert (tmp_path / "a.json").read_text() == (tmp_path / "b.json").read_text()


def test_tuning_resumes_after_finished_trials(tmp_path):
    learners.tune(run(), 2, tmp_path / "t.json")
    before = json.loads((tmp_path / "t.json").read_text())["trials"]
    reported: list[int] = []
    learners.tune(run(), 3, tmp_path / "t.json", on_trial=lambda number, _: reported.append(number))
    after = json.loads((tmp_path / "t.json").read_text())["trials"]
    assert after[:2] == before
    assert reported == [3]
    with pytest.raises(InputError, match="another search"):
        learners.tune(run("si"), 3, tmp_path / "t.json")


@pytest.mark.parametrize("number", [1, 3, 9, 16, 24, 31, 40, 47, 55, 61])
def test_tuning_after_a_crash_at_any_write_gives_the_same_trials(tmp_path, monkeypatch, number):
    small = tasks.load("split-digits", per_class=8, validation=0.25, tasks=2)
    job = run("ewc", small, epochs=1)
    expected = learners.tune(job, 3, tmp_path / "whole/t.json")
    with monkeypatch.context() as patch:
        crash_at_write(patch, number, after=number % 2 == 0)
        with pytest.raises(Crash):
            learners.tune(job, 3, tmp_path / "crashed/t.json")
    resumed = learners.tune(job, 3, tmp_path / "crashed/t.json")
    assert contents(tmp_path / "crashed") == contents(tmp_path / "whole")  # no temporary files either
    assert (resumed.training, resumed.settings) == (expected.training, expected.settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 3}, 'training was {"epochs": 2'),
        ({"batch_size": 7}, "training was"),
        ({"momentum": 0.5}, "training was"),
    ],
)
def test_trials_of_another_search_are_not_reused(tmp_path, change, message):
    learners.tune(run(), 1, tmp_path / "t.json")
    with pytest.raises(InputError, match=f"these trials belong to another search: {message}"):
        learners.tune(run(**change), 1, tmp_path / "t.json")
    with pytest.raises(InputError, match="another search: network was"):
        learners.tune(replace(run(), width=8), 1, tmp_path / "t.json")
    with pytest.raises(InputError, match="another search: data was"):
        learners.tune(run(benchmark=tasks.load("split-digits", per_class=24, validation=0.25)), 1, tmp_path / "t.json")


def test_changed_trials_are_reported(tmp_path):
    learners.tune(run(), 1, tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text()
    (tmp_path / "t.json").write_text(text.replace("0.05", "0.06"))
    with pytest.raises(InputError, match=r"t\.json: the file was changed or damaged"):
        learners.tune(run(), 2, tmp_path / "t.json")


def test_a_diverging_trial_has_accuracy_0(tmp_path):
    tuned = learners.tune(run("naive", lr=1e30), 2, tmp_path / "t.json")
    trials = json.loads((tmp_path / "t.json").read_text())["trials"]
    assert trials[0]["validation_accuracy"] == 0
    assert tuned.tuning_trials == 2


def test_tuning_requires_validation_data(tmp_path):
    with pytest.raises(InputError, match="tuning needs validation data"):
        learners.tune(run(benchmark=tasks.load("split-digits", per_class=8)), 2, tmp_path / "t.json")


def test_with_settings_separates_training_and_method_settings():
    changed = with_tuned_settings(run(), {"lr": 0.5, "strength": 3.0})
    assert changed.training.lr == 0.5
    assert changed.settings == {"strength": 3.0}


def test_user_settings_override_published_settings():
    cifar = replace(DIGITS, name="split-cifar10")
    resolved = learners.protocol_settings(cifar, learners.get("lwf"), {}, {})
    assert (resolved.training.lr, resolved.training.weight_decay, resolved.training.epochs) == (0.01, 5e-4, 50)
    assert resolved.settings == {"alpha": 3.0}
    resolved = learners.protocol_settings(cifar, learners.get("lwf"), {"lr": 0.2}, {"alpha": "9"})
    assert resolved.training.lr == 0.2
    assert resolved.settings == {"alpha": "9"}
    assert learners.protocol_settings(DIGITS, learners.get("lwf"), {}, {}).training.lr == 0.05


def test_run_command_tunes_and_records_the_trials(perdure, tmp_path):
    text = perdure("run", "ewc", "naive", "--tune", 2, "--epochs", 1, "--per-class", 20, "--set", "strength=7").stdout
    assert "ewc tuning  trial 2/2" in text
    trials = json.loads((tmp_path / "runs/split-digits/ewc/tuning.json").read_text())["trials"]
    assert trials[0]["settings"]["strength"] == 7.0
    record = Record.open(tmp_path / "runs/split-digits/naive/seed-0")
    assert record.manifest.settings["tuning_trials"] == 2
    assert record.manifest.provenance["validation"] == 0.1


def test_shards_with_tuning_train_every_learner(perdure, tmp_path):
    arguments = ("run", "naive", "ewc", "l2", "si", "--tune", 1, "--epochs", 1, "--per-class", 8)
    for shard in ("1/2", "2/2"):
        perdure(*arguments, "--shard", shard, "--out", "shards")
    perdure(*arguments, "--out", "whole")
    assert len(list(tmp_path.glob("shards/split-digits/*/seed-0/record.json"))) == 4
    assert contents(tmp_path / "shards") == contents(tmp_path / "whole")


def test_inactive_features_are_zero_for_every_test_example(tmp_path):
    def network(shape, outputs):
        first = nn.Linear(64, 8)
        with torch.no_grad():
            first.weight[:3].zero_()
            first.bias[:3].fill_(-1.0)  # the first three features are 0 for every input
        return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(8, outputs))

    run = learners.Run(DIGITS, learners.get("naive"), network=network, training=Training(epochs=1, lr=1e-4))
    record = learners.execute(run, tmp_path)
    x = torch.cat([Preparation(DIGITS, CPU).normalize(torch.from_numpy(task.test.x)) for task in DIGITS.tasks])
    net = run.make_network(0)
    net.load_state_dict(record.checkpoint(4))
    share = float((features_of(net, x) == 0).all(dim=0).float().mean())
    assert share >= 3 / 8
    assert inactive_learner_features(run, record) == pytest.approx(share)


def test_a_page_keeps_the_sections_of_studies_that_were_not_run(tmp_path):
    page = tmp_path / "page.md"
    titles = ("First study", "Second study")
    first, second = (f"## {title}\n\nold\n" for title in titles)
    intro = ["# Results", ""]
    write_learner_study_page(intro, [second], titles, page)
    write_learner_study_page(intro, [first], titles, page)
    head = page.read_text().partition("## ")[0]
    assert page.read_text() == f"{head}{first}\n{second}"
    write_learner_study_page(intro, [second.replace("old", "new")], titles, page)
    assert page.read_text() == f"{head}{first}\n{second.replace('old', 'new')}"
    page.write_text(page.read_text() + "\n## A study that was removed\n")
    write_learner_study_page(intro, [first, second], titles, page)
    assert page.read_text() == f"{head}{first}\n{second}"


def test_trials_can_use_a_smaller_network_than_the_final_runs(tmp_path, monkeypatch):
    small = Study(
        name="small",
        title="Small digits",
        benchmark="split-digits",
        scenario="class",
        learners=("naive", "der++"),
        per_class=12,
        network="small-conv",
        width=4,
        training=Training(epochs=3, batch_size=8, lr=0.05, milestones=(2,)),
        trials=2,
        tuning_width=2,
        tuning_epochs=1,
        seeds=1,
        settings={"der++": {"buffer": 20}},
    )
    tried = []
    original = learners.tuning._accuracy

    def accuracy(run, folder, progress, allow_changes):
        tried.append((run.width, run.training.epochs, run.training.milestones))
        return original(run, folder, progress, allow_changes)

    monkeypatch.setattr(learners.tuning, "_accuracy", accuracy)
    benchmark = load_learner_study_benchmark(small, None)
    for name in small.learners:
        train_study_learner(small, name, 0, benchmark, tmp_path, lambda _: nullcontext(learners.Progress()))
    assert tried == [(2, 1, (1,))] * 4
    assert "2 trials (at width 2 and epochs 1)" in learner_study_training(small)
    for name in small.learners:
        manifest = Record.open(tmp_path / small.name / name / "seed-0").manifest
        trials = json.loads((tmp_path / small.name / name / "tuning.json").read_text())["trials"]
        best = max(trials, key=lambda trial: trial["validation_accuracy"])["settings"]
        assert manifest.network["width"] == 4
        assert manifest.settings["epochs"] == 3
        assert manifest.settings["tuning_trials"] == 2
        assert {key: manifest.settings[key] for key in best} == best
