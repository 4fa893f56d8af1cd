"""docs/migrating.md: every new name and option exists, and none of the old names does."""

from __future__ import annotations

import ast
import importlib
import inspect
import re

import pytest

from tests.release.helpers import ROOT, tool

PAGE = (ROOT / "docs/migrating.md").read_text("utf-8")
ROWS = [
    (old, new)
    for old, new in re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.split("## Values that changed")[0], re.MULTILINE)
    if old not in {"0.1", "---"}
]


def new_names() -> list[str]:
    return sorted({name for _, new in ROWS for name in re.findall(r"`(perdure[.\w]*)", new)})


def resolve(name: str) -> object:
    """Return the object with a dotted name: a module, or an attribute of a module or a class."""
    words = name.split(".")
    for count in range(len(words), 0, -1):
        try:
            found: object = importlib.import_module(".".join(words[:count]))
        except ModuleNotFoundError:
            continue
        for word in words[count:]:
            fields = getattr(found, "__dataclass_fields__", {})
            found = fields[word] if word in fields else getattr(found, word)
        return found
    raise AssertionError(name)


@pytest.mark.parametrize("name", new_names())
def test_a_new_name_exists(name):
    assert resolve(name) is not None


def test_the_page_lists_names_of_every_part():
    assert len(ROWS) > 45
    for part in ("audits", "explain", "metrics", "figures", "importers", "tasks"):
        assert any(name.startswith(f"perdure.{part}.") for name in new_names())


def test_the_old_names_are_gone_from_their_modules():
    """A name that still exists under its old name needs no line in the table."""
    from perdure import explain, figures, importers, metrics, tasks

    modules = {"explain": explain, "figures": figures, "importers": importers, "metrics": metrics, "tasks": tasks}
    checked = 0
    for old, _ in ROWS:
        match = re.match(r"`(\w+)\.(\w+)`((?:, `\w+`)*)$", old)
        if match and match[1] in modules:
            for name in [match[2], *re.findall(r"\w+", match[3])]:
                assert name not in modules[match[1]].__all__, name
                checked += 1
    assert checked > 50


def test_the_commands_and_options_exist():
    known = set(tool("public_names").command_options())
    commands = {name for _, new in ROWS for name in re.findall(r"`(perdure (?:[a-z]+ ?)+(?:--[a-z-]+)?)`", new)}
    assert len(commands) > 10
    assert {command.strip() for command in commands} <= known


def test_the_examples_use_parameters_and_options_that_exist():
    import perdure

    known = set(tool("public_names").command_options())
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    (audit,) = (call for call in calls if ast.unparse(call.func) == "perdure.audit")
    assert {keyword.arg for keyword in audit.keywords} <= set(inspect.signature(perdure.audit).parameters)
    (shell,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in shell.splitlines():
        command = re.match(r"perdure (?:trust )?[a-z]+", line)
        assert command
        options = re.findall(r" (--[a-z-]+)", line)
        assert options
        assert {f"{command[0]} {option}" for option in options} <= known


def test_an_audit_of_the_earlier_version_is_read_by_the_code_of_the_page():
    from perdure import Audit

    audit = Audit.load(ROOT / "tests/data/audit-0.1.json")
    assert audit.shapc
    assert "cumulative" in audit.details() or "naive" in audit.details()


def test_the_schema_on_the_page_is_the_present_one():
    from perdure.audits.results import SCHEMA

    assert f"`audit.json` has schema {SCHEMA}." in PAGE
