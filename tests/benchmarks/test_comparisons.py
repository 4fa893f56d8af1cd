"""Comparisons with other libraries: each runs at the smallest size, rows are resumed, and the page shows what rows hold."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from dataclasses import replace

import pytest

import comparison_page
import run_comparisons
from comparison import (
    ERROR,
    SAME_ERROR,
    Benchmark,
    Comparison,
    NotMeasured,
    Options,
    Side,
    comparison_from_row,
    our_side,
)
from perdure.reproduce.provenance import read_provenance
from perdure.reproduce.result_rows import ResultRows, rows_provenance


def check(benchmark: Benchmark) -> None:
    items = list(benchmark.comparisons(Options(smoke=True)))
    compared = [item for item in items if isinstance(item, Comparison)]
    reasons = [item.reason for item in items if isinstance(item, NotMeasured)]
    assert compared or (reasons and all("not installed" in reason for reason in reasons)), reasons
    for item in compared:
        assert math.isfinite(item.ratio)
        assert item.ratio > 0
        for side in (item.ours, item.other):
            assert math.isfinite(side.value)
            assert side.value > 0
            assert re.search(r" \d+\.\d", side.version), side.version
        assert comparison_from_row(json.loads(json.dumps(item.row()))) == item


@pytest.mark.extra
@pytest.mark.parametrize("module", [name for name in run_comparisons.MODULES if name != "report_charts"])
def test_every_comparison_runs_at_its_smallest_size(module):
    for benchmark in importlib.import_module(module).BENCHMARKS:
        check(benchmark)


@pytest.mark.slow
def test_the_comparison_of_charts_runs_with_packages_from_npm():
    for benchmark in importlib.import_module("report_charts").BENCHMARKS:
        check(benchmark)


def side(value, name="`Peer`", version="library 1.2.3", **known):
    return Side(name, version, value, **known)


WON = Comparison("maps", SAME_ERROR, our_side("`ours`", 0.25, seconds=0.25, error=0.1, evaluations=590), side(6.75))
LOST = Comparison("sums", ERROR, our_side("`ours`", 0.4), side(0.1, evaluations=12_345))
LOST_TIME = Comparison("sums", SAME_ERROR, our_side("`ours`", 8.0), side(2.0))
BOUND = Comparison("trees", SAME_ERROR, our_side("`ours`", 2.0), side(1.0), bound="at least")
ABSENT = NotMeasured("charts", "plots", "plots is not installed")


def benchmark(name, items, calls=None, plain=False):
    def comparisons(options):
        if calls is not None:
            calls.append(name)
        yield from items

    return Benchmark(name, name.title(), f"How {name} was measured.", comparisons, plain=plain)


def table_rows(text):
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Return a function that runs the driver on some benchmarks and returns its page and its rows."""

    def run(benchmarks, *arguments):
        monkeypatch.setattr(run_comparisons, "benchmarks", lambda: benchmarks)
        rows, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
        monkeypatch.setattr(sys, "argv", ["run_comparisons.py", f"--rows={rows}", f"--page={page}", *arguments])
        run_comparisons.main()
        return page.read_text(), ResultRows(rows)

    return run


def test_the_page_shows_the_numbers_of_the_rows_and_a_loss_as_a_loss(bench):
    page, rows = bench([benchmark("first", [WON, LOST, LOST_TIME, BOUND]), benchmark("second", [ABSENT])])
    summary, sections = page.split("\n## First")
    cells = {row[0]: row for row in table_rows(summary)}
    assert cells["maps"] == ["maps", "`ours`", "`Peer`", "library 1.2.3", "CPU time 27", "perdure"]
    assert cells["sums"][-2:] == ["error 0.25; CPU time 0.25", "**`Peer`**"]
    assert cells["trees"][-2:] == ["CPU time ≥ 0.5", "undecided"]
    assert "Of 3 comparisons with another library, perdure is better in 1." in summary
    assert "better by at least one quantity in 1: `Peer` (sums)" in summary
    body = table_rows(sections.split("## Not measured")[0])
    assert [row[0] for row in body[2:]] == ["maps", "sums", "trees"]
    maps, sums = body[2], body[3]
    assert {"0.25 / 6.75", "**27**", "0.1 / –", "590 / –"} <= set(maps)
    assert {"0.4 / 0.1", "**0.25**", "8 / 2", "– / 12,345"} <= set(sums)
    assert "| charts | plots | plots is not installed |" in page
    (stated,) = read_provenance(page)
    assert stated == rows_provenance(rows.select(benchmark="first"))
    assert "How first was measured." in sections


def test_plain_code_is_not_counted_as_a_library(bench):
    page, _ = bench([benchmark("first", [WON]), benchmark("loop", [LOST], plain=True)])
    assert "Of 1 comparisons with another library, perdure is better in 1." in page
    assert "Compared with plain code" in page
    assert "error: **`Peer`**" in page  # the error alone does not tell which side is faster


def test_finished_benchmarks_are_not_measured_again(bench):
    calls: list[str] = []
    both = [benchmark("first", [WON, LOST], calls), benchmark("second", [LOST, ABSENT], calls)]
    page, _ = bench(both, "--only", "first")
    assert calls == ["first"]
    assert "run_comparisons.py --only second" in page
    bench(both)
    bench(both)
    assert calls == ["first", "second"]
    _, rows = bench(both, "--only", "second", "--fresh")
    assert calls == ["first", "second", "second"]
    assert len(rows.rows) == 4


def test_what_could_not_be_measured_and_what_was_interrupted_is_measured_in_the_next_call(bench):
    calls: list[str] = []
    absent = [benchmark("first", [ABSENT], calls)]
    bench(absent)
    _, rows = bench(absent)
    assert calls == ["first", "first"]
    assert len(rows.rows) == 1
    _, rows = bench([benchmark("first", [WON, LOST], calls)])
    assert len(calls) == 3
    rows.file.write_text(rows.file.read_text().splitlines(keepends=True)[0])  # the second row was not written
    page, rows = bench([benchmark("first", [WON, LOST], calls)])
    assert len(calls) == 4
    assert [row["task"] for row in rows.rows] == ["maps", "sums"]
    assert "sums" in page


def test_unknown_names_are_refused(bench, capsys):
    with pytest.raises(SystemExit):
        bench([benchmark("first", [WON])], "--only", "frist")
    assert "unknown frist" in capsys.readouterr().err


def test_the_smoke_version_writes_nothing(bench, tmp_path):
    with pytest.raises(FileNotFoundError):
        bench([benchmark("first", [WON])], "--smoke")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ratio", "bound", "expected"),
    [
        (2.0, "", "perdure"),
        (0.5, "", "other"),
        (1.05, "", "equal"),
        (0.95, "", "equal"),
        (2.0, "at least", "perdure"),
        (2.0, "at most", "unknown"),
        (0.5, "at most", "other"),
        (0.5, "at least", "unknown"),
        (1.0, "at least", "unknown"),
    ],
)
def test_a_bound_decides_only_in_its_direction(ratio, bound, expected):
    assert comparison_page.better(replace(WON, ratio=ratio, bound=bound)) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [(65536, "65,536"), (9486.2, "9,490"), (27.04, "27"), (0.0374, "0.0374"), (4.02e6, "4.0e+06"), (1e-8, "1.0e-08")],
)
def test_numbers_have_three_digits(value, text):
    assert comparison_page.number(value) == text
