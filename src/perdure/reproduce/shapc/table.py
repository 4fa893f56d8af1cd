"""SHAPC of the nine methods of the SHAPC paper, compared with its Tables 1 and 2."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from perdure.audits import Audit, ShapcResult, ShapcSettings
from perdure.audits import audit as audit_records
from perdure.base.files import write_atomically
from perdure.engine import Engine
from perdure.figures import save, shapc_bars, shapc_matrices
from perdure.reproduce.learners.study import Study, learner_study_cell, learner_study_protocol, learner_study_records

PAPER = {
    "lwf": (25.08, 11.99),
    "si": (23.03, 13.52),
    "agem": (26.92, 10.58),
    "icarl": (45.29, 11.18),
    "der": (31.26, 12.37),
    "der++": (31.18, 12.68),
    "co2l": (33.63, 13.17),
    "xder": (34.37, 10.62),
    "bfp": (31.88, 19.03),
}
"""SHAPC-Mean and SHAPC-Var on Split CIFAR-10 in the paper's Table 1, in percent."""

PAPER_SHARES = {
    "lwf": ((18.69, 23.08), (28.46, 10.85), (41.55, 6.03)),
    "icarl": ((34.94, 16.76), (43.26, 9.52), (54.47, 5.80)),
    "bfp": ((31.01, 18.21), (39.80, 9.80), (51.57, 5.89)),
}
"""SHAPC-Mean and SHAPC-Var at 10, 30 and 50 % on Split CIFAR-100 in the paper's Table 2, in percent."""

SETTINGS = ShapcSettings(samples=200, background=100)
EXAMPLES = 16


def explain_study(study: Study, out: Path, engine: Engine) -> None:
    """Compute and store the explanations of the study's records with an engine; `shapc_paper_table` finds them."""
    _audit_with_shapc(study, out, engine)


def _audit_with_shapc(study: Study, out: Path, engine: Engine | None = None) -> Audit:
    return audit_records(out / study.name, shapc=SETTINGS, examples=EXAMPLES, retrain_reference=True, engine=engine)


def shapc_paper_table(study: Study, audit: Audit, out: Path) -> str:
    """Compute SHAPC for the study's records and return the section in Markdown."""
    order = [entry.learner for entry in audit.learners]
    with_shapc = _audit_with_shapc(study, out)
    learners = tuple(sorted(with_shapc.learners, key=lambda entry: order.index(entry.learner)))
    with_shapc = replace(with_shapc, learners=learners)
    results: dict[str, list[ShapcResult]] = {}
    for result in with_shapc.shapc:
        results.setdefault(result.learner, []).append(result)
    lines = [f"## {study.title}", "", learner_study_protocol(study, learner_study_records(study, out)[0]), ""]
    lines += [*_main_table(with_shapc, results), "", *_shares_table(with_shapc, results), "", *_order(with_shapc)]
    lines += ["Differences that are significant after Holm's correction, separately for each score:", ""]
    significant = [f"- {difference}" for difference in with_shapc.differences if difference.p < 0.05]
    lines += [*(significant or ["- none"]), "", *_samples_text(with_shapc)]
    folder = out / study.name
    save(shapc_bars(with_shapc), folder / "stability-bars.png")
    save(shapc_matrices(with_shapc), folder / "stability-matrices.png")
    return "\n".join([*lines, ""])


