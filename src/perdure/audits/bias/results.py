"""What the comparison of explainers by their attribution bias found, and which of them it recommends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from perdure.audits.controls import CONTROLS
from perdure.base.errors import InputError
from perdure.base.files import read_json, write_json
from perdure.base.json_values import float_of, interval_from_json, interval_to_json, number_of
from perdure.metrics import Bias, Interval, holm, interval
from perdure.metrics.missing import Missing

FILE = Path("trust") / "bias.json"
"""Where it is kept in a record."""
SCHEMA = 2
SAFE = 0.05
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ExplainerBias:
    """One explainer: its bias at every share and side, (shares, sides), and overall.

    ``overall`` is the mean over all shares and both sides. Intervals are over samples. ``corrected`` has the norm of the
    Shapley values freed from sampling noise, ``sampling_stderr`` is the uncertainty that more permutations would remove,
    ``floor`` what an unbiased map would score at that noise. ``layer`` is where the maps were judged; None is the input.
    """

    method: str
    cells: tuple[tuple[Interval, ...], ...]
    overall: Interval
    corrected: FloatArray
    sampling_stderr: FloatArray
    floor: FloatArray
    samples: FloatArray
    """(samples, shares, sides), NaN for degenerate maps."""
    degenerate: int
    layer: str | None = None
    players: int = 0

    @property
    def control(self) -> bool:
        """Whether it is a control and no explainer."""
        return self.method in CONTROLS

    @property
    def ranked(self) -> bool:
        """Whether its bias can be compared with the others': a layer's positions are other players than the input's."""
        return not self.control and self.layer is None


@dataclass(frozen=True)
class Rival:
    """How far another explainer is behind the least biased, on the same samples; ``p`` is corrected for their number (Holm)."""

    method: str
    difference: float
    low: float
    high: float
    p: float

    @property
    def behind(self) -> bool:
        """Whether it is further off by more than chance."""
        return self.p < SAFE and self.difference > 0


@dataclass(frozen=True)
class Verdict:
    """The least biased explainer by the bias over all shares and sides, and whether that can be told from chance.

    ``safe``: every other ranked explainer is further off, with Holm-corrected p below .05, and so are the controls.
    """

    least: str
    bias: Interval
    rivals: tuple[Rival, ...]
    safe: bool
    reading: str

    @property
    def tied(self) -> tuple[str, ...]:
        """What the least biased explainer cannot be told from."""
        return tuple(rival.method for rival in self.rivals if not rival.behind)


@dataclass(frozen=True)
class BiasResult:
    """The bias of every explainer and control on one network and one set of samples."""

    subject: str
    """The network and where its samples come from, in words."""
    samples: int
    target: str
    permutations: int
    estimator: str
    noise_share: float
    """The part of the Shapley values' squared norm that is sampling noise."""
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
        raise InputError(f"{method}: it was not measured; there are {', '.join(e.method for e in self.explainers)}")

    def __str__(self) -> str:
        rows = [
            f"  {entry.method:<22}{entry.overall.mean:.4f} [{entry.overall.low:.4f}, {entry.overall.high:.4f}]"
            + (" control" if entry.control else "" if entry.ranked else f" at layer {entry.layer}, not ranked")
            for entry in self.by_bias
        ]
        reading = "No explainer could be ranked." if self.verdict is None else self.verdict.reading
        return "\n".join([f"attribution bias, {self.subject or 'network'}, {self.samples} samples", *rows, reading])

    @property
    def by_bias(self) -> tuple[ExplainerBias, ...]:
        """The explainers from the least biased on, then those that are not ranked, then the controls."""

        def place(entry: ExplainerBias) -> tuple[int, float]:
            known = not np.isnan(entry.overall.mean)
            return (2 if entry.control else 0 if entry.ranked else 1, entry.overall.mean if known else np.inf)

        return tuple(sorted(self.explainers, key=place))

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "schema": SCHEMA,
            "subject": self.subject,
            "samples": self.samples,
            "target": self.target,
            "permutations": self.permutations,
            "estimator": self.estimator,
            "noise_share": number_of(self.noise_share),
            "shares": list(self.shares),
            "sides": list(self.sides),
            "explainers": [_explainer_to_json(entry) for entry in self.explainers],
            "refused": self.refused,
            "settings": self.settings,
            "verdict": None if self.verdict is None else _verdict_to_json(self.verdict),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> BiasResult:
        """Return the result that `to_json` wrote."""
        if value.get("schema") != SCHEMA:
            raise InputError(
                f"this comparison of explainers has schema {value.get('schema')!r}, expected {SCHEMA}; run perdure trust again"
            )
        verdict = value["verdict"]
        return cls(
            subject=value["subject"],
            samples=value["samples"],
            target=value["target"],
            permutations=value["permutations"],
            estimator=value["estimator"],
            noise_share=float_of(value["noise_share"]),
            shares=tuple(value["shares"]),
            sides=tuple(value["sides"]),
            explainers=tuple(_explainer_from_json(entry) for entry in value["explainers"]),
            refused=value["refused"],
            settings=value["settings"],
            verdict=None if verdict is None else _verdict_from_json(verdict),
        )

    def save(self, file: str | Path) -> None:
        """Write it as JSON, atomically."""
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        write_json(Path(file), self.to_json())

    @classmethod
    def load(cls, file: str | Path) -> BiasResult:
        """Read what `save` wrote."""
        return cls.from_json(read_json(Path(file)))


