"""Learner and seed from the names of files and folders, as people name their runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from perdure.base.errors import InputError
from perdure.importers.imported_run import ImportedRun

CONTENT_NAMES = frozenset(
    (
        *("accuracy", "accuracies", "acc", "matrix", "accuracy_matrix", "acc_matrix", "results", "result", "metrics"),
        *("eval_results", "training_results", "all_metrics", "csvlogs", "logs", "log", "history", "events", "output"),
        *(
            "logs_continual",
            "linear_probing",
            "tb_data",
            "tb_logs",
            "tensorboard",
            "checkpoints",
            "runs",
            "stdout",
            "eval",
        ),
        *("wandb_history", "wandb_export", "data", "scores", "table", "tables"),
    )
)
"""Names of files and folders that say what they contain, not which learner it is."""
_MARKED_SEED = re.compile(
    r"(?:(?:^|[-_., ])(?:seed|run|rep|s)|(?<=[a-z])(?:seed|run|rep))[-_ =]?(\d{1,9})$", re.IGNORECASE
)
_INNER_SEED = re.compile(r"(?:^|[-_., ])seed[-_ =]?(\d{1,9})(?=[-_., ]|$)", re.IGNORECASE)
_BARE_SEED = re.compile(r"(?:^|[-_., ])(\d{1,9})$")
_TIMESTAMP = re.compile(r"-\d{9,11}(?:-\d+)?$")  # l2logger's scenario-1600697775-609517
_SETTING = re.compile(r"(?:learner|method|strategy|model|approach|algorithm)=", re.IGNORECASE)
_PLACEHOLDERS = {"{learner}": r"(?P<learner>[^/]+?)", "{seed}": r"(?P<seed>\d{1,9})"}
_PATTERN_PARTS = re.compile(r"(\{[^{}]*\}|\*)")


def split_seed(name: str) -> tuple[str, int | None]:
    """Return a name without its seed, and the seed: ``ewc_seed1`` gives ``("ewc", 1)``, ``gem`` gives ``("gem", None)``.

    A seed is a number after ``seed``, ``run``, ``rep`` or ``s`` at the end, after ``seed`` anywhere, or a number at the end
    after ``_``, ``-``, ``.``, a comma or a space. Such a number without a word is part of the name if it is a multiple of
    50 from 100 on, as in ``replay_200``: it is more likely the size of a memory.
    """
    name = _TIMESTAMP.sub("", name)
    for pattern in (_MARKED_SEED, _INNER_SEED):
        match = pattern.search(name)
        if match:
            return _clean(name[: match.start()] + name[match.end() :]), int(match[1])
    match = _BARE_SEED.search(name)
    if match and not (int(match[1]) >= 100 and int(match[1]) % 50 == 0):
        return _clean(name[: match.start()]), int(match[1])
    return name, None


def _clean(name: str) -> str:
    return _SETTING.sub("", name.strip("-_., "))


def names_from_path(path: Path, *, is_folder: bool = False) -> tuple[str, int | None]:
    """Return learner and seed from a path.

    A part of the path that is only a seed (``seed0.csv``, ``ewc/3/``) or names the content (``accuracy.csv``, ``csvlogs/``)
    does not name the learner; the folder above it does.
    """
    absolute = path.absolute()
    seed: int | None = None
    for part in (absolute.name if is_folder else absolute.stem, *absolute.parent.parts[:0:-1]):
        if part.startswith("events.out.tfevents"):
            continue
        name, found = split_seed(part)
        if seed is None:
            seed = found
        if name and name.lower() not in CONTENT_NAMES:
            # A plain name that merely ends in a number keeps it once the seed is known: er_20_2000/0 is a run of er_20_2000.
            kept = part if found is not None and found != seed else name
            return _clean(kept), seed
    return path.stem or path.name, seed


def name_runs(runs: Sequence[ImportedRun], pattern: str | None = None) -> list[ImportedRun]:
    """Return the runs with learners and seeds: those that the files state, otherwise those in the names of the paths.

    ``pattern`` overrides both, see `match_group`.
    """
    if pattern is None:
        return [_named(run) for run in runs]
    regex = compile_group(pattern)
    return [_matched(run, regex, pattern) for run in runs]


def _named(run: ImportedRun) -> ImportedRun:
    learner, seed = names_from_path(run.source, is_folder=run.source.is_dir())
    return replace(run, learner=run.learner or learner, seed=seed if run.seed is None else run.seed)


def compile_group(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern such as ``{learner}/{seed}/*.csv``.

    ``{learner}`` matches a name, ``{seed}`` an integer, ``*`` any characters; none of them matches a slash. The pattern is
    compared with the end of the path and may start in the middle of it only after a slash.
    """
    unknown = [part for part in _PATTERN_PARTS.findall(pattern) if part != "*" and part not in _PLACEHOLDERS]
    if unknown or not any(name in pattern for name in _PLACEHOLDERS):
        raise InputError(
            f"--group {pattern}: expected the placeholders {{learner}} and {{seed}}, as in {{learner}}_{{seed}}.csv or"
            " {learner}/{seed}/*."
        )
    if any(pattern.count(name) > 1 for name in _PLACEHOLDERS):
        raise InputError(f"--group {pattern}: expected each placeholder at most once.")
    parts = (
        _PLACEHOLDERS.get(part, "[^/]*" if part == "*" else re.escape(part)) for part in _PATTERN_PARTS.split(pattern)
    )
    return re.compile(f"(?:^|.*/){''.join(parts)}$")


def _matched(run: ImportedRun, regex: re.Pattern[str], pattern: str) -> ImportedRun:
    match = regex.match(run.source.as_posix()) or regex.match(run.source.absolute().as_posix())
    if match is None:
        raise InputError(
            f"{run.source}: does not match --group {pattern}. Expected a path such as {_example(pattern)}."
        )
    groups = match.groupdict()
    learner = groups.get("learner") or run.learner or names_from_path(run.source)[0]
    return replace(run, learner=learner, seed=int(groups["seed"]) if "seed" in groups else run.seed)


def _example(pattern: str) -> str:
    return pattern.replace("{learner}", "ewc").replace("{seed}", "0").replace("*", "x")
