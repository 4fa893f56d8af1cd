"""Examples for display: the words of a text, the features of a row, or the channels of a series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.explain.adapters.inputs import Description, InputForm, Series, Table, Tokens

MOST_NAMES = 2000
"""Names of the variables of an example; an example with more has none, because nobody could read them."""


@dataclass(frozen=True)
class DisplayedInputs:
    """What the variables of examples are called, in the order of their maps.

    ``kind``: ``"text"`` (one word per token) or ``"table"`` (one ``feature = value`` per player).
    """

    kind: str
    names: tuple[tuple[str, ...], ...]


def displayed_inputs(
    description: Description | None, form: InputForm | None, rows: NDArray[Any]
) -> DisplayedInputs | None:
    """Return the names of the variables of some examples; None for images and series, which are drawn as pictures."""
    if isinstance(description, Tokens):
        first, size = 0, rows.shape[1]
        if form is not None:
            index = form.index_of(description.ids)
            first, size = sum(part.size for part in form.parts[:index]), form.parts[index].size
        words = tuple(tuple(description.text(int(token)) for token in row[first : first + size]) for row in rows)
        return DisplayedInputs("text", words)
    if rows.ndim != 2 or rows.shape[1] > MOST_NAMES or isinstance(description, Series):
        return None
    if form is not None:
        return DisplayedInputs("table", tuple(_parts(form, row) for row in rows))
    table = description if isinstance(description, Table) else Table()
    return DisplayedInputs("table", tuple(_features(table, row) for row in rows))


def _parts(form: InputForm, row: NDArray[Any]) -> tuple[str, ...]:
    """Return ``name[k] = value`` for each value of the floating-point inputs."""
    names, start = [], 0
    for part in form.parts:
        values = row[start : start + part.size]
        start += part.size
        if part.kind == "float":
            names += [f"{part.name}[{index + 1}] = {value:.4g}" for index, value in enumerate(values)]
    return tuple(names)


def _features(table: Table, row: NDArray[Any]) -> tuple[str, ...]:
    """Return ``feature = value`` for each player; the value of one-hot columns is the name of the column that is set."""
    labels = table.labels(len(row)).numpy()
    names = []
    for player, feature in enumerate(table.features(len(row))):
        columns = np.flatnonzero(labels == player)
        names.append(f"{feature} = {_value(table, columns, row)}")
    return tuple(names)


def _value(table: Table, columns: NDArray[np.int64], row: NDArray[Any]) -> str:
    if len(columns) == 1:
        return f"{row[columns[0]]:.4g}"
    column = int(columns[row[columns].argmax()])
    name = table.names[column] if column < len(table.names) else f"column {column + 1}"
    return str(name).partition("=")[2] or str(name)
