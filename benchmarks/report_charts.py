"""The report's charts drawn by our scripts, by Observable Plot and by uPlot: size, time, DOM nodes and what readers get.

    python benchmarks/report_charts.py

All three draw the same data in the same Chromium with the report's style sheet and content security policy: average accuracy
with interval bands, accuracy on each task, accuracy matrices, and one measure with runs and intervals. Only the functions that
draw panels differ: ours are in src/perdure/report/scripts/panels.js, those of the libraries in benchmarks/charts/. Selection of
data, legends, tables and downloads are the report's own code in all three. The libraries are fetched from npm into a temporary
folder. Without npm, Chromium or playwright, the benchmark is skipped.

Times are medians, from the first statement of drawing until the frame is laid out and painted on the main thread. The three
take turns, so that a change of load affects all of them. Results: docs/results/report-charts.md.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import itertools
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.helpers.pages import CHROMIUM, chromium, synthetic_runs

from comparison import Benchmark, Comparison, NotMeasured, Options, Side, our_side
from perdure.audits import audit_runs
from perdure.report.chart_data import page_data
from perdure.report.page import SCRIPTS, asset_text, content_security_policy, page_environment

PACKAGES = ("@observablehq/plot@0.6.17", "d3@7.9.0", "uplot@1.6.32", "esbuild@0.28.2")
LEARNERS = (4, 13, 50)
TASKS, SEEDS, REPEATS = 10, 2, 7
CODE = Path(__file__).parent / "charts"
SHARED = ("drawing", "charts", "figures")  # used with every library
CHARTS = {  # id: (kind, title, attributes, menus), as in page.html.j2
    "average-accuracy": ("progress", "Average accuracy", 'data-measure="average_accuracy"', ()),
    "accuracy-by-task": ("tasks", "Accuracy on each task", "", ()),
    "accuracy-matrix": ("matrices", "Accuracy matrix", "", ()),
    "runs-compared": ("seeds", "One measure", "", [("measure", "Measure", [("average_accuracy", "accuracy")])]),
}
# Functions of ours that a library replaces in these four charts; menus, legends, tables and downloads stay.
REPLACED = {
    "panels": ("frame", "linePanel", "seriesGroup", "heatPanel", "dotPanel"),
    "drawing": ("scale", "canvas", "ticks"),
}
FIGURES = """{% from "parts.html.j2" import chart %}
{% for id, (kind, title, extra, choices) in charts.items() %}
{{ chart(kind, id, title, "0 to 1", "", extra|safe, choices) }}
{% endfor %}"""
# Records violations of the policy, and what is drawn on canvases: dash patterns and the outlines of small filled shapes.
PROBE = """window.violations = [];
addEventListener("securitypolicyviolation", (event) => violations.push(`${event.effectiveDirective} ${event.blockedURI}`));
window.dashes = new Set();
window.outlines = new Set();
const outline = new WeakMap();
for (const name of ["arc", "rect", "lineTo"]) {
  const original = Path2D.prototype[name];
  Path2D.prototype[name] = function (...at) { outline.set(this, (outline.get(this) ?? "") + name); original.apply(this, at); };
}
const { setLineDash, fill } = CanvasRenderingContext2D.prototype;
Object.assign(CanvasRenderingContext2D.prototype, {
  setLineDash(dash) { dashes.add(dash.join(" ")); setLineDash.call(this, dash); },
  fill(path, ...rest) { if (outline.get(path)?.length < 25) outlines.add(outline.get(path)); fill.call(this, path, ...rest); },
});"""
FEATURES = """() => {
  const panels = [...document.querySelectorAll(".panels > *")];
  const inside = (selector) => [...document.querySelectorAll(`.panels :is(${selector})`)];
  const pixels = (text) => parseFloat(getComputedStyle(text).fontSize)
    * text.ownerSVGElement.getBoundingClientRect().width / text.ownerSVGElement.viewBox.baseVal.width;
  for (const line of inside("[stroke-dasharray]")) dashes.add(line.getAttribute("stroke-dasharray"));
  for (const mark of inside(".mark, .mark *"))
    if (!/^(g|title)$/.test(mark.tagName)) outlines.add(mark.tagName + (mark.getAttribute("d") ?? "").replace(/[^a-z]/gi, ""));
  return {
    panels: panels.length,
    named: panels.filter((panel) => panel.getAttribute("role") === "img" && panel.getAttribute("aria-label")).length,
    tooltips: inside("title").length,
    focusable: inside("[tabindex], a[href], button").length,
    dashes: [...dashes].filter((dash) => dash && dash !== "1 4").length, // 1 4: the reference
    outlines: outlines.size,
    animations: document.getAnimations().length,
    fits: document.documentElement.scrollWidth <= innerWidth,
    smallest: Math.min(...inside("text").filter((text) => text.textContent).map(pixels)),
  };
}"""
# The colors of texts and marks that depend on the theme, and the pixels of canvases.
PAINT = """[...document.querySelectorAll(".panels :is(text:not(.number, .number *), .series :is(path, circle, rect), canvas)")]
  .map((element) => element.toDataURL?.() ?? getComputedStyle(element).stroke + getComputedStyle(element).fill)"""


@dataclass
class Variant:
    """One way to draw the charts: its panel code, its library, and what was measured."""

    name: str
    panels: str
    library: str = ""
    style: str = ""
    charts: tuple[str, ...] = tuple(CHARTS)
    script: str = ""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)  # part of the script: bytes, gzipped bytes
    lines: int = 0
    milliseconds: dict[tuple[int, str], float] = field(default_factory=dict)
    opening: dict[int, float] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)
    features: dict[str, str] = field(default_factory=dict)


class Bundler:
    """esbuild in a folder with the libraries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self) -> str:
        """Fetch the packages; return the reason if this fails."""
        command = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES]
        (self.folder / "package.json").write_text("{}")
        fetched = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        return "" if fetched.returncode == 0 else f"npm cannot fetch {', '.join(PACKAGES)}"

    def run(self, code: str, *options: str) -> str:
        """Return minified code."""
        command = [
            "node_modules/.bin/esbuild",
            "--minify",
            "--charset=utf8",
            "--log-level=error",
            "--loader=js",
            *options,
        ]
        done = subprocess.run(command, input=code, cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout

    def bundle(self, code: str) -> str:
        """Return code for a page, with the parts of the libraries that it uses."""
        return self.run(code, "--bundle", "--format=iife", "--target=es2022")

    def text(self, path: str) -> str:
        """Return the text of a library's file."""
        return (self.folder / "node_modules" / path).read_text()


def script(name: str) -> str:
    """Return one of the report's scripts."""
    return asset_text(f"scripts/{name}.js")


def replaced_code() -> str:
    """Return our functions that a library replaces."""
    return "\n".join(
        match.group()
        for name, functions in REPLACED.items()
        for match in re.finditer(r"^function (\w+)\(.*?^}\n", script(name), re.DOTALL | re.MULTILINE)
        if match.group(1) in functions
    )


def code_lines(code: str) -> int:
    """Return the number of lines that are neither empty nor only a comment."""
    return sum(bool(line.strip()) and not line.strip().startswith(("//", "/*")) for line in code.splitlines())


def size(text: str) -> tuple[int, int]:
    """Return bytes and gzipped bytes."""
    return len(text.encode()), len(gzip.compress(text.encode(), 9))


def variants(bundler: Bundler) -> list[Variant]:
    """Return the three ways to draw with their minified scripts and sizes."""
    plot, uplot = (CODE / "plot.js").read_text(), (CODE / "uplot.js").read_text()
    without_matrices = tuple(id_ for id_ in CHARTS if id_ != "accuracy-matrix")
    ways = [
        Variant("ours", script("panels")),
        Variant("Plot", plot, "@observablehq/plot", (CODE / "plot.css").read_text()),
        Variant("uPlot", uplot, "uplot", bundler.text("uplot/dist/uPlot.min.css"), without_matrices),
    ]
    shared = "\n".join(script(name) for name in SHARED)
    harness = (CODE / "harness.js").read_text()
    for way in ways:
        way.script = bundler.bundle(f"{way.panels}\n{shared}\n{harness}")
        imports, own = split_imports(way.panels if way.library else replaced_code())
        way.lines = code_lines(own) + (code_lines(way.style) if way.name == "Plot" else 0)
        way.sizes["panel code"] = size(bundler.run(own))
        way.sizes["library"] = size(bundler.bundle(exported(imports))) if way.library else (0, 0)
        way.sizes["style"] = size(way.style) if way.style else (0, 0)
    ways[0].sizes["all scripts, as shipped"] = size("\n".join(script(name) for name in SCRIPTS))
    ways[0].sizes["all scripts"] = size(bundler.run(f"(() => {{{''.join(script(name) for name in SCRIPTS)}}})();"))
    ways[1].sizes["library, complete"] = size(bundler.bundle('export * from "@observablehq/plot"'))
    return ways


def split_imports(code: str) -> tuple[str, str]:
    """Return the import statement and the rest."""
    imports = "\n".join(re.findall(r"^import .*?;$", code, re.DOTALL | re.MULTILINE))
    return imports, code.replace(imports, "")


def exported(imports: str) -> str:
    """Return a module that keeps the imported names, so that the bundle holds what the panel code needs."""
    names = re.findall(r"\w+", imports.split("from", maxsplit=1)[0])[1:]
    return f"{imports}\nglobalThis.kept = [{', '.join(names)}];"


def write_chart_page(way: Variant, data: dict[str, Any], path: Path, extra_style: str = "") -> Path:
    """Write a page with the four charts under the report's policy; ``extra_style``: an inline style that it also allows."""
    figures = page_environment().from_string(FIGURES).render(charts={id_: CHARTS[id_] for id_ in way.charts})
    style = asset_text("style.css") + way.style
    policy = content_security_policy(style, way.script)
    if extra_style:
        digest = base64.b64encode(hashlib.sha256(extra_style.encode()).digest()).decode()
        policy = policy.replace("style-src ", f"style-src 'sha256-{digest}' ")
    path.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>'
        f"<body><main>{figures}</main>"
        f'<script type="application/json" id="audit-data">{json.dumps(data, allow_nan=False)}</script>'
        f"<script>{way.script}</script></body></html>"
    )
    return path


