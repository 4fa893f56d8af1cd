"""Human ratings and bias, with synthetic ratings: reading files, refusals, correlation and the section of the page."""

import math

import numpy as np
import pytest

from perdure.audits.bias.ratings import compare_with_ratings, read_ratings
from perdure.audits.bias.results import BiasResult, explainer_bias_result
from perdure.base.errors import InputError
from perdure.metrics import attribution_biases
from perdure.metrics.bias import SHARES, SIDES
from perdure.reproduce.bias.experiment import Workspace
from perdure.reproduce.bias.experiments import human
from perdure.reproduce.bias.experiments.table import table_result_file

METHODS = ("grad", "gradient_x_input", "lrp", "lime", "deepshap")


def synthetic_bias(layer=None):
    """Return explainers with increasing noise on their maps, and so increasing bias."""
    rng = np.random.default_rng(0)
    true = rng.normal(size=(8, 60))
    entries = [
        explainer_bias_result(
            name,
            attribution_biases(true + (1 + index) * rng.normal(size=true.shape), true),
            0,
            layer if name == "lime" else None,
        )
        for index, name in enumerate(METHODS)
    ]
    return BiasResult("synthetic", 8, "label", 10, "antithetic", 0.0, SHARES, SIDES, tuple(entries), {}, {}, None)


def write(tmp_path, text):
    file = tmp_path / "ratings.csv"
    file.write_text(text)
    return file


def decreasing_ratings(raters=3):
    """Return ratings that decrease with the bias."""
    rows = [f"{name},r{r},{5 - index + 0.1 * r}" for index, name in enumerate(METHODS) for r in range(raters)]
    return "explainer,rater,rating\n" + "\n".join(rows) + "\n"


def test_ratings_are_averaged_over_images_then_raters(tmp_path):
    text = "Explainer,rater,image,rating\ngrad,ann,1,1\ngrad,ann,2,3\ngrad,bob,1,5\nlrp,ann,1,2\n"
    result = read_ratings(write(tmp_path, text))
    assert result.by_rater == {"grad": {"ann": 2.0, "bob": 5.0}, "lrp": {"ann": 2.0}}
    assert result.images == 2
    assert result.mean("grad").mean == 3.5
    assert math.isnan(result.mean("lrp").low)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("explainer,rater\ngrad,a\n", "no column 'rating'"),
        ("explainer,rater,rating\n", "no ratings below"),
        ("explainer,rater,rating\ngrad,a,good\n", "row 2, column rating: expected a number"),
        ("explainer,rater,rating\ngrad,a,nan\n", "finite"),
        ("explainer,rater,rating\ngrad,,3\n", "must not be empty"),
        ("explainer,rater,rating\ngrad,a,3\ngrad,a,4\n", "row 3: rater 'a' rates 'grad' twice"),
        ("explainer,rater,rating\ngrad,a\n", "row 2: expected 3 cells as in the first row, got 2"),
    ],
)
def test_wrong_files_are_refused(tmp_path, text, word):
    with pytest.raises(InputError, match=word):
        read_ratings(write(tmp_path, text))


def test_ratings_that_decrease_with_the_bias_correlate_negatively(tmp_path):
    bias = synthetic_bias()
    result = compare_with_ratings(bias, read_ratings(write(tmp_path, decreasing_ratings())))
    overall = [bias[name].overall.mean for name in METHODS]
    assert overall == sorted(overall)
    assert result.order.tau == pytest.approx(-1)
    assert result.linear.r == pytest.approx(np.corrcoef([5.1, 4.1, 3.1, 2.1, 1.1], overall)[0, 1])
    assert result.linear.high < 0
    assert (result.raters, result.images) == (3, 1)


def test_explainers_at_a_layer_are_left_out_and_unknown_ones_refused(tmp_path):
    ratings = read_ratings(write(tmp_path, decreasing_ratings()))
    result = compare_with_ratings(synthetic_bias(layer="body.3"), ratings)
    assert result.explainers == ("grad", "gradient_x_input", "lrp", "deepshap")
    with pytest.raises(InputError, match="'grat' has no measured bias"):
        compare_with_ratings(
            synthetic_bias(), read_ratings(write(tmp_path, decreasing_ratings().replace("grad,", "grat,")))
        )
    few = "explainer,rater,rating\ngrad,a,1\nlrp,a,2\n"
    with pytest.raises(InputError, match="at least 3"):
        compare_with_ratings(synthetic_bias(), read_ratings(write(tmp_path, few)))


def test_the_section_needs_ratings_and_a_bias(tmp_path):
    workspace = Workspace(tmp_path / "data", tmp_path / "out", tmp_path, lambda *_: None)
    assert "explainer, rater, rating" in human.run(workspace)
    (tmp_path / "data").mkdir()
    write(tmp_path / "data", decreasing_ratings())
    assert "bias-table" in human.run(workspace)
    bias = synthetic_bias()
    bias.save(table_result_file(workspace.out, "lenet"))
    text = human.run(workspace)
    result = compare_with_ratings(bias, read_ratings(tmp_path / "data" / "ratings.csv"))
    assert f"{result.linear.r:+.2f} [{result.linear.low:+.2f}, {result.linear.high:+.2f}]" in text
    assert "people prefer explainers with little bias" in text
    assert f"| LRP | {bias['lrp'].overall.mean:.4f} | 3.10 ± 0.25 |" in text
    assert (tmp_path / "bias-human.png").exists()
    rising = decreasing_ratings().replace("grad,", "x,").replace("deepshap,", "grad,").replace("x,", "deepshap,")
    write(
        tmp_path / "data",
        rising.replace("gradient_x_input,", "y,").replace("lime,", "gradient_x_input,").replace("y,", "lime,"),
    )
    assert "people prefer explainers with much bias" in human.run(workspace)
