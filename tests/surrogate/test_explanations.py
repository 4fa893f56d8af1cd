"""Competing explanations of curves, the curriculum that separates them, and stability under the seed."""

import json

import numpy as np
import pytest

from perdure import surrogate
from perdure.base.errors import InputError
from perdure.surrogate.diagnostics.competing import competing_points
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.noise import cell_noise
from perdure.surrogate.estimation.prior import weak_prior

FORGETS = np.eye(5) * 90 / 90
REHEARSES = np.array(
    [
        [1.0, 1.0, 1.0, 87 / 90, 84 / 90],
        [0.0, 88 / 90, 87 / 90, 88 / 90, 86 / 90],
        [0.0, 0.0, 89 / 90, 89 / 90, 88 / 90],
        [0.0, 0.0, 0.0, 1.0, 89 / 90],
        [0.0, 0.0, 0.0, 0.0, 87 / 90],
    ]
)
"""Accuracies of Split Digits with one seed, (tasks, steps): naive has forgotten every earlier task after each step."""


def split_digits():
    curves = np.stack([FORGETS, REHEARSES])
    return np.concatenate([np.zeros((2, 5, 1)), curves], axis=2)


@pytest.fixture(scope="module")
def undecided():
    return surrogate.fit(
        split_digits(), range(5), starts=8, examples=90, algorithms=["naive", "rehearsal"], forecast=False
    )


def test_forgetting_is_not_told_from_interference_if_each_task_is_visited_once(undecided):
    """Both no retention, and a retention with negative transfer between tasks, explain that all earlier tasks are at 0."""
    low, high = undecided.intervals["retention"][0]
    assert low == 0
    assert high > 0.3
    assert not undecided.diagnostics.supported["retention"][0]
    retentions = [explanation.retention[0] for explanation in undecided.explanations]
    assert min(retentions) < 0.05
    assert max(retentions) > 0.3
    interference = undecided.explanations[int(np.argmax(retentions))]
    assert np.diagonal(interference.transfer, -1).max() < -0.2
    assert all(explanation.excess <= undecided.limit for explanation in undecided.explanations)


def test_a_gain_at_which_performance_saturates_is_not_supported():
    """Above a gain of 10, the first task is at an accuracy of 1 after each visit, and larger gains change nothing."""
    order = [0, 1, 2, 0, 1, 2]
    gain = np.array([[9.6, 0.2, 0.1], [0.5, 1.5, 0.2], [0.3, 0.1, 2.0]])
    curves = surrogate.simulate(order, gain, np.ones(3), np.array([0.4, 1, 1.6]), np.array([0.0, 1, 0.5]), np.zeros(3))
    accuracy = np.random.default_rng(2).binomial(90, curves) / 90
    fit = surrogate.fit(accuracy, order, starts=8, examples=90, forecast=False)
    assert not fit.diagnostics.supported["gain"][0, 0]
    assert not fit.diagnostics.supported["difficulty"][0]
    assert fit.intervals["gain"][0, 0, 1] >= 1.5 * fit.gain[0, 0]
    assert fit.diagnostics.supported["gain"][1, 1]


def test_the_summary_says_what_cannot_be_separated_and_what_to_run_next(undecided):
    first, proposal = surrogate.ambiguities(undecided)
    assert first.startswith(
        "The data cannot separate forgetting from interference between tasks for naive (retention 0.00 to"
    )
    assert "train the curriculum" in proposal
    assert any(line.startswith("naive: retention undecided") for line in surrogate.describe(undecided))
    short, long = surrogate.describe(undecided), surrogate.describe(undecided, details=True)
    assert any(line.startswith("Explanation 2 (loss +") for line in long)
    assert not any("starting points" in line for line in short)
    written = undecided.to_dict()
    json.dumps(written, allow_nan=False)
    assert len(written["explanations"]["fits"]) == len(undecided.explanations)


