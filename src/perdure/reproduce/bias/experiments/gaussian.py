"""Tests of the bias paper's Assumption 1: attributions are Gaussian with equal variance (its Tables 14 and 15)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from perdure import figures
from perdure.figures.bias_experiments import bias_experiment_histograms
from perdure.metrics import interval, sampling_distribution
from perdure.reproduce.bias.example_set import ExampleSet, FloatArray, select_example_set
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.measures.regions import RegionDistributions, region_distributions
from perdure.reproduce.bias.trained_models import trained_lenet, trained_resnet20
from perdure.reproduce.formatting import format_interval, format_markdown_table, format_paragraph

PAPER = {
    "Gradient x Input": ((-0.0129, 0.0086, 0.0004), (0.7243, 0.6894, 0.7719)),
    "Shapley values": ((0.0094, 0.0092, 0.0107), (0.0019, 0.0017, 0.0018)),
}
LEVEL = 0.05


@dataclass(frozen=True)
class Settings:
    """Sizes of the measurement."""

    images: int = 100
    regions: int = 3
    side: int = 5
    permutations: int = 40
    """For the Shapley values of the regions' pixels."""
    sampled_images: int = 3
    sampled: int = 1000
    """Permutations for the distribution of the sampling error."""
    seed: int = 0


SETTINGS = Settings()


def gaussian_random_regions(height: int, width: int, count: int, side: int, seed: int) -> NDArray[np.int64]:
    """Return (count, side * side): the pixels of non-overlapping squares at random positions, in row-major order."""
    rng = np.random.default_rng(seed)
    corners: list[tuple[int, int]] = []
    while len(corners) < count:
        top, left = (int(rng.integers(0, length - side + 1)) for length in (height, width))
        if all(abs(top - other[0]) >= side or abs(left - other[1]) >= side for other in corners):
            corners.append((top, left))
    offset = (np.arange(side)[:, None] * width + np.arange(side)).ravel()
    return np.array([top * width + left + offset for top, left in corners])


def run(workspace: Workspace) -> str:
    """Compute the distributions of all regions, save the figure, and return the section."""
    settings = SETTINGS
    pixels = select_example_set(workspace, trained_lenet(workspace), settings.images)
    height, width = pixels.x.shape[2:]
    regions = gaussian_random_regions(height, width, settings.regions, settings.side, settings.seed)
    deep = select_example_set(workspace, trained_resnet20(workspace), settings.images)
    measured = {
        "Gradient x Input, ResNet-20": _by_region(deep.maps(("gradient_x_input",))[0], regions),
        "Gradient x Input, LeNet": _by_region(pixels.maps(("gradient_x_input",))[0], regions),
        "Shapley values, LeNet": _sampled(pixels, regions, settings.permutations),
    }
    figure = bias_experiment_histograms(
        {
            name: {f"region {index + 1}": region.ravel() for index, region in enumerate(values)}
            for name, values in measured.items()
        },
        {name: _gaussian(values) for name, values in measured.items()},
    )
    figures.save(figure, workspace.pictures / "bias-gaussian.png")
    distributions = {name: region_distributions(values) for name, values in measured.items()}
    marginals = select_example_set(workspace, pixels.model, settings.sampled_images).marginals(settings.sampled)
    return "\n\n".join(
        [
            format_paragraph(
                f"{settings.regions} regions of {settings.side} x {settings.side} pixels at random positions,",
                f"{settings.images}",
                f"test images ({settings.images * settings.side**2} values per region). Shapley values on LeNet (accuracy",
                f"{100 * pixels.model.accuracy:.1f} %) from {settings.permutations} permutations (the paper:",
                "ResNet-20, which is too",
                "slow for this many images here). Magnitudes depend on the scale of the logits.",
            ),
            _moments_table(distributions),
            "![Densities of the regions' values](bias-gaussian.png)",
            _tests_table(distributions),
            _reading(distributions),
            *_sampling_error(marginals, settings),
        ]
    )


def _by_region(maps: FloatArray, regions: NDArray[np.int64]) -> FloatArray:
    """Return (regions, examples, pixels)."""
    return np.stack([maps[:, region] for region in regions])


