"""perdure compare on the command line: forms of versions, output, resuming and messages."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from perdure.engine.completion import NotDistributedWarning
from tests.helpers.versions import both_informative, trained

MODELS = """
import sys
sys.path.insert(0, {root!r})
from tests.helpers.versions import make_net, trained

old, new = trained(0), trained(0, (1,))

def maker():
    return trained(1)

def nothing():
    return None
"""


@pytest.fixture
def models(tmp_path):
    """Two files of weights, their network and test data in the working directory."""
    x, labels = both_informative()
    np.savez(tmp_path / "test.npz", x=x, y=labels)
    for name, net in (("old", trained(0)), ("new", trained(0, (1,))), *((f"ref{k}", trained(k)) for k in range(2, 5))):
        torch.save(net.state_dict(), tmp_path / f"{name}.pt")
    (tmp_path / "models.py").write_text(MODELS.format(root=str(Path(__file__).parents[2])))
    return tmp_path


FAST = ("--data", "test.npz", "--samples", 8, "--examples", 12)
WEIGHTS = ("--network", "models.py:make_net", *FAST)


def test_weights_files_with_references(perdure, models):
    references = [word for k in range(2, 5) for word in ("--reference", f"ref{k}.pt")]
    done = perdure("compare", "old.pt", "new.pt", *WEIGHTS, *references)
    assert done.stdout.startswith("changed: The importance of features")
    assert "Largest changes of global importance" in done.stdout
    assert done.stdout.rstrip().endswith("comparison/report.html")
    stored = json.loads((models / "comparison" / "comparison.json").read_text())
    printed = json.loads(perdure("compare", "old.pt", "new.pt", *WEIGHTS, *references, "--json").stdout)
    assert printed == stored  # the second call resumes from the stored maps
    assert stored["verdict"] == "changed"
    assert stored["references"] == [f"ref{k}.pt" for k in range(2, 5)]
    assert all(len(line) <= 100 for line in done.stdout.splitlines())


def test_models_in_a_file_and_functions_that_return_them(perdure, models):
    done = perdure("compare", "models.py:old", "models.py:maker", *FAST, "--untrained", 0, "--out", "out")
    assert done.stdout.startswith("undecided: ")
    assert (models / "out" / "report.html").exists()
    failed = perdure("compare", "models.py:old", "models.py:nothing", *FAST, code=2)
    assert "the function returned None; expected a model" in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("old.pt", "new.pt", *FAST), "old.pt: a file of weights needs --network file.py:function"),
        (("old.pt", "nowhere.pt", *WEIGHTS), "nowhere.pt: no such file or directory"),
        (("old.pt", "new.pt", *WEIGHTS, "--reference", "ref2.pt"), "1 version, expected at least 3"),
        (("old.pt", "new.pt", *WEIGHTS, "--retrain", 3), "pass versions that you retrained with --reference"),
        (("old.pt", "new.pt", *WEIGHTS, "--reference", "ref2.pt", "--retrain", 3), "pass one of them"),
        (("old.pt", "new.pt", *FAST, "--layout", "nct"), "--layout needs --network"),
        (("old.pt", "new.pt", *WEIGHTS, "--method", "lpr"), "did you mean 'lrp'"),
    ],
)
def test_invalid_input_is_one_line(perdure, models, arguments, message):
    failed = perdure("compare", *arguments, code=2)
    assert message in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


def test_shards_are_collected_by_the_command_without_shard(perdure, models):
    """A function in a user's file, which worker processes import again, and files of weights."""
    expected = json.loads(perdure("compare", "old.pt", "new.pt", *WEIGHTS, "--json", "--out", "plain").stdout)
    options = ("compare", "old.pt", "new.pt", *WEIGHTS, "--out", "out", "--json")
    done = perdure(*options, "--shard", "1/2", "--workers", 2)
    assert "Shard 1/2 is done; " in done.stderr
    assert "Run the command without --shard to collect the results." in done.stderr
    assert not (models / "out" / "comparison.json").exists()
    perdure(*options, "--shard", "2/2")
    assert json.loads(perdure(*options).stdout) == expected


def test_models_that_cannot_be_sent_are_mentioned_only_if_workers_are_given(perdure, models):
    text = MODELS.replace("old, new =", "class Own(type(trained(0))):\n    pass\n\nold, new =")
    text = text.replace("trained(0), trained(0, (1,))", "Own(*trained(0)), Own(*trained(0, (1,)))")
    (models / "own.py").write_text(text.format(root=str(Path(__file__).parents[2])))
    options = ("compare", "own.py:old", "own.py:new", *FAST, "--untrained", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        perdure(*options)
    with pytest.warns(NotDistributedWarning, match="cannot be sent to another process"):
        perdure(*options, "--workers", 2)