def test_the_designed_curriculum_decides(undecided):
    """The outcome is simulated for a learner that forgets everything; both curricula are fitted together."""
    proposal = surrogate.design(undecided, 4, outcomes=0)
    assert proposal.separation >= proposal.random_separation
    assert np.isnan(proposal.range_after)
    forgetful = min(undecided.explanations, key=lambda explanation: explanation.retention[0])
    coordinates = undecided.coordinates
    from perdure.surrogate.model import simulate_batch

    point = forgetful.point[None]
    curves = simulate_batch(proposal.curriculum, coordinates.full_gain(point), *coordinates.split(point)[1:])[0]
    accuracies = np.random.default_rng(0).binomial(90, np.clip(curves, 0, 1)) / 90
    decided = surrogate.fit(
        [split_digits(), accuracies],
        [list(range(5)), list(proposal.curriculum)],
        starts=8,
        examples=90,
        algorithms=["naive", "rehearsal"],
        forecast=False,
    )
    assert decided.diagnostics.supported["retention"][0]
    assert decided.intervals["retention"][0, 1] < 0.2
    assert surrogate.ambiguities(decided) == []


def test_simulated_outcomes_of_a_design_narrow_the_retentions(undecided):
    proposal = surrogate.design(undecided, 2, outcomes=1)
    assert proposal.outcomes == 3
    assert proposal.range_after < proposal.range_before
    assert proposal.to_dict()["curriculum"] == [task + 1 for task in proposal.curriculum]


def well_determined(noise=0.01, seed=0):
    curriculum = [0, 1, 2, 1, 0, 2]
    transfer = np.array([[1.0, 0.3, -0.2], [-0.4, 1.0, 0.1], [0.2, -0.3, 1.0]])
    curves = surrogate.simulate(
        curriculum, transfer, [0.5, 0.4, 0.6], [0.5, 0.8, 0.3], [0.9, 0.5, 0.7], [0.3, 0.6, 0.2]
    )
    return curves + np.random.default_rng(seed).normal(0, noise, curves.shape), curriculum


def test_well_determined_curves_have_one_explanation():
    curves, curriculum = well_determined()
    fit = surrogate.fit(curves, curriculum, starts=4, forecast=False)
    assert len(fit.explanations) == 1
    assert surrogate.ambiguities(fit) == []
    with pytest.raises(InputError, match="single explanation"):
        surrogate.design(fit, 3)
    with pytest.raises(InputError, match="at least 1 step"):
        surrogate.design(fit, 0)


def test_without_the_search_intervals_are_those_near_the_best_fit(undecided):
    local = surrogate.fit(split_digits(), range(5), starts=8, examples=90, forecast=False, explanations=False)
    assert local.explanations == ()
    width, full = (np.ptp(fit.intervals["retention"][0]) for fit in (local, undecided))
    assert width < full


@pytest.mark.parametrize("seed", [1, 2])
def test_another_seed_gives_the_same_estimates_and_explanations(undecided, seed):
    other = surrogate.fit(
        split_digits(), range(5), starts=8, examples=90, algorithms=["naive", "rehearsal"], forecast=False, seed=seed
    )
    assert other.strength == undecided.strength
    np.testing.assert_allclose(other.retention, undecided.retention, atol=0.005)
    np.testing.assert_allclose(other.intervals["retention"], undecided.intervals["retention"], atol=0.02)
    np.testing.assert_allclose(other.intervals["efficiency"], undecided.intervals["efficiency"], atol=0.02)
    assert len(other.explanations) == len(undecided.explanations)
    for first, second in zip(other.explanations, undecided.explanations, strict=True):
        np.testing.assert_allclose(first.retention, second.retention, atol=0.02)


