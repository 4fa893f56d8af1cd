"""Signals: SIGINT, SIGTERM and SIGHUP stop every command cleanly, at any moment, and say how to resume."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perdure.cli import _stop_signals_raise
from tests.helpers.crashes import contents

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
LINE = "perdure: interrupted. Finished work is saved; run the same command again to resume"
TRAINING = ("run", "naive", "--per-class", "10", "--threads", "1")
SLOW = pytest.mark.slow
# Sends a signal to its own process when a module is imported, while perdure runs as with ``python -m perdure``.
SIGNAL_AT_IMPORT = """
import os, sys
from perdure.__main__ import main

class Trap:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["TRAP_MODULE"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), int(os.environ["TRAP_SIGNAL"]))

sys.meta_path.insert(0, Trap())
main()
"""


@pytest.fixture(autouse=True)
def default_signals():
    """Let processes that the tests start receive all signals, even if the tests run in the background or under nohup."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


def start(*arguments: object, cwd: Path, new_session: bool = False) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "perdure", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=new_session,
    )


def wait_for(condition) -> None:
    """Wait until a condition holds; the limit is only there so that a failing test ends."""
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, "the process did not come this far"
        time.sleep(0.005)


def check_stopped(process: subprocess.Popen[str], number: int) -> None:
    """Check that a process ends with the signal's exit code, and one line on standard error."""
    _, errors = process.communicate(timeout=60)
    assert errors.splitlines() == [LINE]
    assert process.returncode == 128 + number


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("typer", signal.SIGINT),
        ("perdure.cli.run", signal.SIGTERM),
        ("torch", signal.SIGHUP),
        pytest.param("torch.nn", signal.SIGINT, marks=SLOW),
        pytest.param("perdure.learners.loop", signal.SIGTERM, marks=SLOW),
    ],
)
def test_a_signal_during_imports_gives_one_line(tmp_path, module, number):
    done = subprocess.run(
        [sys.executable, "-c", SIGNAL_AT_IMPORT, *TRAINING],
        cwd=tmp_path,
        env={**ENVIRONMENT, "TRAP_MODULE": module, "TRAP_SIGNAL": str(int(number))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines() == [LINE]
    assert done.returncode == 128 + number


@pytest.mark.parametrize("delay", [0.05, 0.3])
def test_a_signal_soon_after_the_start_leaves_no_traceback(tmp_path, delay):
    process = start(*TRAINING, cwd=tmp_path)
    time.sleep(delay)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    # Python itself needs a moment before the first line of ours runs; until then the default action applies.
    assert (process.returncode, errors.splitlines()) in [(143, [LINE]), (-signal.SIGTERM, []), (0, [])]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_any_moment_gives_one_line(tmp_path, number):
    for index in range(20):
        process = start("run", "naive", "ewc", "--seeds", 9, "--threads", 1, cwd=tmp_path)
        time.sleep(0.2 + 0.12 * index)
        process.send_signal(number)
        check_stopped(process, number)


def exact_files(folder: Path) -> dict[str, bytes]:
    """Return the files that are bit-identical after an interruption: accuracies and networks, but no times."""
    return {name: data for name, data in contents(folder).items() if name.endswith(("accuracy.csv", ".safetensors"))}


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=SLOW), pytest.param(signal.SIGHUP, marks=SLOW)]
)
def test_interrupted_training_resumes_to_the_same_bits(perdure, tmp_path, number):
    process = start(*TRAINING, "--seeds", 2, "--out", "parts", cwd=tmp_path)
    wait_for((tmp_path / "parts/split-digits/naive/seed-0/accuracy.csv").exists)
    process.send_signal(number)
    check_stopped(process, number)
    perdure(*TRAINING, "--seeds", 2, "--out", "parts")
    perdure(*TRAINING, "--seeds", 2, "--out", "whole")
    assert len(exact_files(tmp_path / "whole")) > 10
    assert exact_files(tmp_path / "parts") == exact_files(tmp_path / "whole")


@SLOW
def test_an_interrupted_audit_says_how_to_resume(perdure, tmp_path):
    perdure(*TRAINING, "--epochs", "1")
    process = start("audit", "runs", "--shapc", "--samples", 5000, "--examples", 20, cwd=tmp_path)
    wait_for(lambda: any(tmp_path.rglob("*cache*")) or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    check_stopped(process, signal.SIGTERM)


def living(group: int) -> list[str]:
    """Return the processes of a group that have not ended."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    return [row[2] for row in rows if row[0] == str(group) and not row[1].startswith("Z")]


@pytest.mark.parametrize(
    ("number", "to_group"),
    [
        pytest.param(signal.SIGTERM, False, id="kill", marks=SLOW),
        pytest.param(signal.SIGINT, True, id="Ctrl-C", marks=SLOW),
        pytest.param(signal.SIGHUP, True, id="closed terminal", marks=SLOW),
        pytest.param(signal.SIGKILL, False, id="kill -9", marks=SLOW),
    ],
)
def test_workers_end_with_the_command(tmp_path, number, to_group):
    options = ("--folds", 3, "--workers", 2, "--epochs", 5000, "--per-class", 10, "--out", "out")
    process = start("trust", "retraining", *options, cwd=tmp_path, new_session=True)
    wait_for(lambda: len(list(tmp_path.glob("out/**/fold-*/record.json"))) == 2 or process.poll() is not None)
    (os.killpg if to_group else os.kill)(process.pid, number)
    if number == signal.SIGKILL:
        process.wait(60)
    else:
        check_stopped(process, number)
    wait_for(lambda: not living(process.pid))


def test_ignored_signals_stay_ignored():
    """As under nohup, which starts a command with SIGHUP ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _stop_signals_raise() as received:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert received == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_in_code_whose_exceptions_are_discarded_is_raised_again():
    class Noisy:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)

    handler = signal.getsignal(signal.SIGTERM)
    with _stop_signals_raise() as received:
        Noisy()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(60)
    assert received == [signal.SIGTERM, signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is handler


def test_the_console_script_sets_the_handlers_before_it_loads_the_commands():
    code = (
        "import sys, signal; from perdure import __main__; assert 'perdure.cli' not in sys.modules; "
        "sys.meta_path.insert(0, type('Trap', (), {'find_spec': lambda self, name, path=None, target=None: "
        "print(signal.getsignal(signal.SIGTERM) is __main__._stop_loading) if name == 'perdure.cli' else None})()); "
        "sys.argv = ['perdure', '--version']; __main__.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "True"
    declared = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert 'perdure = "perdure.__main__:main"' in declared
