"""Other frameworks in tests: they are skipped if a package is missing, and torchvision is made importable."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
REQUIRED = os.environ.get("PERDURE_FRAMEWORK_TESTS") == "required"
_LIBRARIES: list[torch.library.Library] = []


def require(*packages: str) -> None:
    """Skip the test if a package is missing; fail it where these tests are required (CI)."""
    for package in packages:
        if find_spec(package) is None:
            reason = f"{package} is not installed: pip install --no-deps -c constraints.txt -r tools/frameworks.txt"
            if REQUIRED:
                pytest.fail(reason)
            pytest.skip(reason)
    declare_torchvision_operators()


def declare_torchvision_operators() -> None:
    """Declare the operators that torchvision registers when it is imported.

    Its binary part does not load beside the CPU build of torch that CI uses, so these operators do not exist, and importing
    torchvision raises an error. avalanche, torchmetrics and transformers import it, but no test calls it.
    """
    if _LIBRARIES or find_spec("torchvision") is None or "torchvision" in sys.modules:
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARIES.append(library)


def require_avalanche(monkeypatch: pytest.MonkeyPatch) -> None:
    """Require avalanche. Missing dependencies that only log to services or download files are replaced by empty modules."""
    for name in ("wandb", "GPUtil", "gdown"):
        if find_spec(name) is None:
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
    require("avalanche", "torchvision")


def run_example(page: str, replacements: dict[str, str] | None = None) -> dict[str, Any]:
    """Run the first Python block of a page in the current folder, and return its variables."""
    match = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert match
    code = match[1]
    for old, new in (replacements or {}).items():
        assert old in code
        code = code.replace(old, new)
    variables: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, page, "exec"), variables)
    return variables
