"""Markdown cells, tables and paragraphs of the pages of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perdure.metrics import Interval, interval


def format_interval(value: Interval, digits: int = 3) -> str:
    """Return a mean with its interval as a table cell."""
    if np.isnan(value.low):
        return f"{value.mean:.{digits}g}"
    return f"{value.mean:.{digits}g} [{value.low:.{digits}g}, {value.high:.{digits}g}]"


def geometric_mean_cell(values: Any, digits: int = 3) -> str:
    """Return the geometric mean of positive numbers with its interval as a table cell; suits ratios and relative errors."""
    logs = interval(np.log(np.asarray(values, dtype=np.float64)))
    return f"{np.exp(logs.mean):.{digits}g} [{np.exp(logs.low):.{digits}g}, {np.exp(logs.high):.{digits}g}]"


def format_paragraph(*sentences: str) -> str:
    """Return the sentences joined by spaces."""
    return " ".join(sentences)


def format_markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in lines)
