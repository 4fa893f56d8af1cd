"""The list of the papers' tables and figures: complete, in step with the pages, and every command exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perdure.base.files import read_json
from perdure.cli import app
from perdure.reproduce import TARGETS
from perdure.reproduce.bias import EXPERIMENTS
from perdure.reproduce.catalogue import MEASURED, catalogue, measured_entries, papers, section_provenance, select

PAGES = Path(__file__).parents[2] / "docs" / "results"
OTHER_TARGETS = {"clamp", "retraining", "change-detection"}
# Numbered tables and figures of each paper.
NUMBERED = {
    "shapc": {"Table": range(1, 3), "Figure": range(1, 5)},
    "bias": {"Table": range(1, 16), "Figure": range(1, 13)},
    "clamp": {"Table": range(1, 9), "Figure": range(1, 5)},
}


def mentioned(paper: str, kind: str) -> set[int]:
    """Return the numbers of the tables or figures that the items of a paper name, with ranges written out."""
    numbers: set[int] = set()
    for item in select(paper):
        for part in re.findall(rf"{kind}s? ([^;(]*)", item.items):
            for low, high in re.findall(r"(\d+)(?: to (\d+))?", part):
                numbers.update(range(int(low), int(high or low) + 1))
    return numbers


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_numbered_table_and_figure_is_listed(paper):
    for kind, numbers in NUMBERED[paper].items():
        assert mentioned(paper, kind) >= set(numbers), kind


def test_every_paper_has_items_with_an_outcome_and_a_reason():
    assert {item.paper for item in catalogue()} == set(papers())
    for item in catalogue():
        assert item.outcome in {"agrees", "differs", "not run", "measured"}
        assert (item.outcome == "measured") <= (item.paper == "perdure"), item.items
        if item.outcome in {"differs", "not run"}:
            assert item.because, item.items
        if item.outcome == "not run":
            assert item.last is None, f"{item.items}: listed as not run, but it has a page"
        elif item.command:
            assert item.last is not None, f"{item.items}: no page states when it was run"


@pytest.mark.parametrize("target", sorted({item.target for item in catalogue() if item.target}))
def test_every_command_names_a_target(target):
    assert target in {*TARGETS, *EXPERIMENTS, *OTHER_TARGETS}


def test_every_chosen_study_exists_and_the_scale_of_the_paper_is_offered_where_the_list_says_so():
    for item in catalogue():
        only = re.findall(r"--only (\S+)", item.command)
        known = TARGETS.get(item.target)
        if known is None:
            assert not item.has_paper_scale, item.items
        else:
            assert item.has_paper_scale == (known.paper_scale is not None), item.items
            assert set(only) <= set(known.studies), item.items


def test_dates_and_commits_are_those_of_the_pages():
    assert read_json(MEASURED) == measured_entries(PAGES), "run python tools/results_check.py --write"


def test_the_line_of_a_section_is_found():
    one, two = (f"Measured 2026-11-{day}, commit {day}34567abcd, Python 3.11.7." for day in (18, 19))
    page = f"# Title\n\nText\n\n## First\n\n{one}\n\n## Second (Table 1)\n\n{two}\n"
    assert str(section_provenance(page, "Second")) == two
    assert str(section_provenance(page, "")) == one
    assert section_provenance(page, "Third") is None
    assert section_provenance("# Title\n", "") is None


def test_the_list_shows_commands_needs_and_outcomes():
    result = CliRunner().invoke(app, ["reproduce", "--list", "--paper", "clamp"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    assert "perdure reproduce clamp --only published" in result.output
    assert "differs because" in result.output
    assert re.search(r"run 2026-\d\d-\d\d at commit [0-9a-f]{10}, docs/results/clamp.md", result.output)
    assert "bias-table" not in result.output


def test_the_list_as_json_has_one_entry_per_item():
    result = CliRunner().invoke(app, ["reproduce", "--list", "--json"])
    entries = json.loads(result.output)
    assert len(entries) == len(catalogue())
    entry = next(entry for entry in entries if entry["command"] == "perdure reproduce bias-instability")
    assert entry["outcome"] == "agrees"
    assert entry["small"] == {"data": "CIFAR-10", "core_hours": 1.0}
    assert set(entry["last"]) == {"date", "commit", "software"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--list", "--paper", "shap"], "unknown paper 'shap', did you mean 'shapc'?"),
        (["shapc", "--paper", "bias"], "--paper needs --list"),
        (["shapc", "--json"], "--json needs --list"),
        ([], "perdure reproduce --list shows all targets"),
    ],
)
def test_wrong_options_are_named(arguments, message):
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