def test_competing_points_are_sorted_and_within_the_limit():
    curves, curriculum = well_determined(0.05)
    coordinates = Coordinates(surrogate.make_problem(curves, curriculum, examples=200))
    noise = cell_noise(coordinates.problem)
    prior = weak_prior(coordinates)
    known = surrogate.fit(curves, curriculum, starts=2, forecast=False, explanations=False).point[None]
    points, excess = competing_points(coordinates, prior, noise, noise.reference, 6.0, known, np.random.default_rng(0))
    assert excess[0] == 0
    assert (np.diff(excess) >= 0).all()
    assert excess[-1] <= 6
    residual = noise.weights * (coordinates.performance(points) - coordinates.problem.targets)
    penalty = prior.objective(coordinates.problem, np.array([0.1 * noise.reference])).penalty(points)[0]
    loss = ((residual**2).sum(axis=1) + penalty) / noise.reference
    np.testing.assert_allclose(loss - loss.min(), excess, atol=1e-6)


@pytest.mark.parametrize(
    "curves", [np.zeros((2, 3, 5)), np.full((2, 3, 5), 0.4), np.ones((1, 3, 5))], ids=["zeros", "constant", "ones"]
)
def test_undetermined_values_never_have_intervals_without_width(curves):
    fit = surrogate.fit(curves, [0, 1, 2, 0], starts=4, forecast=False)
    for name in ("retention", "efficiency", "translation"):
        if len(curves) == 1 and name == "efficiency":
            continue  # a single algorithm has efficiency 1 by definition
        widths = np.ptp(fit.intervals[name], axis=-1)
        assert (widths[~fit.diagnostics.supported[name]] > 0.01).all(), name
    assert not fit.diagnostics.supported["translation"].any()


def test_noise_free_curves_have_narrow_intervals_with_width():
    curves, curriculum = well_determined(0.0)
    fit = surrogate.fit(curves, curriculum, starts=4, forecast=False)
    widths = np.ptp(fit.intervals["retention"], axis=-1)
    assert (widths > 0).all()
    assert (widths < 0.01).all()


def test_one_task_and_one_step_say_what_is_undetermined():
    fit = surrogate.fit([[[0.0, 0.8]]], [0], starts=4)
    assert not fit.diagnostics.supported["retention"].any()
    assert np.ptp(fit.intervals["retention"][0]) > 0.5
    assert any("fewer data than parameters" in line for line in surrogate.describe(fit))


def test_predictions_cover_all_explanations(undecided):
    prediction = surrogate.predict(undecided, [1, 0], count=20)
    for explanation in undecided.explanations:
        coordinates = undecided.coordinates
        gain = coordinates.full_gain(explanation.point[None])[0]
        curves = surrogate.simulate(
            [1, 0], gain, np.ones(5), explanation.efficiency, explanation.retention, explanation.translation
        )
        assert (prediction.low <= curves + 1e-9).all()
        assert (curves <= prediction.high + 1e-9).all()


def test_the_advantage_of_a_best_order_covers_all_explanations(undecided):
    best = surrogate.best_order(undecided, range(5))
    finals = []
    for explanation in undecided.explanations:
        gain = undecided.coordinates.full_gain(explanation.point[None])[0]
        properties = (explanation.efficiency, explanation.retention, explanation.translation)
        curves = [surrogate.simulate(order, gain, np.ones(5), *properties) for order in (best.order, range(5))]
        finals.append(curves[0][:, :, -1].mean() - curves[1][:, :, -1].mean())
    assert best.gain_low <= min(finals) + 1e-9
    assert best.gain_high >= max(finals) - 1e-9
    assert best.explanations == len(undecided.explanations) > 1
    assert best.agreeing == sum(value > 0 for value in finals)


def test_ranks_cover_all_explanations(undecided):
    order = [0, 1, 2, 3, 4]
    curves = np.concatenate([split_digits(), split_digits()[:1] * 0.9])
    fit = surrogate.fit(curves, order, starts=8, examples=90, algorithms=["naive", "rehearsal", "half"], forecast=False)
    ranks = surrogate.compare_ranks({"one": fit, "two": fit}, "retention")
    for explanation in fit.explanations:
        position = 1 + (explanation.retention > explanation.retention[0]).sum()
        assert ranks.rank_low[0, 0] <= position + 1
        assert ranks.rank_high[0, 0] >= position
    assert -1 <= ranks.agreement_low <= ranks.agreement <= ranks.agreement_high <= 1 + 1e-12
    assert undecided.explanations
