"""requirements.lock, from which CI installs, and constraints.txt, from which make installs, name the same versions."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_lock_pins_the_versions_of_the_constraints_with_hashes():
    lock = (ROOT / "requirements.lock").read_text()
    entries = re.findall(
        r"^([\w.-]+)==([\w.]+)(?:\+\w+)?(?: ; [^\\\n]*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
        lock,
        re.MULTILINE,
    )
    locked = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version, _ in entries}
    requirements = [line for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(entries) == len(requirements) > 80
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            name, version = line.split("==")
            name = re.sub(r"[-_.]+", "-", name).lower()
            if name in locked:
                assert locked[name] == version.split(";")[0].strip(), line
    assert {"torch", "numpy", "pytest", "hatchling", "mkdocs-material"} <= set(locked)
