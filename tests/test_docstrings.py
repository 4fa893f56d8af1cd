"""The examples in the docstrings of the public API: all are run, and the reference pages of functions have them."""

from __future__ import annotations

import doctest
import importlib
import inspect
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tools.api_pages import MODULES

import perdure
from perdure import learners, tasks
from perdure.audits import ShapcSettings
from perdure.base.registry import Registry

EVERY_FUNCTION = {"perdure", "perdure.metrics", "perdure.metrics.lifelong", "perdure.surrogate", "perdure.explain"}
"""Modules of which every public function has an example. The other ones have at least one example."""
PROMPT = re.compile(r"^ *>>> (?!#)", re.MULTILINE)


def public_objects(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Return a module and its public functions and classes, by name."""
    yield module.__name__, module
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            yield f"{module.__name__}.{name}", value


def docstring_examples() -> dict[str, doctest.DocTest]:
    """Return the examples of each public object once, under the name of the first page that shows it."""
    parser, seen = doctest.DocTestParser(), set()
    examples = {}
    for module_name in MODULES:
        for name, value in public_objects(importlib.import_module(module_name)):
            if id(value) not in seen and PROMPT.search(inspect.getdoc(value) or ""):
                seen.add(id(value))
                examples[name] = parser.get_doctest(inspect.getdoc(value) or "", {}, name, None, None)
    return examples


EXAMPLES = docstring_examples()


@pytest.fixture
def registries(monkeypatch):
    """Undo the registrations of an example."""
    registries: dict[int, Registry[Any]] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("perdure"):
            registries |= {id(value): value for value in vars(module).values() if isinstance(value, Registry)}
    for registry in registries.values():
        registry.names()  # loads the built-in entries, which the copies must contain
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_summaries", dict(registry._summaries))


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    """Return a folder with an audit of two learners, as that of ``make demo``."""
    folder: Path = tmp_path_factory.mktemp("demo")
    benchmark = tasks.load("split-digits", per_class=30)
    for name in ("naive", "rehearsal"):
        run = learners.Run(benchmark, learners.get(name), training=learners.Training(epochs=3))
        learners.execute(run, folder / "runs" / name)
    settings = ShapcSettings(samples=10, untrained=2)
    perdure.audit(folder / "runs", shapc=settings, examples=4).save(folder / "audit.json")
    return folder


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_shows(tmp_path, monkeypatch, registries, request, name):
    monkeypatch.chdir(tmp_path)
    if "demo/audit.json" in (EXAMPLES[name].docstring or ""):
        (tmp_path / "demo").symlink_to(request.getfixturevalue("demo"))
    report = io.StringIO()
    example = EXAMPLES[name]
    example.globs = {"__name__": "example"}
    result = doctest.DocTestRunner(verbose=False).run(example, out=report.write)
    assert result.attempted == len(example.examples) > 0
    assert result.failed == 0, report.getvalue()


@pytest.mark.parametrize("module_name", MODULES)
def test_the_page_of_a_module_has_examples(module_name):
    documented = [name for name, value in public_objects(importlib.import_module(module_name)) if has_example(value)]
    assert documented, "no example on the whole page"
    if module_name in EVERY_FUNCTION:
        functions = [
            name for name, value in public_objects(importlib.import_module(module_name)) if inspect.isfunction(value)
        ]
        assert not set(functions) - set(documented)


def has_example(value: object) -> bool:
    return PROMPT.search(inspect.getdoc(value) or "") is not None


def test_every_example_in_the_source_is_run():
    """An example in a docstring that no page shows would never be run."""
    source = sum(len(PROMPT.findall(path.read_text())) for path in Path(perdure.__file__).parent.rglob("*.py"))
    assert source == sum(len(example.examples) for example in EXAMPLES.values()) > 500
