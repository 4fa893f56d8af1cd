"""Registries: duplicates, unknown names, summaries and entry points of other packages."""

import os
import sys
import warnings
from types import ModuleType

import pytest

from perdure.base import registry as registry_module
from perdure.base.errors import InputError
from perdure.base.registry import Registry


class EntryPoint:
    """An entry point of another package."""

    def __init__(self, name, load) -> None:
        self.name, self.function, self.loads = name, load, 0

    def load(self):
        self.loads += 1
        return self.function()


@pytest.fixture
def entry_points(monkeypatch):
    """Return a list of entry points that stands for the installed packages; the requested groups are recorded."""
    points: list[EntryPoint] = []

    def find(*, group):
        return points if group == "perdure.shapes" else pytest.fail(f"unknown group {group}")

    monkeypatch.setattr(registry_module, "entry_points", find)
    return points


def shapes() -> Registry[object]:
    registry: Registry[object] = Registry("shape", group="perdure.shapes")
    registry.add("square", 4, "Four equal sides.")
    registry.add("circle", 0, "No corner.")
    return registry


@pytest.mark.usefixtures("entry_points")
def test_entries_have_names_summaries_and_an_order():
    registry = shapes()
    assert registry.get("square") == 4
    assert registry.names() == list(registry) == ["circle", "square"]
    assert list(registry.entries()) == ["square", "circle"]
    assert registry.summaries() == {"circle": "No corner.", "square": "Four equal sides."}
    assert "circle" in registry
    assert "cube" not in registry
    registry.entries().clear()
    assert registry.get("square") == 4


@pytest.mark.usefixtures("entry_points")
def test_two_different_entries_cannot_share_a_name():
    registry = shapes()
    with pytest.raises(InputError, match="shape 'square' is registered twice; rename one of them"):
        registry.add("square", 5)
    assert registry.get("square") == 4


@pytest.mark.usefixtures("entry_points")
def test_a_reloaded_module_may_register_its_entry_again():
    code = "class Square:\n    '''A class.'''\n"
    module = ModuleType("reloaded")
    registry = shapes()
    exec(code, module.__dict__)
    registry.add("tile", module.Square)
    exec(code, module.__dict__)
    registry.add("tile", module.Square)
    assert registry.get("tile") is module.Square
    other = ModuleType("other")
    exec(code, other.__dict__)
    with pytest.raises(InputError, match="shape 'tile' is registered twice"):
        registry.add("tile", other.Square)


@pytest.mark.usefixtures("entry_points")
def test_an_unknown_name_suggests_the_closest_or_lists_all():
    with pytest.raises(InputError, match=r"^shape: unknown name 'sqare', did you mean 'square'\?$"):
        shapes().get("sqare")
    with pytest.raises(InputError, match=r"^shape: unknown name 'xyz', known: circle, square$"):
        shapes().get("xyz")


def test_entry_points_are_loaded_once_and_only_when_needed(entry_points):
    registry = shapes()
    point = EntryPoint("cube", lambda: registry.add("cube", 12, "Twelve edges."))
    entry_points.append(point)
    assert registry.get("square") == 4
    assert point.loads == 0
    assert registry.get("cube") == 12
    assert registry.names() == ["circle", "cube", "square"]
    assert registry.summaries()["cube"] == "Twelve edges."
    with pytest.raises(InputError):
        registry.get("sphere")
    assert point.loads == 1


def test_a_broken_package_is_a_warning_and_does_not_stop_the_others(entry_points):
    registry = shapes()

    def fail():
        raise ImportError("no module named numpy9")

    entry_points.append(EntryPoint("broken", fail))
    entry_points.append(EntryPoint("cube", lambda: registry.add("cube", 12)))
    with pytest.warns(UserWarning, match="shape 'broken' could not be loaded: no module named numpy9"):
        names = registry.names()
    assert names == ["circle", "cube", "square"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert registry.names() == names


def test_a_package_with_a_built_in_name_gives_a_warning(entry_points):
    registry = shapes()
    entry_points.append(EntryPoint("theirs", lambda: registry.add("square", 5)))
    with pytest.warns(UserWarning, match="shape 'theirs' could not be loaded: shape 'square' is registered twice"):
        assert registry.names() == ["circle", "square"]
    assert registry.get("square") == 4


@pytest.mark.usefixtures("entry_points")
def test_the_modules_of_the_built_in_package_are_imported_on_first_use(tmp_path, monkeypatch):
    package = tmp_path / "shapes_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from perdure.base.registry import Registry\n"
        "SHAPES = Registry('shape', group='perdure.shapes', package='shapes_of_a_test')\n"
    )
    (package / "cube.py").write_text("from shapes_of_a_test import SHAPES\nSHAPES.add('cube', 12)\n")
    monkeypatch.syspath_prepend(tmp_path)
    from shapes_of_a_test import SHAPES  # type: ignore[import-not-found]

    assert "shapes_of_a_test.cube" not in sys.modules
    assert SHAPES.get("cube") == 12
    assert "shapes_of_a_test.cube" in sys.modules


def test_a_built_in_module_that_fails_to_import_is_reported_by_every_call(tmp_path, monkeypatch):
    package = tmp_path / "broken_built_ins"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "broken.py").write_text("raise RuntimeError('cannot be imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry[str]("shape", group="perdure.test-shapes", package="broken_built_ins")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cannot be imported"):
            registry.names()


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Return a function that writes a file and names it in PERDURE_PLUGINS, after those that it named before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry_module, "_plugins", set())
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("PERDURE_PLUGINS", raising=False)

    def write(name, code):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
        earlier = os.environ.get("PERDURE_PLUGINS")
        monkeypatch.setenv("PERDURE_PLUGINS", name if earlier is None else os.pathsep.join([earlier, name]))

    before = set(sys.modules)
    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.usefixtures("entry_points")
def test_files_of_the_user_register_entries_when_an_unknown_name_is_asked_for(plugin, monkeypatch):
    registry = shapes()
    monkeypatch.setitem(sys.modules, "plugin_registry", ModuleType("plugin_registry"))
    monkeypatch.setattr(sys.modules["plugin_registry"], "registry", registry, raising=False)
    plugin("own/tetra.py", "from plugin_registry import registry\nregistry.add('tetrahedron', 6)\n")
    assert registry.get("square") == 4
    assert "tetra" not in sys.modules
    assert registry.get("tetrahedron") == 6
    plugin("octa.py", "import tetra\nfrom plugin_registry import registry\nregistry.add('octahedron', 12)\n")
    assert registry.names() == ["circle", "octahedron", "square", "tetrahedron"]


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        (
            "bad.py",
            "x = 1\ny = x / 0\n",
            r"PERDURE_PLUGINS: bad.py failed in line 2 \(ZeroDivisionError: division by zero\)",
        ),
        ("missing.py", None, "PERDURE_PLUGINS: there is no file missing.py"),
        (
            "no.such.module",
            None,
            "there is no file no.such.module.py and no module no.such.module; expected file.py or a module",
        ),
        ("string.py", "", "PERDURE_PLUGINS: string.py: another module is called string; rename the file"),
    ],
)
@pytest.mark.usefixtures("entry_points")
def test_a_file_of_the_user_that_cannot_be_imported_is_an_error_each_time(plugin, tmp_path, name, code, message):
    import string  # noqa: F401

    plugin(name, code or "")
    if code is None:
        (tmp_path / name).unlink()
    registry = shapes()
    for _ in range(2):
        with pytest.raises(InputError, match=message):
            registry.get("cube")
    assert registry.get("square") == 4
