"""The Markdown section with the bias of one network's explainers and its comparison with the paper."""

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


def table_text_section(
    title: str, accuracy: float, result: BiasResult, published: PublishedTable | None, picture: str
) -> str:
    """Return one network's section: settings, table, agreement with the paper, verdict and figure."""
    lines = [f"### {title}", "", _settings(accuracy, result), "", *_table(result, published), ""]
    lines += [_sampling_noise(result), ""]
    lines += [_agreement(result, published) if published else _tabular_ranking(result), ""]
    if result.verdict is not None:
        lines += [f"Over all shares and sides: {result.verdict.reading}", ""]
    for name, reason in result.refused.items():
        lines += [f"Refused: `{name}` ({reason}).", ""]
    return "\n".join([*lines, f"![bias of the methods, {title}]({picture})"])


def _settings(accuracy: float, result: BiasResult) -> str:
    if result.estimator == "exact":
        sampling = f"exact Shapley values of {result.settings['player_count']} columns"
    else:
        kind = {"grid": "grid cells", "pixels": "pixels"}.get(result.settings["players"], "players")
        sampling = (
            f"{result.settings['player_count']} {kind}, {result.permutations} {result.estimator} permutations; "
            f"{100 * result.noise_share:.1f} % of the Shapley values' squared norm is sampling noise"
        )
    return (
        f"Test accuracy {accuracy:.3f}; {result.examples} test examples, maps of the true class; {sampling}; "
        f"{result.settings['background']} backgrounds, {result.settings['samples']} steps or perturbations per map."
    )


def _table(result: BiasResult, published: PublishedTable | None) -> list[str]:
    """Return one row per side and share: our bias ± half its interval, then the paper's; the lowest of each is bold."""
    entries = _ordered(result)
    ranked = [entry for entry in entries if entry.ranked]
    header = ["", *(_title(entry) for entry in entries)]
    if published is not None:
        header.append("rank agreement: τ (p)")
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for side, name in enumerate(result.sides):
        for share, level in enumerate(result.shares):
            ours = {entry.method: entry.cells[share][side] for entry in entries}
            theirs = {} if published is None else published.bias[name, level]
            best = min(ranked, key=lambda entry: ours[entry.method].mean).method if ranked else ""
            their_best = _lowest(theirs, [entry.method for entry in ranked])
            cells = [
                _cell(ours[entry.method], theirs.get(entry.method), entry.method == best, entry.method == their_best)
                for entry in entries
            ]
            if published is not None:
                cells.append(_tau_cell(_agreement_of(result, published, (name, level))))
            lines.append(f"| {name} {100 * level:g} % | " + " | ".join(cells) + " |")
    cell_text = "our bias ± half the 95 % interval over examples" + (" / the paper's" if published else "")
    lines += ["", f"Each cell: {cell_text}; the lowest of the ranked methods is bold."]
    if any(entry.layer is not None for entry in entries):
        lines[-1] += " Grad-CAM is compared at a hidden layer, whose positions are the players, and is not ranked."
    return lines


def _ordered(result: BiasResult) -> list[ExplainerBias]:
    order = list(SHORT)
    return sorted(result.explainers, key=lambda entry: order.index(entry.method))


def _title(entry: ExplainerBias) -> str:
    return SHORT[entry.method] + (f" ({entry.players} positions)" if entry.layer is not None else "")


def _lowest(values: Mapping[str, float], methods: Sequence[str]) -> str:
    known = [name for name in methods if name in values]
    return min(known, key=values.__getitem__) if known else ""


def _cell(ours: Interval, theirs: float | None, best: bool, their_best: bool) -> str:
    if math.isnan(ours.mean):
        our_text = "–"
    else:
        half = "" if math.isnan(ours.low) else f" ± {(ours.high - ours.low) / 2:.4f}"
        our_text = (f"**{ours.mean:.4f}**" if best else f"{ours.mean:.4f}") + half
    if theirs is None:
        return our_text
    return f"{our_text} / " + (f"**{theirs:.4f}**" if their_best else f"{theirs:.4f}")


def _sampling_noise(result: BiasResult) -> str:
    """Return a sentence on the effect of the Shapley values' sampling noise."""
    if result.estimator == "exact":
        return "The Shapley values are exact, so these numbers contain no sampling noise."
    ranked = [entry for entry in result.explainers if entry.ranked]
    error = max(float(np.nanmax(entry.sampling_stderr)) for entry in ranked)
    means = np.array([[[cell.mean for cell in row] for row in entry.cells] for entry in ranked])
    change = np.abs(np.array([entry.corrected for entry in ranked]) - means) / means
    floor = float(np.nanmedian([entry.floor for entry in ranked] / means))
    return (
        f"Sampling causes a standard error of at most {error:.4f} in these means. Correcting the norm for "
        "sampling noise changes "
        f"them by {100 * float(np.nanmedian(change)):.1f} % (median; at most {100 * float(np.nanmax(change)):.0f} "
        "%). An unbiased "
        f"map would score {100 * floor:.0f} % of them (median)."
    )


