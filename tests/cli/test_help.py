"""The help of every command: an example that can be parsed, a text for every option, completion, and run --list."""

import json
import re
import shlex
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from perdure.cli import app

ROOT = typer.main.get_command(app)
LONGEST = 120


def commands(command: Any = ROOT, names: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return every command and group by the words that call it, the root included."""
    found = {names: command}
    if isinstance(command, TyperGroup):
        for name, child in command.commands.items():
            found |= commands(child, (*names, name))
    return found


COMMANDS = commands()
LEAVES = {names: command for names, command in COMMANDS.items() if not isinstance(command, TyperGroup)}


def by_name(names: tuple[str, ...]) -> str:
    """Return the name of a test."""
    return " ".join(names) or "perdure"


def example_of(command: Any) -> str:
    """Return the command line after ``Example:``."""
    assert command.epilog is not None
    match = re.fullmatch(r"Example: (perdure .+)", command.epilog)
    assert match, command.epilog
    return match[1]


def test_all_commands_are_found():
    assert {by_name(names) for names in LEAVES} == {
        "demo",
        "run",
        "status",
        "audit",
        "check",
        "compare",
        "score",
        "fit",
        "import",
        "explain",
        "trust bias",
        "trust retraining",
        "report",
        "export",
        "reproduce",
    }


@pytest.mark.parametrize("names", COMMANDS, ids=by_name)
def test_the_help_ends_with_an_example(perdure, monkeypatch, names):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    text = perdure(*names, "--help").stdout
    last = [line.strip() for line in text.splitlines() if line.strip()][-1]
    assert last == f"Example: {example_of(COMMANDS[names])}"


@pytest.mark.parametrize("names", LEAVES, ids=by_name)
def test_the_example_calls_the_command_with_options_it_has(names):
    words = shlex.split(example_of(LEAVES[names]))
    assert tuple(words[1 : 1 + len(names)]) == names
    with LEAVES[names].make_context(" ".join(names), words[1 + len(names) :]) as context:
        passed = [name for name in context.params if context.get_parameter_source(name).name == "COMMANDLINE"]
    assert passed, "the example shows no argument or option"


@pytest.mark.parametrize("names", [names for names in COMMANDS if names not in LEAVES], ids=by_name)
def test_the_example_of_a_group_calls_one_of_its_commands(names):
    words = re.split(r",? then ", example_of(COMMANDS[names]))[0].split()
    called = next(words[1 : 1 + size] for size in (2, 1) if tuple(words[1 : 1 + size]) in LEAVES)
    assert tuple(called[: len(names)]) == names
    arguments = words[1 + len(called) :]
    LEAVES[tuple(called)].make_context(" ".join(called), arguments).close()


def test_an_example_with_an_unknown_option_would_be_noticed():
    with pytest.raises(Exception, match="No such option: --per-task"):
        LEAVES["audit",].make_context("audit", ["runs", "--per-task", "8"])


@pytest.mark.parametrize("names", COMMANDS, ids=by_name)
def test_every_command_option_and_argument_has_a_help_text(names):
    command = COMMANDS[names]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{parameter.name} has no help text"


@pytest.mark.parametrize("names", [(), ("trust",)], ids=by_name)
def test_a_group_lists_its_commands_with_a_description(perdure, names):
    text = perdure(*names, "--help").stdout
    group = COMMANDS[names]
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        assert name in text
        first_words = " ".join((command.help or "").split()[:3])
        assert first_words in " ".join(text.replace("│", " ").split())


def test_shell_completion_is_offered(perdure):
    names = {name for parameter in ROOT.params for name in parameter.opts}
    assert {"--install-completion", "--show-completion", "--version"} <= names
    text = perdure("--help").stdout
    assert "--install-completion" in text
    assert "--show-completion" in text


@pytest.fixture(scope="module")
def kinds():
    from perdure import learners, nets, tasks

    return {"benchmarks": tasks.names(), "learners": learners.names(), "networks": nets.names()}


def test_run_list_describes_every_learner_benchmark_and_network(perdure, kinds):
    value = json.loads(perdure("run", "--list", "--json").stdout)
    assert isinstance(value, dict)
    assert {kind: list(entries) for kind, entries in value.items()} == {
        kind: sorted(names) for kind, names in kinds.items()
    }
    for entries in value.values():
        for name, summary in entries.items():
            assert 0 < len(summary) <= LONGEST, f"{name}: {summary!r}"
            assert "\n" not in summary
            assert summary == summary.strip()
        assert len(set(entries.values())) == len(entries), "two entries have the same description"


def test_run_list_prints_one_line_per_entry(perdure, kinds):
    lines = perdure("run", "--list").stdout.splitlines()
    value = json.loads(perdure("run", "--list", "--json").stdout)
    assert len(lines) == sum(len(names) + 1 for names in kinds.values())
    for kind, names in kinds.items():
        first = lines.index(f"{kind}:") + 1
        for line, name in zip(lines[first : first + len(names)], sorted(names), strict=True):
            assert line.split(maxsplit=1) == [name, value[kind][name]]