def opened(browser: Any, path: Path, width: int = 1280, probe: bool = False) -> Any:
    """Return the opened page; an error in its script stops the benchmark."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="light", reduced_motion="reduce")
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    if probe:
        page.add_init_script(PROBE)
    page.goto(path.as_uri(), wait_until="load")
    if errors:
        raise RuntimeError(f"{path.name}: {errors[0]}")
    return page


def measure_times(
    browser: Any, ways: list[Variant], files: dict[str, Path], learners: int, repeats: int = REPEATS
) -> None:
    """Time opening the pages and drawing each chart; the variants take turns."""
    pages = {way.name: opened(browser, files[way.name]) for way in ways}
    opening: dict[str, list[float]] = {way.name: [] for way in ways}
    drawing: dict[tuple[str, str], list[float]] = {(way.name, id_): [] for way in ways for id_ in way.charts}
    for _, way in itertools.product(range(repeats), ways):
        page = pages[way.name]
        page.bring_to_front()
        page.evaluate("id => timeDrawing(id)", way.charts[0])  # not counted: the page also has to come to the front
        for id_ in way.charts:
            drawing[way.name, id_].append(page.evaluate("id => timeDrawing(id)", id_))
    for _, way in itertools.product(range(3), ways):
        page = pages[way.name]
        page.bring_to_front()
        page.reload(wait_until="load")
        timing = "(({ loadEventStart, responseEnd }) => loadEventStart - responseEnd)"
        opening[way.name].append(page.evaluate(f"{timing}(performance.getEntriesByType('navigation')[0])"))
    for way in ways:
        way.opening[learners] = statistics.median(opening[way.name])
        way.nodes[learners] = pages[way.name].evaluate("document.querySelectorAll('.panels *').length")
        for id_ in way.charts:
            way.milliseconds[learners, id_] = statistics.median(drawing[way.name, id_])
        pages[way.name].close()


def check_features(browser: Any, way: Variant, data: dict[str, Any], path: Path) -> None:
    """Find out what readers get, by using the page."""
    page = opened(browser, path, probe=True)
    counts = page.evaluate(FEATURES)
    broken = sorted(set(page.evaluate("violations")))
    blocked = len(page.evaluate("violations"))
    page.evaluate(
        "window.changes = 0; new MutationObserver((records) => { changes += records.length; })"
        ".observe(document.querySelector('main'), { subtree: true, childList: true, attributes: true })"
    )
    page.wait_for_timeout(200)
    moving = page.evaluate("changes") + counts["animations"]
    light = page.evaluate(PAINT)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    dark = page.evaluate(PAINT)
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    images = page.pdf().count(b"/Subtype /Image")
    files = {kind: download(page, kind) for kind in ("svg", "png", "csv")}
    shapes = r"<(?:path|circle|rect)\b"
    in_legend = page.evaluate("document.querySelectorAll('#average-accuracy .legend :is(path, circle, rect)').length")
    marks = len(re.findall(shapes, files["svg"].decode())) - in_legend - 1  # 1: the background
    page.locator("#average-accuracy .key").first.click()
    highlighted = page.locator("#average-accuracy .series.chosen").count()
    page.locator("#average-accuracy summary").press("Enter")
    page.wait_for_function("document.querySelector('#average-accuracy details table')", timeout=5000)
    rows = page.locator("#average-accuracy details tbody tr").count()
    narrow = opened(browser, path, width=390, probe=True)
    phone = narrow.evaluate(FEATURES)
    code = len(re.findall(r"new Function\(|\beval\(", way.script))
    way.features = {
        "policy violations": f"{blocked} ({', '.join(broken)})" if blocked else "0",
        "`eval` or `new Function` in the code": str(code),
        "recolored by the theme without redrawing": share(
            sum(a != b for a, b in zip(light, dark, strict=True)), len(light)
        ),
        "panels with an accessible name": share(counts["named"], counts["panels"]),
        "marks with a tooltip": str(counts["tooltips"]),
        "marks in the keyboard order": str(counts["focusable"]),
        "images in the printed PDF (0: vector)": str(images),
        "SVG download, marks": str(max(0, marks)),
        "PNG download shows the chart": "yes" if marks > 0 and files["png"].startswith(b"\x89PNG") else "no",
        "CSV download, rows": str(files["csv"].count(b"\n")),
        "rows of the data table, opened by keyboard": str(rows),
        "groups of marks highlighted by the legend": str(highlighted),
        "dash patterns beside solid, 13 learners": str(counts["dashes"]),
        "marker shapes": str(counts["outlines"]),
        "changes after drawing (animation)": str(moving),
        "fits 390 px": "yes" if phone["fits"] else "no",
    }
    if way.name == "Plot":
        style = page.evaluate("document.querySelector('.panels style').textContent")
        allowed = write_chart_page(way, data, path.with_suffix(".allowed.html"), extra_style=style)
        second = opened(browser, allowed, probe=True)
        way.features["policy violations"] += (
            f"; {len(second.evaluate('violations'))} if the policy has the hash of its style"
        )
        second.close()
    narrow.close()
    page.close()


def share(part: int, whole: int) -> str:
    """Return a count as text."""
    return f"{part} of {whole}"


def download(page: Any, kind: str) -> bytes:
    """Return the file that a download button of the first chart saves."""
    with page.expect_download() as waiting:
        page.locator(f"#average-accuracy button[data-save={kind}]").click()
    return Path(waiting.value.path()).read_bytes()


def table(ways: list[Variant]) -> str:
    """Return all measurements as one Markdown table; ratios are relative to ours."""
    ours, plot, uplot = ways
    rows: list[list[str]] = []

    def add(name: str, numbers: list[float | None], unit: str, digits: int = 0) -> None:
        cells = ["–" if number is None else f"{number:,.{digits}f}{unit}" for number in numbers]
        ratios = ["–" if number is None or not numbers[0] else f"{number / numbers[0]:.2f}" for number in numbers[1:]]
        rows.append([name, *cells, *ratios])

    for index, name in enumerate(("minified", "gzipped")):
        added = [sum(way.sizes[part][index] for part in ("library", "panel code", "style")) / 1e3 for way in ways]
        add(f"JavaScript and styles that draw the panels, {name}", [*added], " kB", 1)
        add(f"of these, the library, {name}", [way.sizes["library"][index] / 1e3 for way in ways], " kB", 1)
        whole = ours.sizes["all scripts"][index] / 1e3
        add(f"all scripts of the report, {name}", [whole - added[0] + number for number in added], " kB", 1)
    add("own code of these panels, minified", [way.sizes["panel code"][0] / 1e3 for way in ways], " kB", 1)
    add("own code of these panels, lines", [way.lines for way in ways], "")
    for learners in LEARNERS:
        for id_ in CHARTS:
            times = [way.milliseconds.get((learners, id_)) for way in ways]
            add(f"{CHARTS[id_][1].lower()}, {learners} learners", times, " ms", 1)
        common = [sum(way.milliseconds[learners, id_] for id_ in uplot.charts) for way in ways]
        add(f"the three charts that all can draw, {learners} learners", [*common], " ms", 1)
        four = [sum(way.milliseconds[learners, id_] for id_ in CHARTS) for way in (ours, plot)]
        add(f"all four charts, {learners} learners", [*four, None], " ms", 1)
        add(
            f"open the page with four charts, {learners} learners",
            [ours.opening[learners], plot.opening[learners], None],
            " ms",
            1,
        )
        add(f"DOM nodes in the panels, {learners} learners", [way.nodes[learners] for way in ways], "")
    rows += [[name, *(way.features[name] for way in ways), "", ""] for name in ours.features]
    head = ["", *(way.name for way in ways), "Plot / ours", "uPlot / ours"]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


@dataclass
class Measured:
    """The three ways to draw, and the version of Chromium."""

    ways: list[Variant]
    chromium: str


def unavailable() -> str:
    """Return why the charts cannot be compared here."""
    tools = {"npm": shutil.which("npm"), "Chromium": CHROMIUM, "playwright": find_spec("playwright")}
    absent = [name for name, found in tools.items() if found is None]
    return f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed" if absent else ""


def measure(counts: Sequence[int], repeats: int, features_at: int | None) -> Measured | str:
    """Return sizes and times with each number of learners, and the features with one of them; or why nothing was measured."""
    if reason := unavailable():
        return reason
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
        bundler = Bundler(folder)
        if reason := bundler.install():
            return reason
        ways = variants(bundler)
        for learners in counts:
            names = tuple(f"learner {number}" for number in range(1, learners + 1))
            data = page_data(audit_runs(synthetic_runs(names, tasks=TASKS, seeds=SEEDS)))
            files = {way.name: write_chart_page(way, data, folder / f"{way.name}-{learners}.html") for way in ways}
            measure_times(browser, ways, files, learners, repeats)
            if learners == features_at:
                for way in ways:
                    check_features(browser, way, data, files[way.name])
        return Measured(ways, browser.version)


def chart_comparisons(measured: Measured, learners: int) -> Iterator[Comparison]:
    """Compare the time and size of the charts that all three can draw with those of the libraries."""
    ours, *others = measured.ways
    common = [id_ for id_ in CHARTS if all(id_ in way.charts for way in measured.ways)]
    versions = dict(package.removeprefix("@").rsplit("@", 1) for package in PACKAGES)
    for way in others:
        version = f"{way.library} {versions[way.library.removeprefix('@')]}"
        times = [max(sum(each.milliseconds[learners, id_] for id_ in common), 0.1) for each in (ours, way)]
        yield Comparison(
            f"drawing {len(common)} charts of the report, {learners} learners",
            "wall milliseconds",
            our_side("scripts of the report", times[0]),
            Side(way.name, version, times[1]),
            note=f"Chromium {measured.chromium}",
        )
        sizes = [sum(each.sizes[part][1] for part in ("library", "panel code", "style")) / 1e3 for each in (ours, way)]
        yield Comparison(
            "code that draws the charts of the report, minified and gzipped",
            "kB",
            our_side("scripts of the report", sizes[0]),
            Side(way.name, version, sizes[1]),
            note="" if way.charts == ours.charts else "without accuracy matrices",
        )


def chart_benchmark(options: Options) -> Iterator[Comparison | NotMeasured]:
    """Yield the comparisons with both libraries."""
    learners = LEARNERS[0] if options.smoke else LEARNERS[1]
    measured = measure((learners,), 1 if options.smoke else REPEATS, None)
    if isinstance(measured, str):
        yield NotMeasured("charts of the report", "Observable Plot, uPlot", measured)
    else:
        yield from chart_comparisons(measured, learners)


BENCHMARKS = (
    Benchmark(
        "report-charts",
        "Charts of the report",
        """The same charts in the same Chromium; medians of seven drawings, the three take turns. A drawing ends when
