"""The claims of the paper, and whether the published curves support them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from perdure import surrogate
from perdure.reproduce.clamp import published
from perdure.reproduce.clamp.synthetic import SyntheticResult
from perdure.reproduce.clamp.tables import PublishedFits
from perdure.reproduce.formatting import format_markdown_table

Properties = dict[str, NDArray[np.float64]]
_FIRST_RANKS = 3


@dataclass(frozen=True)
class _Claim:
    """A claim about the properties of a data set: whether it holds, for a batch of properties."""

    text: str
    fits: PublishedFits
    holds: Callable[[Properties], NDArray[np.bool_]]

    def row(self) -> list[str]:
        """Return the claim, the share of draws in which it holds, and the verdict."""
        share = float(self.holds(self.fits.drawn).mean())
        explanations = self.holds(self.fits.competing)
        measured = f"in {share:.1%} of draws"
        if len(explanations) > 1:
            measured += f"; in {explanations.sum()} of {len(explanations)} explanations"
        return [self.text, measured, _verdict(share, explanations)]


def _verdict(share: float, explanations: NDArray[np.bool_]) -> str:
    """Return the verdict on a claim from the share of draws in which it holds, and the competing explanations."""
    if share >= 0.95 and explanations.all():
        return "supported"
    return "not supported" if share <= 0.05 and not explanations.any() else "undecidable"


def claim_table(
    atari: PublishedFits,
    mnist: PublishedFits,
    cifar: PublishedFits,
    ranks: surrogate.RankComparison,
    synthetic: SyntheticResult,
) -> str:
    """Return the table of the paper's claims, the measured values and the verdicts."""
    errors = synthetic.adam_errors
    rows = [
        [
            "App. B: the model is identifiable",
            (
                f"{atari.fit.diagnostics.nullity.total} directions of the Atari parameters change no curve (6 for five tasks), "
                "for any data"
            ),
            "not supported",
        ],
        [
            "App. B: parameters are recovered with small error",
            (
                f"retention: yes (their MSE {errors['retention']:.5f}); A: no (MSE {errors['transfer']:.3f} at curve loss "
                f"{synthetic.adam_loss:.0e}; the identity matrix has {synthetic.identity_error:.3f})"
            ),
            "not supported",
        ],
        ["MNIST is fitted to .005", f"no parameters reach an error below {mnist.exact.loss:.4f}", "not supported"],
        [
            "CIFAR-100 is fitted to .01",
            f"the authors' Adam reaches {cifar.adam.loss:.4f}, which is better",
            "supported",
        ],
        ["Atari is fitted to .007", f"the authors' Adam reaches {atari.adam.loss:.4f}", "supported"],
        _forecast_row((atari, mnist, cifar)),
        *(claim.row() for claim in _claims(atari, mnist, cifar)),
        _translation_row((atari, mnist, cifar)),
        _rank_row(ranks),
    ]
    return format_markdown_table(["claim", "measured", "verdict"], rows)


def _claims(atari: PublishedFits, mnist: PublishedFits, cifar: PublishedFits) -> list[_Claim]:
    clear, ewc, online = (atari.data.algorithms.index(name) for name in ("Clear", "EWC", "EWC_online"))
    others = [index for index in range(len(atari.data.algorithms)) if index not in (ewc, online)]
    normal = mnist.data.algorithms.index("NormalNN")
    digits = len(mnist.data.tasks)

    def highest_transfer(values: Properties) -> NDArray[np.bool_]:
        off_diagonal = np.where(np.eye(digits, dtype=bool), -np.inf, values["transfer"])
        return np.asarray(off_diagonal.reshape(len(off_diagonal), -1).argmax(axis=1) == 3 * digits + 4)

    def one_of_the_most_efficient(values: Properties) -> NDArray[np.bool_]:
        efficiency = values["efficiency"]
        return np.asarray((efficiency > efficiency[:, [normal]]).sum(axis=1) < _FIRST_RANKS)

    return [
        _Claim(
            "Atari: CLEAR has the best efficiency", atari, lambda values: values["efficiency"].argmax(axis=1) == clear
        ),
        _Claim(
            "Atari: CLEAR has the best retention", atari, lambda values: values["retention"].argmax(axis=1) == clear
        ),
        _Claim(
            "Atari: EWC and online EWC have the lowest efficiencies",
            atari,
            lambda values: (
                values["efficiency"][:, [ewc, online]].max(axis=1) < values["efficiency"][:, others].min(axis=1)
            ),
        ),
        _Claim(
            "MNIST: the diagonal of transfer is positive",
            mnist,
            lambda values: np.asarray((np.diagonal(values["gain"], axis1=1, axis2=2) > 0).all(axis=1)),
        ),
        _Claim("MNIST: the highest transfer is from 6,7 to 8,9", mnist, highest_transfer),
        _Claim(
            f"MNIST: NormalNN is among the {_FIRST_RANKS} of {len(mnist.data.algorithms)} with the highest efficiency",
            mnist,
            one_of_the_most_efficient,
        ),
        _Claim(
            "CIFAR-100: task 1 is the easiest (0.0 against 0.3)",
            cifar,
            lambda values: values["difficulty"].argmin(axis=1) == 0,
        ),
    ]


def _forecast_row(studies: tuple[PublishedFits, ...]) -> list[str]:
    better = [row.beats_trivial for fits in studies for row in fits.fit.held_out]
    return [
        "The model predicts future performance (our test)",
        f"{sum(better)} of {len(better)} forecasts are better than all four simple predictors",
        "supported" if all(better) else "not supported",
    ]


def _translation_row(studies: tuple[PublishedFits, ...]) -> list[str]:
    supported = np.concatenate([fits.fit.diagnostics.supported["translation"] for fits in studies])
    return [
        "Values of the expertise translation (tables 1a, 3, 5)",
        f"{(~supported).sum()} of {len(supported)} are not determined by the data alone",
        "supported" if supported.all() else "undecidable",
    ]


def _rank_row(ranks: surrogate.RankComparison) -> list[str]:
    printed = spearmanr(*np.array(list(published.ACROSS.values())).T).statistic
    agree = ranks.agreement_low > 0 and ranks.p_value < 0.05
    against = ranks.agreement_high < 0
    return [
        "Table 8: efficiencies have the same ranking on MNIST and CIFAR-100",
        (
            f"Spearman {ranks.agreement:.2f} [{ranks.agreement_low:.2f}, {ranks.agreement_high:.2f}], "
            f"n = {len(ranks.algorithms)}, permutation p = {ranks.p_value:.3f} (the printed values: {printed:.2f})"
        ),
        "supported" if agree else "not supported" if against else "undecidable",
    ]