def _sampled(pixels: ExampleSet, regions: NDArray[np.int64], permutations: int) -> FloatArray:
    values = pixels.marginals(permutations, of=regions.ravel().tolist()).mean(axis=1)
    by_region: FloatArray = values.reshape(len(values), *regions.shape).swapaxes(0, 1)
    return by_region


def _gaussian(values: FloatArray) -> FloatArray:
    """Return (2, points): x values and density of the Gaussian with the values' mean and standard deviation."""
    mean, spread = float(values.mean()), float(values.std())
    x = np.linspace(mean - 6 * spread, mean + 6 * spread, 200)
    return np.stack([x, stats.norm.pdf(x, mean, spread)])


def _moments_table(distributions: dict[str, RegionDistributions]) -> str:
    rows = []
    for name, (means, variances) in PAPER.items():
        rows.append([f"{name}, paper", "mean", *(f"{value}" for value in means)])
        rows.append([f"{name}, paper", "variance", *(f"{value}" for value in variances)])
    for name, regions in distributions.items():
        rows.append([name, "mean", *(f"{value:.2g}" for value in regions.mean)])
        rows.append([name, "variance", *(f"{value:.2g}" for value in regions.variance)])
    count = max(len(regions.mean) for regions in distributions.values())
    return format_markdown_table(["", "", *(f"region {index + 1}" for index in range(count))], rows)


def _tests_table(distributions: dict[str, RegionDistributions]) -> str:
    rows = [
        [
            name,
            f"{regions.variance.max() / regions.variance.min():.2f}",
            f"{regions.levene_p:.1g}",
            f"{regions.friedman_p:.1g}",
            ", ".join(f"{value:.1f}" for value in regions.excess_kurtosis),
            ", ".join(f"{value:.2f}" for value in regions.distance),
            ", ".join(f"{value:.1g}" for value in regions.normal_p),
        ]
        for name, regions in distributions.items()
    ]
    header = [
        "tests",
        "largest / smallest variance",
        "equal variance: Levene p",
        "Friedman p",
        "excess kurtosis",
        "KS distance to the Gaussian",
        "Shapiro p",
    ]
    return format_markdown_table(header, rows)


def _reading(distributions: dict[str, RegionDistributions]) -> str:
    unequal = [name for name, regions in distributions.items() if regions.friedman_p < LEVEL]
    not_gaussian = [name for name, regions in distributions.items() if regions.normal_p.max() < LEVEL]
    return format_paragraph(
        "Levene's test assumes that all values are independent, Friedman's test ranks the regions within each image, and the",
        f"Shapiro test uses one pixel per image. Equal variance is rejected (Friedman, {LEVEL}) for",
        f"{', '.join(unequal) or 'none'}; a Gaussian in every region is rejected (Shapiro, {LEVEL}) for",
        f"{', '.join(not_gaussian) or 'none'}. Equal means and similar variances, which the paper reports, do not",
        "determine the",
        "shape. A kurtosis above 0 means more extreme values than a Gaussian has.",
    )


def _sampling_error(marginals: FloatArray, settings: Settings) -> list[str]:
    """Describe the sampling error of one pixel's Shapley value, for which the proofs use the assumption."""
    distributions = [sampling_distribution(image) for image in marginals]
    kurtosis = interval([float(np.nanmedian(image.excess_kurtosis)) for image in distributions])
    spread = interval([image.variance_spread for image in distributions])
    return [
        format_paragraph(
            "The proofs apply the assumption to another quantity: the sampling error of one pixel's Shapley value. On",
            f"{len(marginals)} images with {settings.sampled} permutations, the median excess kurtosis of a",
            "pixel's marginals is",
            f"{format_interval(kurtosis, 2)}, so a value from 1000 permutations has about {kurtosis.mean / 1000:.2g}:",
            f"{'close to' if abs(kurtosis.mean) < 100 else 'still far from'} a Gaussian. The error variance differs between",
            f"pixels: the 90th percentile is {format_interval(spread, 2)} times the 10th.",
        )
    ]


EXPERIMENT = Experiment(
    "bias-gaussian", "Are attributions Gaussian with equal variance?", paper="Tables 14 and 15", run=run
)
