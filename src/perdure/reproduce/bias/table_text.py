"""The words and tables around the bias of one network's explainers, all computed from the numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from perdure.audits.bias.results import BiasResult, ExplainerBias
from perdure.metrics import Interval, KendallCorrelation, kendall_correlation
from perdure.reproduce.bias.published_tables import METHODS, PublishedTable

SHORT = {**METHODS, "expected_gradients": "EG (ours)", "constant": "constant", "random": "random"}
Row = tuple[str, float]
FloatArray = NDArray[np.float64]


def network_section(
    title: str, accuracy: float, result: BiasResult, published: PublishedTable | None, picture: str
) -> str:
    """Return one network's part: what was done, the table, the agreement with the paper, the verdict, the figure."""
    lines = [f"### {title}", "", _settings(accuracy, result), "", *_table(result, published), ""]
    lines += [_sampling(result), ""]
    lines += [_agreement(result, published) if published else _tabular(result), ""]
    if result.verdict is not None:
        lines += [f"Over all shares and sides: {result.verdict.reading}", ""]
    for name, why in result.refused.items():
        lines += [f"Refused: `{name}` ({why}).", ""]
    return "\n".join([*lines, f"![bias of the methods, {title}]({picture})"])


def _settings(accuracy: float, result: BiasResult) -> str:
    if result.estimator == "exact":
        sampling = f"exact Shapley values of {result.settings['player_count']} columns"
    else:
        kind = {"grid": "cells of a grid", "pixels": "pixels"}.get(result.settings["players"], "players")
        sampling = (
            f"{result.settings['player_count']} {kind}, {result.permutations} {result.estimator} permutations; "
            f"{100 * result.noise_share:.1f} % of the Shapley values' squared norm is sampling noise"
        )
    return (
        f"Test accuracy {accuracy:.3f}; {result.examples} test samples, the true class; {sampling}; "
        f"{result.settings['background']} backgrounds, {result.settings['budget']} steps or perturbations a map."
    )


def _table(result: BiasResult, published: PublishedTable | None) -> list[str]:
    """Return rows of side and share: ours ± half its interval, then the paper's; the lowest of each bold."""
    entries = _ordered(result)
    judged = [entry for entry in entries if entry.ranked]
    header = ["", *(_title(entry) for entry in entries)]
    if published is not None:
        header.append("order: τ (p)")
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for side, name in enumerate(result.sides):
        for share, level in enumerate(result.shares):
            ours = {entry.method: entry.cells[share][side] for entry in entries}
            theirs = {} if published is None else published.bias[name, level]
            best = min(judged, key=lambda entry: ours[entry.method].mean).method if judged else ""
            their_best = _lowest(theirs, [entry.method for entry in judged])
            cells = [
                _cell(ours[entry.method], theirs.get(entry.method), entry.method == best, entry.method == their_best)
                for entry in entries
            ]
            if published is not None:
                cells.append(_tau(_agreement_of(result, published, (name, level))))
            lines.append(f"| {name} {100 * level:g} % | " + " | ".join(cells) + " |")
    shown = "ours ± half the 95 % interval over samples" + (" / the paper's" if published else "")
    lines += ["", f"Each cell: {shown}; the lowest of the ranked methods is bold."]
    if any(entry.layer is not None for entry in entries):
        lines[-1] += " Grad-CAM is judged at its layer, where the players are others, and not ranked."
    return lines


def _ordered(result: BiasResult) -> list[ExplainerBias]:
    order = list(SHORT)
    return sorted(result.explainers, key=lambda entry: order.index(entry.method))


def _title(entry: ExplainerBias) -> str:
    return SHORT[entry.method] + (f" ({entry.players} positions)" if entry.layer is not None else "")


def _lowest(values: Mapping[str, float], among: Sequence[str]) -> str:
    known = [name for name in among if name in values]
    return min(known, key=values.__getitem__) if known else ""


def _cell(ours: Interval, theirs: float | None, best: bool, their_best: bool) -> str:
    if math.isnan(ours.mean):
        mine = "–"
    else:
        half = "" if math.isnan(ours.low) else f" ± {(ours.high - ours.low) / 2:.4f}"
        mine = (f"**{ours.mean:.4f}**" if best else f"{ours.mean:.4f}") + half
    if theirs is None:
        return mine
    return f"{mine} / " + (f"**{theirs:.4f}**" if their_best else f"{theirs:.4f}")


def _sampling(result: BiasResult) -> str:
    """Say what the sampling of the Shapley values does to the numbers."""
    if result.estimator == "exact":
        return "The Shapley values are exact, so no part of these numbers is sampling noise."
    ranked = [entry for entry in result.explainers if entry.ranked]
    error = max(float(np.nanmax(entry.sampling_stderr)) for entry in ranked)
    means = np.array([[[cell.mean for cell in row] for row in entry.cells] for entry in ranked])
    moved = np.abs(np.array([entry.corrected for entry in ranked]) - means) / means
    floor = float(np.nanmedian([entry.floor for entry in ranked] / means))
    return (
        f"Sampling alone gives these means a standard error of at most {error:.4f}; with the norm freed from noise they "
        f"move by {100 * float(np.nanmedian(moved)):.1f} % (median; at most {100 * float(np.nanmax(moved)):.0f} %). A map "
        f"without bias would score {100 * floor:.0f} % of them (median)."
    )


