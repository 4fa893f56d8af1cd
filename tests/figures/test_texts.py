"""Figures of texts and tables: colored words, and bars of features."""

import numpy as np
import pytest

from perdure import figures
from perdure.base.errors import InputError


def texts_of(figure):
    return [text.get_text() for text in figure.texts]


def test_words_are_colored_by_their_attribution_on_one_scale_per_method():
    words = [["the", "soup", "", "was", "cold"], ["fine"]]
    maps = {"shapley": [np.array([0.0, 1.0, 9.0, -1.0, 0.5]), np.array([0.25])], "lime": [np.ones(5), np.ones(1)]}
    figure = figures.attribution_text(words, maps, labels=["class 1", "class 2"])
    shown = texts_of(figure)
    assert shown.count("soup") == 2  # once per method
    assert "" not in shown  # padding is not drawn
    assert "1. class 1" in shown
    first = [text for text in figure.texts if text.get_text() in ("the", "was") and text.get_bbox_patch()]
    neutral, negative = (np.asarray(text.get_bbox_patch().get_facecolor()) for text in first[:2])  # type: ignore[union-attr]
    assert min(neutral[:3]) > 0.9  # zero is white
    assert negative[2] > negative[0]  # evidence against the class is blue


def test_long_texts_are_wrapped_and_special_characters_are_text():
    words = [["word"] * 60 + ["$x_1$", "\x1b[31m"]]
    figure = figures.attribution_text(words, {"grad": [np.linspace(-1, 1, 62)]})
    heights = {round(text.get_position()[1], 6) for text in figure.texts if text.get_text() == "word"}
    assert len(heights) >= 3
    assert r"\$x_1\$" in texts_of(figure)
    assert "\\x1b[31m" in texts_of(figure)


def test_bars_show_the_largest_features_and_the_sum_of_the_others():
    names = [[f"f{index} = 1" for index in range(20)]]
    values = np.arange(20.0) - 4
    figure = figures.attribution_bars(names, {"shapley": [values]}, labels=["class 1"])
    (panel,) = figure.axes
    labels = [label.get_text() for label in panel.get_yticklabels()]
    widths = [bar.get_width() for bar in panel.patches]  # type: ignore[attr-defined]
    assert labels[:2] == ["f19 = 1", "f18 = 1"]
    assert labels[-1] == "6 others"
    assert len(widths) == 15
    assert sum(widths) == pytest.approx(values.sum())


def test_maps_of_another_length_are_refused():
    with pytest.raises(InputError, match="expected one value for each of 2 words or features, got shape"):
        figures.attribution_text([["a", "b"]], {"grad": [np.zeros(3)]})
