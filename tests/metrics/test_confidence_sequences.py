"""Confidence sequences: the probability of ever excluding the truth, closed forms, and their length."""

import math

import numpy as np
import pytest
from scipy.special import betaln

from perdure import metrics
from perdure.base.errors import InputError

STREAMS = 400
LENGTH = 2000
LEVEL = 0.9
MOST_MISSES = 0.1 + 3 * math.sqrt(0.1 * 0.9 / STREAMS)


def ever_excluded(sequences: list[metrics.ConfidenceSequence], truth: float) -> float:
    """Return the share of sequences that exclude the truth at any time: the last interval is the running intersection."""
    return float(np.mean([not (each.low[-1] <= truth <= each.high[-1]) for each in sequences]))


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.995])
def test_a_rate_is_ever_excluded_at_most_at_the_nominal_rate(rate):
    rng = np.random.default_rng(int(1000 * rate))
    streams = rng.random((STREAMS, LENGTH)) < rate
    sequences = [metrics.rate_confidence_sequence(stream, LEVEL) for stream in streams]
    assert ever_excluded(sequences, rate) <= MOST_MISSES


@pytest.mark.parametrize("kind", ["bernoulli", "skewed", "differences"])
def test_a_mean_is_ever_excluded_at_most_at_the_nominal_rate(kind):
    rng = np.random.default_rng(len(kind))
    bounds, shape = (0.0, 1.0), (STREAMS, LENGTH)
    if kind == "bernoulli":
        values, truth = (rng.random(shape) < 0.97).astype(float), 0.97
    elif kind == "skewed":
        values, truth = rng.beta(0.3, 2.7, shape), 0.1
    else:  # an example is lost, unchanged or gained
        values, truth, bounds = rng.choice([-1.0, 0.0, 1.0], p=[0.04, 0.93, 0.03], size=shape), -0.01, (-1.0, 1.0)
    sequences = [metrics.mean_confidence_sequence(stream, bounds, LEVEL) for stream in values]
    assert ever_excluded(sequences, truth) <= MOST_MISSES


@pytest.mark.parametrize("score", [-0.2, 0.6])
def test_a_calibrated_score_is_ever_excluded_at_most_at_the_nominal_rate(score):
    rng = np.random.default_rng(int(10 * (score + 1)))
    floors = rng.beta(3, 5, (STREAMS, LENGTH))
    # Floors and values of an example are correlated; E value = E floor + score (1 - E floor).
    noise = rng.uniform(-0.2, 0.2, floors.shape)
    values = np.mean(3 / 8) + score * (1 - 3 / 8) + 0.5 * (floors - 3 / 8) + noise
    sequences = [
        metrics.calibrated_confidence_sequence(*stream, bounds=(-1.0, 2.0), level=LEVEL)
        for stream in zip(values, floors, strict=True)
    ]
    assert ever_excluded(sequences, score) <= MOST_MISSES
    assert np.mean([each.high[-1] - each.low[-1] for each in sequences]) < 0.2


def test_the_ends_of_a_rate_solve_the_beta_binomial_equation():
    successes = [1, 1, 0, 1, 1, 1, 0, 1, 1, 1]
    sequence = metrics.rate_confidence_sequence(successes, looks=[10])
    counts = [(sum(successes[:n]), n) for n in range(1, 11)]
    for end in (sequence.low[0], sequence.high[0]):
        bets = [
            betaln(k + 0.5, n - k + 0.5) - betaln(0.5, 0.5) - k * math.log(end) - (n - k) * math.log(1 - end)
            for k, n in counts
        ]
        assert max(bets) == pytest.approx(math.log(20), abs=1e-6)
    assert sequence.mean[0] == 0.8


def test_the_ends_of_a_mean_are_where_a_bet_of_the_paper_wins():
    rng = np.random.default_rng(3)
    x = rng.beta(2, 4, 60)
    sequence = metrics.mean_confidence_sequence(x)

    def capital(m: float, sign: float) -> float:
        mean, variance, best, log_capital = 0.5, 0.25, -math.inf, 0.0
        total, squares = 0.5, 0.25
        for t, value in enumerate(x, start=1):
            bet = math.sqrt(2 * math.log(2 / 0.05) / (variance * t * math.log(t + 1)))
            bet = min(bet, 0.5 / m if sign > 0 else 0.5 / (1 - m))
            log_capital += math.log(1 + sign * bet * (value - m))
            best = max(best, log_capital)
            squares += (value - mean) ** 2
            total += value
            mean, variance = total / (t + 1), squares / (t + 1)
        return best

    assert capital(float(sequence.low[0]), 1.0) == pytest.approx(math.log(40), abs=1e-6)
    assert capital(float(sequence.high[0]), -1.0) == pytest.approx(math.log(40), abs=1e-6)


def test_intervals_shrink_with_the_number_of_examples_and_with_the_variance():
    rng = np.random.default_rng(0)
    looks = [50, 500, 5000]
    wide = metrics.mean_confidence_sequence(rng.random(5000) < 0.5, looks=looks)
    narrow = metrics.mean_confidence_sequence(0.5 + 0.05 * rng.standard_normal(5000).clip(-2, 2), looks=looks)
    for sequence in (wide, narrow):
        lengths = sequence.high - sequence.low
        assert (np.diff(sequence.low) >= 0).all()
        assert (np.diff(sequence.high) <= 0).all()
        assert (lengths[1:] < 0.5 * lengths[:-1]).all()
    assert narrow.high[-1] - narrow.low[-1] < 0.25 * (wide.high[-1] - wide.low[-1])
    rate = metrics.rate_confidence_sequence(rng.random(5000) < 0.5, looks=looks)
    exact = metrics.binomial_interval(2500, 5000)
    assert 1 < (rate.high[-1] - rate.low[-1]) / (exact.high - exact.low) < 2.2


def test_sequences_of_equal_values():
    rate = metrics.rate_confidence_sequence(np.zeros(100), looks=[1, 100])
    assert rate.low.tolist() == [0.0, 0.0]
    assert rate.high[1] < 0.07 < rate.high[0]
    mean = metrics.mean_confidence_sequence(np.ones(100))
    assert mean.high[0] == 1.0
    assert mean.low[0] > 0.9
    identical = metrics.calibrated_confidence_sequence(np.ones(100), np.full(100, 0.4))
    assert identical.mean[0] == pytest.approx(1.0)
    assert identical.low[0] > 0.8
    assert identical.high[0] == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.rate_confidence_sequence([0.5]), "zeros and ones"),
        (lambda: metrics.rate_confidence_sequence([1, 0], looks=[3]), "looks: expected increasing numbers from 1 to 2"),
        (lambda: metrics.rate_confidence_sequence([1, 0], level=1), "level"),
        (lambda: metrics.mean_confidence_sequence([2.0]), "between 0 and 1"),
        (lambda: metrics.mean_confidence_sequence([0.5], bounds=(1, 1)), "bounds"),
        (lambda: metrics.calibrated_confidence_sequence([0.5], [0.1, 0.2]), "as many of both, got 1 and 2"),
        (lambda: metrics.calibrated_confidence_sequence([0.5], [1.5]), "floors in"),
    ],
)
def test_values_out_of_range_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
