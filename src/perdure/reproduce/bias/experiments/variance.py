"""Is the anchor's variance |S| times smaller, as Proposition 1 of the bias paper claims?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure import figures
from perdure.figures.bias_experiments import Line, lines_with_bands
from perdure.metrics import variance_ratio
from perdure.reproduce.bias.example_set import SHORT, FloatArray, look_at
from perdure.reproduce.bias.experiment import Experiment, Place
from perdure.reproduce.bias.formatting import geometric, said, table
from perdure.reproduce.bias.networks import lenet


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    images: int = 6
    permutations: int = 1000
    shares: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9)
    methods: tuple[str, ...] = ("gradient_x_input", "integrated_gradients", "lrp", "deepshap", "lime")
    draws: int = 20
    """Random sets at each share."""
    seed: int = 0


SETTINGS = Settings()


def ratios_by_set(
    marginals: FloatArray, orders: FloatArray, shares: tuple[float, ...], draws: int, seed: int
) -> FloatArray:
    """Return (1 + maps, shares, samples): Var[A_i] / Var[beta_S] over |S|, for random S first, then for the top of each map.

    ``marginals``: (samples, permutations, players), ``orders``: (maps, samples, players). Random sets are averaged on the
    logarithmic scale.
    """
    players = marginals.shape[2]
    sizes = [max(2, round(share * players)) for share in shares]
    found = np.empty((1 + len(orders), len(sizes), len(marginals)))
    rng = np.random.default_rng(seed)
    for sample, own in enumerate(marginals):
        for place, size in enumerate(sizes):
            drawn = [variance_ratio(own, rng.permutation(players)[:size]).of_claimed for _ in range(draws)]
            found[0, place, sample] = np.exp(np.mean(np.log(drawn)))
            for index, maps in enumerate(orders):
                top = np.argsort(-maps[sample], kind="stable")[:size]
                found[1 + index, place, sample] = variance_ratio(own, top).of_claimed
    return found


def run(place: Place) -> str:
    """Measure, draw and tell."""
    chosen, subject = SETTINGS, lenet(place)
    looked = look_at(place, subject, chosen.images)
    marginals = looked.marginals(chosen.permutations)
    found = ratios_by_set(marginals, looked.maps(chosen.methods), chosen.shares, chosen.draws, chosen.seed)
    players = looked.players.count
    sizes = np.array([max(2, round(share * players)) for share in chosen.shares])
    names = ["random", *(f"top by {SHORT.get(name, name)}" for name in chosen.methods)]
    figure = lines_with_bands(
        {"|S|": (sizes, [Line(name, row * sizes[:, None]) for name, row in zip(names, found, strict=True)])},
        "Var of one value / Var of the anchor",
        reference=sizes.astype(float),
    )
    figures.save(figure, place.pictures / "bias-variance.png")
    alone = (players - 1) / (players - sizes)
    rows = [
        [f"{size} ({share:.0%})", f"{alone[at]:.2g}", *(geometric(row[at], 2) for row in found)]
        for at, (size, share) in enumerate(zip(sizes, chosen.shares, strict=True))
    ]
    fixed = float(np.abs(marginals.sum(axis=2) - marginals.sum(axis=2).mean(axis=1, keepdims=True)).max())
    return "\n\n".join(
        [
            said(
                f"LeNet, {chosen.images} images, {players} pixels, {chosen.permutations} permutations. The mean variance of",
                "the Shapley values in S over the variance of their mean, divided by the claimed |S|: 1 is the claim, above 1",
                "the anchor gains more than claimed. Geometric means over images with 95 % intervals; each random cell has",
                f"{chosen.draws} sets. Fixed sum: (n - 1) / (n - |S|), what follows if marginals are alike but for their sum,",
                f"which is the same in every order (here to {fixed:.0e}).",
            ),
            table(["size of S", "fixed sum", *names], rows),
            "![Variance ratio against the size of S](bias-variance.png)",
            _words(found, alone, chosen, names),
        ]
    )


def _words(found: FloatArray, alone: FloatArray, chosen: Settings, names: list[str]) -> str:
    mean = np.exp(np.log(found).mean(axis=2))
    ten = int(np.argmin(np.abs(np.array(chosen.shares) - 0.1)))
    lowest, highest = int(mean[1:, ten].argmin()) + 1, int(mean[1:, ten].argmax()) + 1
    off = np.abs(np.log(mean[0] / alone)).max()
    below = int((mean[1:] < mean[0]).sum())
    under = int((mean < 1).sum())
    return said(
        f"Proposition 1 takes a permutation's marginals for independent. At the {chosen.shares[ten]:.0%} share it is off by a",
        f"factor of {mean[0, ten]:.2g} for random sets, and of {mean[lowest, ten]:.2g} ({names[lowest]}) to",
        f"{mean[highest, ten]:.2g} ({names[highest]}) for the sets that M_bias looks at; at {chosen.shares[-1]:.0%} of",
        f"{mean[0, -1]:.2g} for random sets and {mean[1:, -1].min():.2g} to {mean[1:, -1].max():.2g} for the others. The claim",
        f"is {'too modest everywhere' if under == 0 else f'too bold in {under} of {mean.size} cells, too modest in the rest'}:",
        "marginals with a fixed sum are anti-correlated on the average. For random sets that alone explains the measured",
        f"ratio to {100 * np.expm1(off):.0f} %. The sets that explainers choose gain less than random ones of their size in",
        f"{below} of {mean[1:].size} cells.",
    )


EXPERIMENT = Experiment("bias-variance", "Is the anchor |S| times less noisy?", paper="Proposition 1", run=run)
