"""The example of CONTRIBUTING.md: a new learner really is one new file."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import perdure

ROOT = Path(__file__).parents[1]


def test_the_example_learner_is_one_file_and_trains(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    package = Path(perdure.__file__).parent
    shutil.copytree(package, tmp_path / "src/perdure", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "src/perdure/learners/methods/shrink.py").write_text(example)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}

    def weight(strength: float) -> float:
        arguments = ["run", "shrink", "--epochs", "2", "--set", f"strength={strength}", "--out", f"runs-{strength}"]
        command = [sys.executable, "-m", "perdure", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        record = perdure.Record.open(tmp_path / f"runs-{strength}/split-digits/shrink/seed-0")
        return sum(float((tensor**2).sum()) for tensor in record.checkpoint(4).values())

    assert weight(0.1) < 0.5 * weight(0.0)
