"""The page of results of the SHAPC paper: Tables 1 and 2 and Figures 1 to 4 of each study, written from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from perdure.base.errors import InputError, error_suggestion
from perdure.reproduce.learners.run_rows import (
    FinishedStudy,
    RowsTarget,
    audit_of_rows,
    measurements_of_rows,
    study_provenance,
)
from perdure.reproduce.learners.study import Study, write_learner_study_page
from perdure.reproduce.result_rows import Row
from perdure.reproduce.shapc import studies
from perdure.reproduce.shapc.pictures import save_pictures, shapc_pictures
from perdure.reproduce.shapc.sentences import missing_runs, protocol_text, samples_text, settings_text, shapc_answer
from perdure.reproduce.shapc.tables import (
    shapc_detail_table,
    shapc_main_table,
    shapc_ranking_table,
    shapc_rankings,
    shapc_share_table,
    share_agreement,
    significant_differences,
)

_INTRO = """\
# The SHAPC paper: do continual learners keep their reasons?

This page repeats the experiments of the SHAPC paper (Cai et al.). Nine continual learners are trained on one task after
another. For test examples of every task, the explanation of the network's decision right after the task is compared with
those after all later tasks. The tables and figures are those of the paper, with the published numbers next to ours.
`perdure reproduce shapc --only split-cifar10 --data-dir DATA` recreates a section and keeps the others; finished runs are
not repeated.

How to read it: numbers are means over seeds with 95 % Student t intervals (half-widths after ±). SHAPC-Mean is higher if the
reasons change less, SHAPC-Var is lower if they change equally for all examples. Calibrated SHAPC is 0 if the reasons are no
more similar than those of untrained networks, and 1 if they are identical; it is not clipped. The paper trains ResNet-18 of
width 64 for 50 or 100 epochs per task on all images, so only rankings can be compared. [Definitions, intervals and
options](../stability.md).
"""
_RANKED = (
    "Learners are ranked by calibrated SHAPC. `naive` trains without protection against forgetting; `joint` learns all tasks "
    "at once and has no later network to compare with; its accuracy is a reference."
)
_DETAILS = (
    "SHAPC of examples that are still classified correctly, and of forgotten ones; the calibrated score of two networks that "
    "learned the same task from different seeds, which is the effect of retraining alone; multiply-adds of the training; and "
    "the largest memory besides the network during a task (stored examples, importances, anchors and frozen networks; not the "
    "data of the task)."
)
_RANKINGS = (
    "Pairs of the paper's methods, by each measure; calibrated SHAPC is compared with the paper's SHAPC-Mean. Reversed pairs "
    "are listed if the difference is significant after Holm's correction."
)
_SHARES = "SHAPC-Mean and SHAPC-Var if 10, 30 or 50 % of the values count as important. The paper has them for Split CIFAR-100."


def write_shapc_page(rows: Mapping[str, Sequence[Row]], page: Path, data_dir: Path | None = None) -> None:
    """Write the sections of the studies that have rows, and their pictures; other sections of an existing page are kept.

    Parameters
    ----------
    rows : the rows of each study, by its name; learners and seeds may be missing
    page : the pictures are saved next to it
    data_dir : where the names of the classes are read from; by default they come from the names of the tasks in the rows
    """
    known = shapc_page_studies()
    for name in rows:
        if name not in known:
            raise InputError(f"unknown study {name!r}, {error_suggestion(name, list(known))}")
    sections = [shapc_section(known[name], own, page.parent, data_dir) for name, own in rows.items() if own]
    write_learner_study_page(_INTRO.split("\n"), sections, [study.title for study in known.values()], page)


def shapc_page_studies() -> dict[str, Study]:
    """Return the studies that can have a section, by name and in their order on the page."""
    small = list(studies.STUDIES.values())
    return {study.name: study for study in (*small, *map(studies.paper_scale, small))}


def shapc_section(study: Study, rows: Sequence[Row], folder: Path, data_dir: Path | None = None) -> str:
    """Return the section of a study in Markdown, and save its pictures in a folder."""
    protocols = sorted({str(row["protocol"]) for row in rows})
    if len(protocols) > 1:
        raise InputError(f"{study.name}: rows of different protocols ({', '.join(protocols)}) cannot be averaged")
    audit = audit_of_rows(rows)
    names = class_names_of_rows(rows) if data_dir is None else studies.class_names(study, data_dir)
    agreements = shapc_rankings(audit, study.benchmark)
    parts = [
        f"## {study.title}",
        study_provenance(rows),
        missing_runs(study, rows),
        shapc_answer(audit, agreements),
        protocol_text(study, rows, len(names)),
        *_titled("Table 1: nine methods", _RANKED, shapc_main_table(audit, study.benchmark)),
        _DETAILS,
        shapc_detail_table(audit, rows),
        samples_text(audit),
        *_titled("Does the paper's ranking hold?", _RANKINGS, shapc_ranking_table(agreements) if agreements else ""),
    ]
    if audit.shapc:
        pictures = shapc_pictures(audit, rows, study.benchmark, names)
        parts += [
            *_titled("Table 2: other shares of important values", _SHARES, shapc_share_table(audit)),
            share_agreement(audit),
            *_titled("Figures 1 to 4", save_pictures(pictures, study.name, folder)),
            *_titled("Significant differences of SHAPC", significant_differences(audit)),
        ]
    parts += _titled("Settings", settings_text(study, rows))
    return "\n\n".join(part for part in parts if part) + "\n"


def _titled(title: str, *parts: str) -> list[str]:
    """Return parts below a heading; nothing if the last one is empty."""
    return [f"### {title}", *parts] if parts[-1] else []


def class_names_of_rows(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the names of the classes in the order of the outputs: a task is named after its classes."""
    names = max((run.task_names for run in measurements_of_rows(rows)), key=len)
    return tuple(", ".join(names).split(", "))


def _write_finished(finished: Sequence[FinishedStudy], page: Path, data_dir: Path | None = None) -> None:  # noqa: ARG001
    write_shapc_page({entry.study.name: entry.rows for entry in finished}, page)


TARGET = RowsTarget(
    studies=studies.STUDIES,
    default=("split-cifar10",),
    write_page=_write_finished,
    page=Path("docs/results/stability.md"),
    examine=studies.examine_runs,
    paper_scale=studies.paper_scale,
)
