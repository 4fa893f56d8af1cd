"""Draw every figure of the demo's audit for the documentation, and write the page that shows them.

    python tools/gallery.py demo docs

The page is docs/gallery.md, its pictures are in docs/images/gallery. Both are made by the build and not committed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import perdure
from perdure import figures
from perdure.figures import clamp, retraining

INTRODUCTION = """\
# Figures

Every figure of the audit that `make demo` writes: four learners on the digits of scikit-learn. A figure is a matplotlib
`Figure`; `figures.save(figure, "name.pdf")` writes it in any format. Figures only draw; the numbers are those of the audit.

```python
import perdure
from perdure import figures

audit = perdure.Audit.load("demo/audit.json")
figures.save(figures.accuracy_lines(audit), "accuracy.png")
```
"""
QUESTIONS: dict[str, list[tuple[str, Callable[[perdure.Audit], Figure | None]]]] = {
    "What does it learn, keep and cost?": [
        ("figures.accuracy_lines(audit)", figures.accuracy_lines),
        ("figures.performance_progress_lines(audit)", figures.performance_progress_lines),
        ("figures.accuracy_matrices(audit)", figures.accuracy_matrices),
        ('figures.accuracy_differences_to(audit, "cumulative")', figures.accuracy_differences_to),
        ("figures.performance_criteria_dots(audit)", figures.performance_criteria_dots),
        ("figures.performance_criteria_lines(audit)", figures.performance_criteria_lines),
    ],
    "Does it still decide for the same reasons?": [
        ("figures.shapc_bars(audit)", figures.shapc_bars),
        ("figures.shapc_bands(audit)", figures.shapc_bands),
        ("figures.shapc_matrices(audit)", figures.shapc_matrices),
        ("figures.shapc_lines(audit)", figures.shapc_lines),
        ("figures.shapc_distributions(audit)", figures.shapc_distributions),
        ("figures.shapc_boxes(audit)", figures.shapc_boxes),
    ],
    "Algorithm or tasks: what explains the curves?": [
        (
            "figures.clamp.clamp_performance_curves(audit.clamp[0])",
            lambda audit: _first(audit.clamp, clamp.clamp_performance_curves),
        ),
        (
            "figures.clamp.clamp_transfer_map(audit.clamp[0])",
            lambda audit: _first(audit.clamp, clamp.clamp_transfer_map),
        ),
        (
            "figures.clamp.clamp_property_bars(audit.clamp[0])",
            lambda audit: _first(audit.clamp, clamp.clamp_property_bars),
        ),
    ],
    "Can the explanations be trusted?": [
        ("figures.bias_bars(audit.trust[0].bias)", lambda audit: _trust(audit, "bias", figures.bias_bars)),
    ],
    "Do explanations survive retraining?": [
        (
            'figures.retraining.retraining_summary_lines(audit.trust[0].retraining, "l2-unit")',
            lambda audit: _trust(
                audit, "retraining", lambda found: retraining.retraining_summary_lines(found, "l2-unit")
            ),
        ),
    ],
}


def _first(values: Any, draw: Callable[[Any], Figure]) -> Figure | None:
    return draw(values[0]) if values else None


def _trust(audit: perdure.Audit, part: str, draw: Callable[[Any], Figure]) -> Figure | None:
    found = [getattr(entry, part) for entry in audit.trust if getattr(entry, part) is not None]
    return _first(found, draw)


def write_gallery(demo: Path, docs: Path) -> list[str]:
    """Write the page and its pictures, and return the calls that were drawn."""
    audit = perdure.Audit.load(demo / "audit.json")
    folder = docs / "images" / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    lines, drawn = [INTRODUCTION], []
    for question, entries in QUESTIONS.items():
        lines += [f"## {question}", ""]
        for call, draw in entries:
            figure = draw(audit)
            if figure is None:
                continue
            name = call.partition("(")[0].rpartition(".")[2]
            figures.save(figure, folder / f"{name}.png")
            caption = (
                inspect.getdoc(getattr(figures, name, None) or getattr(clamp, name, None) or getattr(retraining, name))
                or ""
            )
            lines += [
                f"`{call}`",
                "",
                caption.partition("\n\n")[0].replace("\n", " "),
                "",
                f"![{name}](images/gallery/{name}.png)",
                "",
            ]
            drawn.append(call)
    (docs / "gallery.md").write_text("\n".join(lines), encoding="utf-8")
    return drawn


if __name__ == "__main__":
    sys.stdout.write("\n".join(write_gallery(Path(sys.argv[1]), Path(sys.argv[2]))) + "\n")