the frame is painted on the main thread. The size is that of what draws the panels, with the parts of the library that
they use. Other numbers of learners and what readers get: [charts of the report](report-charts.md).""",
        chart_benchmark,
    ),
)


def main() -> None:
    """Fetch the libraries, write the pages, measure, and print one table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    measured = measure(LEARNERS, REPEATS, LEARNERS[1])
    if isinstance(measured, str):
        print(f"skipped: {measured}")
        return
    ways = measured.ways
    print(f"{', '.join(PACKAGES)}; Chromium {measured.chromium}; {TASKS} tasks, {SEEDS} seeds, medians of {REPEATS}\n")
    print(table(ways))
    everything = sum(code_lines(script(file)) for file in SCRIPTS)
    print(f"\nlines of our scripts: {everything}; a library replaces {ways[0].lines} of them in these charts")
    shipped, complete = ways[0].sizes["all scripts, as shipped"], ways[1].sizes["library, complete"]
    print(f"ours as shipped, not minified: {shipped[0] / 1e3:.1f} kB, gzipped {shipped[1] / 1e3:.1f} kB")
    print(f"Plot with all its marks: {complete[0] / 1e3:.1f} kB, gzipped {complete[1] / 1e3:.1f} kB")


if __name__ == "__main__":
    main()
