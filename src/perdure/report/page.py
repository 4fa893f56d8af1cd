"""The page: one file that can be mailed, opened offline and printed."""

from __future__ import annotations

import math
from pathlib import Path

from jinja2 import Environment, PackageLoader

from perdure import __version__
from perdure.audit import MEASURES, Audit, Interval
from perdure.figures import accuracy_lines, accuracy_matrices, as_svg, criteria_dots
from perdure.record.files import write_atomically


def write_page(audit: Audit, path: Path) -> Path:
    """Write the report of an audit as one HTML file and return its path."""
    environment = Environment(
        loader=PackageLoader("perdure.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["value"] = _value
    environment.filters["margin"] = _margin
    shown = [name for name in MEASURES if any(name in entry.measures for entry in audit.learners)]
    page = environment.get_template("page.html.j2").render(
        audit=audit,
        measures=MEASURES,
        shown=shown,
        figures={
            "lines": as_svg(accuracy_lines(audit)),
            "matrices": as_svg(accuracy_matrices(audit)),
            "criteria": as_svg(criteria_dots(audit)),
        },
        version=__version__,
    )
    write_atomically(path, page.encode())
    return path


def _value(value: Interval) -> str:
    return "–" if math.isnan(value.mean) else f"{value.mean:.3f}"


def _margin(value: Interval) -> str:
    return "" if math.isnan(value.low) else f"[{value.low:.3f}, {value.high:.3f}]"
