"""Measure every comparison with another library, and write docs/results/benchmarks.md.

    python benchmarks/run_comparisons.py [--only NAME ...] [--fresh] [--data-dir DIR] [--shapiq-python PATH]
    python benchmarks/run_comparisons.py --list
    python benchmarks/run_comparisons.py --smoke

Finished benchmarks are rows of benchmarks/results/comparisons.jsonl and are not measured again; --fresh measures those
of --only (default: all) again. The page is computed from all rows. Comparisons whose library is missing are listed on
the page with the reason, and tried again in the next call. --smoke measures everything at the smallest size and writes
nothing.
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from comparison import Benchmark, Comparison, NotMeasured, Options, add_options, comparison_from_row, missing
from comparison_page import Section, page
from perdure.reproduce.result_rows import ResultRows, rows_provenance

ROOT = Path(__file__).parents[1]
ROWS = Path(__file__).parent / "results" / "comparisons.jsonl"
PAGE = ROOT / "docs" / "results" / "benchmarks.md"
MODULES = (
    "explain_speed",
    "estimators",
    "explain_networks",
    "shapc_audit",
    "report_charts",
    "import_time",
    "step_overhead",
    "clamp_fit",
    "metrics_speed",
    "retraining_metrics",
)
ALSO = (
    NotMeasured(
        "metrics of accuracy matrices",
        "avalanche, mammoth, continuum, CapyMOA and others",
        "their code is part of training loops; tests compare the values, not times",
    ),
    NotMeasured(
        "statistics", "SciPy, scikit-learn", "tests compare the values, not times; perdure calls both libraries"
    ),
    NotMeasured("measures of explanations", "quantus", "no benchmark exists"),
)


def benchmarks() -> list[Benchmark]:
    """Return all benchmarks that compare with another library or with plain code."""
    return [each for name in MODULES for each in importlib.import_module(name).BENCHMARKS]


def is_finished(rows: ResultRows, name: str) -> bool:
    """Return whether all rows of a benchmark are stored, and at least one of them was measured."""
    found = rows.select(benchmark=name)
    return bool(found) and len(found) == found[0]["count"] and any("reason" not in row for row in found)


def measured(benchmark: Benchmark, options: Options) -> Iterator[Comparison | NotMeasured]:
    """Yield what a benchmark measures, with a line of progress for each comparison."""
    start = time.perf_counter()
    for item in benchmark.comparisons(options):
        print(f"  {item.line()}", flush=True)
        yield item
    print(f"  {time.perf_counter() - start:.0f} s", flush=True)


def measure(chosen: Sequence[Benchmark], rows: ResultRows, options: Options) -> None:
    """Measure the benchmarks that are not finished, and store their rows."""
    for number, benchmark in enumerate(chosen, start=1):
        print(f"[{number}/{len(chosen)}] {benchmark.name}", flush=True)
        if benchmark.stored is not None:
            print("  computed from stored measurements", flush=True)
            continue
        if is_finished(rows, benchmark.name):
            print("  finished before", flush=True)
            continue
        rows.remove(benchmark=benchmark.name)
        found = list(measured(benchmark, options))
        packages = ["torch", *(package for package in benchmark.packages if not missing(package))]
        for item in found:
            rows.add({"benchmark": benchmark.name, "count": len(found), **item.row()}, packages=packages)


def sections(rows: ResultRows, options: Options) -> list[Section]:
    """Return the sections of the page, from stored rows."""
    result = []
    for benchmark in benchmarks():
        if benchmark.stored is not None:
            result.append(Section(benchmark, tuple(benchmark.comparisons(options)), benchmark.stored()))
            continue
        found = rows.select(benchmark=benchmark.name)
        complete = bool(found) and len(found) == found[0]["count"]
        items = tuple(comparison_from_row(row) for row in found) if complete else ()
        result.append(Section(benchmark, items, rows_provenance(found) if complete else None))
    return result


def smoke(chosen: Sequence[Benchmark], options: Options) -> None:
    """Measure everything at the smallest size."""
    for benchmark in chosen:
        print(benchmark.name, flush=True)
        list(measured(benchmark, options))


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of --list")
    parser.add_argument("--fresh", action="store_true", help="measure finished benchmarks again")
    parser.add_argument(
        "--list", action="store_true", help="print the names of all benchmarks and whether they are finished"
    )
    parser.add_argument("--smoke", action="store_true", help="smallest sizes, nothing is written")
    parser.add_argument("--rows", type=Path, default=ROWS, help="file of finished rows")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page is written")
    add_options(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    everything = benchmarks()
    unknown = sorted(set(arguments.only or ()) - {each.name for each in everything})
    if unknown:
        parser.error(f"--only: unknown {', '.join(unknown)}; expected names of --list")
    if arguments.shapiq_python is not None and not Path(arguments.shapiq_python).exists():
        parser.error(f"--shapiq-python: {arguments.shapiq_python} does not exist")
    chosen = [each for each in everything if not arguments.only or each.name in arguments.only]
    options = Options(arguments.smoke, arguments.data_dir, arguments.shapiq_python)
    with threadpool_limits(1):
        if arguments.smoke:
            smoke(chosen, options)
            return
        rows = ResultRows(arguments.rows)
        if arguments.list:
            for each in everything:
                state = "stored" if each.stored else "finished" if is_finished(rows, each.name) else "to measure"
                print(f"{each.name:20} {state:11} {each.title}")
            return
        if arguments.fresh:
            for each in chosen:
                rows.remove(benchmark=each.name)
        measure(chosen, rows, options)
        arguments.page.write_text(page(sections(rows, options), ALSO), encoding="utf-8")
    print(f"perdure {version('perdure')}: {arguments.page}")


if __name__ == "__main__":
    main()
