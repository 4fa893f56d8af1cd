"""Imports are fast: heavy packages are loaded only when they are used."""

import subprocess
import sys

import pytest

import perdure

HEAVY = {"torch", "captum", "sklearn", "scipy", "matplotlib", "plotly", "skimage", "jinja2", "optuna", "pandas"}


def modules_after(code: str) -> set[str]:
    """Return the top-level modules that are loaded after running some code in a new process."""
    script = f"{code}\nimport sys; print(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_import_perdure_loads_no_heavy_package():
    assert modules_after("import perdure") & (HEAVY | {"numpy", "rich", "typer"}) == set()


def test_help_loads_no_heavy_package():
    code = "from perdure.cli import main\nimport sys\nsys.argv = ['perdure', '--help']\ntry: main()\nexcept SystemExit: pass"
    assert modules_after(code) & (HEAVY | {"numpy"}) == set()


def test_metrics_and_record_load_no_torch():
    assert (
        modules_after("import perdure; perdure.metrics, perdure.Record, perdure.audit") & {"torch", "matplotlib"}
        == set()
    )


def test_unknown_names_raise_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = perdure.nonsense
    assert "Recorder" in dir(perdure)
    assert perdure.__version__