def _agreement_of(result: BiasResult, published: PublishedTable, row: Row) -> KendallCorrelation:
    side, share = result.sides.index(row[0]), result.shares.index(row[1])
    common = [entry for entry in result.explainers if entry.ranked and entry.method in published.bias[row]]
    return kendall_correlation(
        [entry.cells[share][side].mean for entry in common], [published.bias[row][entry.method] for entry in common]
    )


def _tau(found: KendallCorrelation) -> str:
    return "–" if math.isnan(found.tau) else f"{found.tau:+.2f} ({found.p:.2f})"


def _agreement(result: BiasResult, published: PublishedTable) -> str:
    rows = [(side, share) for side in result.sides for share in result.shares]
    found = [_agreement_of(result, published, row) for row in rows]
    taus = np.array([one.tau for one in found])
    common = [entry.method for entry in result.explainers if entry.ranked and entry.method in published.bias[rows[0]]]
    ours = [_ours_lowest(result, row, common) for row in rows]
    theirs = [_lowest(published.bias[row], common) for row in rows]
    same = sum(one == other for one, other in zip(ours, theirs, strict=True))
    over = kendall_correlation(
        [result[method].overall.mean for method in common],
        [float(np.mean([published.bias[row][method] for row in rows])) for method in common],
    )
    return (
        f"Beside Table {published.number}: among the {len(common)} methods that both rank, Kendall's τ is positive in "
        f"{int((taus > 0).sum())} of {len(rows)} rows (mean {float(np.nanmean(taus)):+.2f}); of the means over all rows it is "
        f"{over.tau:+.2f} (p {over.p:.2f}). The lowest is the same method in {same} of {len(rows)} rows: "
        f"in the paper {_counted(theirs)}, here {_counted(ours)}. {_sizes(result, published, common, rows)}"
    )


def _ours_lowest(result: BiasResult, row: Row, among: Sequence[str]) -> str:
    side, share = result.sides.index(row[0]), result.shares.index(row[1])
    return min(among, key=lambda method: result[method].cells[share][side].mean)


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{SHORT[name]} {count}×" for name, count in Counter(names).most_common())


def _sizes(result: BiasResult, published: PublishedTable, common: Sequence[str], rows: Sequence[Row]) -> str:
    """Compare sizes where the players are the same; elsewhere the scale of a share's mean is another."""
    if result.settings["players"] != "pixels":
        return "Sizes do not compare: a grid has fewer players than the paper's images have pixels."
    ratios, inside = [], 0
    for row in rows:
        side, share = result.sides.index(row[0]), result.shares.index(row[1])
        for method in common:
            cell, printed = result[method].cells[share][side], published.bias[row][method]
            ratios.append(cell.mean / printed)
            inside += cell.low <= printed <= cell.high
    return (
        f"Ours is {np.median(ratios):.2f} times the paper's number (median; quartiles {np.quantile(ratios, 0.25):.2f} and "
        f"{np.quantile(ratios, 0.75):.2f}); {inside} of {len(ratios)} of its numbers lie in our intervals."
    )


def lookalikes(result: BiasResult, published: PublishedTable, signed: FloatArray) -> str:
    """Say which of our maps each column of the paper is nearest to, size and course over all rows taken together.

    ``signed`` is the bias (shares, sides) of the gradient with its sign. Distance: the mean of |log(ours / theirs)|.
    """
    ours = {
        SHORT[entry.method]: np.array([[cell.mean for cell in row] for row in entry.cells])
        for entry in result.explainers
        if entry.layer is None
    }
    ours["Grad with its sign"] = signed
    said = []
    for method, title in METHODS.items():
        theirs = np.array([[published.at(method, side, share) for side in result.sides] for share in result.shares])
        if title not in ours or np.isnan(theirs).any():
            continue
        far = {name: float(np.mean(np.abs(np.log(values / theirs)))) for name, values in ours.items()}
        near = sorted(far, key=far.__getitem__)[:2]
        own = f" (our {title} {math.exp(far[title]):.2f})" if title not in near else ""
        said.append(f"{title} to " + " and ".join(f"{name} {math.exp(far[name]):.2f}" for name in near) + own)
    return (
        "The two of our maps that each of the paper's columns is nearest to, with the mean factor between them over the rows: "
        f"{'; '.join(said)}."
    )


def _tabular(result: BiasResult) -> str:
    """Say whether integrated gradients and DeepSHAP are least biased, as the paper reads off its Figure 8."""
    ranked = sorted((entry for entry in result.explainers if entry.ranked), key=lambda entry: entry.overall.mean)
    order = ", ".join(f"{SHORT[entry.method]} {entry.overall.mean:.4f}" for entry in ranked)
    paper = {"integrated_gradients", "deepshap"}
    ours = [entry.method for entry in ranked if entry.method in METHODS]
    agrees = "agrees" if set(ours[:2]) == paper else "does not agree"
    return (
        f"From least biased: {order}. The paper's Figure 8 (another table, no numbers printed) has IG and DeepSHAP lowest; "
        f"among the paper's methods the lowest two here are {SHORT[ours[0]]} and {SHORT[ours[1]]}, which {agrees}."
    )
