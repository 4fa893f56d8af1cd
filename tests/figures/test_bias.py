"""The bias figure draws the measured means, intervals and noise floors."""

from typing import Any

import numpy as np
import pytest

from perdure import figures
from perdure.audits.bias.results import BiasResult, bias_result_verdict, explainer_bias_result
from perdure.metrics import attribution_biases
from perdure.metrics.bias import SHARES, SIDES


def synthetic_result(players=40, samples=6):
    """Return the bias of three synthetic explainers, one of them measured at a hidden layer, and both controls."""
    rng = np.random.default_rng(0)
    true = rng.normal(size=(samples, players))
    maps = {"grad": rng.normal(size=true.shape), "lrp": true + rng.normal(size=true.shape), "gradcam": true**2}
    maps |= {"constant": np.ones_like(true), "random": rng.normal(size=true.shape)}
    entries = [
        explainer_bias_result(
            name,
            attribution_biases(values, true, stderr=np.full_like(true, 0.1)),
            0,
            "layer" if name == "gradcam" else None,
            players,
        )
        for name, values in maps.items()
    ]
    return BiasResult(
        subject="made up",
        examples=samples,
        target="label",
        permutations=100,
        estimator="antithetic",
        noise_share=0.01,
        shares=SHARES,
        sides=SIDES,
        explainers=tuple(entries),
        refused={},
        settings={},
        verdict=bias_result_verdict(entries),
    )


def dots(panel: Any) -> list[tuple[float, float]]:
    """Return the coordinates of a panel's dots and dashes."""
    points = [line.get_xydata() for line in panel.lines]
    return [(float(values[0, 0]), float(values[0, 1])) for values in points if len(values) == 1]


def test_bars_show_every_mean_its_interval_and_the_noise_floor(tmp_path):
    result = synthetic_result()
    figure = figures.bias_bars(result)
    for side, panel in enumerate(figure.axes):
        for entry in result.explainers:
            for share, row in enumerate(entry.cells):
                near = [y for x, y in dots(panel) if abs(x - share) < 0.5]
                assert row[side].mean in near
                assert entry.floor[share, side] in near
        collections: list[Any] = list(panel.collections)
        ends = [segment[:, 1] for arm in collections for segment in arm.get_segments()]
        cells = [row[side] for entry in result.explainers for row in entry.cells]
        assert np.sort(ends, axis=0) == pytest.approx(np.sort([(cell.low, cell.high) for cell in cells], axis=0))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    expected = ["grad", "lrp", "gradcam (at a hidden layer)", "constant (control)", "random (control)", "noise floor"]
    assert labels == expected
    for ending in ("png", "svg", "pdf"):
        assert figures.save(figure, tmp_path / f"bias.{ending}").stat().st_size > 1000


def test_controls_are_drawn_last_after_a_gap():
    result = synthetic_result()
    drawn = dots(figures.bias_bars(result).axes[0])
    means = {entry.cells[0][0].mean: entry.method for entry in result.explainers}
    order = sorted((x, means[y]) for x, y in drawn if y in means)
    assert [name for _, name in order][-2:] == ["constant", "random"]
    gaps = np.diff([x for x, _ in order])
    assert gaps[2] == pytest.approx(2 * gaps[0])
