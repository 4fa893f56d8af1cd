"""How many files of the project an audit passes through: a reader who follows it reads these files.

The command adds to the function `perdure.audit` the files that parse and print, and those that say where the work runs.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perdure

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

TRACE = """
import sys
from pathlib import Path
package, files, seen = sys.argv[1], set(), set()

def record(frame, event, argument):
    if event != "call" or frame.f_code in seen:
        return
    name = frame.f_code.co_filename
    if not name.startswith(package) or name in files:
        seen.add(frame.f_code)
        return
    caller = frame
    while caller is not None:
        if caller.f_code.co_name == "<module>" and caller.f_code.co_filename != __file__:
            return  # code that runs while a module is imported
        caller = caller.f_back
    files.add(name)

import perdure
import perdure.audits.shapc.runner  # importing torch under a profiler is slow
from perdure.audits import ShapcSettings
from perdure.cli import main
sys.argv = ["perdure", *sys.argv[2:]]
sys.setprofile(record)
try:
    if len(sys.argv) > 1:
        main()
    else:
        print(perdure.audit("runs", shapc=ShapcSettings(samples=4), examples=2))
except SystemExit:
    pass
sys.setprofile(None)
print(*sorted(str(Path(name).relative_to(package)) for name in files), sep="\\n", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Return a folder with the records of two small runs."""
    folder = tmp_path_factory.mktemp("trace")
    run = [sys.executable, "-m", "perdure", "run", "naive", "l2", "--epochs", "1", "--per-class", "10"]
    subprocess.run(run, cwd=folder, env=ENVIRONMENT, capture_output=True, check=True)
    return folder


def traced_files(records, folder, *arguments):
    """Return the files that an audit of the records passes through: of a command, or of the function without arguments."""
    shutil.copytree(records / "runs", folder / "runs")
    script = folder / "trace.py"
    script.write_text(TRACE)
    command = [sys.executable, str(script), str(Path(perdure.__file__).parent), *arguments]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return done.stderr.split()


def test_an_audit_with_shapc_passes_through_at_most_40_files(records, tmp_path):
    files = traced_files(records, tmp_path)
    assert {"audits/audit.py", "audits/shapc/runner.py", "explain/methods/expected_gradients.py"} <= set(files)
    assert len(files) <= 40, "\n".join(files)


def test_the_command_adds_at_most_twelve_files(records, tmp_path):
    # One worker: with several, the examples are explained in processes that are not traced.
    arguments = ("audit", "runs", "--shapc", "--examples", "2", "--samples", "4", "--workers", "1")
    files = traced_files(records, tmp_path, *arguments)
    assert {"cli/audit.py", "audits/shapc/runner.py", "explain/methods/expected_gradients.py"} <= set(files)
    assert len(files) <= 40 + 12, "\n".join(files)
