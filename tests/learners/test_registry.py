"""Learners by name: built-in methods, methods of other packages, summaries, and lazy imports."""

import re
import subprocess
import sys

import pytest

from perdure import learners, tasks
from perdure.base.errors import InputError
from perdure.learners.learner import Learner
from perdure.learners.training import Training

PLUGIN = '''
"""A learner of another package."""

from dataclasses import dataclass

from perdure.learners import Learner


class Scaled(Learner, name="scaled"):
    """Fine-tuning with a scaled loss.

    For tests of entry points.
    """

    @dataclass(frozen=True)
    class Settings:
        """``factor`` of the loss."""

        factor: float = 2.0

    def loss(self, batch):
        """Return factor * cross-entropy."""
        return self.settings.factor * super().loss(batch)
'''
CHECK = """
import sys
from perdure import learners, tasks
assert not [name for name in sys.modules if name.startswith("perdure.learners.methods.")], "methods were imported"
assert learners.summaries()["scaled"] == "Fine-tuning with a scaled loss."
assert "naive" in learners.names()
run = learners.Run(tasks.load("split-digits", per_class=4), learners.get("scaled"), width=2,
                   training=learners.Training(epochs=1), settings={"factor": 0.5})
record = learners.execute(run, "record")
assert record.complete and record.manifest.learner == "scaled" and record.manifest.settings["factor"] == 0.5
"""


def test_a_learner_of_another_package_works_through_its_entry_point(tmp_path):
    (tmp_path / "their_package.py").write_text(PLUGIN)
    metadata = tmp_path / "their_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[perdure.learners]\nscaled = their_package:Scaled\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{CHECK}"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_broken_package_is_reported_and_does_not_affect_other_learners(tmp_path):
    (tmp_path / "broken_package.py").write_text("raise ImportError('no such library')\n")
    metadata = tmp_path / "broken_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[perdure.learners]\nbroken = broken_package\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom perdure import learners\nprint(learners.names())"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "naive" in done.stdout
    assert "'broken' could not be loaded: no such library" in done.stderr


def test_every_learner_has_a_one_line_summary():
    assert set(learners.summaries()) == set(learners.names())
    for name, summary in learners.summaries().items():
        if name.startswith("test-"):  # learners that tests define
            continue
        assert 20 < len(summary) <= 90, name
        assert summary.endswith("."), name
        assert not summary.endswith("..."), name
    assert learners.summaries()["der"].startswith("Dark experience replay (Buzzega et al. 2020)")


def test_every_published_learner_says_how_it_differs_from_its_publication():
    baselines = {"naive", "joint", "cumulative"}
    for name in sorted(set(learners.names()) - baselines):
        if name.startswith("test-"):
            continue
        text = learners.get(name).__doc__ or ""
        assert re.search(r"et al\. \d{4}|and \w+ \d{4}", text), name  # the publication
        _, found, differences = text.partition("Differences from ")
        assert found, name
        assert len(differences.split()) >= 4, name


def test_two_different_learners_cannot_have_one_name():
    assert "naive" in learners.names()  # the built-in learners are imported on first use
    with pytest.raises(InputError, match="'naive' is registered twice"):

        class Other(Learner, name="naive"):
            """Another learner with the name of a built-in one."""

    assert learners.get("naive").__name__ == "Naive"


def test_a_subclass_without_a_name_is_not_registered(tmp_path):
    class Unnamed(Learner):
        """Fine-tuning, not registered."""

    assert not set(learners.names()) & {"", "Unnamed"}
    run = learners.Run(tasks.load("split-digits", per_class=4), Unnamed, width=2, training=Training(epochs=1))
    assert learners.execute(run, tmp_path).complete
