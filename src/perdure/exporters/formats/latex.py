"""LaTeX: all tables of an audit, one file each, split and transposed so that they fit the text width."""

from __future__ import annotations

import re
from pathlib import Path

from perdure.audits import Audit
from perdure.base.errors import escape_control_characters
from perdure.base.files import write_atomically
from perdure.exporters.exported_tables import exported_tables
from perdure.exporters.exporter import exporter
from perdure.exporters.tables import Table, format_report_cell, latex_cell, transposed

TEXT_WIDTH = 345.0
"""Text width of the article class at 10 pt, in points: the narrowest of the common one-column layouts."""
_SPACE = 12.0  # between two columns (2 \tabcolsep)
_WIDEST = 100.0  # wider columns are wrapped
_KEYS = {
    "",
    "learner",
    "benchmark",
    "runs",
    "seed",
    "after step",
    "trained",
    "metric",
    "minus",
    "explainer",
    "algorithm",
}
"""Columns that identify a row: they are repeated if a table is split."""
_BREAK = re.compile(r"([/_.,:=-]|[^\s/_.,:=-]{5})(?=[^\s])")

# Widths of the characters of Computer Modern Roman at 10 pt, in hundredths of a point.
_WIDTHS = dict(
    zip(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
        (
            *(500, 556, 444, 556, 444, 306, 500, 556, 278, 306, 528, 278, 833, 556, 500, 556, 528, 392, 394, 389, 556),
            *(528, 722, 528, 528, 444, 750, 708, 722, 764, 681, 653, 785, 750, 361, 514, 778, 625, 917, 750, 778, 681),
            *(778, 736, 556, 722, 750, 750, 1028, 750, 750, 611),
        ),
        strict=True,
    )
)
_WIDTHS |= dict.fromkeys('0123456789/*$–↑↓"{}\\~^`', 535) | dict.fromkeys(".,:;!'[]|", 278) | dict.fromkeys(" -", 333)
_WIDTHS |= dict.fromkeys("0123456789", 500) | dict.fromkeys("%#", 833) | dict.fromkeys("&+=<>@≠±", 778)
_WIDTHS |= {"(": 389, ")": 389, "?": 472, "_": 400}
_OTHER = 1000


@exporter("latex")
def write_latex(audit: Audit, out: str) -> list[Path]:
    """One LaTeX file per table (packages array and booktabs); wide tables are transposed or split to fit the text width."""
    paths = []
    for table in exported_tables(audit):
        paths.append(Path(out) / f"{table.name}.tex")
        write_atomically(paths[-1], fitted_latex(table).encode())
    return paths


def fitted_latex(table: Table) -> str:
    """Return a table as LaTeX, transposed or in parts so that it fits the text width."""
    parts = fitted_tables(table)
    texts = [
        _tabular(part, keys, f"{table.title}{f', part {number} of {len(parts)}' if len(parts) > 1 else ''}")
        for number, (part, keys) in enumerate(parts, start=1)
    ]
    return "\n\\par\\medskip\\noindent\n".join(texts)


def fitted_tables(table: Table, width: float = TEXT_WIDTH) -> list[tuple[Table, int]]:
    """Return one or several tables that fit a width, each with the number of columns that identify a row.

    The table is transposed if fewer parts are needed then.
    """
    keys = next((index for index, name in enumerate(table.header) if name not in _KEYS), len(table.header))
    parts = _parts(table, max(1, keys), width)
    turned = _parts(transposed(table), 1, width) if table.rows else parts
    return turned if len(turned) < len(parts) else parts


def _parts(table: Table, keys: int, width: float) -> list[tuple[Table, int]]:
    """Return the columns of a table in groups that fit the width, each after the columns that identify a row."""
    widths = column_widths(table, keys, width)
    available = width - sum(widths[:keys]) - keys * _SPACE
    groups: list[list[int]] = [[]]
    used = 0.0
    for index in range(keys, len(table.header)):
        needed = widths[index] + _SPACE
        if groups[-1] and used + needed > available:
            groups.append([])
            used = 0.0
        groups[-1].append(index)
        used += needed
    return [(_columns(table, [*range(keys), *group]), keys) for group in groups]


def column_widths(table: Table, keys: int, width: float = TEXT_WIDTH) -> list[float]:
    """Return the width of each column in points. Columns that would be wider than allowed are wrapped at that width."""
    widest_key = min(_WIDEST, 0.6 * width / keys - _SPACE)
    natural = [
        max(text_width(format_report_cell(cell, table.digits)) for cell in (name, *(row[index] for row in table.rows)))
        for index, name in enumerate(table.header)
    ]
    return [min(value, widest_key if index < keys else _WIDEST) for index, value in enumerate(natural)]


def text_width(text: str) -> float:
    """Return the width of a text in Computer Modern Roman at 10 pt, in points, without kerning."""
    return sum(_WIDTHS.get(character, _OTHER) for character in escape_control_characters(text)) / 100


def _columns(table: Table, indices: list[int]) -> Table:
    return Table(
        table.name,
        table.title,
        tuple(table.header[index] for index in indices),
        tuple(tuple(row[index] for index in indices) for row in table.rows),
        table.digits,
    )


def _tabular(table: Table, keys: int, title: str) -> str:
    """Return a tabular. Columns that are wrapped are paragraphs in which every long word can be broken."""
    widths = column_widths(table, keys)
    cells = [(name, *(row[index] for row in table.rows)) for index, name in enumerate(table.header)]
    wrapped = [
        max(text_width(format_report_cell(cell, table.digits)) for cell in column) > limit
        for column, limit in zip(cells, widths, strict=True)
    ]
    kinds = [
        rf">{{\raggedright\arraybackslash}}p{{{limit:.1f}pt}}" if is_wrapped else "l" if is_text else "r"
        for limit, is_wrapped, is_text in zip(widths, wrapped, table.text_columns, strict=True)
    ]
    rows = [
        " & ".join(
            _wrapped_cell(format_report_cell(cell, digits), limit) if is_wrapped else latex_cell(cell, digits)
            for cell, is_wrapped, limit in zip(row, wrapped, widths, strict=True)
        )
        + r" \\"
        for row, digits in [(table.header, 0), *((row, table.digits) for row in table.rows)]
    ]
    lines = [f"% {escape_control_characters(title)}", rf"\begin{{tabular}}{{{''.join(kinds)}}}", r"\toprule", rows[0]]
    return "\n".join([*lines, r"\midrule", *rows[1:], r"\bottomrule", r"\end{tabular}", ""])


def _wrapped_cell(text: str, limit: float) -> str:
    """Return a text in which LaTeX may break the words that are wider than their column."""
    words = escape_control_characters(text).split(" ")
    return " ".join(_breakable(word) if text_width(word) > limit else latex_cell(word, 0) for word in words)


def _breakable(word: str) -> str:
    """Return a word that may be broken after punctuation and after every five characters."""
    return r"\allowbreak{}".join(latex_cell(piece, 0) for piece in _BREAK.sub("\\1\0", word).split("\0"))
