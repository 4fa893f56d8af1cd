"""Charts of a comparison as SVG: changes with intervals, the scale of the reasons, and bars of features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from markupsafe import Markup

from perdure.audits.summary.text import clipped_score
from perdure.base.errors import escape_control_characters
from perdure.comparisons import Comparison

WIDTH = 640
LABEL = 225
ROW = 24
LONGEST_LABEL = 27
TEXT_LEVELS = 5
"""Color levels of words on either side of zero; the classes of comparison.css."""
MOST_BARS = 8


def change_chart(changes: Sequence[Any], unit: str) -> Markup:
    """Return the change of each group or feature with its interval, one row each; empty without changes."""
    known = [change for change in changes if not math.isnan(change.mean)]
    if not known:
        return Markup("")
    ends = [abs(end) for change in known for end in (change.low, change.high, change.mean) if not math.isnan(end)]
    limit = max(ends) or 1.0
    height = ROW * len(known) + 40

    def x(value: float) -> float:
        return LABEL + (WIDTH - LABEL - 20) * (value + limit) / (2 * limit)

    parts = [_line("axis", x(0), 8, x(0), height - 26)]
    for index, change in enumerate(known):
        y = 20 + ROW * index
        name = getattr(change, "name", None) or change.feature
        interval = f"{change.mean:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"
        text = f"{name}: {change.old:.3f} to {change.new:.3f}, change {interval}"
        beyond = not math.isnan(change.low) and (change.low > 0 or change.high < 0)
        kind = "changed" if beyond else "plain"
        test = getattr(change, "retraining", None)
        mark = " ▲" if test is not None and test.p < 0.05 else ""
        parts.append(f"<g><title>{_text(text)}</title>")
        parts.append(f'<text x="{LABEL - 10}" y="{y + 4}" text-anchor="end" class="strong">{_label(name)}{mark}</text>')
        if not math.isnan(change.low):
            parts.append(_line(f"whisker {kind}", x(change.low), y, x(change.high), y))
        parts.append(f'<circle class="mark {kind}" cx="{x(change.mean):.1f}" cy="{y}" r="4.5"/></g>')
    for value, anchor in ((-limit, "middle"), (0.0, "middle"), (limit, "end")):
        text = f"{value:+.2g}" if value else "0"
        parts.append(f'<text x="{x(value):.1f}" y="{height - 8}" text-anchor="{anchor}">{text}</text>')
    return _svg(height, parts, f"Change of the {unit}, NEW minus OLD, with 95 % intervals")


def reasons_chart(comparison: Comparison) -> Markup:
    """Return the scale of the reasons: OLD against NEW with its interval, OLD against each reference, and the limit."""
    reasons = comparison.reasons
    if math.isnan(reasons.calibrated.mean):
        return Markup("")

    def x(value: float) -> float:
        return 30 + (WIDTH - 60) * min(max(value, 0.0), 1.0)

    parts = [_line("axis", x(0), 70, x(1), 70)]
    for value, text in ((0.0, "0: as an untrained network"), (0.5, "0.5"), (1.0, "1: identical reasons")):
        anchor = {0.0: "start", 0.5: "middle", 1.0: "end"}[value]
        parts.append(f'<text x="{x(value):.1f}" y="90" text-anchor="{anchor}">{text}</text>')
    parts += [
        f'<circle class="mark reference" cx="{x(value):.1f}" cy="52" r="4.5"><title>OLD and a reference: {value:.3f}'
        "</title></circle>"
        for value in reasons.reference_calibrated
        if not math.isnan(value)
    ]
    score = clipped_score(reasons.calibrated)
    parts.append(_line("whisker new", x(score.low), 28, x(score.high), 28))
    text = f"OLD and NEW: {score.mean:.3f} [{score.low:.3f}, {score.high:.3f}]"
    parts.append(
        f'<rect class="mark new" x="{x(score.mean) - 5:.1f}" y="23" width="10" height="10"><title>{text}</title></rect>'
    )
    parts.append(f'<text x="30" y="14" class="strong"><tspan class="new">■</tspan> OLD and NEW {score.mean:.2f}</text>')
    if reasons.reference_calibrated:
        count = len(reasons.reference_calibrated)
        parts.append(
            f'<text x="{WIDTH - 30}" y="14" class="strong" text-anchor="end"><tspan class="reference">●</tspan> OLD and '
            f"{count} retrained versions</text>"
        )
    return _svg(96, parts, "Calibrated similarity of the reasons")


def feature_bars(names: Sequence[str], maps: Sequence[Any]) -> Markup:
    """Return the largest attributions of a row of a table under both versions, as bars from a common zero."""
    values = np.stack([np.asarray(row, dtype=np.float64) / (np.abs(row).sum() or 1.0) for row in maps])
    order = np.argsort(-np.abs(values).max(axis=0), kind="stable")[:MOST_BARS]
    limit = float(np.abs(values).max()) or 1.0
    height, middle, half = 30 * len(order) + 8, 385, 140
    parts = [_line("axis", middle, 2, middle, height - 2)]
    for index, feature in enumerate(order):
        y = 6 + 30 * index
        parts.append(
            f'<text x="{middle - half - 8}" y="{y + 15}" text-anchor="end" class="strong">{_label(names[feature])}</text>'
        )
        for version, (kind, row) in enumerate((("old", values[0]), ("new", values[1]))):
            width = abs(row[feature]) / limit * half
            left = middle if row[feature] > 0 else middle - width
            parts.append(
                f'<rect class="share {kind}" x="{left:.1f}" y="{y + 11 * version}" width="{max(width, 0.5):.1f}" height="9">'
                f"<title>{kind.upper()}: {row[feature]:+.3f}</title></rect>"
            )
    return _svg(height, parts, "Attributions of both versions", 540)


def text_levels(values: Any, limit: float) -> list[str]:
    """Return the color class of each word: red raises the score, blue lowers it."""
    levels = np.clip(np.rint(np.asarray(values) / limit * TEXT_LEVELS), -TEXT_LEVELS, TEXT_LEVELS).astype(int)
    return [f"word up-{level}" if level > 0 else f"word down-{-level}" if level < 0 else "word" for level in levels]


def _svg(height: float, parts: Sequence[str], title: str, width: int = WIDTH) -> Markup:
    body = "".join(parts)
    text = (
        f'<svg viewBox="0 0 {width} {height:.0f}" width="{width}" role="img" aria-label="{escape(title)}">{body}</svg>'
    )
    return Markup(text)  # noqa: S704  (names are escaped by _text)


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _label(name: str) -> str:
    shown = escape_control_characters(name)
    return escape(shown if len(shown) <= LONGEST_LABEL else f"{shown[: LONGEST_LABEL - 1]}…")


def _text(text: str) -> str:
    return escape(escape_control_characters(text))
