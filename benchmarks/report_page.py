"""Size of the page and time until it stands, in Chromium, for fifty records and two hundred samples in the viewer.

    python benchmarks/report_page.py

The records are made up: 25 learners with two seeds, ten tasks, with SHAPC, CLAMP and what perdure trust finds of each; the
samples have 32 x 32 pixels and maps of five learners after ten steps. Time runs from the call that opens the file: until the
page can be read and used (the load event, charts near the screen drawn), and until everything further down is drawn too.
"""

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.helpers.pages import chromium, made_up_audit, made_up_samples
from tests.helpers.trust_findings import made_up_findings

from perdure.report import write_page

REPEATS = 3


def opening(browser: Any, page_file: Path, width: int) -> tuple[float, float, float, float]:
    """Return wall and CPU seconds of the page until it is open, and until its last chart and the viewer are drawn."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    inside = page.context.new_cdp_session(page)
    inside.send("Performance.enable", {"timeDomain": "threadTicks"})
    start = time.perf_counter()
    page.goto(page_file.as_uri(), wait_until="load")
    opened, opened_cpu = time.perf_counter() - start, cpu_seconds(inside)
    page.wait_for_selector("html[data-drawn]", state="attached")
    page.wait_for_selector(".maps", state="attached")
    drawn, drawn_cpu = time.perf_counter() - start, cpu_seconds(inside)
    page.close()
    return opened, opened_cpu, drawn, drawn_cpu


def cpu_seconds(inside: Any) -> float:
    """Return the time the page's own thread has worked."""
    found = {entry["name"]: entry["value"] for entry in inside.send("Performance.getMetrics")["metrics"]}
    return float(found["TaskDuration"])


def main() -> None:
    """Write the page, open it several times and print medians."""
    names = tuple(f"learner {number}" for number in range(1, 26))
    audit = made_up_audit(names, tasks=10, seeds=2)
    audit = replace(audit, trust=tuple(made_up_findings(entry.run, entry.learner) for entry in audit.stability))
    samples = made_up_samples(names[:5], 200, steps=10, side=32)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        page_file = write_page(audit, Path(folder) / "report.html", samples)
        print(f"written in {time.perf_counter() - start:.1f} s, {page_file.stat().st_size / 1e6:.1f} MB")
        with chromium() as browser:
            for width in (1280, 390):
                times = [opening(browser, page_file, width) for _ in range(REPEATS)]
                opened, opened_cpu, drawn, drawn_cpu = (
                    statistics.median(column) for column in zip(*times, strict=True)
                )
                print(
                    f"{width} px wide: open after {opened:.2f} s (CPU {opened_cpu:.2f}), "
                    f"all drawn after {drawn:.2f} s (CPU {drawn_cpu:.2f}), medians of {REPEATS}"
                )


if __name__ == "__main__":
    main()
