"""How many files of the project one command passes through: a reader who follows a command reads these files."""

import os
import subprocess
import sys
from pathlib import Path

import perdure

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

import perdure.audits.shapc.runner  # importing torch under a profiler is slow
from perdure.cli import main
sys.argv = ["perdure", *sys.argv[2:]]
sys.setprofile(record)
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
print(*sorted(str(Path(name).relative_to(package)) for name in files), sep="\\n", file=sys.stderr)
"""


def test_audit_shapc_passes_through_at_most_40_files(tmp_path):
    package = str(Path(perdure.__file__).parent)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = [sys.executable, "-m", "perdure", "run", "naive", "l2", "--epochs", "1", "--per-class", "10"]
    subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, check=True)
    script = tmp_path / "trace.py"
    script.write_text(TRACE)
    audit = [sys.executable, str(script), package, "audit", "runs", "--shapc", "--examples", "2", "--samples", "4"]
    done = subprocess.run(audit, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    files = done.stderr.split()
    assert {"cli/audit.py", "audits/shapc/runner.py", "explain/methods/expected_gradients.py"} <= set(files)
    assert len(files) <= 40, "\n".join(files)
