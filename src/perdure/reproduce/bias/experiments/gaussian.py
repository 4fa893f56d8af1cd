"""Are attributions Gaussian and equally wide everywhere, as the bias paper assumes? (its Tables 14 and 15)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from perdure import figures
from perdure.figures.bias_experiments import region_histograms
from perdure.metrics import interval, sampling_distribution
from perdure.reproduce.bias.example_set import FloatArray, LookedAt, look_at
from perdure.reproduce.bias.experiment import Experiment, Place
from perdure.reproduce.bias.formatting import said, shown, table
from perdure.reproduce.bias.metrics import RegionDistributions, region_distributions
from perdure.reproduce.bias.networks import lenet, resnet20

PAPER = {
    "Gradient x Input": ((-0.0129, 0.0086, 0.0004), (0.7243, 0.6894, 0.7719)),
    "Shapley values": ((0.0094, 0.0092, 0.0107), (0.0019, 0.0017, 0.0018)),
}
LEVEL = 0.05


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    images: int = 100
    regions: int = 3
    side: int = 5
    permutations: int = 40
    """For the Shapley values of the regions' pixels, of every image."""
    sampled_images: int = 3
    sampled: int = 1000
    """Permutations for the distribution of the sampling itself."""
    seed: int = 0


SETTINGS = Settings()


def random_regions(height: int, width: int, count: int, side: int, seed: int) -> NDArray[np.int64]:
    """Return (count, side * side): the pixels of squares at random places that do not overlap, row by row."""
    rng = np.random.default_rng(seed)
    corners: list[tuple[int, int]] = []
    while len(corners) < count:
        top, left = (int(rng.integers(0, length - side + 1)) for length in (height, width))
        if all(abs(top - other[0]) >= side or abs(left - other[1]) >= side for other in corners):
            corners.append((top, left))
    offset = (np.arange(side)[:, None] * width + np.arange(side)).ravel()
    return np.array([top * width + left + offset for top, left in corners])


def run(place: Place) -> str:
    """Measure, draw and tell."""
    chosen = SETTINGS
    pixels = look_at(place, lenet(place), chosen.images)
    height, width = pixels.x.shape[2:]
    regions = random_regions(height, width, chosen.regions, chosen.side, chosen.seed)
    deep = look_at(place, resnet20(place), chosen.images)
    measured = {
        "Gradient x Input, ResNet-20": _by_region(deep.maps(("gradient_x_input",))[0], regions),
        "Gradient x Input, LeNet": _by_region(pixels.maps(("gradient_x_input",))[0], regions),
        "Shapley values, LeNet": _sampled(pixels, regions, chosen.permutations),
    }
    figure = region_histograms(
        {name: {f"region {at + 1}": own.ravel() for at, own in enumerate(values)} for name, values in measured.items()},
        {name: _gaussian(values) for name, values in measured.items()},
    )
    figures.save(figure, place.pictures / "bias-gaussian.png")
    found = {name: region_distributions(values) for name, values in measured.items()}
    few = look_at(place, pixels.subject, chosen.sampled_images).marginals(chosen.sampled)
    return "\n\n".join(
        [
            said(
                f"{chosen.regions} regions of {chosen.side} x {chosen.side} pixels at random places, {chosen.images} test",
                f"images ({chosen.images * chosen.side**2} values a region). Shapley values on LeNet",
                f"({100 * pixels.subject.accuracy:.1f} %) from {chosen.permutations} permutations (the paper: ResNet-20, too",
                "slow for this many here); sizes depend on the scale of the logits.",
            ),
            _moments(found),
            "![Densities of the regions' values](bias-gaussian.png)",
            _tests(found),
            _reading(found),
            *_sampling(few, chosen),
        ]
    )


def _by_region(maps: FloatArray, regions: NDArray[np.int64]) -> FloatArray:
    """Return (regions, samples, pixels)."""
    return np.stack([maps[:, region] for region in regions])


