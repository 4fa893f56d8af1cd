"""The result of comparing explainers by attribution bias, with a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from perdure.audits import serialization
from perdure.audits.controls import CONTROLS
from perdure.audits.upgrade import upgraded_bias
from perdure.base.errors import InputError, error_message
from perdure.base.files import read_json, write_json
from perdure.metrics import Bias, Interval, holm, interval
from perdure.metrics.missing import Missing

FILE = Path("trust") / "bias.json"
"""The file of the latest comparison in a record."""
SCHEMA = 3
SCHEMA_0_1 = 2
LEVEL = 0.05
ROUNDING = 1e-6
"""Differences of bias up to this size come from single-precision arithmetic and count as zero."""
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ExplainerBias:
    """The bias of one explainer at every share and side, (shares, sides), and overall.

    ``overall`` is the mean over all shares and both sides. Intervals are over examples. ``corrected`` uses the norm of the
    Shapley values without sampling noise. ``sampling_stderr`` is the uncertainty that more permutations would remove.
    ``floor`` is the score of an unbiased map at that noise. ``layer`` is the layer at which the maps were measured; None is
    the input.
    """

    method: str
    cells: tuple[tuple[Interval, ...], ...]
    overall: Interval
    corrected: FloatArray
    sampling_stderr: FloatArray
    floor: FloatArray
    per_example: FloatArray
    """(examples, shares, sides), NaN for degenerate maps."""
    degenerate: int
    layer: str | None = None
    players: int = 0
    control: bool = False
    """Whether this is a control and not an explainer."""
    ranked: bool = True
    """Whether the bias is comparable with the others: positions of a layer are other players than those of the input."""


@dataclass(frozen=True)
class Rival:
    """The paired difference of an explainer from the least biased one, on the same examples; ``p`` is Holm-corrected."""

    method: str
    difference: float
    low: float
    high: float
    p: float

    @property
    def behind(self) -> bool:
        """Whether it is significantly more biased."""
        return self.p < LEVEL and self.difference > 0


@dataclass(frozen=True)
class Verdict:
    """The explainer with the lowest bias over all shares and sides, and whether its lead is significant.

    ``safe``: every other ranked explainer and every control is more biased, with a Holm-corrected p-value below .05.
    """

    least: str
    bias: Interval
    rivals: tuple[Rival, ...]
    safe: bool
    reading: str

    @property
    def tied(self) -> tuple[str, ...]:
        """Explainers and controls that are not significantly more biased."""
        return tuple(rival.method for rival in self.rivals if not rival.behind)


@dataclass(frozen=True)
class BiasResult:
    """The bias of every explainer and control on one network and one set of examples."""

    subject: str
    """A description of the network and its examples."""
    examples: int
    target: str
    permutations: int
    estimator: str
    noise_share: float
    """The share of the squared norm of the Shapley values that is sampling noise."""
    shares: tuple[float, ...]
    sides: tuple[str, ...]
    explainers: tuple[ExplainerBias, ...]
    refused: dict[str, str]
    settings: dict[str, Any]
    verdict: Verdict | None

    def __getitem__(self, method: str) -> ExplainerBias:
        for entry in self.explainers:
            if entry.method == method:
                return entry
        raise InputError(f"{method}: not measured; measured were {', '.join(e.method for e in self.explainers)}")

    def __str__(self) -> str:
        rows = [
            f"  {entry.method:<22}{entry.overall.mean:.4f} [{entry.overall.low:.4f}, {entry.overall.high:.4f}]"
            + (" control" if entry.control else "" if entry.ranked else f" at layer {entry.layer}, not ranked")
            for entry in self.by_bias
        ]
        reading = "No explainer could be ranked." if self.verdict is None else self.verdict.reading
        return "\n".join([f"attribution bias, {self.subject or 'network'}, {self.examples} examples", *rows, reading])

    @property
    def by_bias(self) -> tuple[ExplainerBias, ...]:
        """The explainers in order of bias, then those that are not ranked, then the controls."""

        def rank(entry: ExplainerBias) -> tuple[int, float]:
            known = not np.isnan(entry.overall.mean)
            return (2 if entry.control else 0 if entry.ranked else 1, entry.overall.mean if known else np.inf)

        return tuple(sorted(self.explainers, key=rank))

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON: NaN becomes null."""
        return {"schema": SCHEMA, **serialization.to_json(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BiasResult:
        """Return the result that `to_json` wrote, in this schema or that of version 0.1."""
        if value.get("schema") not in (SCHEMA, SCHEMA_0_1):
            raise InputError(
                f"this comparison of explainers has schema {value.get('schema')!r}, expected {SCHEMA}; run "
                "perdure trust bias again"
            )
        return serialization.from_json(upgraded_bias(value), cls)

    def save(self, file: str | Path, *, digest: bool = False) -> None:
        """Write the result as JSON, atomically. ``digest``: with a digest in the same folder, as in a record."""
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        write_json(Path(file), self.to_json(), digest=digest)

    @classmethod
    def load(cls, file: str | Path) -> BiasResult:
        """Read a result that `save` wrote."""
        value = read_json(Path(file))
        try:
            return cls.from_json(value)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"{file}: a field is missing or malformed ({error_message(error)}); run perdure trust bias again"
            ) from None


def explainer_bias_result(
    method: str, bias: Bias, seed: int, layer: str | None = None, players: int = 0
) -> ExplainerBias:
    """Return one explainer's bias with intervals over the examples that are not degenerate."""
    known = bias.per_example[~np.isnan(bias.per_example[:, 0, 0])]
    missing = Missing("all maps or all Shapley values are zero")

    def over(values: FloatArray) -> Interval:
        return interval(values if len(values) else [missing], seed=seed, bounds=(0.0, 2.0))

    cells = tuple(
        tuple(over(known[:, share, side]) for side in range(len(bias.sides))) for share in range(len(bias.shares))
    )
    return ExplainerBias(
        method=method,
        cells=cells,
        overall=over(known.mean(axis=(1, 2))),
        corrected=bias.corrected,
        sampling_stderr=bias.sampling_stderr,
        floor=bias.floor,
        per_example=bias.per_example,
        degenerate=int(bias.degenerate),
        layer=layer,
        players=players,
        control=method in CONTROLS,
        ranked=method not in CONTROLS and layer is None,
    )


def bias_result_verdict(explainers: Sequence[ExplainerBias]) -> Verdict | None:
    """Return the explainer with the lowest mean bias and its lead over the others; None if none can be ranked.

    Differences are paired by example. The explainer with the lowest mean is compared with every other one and with the
    controls; Holm's correction covers these comparisons.
    """
    ranked = [entry for entry in explainers if entry.ranked and not np.isnan(entry.overall.mean)]
    if not ranked:
        return None
    least = min(ranked, key=lambda entry: entry.overall.mean)
    others = [
        entry for entry in explainers if entry is not least and entry.layer is None and not np.isnan(entry.overall.mean)
    ]
    compared = [_paired(entry, least) for entry in others]
    p_values = holm([rival.p for rival in compared]) if compared else np.zeros(0)
    rivals = tuple(replace(rival, p=float(p)) for rival, p in zip(compared, p_values, strict=True))
    safe = bool(rivals) and all(rival.behind for rival in rivals)
    return Verdict(least.method, least.overall, rivals, safe, _describe_verdict(least, rivals, safe, len(ranked)))


def _paired(entry: ExplainerBias, least: ExplainerBias) -> Rival:
    """Return how much more biased an explainer is on common examples, with Student's t; differences by rounding are zero."""
    gaps = entry.per_example.mean(axis=(1, 2)) - least.per_example.mean(axis=(1, 2))
    known = gaps[~np.isnan(gaps)]
    known = np.where(np.abs(known) <= ROUNDING, 0.0, known)
    difference = interval(known if len(known) else [Missing("no example has both maps")])
    if len(known) < 2:
        p = 1.0
    elif np.ptp(known) == 0:
        p = float(known[0] == 0)
    else:
        p = float(stats.ttest_1samp(known, 0.0).pvalue)
    return Rival(entry.method, difference.mean, difference.low, difference.high, p)


def _describe_verdict(least: ExplainerBias, rivals: Sequence[Rival], safe: bool, ranked: int) -> str:
    name, number = least.method, f"{least.overall.mean:.4f}"
    if ranked == 1:
        controls = [rival.method for rival in rivals if not rival.behind]
        lead = f"; not significantly lower than {', '.join(controls)}" if controls else ""
        return f"{name} has a bias of {number}{lead}; no other explainer was compared."
    if safe:
        worst = max(rival.p for rival in rivals)
        return f"{name} has the lowest bias ({number}), significantly lower than every other (largest p = {worst:.2g})."
    tied = [rival.method for rival in rivals if not rival.behind]
    return f"{name} has the lowest bias ({number}), but not significantly lower than {', '.join(tied)}."
