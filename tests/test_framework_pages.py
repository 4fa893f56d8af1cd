"""The pages on other frameworks: every command works as it is printed, and the tables agree with the code."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from perdure.importers import IMPORTERS
from perdure.metrics.framework_metrics import FRAMEWORK_METRICS

ROOT = Path(__file__).parents[1]
PLUGINS = ("avalanche-plugin", "huggingface", "lightning")
"""Pages of plug-ins; their examples are run by the tests of the plug-ins."""
PAGES = sorted(page for page in (ROOT / "docs" / "frameworks").glob("*.md") if page.stem not in PLUGINS)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def normalised(text: str) -> str:
    return " ".join(text.split())


def test_there_is_a_page_for_each_reader():
    names = {re.sub(r"-(csv|metrics)$", "", name) for name in IMPORTERS.names()}
    assert {page.stem for page in PAGES} == {"tables" if name == "table" else name for name in names}
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    scoring = (ROOT / "docs" / "scoring.md").read_text(encoding="utf-8")
    for page in PAGES:
        assert f"frameworks/{page.name}" in index
        assert f"frameworks/{page.name}" in scoring


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_work_and_print_what_it_says(perdure, tmp_path, monkeypatch, page):
    monkeypatch.setenv("COLUMNS", "200")
    shutil.copytree(ROOT / "tests/data/frameworks", tmp_path / "tests/data/frameworks")
    commands = [line for block in blocks(page, "sh") for line in block.splitlines() if line]
    assert commands
    printed = ""
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "perdure"
        printed += perdure(*arguments).stdout
    expected = [line for block in blocks(page, "text") for line in block.splitlines() if line]
    assert expected
    for line in expected:
        assert normalised(line) in normalised(printed)


def test_the_table_of_forgetting_and_bwt_names_our_metrics():
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    section = page.split("### Forgetting and BWT of each framework")[1].split("\n## ")[0]
    rows = {
        tuple(cell.strip().strip("`") for cell in line.strip("|").split("|"))
        for line in section.splitlines()
        if "|" in line
    }
    stated = {(row[0], row[1]): row[3] for row in rows if len(row) == 4}
    wanted = {"forgetting", "backward_transfer", "Forgetting", "forg", "StreamForgetting", "StreamBWT"}
    for framework, names in FRAMEWORK_METRICS.items():
        for name, ours in names.items():
            if name in wanted:
                assert stated[framework, name] == ours
