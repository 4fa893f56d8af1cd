"""Figures of attributions of texts and tables: colored words, and bars of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray

from perdure.base.errors import InputError, escape_control_characters
from perdure.figures.attributions import CLIP_QUANTILE, SIGNED_COLORMAP
from perdure.figures.style import Figure

FloatArray = NDArray[np.float64]
CHARACTERS = 96  # of a line of colored words
CHARACTER_WIDTH = 0.068  # inches of a character of the monospaced font at this size
FONT_SIZE = 8
LINE_HEIGHT = 0.2  # inches
MOST_BARS = 15


def attribution_text(
    texts: Sequence[Sequence[str]], maps: Mapping[str, Sequence[Any]], *, labels: Sequence[str] = ()
) -> Figure:
    """Colored words: one block per text, one line of words per method; red increases the output, blue decreases it.

    ``texts``: the tokens of each text. ``maps``: for each method, one value per token of each text. All texts of a method
    share one color scale.

    Examples
    --------
    >>> from perdure import figures
    >>> words = [["a", "good", "film"], ["a", "bad", "film"]]
    >>> maps = {"shapley": [[0.0, 0.9, 0.1], [0.0, -0.8, 0.1]]}
    >>> figure = figures.attribution_text(words, maps, labels=["positive", "negative"])
    >>> figures.save(figure, "words.svg").name
    'words.svg'
    """
    values = {
        method: [_checked(row, words) for row, words in zip(rows, texts, strict=True)] for method, rows in maps.items()
    }
    limits = {method: _limit(rows) for method, rows in values.items()}
    lines: list[tuple[str, list[tuple[str, float]]]] = []
    for index, words in enumerate(texts):
        lines.append((f"{index + 1}. {labels[index]}" if index < len(labels) else f"{index + 1}.", []))
        for method, rows in values.items():
            shares = np.clip(rows[index] / limits[method], -1, 1)
            wrapped = _wrapped(words, shares)
            lines += [(method.replace("_", " ") if number == 0 else "", line) for number, line in enumerate(wrapped)]
    width = CHARACTERS * CHARACTER_WIDTH + 1.9
    figure = Figure(figsize=(width, LINE_HEIGHT * (len(lines) + 2)))
    colors = colormaps[SIGNED_COLORMAP]
    for number, (title, words_and_shares) in enumerate(lines):
        y = 1 - (number + 1) / (len(lines) + 2)
        figure.text(0.01, y, title, fontsize=7, va="center", weight="normal" if words_and_shares else "bold")
        column = 0
        for word, share in words_and_shares:
            box = {"facecolor": colors(0.5 + share / 2), "edgecolor": "none", "pad": 1.2}
            dark = abs(share) > 0.6
            figure.text(
                (1.8 + column * CHARACTER_WIDTH) / width,
                y,
                word,
                family="monospace",
                fontsize=FONT_SIZE,
                va="center",
                color="white" if dark else "black",
                bbox=box,
            )
            column += len(word) + 1
    figure.text(
        0.01, 0.4 / (len(lines) + 2), "red: increases the output   blue: decreases it", fontsize=7, color="#555555"
    )
    return figure


def attribution_bars(
    names: Sequence[Sequence[str]], maps: Mapping[str, Sequence[Any]], *, labels: Sequence[str] = ()
) -> Figure:
    """Bars of features: one row per example, one column per method, the largest magnitudes first.

    ``names``: the features of each example, for example ``"age = 39"``. ``maps``: one value per feature of each example. At
    most 15 features are shown; the others are summed in the last bar.

    Examples
    --------
    >>> from perdure import figures
    >>> names = [["age = 39", "hours = 40", "sex = female"]]
    >>> figure = figures.attribution_bars(names, {"shapley": [[0.3, 0.1, -0.2]]})
    >>> figures.save(figure, "features.svg").name
    'features.svg'
    """
    values = {
        method: [_checked(row, words) for row, words in zip(rows, names, strict=True)] for method, rows in maps.items()
    }
    rows, columns = len(names), max(1, len(values))
    shown = min(MOST_BARS, max(len(words) for words in names))
    figure = Figure(figsize=(3.6 * columns, (0.19 * shown + 0.7) * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    colors = colormaps[SIGNED_COLORMAP]
    for column, (method, method_values) in enumerate(values.items()):
        for row, (words, row_values) in enumerate(zip(names, method_values, strict=True)):
            panel = panels[row, column]
            texts, heights = _largest(words, row_values)
            panel.barh(range(len(texts)), heights, color=[colors(0.9 if value > 0 else 0.1) for value in heights])
            panel.set_yticks(range(len(texts)), [_shown(text, 34) for text in texts], fontsize=6)
            panel.invert_yaxis()
            panel.axvline(0, color="black", linewidth=0.6)
            panel.tick_params(axis="x", labelsize=6)
            panel.spines[["top", "right", "left"]].set_visible(False)
            title = f"{method.replace('_', ' ')}, {labels[row]}" if row < len(labels) else method.replace("_", " ")
            panel.set_title(_shown(title, 60), fontsize=7)
    return figure


def _largest(words: Sequence[str], values: FloatArray) -> tuple[list[str], list[float]]:
    """Return the features with the largest magnitudes, and the sum of the others."""
    order = np.argsort(-np.abs(values), kind="stable")
    if len(order) <= MOST_BARS:
        return [words[index] for index in order], [float(values[index]) for index in order]
    first, rest = order[: MOST_BARS - 1], order[MOST_BARS - 1 :]
    texts = [words[index] for index in first] + [f"{len(rest)} others"]
    return texts, [float(values[index]) for index in first] + [float(values[rest].sum())]


def _checked(values: Any, words: Sequence[str]) -> FloatArray:
    array: FloatArray = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64)
    if array.shape != (len(words),):
        raise InputError(f"map: expected one value for each of {len(words)} words or features, got shape {array.shape}")
    return array


def _limit(rows: Sequence[FloatArray]) -> float:
    return float(np.quantile(np.abs(np.concatenate(rows)), CLIP_QUANTILE)) or 1.0


def _wrapped(words: Sequence[str], shares: FloatArray) -> list[list[tuple[str, float]]]:
    """Return lines of words with their shares of the color scale."""
    lines: list[list[tuple[str, float]]] = [[]]
    used = 0
    for word, share in zip(words, shares, strict=True):
        if not word:  # padding
            continue
        text = _shown(word, CHARACTERS)
        if lines[-1] and used + len(text) > CHARACTERS:
            lines.append([])
            used = 0
        lines[-1].append((text, float(share)))
        used += len(text) + 1
    return lines


def _shown(text: str, longest: int) -> str:
    """Return a text for display: dollars are not mathematics, control characters are escaped, long texts are cut."""
    escaped = escape_control_characters(text).replace("$", r"\$") or " "
    return escaped if len(escaped) <= longest else f"{escaped[: longest - 1]}…"