def _agreement_of(result: BiasResult, published: PublishedTable, row: Row) -> KendallCorrelation:
    side, share = result.sides.index(row[0]), result.shares.index(row[1])
    common = [entry for entry in result.explainers if entry.ranked and entry.method in published.bias[row]]
    return kendall_correlation(
        [entry.cells[share][side].mean for entry in common], [published.bias[row][entry.method] for entry in common]
    )


def _tau_cell(agreement: KendallCorrelation) -> str:
    return "–" if math.isnan(agreement.tau) else f"{agreement.tau:+.2f} ({agreement.p:.2f})"


def _agreement(result: BiasResult, published: PublishedTable) -> str:
    rows = [(side, share) for side in result.sides for share in result.shares]
    taus = np.array([_agreement_of(result, published, row).tau for row in rows])
    common = [entry.method for entry in result.explainers if entry.ranked and entry.method in published.bias[rows[0]]]
    ours = [_ours_lowest(result, row, common) for row in rows]
    theirs = [_lowest(published.bias[row], common) for row in rows]
    same = sum(our_lowest == their_lowest for our_lowest, their_lowest in zip(ours, theirs, strict=True))
    overall = kendall_correlation(
        [result[method].overall.mean for method in common],
        [float(np.mean([published.bias[row][method] for row in rows])) for method in common],
    )
    return (
        f"Compared with Table {published.number}: for the {len(common)} methods that both rank, Kendall's τ is positive in "
        f"{int((taus > 0).sum())} of {len(rows)} rows (mean {float(np.nanmean(taus)):+.2f}); for the means over all rows it is "
        f"{overall.tau:+.2f} (p {overall.p:.2f}). The least biased method is the same in {same} of {len(rows)} rows: "
        f"in the paper {_counted(theirs)}, here {_counted(ours)}. {_sizes(result, published, common, rows)}"
    )


def _ours_lowest(result: BiasResult, row: Row, methods: Sequence[str]) -> str:
    side, share = result.sides.index(row[0]), result.shares.index(row[1])
    return min(methods, key=lambda method: result[method].cells[share][side].mean)


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{SHORT[name]} {count}×" for name, count in Counter(names).most_common())


def _sizes(result: BiasResult, published: PublishedTable, common: Sequence[str], rows: Sequence[Row]) -> str:
    """Compare magnitudes if the players are pixels as in the paper; otherwise they are on a different scale."""
    if result.settings["players"] != "pixels":
        return "Magnitudes are not comparable: a grid has fewer players than the paper's images have pixels."
    ratios, inside = [], 0
    for row in rows:
        side, share = result.sides.index(row[0]), result.shares.index(row[1])
        for method in common:
            cell, printed = result[method].cells[share][side], published.bias[row][method]
            ratios.append(cell.mean / printed)
            inside += cell.low <= printed <= cell.high
    return (
        f"Our bias is {np.median(ratios):.2f} times the paper's (median; quartiles {np.quantile(ratios, 0.25):.2f} and "
        f"{np.quantile(ratios, 0.75):.2f}); {inside} of {len(ratios)} of the paper's numbers lie in our intervals."
    )


def table_text_nearest_columns(result: BiasResult, published: PublishedTable, signed: FloatArray) -> str:
    """Return a sentence that names our two nearest columns for each column of the paper's table.

    The distance is the mean of |log(ours / theirs)| over all rows. ``signed`` is the bias (shares, sides) of the signed
    gradient.
    """
    ours = {
        SHORT[entry.method]: np.array([[cell.mean for cell in row] for row in entry.cells])
        for entry in result.explainers
        if entry.layer is None
    }
    ours["signed Grad"] = signed
    parts = []
    for method, title in METHODS.items():
        theirs = np.array([[published.at(method, side, share) for side in result.sides] for share in result.shares])
        if title not in ours or np.isnan(theirs).any():
            continue
        distances = {name: float(np.mean(np.abs(np.log(values / theirs)))) for name, values in ours.items()}
        nearest = sorted(distances, key=distances.__getitem__)[:2]
        same = f" (our {title} {math.exp(distances[title]):.2f})" if title not in nearest else ""
        parts.append(f"{title}: " + " and ".join(f"{name} {math.exp(distances[name]):.2f}" for name in nearest) + same)
    return (
        "For each column of the paper's table, our two nearest columns, with the mean factor between them over the rows: "
        f"{'; '.join(parts)}."
    )


def _tabular_ranking(result: BiasResult) -> str:
    """Return the ranking and whether IG and DeepSHAP are least biased, as the paper states for its Figure 8."""
    ranked = sorted((entry for entry in result.explainers if entry.ranked), key=lambda entry: entry.overall.mean)
    order = ", ".join(f"{SHORT[entry.method]} {entry.overall.mean:.4f}" for entry in ranked)
    paper = {"integrated_gradients", "deepshap"}
    ours = [entry.method for entry in ranked if entry.method in METHODS]
    agrees = "agrees" if set(ours[:2]) == paper else "does not agree"
    return (
        f"From least to most biased: {order}. In the paper's Figure 8 (different data, no numbers printed), IG and DeepSHAP "
        f"are least biased; of the paper's methods, the two least biased here are {SHORT[ours[0]]} and {SHORT[ours[1]]}, which "
        f"{agrees}."
    )
