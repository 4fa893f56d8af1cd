"""Dependencies and extras: each one is used and has a lower bound; an error names a missing extra and its command."""

from __future__ import annotations

import ast
import builtins
import re
from functools import cache

import pytest

from perdure.base.errors import InputError
from tests.release.helpers import ROOT, package_name, project, tool

MODULES = {
    "avalanche-lib": "avalanche",
    "mlflow-skinny": "mlflow",
    "pillow": "PIL",
    "pytorch-lightning": "pytorch_lightning",
    "pyyaml": "yaml",
    "scikit-image": "skimage",
    "scikit-learn": "sklearn",
}
"""Packages whose module has another name."""
PROGRAMS = {
    "hatchling": ("Makefile", "-m hatchling build"),
    "import-linter": ("Makefile", "lint-imports"),
    "mkdocs-material": ("mkdocs.yml", "name: material"),
    "mkdocstrings": ("mkdocs.yml", "mkdocstrings"),
    "mypy": ("Makefile", "/mypy"),
    "pre-commit": ("CONTRIBUTING.md", "pre-commit install"),
    "pytest-xdist": ("Makefile", "-n 2"),
    "ruff": ("Makefile", "/ruff check"),
    "pytorch-lightning": ("tests/importers/test_plugins_lightning.py", "pytorch_lightning"),  # imported by name
    "accelerate": ("docs/dependencies.md", "accelerate"),  # transformers' Trainer imports it
}
"""Packages that are not imported: a file that uses them, and how."""
USERS = ("ray", "pandas", "parquet", "tensorboard", "mlflow")


@cache
def imported(folder: str) -> set[str]:
    """Return the top-level modules that the Python files of a folder import, also through importorskip and require."""
    found: set[str] = set()
    for file in (ROOT / folder).rglob("*.py"):
        text = file.read_text("utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add((node.module or "").split(".")[0])
        found |= {name.split(".")[0] for name in re.findall(r'(?:importorskip|require)\("([\w.]+)"', text)}
    return found


def module_of(package: str) -> str:
    return MODULES.get(package, package.replace("-", "_"))


def extras() -> dict[str, list[str]]:
    groups: dict[str, list[str]] = project()["optional-dependencies"]
    return groups


def test_every_runtime_dependency_is_imported_by_the_package():
    used = {module_of(package_name(requirement)) for requirement in project()["dependencies"]}
    assert used - imported("src") == set()


@pytest.mark.parametrize("extra", USERS)
def test_the_package_imports_the_extras_of_users(extra):
    for requirement in extras()[extra]:
        assert module_of(package_name(requirement)) in imported("src")


@pytest.mark.parametrize("extra", sorted(set(extras()) - set(USERS)))
def test_the_extras_of_developers_are_used(extra):
    modules = imported("tests") | imported("tools") | imported("benchmarks")
    for requirement in extras()[extra]:
        name = package_name(requirement)
        if name == "perdure":
            assert set(re.findall(r"\w+", requirement.partition("[")[2])) <= set(extras())
        elif name in PROGRAMS:
            file, text = PROGRAMS[name]
            assert text in (ROOT / file).read_text()
        else:
            assert module_of(name) in modules, name


def test_every_dependency_has_a_lower_bound_no_upper_bound_and_a_line_in_the_documentation():
    documented = (ROOT / "docs/dependencies.md").read_text().lower()
    for requirement in [*project()["dependencies"], *(line for lines in extras().values() for line in lines)]:
        name = package_name(requirement)
        assert name == "perdure" or re.fullmatch(r"[\w.-]+(\[\w+\])?>=[\w.]+", requirement), requirement
        assert name in documented or module_of(name) in documented, name


def test_the_list_of_the_lowest_versions_is_that_of_pyproject():
    lowest = tool("lowest")
    assert lowest.LOWEST.read_text() == lowest.lowest_text()
    versions = lowest.lowest_versions()
    assert "torch" not in versions
    assert set(map(package_name, versions)) >= set(map(package_name, project()["dependencies"])) - {"torch"}


def test_a_bound_that_is_not_a_lower_bound_is_refused(tmp_path):
    text = (ROOT / "pyproject.toml").read_text()
    assert '"numpy>=1.26"' in text
    (tmp_path / "pyproject.toml").write_text(text.replace('"numpy>=1.26"', '"numpy~=1.26"'))
    with pytest.raises(ValueError, match=r"numpy~=1.26: expected NAME>=VERSION"):
        tool("lowest").lowest_versions(tmp_path / "pyproject.toml")


@pytest.mark.parametrize("extra", USERS)
def test_without_an_extra_the_error_names_the_command_that_installs_it(extra, monkeypatch, tmp_path):
    from perdure import Audit
    from perdure.engine.ray_cluster import RayEngine
    from perdure.exporters import export

    hidden = {module_of(package_name(requirement)) for requirement in extras()[extra]}
    original = builtins.__import__

    def without(name, *arguments, **keywords):
        if name.split(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, *arguments, **keywords)

    audit = Audit.load(ROOT / "tests/data/audit-0.1.json")
    uses = {"ray": RayEngine().__enter__, "pandas": audit.to_pandas}
    use = uses.get(extra, lambda: export(audit, extra, tmp_path / "out"))
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=re.escape(f'pip install "perdure[{extra}]"')):
        use()
