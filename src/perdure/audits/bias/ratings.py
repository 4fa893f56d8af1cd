"""Human ratings of explainers compared with their attribution bias (the bias paper's Figure 9)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perdure.audits.bias.results import BiasResult
from perdure.base.errors import InputError, error_suggestion
from perdure.base.files import LONGEST_NAME, parse_csv_number, read_csv_file, shorten_text
from perdure.metrics import (
    Interval,
    KendallCorrelation,
    PearsonCorrelation,
    interval,
    kendall_correlation,
    pearson_correlation,
)

COLUMNS = ("explainer", "rater", "rating")
FORMAT = "a CSV file with the columns explainer, rater, rating and, if several images were rated, image"
MIN_EXPLAINERS = 3


@dataclass(frozen=True)
class Ratings:
    """``by_rater[explainer][rater]`` is the rater's mean over images; ``images`` is 1 if no image is named."""

    by_rater: dict[str, dict[str, float]]
    images: int

    def mean(self, explainer: str) -> Interval:
        """Return the explainer's mean rating with its interval over raters."""
        return interval(list(self.by_rater[explainer].values()))


@dataclass(frozen=True)
class HumanAgreement:
    """The correlation of ratings and bias over explainers; negative if people prefer explainers with little bias.

    ``linear`` is Pearson's correlation with Fisher's interval, ``order`` Kendall's tau.
    """

    explainers: tuple[str, ...]
    ratings: tuple[Interval, ...]
    bias: tuple[Interval, ...]
    linear: PearsonCorrelation
    order: KendallCorrelation
    raters: int
    images: int

    @property
    def reading(self) -> str:
        """The correlations in one sentence."""
        linear = self.linear
        if math.isnan(linear.r):
            return "The correlation is undefined: all explainers have the same mean rating or the same bias."
        known = not math.isnan(linear.low)
        interval_text = (
            f" [{linear.low:+.2f}, {linear.high:+.2f}]" if known else " (too few explainers for an interval)"
        )
        if known and linear.high < 0:
            conclusion = "people prefer explainers with little bias"
        elif known and linear.low > 0:
            conclusion = "people prefer explainers with much bias"
        else:
            conclusion = "not significantly different from zero with this number of explainers"
        return (
            f"Correlation of mean rating and bias over {linear.n} explainers: {linear.r:+.2f}{interval_text}; Kendall's tau "
            f"{self.order.tau:+.2f} (p = {self.order.p:.2f}): {conclusion}."
        )


def read_ratings(path: str | Path) -> Ratings:
    """Read a CSV file of ratings: columns explainer, rater and rating (any scale), and image if several were rated."""
    file = Path(path)
    rows = read_csv_file(file)
    header = [cell.lower() for cell in rows[0]]
    for column in COLUMNS:
        if column not in header:
            raise InputError(
                f"{file}: no column {column!r} in its first row ({shorten_text(', '.join(rows[0]))}); expected {FORMAT}"
            )
    if len(rows) < 2:
        raise InputError(f"{file}: no ratings below the first row; expected {FORMAT}")
    columns = {name: header.index(name) for name in header}
    seen: dict[tuple[str, str, str], float] = {}
    for number, row in enumerate(rows[1:], start=2):
        image = row[columns["image"]] if "image" in columns else ""
        key = (row[columns["explainer"]], row[columns["rater"]], image)
        if max(map(len, key)) > LONGEST_NAME:
            raise InputError(f"{file}: row {number}: expected names of at most {LONGEST_NAME} characters")
        if not key[0] or not key[1]:
            raise InputError(f"{file}: row {number}: explainer and rater must not be empty")
        if key in seen:
            which = f" of image {image}" if image else ""
            raise InputError(f"{file}: row {number}: rater {key[1]!r} rates {key[0]!r}{which} twice")
        value = parse_csv_number(file, number, "rating", row[columns["rating"]])
        if not math.isfinite(value):
            raise InputError(f"{file}: row {number}, column 'rating': expected a finite number, got {value}")
        seen[key] = value
    ratings: dict[str, dict[str, list[float]]] = {}
    for (explainer, rater, _), value in seen.items():
        ratings.setdefault(explainer, {}).setdefault(rater, []).append(value)
    means = {
        explainer: {rater: float(np.mean(values)) for rater, values in raters.items()}
        for explainer, raters in ratings.items()
    }
    return Ratings(means, len({image for _, _, image in seen}))


def compare_with_ratings(bias: BiasResult, ratings: Ratings) -> HumanAgreement:
    """Correlate mean ratings with the bias over all shares and sides, for the explainers that have both.

    An explainer measured at a layer (Grad-CAM) is left out, because its players and therefore its scale differ.
    """
    measured = {entry.method: entry for entry in bias.explainers}
    for name in ratings.by_rater:
        if name not in measured:
            raise InputError(
                f"ratings: explainer {name!r} has no measured bias, {error_suggestion(name, list(measured))}"
            )
    names = tuple(name for name in ratings.by_rater if measured[name].layer is None)
    if len(names) < MIN_EXPLAINERS:
        raise InputError(
            f"ratings: {len(names)} explainers have both a rating and a bias at the input; a correlation needs at least "
            f"{MIN_EXPLAINERS}"
        )
    rated = tuple(ratings.mean(name) for name in names)
    known = tuple(measured[name].overall for name in names)
    pairs = [value.mean for value in rated], [value.mean for value in known]
    return HumanAgreement(
        explainers=names,
        ratings=rated,
        bias=known,
        linear=pearson_correlation(*pairs),
        order=kendall_correlation(*pairs),
        raters=len(_raters(ratings.by_rater)),
        images=ratings.images,
    )


def _raters(by_rater: Mapping[str, Mapping[str, float]]) -> set[str]:
    return {rater for ratings in by_rater.values() for rater in ratings}
