"""Colors, label lengths and file formats that all figures share."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure

from perdure.base.errors import InputError

# The palette of Okabe and Ito, distinguishable for color-blind readers; black last.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
FORMATS = ("png", "svg", "pdf")


def series_color(index: int) -> str:
    """Return the color of the learner (or explainer) with this index."""
    return PALETTE[index % len(PALETTE)]


def style_shortened_label(name: str, max_length: int = 18) -> str:
    """Return the name, cut to ``max_length`` characters with an ellipsis if it is longer."""
    return name if len(name) <= max_length else name[: max_length - 1] + "…"


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, depending on the file name's extension, and return the path."""
    path = Path(path)
    if path.suffix[1:].lower() not in FORMATS:
        extensions = ", ".join(f".{name}" for name in FORMATS)
        raise InputError(f"{path}: expected a file name that ends in one of {extensions}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160, bbox_inches="tight")
    return path


def as_svg(figure: Figure) -> str:
    """Return a figure as an SVG element that can be embedded in HTML."""
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