def _sampled(pixels: LookedAt, regions: NDArray[np.int64], permutations: int) -> FloatArray:
    values = pixels.marginals(permutations, of=regions.ravel().tolist()).mean(axis=1)
    found: FloatArray = values.reshape(len(values), *regions.shape).swapaxes(0, 1)
    return found


def _gaussian(values: FloatArray) -> FloatArray:
    """Return where a Gaussian of the values' mean and spread is drawn, and its density."""
    mean, spread = float(values.mean()), float(values.std())
    x = np.linspace(mean - 6 * spread, mean + 6 * spread, 200)
    return np.stack([x, stats.norm.pdf(x, mean, spread)])


def _moments(found: dict[str, RegionDistributions]) -> str:
    rows = []
    for name, (means, variances) in PAPER.items():
        rows.append([f"{name}, paper", "mean", *(f"{value}" for value in means)])
        rows.append([f"{name}, paper", "variance", *(f"{value}" for value in variances)])
    for name, one in found.items():
        rows.append([name, "mean", *(f"{value:.2g}" for value in one.mean)])
        rows.append([name, "variance", *(f"{value:.2g}" for value in one.variance)])
    count = max(len(one.mean) for one in found.values())
    return table(["", "", *(f"region {at + 1}" for at in range(count))], rows)


def _tests(found: dict[str, RegionDistributions]) -> str:
    rows = [
        [
            name,
            f"{one.variance.max() / one.variance.min():.2f}",
            f"{one.levene_p:.1g}",
            f"{one.friedman_p:.1g}",
            ", ".join(f"{value:.1f}" for value in one.excess_kurtosis),
            ", ".join(f"{value:.2f}" for value in one.distance),
            ", ".join(f"{value:.1g}" for value in one.normal_p),
        ]
        for name, one in found.items()
    ]
    header = [
        "tests",
        "largest / smallest variance",
        "equal variance: Levene p",
        "Friedman p",
        "excess kurtosis",
        "gap to the Gaussian (KS)",
        "Shapiro p",
    ]
    return table(header, rows)


def _reading(found: dict[str, RegionDistributions]) -> str:
    wide = [name for name, one in found.items() if one.friedman_p < LEVEL]
    odd = [name for name, one in found.items() if one.normal_p.max() < LEVEL]
    return said(
        "Levene's test takes all values for independent, Friedman's ranks the regions within each image, Shapiro's looks at",
        f"one pixel of each image. Equal variance is refused (Friedman, {LEVEL}) for {', '.join(wide) or 'none'}; a",
        f"Gaussian in every region (Shapiro, {LEVEL}) for {', '.join(odd) or 'none'}. Equal means and similar variances,",
        "which the paper reports, say nothing about the shape; kurtosis above 0 means more very large values than a",
        "Gaussian has.",
    )


def _sampling(few: FloatArray, chosen: Settings) -> list[str]:
    """Look at what the assumption is used for: the sampling error of one pixel's Shapley value."""
    found = [sampling_distribution(own) for own in few]
    kurtosis = interval([float(np.nanmedian(one.excess_kurtosis)) for one in found])
    spread = interval([one.variance_spread for one in found])
    return [
        said(
            "The proofs use the assumption for something else: the error that sampling makes in one pixel's Shapley value. On",
            f"{len(few)} images with {chosen.sampled} permutations the median excess kurtosis of a pixel's marginals is",
            f"{shown(kurtosis, 2)}, so that of a value from 1000 permutations is about {kurtosis.mean / 1000:.2g}:",
            f"{'close to' if abs(kurtosis.mean) < 100 else 'still far from'} a Gaussian. The error variances of pixels are not",
            f"one number: the 90th percentile is {shown(spread, 2)} times the 10th.",
        )
    ]


EXPERIMENT = Experiment("bias-gaussian", "Are attributions Gaussian and equally wide?", "Tables 14 and 15", run)