def explainer_bias(method: str, bias: Bias, seed: int, layer: str | None = None, players: int = 0) -> ExplainerBias:
    """Return one explainer's bias with intervals over the samples that are not degenerate."""
    known = bias.samples[~np.isnan(bias.samples[:, 0, 0])]
    missing = Missing("every map, or its Shapley values, is zero everywhere")

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
        samples=bias.samples,
        degenerate=int(bias.degenerate),
        layer=layer,
        players=players,
    )


def verdict_of(explainers: Sequence[ExplainerBias]) -> Verdict | None:
    """Return the least biased explainer and how safely it is; None when none can be ranked.

    Differences are paired by sample. The least biased is the one that looks so, and is then compared with every other, the
    controls too; Holm's correction covers those comparisons.
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
    return Verdict(least.method, least.overall, rivals, safe, _reading(least, rivals, safe, len(ranked)))


def _paired(entry: ExplainerBias, least: ExplainerBias) -> Rival:
    """Return how much more biased an explainer is on the samples both have, with Student's t."""
    gaps = entry.samples.mean(axis=(1, 2)) - least.samples.mean(axis=(1, 2))
    known = gaps[~np.isnan(gaps)]
    found = interval(known if len(known) else [Missing("no sample has both maps")])
    if len(known) < 2:
        p = 1.0
    elif np.ptp(known) == 0:
        p = float(known[0] == 0)
    else:
        p = float(stats.ttest_1samp(known, 0.0).pvalue)
    return Rival(entry.method, found.mean, found.low, found.high, p)


def _reading(least: ExplainerBias, rivals: Sequence[Rival], safe: bool, ranked: int) -> str:
    name, number = least.method, f"{least.overall.mean:.4f}"
    if ranked == 1 and (safe or not rivals):
        return f"{name} has a bias of {number}; it is the only explainer that was compared."
    if safe:
        worst = max(rival.p for rival in rivals)
        return f"{name} is the least biased ({number}); its lead over every other is more than chance (largest p {worst:.2g})."
    near = [rival.method for rival in rivals if not rival.behind]
    return f"{name} has the lowest bias ({number}), but on these samples it cannot be told from {', '.join(near)}."


def _explainer_to_json(entry: ExplainerBias) -> dict[str, Any]:
    return {
        "method": entry.method,
        "control": entry.control,
        "ranked": entry.ranked,
        "layer": entry.layer,
        "players": entry.players,
        "degenerate": entry.degenerate,
        "overall": interval_to_json(entry.overall),
        "cells": [[interval_to_json(cell) for cell in row] for row in entry.cells],
        **{name: _table_to_json(getattr(entry, name)) for name in _TABLES},
    }


_TABLES = ("corrected", "sampling_stderr", "floor", "samples")


def _explainer_from_json(value: dict[str, Any]) -> ExplainerBias:
    return ExplainerBias(
        method=value["method"],
        cells=tuple(tuple(interval_from_json(cell) for cell in row) for row in value["cells"]),
        overall=interval_from_json(value["overall"]),
        degenerate=value["degenerate"],
        layer=value["layer"],
        players=value["players"],
        **{name: np.array(value[name], dtype=np.float64) for name in _TABLES},
    )


def _table_to_json(table: FloatArray) -> Any:
    """Return nested lists, NaN as null."""
    plain = np.empty(table.shape, dtype=object)
    for place in product(*map(range, table.shape)):
        plain[place] = number_of(float(table[place]))
    return plain.tolist()


def _verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "least": verdict.least,
        "bias": interval_to_json(verdict.bias),
        "safe": verdict.safe,
        "reading": verdict.reading,
        "rivals": [
            {
                "method": rival.method,
                **{name: number_of(getattr(rival, name)) for name in ("difference", "low", "high", "p")},
            }
            for rival in verdict.rivals
        ],
    }


def _verdict_from_json(value: dict[str, Any]) -> Verdict:
    rivals = tuple(
        Rival(rival["method"], *(float_of(rival[name]) for name in ("difference", "low", "high", "p")))
        for rival in value["rivals"]
    )
    return Verdict(value["least"], interval_from_json(value["bias"]), rivals, value["safe"], value["reading"])
