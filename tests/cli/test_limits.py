"""Options beyond the limits of a machine, and a machine that reaches its limits: one line and an exit code."""

import os
import subprocess
import sys
import typing

import pytest

from perdure import Recorder, nets
from perdure.base.errors import InputError
from perdure.cli import COMMANDS, TRUST_COMMANDS
from perdure.cli.options import LARGEST, MOST

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
MATRIX = "after_task,task_1,task_2\n1,.9,.2\n2,.5,.8\n"
ARGUMENTS = {"run": ["naive"], "audit": ["runs"], "score": ["m.csv"], "fit": ["m.csv"], "explain": ["runs/x"]} | {
    "check": ["m.csv"],
    "compare": ["a.pt", "b.pt"],
    "report": ["runs"],
    "reproduce": ["clamp"],
}


def numeric_options(kind: type) -> list[tuple[str, str]]:
    """Return the command and the name of every option that takes a number of this kind."""
    found = []
    for command in (*COMMANDS, *TRUST_COMMANDS):
        group = "trust " if command in TRUST_COMMANDS else ""
        for name, annotation in typing.get_type_hints(command).items():
            if name != "return" and kind in (annotation, *typing.get_args(annotation)):
                found.append((f"{group}{command.__name__}", name))
    return found


def test_the_options_are_found():
    assert ("run", "seeds") in numeric_options(int)
    assert ("trust retraining", "workers") in numeric_options(int)
    assert ("run", "lr") in numeric_options(float)
    assert len(numeric_options(int)) > 30


def check_refused(perdure, command: str, name: str, value: object) -> None:
    option = f"--{name.replace('_', '-')}"
    done = perdure(*command.split(), *ARGUMENTS.get(command, []), option, value, code=2)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert option in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("command", "name"), numeric_options(int))
def test_integers_that_are_too_large_are_refused(perdure, tmp_path, command, name):
    (tmp_path / "m.csv").write_text(MATRIX)
    for value in (LARGEST.get(name, MOST) + 1, "9" * 5000):
        check_refused(perdure, command, name, value)
    assert [path.name for path in tmp_path.iterdir()] == ["m.csv"]


@pytest.mark.parametrize(("command", "name"), numeric_options(float))
def test_numbers_that_are_not_finite_are_refused(perdure, tmp_path, command, name):
    (tmp_path / "m.csv").write_text(MATRIX)
    for value in ("nan", "1e308"):
        check_refused(perdure, command, name, value)


@pytest.mark.parametrize("width", [10**6, 10**9])
@pytest.mark.parametrize("network", ["mlp5", "small-conv"])
def test_a_network_that_does_not_fit_into_memory_is_refused_before_it_is_built(perdure, tmp_path, width, network):
    with pytest.raises(InputError, match=f"width {width} needs .* memory"):
        nets.build(network, input_shape=(3, 32, 32), outputs=10, width=width)
    if width == 10**6:
        done = perdure("run", "naive", "--network", network, "--width", width, code=2)
        assert len(done.stderr.splitlines()) == 1
        assert not any(tmp_path.rglob("record.json"))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError(), "not enough memory"),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:98] DefaultCPUAllocator: can't allocate memory"),
            "not enough memory",
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"), "not enough memory"),
        (RuntimeError("can't start new thread"), "not enough memory"),
        (OSError("5 requested and 3 written"), "5 requested and 3 written"),
    ],
)
def test_a_lack_of_memory_gives_one_line(perdure, monkeypatch, error, text):
    def fail(*_arguments, **_options):
        raise error

    monkeypatch.setattr("perdure.learners.units.execute", fail)
    done = perdure("run", "naive", code=1)
    assert len(done.stderr.splitlines()) == 1
    assert text in done.stderr


def test_other_errors_keep_their_traceback(perdure, monkeypatch):
    def fail(*_arguments, **_options):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("perdure.learners.units.execute", fail)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        perdure("run", "naive")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "naive", "--out", "/dev/null/x"),
        ("demo", "--out", "/dev/null/x"),
        ("audit", "runs", "--out", "/dev/null/x"),
        ("report", "runs", "--out", "/dev/null/x"),
        ("report", "runs", "--tables", "/dev/null/x"),
        ("report", "runs", "--figures", "/dev/null/x"),
        ("fit", "m.csv", "--starts", "2", "--figure", "/dev/null/x.png"),
        ("trust", "retraining", "--out", "/dev/null/x"),
        ("run", "naive", "--out", "x" * 300),
        ("fit", "m.csv", "--starts", "2", "--figure", "runs/.png"),
    ],
)
def test_a_path_that_cannot_be_written_gives_one_line(perdure, tmp_path, arguments):
    (tmp_path / "m.csv").write_text(MATRIX)
    recorder = Recorder(tmp_path / "runs/a", 2)
    recorder.after_task(accuracy=[0.9, 0.1])
    recorder.after_task(accuracy=[0.5, 0.8])
    done = perdure(*arguments, code=2)
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_gives_one_line(perdure, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    done = perdure("run", "naive", "--out", "locked", code=1)
    assert "Permission denied" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def shell(command: str, cwd) -> subprocess.CompletedProcess[str]:
    """Run a shell command with ``perdure`` as a function."""
    script = f'perdure() {{ "{sys.executable}" -m perdure "$@"; }}\n{command}'
    return subprocess.run(["bash", "-c", script], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def test_a_full_disk_behind_standard_output_gives_one_line(tmp_path):
    (tmp_path / "m.csv").write_text(MATRIX)
    done = shell("perdure score m.csv > /dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "perdure: No space left on device. Saved files are intact; run the same command again to resume"
    ]


@pytest.mark.slow
def test_a_limit_of_the_file_size_gives_one_line_and_the_run_resumes(perdure, tmp_path):
    options = ("run", "naive", "--epochs", "1", "--per-class", "2", "--threads", "1")
    done = shell(f"ulimit -f 16; perdure {' '.join(options)}", tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "File too large" in done.stderr
    perdure(*options)


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [1_500_000, 2_500_000])  # with less, the import of OpenBLAS in scipy does not end
def test_a_limit_of_the_memory_gives_one_line(tmp_path, kilobytes):
    options = "--network mlp5 --width 6000 --epochs 1 --threads 1"
    done = shell(f"ulimit -v {kilobytes}; perdure run naive {options}", tmp_path)
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 1
    assert "memory" in done.stderr
