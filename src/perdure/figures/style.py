"""Colors, label lengths and file formats that all figures share."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter

from perdure.base.errors import InputError, escape_control_characters
from perdure.base.files import write_atomically

# The palette of Okabe and Ito, distinguishable for color-blind readers; black last.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
FORMATS = ("png", "svg", "pdf")
LONGEST_LABEL = 60
"""Characters of a tick label; longer ones would leave no space for the data."""
_METADATA: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


class Figure(MatplotlibFigure):
    """A figure that notebooks show as a picture. Those of matplotlib are shown only if pyplot is imported."""

    def _repr_png_(self) -> bytes:
        return _figure_bytes(self, "png", dpi=100)


def series_color(index: int) -> str:
    """Return the color of the learner (or explainer) with this index."""
    return PALETTE[index % len(PALETTE)]


def style_shortened_label(name: str, max_length: int = 18) -> str:
    """Return the name, cut to ``max_length`` characters with an ellipsis if it is longer."""
    return name if len(name) <= max_length else name[: max_length - 1] + "…"


def save(figure: MatplotlibFigure, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, depending on the file name's extension, and return the path.

    The same figure always gives the same bytes: files contain no dates and no random identifiers. They are written
    atomically. Names are drawn as they are: ``$`` does not begin a formula.

    Examples
    --------
    >>> import perdure
    >>> from perdure import figures
    >>> audit = perdure.Audit.load("demo/audit.json")  # of ``make demo``
    >>> figures.save(figures.accuracy_matrices(audit), "accuracy.svg").name
    'accuracy.svg'
    """
    path = Path(path)
    extension = path.suffix[1:].lower()
    if extension not in FORMATS:
        extensions = ", ".join(f".{name}" for name in FORMATS)
        raise InputError(f"{path}: expected a file name that ends in one of {extensions}")
    write_atomically(path, _figure_bytes(figure, extension, dpi=160))
    return path


def as_svg(figure: MatplotlibFigure) -> str:
    """Return a figure as an SVG element that can be embedded in HTML."""
    svg = _figure_bytes(figure, "svg").decode()
    return svg[svg.index("<svg") :]


def _figure_bytes(figure: MatplotlibFigure, extension: str, **options: Any) -> bytes:
    """Return a figure as the bytes of a file, which depend on nothing but the figure."""
    _escape_names(figure)
    file = io.BytesIO()
    # The settings also hold for tick labels, which are created while the figure is drawn.
    with rc_context({"svg.hashsalt": "perdure", "text.parse_math": False}):
        figure.savefig(file, format=extension, bbox_inches="tight", metadata=_METADATA[extension], **options)
    return file.getvalue()


def _escape_names(figure: MatplotlibFigure) -> None:
    """Escape control characters in all texts of a figure, and draw ``$`` as it is."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)
        text.set_text(_escaped_lines(text.get_text()))
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            formatter = axis.get_major_formatter()
            if isinstance(formatter, FuncFormatter):  # named ticks, whose texts are set while the figure is drawn
                formatter.func = partial(_escaped_label, formatter.func)


def _escaped_label(label: Callable[[float, int | None], str], value: float, position: int | None) -> str:
    return style_shortened_label(_escaped_lines(label(value, position)), LONGEST_LABEL)


def _escaped_lines(text: str) -> str:
    return "\n".join(escape_control_characters(line) for line in text.split("\n"))
