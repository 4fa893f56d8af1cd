"""One look for all figures: colours that colour-blind readers can tell apart, and saving without global state."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure

from perdure.base.errors import InputError

# Okabe and Ito's palette, black last.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
FORMATS = ("png", "svg", "pdf")


def colour(index: int) -> str:
    """Return the colour of the learner at this place."""
    return COLOURS[index % len(COLOURS)]


def shortened(name: str, most: int = 18) -> str:
    """Return a name that leaves room for the picture beside it."""
    return name if len(name) <= most else name[: most - 1] + "…"


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by the ending of its path."""
    path = Path(path)
    if path.suffix[1:].lower() not in FORMATS:
        raise InputError(f"{path}: a figure is saved as {', '.join(FORMATS)}; give the file one of these endings")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160, bbox_inches="tight")
    return path


def as_svg(figure: Figure) -> str:
    """Return a figure as SVG that can stand inside a page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
