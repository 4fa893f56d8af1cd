"""LaTeX tables fit the text width: computed from the widths of characters, and compiled where LaTeX is installed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.audits import Interval
from perdure.exporters import export
from perdure.exporters.exported_tables import exported_tables
from perdure.exporters.formats.latex import TEXT_WIDTH, column_widths, fitted_tables, text_width
from perdure.exporters.tables import Table
from tests.helpers.pages import HOSTILE, synthetic_audit


@pytest.fixture(scope="module")
def audit():
    return synthetic_audit(("rehearsal", HOSTILE, "naive", "ewc"), tasks=12)


def total_width(part: Table, keys: int) -> float:
    return sum(column_widths(part, keys)) + 12 * len(part.header)


def test_every_part_of_every_table_fits_the_text_width(audit):
    for table in exported_tables(audit):
        for part, keys in fitted_tables(table):
            assert total_width(part, keys) <= TEXT_WIDTH, table.name


def test_no_cell_is_lost(audit):
    for table in exported_tables(audit):
        parts = [part for part, _ in fitted_tables(table)]
        cells = {str(cell) for part in parts for row in (part.header, *part.rows) for cell in row}
        assert {str(cell) for row in (table.header, *table.rows) for cell in row} <= cells


@given(
    names=st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=6),
    columns=st.integers(1, 30),
    rows=st.integers(1, 6),
)
def test_any_table_fits(names, columns, rows):
    header = ("learner", *(names[index % len(names)] for index in range(columns)))
    body = tuple(
        (names[row % len(names)], *(Interval(-0.5, -0.75, -0.25, 2, "t") for _ in range(columns)))
        for row in range(rows)
    )
    for part, keys in fitted_tables(Table("t", "title", header, body)):
        assert total_width(part, keys) <= TEXT_WIDTH
        assert len(part.header) > keys


def test_the_measures_are_transposed_and_split_by_learner(audit, tmp_path):
    export(audit, "latex", tmp_path)
    text = (tmp_path / "measures.tex").read_text()
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") > 1
    assert "part 1 of" in text
    naive = next(entry for entry in audit.learners if entry.learner == "naive").measures["forgetting"]
    rows = [line for line in text.splitlines() if line.startswith(r"forgetting $\downarrow$ & ")]
    assert len(rows) == text.count(r"\begin{tabular}")
    assert any(f"{naive.mean:.3f} [{naive.low:.3f}, {naive.high:.3f}]" in row for row in rows)
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert body.isascii()  # pdflatex needs no further package


def test_a_table_that_fits_is_not_changed():
    table = Table("t", "title", ("learner", "A ↑"), (("naive", 0.5), ("ewc", 0.75)))
    assert fitted_tables(table) == [(table, 1)]


def test_text_widths_are_those_of_computer_modern():
    assert text_width("0.812") == pytest.approx(4 * 5.0 + 2.78)
    assert text_width("Wi") == pytest.approx(10.28 + 2.78)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles_the_tables_without_overfull_lines(audit, tmp_path):
    files = [Path(path).name for path in export(audit, "latex", tmp_path)]
    inputs = "\n".join(rf"\noindent\input{{{name}}}\newpage" for name in files)
    page = rf"\documentclass{{article}}\usepackage{{array,booktabs}}\begin{{document}}{inputs}\end{{document}}"
    (tmp_path / "all.tex").write_text(page)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert re.findall(r"Overfull \\hbox.*", done.stdout) == []