def _main_table(audit: Audit, results: dict[str, list[ShapcResult]]) -> list[str]:
    header = ["learner", "average accuracy", "forgetting", "SHAPC-Mean", "SHAPC-Var", "calibrated", "still correct"]
    header += ["forgotten", "other seed, same task: calibrated", "paper: Mean", "paper: Var"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for entry in audit.learners:
        runs = results.get(entry.learner)
        if runs is None:
            continue
        names = ("average_accuracy", "forgetting", "shapc_mean", "shapc_var", "shapc_calibrated")
        cells = [learner_study_cell(entry.measures[name]) for name in names]
        cells += [_mean([run.outcomes[name].mean for run in runs]) for name in ("still correct", "forgotten")]
        cells.append(_mean([run.retraining.calibrated.mean for run in runs if run.retraining is not None]))
        paper = PAPER.get(entry.learner)
        cells += [f"{value / 100:.3f}" for value in paper] if paper else ["", ""]
        lines.append(f"| `{entry.learner}` | " + " | ".join(cells) + " |")
    return lines


def _mean(values: list[float]) -> str:
    known = [value for value in values if not math.isnan(value)]
    return f"{statistics.fmean(known):.3f}" if known else "–"


def _shares_table(audit: Audit, results: dict[str, list[ShapcResult]]) -> list[str]:
    """Return SHAPC-Mean and SHAPC-Var at 10, 30 and 50 %, with the paper's Table 2 for the learners it contains."""
    lines = [
        "| learner | 10 %: Mean | Var | 30 %: Mean | Var | 50 %: Mean | Var | paper (CIFAR-100) |",
        "|" + "---|" * 8,
    ]
    for entry in audit.learners:
        runs = results.get(entry.learner)
        if runs is None:
            continue
        cells = [
            _mean([run.sensitivity[share][measure].mean for run in runs])
            for share in sorted(runs[0].sensitivity)
            for measure in (0, 1)
        ]
        paper = PAPER_SHARES.get(entry.learner)
        published = "; ".join(f"{mean / 100:.3f}, {var / 100:.3f}" for mean, var in paper) if paper else ""
        lines.append(f"| `{entry.learner}` | " + " | ".join(cells) + f" | {published} |")
    return lines


def _order(audit: Audit) -> list[str]:
    """Return the paper's ranking, ours by SHAPC-Mean and by the calibrated score, and how many pairs agree."""
    entries = {entry.learner: entry.measures for entry in audit.learners if entry.learner in PAPER}
    theirs = sorted(entries, key=lambda name: -PAPER[name][0])
    lines = ["Ranking in the paper: " + " > ".join(f"`{name}`" for name in theirs) + ".", ""]
    for title, measure in (("SHAPC-Mean", "shapc_mean"), ("the calibrated score", "shapc_calibrated")):
        ours = sorted(entries, key=lambda name: -entries[name][measure].mean)
        pairs = list(combinations(theirs, 2))
        agree = sum(entries[high][measure].mean > entries[low][measure].mean for high, low in pairs)
        lines += [
            f"Ranking by {title}: "
            + " > ".join(f"`{name}`" for name in ours)
            + f"; {agree} of {len(pairs)} pairs are in the same order as in the paper.",
            "",
        ]
    return lines


def _samples_text(audit: Audit) -> list[str]:
    enough = sum(result.budget_is_enough for result in audit.shapc)
    ceilings = [float(result.matrices["ceiling"][0, 1]) for result in audit.shapc]
    spent = f"{SETTINGS.samples} gradients per map, {EXAMPLES} test examples per task"
    checked = f"sufficient according to the built-in check in {enough} of {len(audit.shapc)} runs"
    noise = f"Noise ceiling of the first pair: {min(ceilings):.2f} to {max(ceilings):.2f}."
    return [f"Samples: {spent}; {checked}. {noise}", ""]


def write_shapc_paper_table(sections: list[str], path: Path) -> None:
    """Write the page of all studies."""
    intro = [
        "# SHAPC of the nine methods of the SHAPC paper",
        "",
        "Created by `perdure reproduce shapc --data-dir DATA` from the records of `perdure reproduce memory-learners` (which",
        "are trained first if they do not exist). Means over seeds with 95 % Student t intervals (half-widths after ±).",
        "Calibrated scores are not clipped: 0 is the similarity to untrained networks, 1 means identical reasons. The paper's",
        "numbers are for the full data, a full-width network, 50 epochs per task, and shap's iid sampling, so only rankings",
        "are comparable. [How to read the scores, and what they show](../stability.md#the-nine-methods-of-the-paper).",
        "",
    ]
    write_atomically(path, "\n".join([*intro, *sections]).encode())
