"""Size of the report and time until it is usable in Chromium, for 50 records and 200 examples in the viewer.

    python benchmarks/report_page.py

The records are synthetic: 25 learners with two seeds and ten tasks, each with SHAPC, CLAMP and the results of perdure trust.
The examples have 32 x 32 pixels and maps of five learners after ten steps. Times are measured from opening the file until the
page is usable (the load event, with the charts near the screen drawn), and until all charts and the viewer are drawn.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.helpers.pages import chromium, synthetic_audit, synthetic_examples
from tests.helpers.trust_findings import synthetic_findings

from perdure.report import write_page

REPEATS = 3


def opening_times(browser: Any, page_file: Path, width: int) -> tuple[float, float, float, float]:
    """Return wall and CPU seconds until the page is loaded, and until all charts and the viewer are drawn."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    start = time.perf_counter()
    page.goto(page_file.as_uri(), wait_until="load")
    opened, opened_cpu = time.perf_counter() - start, cpu_seconds(session)
    page.wait_for_selector("html[data-drawn]", state="attached")
    page.wait_for_selector(".maps", state="attached")
    drawn, drawn_cpu = time.perf_counter() - start, cpu_seconds(session)
    page.close()
    return opened, opened_cpu, drawn, drawn_cpu


def cpu_seconds(session: Any) -> float:
    """Return the CPU seconds of the page's main thread."""
    metrics = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
    return float(metrics["TaskDuration"])


def main() -> None:
    """Write the page, open it repeatedly and print median times."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    names = tuple(f"learner {number}" for number in range(1, 26))
    audit = synthetic_audit(names, tasks=10, seeds=2)
    audit = replace(audit, trust=tuple(synthetic_findings(entry.run, entry.learner) for entry in audit.shapc))
    examples = synthetic_examples(names[:5], 200, steps=10, side=32)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        page_file = write_page(audit, Path(folder) / "report.html", examples)
        print(f"written in {time.perf_counter() - start:.1f} s, {page_file.stat().st_size / 1e6:.1f} MB")
        with chromium() as browser:
            for width in (1280, 390):
                times = [opening_times(browser, page_file, width) for _ in range(REPEATS)]
                opened, opened_cpu, drawn, drawn_cpu = (
                    statistics.median(column) for column in zip(*times, strict=True)
                )
                print(
                    f"{width} px wide: open after {opened:.2f} s (CPU {opened_cpu:.2f}), "
                    f"all drawn after {drawn:.2f} s (CPU {drawn_cpu:.2f}), medians of {REPEATS}"
                )


if __name__ == "__main__":
    main()
