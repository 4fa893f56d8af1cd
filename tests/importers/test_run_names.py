"""Learner and seed in the names of files and folders, and the patterns that override them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perdure.base.errors import InputError
from perdure.importers import ImportedRun, read
from perdure.importers.run_names import compile_group, name_runs, names_from_path, split_seed


@pytest.mark.parametrize(
    ("name", "learner", "seed"),
    [
        ("ewc_0", "ewc", 0),
        ("ewc-3", "ewc", 3),
        ("ewc_seed1", "ewc", 1),
        ("ewc_seed=1", "ewc", 1),
        ("ewc-seed-12", "ewc", 12),
        ("seed=0", "", 0),
        ("3", "", 3),
        ("der.s12", "der", 12),
        ("method=ewc,seed=4", "ewc", 4),
        ("seed=4,method=ewc", "ewc", 4),
        ("ewc_seed2_lr0.1", "ewc_lr0.1", 2),
        ("replay2000_run1", "replay2000", 1),
        ("replay_200", "replay_200", None),
        ("replay_2000", "replay_2000", None),
        ("ewc_42", "ewc", 42),
        ("ewc_1993", "ewc", 1993),
        ("gem", "gem", None),
        ("classes5", "classes5", None),
        ("lifelong-1600697775-609517", "lifelong", None),
    ],
)
def test_the_seed_in_a_name(name, learner, seed):
    assert split_seed(name) == (learner, seed)


@pytest.mark.parametrize(
    ("path", "learner", "seed"),
    [
        ("ewc_0.csv", "ewc", 0),
        ("ewc/3/accuracy.csv", "ewc", 3),
        ("ewc/seed=3/eval_results.csv", "ewc", 3),
        ("ewc/seed0.csv", "ewc", 0),
        ("results/ewc/2/csvlogs/eval_results.csv", "ewc", 2),
        ("er_split_cifar100_20_2000/0/logs.json", "er_split_cifar100_20_2000", 0),
        ("ewc_1/3/results.json", "ewc_1", 3),
        ("ewc_seed1/events.out.tfevents.171.host", "ewc", 1),
        ("gem.json", "gem", None),
    ],
)
def test_names_of_files_and_folders(path, learner, seed):
    assert names_from_path(Path("/data") / path) == (learner, seed)


def run(path: str, **more) -> ImportedRun:
    fields = {"format": "table", "files": (), "source": Path(path), "table": np.eye(1), "curriculum": (0,), **more}
    return ImportedRun(**fields)


def test_stated_names_win_over_paths():
    (named,) = name_runs([run("/data/ewc_0.csv", learner="si", seed=7)])
    assert (named.learner, named.seed) == ("si", 7)
    (named,) = name_runs([run("/data/ewc_0.csv", learner="si")])
    assert (named.learner, named.seed) == ("si", 0)


@pytest.mark.parametrize(
    ("pattern", "path", "learner", "seed"),
    [
        ("{learner}_{seed}.csv", "/data/replay_200_1.csv", "replay_200", 1),
        ("{learner}_{seed}.csv", "/data/replay_200.csv", "replay", 200),
        ("{learner}/{seed}/*.csv", "/data/ewc/4/table.csv", "ewc", 4),
        ("{seed}/{learner}/*", "/data/4/ewc/table.csv", "ewc", 4),
        ("run{seed}-{learner}.csv", "/data/run12-ewc-online.csv", "ewc-online", 12),
        ("{learner}.csv", "/data/ewc_0.csv", "ewc_0", None),
    ],
)
def test_a_pattern_overrides_what_files_and_names_say(pattern, path, learner, seed):
    (named,) = name_runs([run(path, learner="stated")], pattern)
    assert (named.learner, named.seed) == (learner, seed)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{method}_{seed}.csv", "expected the placeholders {learner} and {seed}"),
        ("*.csv", "expected the placeholders {learner} and {seed}"),
        ("{seed}_{seed}.csv", "expected each placeholder at most once"),
    ],
)
def test_invalid_patterns(pattern, message):
    with pytest.raises(InputError, match=message.replace("{", r"\{").replace("}", r"\}")):
        compile_group(pattern)


def test_paths_that_do_not_match_are_reported_with_an_example():
    with pytest.raises(InputError, match=r"/data/ewc\.csv: does not match .* Expected a path such as ewc_0\.csv\.$"):
        name_runs([run("/data/ewc.csv")], "{learner}_{seed}.csv")


def test_a_pattern_is_not_a_regular_expression():
    assert compile_group("a.b_{seed}").match("a.b_1")
    assert not compile_group("a.b_{seed}").match("axb_1")
    assert not compile_group("ewc_{seed}.csv").match("my-ewc_1.csv"), "a pattern begins after a slash"


def test_groups_are_counted_by_benchmark_and_learner(tmp_path):
    for name in ("ewc_0.csv", "ewc_1.csv", "gem.csv"):
        (tmp_path / name).write_text("0.9\n")
    imported = read(tmp_path)
    assert imported.groups == {"": {"ewc": [0, 1], "gem": [None]}}
    assert imported.formats == {"tables (CSV, text, JSON, .npy)": 3}
    renamed = read(tmp_path, learner="mine")
    assert {entry.learner for entry in renamed.runs} == {"mine"}
    assert replace(renamed.runs[0], learner="ewc", seed=0).measurements.learner == "ewc"
