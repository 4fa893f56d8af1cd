"""The house is light to enter: heavy rooms open when they are used."""

import subprocess
import sys

import pytest

import perdure

HEAVY = {"torch", "captum", "sklearn", "scipy", "matplotlib", "plotly", "skimage", "jinja2", "optuna", "pandas"}


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_import_perdure_loads_nothing_heavy():
    assert modules_after("import perdure") & (HEAVY | {"numpy", "rich", "typer"}) == set()


def test_help_loads_nothing_heavy():
    code = "from perdure.cli import main\nimport sys\nsys.argv = ['perdure', '--help']\ntry: main()\nexcept SystemExit: pass"
    assert modules_after(code) & (HEAVY | {"numpy"}) == set()


def test_metrics_and_record_load_no_torch():
    assert (
        modules_after("import perdure; perdure.metrics, perdure.Record, perdure.audit") & {"torch", "matplotlib"}
        == set()
    )


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = perdure.nonsense
    assert "Recorder" in dir(perdure)
    assert perdure.__version__
