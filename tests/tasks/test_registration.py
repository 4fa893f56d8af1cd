"""Registration of benchmarks: the built-in ones, new files, and entry points of other packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import perdure
from perdure import tasks
from perdure.base.errors import InputError
from perdure.tasks import registry
from perdure.tasks.benchmark import Source

BUILT_IN = {
    "permuted-mnist",
    "rotated-mnist",
    "split-cifar10",
    "split-cifar100",
    "split-cifar100-5x20",
    "split-digits",
    "split-fashion-mnist",
    "split-mnist",
    "split-tiny-imagenet",
    "tv-news",
    "voc2012",
    "voc2012-224",
}
USE_BLOBS = """
from perdure import tasks
benchmark = tasks.load("blobs")
assert len(benchmark.tasks) == 3 and benchmark.class_names[5] == "blob 6"
print(tasks.summaries()["blobs"])
print("split-digits" in tasks.names())
"""


def example() -> str:
    """The example in the docstring of the registry."""
    (text,) = re.findall(r"```python\n(.*?)```", registry.__doc__ or "", re.DOTALL)
    assert isinstance(text, str)
    return text


def run_python(code: str, *folders: Path) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_names_are_complete_and_sorted() -> None:
    assert set(tasks.names()) == BUILT_IN
    assert tasks.names() == sorted(tasks.names()) == list(tasks.summaries())


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_built_in_benchmark_has_a_description(name: str) -> None:
    description = tasks.describe(name)
    assert description.name == name
    assert description.classes % description.tasks == 0 or description.scenario == "domain"
    assert description.scenario in {"class", "domain"}
    assert description.licence
    assert description.citation
    assert description.source
    assert tasks.summaries()[name] == description.summary
    assert len(description.summary) <= 90


def test_a_summary_states_data_tasks_and_download() -> None:
    summaries = tasks.summaries()
    assert summaries["split-digits"] == "8x8 digits of scikit-learn, 10 classes in 5 tasks; no download"
    assert summaries["voc2012"] == "objects of Pascal VOC 2012, 64x64, 20 classes in 1 task; 2.0 GB download"
    assert summaries["tv-news"] == "commercials in TV news, 1 task of 2 classes, domain-incremental; 64 MB download"


def test_a_name_cannot_be_registered_twice() -> None:
    register = tasks.register_benchmark(tasks.describe("split-digits"))
    with pytest.raises(InputError, match="benchmark 'split-digits' is registered twice"):
        register(lambda _folder, _progress: Source(*[None] * 3))  # type: ignore[arg-type]


def test_a_new_file_among_the_built_in_benchmarks_is_found(tmp_path: Path) -> None:
    package = Path(perdure.__file__).parent
    shutil.copytree(package, tmp_path / "perdure", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "perdure" / "tasks" / "benchmarks" / "blobs.py").write_text(example())
    summary, built_in = run_python(USE_BLOBS, tmp_path)
    assert summary == "Gaussian blobs in the plane, 6 classes in 3 tasks; no download"
    assert built_in == "True"


def test_a_benchmark_of_another_package_is_found_through_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (tmp_path / "my_package" / "blobs.py").write_text(example())
    info = tmp_path / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[perdure.benchmarks]\nblobs = my_package.blobs\n")
    source = Path(perdure.__file__).parents[1]
    summary, built_in = run_python(USE_BLOBS, tmp_path, source)
    assert summary == "Gaussian blobs in the plane, 6 classes in 3 tasks; no download"
    assert built_in == "True"


def test_the_example_reads_the_same_data_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.BENCHMARKS, "_entries", dict(registry.BENCHMARKS._entries))
    monkeypatch.setattr(registry.BENCHMARKS, "_summaries", dict(registry.BENCHMARKS._summaries))
    exec(compile(example(), "blobs.py", "exec"), {"__name__": "blobs"})
    first, second = tasks.load("blobs"), tasks.load("blobs", seed=3)
    assert first.fingerprint() == second.fingerprint()
    assert [len(task.train) for task in first.tasks] == [100, 100, 100]
    assert [len(task.test) for task in first.tasks] == [40, 40, 40]
    assert first.tasks[0].train.x.dtype == np.float32
    assert first.input_shape == tasks.describe("blobs").input_shape
